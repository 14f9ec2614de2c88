// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared libraries with versioned symbols, which a Rust `cdylib` cannot have: a static library, linked by the C
//! compiler with a version script.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::cargo::Artifacts;
use super::part;
use super::symbol_versions::{self, OLDEST_GLIBC};
use crate::paths::Paths;
use crate::progress::output_of;
use crate::setup::zig;

/// One of our drop-in libraries.
pub struct Library {
    /// The package of its code.
    pub package: &'static str,
    /// It has the version script, which is called after the soname.
    folder: &'static str,
    soname: &'static str,
    /// The name that the linker searches for, unless another library has it.
    development_name: Option<&'static str>,
    /// The source of the unwinder of panics.
    unwinder: Unwinder,
    /// The place in which it is used.
    place: Place,
}

/// The place in which a library is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On a machine like this one.
    Host,
    /// The same, in a program with AddressSanitizer, which has the functions that the library calls.
    Sanitized,
    /// In guests and their containers, with a C library as old as [`OLDEST_GLIBC`].
    Guest,
}

/// The source of the code that unwinds panics.
#[derive(Clone, Copy)]
enum Unwinder {
    /// The process's `libgcc_s.so.1`.
    Shared,
    /// A copy of its own: one file less to load at the start of each process.
    Own,
}

impl Unwinder {
    fn argument(self, place: Place) -> Result<String> {
        Ok(match (self, place) {
            (Self::Shared, Place::Host | Place::Sanitized) => "-lgcc_s".to_owned(),
            (Self::Own, Place::Host | Place::Sanitized) => "-lgcc_eh".to_owned(),
            // The path is needed: zig has an unwinder of its own for this name. The interface is as old as it gets.
            (Self::Shared, Place::Guest) => {
                output_of(Command::new("cc").arg("-print-file-name=libgcc_s.so.1"))?
            }
            (Self::Own, Place::Guest) => "-lunwind".to_owned(),
        })
    }
}

/// The libraries of programs in the guest: the driver API, the runtime API of CUDA 13, 12 and 11, which finds the driver API when the
/// program makes its first call, and the management library; CUPTI and FFTW's interface to cuFFT, each for CUDA 13 and 12; the
/// auditor that brings programs with a static runtime to these libraries, and the part of `vhost-cuda-prof` inside a program.
pub const OF_GUEST: [Library; 11] = [
    GUEST_LIBCUDA,
    GUEST_LIBCUDART,
    library("libcudart12", "guest-lib/libcudart", "libcudart.so.12", Place::Guest),
    library("libcudart11", "guest-lib/libcudart", "libcudart.so.11.0", Place::Guest),
    Library {
        development_name: Some("libnvidia-ml.so"),
        ..library("nvml", "guest-lib/nvml", "libnvidia-ml.so.1", Place::Guest)
    },
    library("cupti", "guest-lib/cupti", "libcupti.so.13", Place::Guest),
    library("cupti", "guest-lib/cupti", "libcupti.so.12", Place::Guest),
    Library { place: Place::Guest, ..CUFFTW },
    library("cufftw", "guest-lib/cufftw", "libcufftw.so.11", Place::Guest),
    Library {
        unwinder: Unwinder::Own,
        ..library("vhost-cuda-audit", "guest-lib/audit", "libvhost-cuda-audit.so", Place::Guest)
    },
    library("vhost-cuda-injection", "guest-lib/injection", "libvhost-cuda-injection.so", Place::Guest),
];

/// The driver API in the guest.
pub const GUEST_LIBCUDA: Library = Library {
    development_name: Some("libcuda.so"),
    ..library("libcuda", "guest-lib/libcuda", "libcuda.so.1", Place::Guest)
};

/// The runtime API in the guest.
pub const GUEST_LIBCUDART: Library = Library {
    development_name: Some("libcudart.so"),
    ..library("libcudart", "guest-lib/libcudart", "libcudart.so.13", Place::Guest)
};

