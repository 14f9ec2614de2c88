// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that the daemon listens on.

use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fs, io};

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// The number of connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// An address for metrics. Other machines cannot reach either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A port of the loopback interface.
    Loopback(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(address) => Err(format!("{address} is not on the loopback interface: use 127.0.0.1:PORT")),
            Err(_) => Err(format!("`{text}` is neither a path with a slash nor 127.0.0.1:PORT")),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Loopback(address) => address.fmt(f),
        }
    }
}

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
