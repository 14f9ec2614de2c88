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

/// Number of queries of the provider's clock; the fastest answer counts.
const ROUNDS: u32 = 8;
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
    /// From the provider's clock to the time of day.
    to_local: Line,
    /// From the time of day to the program's clock.
    to_program: Line,
}

static CONVERSION: Mutex<Conversion> =
    Mutex::new(Conversion { to_local: Line::NONE, to_program: Line::NONE });

impl Line {
    const NONE: Self = Self { first: (0, 0), last: (0, 0) };
}

fn conversion() -> MutexGuard<'static, Conversion> {
    CONVERSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the provider's clock and the time of day at the same moment, from the attempt with the fastest answer.
fn provider_and_local(ask: impl Fn() -> Option<u64>) -> Option<(u64, u64)> {
    let attempt = |_| {
        let before = local();
        let provider = ask()?;
        let after = local();
        let round_trip = after.saturating_sub(before);
        Some((round_trip, (provider, before + round_trip / 2)))
    };
    (0..ROUNDS).filter_map(attempt).min_by_key(|(round_trip, _)| *round_trip).map(|(_, pair)| pair)
}

fn local_and_program() -> (u64, u64) {
    let before = local();
    let program = now();
    (before + local().saturating_sub(before) / 2, program)
}

/// Reads all clocks for the first time. `ask` reads the provider's clock.
pub fn begin(ask: impl Fn() -> Option<u64>) {
    let mut conversion = conversion();
    if let Some(pair) = provider_and_local(ask) {
        conversion.to_local = Line { first: pair, last: pair };
    }
    let pair = local_and_program();
    conversion.to_program = Line { first: pair, last: pair };
}

/// Reads all clocks again, before times are converted.
pub fn refresh(ask: impl Fn() -> Option<u64>) {
    let mut conversion = conversion();
    if let Some(pair) = provider_and_local(ask) {
        conversion.to_local.last = pair;
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

/// Converts a time of the provider. Both clocks run at the same rate except for corrections of the time of day.
pub fn of_provider(time: u64) -> u64 {
    let conversion = conversion();
    let local = conversion.to_local.at(time);
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
        let slow = std::cell::Cell::new(true);
        let ask = || {
            if slow.replace(false) {
                std::thread::sleep(Duration::from_millis(20));
            }
            Some(local() + 1_000_000_000)
        };
        let (provider, local) = provider_and_local(ask).expect("it answers");
        assert!((provider - local).abs_diff(1_000_000_000) < 5_000_000, "{provider} {local}");
        assert_eq!(provider_and_local(|| None), None);
    }
}