const CUFFTW: Library = Library {
    development_name: Some("libcufftw.so"),
    ..library("cufftw", "guest-lib/cufftw", "libcufftw.so.12", Place::Host)
};

/// The driver API that executes on the CPU.
pub const EMULATOR: Library = Library {
    development_name: Some("libcuda.so"),
    ..library("cuda-emulator", "cuda-emulator", "libcuda.so.1", Place::Host)
};

/// CUPTI for the emulator, whose libcuda measures itself, and FFTW's interface over its cuFFT.
pub const OF_EMULATOR: [Library; 4] = [
    library("cupti", "guest-lib/cupti", "libcupti.so.13", Place::Host),
    library("cupti", "guest-lib/cupti", "libcupti.so.12", Place::Host),
    CUFFTW,
    library("cufftw", "guest-lib/cufftw", "libcufftw.so.11", Place::Host),
];

/// NVIDIA's compilers at run time, with ours in front: where the GPU is emulated they give PTX.
pub const COMPILERS: [Library; 4] = [
    library("nvrtc", "guest-lib/nvrtc", "libnvrtc.so.13", Place::Host),
    library("nvrtc", "guest-lib/nvrtc", "libnvrtc.so.12", Place::Host),
    library("nvrtc", "guest-lib/nvrtc", "libnvJitLink.so.13", Place::Host),
    library("nvrtc", "guest-lib/nvrtc", "libnvJitLink.so.12", Place::Host),
];

const fn library(package: &'static str, folder: &'static str, soname: &'static str, place: Place) -> Library {
    Library { package, folder, soname, development_name: None, unwinder: Unwinder::Shared, place }
}

impl Library {
    /// Its soname, and the name that the linker searches for.
    pub fn file_names(&self) -> impl Iterator<Item = &'static str> {
        [Some(self.soname), self.development_name].into_iter().flatten()
    }

    /// The library for programs with AddressSanitizer.
    pub fn sanitized(self) -> Self {
        Self { place: Place::Sanitized, ..self }
    }
}

/// Links `library` from its compiled package into `folder`.
pub fn link(paths: &Paths, folder: &Path, library: &Library, artifacts: &Artifacts) -> Result<()> {
    let archive = &artifacts.static_library(library.package)?;
    let script = paths.root.join(library.folder).join(format!("{}.map", library.soname));
    let file = File { soname: library.soname, unwinder: library.unwinder, place: library.place };
    link_file(paths, folder, &file, archive, &script)?;
    match library.development_name {
        Some(name) => name_for_development(folder, library.soname, name),
        None => Ok(()),
    }
}

/// The package of the guest's files of NVIDIA's libraries.
pub(super) const GUEST_VENDOR: &str = "vendor-libraries";
/// The package of NVIDIA's libraries on the CPU.
pub(super) const EMULATOR_VENDOR: &str = "cuda-emulator-libraries";

/// Links files of NVIDIA's libraries into `folder`, and writes their version scripts into `scripts`. Each file exports the
/// functions of one library, in a version with the file's name, as NVIDIA's does. In the guest they forward to the
/// host's libraries; on the host they are the emulator's.
pub fn link_vendor(
    paths: &Paths,
    place: Place,
    folder: &Path,
    scripts: &Path,
    artifacts: &Artifacts,
) -> Result<()> {
    let package = match place {
        Place::Guest => GUEST_VENDOR,
        Place::Host | Place::Sanitized => EMULATOR_VENDOR,
    };
    let archive = artifacts.static_library(package)?;
    fs::create_dir_all(scripts)?;
    for library in cuda_library_rows::libraries() {
        for soname in library.sonames {
            let script = scripts.join(format!("{soname}.map"));
            let exported = library.functions.iter().filter(|function| !function.is_form());
            let mut names: Vec<&str> = exported.map(|function| function.name).collect();
            if place == Place::Guest {
                names.push(part::IN_FRONT);
            }
            part::write_if_changed(&script, &version_script(&names, soname))?;
            link_file(paths, folder, &File { soname, unwinder: Unwinder::Shared, place }, &archive, &script)?;
        }
        if let Some((soname, name)) =
            library.sonames.first().and_then(|soname| Some((soname, soname.rsplit_once('.')?.0)))
        {
            name_for_development(folder, soname, name)?;
            part::link(paths, place, folder, scripts, library, soname)?;
        }
    }
    Ok(())
}

