// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Tokens of the device for what processes share, in the form that programs expect: 64 bytes, or a file descriptor.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use cuda_abi::CUipcMemHandle;
use virtio_cuda_client::CudaError;

/// The first bytes of this library's handles.
const MAGIC: [u8; 8] = *b"vcudaipc";
const TOKEN_BYTES: usize = 16;
const TOKEN_END: usize = MAGIC.len() + TOKEN_BYTES;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const HANDLE_TYPE_FILE: u32 = 1;
type Token = [u8; TOKEN_BYTES];

/// Returns the handle for a token: a `CUipcMemHandle`, `CUipcEventHandle` or `CUmemPoolPtrExportData`.
pub fn handle_of(token: Token) -> CUipcMemHandle {
    let mut reserved = [0; 64];
    reserved[..MAGIC.len()].copy_from_slice(&MAGIC);
    reserved[MAGIC.len()..TOKEN_END].copy_from_slice(&token);
    CUipcMemHandle { reserved }
}

/// Returns the token in a handle of this library.
pub fn token_of_handle(handle: &CUipcMemHandle) -> Result<Token, CudaError> {
    token_of(&handle.reserved[..TOKEN_END])
}

fn token_of(bytes: &[u8]) -> Result<Token, CudaError> {
    let token = bytes.strip_prefix(&MAGIC).and_then(|token| token.try_into().ok());
    token.ok_or(CudaError::INVALID_VALUE)
}

/// Creates a file that contains only a token, to be passed to another process.
pub fn file_of(token: Token) -> std::io::Result<File> {
    // SAFETY: the name is a C string; a descriptor that is returned is new and has no other owner.
    let mut file = unsafe {
        match libc::memfd_create(c"cuda-allocation".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(std::io::Error::last_os_error()),
            fd => File::from_raw_fd(fd),
        }
    };
    file.write_all(&MAGIC)?;
    file.write_all(&token)?;
    Ok(file)
}

/// Reads the token in a file of the program, which stays open.
pub fn token_in(descriptor: i32) -> Result<Token, CudaError> {
    if descriptor < 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: the program says that it is an open descriptor; it is only read, and not closed.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let mut bytes = [0; TOKEN_END];
    file.read_exact_at(&mut bytes, 0).map_err(|_| CudaError::INVALID_VALUE)?;
    token_of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn tokens_survive_both_forms_and_nothing_else_is_one() {
        let token = *b"0123456789abcdef";
        assert_eq!(token_of_handle(&handle_of(token)), Ok(token));
        assert_eq!(token_of_handle(&CUipcMemHandle { reserved: [7; 64] }), Err(CudaError::INVALID_VALUE));
        let file = file_of(token).expect("memory for a file");
        assert_eq!(token_in(file.as_raw_fd()), Ok(token));
        let other = File::open("/proc/self/exe").expect("exists");
        assert_eq!(token_in(other.as_raw_fd()), Err(CudaError::INVALID_VALUE));
        assert_eq!(token_in(-1), Err(CudaError::INVALID_VALUE));
    }
}
