// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--check=packages`: installs the packages in a copy of a Debian 12 root, uses them and removes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::host::wait;
use super::subject::{CONFIGURATION, INSTANCE, LIMIT, PRINTED, SOCKET, Subject, install, steps, unit};
use crate::package::archive::VERSION;
use crate::package::booted::Booted;
use crate::package::kinds::{ALL, build};
use crate::package::root::{Root, differences};
use crate::process::{Process, wait_for_socket};
use crate::setup::{self, RootKind};

/// The packages.
const NAMES: [&str; 4] = ["vhost-cuda-plugin", "vhost-user-cuda", "vhost-cuda-guest", "vhost-cuda-qemu"];
const PLUGIN: &str = "vhost-cuda-plugin.service";
/// The path of the program in the root; systemd covers /tmp.
const INSIDE: &str = "/opt/program";
const SERVICE: &str = "usr/lib/systemd/system/vhost-user-cuda@.service";
const STATE: &str = "/var/lib/vhost-user-cuda/vm1";
const GUEST_LIBRARIES: &str = "/usr/lib/vhost-cuda-plugin/guest";
/// Settings of the plugin's unit: a GPU that nvidia-smi does not list.
const DROP_IN: &str = "/etc/systemd/system/vhost-cuda-plugin.service.d";
const NAMED_GPU: &str = "[Service]\nExecStart=\nExecStart=/usr/bin/vhost-cuda-plugin --gpu 0=4G --daemon-options \
                         /etc/vhost-cuda-plugin/daemon.toml";
/// A user like those that systemd makes for `DynamicUser=`, without a name.
const USER: &str = "64000";

/// Tries all packages.
pub fn run(subject: &Subject) -> Result<()> {
    let Subject { paths, packages, folder, program, .. } = subject;
    let base = setup::package_root(paths, RootKind::Packages)?;
    let root = Root::copy(&base, folder.join("root"))?;
    // Like a kernel's package. Otherwise the first module creates these lists.
    let release = kernel(&root)?;
    root.run(["depmod", &release])?;
    let before = root.files()?;
    steps(&[
        ("reproducible", &|| reproducible(subject)),
        ("install", &|| install(&root, packages)),
        ("files", &|| files(&root)),
        ("units", &|| units(&root)),
        ("daemon", &|| daemon(&root, program, folder)),
        ("systemd", &|| service(&root, program, folder)),
        ("qemu", &|| emulated_machine(&root)),
        ("module", &|| module(&root, &release)),
        ("purge", &|| purge(&root, &before)),
    ])
}

/// The release whose headers the root has.
fn kernel(root: &Root) -> Result<String> {
    let headers =
        fs::read_dir(root.path("lib/modules"))?.next().context("The root has no kernel headers")??;
    Ok(headers.file_name().to_string_lossy().into_owned())
}

/// Builds the packages again; the bytes must be the same.
fn reproducible(subject: &Subject) -> Result<()> {
    let folder = subject.folder.join("again");
    let again = build(subject.paths, &ALL, &folder)?;
    for (package, again) in subject.packages.iter().zip(&again) {
        ensure!(fs::read(package)? == fs::read(again)?, "{} differs when built again", package.display());
    }
    Ok(fs::remove_dir_all(folder)?)
}

/// Checks that each package's files exist, with the right digests, and include its licence.
fn files(root: &Root) -> Result<()> {
    for name in NAMES {
        let changed = root.run(["dpkg", "--verify", name])?;
        ensure!(changed.is_empty(), "Files of {name} are not as packed: {changed}");
        let copyright = root.path("usr/share/doc").join(name).join("copyright");
        ensure!(copyright.exists(), "{name} has no copyright file");
    }
    let version = root.run(["vhost-user-cuda", "--version"])?;
    ensure!(version.contains(VERSION), "The daemon's version is {version}");
    Ok(())
}

