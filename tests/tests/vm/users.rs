// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Several users of one guest, through the whole stack. `driver.rs` tests the driver's own part.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::vm::Vm;

use crate::SharedVm;

/// The folder of the host's files in the guest. A program that starts there, and not in a chroot to it, may create a
/// user namespace.
pub const HOST_ROOT: &str = "/root";
/// The path of the dynamic linker in every program.
const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";

pub fn collect(suite: &mut Suite, shared: &SharedVm) {
    let vm = shared.clone();
    suite.test("users::exports_are_for_one_user", move |kit| vm.with(|vm| exports_are_for_one_user(kit, vm)));
}

/// A user who is root in a namespace of its own gets nothing that root has exported.
fn exports_are_for_one_user(kit: &Kit, vm: &Vm) -> Result<()> {
    let linker = Path::new(LINKER).canonicalize()?;
    let system = linker.parent().context("the dynamic linker's folder")?;
    let program = kit.programs.get("users")?;
    let line = format!(
        "{HOST_ROOT}{} --library-path {HOST_ROOT}{}:{HOST_ROOT}{} {HOST_ROOT}{}",
        linker.display(),
        kit.stack.guest_libraries().display(),
        system.display(),
        program.display(),
    );
    let said = vm.shell(&line)?;
    let expected = "root: 4711\nuser 1000: refused\nuser 1000 as root of a namespace: refused\n";
    ensure!(said == expected, "{said}");
    Ok(())
}
