// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The guest's libraries and launcher beside an old C library, as containers have it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::program::NVCC_VARIABLE;
use vhost_cuda_tests::running::{Outcome, run};
use vhost_cuda_tests::stack::SOCKET_VARIABLE;
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::paths::Paths;
use xtask::setup::old_root;

use super::LIMIT;

/// Runs a kernel through libcuda.
const KERNEL: &str = include_str!("../../containers/launch.py");
/// Loads each library of the guest, and calls some.
const LIBRARIES: &str = include_str!("../../containers/libraries.py");
/// Runs the `main` of a library with a static runtime.
const PLUGIN: &str = "import ctypes; assert ctypes.CDLL('/mnt/plugin.so').main() == 0";
/// Mounts the guest's files ($1), the daemon's folder ($2) and a test's own ($3) in the root ($0), and runs Python.
const SCRIPT: &str = r#"
set -e
mkdir -p "$0/opt/vhost-cuda" "$0/run/vhost-cuda"
mount -t proc proc "$0/proc"
mount --bind "$1" "$0/opt/vhost-cuda"
mount --bind "$2" "$0/run/vhost-cuda"
mount --bind "$3" "$0/mnt"
exec chroot "$0" /opt/vhost-cuda/bin/vhost-cuda-run python3 -c "$4"
"#;
/// The root's C library, in whose place the compiler would take the host's.
const C_LIBRARY: [&str; 5] =
    ["libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"];

/// A test in the root.
type Body = fn(&Kit, &Path) -> Result<()>;

pub fn collect(suite: &mut Suite) {
    // SAFETY: no argument, no effect.
    let is_root = unsafe { libc::geteuid() } == 0;
    // A root with Python: `cargo xtask setup --only old-root`.
    let root = Paths::discover().ok().and_then(|paths| old_root(&paths));
    let has_compiler = env::var_os(NVCC_VARIABLE).is_some();
    let tests: [(&str, Body, bool); 3] = [
        ("old_c_library", kernel, true),
        ("old_c_library_each_library", each_library, true),
        ("old_c_library_static_runtime", static_runtime, has_compiler),
    ];
    for (name, body, can_be_built) in tests {
        match root.clone() {
            _ if !can_be_built => suite.skip(name, "there is no compiler here"),
            None => suite.skip(name, "there is no such root: cargo xtask setup --only old-root"),
            Some(_) if !is_root => suite.skip(name, "only root can enter another root"),
            Some(root) => suite.test(name, move |kit| body(kit, &root)),
        }
    }
}

fn kernel(kit: &Kit, root: &Path) -> Result<()> {
    let outcome = python(kit, root, KERNEL, tempfile::tempdir()?.path())?;
    let version = fs::read_dir(root.join("lib/x86_64-linux-gnu"))?
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .find_map(|name| Some(name.strip_prefix("libc-")?.strip_suffix(".so")?.to_owned()));
    let version = version.context("the root has no libc-VERSION.so, as glibc before 2.34 has")?;
    ensure!(outcome.stdout.starts_with(&format!("glibc {version}: ")), "{outcome}");
    Ok(())
}

fn each_library(kit: &Kit, root: &Path) -> Result<()> {
    let outcome = python(kit, root, LIBRARIES, tempfile::tempdir()?.path())?;
    for library in ["libcuda.so.1", "libcudart.so.12", "libcublas.so.13", "libvhost-cuda-audit.so"] {
        ensure!(outcome.stdout.lines().any(|line| line == library), "{library}: {outcome}");
    }
    Ok(())
}

/// glibc before 2.34 keeps libdl and libpthread apart from libc, with consequences for an auditor. Python keeps its own state
/// of threads where an auditor could do damage.
fn static_runtime(kit: &Kit, root: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let nvcc = PathBuf::from(env::var_os(NVCC_VARIABLE).context("there is a compiler")?);
    let runtime =
        nvcc.canonicalize()?.parent().and_then(Path::parent).context("nvcc is in a toolkit")?.join("lib");
    let mut command = Command::new(&nvcc);
    // Without the parts that need a newer libstdc++.
    command.args(["-shared", "-gencode", "arch=compute_90,code=[sm_90,compute_90]", "-Xcompiler"]);
    command.arg("-fPIC,-nodefaultlibs,-fno-threadsafe-statics,-fno-exceptions").arg("-L").arg(runtime);
    command.arg("-o").arg(folder.path().join("plugin.so"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda/sum.cu"));
    for library in C_LIBRARY {
        command.arg("-Xlinker").arg(root.join("lib/x86_64-linux-gnu").join(library));
    }
    run(command.args(["-Xlinker", "-l:libc_nonshared.a"]), "", LIMIT)?.expect_exit(0)?;
    let outcome = python(kit, root, PLUGIN, folder.path())?;
    ensure!(outcome.stdout == "device: 500500\nhost: 500500\n", "{outcome}");
    Ok(())
}

/// Runs a program of Python in the root through the launcher, with `folder` as its /mnt.
fn python(kit: &Kit, root: &Path, program: &str, folder: &Path) -> Result<Outcome> {
    let daemon = Daemon::start(&kit.stack, &DaemonOptions::default())?;
    let socket = daemon.socket();
    let (sockets, name) = (socket.parent().context("no folder")?, socket.file_name().context("no name")?);
    let launcher = kit.stack.launcher();
    let guest = launcher.ancestors().nth(2).context("the launcher is in no folder")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT]).arg(root).arg(guest).arg(sockets).arg(folder).arg(program);
    command.env(SOCKET_VARIABLE, Path::new("/run/vhost-cuda").join(name));
    let outcome = run(&mut command, "", LIMIT)?;
    outcome.expect_exit(0)?;
    Ok(outcome)
}
