// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a library may have left in padding of parameters: halves of words that are addresses of this process, or its stack protector. No
//! kernel can use them, and each process has others.
//!
//! On an H200 these were the only words of kernels of cuDNN 9.19 and cuBLAS that differed between two processes, beside addresses of device memory
//! and [`super::unset`]: conversions of layouts (`nchwToNhwcKernel`), and gradients of convolutions and products of LSTMs by CUTLASS.

use std::collections::BTreeSet;

/// `AT_RANDOM`: 16 random bytes, from which the C library makes its stack protector.
const AT_RANDOM: libc::c_ulong = 25;
/// The least number that may be the lower half of an address. Extents and counts are below.
const LEAST: u64 = 1 << 24;

/// Addresses of this process.
pub struct Leftovers {
    /// Accessible mappings, first and end, in their order.
    mappings: Vec<(u64, u64)>,
    /// The upper halves of addresses in them.
    upper: BTreeSet<u64>,
    protector: u64,
}

impl Leftovers {
    /// Those of this process now.
    pub fn of_process() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        // SAFETY: the kernel gives each process the address of these bytes, which stay as they are.
        let protector = unsafe {
            let random: *const u64 = std::ptr::with_exposed_provenance(libc::getauxval(AT_RANDOM) as usize);
            if random.is_null() { 0 } else { random.read_unaligned() & !0xff }
        };
        Self::of(&maps, protector)
    }

    fn of(maps: &str, protector: u64) -> Self {
        let mapping = |line: &str| {
            let (range, rest) = line.split_once(' ')?;
            let (first, end) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok().filter(|number| number >> 48 == 0);
            rest.starts_with('r').then_some((number(first)?, number(end)?))
        };
        let mappings: Vec<_> = maps.lines().filter_map(mapping).collect();
        let upper = mappings.iter().flat_map(|(first, end)| (first >> 32)..=(end >> 32));
        let upper = upper.filter(|upper| *upper != 0).take(1 << 16).collect();
        Self { mappings, upper, protector }
    }

    /// Returns whether a word differs from `then`, its value in another process, only where it has something of this one.
    pub fn explain(&self, then: u64, now: u64) -> bool {
        let ([lower, upper], is_protector) = (halves(now), now == self.protector);
        let [differs_below, differs_above] = [0, 1].map(|half| halves(then)[half] != halves(now)[half]);
        if is_protector || self.is_mapped(now) {
            return true;
        }
        let [lower_protector, upper_protector] = halves(self.protector);
        let below = || {
            let is_address = || self.upper.iter().any(|upper| self.is_mapped(upper << 32 | lower));
            lower == lower_protector || lower >= LEAST && is_address()
        };
        let above = || upper == upper_protector || self.upper.contains(&upper);
        (!differs_below || below()) && (!differs_above || above())
    }

    fn is_mapped(&self, address: u64) -> bool {
        let behind = self.mappings.partition_point(|(first, _)| *first <= address);
        behind.checked_sub(1).is_some_and(|at| address < self.mappings[at].1)
    }
}

/// The lower and the upper half of a word.
fn halves(word: u64) -> [u64; 2] {
    [word & u64::from(u32::MAX), word >> 32]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d20dfa0000-55d20dfc0000 rw-p 00000000 00:00 0                          [heap]
7f6800000000-7f6800021000 rw-p 00000000 00:00 0
7f6c00000000-7f6cf0000000 ---p 00000000 00:00 0
7f726fe00000-7f726ff00000 r-xp 00000000 08:01 77                         /usr/lib/libcuda.so.1
7fffd0000000-7fffd0021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn padding_of_kernels_has_halves_of_addresses() {
        let left = Leftovers::of(MAPS, 0xd127_7822_e58f_8400);
        // The last value is that of this process.
        for (then, now) in [
            (0x7ffc_03da_a3f8, 0x7fff_d000_9838),
            (0x03da_a0f0, 0xd000_9530),
            (0x3f80_0000_fff9_2400, 0x3f80_0000_e58f_8400),
            (0x7f2f_0000_0009, 0x7fff_0000_0009),
            (0x7f2f_7fc0_0000, 0x7f72_7fc0_0000),
            (0, 0xd127_7822_e58f_8400),
            (0x20, 0x55d2_0000_0020),
        ] {
            assert!(left.explain(then, now), "{now:x}");
        }
        for (then, now) in [
            (4, 5),
            (0x4_0000_0004, 0x8_0000_0004),
            (0x7f6c_0010_0000, 0x7f6c_0020_0000),
            (0x3f80_0000_0000_0001, 0x4000_0000_0000_0001),
            (0x7f72_0000_0009, 0x7f72_0000_0008),
            (0xd000_9530, 0),
        ] {
            assert!(!left.explain(then, now), "{now:x}");
        }
        assert!(!left.is_mapped(0) && !left.is_mapped(u64::MAX));
    }

    #[test]
    fn this_process_has_some() {
        let (left, local) = (Leftovers::of_process(), 0_u8);
        assert!(left.explain(0, (&raw const local).addr() as u64) && left.protector != 0);
    }
}
