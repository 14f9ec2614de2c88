// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device memory of one virtual machine, counted by its workers.
//!
//! A connection has a file in memory with one counter per session. Each worker maps the file, adds to its own counter
//! before it requests memory from the driver, and undoes that if the sum of all counters exceeds the limit. So the
//! sum of the granted memory never exceeds the limit, and no worker waits for another. A worker that dies leaves only
//! its counter, which the daemon clears when the process has been reaped.
//!
//! A compromised worker can write any counter of its own machine. At worst it denies memory to that machine, or uses
//! more than it counts, which the daemon's watchdog notices ([`crate::limits::watchdog`]). The daemon never maps the
//! file, and its length is sealed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cache;
use crate::hand_over::files::{Inherited, Leaving, Number};

/// The device memory in bytes that is charged for each CUDA context. An H200 needs 520 to 524 MiB; smaller GPUs need
/// less.
pub const CONTEXT_BYTES: u64 = 600 << 20;

/// The maximum number of counters (`--max-sessions`).
const MAX_SESSIONS: u32 = 1024;
/// The size of a counter in bytes.
const COUNTER: u64 = size_of::<u64>() as u64;

/// The account of one virtual machine, on the daemon's side.
#[derive(Debug)]
pub struct Account {
    file: File,
    limit: u64,
    /// The counters that belong to sessions.
    taken: Mutex<Vec<bool>>,
}

/// A session's counter. It is cleared when dropped, which must happen only after the session's worker was reaped.
#[derive(Debug)]
pub struct Slot {
    account: Arc<Account>,
    index: u32,
}

/// An account that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedAccount {
    file: Number,
    limit: u64,
    sessions: u32,
}

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

impl Account {
    /// Creates an account of `limit` bytes, besides one context, for up to `sessions` sessions.
    pub fn open(limit: u64, sessions: u32) -> io::Result<Arc<Self>> {
        let file = cache::memory_file(c"cuda-account")?;
        file.set_len(u64::from(sessions) * COUNTER)?;
        cache::add_seals(&file, cache::FIXED_LENGTH)?;
        Ok(Arc::new(Self { file, limit, taken: Mutex::new(vec![false; sessions as usize]) }))
    }

    /// Takes a counter for a session whose worker has one context. Returns `None` if the machine's memory is
    /// insufficient.
    pub fn join(self: &Arc<Self>) -> io::Result<Option<Slot>> {
        let mut taken = self.taken.lock();
        let others = (0..taken.len() as u64).filter(|&index| taken[index as usize]);
        let others = others.map(|index| self.read(index)).sum::<io::Result<u64>>()?;
        let free = taken.iter().position(|taken| !taken);
        let Some(index) = free.filter(|_| others <= self.limit) else { return Ok(None) };
        self.file.write_all_at(&CONTEXT_BYTES.to_ne_bytes(), index as u64 * COUNTER)?;
        taken[index] = true;
        Ok(Some(Slot { account: self.clone(), index: index as u32 }))
    }

    /// Returns what the next program needs.
    pub fn save(&self, files: &mut Leaving) -> SavedAccount {
        let sessions = self.taken.lock().len() as u32;
        SavedAccount { file: files.add(&self.file), limit: self.limit, sessions }
    }

    /// Goes on with an account of the program before this one. [`Self::join_again`] follows for each of its sessions. Its workers
    /// have its limit, so it stays as it is.
    ///
    /// Errors: the state is wrong.
    pub fn restore(saved: SavedAccount, files: &mut Inherited) -> io::Result<Arc<Self>> {
        let file = File::from(files.take(saved.file)?);
        if file.metadata()?.len() != u64::from(saved.sessions) * COUNTER || saved.sessions > MAX_SESSIONS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let taken = Mutex::new(vec![false; saved.sessions as usize]);
        Ok(Arc::new(Self { file, limit: saved.limit, taken }))
    }

    /// Returns the counter that a session had in the program before this one.
    ///
    /// Errors: there is none of this number, or another session has it.
    pub fn join_again(self: &Arc<Self>, index: u32) -> io::Result<Slot> {
        let mut taken = self.taken.lock();
        let free = taken.get_mut(index as usize).filter(|taken| !**taken);
        *free.ok_or(io::ErrorKind::InvalidData)? = true;
        Ok(Slot { account: self.clone(), index })
    }

    fn read(&self, index: u64) -> io::Result<u64> {
        let mut bytes = [0; COUNTER as usize];
        self.file.read_exact_at(&mut bytes, index * COUNTER)?;
        // No device has more, and the sum of values from workers must not overflow.
        Ok(u64::from_ne_bytes(bytes).min(1 << 48))
    }
}

