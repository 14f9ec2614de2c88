// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bundle`: one archive that does `demo`, `test`, `bench` and `run` on an x86-64 machine with
//! neither compilers nor network. Every path in it is found through `VHOST_CUDA_BUNDLE` (see [`Paths`]).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::bench::{PROFILE_PROGRAM, REPLACE_PROGRAM, SHARES_PROGRAM, SUSPEND_PROGRAM};
use crate::paths::Paths;
use crate::progress::output_of;
use crate::setup::kernel::{Flavour, Kernel};
use crate::setup::nvcc::Nvcc;
use crate::setup::nvcc_older;
use crate::setup::qemu::Qemu;
use crate::vm::busybox;
use crate::{build, conformance, program, setup};

/// Size that the archive must not pass: it has to be easy to carry.
const LIMIT: u64 = 60 << 20;
/// The levels that are single programs.
const LEVELS: [&str; 4] = ["integration", "conformance", "hostile", "vm"];
/// Files and folders of the stack.
const PARTS: [&str; 7] = [
    "bin/vhost-user-cuda",
    "guest/init",
    "guest/lib",
    "guest/bin",
    "emulator",
    "nvrtc",
    "module/virtio_cuda.ko",
];
/// A program that moves others, and one that the levels expect beside themselves.
const HELPERS: [&str; 2] = ["move-program", "other-version-daemon"];
const RUN: &str = "#!/bin/sh
# demo, test, bench or run, with everything from this folder
VHOST_CUDA_BUNDLE=$(cd \"$(dirname \"$0\")\" && pwd) || exit
export VHOST_CUDA_BUNDLE
exec \"$VHOST_CUDA_BUNDLE/xtask\" \"$@\"
";

/// The path of the bundle.
#[derive(Debug, Args)]
pub struct BundleArguments {
    /// The archive
    #[arg(long, value_name = "FILE", default_value = "target/vhost-cuda-bundle.tar.xz")]
    output: PathBuf,
    /// Also pack the programs that `conformance --build-only` left in this folder, into an archive of their own
    #[arg(long, value_name = "FOLDER")]
    conformance: Option<PathBuf>,
    /// Also pack these stock kernels, with a comma between them: debian12, debian13
    #[arg(long, value_enum, value_delimiter = ',')]
    kernel: Vec<Flavour>,
}

/// Builds everything and packs it.
pub fn run(paths: &Paths, arguments: &BundleArguments) -> Result<()> {
    if let Some(programs) = &arguments.conformance {
        let folder = paths.target.join("bundle/conformance");
        conformance::archive::collect(programs, &folder)?;
        pack(&folder, &paths.root.join(&arguments.output).with_file_name("vhost-cuda-conformance.tar.xz"))?;
    }
    setup::run(paths, &[])?;
    let stack = build::run(paths, &[], Flavour::Small)?;
    let folder = paths.target.join("bundle/vhost-cuda");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let put = |from: &Path, to: &str| put(from, &folder.join(to));

    let qemu = Qemu::find(paths)?;
    put(&qemu.binary, "qemu/qemu-system-x86_64")?;
    for firmware in fs::read_dir(&qemu.data)? {
        let firmware = firmware?;
        put(&firmware.path(), &format!("qemu/share/{}", firmware.file_name().to_string_lossy()))?;
    }
    put(&Kernel::find(paths, Flavour::Small)?.image, "kernel/bzImage")?;
    put(&busybox(paths), "kernel/busybox")?;
    for flavour in &arguments.kernel {
        put_kernel(paths, *flavour, &folder)?;
    }
    // With the links between libraries: programs ask for these names, too, and must not find NVIDIA's.
    for part in PARTS {
        let to = folder.join("stack").join(part);
        fs::create_dir_all(to.parent().context("A part has no folder")?)?;
        output_of(Command::new("cp").arg("-a").arg(stack.folder.join(part)).arg(to))?;
    }
    // An emulator from the cache has none.
    let maps = folder.join("stack/emulator/maps");
    if maps.exists() {
        fs::remove_dir_all(maps)?;
    }
    // For the comparison with NVIDIA's own runtime.
    put(&Nvcc::find(paths)?.libraries().join("libcudart.so.13"), "nvidia/libcudart.so.13")?;
    for release in nvcc_older::ALL {
        if let Some(library) = release.library(paths) {
            put(&library, &format!("nvidia/{}", release.runtime))?;
        }
    }

    for (name, executable) in test_programs(paths)? {
        put(&executable, &name)?;
    }
    put(&build::program(paths, "xtask")?, "xtask")?;
    compile_programs(paths, &folder.join("programs"))?;
    compile_takeover(paths, &folder.join("tests/takeover.so"))?;
    strip(&folder)?;
    fs::write(folder.join("run.sh"), RUN)?;
    fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755))?;
    pack(&folder, &paths.root.join(&arguments.output))
}

