// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--check=vm`: a virtual machine of Debian 12 with the installed guest package runs a CUDA program. Then the package is
//! removed there.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::host::Host;
use super::subject::{PRINTED, SOCKET, Subject, install, steps, unit};
use crate::package::booted::SHARED;
use crate::package::root::Root;
use crate::package::tree::PROGRAM as MODE;
use crate::process::read_lossy;
use crate::progress::output_of;
use crate::setup::{self, RootKind};

/// The packages' QEMU.
pub const QEMU: &str = "/usr/lib/vhost-cuda/qemu/bin/qemu-system-x86_64";
/// The guest's script, its program, and the line of its success.
const SCRIPT: &str = "opt/check";
const INSIDE: &str = "opt/program";
pub const PASSED: &str = "check: passed";
/// Seconds for the guest. With TCG on an idle machine it takes one or two minutes.
pub const LIMIT: &str = "1800";
const DISK_SIZE: &str = "3G";
/// For a machine whose processors are busy: TCG then interrupts the guest late, which its kernel would take for broken hardware.
const LOADED: &str = "no_timer_check rcupdate.rcu_cpu_stall_suppress=1";
/// The file to which the guest's serial port writes, in the hosts' /srv.
pub const CONSOLE: &str = "console.log";
/// A user without a name.
const USER: &str = "64001";

/// Boots it.
pub fn run(subject: &Subject) -> Result<()> {
    steps(&[("vm-image", &|| image(subject)), ("vm", &|| boot(subject))])
}

/// The kernel's arguments for a guest that does `what` in the script.
pub fn kernel_arguments(what: &str) -> String {
    format!("root=/dev/vda rw console=ttyS0 panic=-1 {LOADED} quiet init=/{SCRIPT} -- {what}")
}

/// Makes `vmlinuz`, `initrd.img` and `disk.img` in the hosts' /srv. The package is installed in a root, in which DKMS builds the
/// module; the root becomes the disk.
pub fn image(subject: &Subject) -> Result<()> {
    if subject.has_image.get() {
        return Ok(());
    }
    let base = setup::package_root(subject.paths, RootKind::Guest)?;
    let root = Root::copy(&base, subject.folder.join("guest-root"))?;
    install(&root, &[subject.package("vhost-cuda-guest")?])?;
    let status = root.run(["dkms", "status"])?;
    ensure!(status.contains("installed"), "DKMS has built no module: {status}");
    fs::copy(&subject.program, root.path(INSIDE))?;
    fs::write(root.path(SCRIPT), include_str!("guest.sh"))?;
    root.run(["chmod", &format!("{MODE:o}"), &format!("/{SCRIPT}")])?;

    let shared = subject.folder.join(SHARED);
    fs::create_dir_all(&shared)?;
    for file in ["vmlinuz", "initrd.img"] {
        fs::copy(root.path(file), shared.join(file)).with_context(|| format!("The root has no {file}"))?;
    }
    let disk = shared.join("disk.img");
    if disk.exists() {
        fs::remove_file(&disk)?;
    }
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0", "-d"]);
    output_of(mke2fs.arg(root.path("")).arg(disk).arg(DISK_SIZE))?;
    subject.has_image.set(true);
    Ok(())
}

/// Boots the image with the packages' QEMU and daemon.
fn boot(subject: &Subject) -> Result<()> {
    let packages = ["vhost-user-cuda", "vhost-cuda-qemu"];
    let host = Host::start(subject, RootKind::Packages, &packages, |_| Ok(()))?;
    // The root has no udev, whose package creates the group.
    host.run(["groupadd", "--system", "kvm"])?;
    host.run(["systemctl", "start", &unit("socket")])?;
    let chardev = format!("socket,id=cuda0,path={SOCKET},reconnect-ms=500");
    let (arguments, console) = (kernel_arguments("purge"), format!("/srv/{CONSOLE}"));
    let serial = format!("file:{console}");
    host.run(["install", "-m", "666", "/dev/null", &console])?;
    let mut words =
        vec!["timeout", LIMIT, "setpriv", "--reuid", USER, "--regid", "kvm", "--clear-groups", QEMU];
    words.extend(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", &serial]);
    words.extend(["-machine", "q35,memory-backend=ram", "-m", "1G"]);
    words.extend(["-accel", "tcg", "-cpu", "max"]);
    words.extend(["-object", "memory-backend-memfd,id=ram,size=1G,share=on"]);
    words.extend(["-kernel", "/srv/vmlinuz", "-initrd", "/srv/initrd.img", "-append", &arguments]);
    words.extend(["-drive", "file=/srv/disk.img,format=raw,if=none,id=disk,snapshot=on"]);
    words.extend(["-device", "virtio-blk-pci,drive=disk"]);
    words.extend(["-chardev", &chardev, "-device", "vhost-user-cuda-pci,chardev=cuda0,num-queues=2"]);
    host.run(words).with_context(|| host.daemon_log())?;
    check_console(&read_lossy(&host.shared(CONSOLE))?).with_context(|| host.daemon_log())
}

/// Checks that the program has printed its result, and that all later steps have succeeded.
pub fn check_console(console: &str) -> Result<()> {
    ensure!(console.contains(PRINTED) && console.contains(PASSED), "The guest's console:\n{console}");
    Ok(())
}
