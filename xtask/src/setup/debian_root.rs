// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Root folders of other releases, to build modules in with the compilers and headers of that release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::apt::Apt;
use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// Creates a root in `<folder>/root` with `packages` of `suites`, the first of which is the release.
pub fn make(apt: &Apt, folder: &Path, suites: &[&str], packages: &[String], step: &Step) -> Result<()> {
    let (root, unfinished) = (folder.join("root"), folder.join("unfinished"));
    if root.exists() {
        return Ok(());
    }
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    step.note(&format!("making a root of {}", suites[0]));
    let mut mmdebstrap = mmdebstrap();
    mmdebstrap.arg(format!("--include={}", packages.join(","))).arg(suites[0]).arg(&unfinished);
    step.run(mmdebstrap.args(apt.sources(suites)?))?;
    fs::rename(unfinished, root)?;
    Ok(())
}

/// `mmdebstrap` for a root without documentation, except manual pages: scripts of older packages move some.
pub(super) fn mmdebstrap() -> Command {
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--mode=root", "--aptopt=APT::Install-Recommends \"false\""]);
    for excluded in ["/usr/lib/llvm-*/lib/*.a", "/usr/share/doc/*", "/usr/share/locale/*"] {
        command.arg(format!("--dpkgopt=path-exclude={excluded}"));
    }
    command
}

/// Returns a command in a root, with a /proc that is unmounted with it.
pub fn command(root: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", r#"mount -t proc proc "$0/proc" && exec chroot "$0" "$@""#])
        .arg(root);
    command.args(["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]);
    command
}

/// Builds the module in a root that has the kernel's headers, from `core` if that is given.
pub fn build_module(paths: &Paths, root: &Path, release: &str, core: Option<&Path>) -> Result<PathBuf> {
    let driver = crate::build::driver_sources(paths, &root.join("module"), core)?;
    let headers = format!("/usr/src/linux-headers-{release}");
    let mut make = command(root);
    make.args(["make", "-s", "-C", &headers, "M=/module/guest-driver"]);
    if let Some(compiler) = compiler_of(&root.join(headers.trim_start_matches('/'))) {
        make.arg(format!("CC={compiler}"));
    }
    without_warnings(make.arg("modules"))?;
    let module = driver.join("virtio_cuda.ko");
    output_of(Command::new("strip").arg("--strip-debug").arg(&module))?;
    Ok(module)
}

/// Returns the compiler that built the kernel. The kernel's build system warns of others, also of another name of the
/// same.
fn compiler_of(headers: &Path) -> Option<String> {
    let configuration = fs::read_to_string(headers.join(".config")).ok()?;
    let text = configuration.lines().find_map(|line| line.strip_prefix("CONFIG_CC_VERSION_TEXT=\""))?;
    text.split_whitespace().next().map(str::to_owned)
}

/// Runs a build of a module. A warning is an error: objtool has one for each branch that a mitigation does not cover.
pub fn without_warnings(make: &mut Command) -> Result<()> {
    let output = make.output().context("Cannot start the build of the module")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let warns = errors.to_ascii_lowercase().contains("warning:");
    ensure!(output.status.success() && !warns, "The module does not build: {}", errors.trim());
    Ok(())
}
