// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of records: the program's own function, or the time of day in nanoseconds. The work of GPUs has times of
//! the provider's clock. Querying that clock measures its offset from the time of day.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::result::{CUptiResult, NOT_INITIALIZED, enter, set};

/// `CUpti_TimestampCallbackFunc`
type Timestamp = extern "C" fn() -> u64;

/// The program's function, or 0.
static CALLBACK: AtomicUsize = AtomicUsize::new(0);

/// The maximum number of queries of the provider's clock for one comparison; the fastest answer counts.
const ROUNDS: u32 = 8;
/// Both clocks may drift apart by a nanosecond in that many: the time of day is corrected.
const DRIFT: u64 = 100_000;
/// The minimum time between two readings from which the rate of the program's clock is computed.
const SPAN: Duration = Duration::from_millis(2);

/// Returns the time of day, in nanoseconds.
pub fn local() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Returns the time of the records' clock.
pub fn now() -> u64 {
    callback().map_or_else(local, |callback| callback())
}

fn callback() -> Option<Timestamp> {
    let address = CALLBACK.load(Ordering::Relaxed);
    // SAFETY: not 0, so `cuptiActivityRegisterTimestampCallback` stored it: a function of the program with this
    // signature.
    (address != 0).then(|| unsafe { std::mem::transmute::<usize, Timestamp>(address) })
}

/// A linear function from the time of day to another clock, from two readings of both.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    first: (u64, u64),
    last: (u64, u64),
}

impl Line {
    fn at(&self, time: u64) -> u64 {
        let (x0, y0) = (i128::from(self.first.0), i128::from(self.first.1));
        let (width, height) = (i128::from(self.last.0) - x0, i128::from(self.last.1) - y0);
        let run = i128::from(time) - x0;
        // A malicious worker may report any times.
        let rise = if width > 0 { run.saturating_mul(height) / width } else { run };
        u64::try_from(y0.saturating_add(rise)).unwrap_or(0)
    }
}

/// Both conversions of the times of GPU work.
#[derive(Debug, Default)]
struct Conversion {
    /// From the provider's clock to the time of day; `None` before the first answer.
    to_local: Option<Comparison>,
    /// From the time of day to the program's clock.
    to_program: Line,
}

static CONVERSION: Mutex<Conversion> = Mutex::new(Conversion { to_local: None, to_program: Line::NONE });

impl Line {
    const NONE: Self = Self { first: (0, 0), last: (0, 0) };
}

fn conversion() -> MutexGuard<'static, Conversion> {
    CONVERSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A comparison of the provider's clock with the time of day.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// The time of day at the beginning of the provider's clock, modulo 2^64.
    offset: u64,
    /// The largest possible error in nanoseconds: half of the time that the answer took.
    doubt: u64,
    /// The time of day.
    since: u64,
}

impl Comparison {
    /// Returns the largest possible error at that time of day.
    fn doubt_at(&self, time: u64) -> u64 {
        self.doubt.saturating_add(time.abs_diff(self.since) / DRIFT)
    }

    /// Returns whether this is better than an earlier one, or shows that the time of day was set meanwhile.
    fn replaces(&self, earlier: &Self) -> bool {
        let doubt = earlier.doubt_at(self.since);
        let difference = self.offset.wrapping_sub(earlier.offset).cast_signed().unsigned_abs();
        self.doubt <= doubt || difference > doubt.saturating_add(self.doubt)
    }
}

/// Compares the clocks, up to [`ROUNDS`] times, until the error is at most `enough`. `ask` reads the provider's clock.
fn compare(enough: u64, ask: impl Fn() -> Option<u64>) -> Option<Comparison> {
    let mut best: Option<Comparison> = None;
    for _ in 0..ROUNDS {
        let before = local();
        let provider = ask()?;
        let since = local();
        let doubt = since.saturating_sub(before) / 2;
        if best.is_none_or(|best| doubt < best.doubt) {
            best = Some(Comparison { offset: (before + doubt).wrapping_sub(provider), doubt, since });
        }
        if doubt <= enough {
            break;
        }
    }
    best
}

fn local_and_program() -> (u64, u64) {
    let before = local();
    let program = now();
    (before + local().saturating_sub(before) / 2, program)
}

