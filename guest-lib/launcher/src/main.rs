// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-cuda-run PROGRAM ARGUMENTS…` starts a program with our auditor (`guest-lib/audit`), so that programs with a static
//! CUDA runtime, and programs that name NVIDIA's libraries by path, use the libraries of the guest.
//!
//! It replaces itself by the program: process id, standard streams, signals and exit status are the program's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The auditor's file.
const AUDITOR: &str = "libvhost-cuda-audit.so";
/// The libraries' folder, relative to this program's folder: as installed, and as built.
const FOLDERS: [&str; 2] = ["../lib/vhost-cuda", "../lib"];
/// The dynamic linker's list of auditors, with a colon between them (ld.so(8)).
const LIST: &str = "LD_AUDIT";
const HELP: &str = "\
Usage: vhost-cuda-run PROGRAM [ARGUMENTS…]

Starts PROGRAM, and all that it starts, with the CUDA libraries of vhost-cuda. PROGRAM may be linked with a static CUDA
runtime (nvcc's default), or carry NVIDIA's runtime beside it (Python wheels).

  --print   prints the setting of LD_AUDIT, for an environment file, instead of starting a program
  --help    prints this text
";
/// Exit status if there is no program to start.
const WRONG_USAGE: u8 = 2;
/// Exit status if the program was found but does not start, as shells have it.
const CANNOT_START: u8 = 126;
/// Exit status if there is no such program, or no auditor.
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprint!("{HELP}");
        return ExitCode::from(WRONG_USAGE);
    };
    if program == "--help" {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let auditor = match find_auditor() {
        Ok(auditor) => auditor,
        Err(problem) => return fail(NOT_FOUND, &problem),
    };
    let list = with_auditor(&auditor, env::var_os(LIST));
    if program == "--print" {
        println!("{LIST}={}", list.display());
        return ExitCode::SUCCESS;
    }
    let program = if program == "--" { arguments.next().unwrap_or_default() } else { program };
    let error = Command::new(&program).args(arguments).env(LIST, list).exec();
    let status = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_START };
    fail(status, &format!("cannot start {}: {error}", program.display()))
}

fn fail(status: u8, problem: &str) -> ExitCode {
    eprintln!("vhost-cuda-run: {problem}");
    ExitCode::from(status)
}

/// The auditor that belongs to this program.
fn find_auditor() -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|error| format!("cannot find its own file: {error}"))?;
    let own = own.parent().unwrap_or(Path::new("/"));
    let candidates = FOLDERS.map(|folder| own.join(folder).join(AUDITOR));
    let found = candidates.iter().find_map(|candidate| candidate.canonicalize().ok());
    found.ok_or_else(|| {
        format!(
            "there is no {AUDITOR} in {}: install vhost-cuda's guest libraries there",
            candidates[0].display()
        )
    })
}

/// Our auditor in front of those that are set; once, however often programs start each other through us.
fn with_auditor(auditor: &Path, set: Option<OsString>) -> OsString {
    let set = set.unwrap_or_default();
    let others = set.as_bytes().split(|byte| *byte == b':').map(OsStr::from_bytes);
    let others =
        others.filter(|other| !other.is_empty() && Path::new(other).file_name() != Some(OsStr::new(AUDITOR)));
    let all: Vec<&OsStr> = [auditor.as_os_str()].into_iter().chain(others).collect();
    all.join(OsStr::new(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_auditor_is_in_the_list_once() {
        let ours = Path::new("/lib/libvhost-cuda-audit.so");
        let list = |set: &str| with_auditor(ours, Some(set.into()));
        assert_eq!(with_auditor(ours, None), "/lib/libvhost-cuda-audit.so");
        assert_eq!(list("/a.so:/b.so"), "/lib/libvhost-cuda-audit.so:/a.so:/b.so");
        assert_eq!(list("/old/libvhost-cuda-audit.so:/b.so"), "/lib/libvhost-cuda-audit.so:/b.so");
    }
}
