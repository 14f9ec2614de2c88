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
        if self.take() { level } else { level.max(Level::Debug) }
    }

    /// Takes a message out of the bucket. Returns false if it is empty.
    pub fn take(&self) -> bool {
        let now = Instant::now();
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
        let throttle = Throttle::new(3, Duration::from_millis(200));
        let passed = (0..100).filter(|_| throttle.take()).count();
        assert_eq!(passed, 3);
        assert_eq!(throttle.level(Level::Info), Level::Debug);
        assert_eq!(throttle.level(Level::Trace), Level::Trace);
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!(throttle.level(Level::Info), Level::Info);
    }
}
