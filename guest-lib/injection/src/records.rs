// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the worker does for the program: its calls in their lanes, waits at gates, and moves of memory. The daemon records it, on the
//! host's clock; events get the time of day.

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{io, thread};

use cuda_abi::{RECORD_NAME, RECORDED_NAME, RecordFunction, RecordedFunction};
use cuda_program::Library;
use vhost_cuda_profile::event::{Batch, Kind};
use vhost_cuda_profile::lines::Lines;

use crate::time_of_day;

/// The number of bytes that are read at once: as many as fit into the answer of a lane.
const ROOM: usize = 48 << 10;
/// The maximum number of reads in a row, so that a busy program's own events do not wait for long.
const ROUNDS: usize = 256;
/// The number of comparisons of both clocks at the beginning; the one that took the shortest time counts.
const COMPARISONS: usize = 8;
/// The time after which a slower comparison replaces a faster one: the time of day may be corrected.
const VALID: Duration = Duration::from_secs(10);
/// The time for the daemon to send what is left, and the pause between two looks at it.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(5);

/// Functions of this project's libcuda.
#[derive(Clone, Copy, Debug)]
struct Functions {
    record: RecordFunction,
    recorded: RecordedFunction,
}

static RECORDING: OnceLock<Functions> = OnceLock::new();

/// Begins to record. Has no effect with another libcuda, or a daemon that is older.
pub fn begin() {
    if let Some(functions) = find()
        && (functions.record)(true) == 0
    {
        let _ = RECORDING.set(functions);
    }
}

fn find() -> Option<Functions> {
    let library = Library::loaded("libcuda.so.1")?;
    let function = |name: &CStr| library.symbol(name).map(|symbol| symbol.as_ptr());
    // SAFETY: the names belong to this project's libcuda, where the functions have these types. It stays loaded: it has called.
    unsafe {
        Some(Functions {
            record: transmute::<*mut c_void, RecordFunction>(function(RECORD_NAME)?),
            recorded: transmute::<*mut c_void, RecordedFunction>(function(RECORDED_NAME)?),
        })
    }
}

/// The difference between the time of day and the recording's clock, modulo 2^64.
#[derive(Clone, Copy, Debug)]
struct Offset {
    value: u64,
    /// The time that the comparison took, in nanoseconds.
    round_trip: u64,
    since: Instant,
}

/// The reader of a recording.
#[derive(Debug, Default)]
pub struct Reader {
    lines: Lines,
    offset: Option<Offset>,
    room: Vec<u8>,
    ended: bool,
}

impl Reader {
    /// Passes what was recorded since the last time to `take`.
    ///
    /// Errors: those of `take`.
    pub fn read(&mut self, take: &mut impl FnMut(Batch) -> io::Result<()>) -> io::Result<()> {
        let Some(functions) = RECORDING.get().filter(|_| !self.ended) else { return Ok(()) };
        if self.offset.is_none() {
            (0..COMPARISONS).for_each(|_| drop(self.fetch(functions, 0)));
        }
        for _ in 0..ROUNDS {
            let Some(batches) = self.fetch(functions, ROOM) else {
                self.ended = true;
                break;
            };
            let Some(batches) = batches else { break };
            for batch in batches {
                take(self.with_time_of_day(batch))?;
            }
        }
        Ok(())
    }

    /// Ends the recording, and passes what is left to `take`.
    ///
    /// Errors: those of `take`.
    pub fn finish(&mut self, take: &mut impl FnMut(Batch) -> io::Result<()>) -> io::Result<()> {
        let Some(functions) = RECORDING.get() else { return Ok(()) };
        (functions.record)(false);
        let deadline = Instant::now() + PATIENCE;
        while !self.ended && Instant::now() < deadline {
            self.read(take)?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Reads up to `most` bytes, and compares the clocks. Returns the complete lines: `Some(None)` if nothing has come, `None` if the
    /// recording has ended.
    #[allow(clippy::option_option)]
    fn fetch(&mut self, functions: &Functions, most: usize) -> Option<Option<Vec<Batch>>> {
        self.room.resize(ROOM, 0);
        let (mut bytes, mut open, mut ns) = (most, false, 0);
        let before = time_of_day();
        // SAFETY: the room has at least that many bytes.
        let error = unsafe { (functions.recorded)(self.room.as_mut_ptr(), &mut bytes, &mut open, &mut ns) };
        let round_trip = time_of_day().saturating_sub(before);
        if error != 0 {
            return None;
        }
        let value = (before + round_trip / 2).wrapping_sub(ns);
        let kept = |offset: &Offset| offset.round_trip < round_trip && offset.since.elapsed() < VALID;
        if !self.offset.as_ref().is_some_and(kept) {
            self.offset = Some(Offset { value, round_trip, since: Instant::now() });
        }
        match self.lines.add(&self.room[..bytes.min(most)]) {
            Ok(batches) if bytes > 0 => Some(Some(batches)),
            Ok(_) if open => Some(None),
            _ => None,
        }
    }

    /// Returns what CUPTI does not report, at the time of day.
    fn with_time_of_day(&self, mut batch: Batch) -> Batch {
        let offset = self.offset.map_or(0, |offset| offset.value);
        batch.events.retain(|event| matches!(event.kind, Kind::Call | Kind::Gate | Kind::Move));
        for event in &mut batch.events {
            event.begin = event.begin.wrapping_add(offset);
            event.end = event.end.wrapping_add(offset).max(event.begin);
        }
        Batch { no_gpu: None, ..batch }
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_profile::event::Event;

    use super::*;

    #[test]
    fn calls_and_waits_get_the_time_of_day() {
        let offset = Offset { value: 5_u64.wrapping_neg(), round_trip: 1, since: Instant::now() };
        let reader = Reader { offset: Some(offset), ..Reader::default() };
        let event = |kind| Event::new(kind, "f", 1, [10, 20]);
        let events = [Kind::Kernel, Kind::Call, Kind::Copy, Kind::Gate, Kind::Move].map(event).to_vec();
        let batch = reader.with_time_of_day(Batch { events, dropped: 3, ..Batch::default() });
        let told: Vec<_> = batch.events.iter().map(|event| (event.kind, event.begin, event.end)).collect();
        assert_eq!(told, [(Kind::Call, 5, 15), (Kind::Gate, 5, 15), (Kind::Move, 5, 15)]);
        assert_eq!(batch.dropped, 3);
    }

    #[test]
    fn the_fastest_comparison_counts_and_an_end_is_noticed() {
        unsafe extern "C" fn recorded(
            room: *mut u8,
            bytes: &mut usize,
            open: &mut bool,
            ns: &mut u64,
        ) -> i32 {
            assert!(!room.is_null());
            (*bytes, *open, *ns) = (0, *bytes > 0, time_of_day() - 1_000_000);
            0
        }
        extern "C" fn record(_: bool) -> i32 {
            0
        }
        let functions = Functions { record, recorded };
        let mut reader = Reader::default();
        assert!(matches!(reader.fetch(&functions, ROOM), Some(None)));
        let offset = reader.offset.unwrap();
        assert!(
            offset.value >= 1_000_000 - offset.round_trip && offset.value <= 1_000_000 + offset.round_trip
        );
        assert!(reader.fetch(&functions, 0).is_none());
        assert!(reader.offset.unwrap().round_trip <= offset.round_trip);
    }
}
