// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds of activities, and the set of enabled kinds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_DRIVER, ACTIVITY_EXTERNAL_CORRELATION, ACTIVITY_KERNEL,
    ACTIVITY_MEMCPY, ACTIVITY_MEMCPY2, ACTIVITY_MEMSET, ACTIVITY_RUNTIME, API_DRIVER, API_RUNTIME,
};

use crate::cbids::COUNT;

/// `CUPTI_ACTIVITY_KIND_OVERHEAD`: accepted, but there is never a record, because this library does not measure itself.
const OVERHEAD: u32 = 17;
/// Upper limit of the known kinds.
const KINDS: u32 = 60;
/// Kinds for work of a GPU.
const WORK: [u32; 5] =
    [ACTIVITY_MEMCPY, ACTIVITY_MEMSET, ACTIVITY_KERNEL, ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_MEMCPY2];
/// Kinds for calls and their correlation ids.
const CALLS: [u32; 4] = [ACTIVITY_DRIVER, ACTIVITY_RUNTIME, ACTIVITY_EXTERNAL_CORRELATION, OVERHEAD];

/// A bit for each enabled kind.
static ENABLED: AtomicU64 = AtomicU64::new(0);

/// The number of the last call when a kind of work was last enabled or disabled.
static CHANGED: [AtomicU32; KINDS as usize] = [const { AtomicU32::new(0) }; KINDS as usize];

const WORDS: usize = COUNT / 64;
/// Exceptions by API and number: functions that are recorded although their API is not, and the reverse.
static ADDED: [[AtomicU64; WORDS]; 2] = [const { [const { AtomicU64::new(0) }; WORDS] }; 2];
static REMOVED: [[AtomicU64; WORDS]; 2] = [const { [const { AtomicU64::new(0) }; WORDS] }; 2];

fn mask(kinds: &[u32]) -> u64 {
    kinds.iter().fold(0, |mask, kind| mask | 1 << kind)
}

/// Returns whether CUPTI has this kind.
pub fn exists(kind: u32) -> bool {
    (1..KINDS).contains(&kind)
}

/// Returns whether this library supports the kind.
pub fn is_served(kind: u32) -> bool {
    WORK.contains(&kind) || CALLS.contains(&kind)
}

/// Enables or disables a kind.
pub fn set(kind: u32, enabled: bool) {
    let bit = mask(&[kind]);
    if enabled {
        ENABLED.fetch_or(bit, Ordering::Relaxed);
        clear_exceptions(kind);
    } else {
        ENABLED.fetch_and(!bit, Ordering::Relaxed);
        clear_exceptions(kind);
    }
}

/// Removes the exceptions of an API's functions when the API as a whole is enabled or disabled.
fn clear_exceptions(kind: u32) {
    let api = match kind {
        ACTIVITY_DRIVER => API_DRIVER,
        ACTIVITY_RUNTIME => API_RUNTIME,
        _ => return,
    };
    for word in ADDED[api as usize].iter().chain(&REMOVED[api as usize]) {
        word.store(0, Ordering::Relaxed);
    }
}

/// Enables or disables one function of an API.
pub fn set_function(api: u32, cbid: u32, enabled: bool) {
    let (word, bit) = (cbid as usize / 64 % WORDS, 1 << (cbid % 64));
    let (on, off) = if enabled { (&ADDED, &REMOVED) } else { (&REMOVED, &ADDED) };
    on[api as usize][word].fetch_or(bit, Ordering::Relaxed);
    off[api as usize][word].fetch_and(!bit, Ordering::Relaxed);
}

/// Disables everything.
pub fn clear() {
    ENABLED.store(0, Ordering::Relaxed);
    for changed in &CHANGED {
        changed.store(0, Ordering::Relaxed);
    }
    clear_exceptions(ACTIVITY_DRIVER);
    clear_exceptions(ACTIVITY_RUNTIME);
}

/// Returns whether a kind is enabled.
pub fn is_enabled(kind: u32) -> bool {
    kind < KINDS && ENABLED.load(Ordering::Relaxed) & mask(&[kind]) != 0
}

/// Returns whether calls of a function are recorded.
pub fn records(api: u32, cbid: u32) -> bool {
    let whole = is_enabled(if api == API_DRIVER { ACTIVITY_DRIVER } else { ACTIVITY_RUNTIME });
    let (word, bit) = (cbid as usize / 64 % WORDS, 1 << (cbid % 64));
    let exceptions = if whole { &REMOVED } else { &ADDED };
    let is_exception =
        exceptions.get(api as usize).is_some_and(|words| words[word].load(Ordering::Relaxed) & bit != 0);
    whole != is_exception
}

/// Returns whether the kind is work of a GPU.
pub fn is_work(kind: u32) -> bool {
    WORK.contains(&kind)
}

/// Records that a kind of work is about to be enabled or disabled, after the call `last`.
pub fn note_change(kind: u32, last: u32) {
    CHANGED[kind as usize].store(last, Ordering::Relaxed);
}

/// Returns whether a kind was enabled when the call with this number was made. The GPU may do the work much later.
pub fn was_enabled(kind: u32, correlation: u32) -> bool {
    let Some(changed) = CHANGED.get(kind as usize).map(|changed| changed.load(Ordering::Relaxed)) else {
        return false;
    };
    // Numbers wrap around.
    let is_older = changed != 0 && correlation != 0 && changed.wrapping_sub(correlation).cast_signed() >= 0;
    is_enabled(kind) != is_older
}

/// Returns whether any work of GPUs is enabled.
pub fn any_work() -> bool {
    ENABLED.load(Ordering::Relaxed) & mask(&WORK) != 0
}

/// Returns whether anything is enabled that needs calls to be reported.
pub fn any() -> bool {
    let added = || ADDED.iter().flatten().any(|word| word.load(Ordering::Relaxed) != 0);
    ENABLED.load(Ordering::Relaxed) != 0 || added()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_exceptions_of_their_api() {
        set_function(API_DRIVER, 307, true);
        assert!(records(API_DRIVER, 307) && !records(API_DRIVER, 308) && any());
        set(ACTIVITY_DRIVER, true);
        set_function(API_DRIVER, 307, false);
        assert!(!records(API_DRIVER, 307) && records(API_DRIVER, 308));
        set(ACTIVITY_DRIVER, false);
        assert!(!records(API_DRIVER, 307) && !records(API_DRIVER, 308) && !any());
        set(ACTIVITY_MEMSET, true);
        assert!(any_work() && is_enabled(ACTIVITY_MEMSET) && !is_enabled(ACTIVITY_MEMCPY));
        let seen = || [7, 8, 0].map(|correlation| was_enabled(ACTIVITY_MEMSET, correlation));
        assert_eq!((seen(), was_enabled(ACTIVITY_MEMCPY, 8)), ([true; 3], false));
        note_change(ACTIVITY_MEMSET, 7);
        assert_eq!(seen(), [false, true, true]);
        set(ACTIVITY_MEMSET, false);
        assert_eq!(seen(), [true, false, false]);
        clear();
        assert!(!any());
    }
}
