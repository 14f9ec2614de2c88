// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits messages that others can provoke. A guest could otherwise fill the host's disk through the log.

use std::time::{Duration, Instant};

use log::Level;
use parking_lot::Mutex;

/// A bucket of messages: `burst` at once, then one per `interval`.
#[derive(Debug)]
pub struct Throttle {
    burst: u32,
    interval: Duration,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    left: u32,
    since: Instant,
}

impl Throttle {
    /// Returns a full bucket.
    pub const fn new(burst: u32, interval: Duration) -> Self {
        Self { burst, interval, state: Mutex::new(None) }
    }

    /// Returns `level` while there are messages in the bucket, otherwise [`Level::Debug`].
    pub fn level(&self, level: Level) -> Level {
        self.level_at(level, Instant::now())
    }

    fn level_at(&self, level: Level, now: Instant) -> Level {
        if self.take_at(now) { level } else { level.max(Level::Debug) }
    }

    /// Takes a message out of the bucket. Returns false if it is empty.
    pub fn take(&self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let state = state.get_or_insert(State { left: self.burst, since: now });
        let passed = now.duration_since(state.since).as_nanos() / self.interval.as_nanos().max(1);
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        if more > 0 {
            state.left = state.left.saturating_add(more).min(self.burst);
            state.since = now;
        }
        let any = state.left > 0;
        state.left -= u32::from(any);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let (throttle, now) = (Throttle::new(3, Duration::from_millis(200)), Instant::now());
        let passed = (0..100).filter(|_| throttle.take_at(now)).count();
        assert_eq!(passed, 3);
        let level = |level, after| throttle.level_at(level, now + Duration::from_millis(after));
        assert_eq!((level(Level::Info, 199), level(Level::Trace, 199)), (Level::Debug, Level::Trace));
        assert_eq!([level(Level::Info, 250), level(Level::Info, 250)], [Level::Info, Level::Debug]);
    }
}
