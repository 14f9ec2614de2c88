// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address space of the daemon. An allocation that fails ends the process, and with it the sessions of all machines.
//! So new sessions and machines are refused while there is still enough address space for the existing ones.

use std::io;

/// The address space that is left for existing sessions, in bytes: stacks of the threads that one session starts, and
/// requests.
const MARGIN: usize = 32 << 20;
/// The advice to an operator.
pub const HINT: &str = "see its limits (ulimit -v, vm.overcommit_memory, vm.max_map_count)";
/// The number of mappings that are left (`vm.max_map_count`). Each change of protection below adds two.
const MAPPINGS: usize = 64;
const PAGE: usize = 4096;

/// Checks that there is address space for another session or machine.
///
/// Errors: the kernel's `ENOMEM`, if there is not enough.
pub fn check() -> io::Result<()> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), MARGIN, access, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let split = |index: usize| {
        // SAFETY: a page of the mapping, which nobody uses.
        let done = unsafe { libc::mprotect(at.byte_add(2 * index * PAGE), PAGE, libc::PROT_NONE) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let outcome = (0..MAPPINGS / 2).try_for_each(split);
    // SAFETY: the mapping of this function.
    unsafe { libc::munmap(at, MARGIN) };
    outcome
}
const _: () = assert!(MAPPINGS * PAGE <= MARGIN);

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_without_limits_has_room() {
        super::check().expect("room");
    }
}
