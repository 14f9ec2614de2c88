// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends the worker's process where it cannot continue.

use log::{debug, error};

/// Ends the process at once, because it could not keep a promise to the guest or has lost the daemon. The daemon
/// reports outstanding calls as lost.
pub fn end_process(why: &str) -> ! {
    error!("worker ends: {why}");
    exit()
}

/// Ends the process at once because of an action of its guest process.
pub fn end_process_of_guest(why: &str) -> ! {
    debug!("worker ends: {why}");
    exit()
}

fn exit() -> ! {
    // SAFETY: a plain system call that does not return.
    unsafe { libc::_exit(1) }
}
