// SPDX-License-Identifier: GPL-2.0-only

//! The users of one device: the number of sessions and the memory of each. Limits per user prevent one user from taking
//! the whole device.

use crate::{
    error::Fault,
    limits::{
        account::{
            Account,
            Charge, //
        },
        params::Limits, //
    },
    linux::task, //
};
use core::cmp::max;
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        CondVarTimeoutResult,
        Mutex, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    }, //
};

/// Maximum wait of open(2) for sessions that are closing. A program that starts right after others have ended must not
/// fail because the device has not answered their close yet.
const CLOSING_PATIENCE_MS: Msecs = 2_000;
/// User id without a limit of sessions other than the device's.
const ROOT: u32 = 0;

/// A user that has sessions.
struct User {
    uid: u32,
    sessions: u32,
    /// Charged with memory that the device keeps after a request.
    kept: Arc<Account>,
    /// Charged with memory that the device uses during a request.
    passing: Arc<Account>,
}

struct Table {
    users: KVec<User>,
    /// Number of sessions of all users, until the device has answered their close.
    sessions: u32,
    /// Number of sessions that are closing.
    closing: u32,
}

/// All users of a device.
#[pin_data]
pub(crate) struct Users {
    limits: Limits,
    /// Limits the sum of all `kept`.
    kept: Arc<Account>,
    #[pin]
    table: Mutex<Table>,
    #[pin]
    changed: CondVar,
}

impl Table {
    /// Adds a session of `uid`. Returns the user's accounts. [`Fault::Quota`]: there are too many sessions.
    fn enter(&mut self, uid: u32, limits: &Limits) -> Result<(Arc<Account>, Arc<Account>)> {
        if self.sessions >= limits.sessions {
            return Err(Fault::Quota.into());
        }
        if let Some(user) = self.users.iter_mut().find(|user| user.uid == uid) {
            if uid != ROOT && user.sessions >= limits.user_sessions {
                return Err(Fault::Quota.into());
            }
            user.sessions += 1;
            self.sessions += 1;
            return Ok((user.kept.clone(), user.passing.clone()));
        }
        let (kept, passing) = (
            Account::new(limits.user_pinned_bytes)?,
            Account::new(limits.user_pinned_bytes)?,
        );
        let user = User {
            uid,
            sessions: 1,
            kept: kept.clone(),
            passing: passing.clone(),
        };
        self.users.push(user, GFP_KERNEL)?;
        self.sessions += 1;
        Ok((kept, passing))
    }

    fn leave(&mut self, uid: u32) {
        let Some(place) = self.users.iter().position(|user| user.uid == uid) else {
            return;
        };
        self.sessions -= 1;
        self.users[place].sessions -= 1;
        if self.users[place].sessions == 0 {
            let _ = self.users.remove(place);
        }
    }
}

impl Users {
    /// Returns a table without users.
    pub(crate) fn new(limits: Limits) -> Result<Arc<Self>> {
        let kept = Account::new(limits.all_pinned_bytes)?;
        let table = Table {
            users: KVec::new(),
            sessions: 0,
            closing: 0,
        };
        let init = pin_init!(Self {
            limits,
            kept,
            table <- new_mutex!(table, "virtio_cuda::Users::table"),
            changed <- new_condvar!("virtio_cuda::Users::changed"),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Adds a session of the current user, or of the owner of its user namespace. `EDQUOT`: the user has too many, or all users have; `EINTR`: a signal came
    /// while sessions were closing.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Ledger> {
        self.enter_as(task::charged_uid())
    }

    fn enter_as(self: &Arc<Self>, uid: u32) -> Result<Ledger> {
        let (file, shared) = (
            Account::new(self.limits.pinned_bytes)?,
            Account::new(self.limits.shared_bytes)?,
        );
        let mut left = msecs_to_jiffies(CLOSING_PATIENCE_MS);
        let mut table = self.table.lock();
        let (kept, passing) = loop {
            match table.enter(uid, &self.limits) {
                Err(error) if error == Fault::Quota.into() && table.closing > 0 => (),
                entered => break entered?,
            }
            match self.changed.wait_interruptible_timeout(&mut table, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout => return Err(Fault::Quota.into()),
                CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
            }
        };
        drop(table);
        Ok(Ledger {
            file,
            shared,
            kept,
            passing,
            member: Member {
                users: self.clone(),
                uid,
                is_closing: Atomic::new(false),
            },
        })
    }
}

/// One session's part of a [`Table`].
struct Member {
    users: Arc<Users>,
    uid: u32,
    /// Changed under the table's lock.
    is_closing: Atomic<bool>,
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut table = self.users.table.lock();
        table.leave(self.uid);
        if self.is_closing.load(Relaxed) {
            table.closing -= 1;
        }
        drop(table);
        self.users.changed.notify_all();
    }
}

/// The accounts to which the memory of one session is charged: those of its file, its user and all users.
pub(crate) struct Ledger {
    file: Arc<Account>,
    shared: Arc<Account>,
    kept: Arc<Account>,
    passing: Arc<Account>,
    member: Member,
}

/// Bytes taken from several accounts; dropping the value returns them.
pub(crate) struct Charges {
    _file: Charge,
    _user: Charge,
    _all: Option<Charge>,
}

impl Ledger {
    /// Records that the session is closing. May be called repeatedly.
    pub(crate) fn closing(&self) {
        let mut table = self.member.users.table.lock();
        if !self.member.is_closing.load(Relaxed) {
            self.member.is_closing.store(true, Relaxed);
            table.closing += 1;
        }
    }

