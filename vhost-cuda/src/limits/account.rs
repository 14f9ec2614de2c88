// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device memory of one virtual machine, counted by its workers.
//!
//! A connection has a file in memory with one counter per session. Each worker maps the file, adds to its own counter
//! before it requests memory from the driver, and undoes that if the sum of all counters exceeds the limit. So the
//! sum of the granted memory never exceeds the limit, and no worker waits for another. A worker that dies leaves only
//! its counter, which the daemon clears when the process has been reaped.
//!
//! A compromised worker can write any counter of its own machine. At worst it denies memory to that machine, or uses
//! more than it counts, which the daemon's watchdog notices ([`crate::sessions::watchdog`]). The daemon never maps the
//! file, and its length is sealed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use vhost_cuda_common::account::{CONTEXT_BYTES, COUNTER, Terms};
use vhost_cuda_common::files::{FIXED_LENGTH, add_seals, memory_file};

use crate::hand_over::files::{Inherited, Leaving, Number};

/// The maximum number of counters (`--max-sessions`).
const MAX_SESSIONS: u32 = 1024;
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

impl Account {
    /// Creates an account of `limit` bytes, besides one context, for up to `sessions` sessions.
    pub fn open(limit: u64, sessions: u32) -> io::Result<Arc<Self>> {
        let file = memory_file(c"cuda-account")?;
        file.set_len(u64::from(sessions) * COUNTER)?;
        add_seals(&file, FIXED_LENGTH)?;
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

    /// Returns the parameters for a worker whose session has the counter `index`.
    pub fn terms(&self, index: u32) -> (Terms, &File) {
        let count = self.taken.lock().len() as u32;
        (Terms { limit: self.limit, index, count }, &self.file)
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
        self.account.terms(self.index)
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

#[cfg(test)]
mod tests {
    use vhost_cuda_common::account::Share;

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
