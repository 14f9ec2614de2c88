// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon, its workers, the emulator and the CPU's versions of NVIDIA's libraries with AddressSanitizer. All else is
//! the usual stack: programs, and the guest's libraries in them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cargo::{self, EMULATOR, Linkage, Selection};
use super::library::{self, Place};
use super::parts::DAEMON;
use super::stack::{Stack, install};
use crate::daemon::ARGUMENTS_VARIABLE;
use crate::paths::Paths;

/// The sanitizer's options. Leaks are not detected, because workers are killed when their sessions end. The daemon's
/// workers have no standard error of their own, so reports go to files.
const OPTIONS: &str = "detect_leaks=0:detect_stack_use_after_return=1:strict_string_checks=1";

/// A built stack, and the folder of the reports of its processes.
pub struct Sanitized {
    /// The stack.
    pub stack: Stack,
    reports: PathBuf,
}

impl Sanitized {
    /// Builds it beside the usual stack.
    pub fn build(paths: &Paths, usual: &Stack) -> Result<Self> {
        let target = paths.target.join("address");
        let paths = Paths { stack: target.join("stack"), target, ..paths.clone() };
        let stack = Stack::new(&paths);
        let packages = [&[DAEMON], &EMULATOR[..]].concat();
        let artifacts = cargo::compile(&paths, Selection::Packages(&packages), Linkage::Sanitized)?;
        install(&artifacts.executable(DAEMON)?, &stack.daemon())?;
        let emulator = stack.emulator();
        let folder = emulator.parent().context("The emulator has no folder")?;
        library::link(&paths, folder, &library::EMULATOR.sanitized(), &artifacts)?;
        let (libraries, maps) = (folder.join("libraries"), folder.join("maps"));
        library::link_vendor(&paths, Place::Sanitized, &libraries, &maps, &artifacts)?;
        for shared in ["guest", "nvrtc"] {
            let link = stack.folder.join(shared);
            if fs::read_link(&link).is_err() {
                symlink(usual.folder.join(shared), &link)
                    .with_context(|| format!("Cannot create {}", link.display()))?;
            }
        }
        let reports = paths.target.join("reports");
        if reports.exists() {
            fs::remove_dir_all(&reports).with_context(|| format!("Cannot empty {}", reports.display()))?;
        }
        fs::create_dir_all(&reports).with_context(|| format!("Cannot create {}", reports.display()))?;
        Ok(Self { stack, reports })
    }

    /// Makes the daemons of tests run with it, without a sandbox, in which no report could be written.
    pub fn tell(&self, tests: &mut Command) {
        let more = std::env::var(ARGUMENTS_VARIABLE).unwrap_or_default();
        tests.env(ARGUMENTS_VARIABLE, format!("--sandbox off {more}"));
        tests.env("ASAN_OPTIONS", format!("{OPTIONS}:log_path={}", self.reports.join("report").display()));
    }

    /// Fails if there is a report, and prints its beginning.
    pub fn check(&self) -> Result<()> {
        let mut reports: Vec<_> = fs::read_dir(&self.reports)?.flatten().map(|entry| entry.path()).collect();
        reports.sort();
        let Some(first) = reports.first() else { return Ok(()) };
        bail!(
            "AddressSanitizer has {} reports; the first is {}:\n{}",
            reports.len(),
            first.display(),
            head(first)?
        )
    }
}

fn head(report: &Path) -> Result<String> {
    const LINES: usize = 40;
    let text = String::from_utf8_lossy(&fs::read(report)?).into_owned();
    Ok(text.lines().take(LINES).collect::<Vec<_>>().join("\n"))
}
