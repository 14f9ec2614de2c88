// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of this host: the daemon's socket, and QEMUs that know the device.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::names::DEVICE;

/// The folder of the sockets of the unit `vhost-user-cuda@.socket`.
const SOCKETS: &str = "/run/vhost-user-cuda";
/// The QEMU of the package vhost-cuda-qemu.
pub const PACKAGED: &str = "/usr/lib/vhost-cuda/qemu/bin/qemu-system-x86_64";

/// The socket that the packaged units give to the machine `name`.
pub fn default_socket(name: &str) -> PathBuf {
    Path::new(SOCKETS).join(format!("{name}.sock"))
}

/// An error unless `path` is a socket.
pub fn check_socket(path: &Path, name: &str) -> Result<()> {
    let hint = format!(
        "Start the domain's daemon first, for example with `systemctl enable --now vhost-user-cuda@{name}.socket`, or \
         name its socket with --socket"
    );
    let meta =
        fs::metadata(path).with_context(|| format!("There is no socket {}. {hint}", path.display()))?;
    ensure!(meta.file_type().is_socket(), "{} is not a socket. {hint}", path.display());
    Ok(())
}

/// The QEMU that a domain needs, which has `own` now. None: its own.
pub fn choose_emulator(own: Option<&str>, wanted: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(wanted) = wanted {
        ensure!(
            has_device(wanted),
            "{} does not know the device {DEVICE}, or does not start",
            wanted.display()
        );
        return Ok(Some(wanted.to_path_buf()));
    }
    if own.is_some_and(|own| has_device(Path::new(own))) {
        return Ok(None);
    }
    let packaged = Path::new(PACKAGED);
    ensure!(
        has_device(packaged),
        "The domain's QEMU, {}, does not know the device {DEVICE}, and {PACKAGED} is not there. Install the package \
         vhost-cuda-qemu, or name a QEMU with our patches with --emulator",
        own.unwrap_or("libvirt's default")
    );
    Ok(Some(packaged.to_path_buf()))
}

/// Returns whether this QEMU knows the device.
fn has_device(emulator: &Path) -> bool {
    let output = Command::new(emulator).args(["-device", &format!("{DEVICE},help")]).output();
    // Its properties. Any program may succeed.
    output.is_ok_and(|output| output.status.success() && contains(&output.stdout, b"num-queues="))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