    /// Charges pages that are pinned during one request.
    pub(crate) fn pass(&self, bytes: u64) -> Result<Charges, Fault> {
        Ok(Charges {
            _file: self.file.charge(bytes)?,
            _user: self.passing.charge(bytes)?,
            _all: None,
        })
    }

    /// Charges pages that stay pinned after a request.
    pub(crate) fn keep(&self, bytes: u64) -> Result<Charges, Fault> {
        self.charge_kept(&self.file, bytes)
    }

    /// Charges an area that the driver allocates.
    pub(crate) fn share(&self, bytes: u64) -> Result<Charges, Fault> {
        self.charge_kept(&self.shared, bytes)
    }

    /// A user's limit is `RLIMIT_MEMLOCK`, or the share that the administrator gives to each user if that is more. As
    /// elsewhere in the kernel, `CAP_IPC_LOCK` lifts this limit. The limit of all users remains.
    fn charge_kept(&self, file: &Arc<Account>, bytes: u64) -> Result<Charges, Fault> {
        let limits = &self.member.users.limits;
        let share = if limits.memlock_is_strict {
            0
        } else {
            limits.user_pinned_bytes
        };
        let most = max(share, task::memlock_bytes());
        Ok(Charges {
            _file: file.charge(bytes)?,
            _user: match self.kept.charge_up_to(most, bytes) {
                Err(Fault::Quota) if task::may_lock_memory() => {
                    self.kept.charge_up_to(u64::MAX, bytes)?
                }
                other => other?,
            },
            _all: Some(self.member.users.kept.charge(bytes)?),
        })
    }
}

#[kunit_tests(virtio_cuda_users)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        request_queues: 1,
        payload_bytes: 4096,
        bulk_bytes: 4096,
        sessions: 4,
        user_sessions: 2,
        outstanding: 1,
        pinned_bytes: 100,
        shared_bytes: 100,
        user_pinned_bytes: 150,
        all_pinned_bytes: u64::MAX,
        memlock_is_strict: false,
    };

    #[test]
    fn a_user_gets_its_part_of_the_sessions() -> Result {
        let users = Users::new(LIMITS)?;
        let is_full = |uid| users.enter_as(uid).err() == Some(Fault::Quota.into());
        let first = users.enter_as(1000)?;
        let _second = users.enter_as(1000)?;
        assert!(is_full(1000));
        let other = users.enter_as(1001)?;
        drop(first);
        let _third = users.enter_as(1000)?;
        assert!(is_full(1000));
        let _root = users.enter_as(ROOT)?;
        // There are four sessions.
        assert!(is_full(1001) && is_full(ROOT));
        drop(other);
        let _again = users.enter_as(ROOT)?;
        Ok(())
    }

    #[test]
    fn the_files_of_a_user_share_its_account() -> Result {
        let users = Users::new(LIMITS)?;
        let (first, second) = (users.enter_as(1000)?, users.enter_as(1000)?);
        let charge = first.pass(100)?;
        assert!(matches!(first.pass(1), Err(Fault::Quota)));
        assert!(matches!(second.pass(51), Err(Fault::Quota)));
        let _rest = second.pass(50)?;
        let _other = users.enter_as(1001)?.pass(100)?;
        drop(charge);
        let _again = second.pass(50)?;
        Ok(())
    }
}
