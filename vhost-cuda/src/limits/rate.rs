// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rate at which something may begin. What comes too early waits for its turn.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// `burst` at once, then one per `interval`: the generic cell rate algorithm.
#[derive(Debug)]
pub struct Rate {
    burst: u32,
    interval: Duration,
    /// The time at which all that has begun is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Rate {
    /// Returns a rate of which nothing is used. `per_second` is at least 1.
    pub fn new(burst: u32, per_second: u32) -> Self {
        Self { burst, interval: Duration::from_secs(1) / per_second.max(1), paid: Mutex::new(None) }
    }

    /// Takes the next turn. Returns the time until it comes.
    pub fn take(&self) -> Duration {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> Duration {
        let mut paid = self.paid.lock();
        let before = paid.map_or(now, |paid| paid.max(now));
        *paid = Some(before + self.interval);
        let ahead = self.interval * self.burst.saturating_sub(1);
        (before - now).saturating_sub(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_begins_at_once_and_then_one_per_interval() {
        let (rate, now) = (Rate::new(3, 10), Instant::now());
        let waits: Vec<_> = (0..5).map(|_| rate.take_at(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        let later = now + Duration::from_millis(250);
        assert_eq!(rate.take_at(later).as_millis(), 50, "the turns that were given out are kept");
        assert_eq!(rate.take_at(later + Duration::from_secs(60)).as_millis(), 0);
    }
}
