// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compilers of CUDA 12 and 11, so that tests see programs of those versions: the wheels have headers and libraries,
//! but the compiler proper is only in Debian's package.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::apt::Apt;
use super::cache::Entry;
use super::pip;
use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// A release of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The major version of CUDA.
    pub major: u32,
    /// The release series.
    series: &'static str,
    /// Debian's suite whose package has it.
    suite: &'static str,
    /// The soname of the runtime.
    pub runtime: &'static str,
    /// The version of the wheel with a static runtime. It is in no wheel of a series, but the compiler links that of a later
    /// minor version as well. The wheels of CUDA 11 have none.
    static_runtime: Option<&'static str>,
}

/// CUDA 12.
const OF_12: Release = Release {
    major: 12,
    series: "12.4",
    suite: "trixie",
    runtime: "libcudart.so.12",
    static_runtime: Some("12.9.79"),
};
/// CUDA 11.
const OF_11: Release = Release {
    major: 11,
    series: "11.8",
    suite: "bookworm",
    runtime: "libcudart.so.11.0",
    static_runtime: None,
};
/// Every release.
pub const ALL: [Release; 2] = [OF_12, OF_11];

const PACKAGE: &str = "nvidia-cuda-toolkit";
/// Headers and the runtime: wheels without the `-cu12` in their names, and what each has below `nvidia/`.
const WHEELS: [(&str, &str); 3] = [
    ("nvidia-cuda-runtime", "cuda_runtime"),
    ("nvidia-cuda-nvcc", "cuda_nvcc"),
    ("nvidia-cuda-cccl", "cuda_cccl"),
];
/// The static runtime below `nvidia/` of the first of these wheels.
const STATIC_RUNTIME: &str = "cuda_runtime/lib/libcudart_static.a";
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

impl Release {
    /// The compiler that [`Release::setup`] made, if it did.
    pub fn find(self, paths: &Paths) -> Option<PathBuf> {
        let entry = self.entry(paths);
        entry.is_complete().then(|| entry.path.join("bin/nvcc"))
    }

    /// The runtime library of NVIDIA's beside the compiler.
    pub fn library(self, paths: &Paths) -> Option<PathBuf> {
        let nvcc = self.find(paths)?;
        Some(nvcc.parent()?.parent()?.join("lib").join(self.runtime))
    }

    /// Puts the compiler together.
    pub fn setup(self, paths: &Paths) -> Result<()> {
        let step = Step::new(&format!("nvcc-{}", self.major), &paths.setup_logs())?;
        let entry = self.entry(paths);
        entry.fill(step, self.series, |step| self.put_together(paths, &entry, step))
    }

    fn put_together(self, paths: &Paths, entry: &Entry, step: &Step) -> Result<()> {
        let apt = Apt::open(&paths.cache, step)?;
        let (packages, wheels) = (entry.path.join("packages"), entry.path.join("wheels"));
        apt.unpack(PACKAGE, &apt.newest(PACKAGE, Some(self.suite))?, &packages, step)?;
        let names = WHEELS.map(|(wheel, _)| format!("{wheel}-cu{}=={}.*", self.major, self.series));
        pip::install(step, &wheels, &names)?;
        assemble(&packages.join("usr"), &wheels.join("nvidia"), &entry.path, self.runtime)?;
        if let Some(version) = self.static_runtime {
            let (wheel, later) = (format!("{}-cu{}", WHEELS[0].0, self.major), entry.path.join("later"));
            pip::install(step, &later, &[format!("{wheel}=={version}")])?;
            let archive = later.join("nvidia").join(STATIC_RUNTIME);
            fs::rename(archive, entry.path.join("lib/libcudart_static.a"))
                .with_context(|| format!("{wheel} {version} has no {STATIC_RUNTIME}"))?;
            fs::remove_dir_all(later)?;
        }
        let version = output_of(Command::new(entry.path.join("bin/nvcc")).arg("--version"))?;
        version
            .contains(&format!("release {}", self.series))
            .then_some(())
            .context("This is another nvcc")?;
        [packages, wheels].into_iter().try_for_each(|folder| Ok(fs::remove_dir_all(folder)?))
    }

    fn entry(self, paths: &Paths) -> Entry {
        let key =
            [Some(self.series), self.static_runtime].into_iter().flatten().collect::<Vec<_>>().join("-");
        Entry::named(&paths.cache, &format!("nvcc-{}", self.major), &key)
    }
}

fn assemble(package: &Path, wheels: &Path, home: &Path, runtime: &str) -> Result<()> {
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
    symlink(runtime, home.join("lib/libcudart.so")).context("The wheels have no lib folder")?;
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