/// A stock kernel, its modules, and our module for it.
fn put_kernel(paths: &Paths, flavour: Flavour, folder: &Path) -> Result<()> {
    setup::run(paths, setup::kernel_part(flavour).as_slice())?;
    let stack = build::run(paths, &[build::Part::Module], flavour)?;
    let kernel = Kernel::find(paths, flavour)?;
    if flavour.release().is_none() {
        bail!("{} is no stock kernel", flavour.name());
    }
    let name = flavour.name();
    put(&kernel.image, &folder.join("kernel").join(name).join("vmlinuz"))?;
    for module in &kernel.guest_modules {
        let file = module.file_name().context("A module has no name")?;
        put(module, &folder.join("kernel").join(name).join("modules").join(file))?;
    }
    let module = stack.module(flavour);
    put(&module, &folder.join("stack").join(module.strip_prefix(&stack.folder)?))
}

fn put(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("The bundle has no folder")?)?;
    fs::copy(from, to).with_context(|| format!("Cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Builds the test levels. Returns the destination of each and cargo's path.
fn test_programs(paths: &Paths) -> Result<BTreeMap<String, PathBuf>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--release", "--no-run", "--message-format=json-render-diagnostics"]);
    cargo.args(build::Selection::Workspace.arguments());
    for level in LEVELS {
        cargo.args(["--test", level]);
    }
    // The programs of their package are compiled with them.
    let output = output_of(cargo.current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target))?;
    let artifacts = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // Cargo builds a program and its unit tests under one name. Of the helpers we need the former.
    let programs: BTreeMap<_, _> = artifacts
        .filter_map(|artifact| {
            let executable = artifact["executable"].as_str()?;
            let name = artifact["target"]["name"].as_str()?;
            let is_test = artifact["profile"]["test"].as_bool()?;
            let wanted = LEVELS.contains(&name) || (HELPERS.contains(&name) && !is_test);
            wanted.then(|| (format!("tests/{name}"), PathBuf::from(executable)))
        })
        .collect();
    let wanted = LEVELS.len() + HELPERS.len();
    if programs.len() != wanted {
        bail!("Cargo built {} of the {wanted} test programs", programs.len());
    }
    Ok(programs)
}

/// All CUDA programs of the tests, and the benchmark.
fn compile_programs(paths: &Paths, to: &Path) -> Result<()> {
    let nvcc = Nvcc::find(paths)?;
    let mut cargo = Command::new("cargo");
    cargo.args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "vhost-cuda-tests",
        "--bin",
        "compile-programs",
        "--",
    ]);
    cargo.arg(to).current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    output_of(cargo.env("NVCC", nvcc.program()))?;
    put(&program::compile(paths, &paths.root.join(SHARES_PROGRAM))?, &to.join("shares"))?;
    put(&program::compile(paths, &paths.root.join(REPLACE_PROGRAM))?, &to.join("replace"))?;
    put(&program::compile(paths, &paths.root.join(SUSPEND_PROGRAM))?, &to.join("suspend"))?;
    put(&program::compile(paths, &paths.root.join(PROFILE_PROGRAM))?, &to.join("profile"))?;
    put(&program::compile(paths, &paths.root.join("tests/bench/calls.cu"))?, &to.join("calls"))
}

/// The library that plays a worker which was taken over, for machines without a C compiler.
fn compile_takeover(paths: &Paths, to: &Path) -> Result<()> {
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(to);
    output_of(cc.arg(paths.root.join("tests/tests/hostile/programs/takeover.c"))).map(drop)
}

/// Debug information would be the largest part of the archive.
fn strip(folder: &Path) -> Result<()> {
    let find = [
        "-type",
        "f",
        "-perm",
        "-u+x",
        "-not",
        "-name",
        "*.ko",
        // Tests check their symbols.
        "-not",
        "-name",
        "*@static*",
        "-exec",
        "strip",
        "--strip-debug",
        "{}",
        ";",
    ];
    output_of(Command::new("find").arg(folder).args(find)).map(drop)
}

fn pack(folder: &Path, archive: &Path) -> Result<()> {
    let (parent, name) = (folder.parent(), folder.file_name());
    let (Some(parent), Some(name)) = (parent, name) else { bail!("The bundle has no folder") };
    fs::create_dir_all(archive.parent().context("The archive has no folder")?)?;
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C"]).arg(parent);
    output_of(tar.arg("-cJf").arg(archive).arg(name).env("XZ_OPT", "-T0 -3"))?;
    let bytes = fs::metadata(archive)?.len();
    if bytes > LIMIT {
        bail!("{} has {bytes} bytes, more than the {LIMIT} that it may have", archive.display());
    }
    println!("{}  {:.1} MiB", archive.display(), bytes as f64 / f64::from(1 << 20));
    Ok(())
}
