// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Captures of the same calls of libraries again and again.
//!
//! A compiler of array programs (XLA) captures what a library queues into a new graph, counts its nodes, puts it into a node of an
//! executable graph and destroys it; all of this for each product of each step. A library that gets the same numbers queues the same
//! work. So what the device has accepted once, it accepts again, as long as a capture consists of such calls alone: one thread begins
//! it into an empty graph, and until it ends no other call of the program is sent. These calls are then posted.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::state::captures::Capturing;

/// Maximum number of stored numbers of work. Limits the process's memory; beyond it all are forgotten.
const MAX_KNOWN: usize = 1 << 14;

/// A capture of which all is known.
#[derive(Clone, Copy, Debug)]
struct Capture {
    stream: Capturing,
    graph: u64,
    /// The number of the work so far.
    work: u64,
    /// [`virtio_cuda_client::changes::in_captures`] if nothing else was sent since it began.
    calls: u64,
}

thread_local! {
    // Without a destructor: destructors of other variables may make calls.
    static CAPTURE: Cell<Option<Capture>> = const { Cell::new(None) };
}

/// The captures that the device has accepted.
#[derive(Debug, Default)]
struct Accepted {
    /// Work that was captured.
    captured: FxHashSet<u64>,
    /// Work whose capture has ended, with the numbers of all nodes and of those without dependencies once they are known.
    ended: FxHashMap<u64, [Option<usize>; 2]>,
}

