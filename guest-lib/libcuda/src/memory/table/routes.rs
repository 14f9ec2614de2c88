// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Which way copies of pageable memory go: through a staging, moved by this process's processors, or page by page where
//! they lie, moved by the worker. What is quicker depends on the processors (number, emulated or not) and on what else
//! they do, so it is measured, where the first way does not prove good enough by itself.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Copies from here on are long ones, which are measured apart.
pub const LONG_BYTES: usize = 4 << 20;
/// Shorter copies say nothing: they take as long as their calls.
const MEASURED_BYTES: usize = 256 << 10;
/// Bytes in a microsecond at which copies, short and long ones, are good enough.
const GOOD: [u64; 2] = [3000, 12000];
/// So many copies go the better way before one goes the other, which may have become the better one.
const PERIOD: u32 = 32;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through a staging.
    Staging,
    /// Page by page.
    Pages,
}

/// The speed of copies of one kind of length.
#[derive(Debug, Default)]
struct Rates {
    /// The best lately, in bytes a microsecond, by [`Route`]; 0 before the first copy. The best, because a copy may have
    /// had to wait for work before it.
    best: [AtomicU64; 2],
    copies: AtomicU32,
}

/// The measurements of this process.
#[derive(Debug, Default)]
pub struct Routes([Rates; 2]);

impl Rates {
    fn choose(&self, good: u64) -> Route {
        let [staging, pages] = [&self.best[0], &self.best[1]].map(|best| best.load(Ordering::Relaxed));
        if staging == 0 || staging >= good {
            return Route::Staging;
        }
        let (better, other) = if pages == 0 || pages > staging {
            (Route::Pages, Route::Staging)
        } else {
            (Route::Staging, Route::Pages)
        };
        let count = self.copies.fetch_add(1, Ordering::Relaxed);
        if count % PERIOD == PERIOD - 1 { other } else { better }
    }

    fn note(&self, route: Route, rate: u64) {
        let best = &self.best[route as usize];
        // Slower ones pull it down bit by bit.
        let before = best.load(Ordering::Relaxed);
        best.store(rate.max(before - before / 16), Ordering::Relaxed);
    }
}

impl Routes {
    fn class(bytes: usize) -> usize {
        usize::from(bytes >= LONG_BYTES)
    }

    /// The way for a copy of `bytes` bytes.
    pub fn choose(&self, bytes: usize) -> Route {
        let class = Self::class(bytes);
        self.0[class].choose(GOOD[class])
    }

    /// Does a copy of `bytes` bytes that goes this way.
    pub fn measured<T>(&self, route: Route, bytes: usize, copy: impl FnOnce() -> T) -> T {
        if bytes < MEASURED_BYTES {
            return copy();
        }
        let begun = Instant::now();
        let outcome = copy();
        let nanoseconds = (begun.elapsed().as_nanos() as u64).max(1);
        self.0[Self::class(bytes)].note(route, (bytes as u64).saturating_mul(1000) / nanoseconds);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_good_enough_stays_and_else_the_better_one_is_found() {
        let rates = Rates::default();
        assert_eq!(rates.choose(1000), Route::Staging, "nothing is known");
        rates.note(Route::Staging, 1000);
        assert!((0..100).all(|_| rates.choose(1000) == Route::Staging));
        // A copy that had to wait does not count for much.
        rates.note(Route::Staging, 10);
        assert_eq!(rates.best[0].load(Ordering::Relaxed), 938);
        assert_eq!(rates.choose(1000), Route::Pages, "it is to be tried");
        rates.note(Route::Pages, 500);
        let chosen: Vec<_> = (0..PERIOD).map(|_| rates.choose(1000)).collect();
        assert_eq!(chosen.iter().filter(|&&route| route == Route::Pages).count(), 1);
        rates.note(Route::Pages, 2000);
        let chosen: Vec<_> = (0..PERIOD).map(|_| rates.choose(1000)).collect();
        assert_eq!(chosen.iter().filter(|&&route| route == Route::Staging).count(), 1);
    }

    #[test]
    fn lengths_are_apart() {
        let routes = Routes::default();
        routes.measured(Route::Staging, LONG_BYTES, || {
            std::thread::sleep(std::time::Duration::from_millis(10))
        });
        assert_eq!(routes.choose(LONG_BYTES), Route::Pages);
        assert_eq!(routes.choose(LONG_BYTES - 1), Route::Staging);
    }
}
