// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compiler of CUDA 12, so that tests see programs of that version: the wheels of 12 have headers and
//! libraries, but the compiler proper is only in Debian's package.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::apt::Apt;
use super::cache::Entry;
use super::pip;
use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// The release series, of Debian 13.
const SERIES: &str = "12.4";
const PACKAGE: &str = "nvidia-cuda-toolkit";
const SUITE: &str = "trixie";
/// Headers and the runtime; what each has below `nvidia/`.
const WHEELS: [(&str, &str); 3] = [
    ("nvidia-cuda-runtime-cu12", "cuda_runtime"),
    ("nvidia-cuda-nvcc-cu12", "cuda_nvcc"),
    ("nvidia-cuda-cccl-cu12", "cuda_cccl"),
];
/// The static runtime is in no wheel of the series, but the compiler links that of a later minor version as well.
const STATIC_RUNTIME: (&str, &str, &str) =
    ("nvidia-cuda-runtime-cu12", "12.9.79", "cuda_runtime/lib/libcudart_static.a");
/// Parts of the compiler in the package, and where it looks for them.
const PARTS: [(&str, &str); 9] = [
    ("lib/nvidia-cuda-toolkit/bin/nvcc", "bin/nvcc"),
    ("lib/nvidia-cuda-toolkit/bin/cicc", "nvvm/bin/cicc"),
    ("lib/nvidia-cuda-toolkit/bin/crt/link.stub", "bin/crt/link.stub"),
    ("lib/nvidia-cuda-toolkit/bin/crt/prelink.stub", "bin/crt/prelink.stub"),
    ("lib/nvidia-cuda-toolkit/libdevice/libdevice.10.bc", "nvvm/libdevice/libdevice.10.bc"),
    ("bin/cudafe++", "bin/cudafe++"),
    ("bin/ptxas", "bin/ptxas"),
    ("bin/fatbinary", "bin/fatbinary"),
    ("bin/nvlink", "bin/nvlink"),
];
/// As NVIDIA's own: everything relative to the compiler.
const PROFILE: &str = "\
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/$(_NVVM_BRANCH_)/libdevice
PATH += $(TOP)/$(_NVVM_BRANCH_)/bin:$(_HERE_):
INCLUDES += \"-I$(TOP)/include\" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) \"-L$(TOP)/lib\"
";

/// The compiler that [`setup`] made, if it did.
pub fn find(paths: &Paths) -> Option<PathBuf> {
    let entry = entry(paths);
    entry.is_complete().then(|| entry.path.join("bin/nvcc"))
}

/// Puts the compiler together.
pub fn setup(paths: &Paths) -> Result<()> {
    let step = Step::new("nvcc-12", &paths.setup_logs())?;
    let entry = entry(paths);
    if entry.is_complete() {
        step.cached(SERIES);
        return Ok(());
    }
    let apt = Apt::open(&paths.cache, &step)?;
    entry.begin_empty()?;
    let (packages, wheels) = (entry.path.join("packages"), entry.path.join("wheels"));
    apt.unpack(PACKAGE, &apt.newest(PACKAGE, Some(SUITE))?, &packages, &step)?;
    let mut pip = pip::install(&wheels);
    pip.args(WHEELS.map(|(wheel, _)| format!("{wheel}=={SERIES}.*")));
    step.run(&mut pip)?;
    assemble(&packages.join("usr"), &wheels.join("nvidia"), &entry.path)?;
    let (wheel, version, file) = STATIC_RUNTIME;
    let later = entry.path.join("later");
    step.run(pip::install(&later).arg(format!("{wheel}=={version}")))?;
    fs::rename(later.join("nvidia").join(file), entry.path.join("lib/libcudart_static.a"))
        .with_context(|| format!("{wheel} {version} has no {file}"))?;
    let version = output_of(std::process::Command::new(entry.path.join("bin/nvcc")).arg("--version"))?;
    version.contains(&format!("release {SERIES}")).then_some(()).context("This is another nvcc")?;
    for folder in [packages, wheels, later] {
        fs::remove_dir_all(folder)?;
    }
    entry.complete()?;
    step.done(SERIES);
    Ok(())
}

fn entry(paths: &Paths) -> Entry {
    Entry::named(&paths.cache, "nvcc-12", &format!("{SERIES}-{}", STATIC_RUNTIME.1))
}

fn assemble(package: &Path, wheels: &Path, home: &Path) -> Result<()> {
    for (from, to) in PARTS {
        let (from, to) = (package.join(from), home.join(to));
        fs::create_dir_all(to.parent().context("A part has no folder")?)?;
        fs::rename(&from, &to).with_context(|| format!("{PACKAGE} has no {}", from.display()))?;
    }
    fs::write(home.join("bin/nvcc.profile"), PROFILE)?;
    for (wheel, folder) in WHEELS {
        for part in ["include", "lib"] {
            let from = wheels.join(folder).join(part);
            if from.exists() {
                merge(&from, &home.join(part)).with_context(|| format!("Cannot unpack {wheel}"))?;
            }
        }
    }
    symlink("libcudart.so.12", home.join("lib/libcudart.so")).context("The wheels have no lib folder")?;
    Ok(())
}

/// Moves the files of a folder into another one, which may have folders of the same names.
fn merge(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        let target = to.join(file.file_name());
        if file.file_type()?.is_dir() {
            merge(&file.path(), &target)?;
        } else {
            fs::rename(file.path(), target)?;
        }
    }
    Ok(())
}
