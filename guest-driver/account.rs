// SPDX-License-Identifier: GPL-2.0-only

//! A budget of bytes: how much memory one open file may hold.

use crate::error::Fault;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// A budget; shared, because what was taken from it can outlive the file.
#[pin_data]
pub(crate) struct Account {
    limit: u64,
    #[pin]
    used: Mutex<u64>,
}

/// Bytes taken from an [`Account`]; they go back with the value.
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Result<Arc<Self>> {
        let init = pin_init!(Self {
            limit,
            used <- new_mutex!(0),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Takes `bytes`; [`Fault::Quota`] if fewer are left.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, Fault> {
        let mut used = self.used.lock();
        let total = used.checked_add(bytes).ok_or(Fault::Quota)?;
        if total > self.limit {
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
    fn a_charge_cannot_overflow() -> Result {
        let account = Account::new(u64::MAX)?;
        let _first = account.charge(u64::MAX)?;
        assert!(matches!(account.charge(2), Err(Fault::Quota)));
        Ok(())
    }
}