/// A version script that exports `names` in a version with the file's name.
pub(super) fn version_script(names: &[&str], soname: &str) -> String {
    let names: String = names.iter().map(|name| format!("    {name};\n")).collect();
    // `ld` reads no empty list.
    let exported = if names.is_empty() { names } else { format!("  global:\n{names}") };
    format!("{soname} {{\n{exported}  local: *;\n}};\n")
}

/// The name that the linker looks for.
pub(super) fn name_for_development(folder: &Path, soname: &str, name: &str) -> Result<()> {
    let link = folder.join(name);
    if fs::read_link(&link).is_err() {
        symlink(soname, &link).with_context(|| format!("Cannot create {}", link.display()))?;
    }
    Ok(())
}

/// The C compiler that links for a place.
pub(super) fn compiler(paths: &Paths, place: Place) -> Result<Command> {
    match place {
        Place::Host | Place::Sanitized => Ok(Command::new("cc")),
        Place::Guest => zig::cc(paths, OLDEST_GLIBC),
    }
}

/// A shared library that is linked.
struct File<'a> {
    soname: &'a str,
    unwinder: Unwinder,
    place: Place,
}

/// Links `file` into `folder`, unless it is newer than its inputs.
fn link_file(paths: &Paths, folder: &Path, file: &File<'_>, archive: &Path, script: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let target = folder.join(file.soname);
    let oldest = paths.root.join("guest-lib/oldest_libc.c");
    // One that was linked for a newer C library is linked again.
    let suits = || file.place != Place::Guest || symbol_versions::check(&target).is_ok();
    if is_newer(&target, &[archive, script, &oldest]) && suits() {
        return Ok(());
    }
    let mut cc = compiler(paths, file.place)?;
    cc.args(["-shared", "-Wl,--whole-archive"]).arg(archive).arg("-Wl,--no-whole-archive");
    cc.arg(format!("-Wl,--version-script={}", script.display()));
    cc.arg(format!("-Wl,-soname,{}", file.soname));
    cc.args(["-Wl,--gc-sections", "-Wl,-z,relro,-z,now,-z,nodelete"]);
    // Reports of the sanitizer contain line numbers.
    if file.place != Place::Sanitized {
        cc.args(["-Wl,--strip-debug", "-Wl,-z,defs"]);
    }
    if file.place == Place::Guest {
        cc.arg(&oldest);
    }
    cc.arg("-Wl,--as-needed").arg(file.unwinder.argument(file.place)?);
    cc.args(["-lpthread", "-ldl", "-lm", "-lc"]);
    let is_for_guests = file.place == Place::Guest;
    link_into(cc, &target, |new| if is_for_guests { symbol_versions::check(new) } else { Ok(()) })
}

/// Runs the linker `cc` so that it writes `target`, which appears when it is whole and has passed `check`.
pub(super) fn link_into(
    mut cc: Command,
    target: &Path,
    check: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let folder = target.parent().context("A library has no folder")?;
    let new = tempfile::NamedTempFile::new_in(folder)?;
    output_of(cc.arg("-o").arg(new.path())).with_context(|| format!("Cannot link {}", target.display()))?;
    check(new.path())?;
    // Temporary files are private; every user of the guest loads this one.
    fs::set_permissions(new.path(), fs::Permissions::from_mode(0o755))?;
    new.persist(target).with_context(|| format!("Cannot write {}", target.display()))?;
    Ok(())
}

pub(super) fn is_newer(output: &Path, inputs: &[&Path]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    inputs.iter().all(|input| time(input).is_some() && time(input) < time(output))
}
