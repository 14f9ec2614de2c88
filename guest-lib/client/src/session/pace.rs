// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Measures the speed at which a full lane empties, so that its thread can sleep meanwhile. A thread that polls all the
//! time takes a core, or half of the executor's.

use std::time::{Duration, Instant};

/// The minimum time to sleep: the kernel takes half as long to wake a thread up.
const MIN_NAP: Duration = Duration::from_micros(100);
/// The maximum time to sleep: no lane empties more slowly while its executor is at work.
const MAX_NAP: Duration = Duration::from_millis(5);
/// The maximum age of a measurement.
const FORGET: Duration = Duration::from_millis(100);

/// The measured speed of a lane.
#[derive(Debug, Default)]
pub struct Pace {
    /// The time at which it was full last, and the bytes that had been consumed by then.
    full: Option<(Instant, u64)>,
}

impl Pace {
    /// Notes that the lane is full at `now`, with `consumed` bytes consumed in total; its thread waits for `wanted` more.
    /// Returns the estimated time for that, if it is known and long enough to sleep.
    pub fn rest(&mut self, now: Instant, consumed: u64, wanted: u64) -> Option<Duration> {
        let (then, before) = self.full.replace((now, consumed))?;
        let (passed, bytes) = (now.duration_since(then), consumed.saturating_sub(before));
        if bytes == 0 || passed > FORGET {
            return None;
        }
        let rest = passed.mul_f64(wanted as f64 / bytes as f64);
        (rest >= MIN_NAP).then_some(rest.min(MAX_NAP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_lane_lets_its_thread_sleep() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut at =
            |microseconds, consumed| pace.rest(start + Duration::from_micros(microseconds), consumed, 1000);
        assert_eq!(at(0, 0), None, "nothing is known");
        assert_eq!(at(1000, 2000), Some(Duration::from_micros(500)));
        assert_eq!(at(1100, 4000), None, "too fast");
        assert_eq!(at(51_100, 5000), Some(MAX_NAP));
        assert_eq!(at(51_200, 5000), None, "it stands still");
        assert_eq!(at(500_000, 9000), None, "long ago");
    }
}
