// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Waits for the other ranks of a communicator, and notices when their processes have ended. A thread of each process
//! increments a number in shared memory every second. A process counts as ended if the number does not change for
//! [`PATIENCE`]. It counts as ended immediately if its PID belongs to no process and both are in one PID namespace.

use std::collections::HashMap;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::segment::{ABSENT, CLAIMED, FAILED, LEFT, Segment};
use super::{REMOTE_ERROR, SYSTEM_ERROR, Status, locked};

/// The time without a sign of life after which a process counts as ended. A process that a debugger stops for longer does, too.
const PATIENCE: Duration = Duration::from_secs(60);
/// The maximum time between two checks whether the other ranks' processes live.
pub const PAUSE: Duration = Duration::from_millis(100);
/// The time limit for other ranks to join while a communicator is made.
const JOIN_LIMIT: Duration = Duration::from_secs(600);
/// The time between two signs of life.
const BEAT: Duration = Duration::from_secs(1);

/// This process's PID namespace; 0 if that cannot be known.
fn namespace() -> u64 {
    static NAMESPACE: LazyLock<u64> =
        LazyLock::new(|| std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.st_ino()));
    *NAMESPACE
}

/// A rank of this process, for which the thread gives signs of life.
struct Living {
    segment: Weak<Segment>,
    rank: usize,
}

static LIVING: Mutex<Vec<Living>> = Mutex::new(Vec::new());

/// Reports the process of this rank to the other ranks. From now on a thread gives its signs of life.
pub fn show(segment: &Arc<Segment>, rank: usize) {
    let slot = segment.slot(rank);
    slot.process.store(u64::from(std::process::id()), Ordering::Relaxed);
    slot.namespace.store(namespace(), Ordering::Relaxed);
    let mut living = locked(&LIVING);
    let is_first = living.is_empty();
    living.push(Living { segment: Arc::downgrade(segment), rank });
    drop(living);
    if is_first {
        // If the thread cannot be started, other ranks take this process for ended after a while, and return an error.
        let _ = thread::Builder::new().name("cuda-nccl".into()).spawn(beat);
    }
}

fn beat() {
    loop {
        thread::sleep(BEAT);
        let mut living = locked(&LIVING);
        living.retain(|Living { segment, rank }| {
            let segment = segment.upgrade();
            segment.is_some_and(|segment| {
                segment.slot(*rank).beat.fetch_add(1, Ordering::Relaxed);
                true
            })
        });
        if living.is_empty() {
            return;
        }
    }
}

/// The last signs of life of other ranks, as seen during one wait.
#[derive(Default)]
pub struct Watch {
    beats: HashMap<usize, (u64, Instant)>,
}

impl Watch {
    /// Returns whether a rank has left, failed, or lost its process.
    pub fn has_ended(&mut self, segment: &Segment, rank: usize) -> bool {
        self.has_ended_at(segment, rank, Instant::now())
    }

    fn has_ended_at(&mut self, segment: &Segment, rank: usize, now: Instant) -> bool {
        let slot = segment.slot(rank);
        let patience = match slot.state.load(Ordering::Acquire) {
            LEFT | FAILED => return true,
            ABSENT => JOIN_LIMIT,
            _ => PATIENCE,
        };
        if has_ended(&slot.process, &slot.namespace) {
            return true;
        }
        let beat = slot.beat.load(Ordering::Relaxed);
        let (known, since) = self.beats.entry(rank).or_insert((beat, now));
        if *known != beat {
            (*known, *since) = (beat, now);
        }
        now.duration_since(*since) > patience
    }
}

fn has_ended(process: &AtomicU64, namespace_of: &AtomicU64) -> bool {
    let Ok(process) = i32::try_from(process.load(Ordering::Relaxed)) else { return false };
    if process <= 0 || namespace() == 0 || namespace_of.load(Ordering::Relaxed) != namespace() {
        return false;
    }
    // A process that cannot be looked up for another reason counts as alive.
    let found = std::fs::metadata(format!("/proc/{process}"));
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Waits on behalf of a rank until `is_ready` is true for all other ranks.
///
/// Errors: `REMOTE_ERROR` if a rank that is not ready has ended or failed, `SYSTEM_ERROR` after [`JOIN_LIMIT`].
pub fn wait_until(
    segment: &Segment,
    rank: usize,
    ranks: usize,
    is_ready: impl Fn(usize) -> bool,
) -> Result<(), Status> {
    let (mut watch, start) = (Watch::default(), Instant::now());
    let mut doubted = None;
    loop {
        let bell = segment.bell(rank);
        let waiting: Vec<usize> = (0..ranks).filter(|other| !is_ready(*other)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        // A rank may do its part and then end, both between the two checks. So the wait fails only if the rank is not ready one
        // round later either.
        if doubted.is_some_and(|ended| waiting.contains(&ended)) {
            return Err(REMOTE_ERROR);
        }
        if start.elapsed() > JOIN_LIMIT {
            return Err(SYSTEM_ERROR);
        }
        doubted = waiting.into_iter().find(|other| watch.has_ended(segment, *other));
        if doubted.is_none() {
            segment.wait(rank, bell, PAUSE);
        }
    }
}

/// Returns whether a rank has joined.
pub fn has_joined(segment: &Segment, rank: usize) -> bool {
    !matches!(segment.slot(rank).state.load(Ordering::Acquire), ABSENT | CLAIMED)
}

#[cfg(test)]
mod tests {
    use super::super::segment::JOINED;
    use super::*;

    #[test]
    fn a_rank_without_a_sign_of_life_has_ended() {
        let (segment, _) = Segment::create().unwrap();
        let (mut watch, start) = (Watch::default(), Instant::now());
        let mut has_ended = |after: Duration| watch.has_ended_at(&segment, 5, start + after);
        assert!(!has_ended(Duration::ZERO), "nobody is there yet");
        assert!(!has_ended(PATIENCE * 2) && has_ended(JOIN_LIMIT * 2));
        // In a PID namespace that is not known.
        segment.slot(5).state.store(JOINED, Ordering::Relaxed);
        segment.slot(5).beat.store(1, Ordering::Relaxed);
        assert!(!has_ended(JOIN_LIMIT * 2));
        assert!(has_ended(JOIN_LIMIT * 2 + PATIENCE + BEAT));
        segment.slot(5).beat.store(2, Ordering::Relaxed);
        assert!(!has_ended(JOIN_LIMIT * 2 + PATIENCE + BEAT));
    }

    #[test]
    fn the_thread_shows_that_this_process_lives() {
        let segment = Arc::new(Segment::create().unwrap().0);
        show(&segment, 3);
        let begun = Instant::now();
        while segment.slot(3).beat.load(Ordering::Relaxed) == 0 {
            assert!(begun.elapsed() < 60 * BEAT, "no sign of life");
            thread::sleep(PAUSE);
        }
        assert!(!has_ended(&segment.slot(3).process, &segment.slot(3).namespace));
    }
}
