// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The guest's libraries and launcher beside an old C library, as containers have it.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::stack::SOCKET_VARIABLE;
use vhost_cuda_tests::suite::{Kit, Suite};

use super::LIMIT;

/// The folder of a root with Python: `cargo xtask setup --only old-root`.
const ROOT: &str = "VHOST_CUDA_OLD_ROOT";
/// The program that runs there.
const PROGRAM: &str = include_str!("../../containers/launch.py");
/// Mounts the guest's files ($1) and the daemon's folder ($2) in the root ($0), and starts the program.
const SCRIPT: &str = r#"
set -e
mkdir -p "$0/opt/vhost-cuda" "$0/run/vhost-cuda"
mount -t proc proc "$0/proc"
mount --bind "$1" "$0/opt/vhost-cuda"
mount --bind "$2" "$0/run/vhost-cuda"
exec chroot "$0" /opt/vhost-cuda/bin/vhost-cuda-run python3 -c "$3"
"#;

pub fn collect(suite: &mut Suite) {
    // SAFETY: no argument, no effect.
    let is_root = unsafe { libc::geteuid() } == 0;
    match env::var_os(ROOT) {
        None => suite.skip("old_c_library", "there is no such root: cargo xtask setup --only old-root"),
        Some(_) if !is_root => suite.skip("old_c_library", "only root can enter another root"),
        Some(root) => suite.test("old_c_library", move |kit| old_c_library(kit, Path::new(&root))),
    }
}

fn old_c_library(kit: &Kit, root: &Path) -> Result<()> {
    let daemon = Daemon::start(&kit.stack, &DaemonOptions::default())?;
    let socket = daemon.socket();
    let (folder, name) = (socket.parent().context("no folder")?, socket.file_name().context("no name")?);
    let mut command = Command::new("unshare");
    let launcher = kit.stack.launcher();
    let guest = launcher.ancestors().nth(2).context("the launcher is in no folder")?;
    command.args(["--mount", "sh", "-c", SCRIPT]).arg(root).arg(guest).arg(folder);
    command.arg(PROGRAM).env(SOCKET_VARIABLE, Path::new("/run/vhost-cuda").join(name));
    let outcome = run(&mut command, "", LIMIT)?;
    outcome.expect_exit(0)?;
    let printed = &outcome.stdout;
    let version = fs::read_dir(root.join("lib/x86_64-linux-gnu"))?
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .find_map(|name| Some(name.strip_prefix("libc-")?.strip_suffix(".so")?.to_owned()));
    let version = version.context("the root has no libc-VERSION.so, as glibc before 2.34 has")?;
    ensure!(
        String::from_utf8_lossy(printed.as_ref()).starts_with(&format!("glibc {version}: ")),
        "{outcome}"
    );
    Ok(())
}