fn units(root: &Root) -> Result<()> {
    let (service, socket, arbiter) = (unit("service"), unit("socket"), "vhost-user-cuda-arbiter.service");
    let mut verify = root.command();
    let output = verify
        .args(["systemd-analyze", "verify", "--man=no", &service, &socket, arbiter, PLUGIN])
        .output()?;
    // It leaves its own state there, which is not the packages'.
    fs::remove_dir_all(root.path("run/systemd")).context("systemd-analyze has left no state")?;
    let text = String::from_utf8_lossy(&output.stderr);
    // It has a word on units of others, too.
    let ours: Vec<&str> = text.lines().filter(|line| NAMES.iter().any(|name| line.contains(name))).collect();
    ensure!(output.status.success() && ours.is_empty(), "systemd-analyze: {}", text.trim());
    Ok(())
}

/// Runs an unmodified CUDA program over the socket of a daemon that is started according to its unit: by the first
/// connection, as an unprivileged user who can write only the state folder.
fn daemon(root: &Root, program: &Path, folder: &Path) -> Result<()> {
    configure(root)?;
    root.run(["install", "-d", "-o", USER, "-g", USER, "-m", "700", STATE])?;
    let unit = fs::read_to_string(root.path(SERVICE))?;
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).context("No ExecStart")?;
    let start = start.replace("%i", INSTANCE).replace("${STATE_DIRECTORY}", STATE);
    fs::create_dir_all(root.path("run/vhost-user-cuda"))?;
    fs::copy(program, root.path(&INSIDE[1..]))?;

    let mut command = root.command();
    command.args(["systemd-socket-activate", "-l", SOCKET, "setpriv", "--reuid", USER, "--regid", USER]);
    command.args(["--clear-groups", "--no-new-privs", "--bounding-set=-all"]).args(start.split(' '));
    let log = folder.join("daemon.log");
    let _ = fs::remove_file(&log);
    let mut daemon = Process::start("vhost-user-cuda", command, &log)?;
    wait_for_socket(&mut daemon, &root.path(&SOCKET[1..]), LIMIT)?;
    let result = programs(|words| root.run(words.iter().copied()))
        .with_context(|| format!("The daemon's log: {}", daemon.log()));
    daemon.terminate(LIMIT)?;
    let status = daemon.status()?.context("The daemon does not end")?;
    result?;
    ensure!(status.success(), "{}", daemon.obituary(status));
    ensure!(root.path(&STATE[1..]).join("workers").exists(), "The daemon has not used --workers-lock");
    // systemd creates the folder itself, and cannot move one of the root in a layer over it.
    fs::remove_dir_all(root.path(&STATE[1..]).parent().context("The state folder has no parent")?)?;
    fs::remove_file(root.path(&INSIDE[1..]))?;
    Ok(())
}

/// Runs the program with `run`.
fn programs(run: impl Fn(&[&str]) -> Result<String>) -> Result<()> {
    let socket = format!("VIRTIO_CUDA_SOCKET={SOCKET}");
    // The first by the dynamic linker's cache alone.
    for launcher in [&[][..], &["vhost-cuda-run"]] {
        let printed = run(&[&["env", &socket], launcher, &[INSIDE]].concat())?;
        ensure!(printed.contains(PRINTED), "The program has printed: {printed}");
    }
    Ok(())
}

