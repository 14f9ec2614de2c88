// SPDX-License-Identifier: GPL-2.0-only

//! Errors between driver and device, and the errno that a process sees (`uapi.rs` has the list).

use kernel::{
    bindings,
    prelude::*, //
};

/// An error for which the kernel crate has no constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The session, its worker or the whole backend has ended: `ENOLINK`.
    Lost,
    /// A limit of driver or device was reached: `EDQUOT`.
    Quota,
    /// The device refused the request: `EPROTO`.
    Refused,
    /// The device's answer is malformed; the effect of the request is unknown: `EPROTO`.
    Garbled,
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let errno = match fault {
            Fault::Lost => bindings::ENOLINK,
            Fault::Quota => bindings::EDQUOT,
            Fault::Refused | Fault::Garbled => bindings::EPROTO,
        };
        Error::from_errno(-(errno as c_int))
    }
}
