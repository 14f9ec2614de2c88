// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unix sockets that the daemon listens on.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::{fs, io};

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// The number of connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Listens on a new socket at `path` to which only this user and root may connect, from its first moment on. A stale
/// socket is replaced.
///
/// Errors: as [`remove_stale`], and those of the system calls.
pub fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    remove_stale(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets the mode of the socket when it is bound.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_socket_is_for_its_user_alone() {
        let folder = std::env::temp_dir().join(format!("vhost-cuda-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let listener = listen_privately(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        assert_eq!(listen_privately(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        // Nobody listens any more.
        listen_privately(&path).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
