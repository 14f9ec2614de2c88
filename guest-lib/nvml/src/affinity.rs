// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processors and memory nodes near a device. In a virtual machine, all of them are near.

use core::ffi::c_ulong;
use std::fs;
use std::mem::MaybeUninit;

use crate::error::{NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN, Result};
use crate::state::{self, nvmlDevice_t};

/// Bits per word of a set.
const WORD_BITS: usize = c_ulong::BITS as usize;
/// Files that list the processors and memory nodes that exist, such as `0-3,8`.
const PROCESSORS: &str = "/sys/devices/system/cpu/online";
const NODES: &str = "/sys/devices/system/node/online";
/// `NVML_AFFINITY_SCOPE_SOCKET`, the last one.
const LAST_SCOPE: u32 = 1;
/// Maximum number of processors; above that of any kernel.
const MAX_PROCESSORS: usize = 1 << 16;

/// Parses a list in the kernel's format.
fn numbers(list: &str) -> impl Iterator<Item = usize> {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        range.map_or(0..0, |(first, last)| first..last.saturating_add(1).min(MAX_PROCESSORS))
    })
}

/// Words of the greatest set: Linux has at most 8192 processors, and fewer nodes.
const MAX_WORDS: usize = 8192 / WORD_BITS;

/// Sets the bits of what `file` lists; those that do not fit are left out, as the size of the set demands.
fn fill(set: &mut [c_ulong], file: &str) {
    set.fill(0);
    // A kernel without NUMA has no list of nodes, but a node 0.
    for number in numbers(&fs::read_to_string(file).unwrap_or_else(|_| "0".to_owned())) {
        if let Some(word) = set.get_mut(number / WORD_BITS) {
            *word |= 1 << (number % WORD_BITS);
        }
    }
}

/// Fills a set of `words` words from the list in `file`.
///
/// # Safety
/// `set` is null or valid for writing `words` words.
unsafe fn give_set(device: nvmlDevice_t, words: u32, set: *mut c_ulong, file: &str, scope: u32) -> Result {
    state::device(device)?;
    if words == 0 || set.is_null() || scope > LAST_SCOPE {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let (mut own, words) = ([0; MAX_WORDS], words as usize);
    fill(&mut own, file);
    // SAFETY: not null, so valid for `words` words by this function's contract; no more of `own` are copied than it has.
    unsafe {
        core::ptr::write_bytes(set, 0, words);
        core::ptr::copy_nonoverlapping(own.as_ptr(), set, words.min(MAX_WORDS));
    }
    Ok(())
}

/// Lets the calling thread run on every processor.
fn unbind(device: nvmlDevice_t) -> Result {
    state::device(device)?;
    let list = fs::read_to_string(PROCESSORS).map_err(|_| NVML_ERROR_NOT_SUPPORTED)?;
    // SAFETY: all-zero is an empty set.
    let mut set = unsafe { MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init() };
    for number in numbers(&list).take_while(|&number| number < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_SET(number, &mut set) };
    }
    // SAFETY: `set` is a local of the size that is named.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        return Err(NVML_ERROR_UNKNOWN);
    }
    Ok(())
}

api! {
    fn nvmlDeviceGetCpuAffinity(device: nvmlDevice_t, words: u32, set: *mut c_ulong) {
        // SAFETY: the program promises room for `words` words, or null.
        unsafe { give_set(device, words, set, PROCESSORS, 0) }
    }

    fn nvmlDeviceGetCpuAffinityWithinScope(device: nvmlDevice_t, words: u32, set: *mut c_ulong, scope: u32) {
        // SAFETY: the program promises room for `words` words, or null.
        unsafe { give_set(device, words, set, PROCESSORS, scope) }
    }

    fn nvmlDeviceGetMemoryAffinity(device: nvmlDevice_t, words: u32, set: *mut c_ulong, scope: u32) {
        // SAFETY: the program promises room for `words` words, or null.
        unsafe { give_set(device, words, set, NODES, scope) }
    }

    fn nvmlDeviceSetCpuAffinity, nvmlDeviceClearCpuAffinity(device: nvmlDevice_t) {
        unbind(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_become_sets() {
        assert_eq!(numbers("0-3,8,10-11\n").collect::<Vec<_>>(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers("").count() + numbers("x-y").count() + numbers("5-3").count(), 0);
    }

    #[test]
    fn sets_have_the_size_that_was_asked_for() {
        let mut set = [c_ulong::MAX; 2];
        fill(&mut set, "/nowhere");
        assert_eq!(set, [1, 0]);
        fill(&mut set, PROCESSORS);
        assert_eq!(set[0] & 1, 1);
    }
}
