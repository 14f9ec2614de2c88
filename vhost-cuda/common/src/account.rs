// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device memory of one virtual machine, as its workers count it: a file with a counter per session, which the daemon creates.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The device memory in bytes that is charged for each CUDA context. An H200 needs 520 to 524 MiB; smaller GPUs need
/// less.
pub const CONTEXT_BYTES: u64 = 600 << 20;

/// The size of a counter in bytes.
pub const COUNTER: u64 = size_of::<u64>() as u64;

/// The parameters of its machine's account for a worker. The file is sent with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Terms {
    /// The maximum bytes of all sessions together, besides one context.
    pub limit: u64,
    /// The index of the session's counter.
    pub index: u32,
    /// The number of counters.
    pub count: u32,
}

/// The account of the virtual machine, on a worker's side.
///
/// # Invariants
///
/// `counters` is a shared mapping, for as long as the process lives, of `terms.count` counters in a file that cannot
/// shrink; `terms.index` is less than that.
#[derive(Debug)]
pub struct Share {
    counters: *const AtomicU64,
    terms: Terms,
}

// SAFETY: the counters are atomic and stay mapped.
unsafe impl Send for Share {}
// SAFETY: the counters are atomic and stay mapped, so threads may use them at once.
unsafe impl Sync for Share {}

impl Share {
    /// Maps the account that the daemon sent.
    pub fn map(terms: Terms, file: &File) -> io::Result<Self> {
        let bytes = u64::from(terms.count) * COUNTER;
        if terms.index >= terms.count || file.metadata()?.len() < bytes {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: a new mapping of a file of that length, which the daemon has sealed.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { counters: at.cast_const().cast(), terms })
    }

    fn counters(&self) -> &[AtomicU64] {
        // SAFETY: by the invariant; other processes write these words too, which atomics allow.
        unsafe { std::slice::from_raw_parts(self.counters, self.terms.count as usize) }
    }

    fn own(&self) -> &AtomicU64 {
        &self.counters()[self.terms.index as usize]
    }

    fn sum(&self) -> u64 {
        // Sequentially consistent: of two workers that add at the same time, at least one sees the other's addition.
        self.counters().iter().fold(0, |sum: u64, counter| sum.saturating_add(counter.load(Ordering::SeqCst)))
    }

    /// Charges `bytes`. Returns false if the machine would exceed its limit.
    pub fn charge(&self, bytes: u64) -> bool {
        // Checked before, so that a far too large request does not make others fail for a moment.
        let fits = |sum: u64| sum <= self.limit_with_context();
        if !fits(self.sum().saturating_add(bytes)) {
            return false;
        }
        self.own().fetch_add(bytes, Ordering::SeqCst);
        let kept = fits(self.sum());
        if !kept {
            self.discharge(bytes);
        }
        kept
    }

    /// Charges `bytes` that are in use already.
    pub fn force(&self, bytes: u64) {
        self.own().fetch_add(bytes, Ordering::SeqCst);
    }

    /// Undoes [`Self::charge`].
    pub fn discharge(&self, bytes: u64) {
        self.own().fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Returns whether the machine is within its limit if this session is charged for `bytes` beside its first context.
    pub fn allows(&self, bytes: u64) -> bool {
        let others = self.sum().saturating_sub(self.own().load(Ordering::SeqCst));
        others.saturating_add(CONTEXT_BYTES).saturating_add(bytes) <= self.limit_with_context()
    }

    /// Sets the session's charge to `bytes` beside its first context.
    pub fn settle(&self, bytes: u64) {
        self.own().store(CONTEXT_BYTES.saturating_add(bytes), Ordering::SeqCst);
    }

    /// Returns all bytes of the machine, and the free ones.
    pub fn memory(&self) -> (u64, u64) {
        let free = self.limit_with_context().saturating_sub(self.sum()).min(self.terms.limit);
        (self.terms.limit, free)
    }

    fn limit_with_context(&self) -> u64 {
        self.terms.limit.saturating_add(CONTEXT_BYTES)
    }
}
