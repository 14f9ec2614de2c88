// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files in memory, and messages with a file, between the daemon and its workers.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Seals of a file that keeps its length.
pub const FIXED_LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Creates an empty file in memory that can be sealed.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

/// Seals such a file.
pub fn add_seals(file: &File, seals: SealFlags) -> io::Result<()> {
    Ok(fcntl_add_seals(file, seals)?)
}

/// Sends `bytes`, with a file.
pub fn write_with(mut socket: &UnixStream, bytes: &[u8], file: Option<&File>) -> io::Result<()> {
    let Some(file) = file else { return socket.write_all(bytes) };
    let sent = socket
        .send_with_fd(bytes, file.as_raw_fd())
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    socket.write_all(&bytes[sent..])
}

/// Fills `bytes`, and returns the accompanying file. `rest` reads what has not come with the first bytes. Returns `None` if the
/// other end has closed the socket.
///
/// Errors: those of the socket and of `rest`.
pub fn read_with(
    socket: &UnixStream,
    bytes: &mut [u8],
    rest: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<Option<Option<File>>> {
    let (have, file) = loop {
        match socket.recv_with_fd(bytes) {
            Ok(received) => break received,
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) if error.errno() == libc::ECONNRESET => return Ok(None),
            Err(error) => return Err(io::Error::from_raw_os_error(error.errno())),
        }
    };
    if have == 0 {
        return Ok(None);
    }
    rest(&mut bytes[have..])?;
    Ok(Some(file))
}

/// Returns the error of a message that is not as it must be.
pub fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
