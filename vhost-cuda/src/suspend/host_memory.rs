// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host memory that the contents of suspended sessions may take.
//!
//! Without a limit they would fill the host's memory, and the kernel ends workers first when that has happened: a
//! session that was meant to be kept would be lost.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use vhost_cuda_common::budget::{Budget, Charge};

/// The part of the available memory that contents may take without a limit: one of this number.
const PART: u64 = 2;
/// The maximum number of bytes of the kernel's report that are read. It has the figure in its first lines.
const REPORT: usize = 4096;

/// The host memory of a daemon's suspended sessions.
#[derive(Debug)]
pub struct HostMemory {
    limit: Option<u64>,
    budget: Arc<Budget>,
    /// `/proc/meminfo`, opened once, because the threads that ask may open no files. Where it cannot be read, only the limit
    /// counts, and without a limit nothing may be taken.
    report: Option<File>,
}

impl HostMemory {
    /// Allows `limit` bytes. Default: half of the memory that is available whenever some is needed.
    pub fn new(limit: Option<u64>) -> Self {
        let bytes = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Self { limit, budget: Budget::new(bytes), report: File::open("/proc/meminfo").ok() }
    }

    /// Takes `bytes`, or as much of it as may be taken now, which may be nothing.
    pub fn charge(&self, bytes: u64) -> Charge {
        let available = self.report.as_ref().and_then(|report| available(report).ok());
        let most = match self.limit {
            Some(_) => available.unwrap_or(u64::MAX),
            // Without any bound the host's memory could be used up.
            None => available.unwrap_or(0) / PART,
        };
        self.budget.charge_up_to(usize::try_from(bytes.min(most)).unwrap_or(usize::MAX))
    }

    /// Returns the part of `pool` bytes that workers may keep ready, `kept` of which they have now.
    pub fn pool(&self, pool: u64, kept: u64) -> u64 {
        if self.limit.is_some() {
            return pool;
        }
        let available = self.report.as_ref().and_then(|report| available(report).ok()).unwrap_or(0);
        pool.min(available.saturating_add(kept) / PART)
    }

    /// The bytes that are taken.
    pub fn used(&self) -> u64 {
        self.budget.used() as u64
    }

    /// The limit in bytes, if the operator has set one.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }
}

/// Reads the memory that the kernel can give without swapping, in bytes.
fn available(report: &File) -> io::Result<u64> {
    let mut text = [0; REPORT];
    let length = report.read_at(&mut text, 0)?;
    parse(&String::from_utf8_lossy(&text[..length])).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse(report: &str) -> Option<u64> {
    let line = report.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_report_is_read() {
        assert_eq!(parse("MemTotal:  9 kB\nMemFree: 1 kB\nMemAvailable:     12 kB\n"), Some(12 << 10));
        for bad in ["", "MemAvailable: 12", "MemAvailable: x kB", "MemAvailable: 18446744073709551615 kB"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let bytes = available(&File::open("/proc/meminfo").unwrap()).unwrap();
        assert!(bytes > 1 << 20, "{bytes}");
    }

    #[test]
    fn a_limit_is_kept_and_given_back() {
        let memory = HostMemory::new(Some(1 << 20));
        let mut first = memory.charge(600 << 10);
        let second = memory.charge(600 << 10);
        assert_eq!((first.amount(), second.amount()), (600 << 10, 424 << 10));
        first.shrink_to(100 << 10);
        drop(second);
        assert_eq!(memory.used(), 100 << 10);
    }

    #[test]
    fn without_a_limit_half_of_what_is_there_may_be_taken() {
        let memory = HostMemory::new(None);
        let all = available(memory.report.as_ref().unwrap()).unwrap();
        let taken = memory.charge(u64::MAX).amount() as u64;
        // Other programs run meanwhile.
        assert!(taken > 0 && taken < all / 4 * 3, "{taken} of {all}");
        // What workers keep was available before.
        assert!((all / 4..all).contains(&memory.pool(u64::MAX, all / 2)));
        assert_eq!((memory.pool(1, 0), HostMemory::new(Some(0)).pool(7, 0)), (1, 7));
    }
}
