// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's table of unix sockets. A trial connection would be a front-end to the daemon.

use std::fs;
use std::path::Path;

/// The flags of a socket that accepts connections (`__SO_ACCEPTCON`).
const ACCEPTS: &str = "00010000";
/// The state of a socket with a peer (`SS_CONNECTED`).
const CONNECTED: &str = "03";

/// The sockets of this network namespace at one moment.
pub struct Sockets(String);

impl Sockets {
    /// Reads the table.
    pub fn now() -> Self {
        Self(fs::read_to_string("/proc/net/unix").unwrap_or_default())
    }

    /// Returns whether a process listens on `path`.
    pub fn listens(&self, path: &Path) -> bool {
        self.any(path, |flags, _| flags == ACCEPTS)
    }

    /// Returns whether a process is connected to `path`.
    pub fn is_connected(&self, path: &Path) -> bool {
        self.any(path, |flags, state| flags != ACCEPTS && state == CONNECTED)
    }

    fn any(&self, path: &Path, matches: impl Fn(&str, &str) -> bool) -> bool {
        self.0.lines().any(|line| {
            // Address, references, protocol, flags, type, state, inode, path.
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(7).is_some_and(|name| Path::new(name) == path) && matches(words[3], words[5])
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn listeners_and_connections_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let state = || (Sockets::now().listens(&path), Sockets::now().is_connected(&path));
        assert_eq!(state(), (false, false));
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(state(), (true, false));
        let stream = UnixStream::connect(&path).unwrap();
        let accepted = listener.accept().unwrap();
        assert_eq!(state(), (true, true));
        drop((stream, accepted));
        assert_eq!(state(), (true, false));
    }
}