/// Reads all clocks for the first time. `ask` reads the provider's clock.
pub fn begin(ask: impl Fn() -> Option<u64>) {
    let mut conversion = conversion();
    conversion.to_local = compare(0, ask);
    let pair = local_and_program();
    conversion.to_program = Line { first: pair, last: pair };
}

/// Reads all clocks again, before times are converted.
pub fn refresh(ask: impl Fn() -> Option<u64>) {
    let mut conversion = conversion();
    let known = conversion.to_local;
    let enough = known.map_or(0, |known| known.doubt_at(local()));
    if let Some(compared) = compare(enough, ask)
        && known.is_none_or(|known| compared.replaces(&known))
    {
        conversion.to_local = Some(compared);
    }
    if callback().is_none() {
        return;
    }
    let passed = Duration::from_nanos(local().saturating_sub(conversion.to_program.first.0));
    if let Some(rest) = SPAN.checked_sub(passed) {
        std::thread::sleep(rest);
    }
    conversion.to_program.last = local_and_program();
}

/// Converts a time of the provider.
pub fn of_provider(time: u64) -> u64 {
    let conversion = conversion();
    let local = time.wrapping_add(conversion.to_local.map_or(0, |known| known.offset));
    if callback().is_some() { conversion.to_program.at(local) } else { local }
}

/// Sets the program's clock for records; NULL selects the time of day again.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterTimestampCallback(function: Option<Timestamp>) -> CUptiResult {
    enter(|| {
        CALLBACK.store(function.map_or(0, |function| function as usize), Ordering::Relaxed);
        let pair = local_and_program();
        conversion().to_program = Line { first: pair, last: pair };
        Ok(())
    })
}

/// Stores the time of the records' clock.
///
/// # Safety
///
/// `timestamp` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetTimestamp(timestamp: *mut u64) -> CUptiResult {
    enter(|| {
        let time = now();
        if time == 0 {
            return Err(NOT_INITIALIZED);
        }
        // SAFETY: this function's contract.
        unsafe { set(timestamp, time) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_through_both_readings() {
        let line = Line { first: (1_000, 50), last: (3_000, 6_050) };
        assert_eq!([1_000, 2_000, 3_000, 4_000].map(|time| line.at(time)), [50, 3_050, 6_050, 9_050]);
        let one = Line { first: (1_000, 50), last: (1_000, 50) };
        assert_eq!(one.at(1_500), 550);
        assert_eq!(one.at(10), 0);
        let absurd = Line { first: (0, 0), last: (1, u64::MAX) };
        assert_eq!(absurd.at(u64::MAX), 0);
    }

    #[test]
    fn the_fastest_answer_counts() {
        let ahead = 1_000_000_000;
        let slow = std::cell::Cell::new(true);
        let asked = std::cell::Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            if slow.replace(false) {
                std::thread::sleep(Duration::from_millis(20));
            }
            Some(local().wrapping_add(ahead))
        };
        let compared = compare(0, ask).expect("it answers");
        // The provider's time lies between both readings of the time of day.
        let error = compared.offset.wrapping_add(ahead).wrapping_add(compared.doubt + 1);
        assert!(error <= 2 * compared.doubt + 1, "{compared:?}");
        assert!(asked.get() > 1, "the first answer is slow");
        asked.set(0);
        compare(u64::MAX, ask);
        assert_eq!(asked.get(), 1, "any answer is good enough");
        assert!(compare(0, || None).is_none());
    }

    #[test]
    fn a_comparison_gets_worse_with_its_age() {
        let known = Comparison { offset: 0, doubt: 3_000, since: 5_000_000_000 };
        assert_eq!(known.doubt_at(known.since), 3_000);
        assert_eq!(
            [known.since + 1_000_000_000, known.since - 1_000_000_000].map(|time| known.doubt_at(time)),
            [13_000; 2]
        );
        let later = |doubt, offset: i64| Comparison {
            doubt,
            since: known.since + 1_000_000_000,
            offset: offset.cast_unsigned(),
        };
        assert!(later(13_000, 5).replaces(&known) && !later(13_001, 5).replaces(&known));
        assert!(later(13_001, -26_002).replaces(&known), "the time of day was set");
    }
}