/// The same with systemd, so that all settings of the units are in effect. The package is removed while they run.
fn service(root: &Root, program: &Path, folder: &Path) -> Result<()> {
    let (service, socket) = (unit("service"), unit("socket"));
    configure(root)?;
    fs::copy(program, root.path(&INSIDE[1..]))?;
    let booted = Booted::start(root, folder)?;
    // The root has no udev, whose package creates the group.
    booted.run(["groupadd", "--system", "kvm"])?;
    booted.run(["systemctl", "start", &socket])?;
    let log = || booted.run(["journalctl", "--no-pager", "-u", &service]).unwrap_or_default();
    programs(|words| booted.run(words.iter().copied())).with_context(log)?;
    let mode = booted.run(["stat", "-c", "%a %G", SOCKET])?;
    ensure!(mode == "660 kvm", "The socket has mode and group {mode}");
    let user = booted.run(["systemctl", "show", "-P", "UID", &service])?;
    ensure!(user.parse::<u32>().is_ok_and(|user| user >= 61184), "The daemon runs as user {user}");
    plugin(&booted)?;
    booted.run(["dpkg", "--purge", NAMES[0], NAMES[1]])?;
    for unit in [&service, &socket, PLUGIN] {
        let state = booted.run(["systemctl", "show", "-P", "ActiveState", unit])?;
        ensure!(state == "inactive", "{unit} is {state} after the package was removed");
    }
    let left = booted.run([
        "find",
        "/etc",
        "/run",
        "/usr",
        "/var/lib",
        "-regex",
        ".*/vhost-\\(user-cuda\\|cuda-plugin\\).*",
    ])?;
    ensure!(left.is_empty(), "The package has left: {left}");
    drop(booted);
    Ok(fs::remove_file(root.path(&INSIDE[1..]))?)
}

/// Starts the plugin without a kubelet: its unit lets it find GPUs, make its folder, and wait. It makes a device of the daemon.
fn plugin(booted: &Booted) -> Result<()> {
    let device = booted.run(["vhost-cuda-plugin", "cdi", INSTANCE, "--guest-libraries", GUEST_LIBRARIES])?;
    ensure!(device == format!("vhost-cuda.io/share={INSTANCE}"), "`cdi` has printed {device}");
    booted.run(["vhost-cuda-plugin", "cdi", INSTANCE, "--remove"])?;
    booted.run(["mkdir", "-p", DROP_IN])?;
    booted.run([
        "sh",
        "-c",
        &format!("echo '{NAMED_GPU}' > {DROP_IN}/gpu.conf && systemctl daemon-reload"),
    ])?;
    booted.run(["systemctl", "start", PLUGIN])?;
    let log = || booted.run(["journalctl", "--no-pager", "-u", PLUGIN]);
    wait("The plugin does not wait for the kubelet", LIMIT, || {
        Ok(log()?.contains("not registered, trying again").then_some(()))
    })
    .with_context(|| log().unwrap_or_default())?;
    booted.run(["test", "-e", "/run/vhost-cuda-plugin/lock"]).map(drop)
}

/// Writes the instance's configuration. Namespaces are required, so that the daemon does not start where the unit forbids them.
fn configure(root: &Root) -> Result<()> {
    Ok(fs::write(root.path(&format!("etc/vhost-user-cuda/{INSTANCE}.toml")), CONFIGURATION)?)
}

/// QEMU finds its firmware and has the device.
fn emulated_machine(root: &Root) -> Result<()> {
    let qemu = "/usr/lib/vhost-cuda/qemu/bin/qemu-system-x86_64";
    let help = root.run([qemu, "-device", "vhost-user-cuda-pci,help"])?;
    ensure!(help.contains("num-queues"), "QEMU lists no properties of the device: {help}");
    let script = format!("echo quit | {qemu} -M q35,accel=tcg -nodefaults -display none -S -monitor stdio");
    root.run(["sh", "-c", &script]).map(drop)
}

/// Checks that the package has built the module, with the files that the kernel needs to load it automatically.
fn module(root: &Root, release: &str) -> Result<()> {
    let status = root.run(["dkms", "status"])?;
    ensure!(status.contains(release) && status.contains("installed"), "DKMS has no module: {status}");
    let aliases = root.run(["modinfo", "-k", release, "-F", "alias", "virtio_cuda"])?;
    ensure!(aliases.contains("virtio:"), "The module has no alias of a virtio device: {aliases}");
    Ok(())
}

fn purge(root: &Root, before: &BTreeMap<String, String>) -> Result<()> {
    root.run(["dpkg", "--purge"].into_iter().chain(NAMES))?;
    let left = differences(before, &root.files()?);
    ensure!(left.is_empty(), "The packages have left a trace:\n{}", left.join("\n"));
    Ok(())
}
