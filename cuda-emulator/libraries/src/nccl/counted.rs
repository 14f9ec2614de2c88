// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Limits the number of objects of a process at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One of a limited number of values.
#[derive(Debug)]
pub struct Counted(&'static AtomicUsize);

impl Counted {
    /// Returns `None` if there are `most` already.
    pub fn new(count: &'static AtomicUsize, most: usize) -> Option<Self> {
        let more = |count| (count < most).then_some(count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_end_make_room() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut all: Vec<Counted> = (0..9).map(|_| Counted::new(&COUNT, 9).unwrap()).collect();
        assert!(Counted::new(&COUNT, 9).is_none());
        all.pop();
        all.push(Counted::new(&COUNT, 9).unwrap());
        drop(all);
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }
}
