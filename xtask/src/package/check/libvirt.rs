// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--check=libvirt`: `vhost-cuda-libvirt` with Debian's libvirtd, and with a domain of the trial `vm`.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::host::{Host, wait};
use super::machine::{self, CONSOLE, LIMIT, PASSED, QEMU};
use super::subject::{INSTANCE, SOCKET, Subject, steps, unit};
use crate::package::root::Root;
use crate::process::read_lossy;
use crate::progress::output_of;
use crate::setup::RootKind;

const TOOL: &str = "vhost-cuda-libvirt";
const DEFINITION: &str = "vm1.xml";
/// Debian's QEMU, which does not know the device.
const DEBIANS_QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// The examples for AppArmor, and the file that each is for.
const RULES: &str = "/usr/share/doc/vhost-user-cuda/examples/apparmor";
const LOCAL: [(&str, &str); 2] =
    [("libvirt-qemu", "abstractions/libvirt-qemu"), ("usr.sbin.libvirtd", "usr.sbin.libvirtd")];

/// Attaches, boots, detaches.
pub fn run(subject: &Subject) -> Result<()> {
    steps(&[("libvirt-image", &|| machine::image(subject))])?;
    let packages = ["vhost-user-cuda", "vhost-cuda-qemu"];
    let host = Host::start(subject, RootKind::Libvirt, &packages, apparmor)?;
    let domain = include_str!("domain.xml").replace("@ARGUMENTS@", &machine::kernel_arguments("stay"));
    fs::write(host.shared(DEFINITION), domain)?;
    // The guest writes to its disk.
    let (image, disk) = (host.shared("disk.img"), host.shared("domain.img"));
    output_of(Command::new("cp").arg("--sparse=always").arg(image).arg(disk))?;
    // The log of an earlier machine.
    let _ = fs::remove_file(host.shared(CONSOLE));
    host.run(["virsh", "define", &format!("/srv/{DEFINITION}")])?;
    let before = definition(&host)?;
    steps(&[
        ("libvirt-refusals", &|| refusals(&host, &before)),
        ("libvirt-attach", &|| attach(&host)),
        ("libvirt-start", &|| start(&host)),
        ("libvirt-detach", &|| detach(&host, &before)),
    ])
}

/// Adds the examples for AppArmor, and parses the profiles that include them. Whether the kernel here has AppArmor is no matter.
fn apparmor(root: &Root) -> Result<()> {
    for (example, file) in LOCAL {
        root.run(["cp", &format!("{RULES}/{example}"), &format!("/etc/apparmor.d/local/{file}")])?;
    }
    for profile in ["usr.sbin.libvirtd", "libvirt/TEMPLATE.qemu"] {
        let profile = format!("/etc/apparmor.d/{profile}");
        root.run(["apparmor_parser", "--skip-kernel-load", "--skip-cache", &profile])
            .with_context(|| format!("AppArmor's {profile} with our lines"))?;
    }
    Ok(())
}

fn definition(host: &Host) -> Result<String> {
    host.run(["virsh", "dumpxml", "--inactive", "--security-info", INSTANCE])
}

fn refusals(host: &Host, before: &str) -> Result<()> {
    let cases = [
        (vec!["attach", INSTANCE], "systemctl enable --now vhost-user-cuda@vm1.socket"),
        (vec!["attach", "nobody"], "virsh list --all"),
        (vec!["attach", INSTANCE, "--socket", "/etc/passwd"], "is not a socket"),
    ];
    for (words, message) in cases {
        let error = host.refused(&[&[TOOL], &words[..]].concat())?;
        ensure!(error.contains(message), "`{}` says: {error}", words.join(" "));
    }
    host.run(["systemctl", "start", &unit("socket")])?;
    let error = host.refused(&[TOOL, "attach", INSTANCE, "--emulator", DEBIANS_QEMU])?;
    ensure!(error.contains("does not know the device"), "With Debian's QEMU: {error}");
    let printed = host.run([TOOL, "attach", INSTANCE, "--print"])?;
    ensure!(printed.contains(SOCKET), "--print has printed: {printed}");
    ensure!(definition(host)? == before, "A refusal or --print has changed the domain");
    Ok(())
}

fn attach(host: &Host) -> Result<()> {
    host.run([TOOL, "attach", INSTANCE])?;
    let attached = definition(host)?;
    for part in [QEMU, SOCKET, "<source type='memfd'/>", "<access mode='shared'/>"] {
        ensure!(attached.contains(part), "The domain has no {part}:\n{attached}");
    }
    let again = host.run([TOOL, "attach", INSTANCE])?;
    ensure!(again.contains("already"), "The second time it says: {again}");
    ensure!(definition(host)? == attached, "Attaching again has changed the domain");
    Ok(())
}

/// Boots the domain, whose guest runs the program.
fn start(host: &Host) -> Result<()> {
    host.run(["virsh", "start", INSTANCE])?;
    for action in ["attach", "detach"] {
        let error = host.refused(&[TOOL, action, INSTANCE])?;
        ensure!(error.contains("is running"), "{action} with a running domain says: {error}");
    }
    let console = host.shared(CONSOLE);
    let limit = Duration::from_secs(LIMIT.parse()?);
    let done = || {
        let text = if console.exists() { read_lossy(&console)? } else { String::new() };
        let ended = text.contains(PASSED) || text.contains("check: failed");
        Ok(ended.then_some(text))
    };
    let text = wait("The guest has not ended its check", limit, done)
        .with_context(|| read_lossy(&console).unwrap_or_default())
        .with_context(|| host.daemon_log())?;
    machine::check_console(&text).with_context(|| host.daemon_log())?;
    host.run(["virsh", "destroy", INSTANCE]).map(drop)
}

fn detach(host: &Host, before: &str) -> Result<()> {
    host.run([TOOL, "detach", INSTANCE])?;
    let after = definition(host)?;
    ensure!(after == before, "The domain is not as before:\n{after}\nbefore:\n{before}");
    let again = host.run([TOOL, "detach", INSTANCE])?;
    ensure!(again.contains("already"), "The second time it says: {again}");
    Ok(())
}
