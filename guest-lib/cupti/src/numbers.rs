// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of API calls: the correlation ids of records. A worker gets their low bits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bits of a call's number that are sent to a worker.
pub const CROSSING_BITS: u32 = 24;
const CROSSING: u32 = (1 << CROSSING_BITS) - 1;
static LAST: AtomicU32 = AtomicU32::new(0);

/// Returns the number of the next call. Numbers whose crossing bits are 0 are skipped, because they mean no call.
pub fn next() -> u32 {
    loop {
        let next = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if next & CROSSING != 0 {
            return next;
        }
    }
}

/// Inserts into a map that keeps at most `most` numbers. A full map loses its lowest number first.
pub fn insert<T>(map: &mut BTreeMap<u32, T>, most: usize, number: u32, value: T) {
    if map.len() >= most {
        map.pop_first();
    }
    map.insert(number, value);
}

/// Returns the number of the last call.
pub fn last() -> u32 {
    LAST.load(Ordering::Relaxed)
}

/// Returns the full number of a call from its low bits, which the worker reports.
pub fn whole(crossing: u32) -> u32 {
    newest(last(), crossing)
}

/// Returns the newest number up to `last` with these low bits.
fn newest(last: u32, crossing: u32) -> u32 {
    match crossing & CROSSING {
        0 => 0,
        low => last.wrapping_sub(last.wrapping_sub(low) & CROSSING),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cross_are_completed() {
        let last = (7 << CROSSING_BITS) + 5;
        assert_eq!(newest(last, 5), last);
        assert_eq!(newest(last, 2), last - 3);
        assert_eq!(newest(last, 6), (6 << CROSSING_BITS) + 6);
        assert_eq!(newest(last, 0), 0);
        assert_ne!(next() & CROSSING, 0);
    }
}
