// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes to a container that lets programs in it use a daemon.

use std::path::{Path, PathBuf};

/// The folder of the socket in a container.
const GUEST: &str = "/run/vhost-cuda";
/// The folder of the libraries in a container.
const LIBRARIES: &str = "/usr/lib/vhost-cuda";
/// The variable by which the guest's libraries find the socket.
const SOCKET_VARIABLE: &str = "VIRTIO_CUDA_SOCKET";
/// The name of the socket in its folder.
pub const SOCKET: &str = "vhost.sock";

/// Variables and mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edits {
    /// Variables of the container's environment.
    pub variables: [(&'static str, String); 2],
    /// Files or folders of the node, and their paths in the container. Nothing is written there.
    pub mounts: [(PathBuf, String); 2],
}

impl Edits {
    /// For the daemon whose socket is [`SOCKET`] in the folder `guest`, and the folder of the guest's libraries. Both are on the
    /// node. The folder is mounted, and not the socket, so that the daemon may be started again.
    pub fn for_folder(guest: &Path, libraries: &Path) -> Self {
        Self::new(guest, GUEST.to_owned(), libraries)
    }

    /// For a daemon whose socket stays, because systemd has it.
    pub fn for_socket(socket: &Path, libraries: &Path) -> Self {
        Self::new(socket, format!("{GUEST}/{SOCKET}"), libraries)
    }

    fn new(from: &Path, to: String, libraries: &Path) -> Self {
        Self {
            variables: [
                (SOCKET_VARIABLE, format!("{GUEST}/{SOCKET}")),
                ("LD_LIBRARY_PATH", LIBRARIES.to_owned()),
            ],
            mounts: [(from.to_path_buf(), to), (libraries.to_path_buf(), LIBRARIES.to_owned())],
        }
    }
}
