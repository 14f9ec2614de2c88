// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compiler, and the libraries of the toolkit that programs need and that work with a shared runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::ValueEnum;

use crate::build::Stack;
use crate::paths::Paths;
use crate::progress::output_of;
use crate::setup::nvcc::{self, Nvcc};

/// Linked if a program uses them.
const LIBRARIES: [&str; 3] = ["libnvrtc.so.13", "libnvvm.so.4", "libnvJitLink.so.13"];
/// The same, of our stack. They have the names of NVIDIA's, need none of these, and exist on every machine.
const OURS: [&str; 8] = [
    "libcuda.so.1",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcufft.so.12",
    "libcurand.so.10",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
];
/// Code for the GPU, and PTX for the emulator.
const ARCHITECTURE: &str = "arch=compute_90,code=[sm_90,compute_90]";

/// Linking of NVIDIA's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cudart {
    /// `--cudart=shared`.
    Shared,
    /// As nvcc does by default.
    Static,
}

impl Cudart {
    /// The option of `strip` for programs: the auditor recognises a static runtime of any release by its symbols.
    fn strip_option(self) -> &'static str {
        match self {
            Self::Shared => "--strip-unneeded",
            Self::Static => "--strip-debug",
        }
    }
}

/// The compiler and libraries of programs.
#[derive(Debug, Clone)]
pub struct Toolkit {
    nvcc: Nvcc,
    cudart: Cudart,
    version: String,
    /// The compiler's, and that of the libraries if it is another.
    homes: Vec<PathBuf>,
    include: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    ours: PathBuf,
}

impl Toolkit {
    /// Fetches what is missing, which a bundle cannot. `more` are further folders with libraries.
    pub fn find(paths: &Paths, cudart: Cudart, more: &[PathBuf]) -> Result<Self> {
        let nvcc = Nvcc::find(paths)?;
        let version = output_of(Command::new(nvcc.program()).arg("--version"))?;
        let mut homes = vec![nvcc.home.clone()];
        let mut include = vec![nvcc.home.join("include")];
        let mut libraries: Vec<PathBuf> = more.iter().cloned().chain([nvcc.libraries()]).collect();
        let is_whole = include[0].join("nvrtc.h").exists() && include[0].join("curand_kernel.h").exists();
        if !is_whole && paths.bundle.is_none() {
            let extras = nvcc::setup_extras(paths)?;
            include.push(extras.join("include"));
            libraries.push(extras.join("lib"));
            homes.push(extras);
        }
        let ours = Stack::new(paths).guest_libraries();
        Ok(Self { nvcc, cudart, version, homes, include, libraries, ours })
    }

    /// A text that changes when the compiler or its libraries change.
    pub fn version(&self) -> String {
        format!("{}{:?}{}", self.version, self.cudart, self.strip_option())
    }

    /// The option of `strip` for programs.
    pub fn strip_option(&self) -> &'static str {
        self.cudart.strip_option()
    }

    /// The folders that programs need beside those with our libraries.
    pub fn libraries(&self) -> &[PathBuf] {
        &self.libraries
    }

    /// A file or folder below the toolkit's home.
    pub fn file(&self, path: &Path) -> Option<PathBuf> {
        self.homes.iter().map(|home| home.join(path)).find(|path| path.exists())
    }

    /// Returns the compiler with the common options of all programs.
    pub fn compiler(&self) -> Command {
        let mut command = self.any_compiler();
        command.args(["-gencode", ARCHITECTURE]);
        if self.cudart == Cudart::Shared {
            command.arg("--cudart=shared");
        }
        command
    }

    fn any_compiler(&self) -> Command {
        let mut command = Command::new(self.nvcc.program());
        command.args(["-std=c++17", "-O2", "-w"]).env("CUDA_HOME", &self.nvcc.home);
        for folder in &self.include {
            command.arg("-I").arg(folder);
        }
        command
    }

    /// Appends the arguments after the sources when a program is linked.
    pub fn link(&self, command: &mut Command) {
        command.arg("-L").arg(self.nvcc.libraries());
        command.args(["-Xlinker", "--as-needed"]);
        // Any library of a name has the functions, and the loader finds the one that runs. nvcc requires that
        // libraries whose names end in a version are passed directly to the linker.
        let ours = OURS.map(|library| self.ours.join(library));
        let libraries = LIBRARIES.iter().filter_map(|library| {
            self.libraries.iter().map(|folder| folder.join(library)).find(|file| file.exists())
        });
        for library in ours.into_iter().chain(libraries) {
            command.arg("-Xlinker").arg(library);
        }
        command.args(["-lpthread", "-lrt", "-ldl", "-lm"]);
    }

    /// A compiler for one piece of device code: a fat binary, PTX or a cubin.
    pub fn device_compiler(&self, kind: &str) -> Command {
        if kind == "fatbin" {
            return self.compiler();
        }
        let mut command = self.any_compiler();
        command.arg(if kind == "ptx" { "-arch=compute_90" } else { "-arch=sm_90" });
        command
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_static_runtime_keeps_its_symbols() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
        fs::write(&source, "int libcudart_static_ab(void) { return 1; }\nint main(void) { return 0; }\n")
            .unwrap();
        for (cudart, kept) in [(Cudart::Static, true), (Cudart::Shared, false)] {
            output_of(Command::new("cc").arg("-g").arg(&source).arg("-o").arg(&program)).unwrap();
            output_of(Command::new("strip").arg(cudart.strip_option()).arg(&program)).unwrap();
            let symbols =
                output_of(Command::new("readelf").args(["--wide", "--symbols"]).arg(&program)).unwrap();
            assert_eq!(symbols.contains("libcudart_static_ab"), kept, "{cudart:?}");
        }
    }
}
