// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's requests for what was recorded.

use std::sync::atomic::Ordering;

use cuda_abi::{ACTIVITY_MEMCPY, ACTIVITY_MEMCPY2, ACTIVITY_MEMSET, TraceWork};
use vhost_cuda_common::gates::now;
use vhost_cuda_common::link::{MAX_PAYLOAD_BYTES, profile_request};
use vhost_cuda_common::recording::{Answer, COPY, FILL, KERNEL, LIBRARY_CALL, READ, Record, START, STOP};
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_OK};

use super::Profile;
use crate::gpu::{CuResult, Driver};
use crate::trace::Trace;

/// The maximum number of pieces of the GPU's work in one answer.
const MAX_WORK: usize = 256;
/// Readings of both clocks; the one that took the shortest time counts.
const READINGS: usize = 4;

/// Executes a request of the daemon.
pub fn execute(profile: &Profile, trace: &Trace, gpu: &Driver, request: &[u8]) -> (u32, Vec<u8>) {
    match profile_request(request) {
        Some(START) => start(profile, trace, gpu),
        Some(READ) => {}
        Some(STOP) => {
            profile.set(false);
            trace.stop_for_operator();
        }
        _ => return (REPLY_INVALID, Vec::new()),
    }
    (REPLY_OK, read(profile, trace))
}

fn start(profile: &Profile, trace: &Trace, gpu: &Driver) {
    let version = gpu.cuDriverGetVersion();
    let started = version.and_then(|(version,)| trace.start_for_operator(version));
    let refused = started.err().map_or(0, |error| error.0.cast_unsigned());
    profile.no_gpu.store(refused, Ordering::Relaxed);
    profile.set(true);
}

/// Takes as many records as fit into an answer.
fn read(profile: &Profile, trace: &Trace) -> Vec<u8> {
    let mut answer = Answer::new(MAX_PAYLOAD_BYTES as usize, profile.no_gpu.load(Ordering::Relaxed));
    if !profile.is_on() {
        return answer.finish(0, 0);
    }
    let mut handed = profile.handed.lock();
    let handed = &mut *handed;
    let (mut more, mut dropped) = (0, 0);
    if handed.work.is_empty()
        && let Some((work, left, lost, offset)) = fetch(trace)
    {
        handed.work.extend(work);
        (more, dropped) = (left, lost);
        handed.offset = offset.unwrap_or(handed.offset);
    }
    // Executors wait for this lock.
    let mut waiting = profile.waiting.lock();
    if handed.records.is_empty() {
        std::mem::swap(&mut handed.records, &mut waiting.records);
    }
    dropped += std::mem::take(&mut waiting.dropped);
    more += waiting.records.len();
    drop(waiting);
    // The GPU's work comes first, so that calls cannot keep it waiting until it is lost.
    while let Some(work) = handed.work.front() {
        let record = of_work(work, handed.offset);
        if !add_names(trace, &mut answer, &mut handed.names, &record) || !answer.record(record) {
            break;
        }
        handed.work.pop_front();
    }
    while let Some(record) = handed.records.front().copied() {
        if !add_names(trace, &mut answer, &mut handed.names, &record) || !answer.record(record) {
            break;
        }
        handed.records.pop_front();
    }
    let left = handed.records.len() + handed.work.len() + more;
    answer.finish(left as u64, dropped)
}

type Fetched = (Vec<TraceWork>, usize, u64, Option<u64>);

/// Fetches work that the GPU has completed, and compares the clocks.
fn fetch(trace: &Trace) -> Option<Fetched> {
    let read = trace.read_for_operator(MAX_WORK).ok()?;
    let offset = if read.work.is_empty() { None } else { offset(|| trace.clock()) };
    Some((read.work, read.left, read.dropped, offset))
}

/// Adds the names up to that of `record` that the daemon does not have. Returns false if there is no room for all of them.
fn add_names(trace: &Trace, answer: &mut Answer, sent: &mut u32, record: &Record) -> bool {
    if !matches!(record.kind, KERNEL | LIBRARY_CALL) {
        return true;
    }
    while *sent < record.name {
        let Ok(name) = trace.name(*sent + 1) else { return true };
        if !answer.name(&name) {
            return false;
        }
        *sent += 1;
    }
    true
}

fn of_work(work: &TraceWork, offset: u64) -> Record {
    let [begin, end] = [work.start, work.end].map(|time| time.wrapping_sub(offset));
    let (kind, name) = match work.kind {
        ACTIVITY_MEMCPY | ACTIVITY_MEMCPY2 => (COPY, copy_name(work)),
        ACTIVITY_MEMSET => (FILL, 0),
        _ => (KERNEL, work.name),
    };
    Record {
        kind,
        row: work.stream,
        begin,
        end,
        bytes: work.bytes,
        name,
        device: work.device,
        ..Record::default()
    }
}

fn copy_name(work: &TraceWork) -> u32 {
    let [direction, from, to, _] = work.kinds;
    u32::from_le_bytes([direction, from, to, 0])
}

/// Returns the time of `clock` at the beginning of [`now`]'s.
fn offset(clock: impl Fn() -> CuResult<u64>) -> Option<u64> {
    let reading = || {
        let before = now();
        let other = clock().ok()?;
        let after = now();
        Some((after - before, other.wrapping_sub(before + (after - before) / 2)))
    };
    (0..READINGS).filter_map(|_| reading()).min().map(|(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::CudaError;

    #[test]
    fn work_gets_the_time_of_the_host() {
        let fast = 1_000_000_000_u64;
        let offset = offset(|| Ok(now() + fast)).unwrap();
        assert!(offset.abs_diff(fast) < fast / 2, "{offset}");
        let behind = super::offset(|| Ok(now() / 2)).unwrap();
        let work = TraceWork {
            kind: ACTIVITY_MEMCPY,
            start: 50,
            end: 60,
            kinds: [1, 2, 3, 9],
            ..TraceWork::default()
        };
        let record = of_work(&work, 40);
        assert_eq!((record.kind, record.begin, record.end), (COPY, 10, 20));
        assert_eq!(record.name, u32::from_le_bytes([1, 2, 3, 0]));
        let ahead = of_work(&TraceWork { start: 7, end: 8, ..work }, behind);
        assert_eq!(ahead.end - ahead.begin, 1);
        assert_eq!(super::offset(|| Err(CudaError::UNKNOWN)), None);
    }
}
