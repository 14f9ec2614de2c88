// SPDX-License-Identifier: GPL-2.0-only

//! A budget of bytes: the memory that one open file, one user, or all users together may hold.

use crate::error::Fault;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// A budget. It is shared, because a charge can outlive the file.
#[pin_data]
pub(crate) struct Account {
    limit: u64,
    #[pin]
    used: Mutex<u64>,
}

/// Bytes taken from an [`Account`]; dropping the value returns them.
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    /// Creates a budget of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Result<Arc<Self>> {
        let init = pin_init!(Self {
            limit,
            used <- new_mutex!(0),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Takes `bytes`. [`Fault::Quota`]: fewer are left.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, Fault> {
        self.charge_up_to(self.limit, bytes)
    }

    /// Like [`Self::charge`], with another limit than the account's own.
    pub(crate) fn charge_up_to(self: &Arc<Self>, limit: u64, bytes: u64) -> Result<Charge, Fault> {
        let mut used = self.used.lock();
        let total = used.checked_add(bytes).ok_or(Fault::Quota)?;
        if total > limit {
            return Err(Fault::Quota);
        }
        *used = total;
        drop(used);
        Ok(Charge {
            account: self.clone(),
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        *self.account.used.lock() -= self.bytes;
    }
}

#[kunit_tests(virtio_cuda_account)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_comes_back() -> Result {
        let account = Account::new(100)?;
        let first = account.charge(60)?;
        assert!(matches!(account.charge(41), Err(Fault::Quota)));
        let second = account.charge(40)?;
        assert!(matches!(account.charge(1), Err(Fault::Quota)));
        drop(first);
        let _third = account.charge(60)?;
        drop(second);
        Ok(())
    }

    #[test]
    fn another_limit_counts_for_one_charge() -> Result {
        let account = Account::new(100)?;
        let _first = account.charge_up_to(200, 150)?;
        assert!(matches!(account.charge(1), Err(Fault::Quota)));
        assert!(matches!(account.charge_up_to(10, 1), Err(Fault::Quota)));
        let _second = account.charge_up_to(200, 50)?;
        Ok(())
    }

    #[test]
    fn a_charge_cannot_overflow() -> Result {
        let account = Account::new(u64::MAX)?;
        let _first = account.charge(u64::MAX)?;
        assert!(matches!(account.charge(2), Err(Fault::Quota)));
        Ok(())
    }
}