impl Slot {
    /// The number of the counter.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the parameters for the session's worker.
    pub fn terms(&self) -> (Terms, &File) {
        let count = self.account.taken.lock().len() as u32;
        (Terms { limit: self.account.limit, index: self.index, count }, &self.account.file)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.account.taken.lock();
        // It fails only if the kernel has no page for it, and it had the page before.
        let _ = self.account.file.write_all_at(&[0; COUNTER as usize], u64::from(self.index) * COUNTER);
        taken[self.index as usize] = false;
    }
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

    /// Returns all bytes of the machine, and the free ones.
    pub fn memory(&self) -> (u64, u64) {
        let free = self.limit_with_context().saturating_sub(self.sum()).min(self.terms.limit);
        (self.terms.limit, free)
    }

    fn limit_with_context(&self) -> u64 {
        self.terms.limit.saturating_add(CONTEXT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hand_over::files::keep_open;

    const MIB: u64 = 1 << 20;

    fn share(slot: &Slot) -> Share {
        let (terms, file) = slot.terms();
        Share::map(terms, file).unwrap()
    }

    #[test]
    fn sessions_share_a_limit() {
        let account = Account::open(700 * MIB, 4).unwrap();
        let slots = [account.join().unwrap().unwrap(), account.join().unwrap().unwrap()];
        let [one, other] = [share(&slots[0]), share(&slots[1])];
        // The second session's context is charged.
        assert_eq!(one.memory(), (700 * MIB, 100 * MIB));
        assert!(one.charge(60 * MIB) && !other.charge(41 * MIB) && other.charge(40 * MIB));
        assert_eq!(other.memory(), (700 * MIB, 0));
        one.discharge(10 * MIB);
        assert!(other.charge(10 * MIB) && !other.charge(1) && !other.charge(u64::MAX >> 1));
        assert!(account.join().unwrap().is_none(), "there is no room for another context");
        drop(slots);
        let again = share(&account.join().unwrap().unwrap()).memory();
        assert_eq!(again, (700 * MIB, 700 * MIB), "what a session had is free after it");
    }

    #[test]
    fn counters_are_bounded_and_used_again() {
        let account = Account::open(u64::MAX >> 8, 2).unwrap();
        let slots = [account.join().unwrap().unwrap(), account.join().unwrap().unwrap()];
        assert!(account.join().unwrap().is_none());
        drop(slots);
        assert_eq!(account.join().unwrap().unwrap().index, 0);
    }

    #[test]
    fn threads_never_get_more_than_there_is() {
        let account = Account::open(64 * MIB, 4).unwrap();
        account.file.write_all_at(&[0; 32], 0).unwrap();
        let slots: Vec<Slot> = (0..4).map(|index| Slot { account: account.clone(), index }).collect();
        account.taken.lock().fill(true);
        let charged: u64 = std::thread::scope(|scope| {
            let hog = |slot| {
                scope.spawn(move || {
                    let share = share(slot);
                    (0..10_000).filter(|_| share.charge(MIB)).count() as u64
                })
            };
            let threads: Vec<_> = slots.iter().map(hog).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(charged * MIB <= 64 * MIB + CONTEXT_BYTES, "{charged} MiB");
        assert!(charged > 0);
    }

    #[test]
    fn an_account_goes_over_with_its_counters() {
        let account = Account::open(700 * MIB, 2).unwrap();
        let slot = account.join().unwrap().unwrap();
        assert!(share(&slot).charge(60 * MIB));
        let mut files = Leaving::default();
        let saved = account.save(&mut files);
        let index = slot.index();
        // Both live on in the next program.
        std::mem::forget(slot);
        std::mem::forget(account);
        keep_open(&files.numbers(), true).unwrap();
        let mut files = Inherited::of(&files.numbers()).unwrap();
        assert!(Account::restore(SavedAccount { sessions: 3, ..saved }, &mut files).is_err());
        assert!(Account::restore(SavedAccount { sessions: u32::MAX, ..saved }, &mut files).is_err());
        let account = Account::restore(saved, &mut files).unwrap();
        assert!(account.join_again(2).is_err());
        let slot = account.join_again(index).unwrap();
        assert!(account.join_again(index).is_err(), "another session has it");
        assert_eq!(share(&slot).memory(), (700 * MIB, 640 * MIB));
        drop(slot);
        assert_eq!(share(&account.join().unwrap().unwrap()).memory(), (700 * MIB, 700 * MIB));
    }
}