/// Graphs that the program made and has not changed but by captures, and captures that were accepted.
#[derive(Debug, Default)]
pub struct Retraced {
    /// The work in each graph: `None` if it is empty.
    graphs: Mutex<FxHashMap<u64, Option<u64>>>,
    accepted: Mutex<Accepted>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Retraced {
    /// Records a new, empty graph.
    pub fn made(&self, graph: u64) {
        lock(&self.graphs).insert(graph, None);
    }

    /// Forgets a graph that is destroyed, or that the program can change from now on. Returns whether it was known.
    pub fn forget(&self, graph: u64) -> bool {
        lock(&self.graphs).remove(&graph).is_some()
    }

    /// Returns whether the graph is known to be empty.
    pub fn is_empty(&self, graph: u64) -> bool {
        lock(&self.graphs).get(&graph).is_some_and(Option::is_none)
    }

    /// Returns the number of the work in a graph.
    pub fn work(&self, graph: u64) -> Option<u64> {
        lock(&self.graphs).get(&graph).copied().flatten()
    }

    /// Returns the number of nodes of a graph, or with `roots` of those without dependencies.
    pub fn nodes(&self, graph: u64, roots: bool) -> Option<usize> {
        match lock(&self.graphs).get(&graph)? {
            None => Some(0),
            Some(work) => lock(&self.accepted).ended.get(work)?[usize::from(roots)],
        }
    }

    /// Records a number of nodes of a graph.
    pub fn set_nodes(&self, graph: u64, roots: bool, nodes: usize) {
        if let Some(work) = self.work(graph)
            && let Some(numbers) = lock(&self.accepted).ended.get_mut(&work)
        {
            numbers[usize::from(roots)] = Some(nodes);
        }
    }

    /// Records that the calling thread has begun a capture into an empty graph. `calls`: as counted after its call.
    pub fn begun(&self, stream: Capturing, graph: u64, mode: u32, calls: u64) {
        self.forget(graph);
        CAPTURE.set(Some(Capture { stream, graph, work: mode.into(), calls }));
    }

    /// Returns the number of the work of the calling thread's capture in `stream` once `more` is added to it. `None`: something
    /// else may be in it. `calls`: as counted now.
    pub fn next(&self, stream: Capturing, more: u64, calls: u64) -> Option<u64> {
        let capture = CAPTURE.get().filter(|capture| (capture.stream, capture.calls) == (stream, calls))?;
        Some((capture.work.rotate_left(23) ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns whether the device has captured this work before.
    pub fn was_captured(&self, work: u64) -> bool {
        lock(&self.accepted).captured.contains(&work)
    }

    /// Records that the calling thread's capture has this work now, by one call, or (`None`) that something else may be in it.
    pub fn captured(&self, work: Option<u64>) {
        let next = |capture: Capture, work| Capture { work, calls: capture.calls + 1, ..capture };
        let capture = CAPTURE.get().zip(work).map(|(capture, work)| next(capture, work));
        CAPTURE.set(capture);
        if let Some(Capture { work, .. }) = capture {
            let captured = &mut lock(&self.accepted).captured;
            if captured.len() >= MAX_KNOWN {
                captured.clear();
            }
            captured.insert(work);
        }
    }

    /// Ends the calling thread's capture in `stream`. Returns its graph and the number of its work, if nothing else is in it.
    pub fn end(&self, stream: Capturing, calls: u64) -> Option<(u64, u64)> {
        let capture = CAPTURE.take().filter(|capture| (capture.stream, capture.calls) == (stream, calls))?;
        Some((capture.graph, capture.work))
    }

    /// Returns whether a capture of this work has ended before.
    pub fn has_ended(&self, work: u64) -> bool {
        lock(&self.accepted).ended.contains_key(&work)
    }

    /// Records that a capture of this work into `graph` has ended.
    pub fn ended(&self, graph: u64, work: u64) {
        lock(&self.graphs).insert(graph, Some(work));
        let ended = &mut lock(&self.accepted).ended;
        if ended.len() >= MAX_KNOWN {
            ended.clear();
        }
        ended.entry(work).or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: u64 = 96;
    const STREAM: Capturing = Capturing { context: 7, stream: 100, thread: None };

    /// Captures two calls into a new graph. Returns what was known: of each call, and of the end.
    fn capture(retraced: &Retraced, more: [u64; 2], mut calls: u64) -> Option<([bool; 2], bool)> {
        retraced.made(GRAPH);
        assert!(retraced.is_empty(GRAPH));
        retraced.begun(STREAM, GRAPH, 1, calls);
        assert!(!retraced.is_empty(GRAPH));
        let known = more.map(|more| {
            let work = retraced.next(STREAM, more, calls);
            calls += 1;
            let known = work.is_some_and(|work| retraced.was_captured(work));
            retraced.captured(work);
            known
        });
        let (graph, work) = retraced.end(STREAM, calls)?;
        let ended = retraced.has_ended(work);
        retraced.ended(graph, work);
        Some((known, ended))
    }

    #[test]
    fn the_same_calls_are_known() {
        let retraced = Retraced::default();
        assert_eq!(capture(&retraced, [5, 6], 40), Some(([false, false], false)));
        let work = retraced.work(GRAPH);
        assert_eq!(retraced.nodes(GRAPH, false), None);
        retraced.set_nodes(GRAPH, false, 3);
        assert_eq!(capture(&retraced, [5, 6], 50), Some(([true, true], true)));
        assert_eq!((retraced.work(GRAPH), retraced.nodes(GRAPH, false)), (work, Some(3)));
        assert_eq!(capture(&retraced, [5, 7], 60), Some(([true, false], false)), "another call");
        assert_ne!(retraced.work(GRAPH), work);
        assert_eq!(retraced.nodes(GRAPH, true), None);
        assert_eq!(capture(&retraced, [6, 5], 70), Some(([false, false], false)), "another order");
        assert!(retraced.forget(GRAPH) && !retraced.forget(GRAPH));
        assert_eq!((retraced.work(GRAPH), retraced.nodes(GRAPH, false)), (None, None));
    }

    #[test]
    fn other_calls_of_the_program_are_noticed() {
        let retraced = Retraced::default();
        assert!(capture(&retraced, [5, 6], 40).is_some());
        let begin = || {
            retraced.made(GRAPH);
            retraced.begun(STREAM, GRAPH, 1, 50);
        };
        begin();
        assert_eq!(retraced.next(STREAM, 5, 51), None, "between the begin and the call");
        retraced.captured(None);
        assert_eq!(retraced.end(STREAM, 51), None);
        begin();
        let work = retraced.next(STREAM, 5, 50);
        retraced.captured(work);
        assert_eq!(retraced.end(STREAM, 52), None, "between the call and the end");
        begin();
        assert_eq!(retraced.next(Capturing { stream: 101, ..STREAM }, 5, 50), None, "another stream");
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| retraced.end(STREAM, 50)).join());
        assert_eq!(elsewhere.ok(), Some(None), "another thread");
        assert_eq!(retraced.end(STREAM, 50), Some((GRAPH, 1)));
        assert!(!retraced.is_empty(GRAPH), "what the capture left is not recorded yet");
    }
}
