// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory files that the CPU version of NCCL passes to other processes (`cuda-emulator/libraries`, `nccl`). They pass
//! through the sockets of [`super::exchange`], or through a courier: the daemon's workers may create no sockets, but
//! the daemon passes files between its workers. They are not part of CUDA.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::{Arc, OnceLock};

use cuda_abi::Courier;

use super::exchange::{self, IpcHandle, Token};

/// The courier of the program that has loaded this library.
struct Given(Courier<*const c_void>);

// SAFETY: `cuda_emulator_set_courier` demands functions that any thread may call.
unsafe impl Send for Given {}
// SAFETY: `cuda_emulator_set_courier` demands functions that several threads may call at once.
unsafe impl Sync for Given {}

static COURIER: OnceLock<Given> = OnceLock::new();

/// Makes files pass through a courier from now on. The first one stays.
///
/// # Safety
/// `courier` must point to a courier whose functions may be called with its context from any thread, by several at
/// once, until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_emulator_set_courier(courier: *const Courier<*const c_void>) {
    // SAFETY: `# Safety` promises that `courier` points to one.
    let _ = COURIER.set(Given(unsafe { courier.read() }));
}

/// Offers a file, and writes its handle for other processes. Returns 0 on success.
///
/// # Safety
/// `descriptor` must be open, and `handle` must have room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_emulator_offer_file(descriptor: c_int, handle: *mut IpcHandle) -> c_int {
    let offered = match COURIER.get() {
        Some(Given(courier)) => {
            let mut token = Token::default();
            // SAFETY: its functions may be called (`cuda_emulator_set_courier`), with room for a token.
            let result = unsafe { (courier.offer)(courier.context, descriptor, &raw mut token) };
            (result == 0).then(|| IpcHandle::by_courier(token))
        }
        None => {
            // SAFETY: `# Safety` promises that `descriptor` is open.
            let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().map(File::from);
            file.ok().and_then(|file| exchange::offer(Arc::new(file), 0).ok())
        }
    };
    let Some(offered) = offered else { return -1 };
    // SAFETY: `# Safety` promises that `handle` has room for a handle.
    unsafe { handle.write(offered) };
    0
}

/// Returns a new descriptor for the file of a handle, or -1. The contents of the file are not checked.
///
/// # Safety
/// `handle` must point to as many bytes as a handle has; they may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_emulator_fetch_file(handle: *const IpcHandle) -> c_int {
    // SAFETY: `# Safety` promises as many bytes as a handle has; any bytes are one.
    let handle = unsafe { handle.read_unaligned() };
    if handle.check().is_err() {
        return -1;
    }
    match COURIER.get() {
        // SAFETY: its functions may be called (`cuda_emulator_set_courier`).
        Some(Given(courier)) => unsafe { (courier.fetch)(courier.context, &raw const handle.token) },
        None => handle.fetch_from_other().map_or(-1, File::into_raw_fd),
    }
}

/// Ends an offer. Processes that have the file keep it.
///
/// # Safety
/// As [`cuda_emulator_fetch_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_emulator_withdraw_file(handle: *const IpcHandle) {
    // SAFETY: `cuda_emulator_fetch_file` demands as many bytes as a handle has; any bytes are one.
    let handle = unsafe { handle.read_unaligned() };
    match COURIER.get() {
        // SAFETY: its functions may be called (`cuda_emulator_set_courier`).
        Some(Given(courier)) => unsafe { (courier.withdraw)(courier.context, &raw const handle.token) },
        None => exchange::withdraw(handle.token),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::fd::{AsRawFd, FromRawFd};

    use super::*;

    #[test]
    fn a_file_is_fetched_until_it_is_withdrawn() {
        let mut file = crate::memory::memory_file(4096).unwrap();
        let mut handle = IpcHandle::by_courier(Token::default());
        // SAFETY: the file is open, and the handle is a local; what is fetched is a new descriptor.
        unsafe {
            assert_eq!(cuda_emulator_offer_file(file.as_raw_fd(), &raw mut handle), 0);
            file.write_all(b"shared").unwrap();
            let mut fetched = File::from_raw_fd(cuda_emulator_fetch_file(&raw const handle));
            let mut bytes = [0; 6];
            fetched.rewind().unwrap();
            fetched.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"shared");
            cuda_emulator_withdraw_file(&raw const handle);
            assert_eq!(cuda_emulator_fetch_file(&raw const handle), -1);
            handle = std::mem::zeroed();
            assert_eq!(cuda_emulator_fetch_file(&raw const handle), -1, "no handle at all");
        }
    }
}
