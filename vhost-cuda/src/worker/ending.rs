// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the worker's process where it cannot go on.

use log::{debug, error};

/// Ends the process at once: it could not keep a promise to the guest or has lost the daemon. The daemon
/// answers what is outstanding as lost.
pub fn end_process(why: &str) -> ! {
    error!("worker ends: {why}");
    exit()
}

/// Ends the process at once, for what its guest process has done.
pub fn end_process_of_guest(why: &str) -> ! {
    debug!("worker ends: {why}");
    exit()
}

fn exit() -> ! {
    // SAFETY: a plain system call that does not return.
    unsafe { libc::_exit(1) }
}
