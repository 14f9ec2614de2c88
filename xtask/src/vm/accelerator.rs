// SPDX-License-Identifier: Apache-2.0 OR MIT
//! KVM where it works, TCG elsewhere.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::paths::Paths;
use crate::setup::kernel::Kernel;
use crate::setup::qemu::Qemu;

/// Time limit for the probe's guest to print something.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// The accelerator that executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accelerator {
    /// Returns KVM if a guest boots with it. The result is cached until the machine boots again.
    pub fn choose(paths: &Paths, qemu: &Qemu, kernel: &Kernel) -> Result<Self> {
        if !may_work() {
            return Ok(Self::Tcg);
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let note = paths.cache.join("kvm-probe");
        let answer = |works: bool| format!("{} {works}", boot.trim());
        let known = fs::read_to_string(&note).unwrap_or_default();
        let works = if known == answer(true) || known == answer(false) {
            known == answer(true)
        } else {
            let works = kernel_prints(qemu, kernel)?;
            fs::write(&note, answer(works))?;
            works
        };
        Ok(if works { Self::Kvm } else { Self::Tcg })
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
        }
    }

    /// For QEMU's command line; [`super::VmConfig::plugs`] says for which machines TCG has one thread only.
    pub fn arguments(self, plugs: bool) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg if plugs => ["-accel", "tcg,thread=single", "-cpu", "max"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// For the guest kernel's command line.
    ///
    /// With TCG all processors read one TSC, which the kernel need not check against the HPET. On a busy host that check
    /// can end a boot: Linux 7.2 waits in `watchdog_check_skew` for a time that only its own interrupts advance, and QEMU
    /// aborts in `iotlb_to_section` if the HPET is read while another processor moves a PCI device's memory.
    pub fn kernel_arguments(self) -> &'static str {
        match self {
            Self::Kvm => "",
            Self::Tcg => "tsc=reliable",
        }
    }
}

/// A virtual machine can have /dev/kvm that cannot run such guests: the flag shows that.
fn may_work() -> bool {
    let usable = fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has_flag =
        |line: &str| line.starts_with("flags") && line.split_whitespace().any(|f| f == "vmx" || f == "svm");
    usable && flags.lines().any(has_flag)
}

/// Returns whether the kernel prints its first lines in time; some machines just hang.
fn kernel_prints(qemu: &Qemu, kernel: &Kernel) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let console = folder.path().join("console");
    let mut command = Command::new(&qemu.binary);
    command.arg("-L").arg(&qemu.data).args(Accelerator::Kvm.arguments(false));
    command.args([
        "-machine",
        "q35",
        "-m",
        "256M",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.arg("-kernel").arg(&kernel.image).args(["-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let end = Instant::now() + PROBE_LIMIT;
    let booted = loop {
        if has_booted(&console) {
            break true;
        }
        if Instant::now() > end {
            break false;
        }
        thread::sleep(Duration::from_millis(20));
    };
    // It has ended by itself if the kernel found no root file system, as expected.
    let _ = child.kill();
    child.wait()?;
    Ok(booted)
}

/// The kernel looks for an init only when interrupts, timers and memory work.
fn has_booted(console: &Path) -> bool {
    let text = fs::read(console).unwrap_or_default();
    String::from_utf8_lossy(&text).contains("Kernel panic - not syncing: VFS")
}
