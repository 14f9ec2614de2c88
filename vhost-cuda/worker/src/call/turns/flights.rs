// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work that was started on a GPU and has not completed, as events in its streams show it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use vhost_cuda_common::gates::EVENTS;

use crate::gpu::Driver;
use crate::run::marks::{Mark, Stream};

/// The maximum number of pieces of work in flight per stream while machines compete. Bounds the events of a process.
pub const MAX_FLIGHTS: usize = 512;

/// A piece of work.
#[derive(Debug)]
pub struct Flight {
    /// The event before it, where nothing was in flight.
    pub start: Option<Arc<Mark>>,
    /// The event after it.
    pub end: Arc<Mark>,
    /// The time of its start, in nanoseconds.
    pub since: u64,
    /// True if it stands for work that was started before machines competed: its time is unknown.
    pub is_fence: bool,
}

impl Flight {
    /// Returns the GPU time, in nanoseconds. `took`: the time by events. The work before it was found to be complete at `at`,
    /// this one at `now`.
    fn time(&self, took: Option<u64>, at: u64, now: u64) -> u64 {
        match took {
            // An event before it, and one after it: they show more than the work.
            Some(took) if self.start.is_some() => took - EVENTS.min(took / 2),
            // The events of two pieces of work: the program may have paused between them.
            Some(took) => took.min(now.saturating_sub(self.since)),
            None => now.saturating_sub(self.since.max(at)),
        }
    }
}

/// The work of one GPU.
#[derive(Debug, Default)]
pub struct Flights {
    streams: HashMap<Stream, Queue>,
    /// The competition that the streams belong to.
    epoch: u32,
    count: usize,
}

#[derive(Debug, Default)]
struct Queue {
    flights: VecDeque<Flight>,
    /// The last piece of work that has completed.
    last: Option<Arc<Mark>>,
    /// The time at which this was found out.
    at: u64,
}

/// A copy that has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Landed {
    /// Pieces of work whose time is known.
    pub count: u64,
    /// Their GPU time, in nanoseconds.
    pub time: u64,
}

impl Flights {
    /// Pieces of work in flight.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns whether a competition has begun in which the stream is new.
    pub fn is_new(&mut self, stream: Stream, epoch: u32) -> bool {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.streams.retain(|_, queue| !queue.flights.is_empty());
        }
        !self.streams.contains_key(&stream)
    }

    /// Pieces of work in flight in a stream.
    pub fn of(&self, stream: Stream) -> usize {
        self.streams.get(&stream).map_or(0, |queue| queue.flights.len())
    }

    /// Returns whether nothing is in flight in a stream, known here or not. The time of the next piece of work then needs an
    /// event before it. The program may have paused, and its pauses are not GPU time.
    pub fn is_idle(&self, gpu: &Driver, stream: Stream) -> bool {
        let last = self.streams.get(&stream).and_then(|queue| queue.flights.back());
        last.is_none_or(|last| last.end.is_done(gpu))
    }

    /// Notes a piece of work.
    pub fn add(&mut self, stream: Stream, flight: Flight) {
        self.streams.entry(stream).or_default().flights.push_back(flight);
        self.count += 1;
    }

    /// Returns the earliest time, in nanoseconds, from which the oldest piece of work may run; 0 without work.
    pub fn oldest(&self) -> u64 {
        let since = |queue: &Queue| queue.flights.front().map(|flight| flight.since.max(queue.at));
        self.streams.values().filter_map(since).min().unwrap_or(0)
    }

    /// Takes out completed work.
    pub fn land(&mut self, gpu: &Driver, now: u64) -> Landed {
        let mut landed = Landed::default();
        for queue in self.streams.values_mut() {
            while let Some(flight) = queue.flights.front() {
                let begin = flight.start.as_ref().or(queue.last.as_ref()).filter(|_| !flight.is_fence);
                let Some(took) = flight.end.completion(gpu, begin.map(Arc::as_ref)) else { break };
                let Some(flight) = queue.flights.pop_front() else { break };
                self.count -= 1;
                if !flight.is_fence {
                    landed.count += 1;
                    landed.time += flight.time(took, queue.at, now);
                }
                queue.last = (!flight.end.events().is_over()).then(|| flight.end.clone());
                queue.at = now;
            }
        }
        landed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_not_gpu_time() {
        let flight = |start: Option<Mark>, since| Flight {
            start: start.map(Arc::new),
            end: Arc::new(Mark::of_nothing()),
            since,
            is_fence: false,
        };
        let (none, us) = (None, 1000);
        let alone = flight(Some(Mark::of_nothing()), 500 * us);
        assert_eq!(alone.time(Some(100 * us), 0, 650 * us), 100 * us - EVENTS);
        assert_eq!(alone.time(Some(EVENTS), 0, 650 * us), EVENTS / 2, "of very short work a half stays");
        let follows = flight(none, 500 * us);
        assert_eq!(
            follows.time(Some(100 * us), 450 * us, 650 * us),
            100 * us,
            "it waited for the one before"
        );
        assert_eq!(follows.time(Some(400 * us), 450 * us, 650 * us), 150 * us, "it came after a pause");
        assert_eq!(follows.time(None, 540 * us, 650 * us), 110 * us);
        assert_eq!(follows.time(None, 40 * us, 650 * us), 150 * us);
    }
}
