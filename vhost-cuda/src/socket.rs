// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unix sockets that the daemon listens on.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::{fs, io};

/// Removes a socket without a listener.
///
/// Errors: `AddrInUse` for a socket on which a process listens.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        return Ok(());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        // A socket of another kind, or one to which this user may not connect: binding to it reports the reason.
        Err(_) => Ok(()),
    }
}
