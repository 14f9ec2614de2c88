// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies from and to pageable memory. The worker copies that memory as pinned memory, and reports it so. libcuda knows what the
//! program's memory is.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_abi::{ACTIVITY_MEMCPY, TraceWork};

use crate::{kinds, numbers};

/// `CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE`
const PAGEABLE: u8 = 1;
/// `CUPTI_ACTIVITY_MEMORY_KIND_PINNED`
const PINNED: u8 = 2;
/// The maximum number of remembered copies, because the worker reports them later.
const MAX_COPIES: usize = 1 << 16;

/// For the number of each call that copies: whether its source is pageable, and whether its destination is.
static COPIES: Mutex<BTreeMap<u32, [bool; 2]>> = Mutex::new(BTreeMap::new());

fn copies() -> MutexGuard<'static, BTreeMap<u32, [bool; 2]>> {
    COPIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes which ends of a call's copy are pageable.
pub fn note(correlation: u32, ends: [bool; 2]) {
    if ends == [false; 2] || !kinds::is_enabled(ACTIVITY_MEMCPY) {
        return;
    }
    numbers::insert(&mut copies(), MAX_COPIES, correlation, ends);
}

/// Replaces the memory kinds of a copy by the program's.
pub fn correct(work: &mut TraceWork) {
    if work.kind != ACTIVITY_MEMCPY {
        return;
    }
    let [_, source, destination, _] = &mut work.kinds;
    if let Some(ends) = copies().get(&work.correlation) {
        for (kind, is_pageable) in [source, destination].into_iter().zip(ends) {
            if *kind == PINNED && *is_pageable {
                *kind = PAGEABLE;
            }
        }
    }
}

/// Forgets all copies.
pub fn forget() {
    copies().clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_of_the_worker_becomes_the_programs() {
        kinds::set(ACTIVITY_MEMCPY, true);
        note(70, [true, false]);
        note(71, [false, false]);
        let kinds_of = |correlation, kinds| {
            let mut work = TraceWork { kind: ACTIVITY_MEMCPY, correlation, kinds, ..TraceWork::default() };
            correct(&mut work);
            work.kinds
        };
        assert_eq!(kinds_of(70, [1, PINNED, 3, 0]), [1, PAGEABLE, 3, 0]);
        assert_eq!(kinds_of(70, [8, 3, 3, 0]), [8, 3, 3, 0]);
        assert_eq!(kinds_of(71, [1, PINNED, 3, 0]), [1, PINNED, 3, 0]);
        forget();
        assert_eq!(kinds_of(70, [1, PINNED, 3, 0]), [1, PINNED, 3, 0]);
    }
}
