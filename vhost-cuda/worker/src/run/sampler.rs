// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures how long records wait in a lane, for metrics: of a few records, so that the clock is read rarely.

use vhost_cuda_common::gates::now;

/// The bytes of records between two samples: about 100 launches.
const PAUSE: u64 = 16 << 10;

/// The samples of one lane.
#[derive(Debug, Default)]
pub struct Sampler {
    /// The position at which the next sample begins or ends.
    position: u64,
    /// The time at which the sample began, in nanoseconds of [`now`]; 0: none has.
    since: u64,
}

impl Sampler {
    /// Notes that the executor has taken the record that ends at position `taken`. Returns the time in nanoseconds for which it is
    /// known to have waited, if it is a sample.
    ///
    /// A sample begins with the last record that the lane has when another one is taken, and ends when that one is taken. The
    /// time before its begin is not known, so that it is a lower bound.
    #[inline]
    pub fn take(&mut self, taken: u64, published: impl FnOnce() -> u64) -> Option<u64> {
        if taken < self.position { None } else { self.reach(taken, published) }
    }

    #[cold]
    fn reach(&mut self, taken: u64, published: impl FnOnce() -> u64) -> Option<u64> {
        let since = std::mem::take(&mut self.since);
        let last = published();
        if since == 0 && last > taken {
            (self.position, self.since) = (last, now());
            return None;
        }
        self.position = taken + PAUSE;
        Some(if since == 0 { 0 } else { now().saturating_sub(since) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_ends_with_the_last_record_that_was_there() {
        let mut sampler = Sampler::default();
        assert_eq!(sampler.take(100, || 300), None, "two more wait");
        let begun = sampler.since;
        assert_eq!(sampler.take(200, || 400), None);
        let waited = sampler.take(300, || 500).unwrap();
        assert!(waited <= now() - begun);
        assert_eq!(sampler.take(400, || 500), None, "a pause");
        assert_eq!(sampler.take(300 + PAUSE, || 300 + PAUSE), Some(0), "nothing waits");
        assert_eq!(sampler.take(400 + PAUSE, || u64::MAX), None);
    }
}
