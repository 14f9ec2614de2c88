// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds packages with cargo, and finds the files that it made.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::paths::Paths;
use crate::progress::Step;

/// The way in which a package is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// As usual.
    Shared,
    /// Without shared libraries: for the initramfs, and for any C library.
    Static,
    /// With AddressSanitizer. Programs export its functions to the libraries that they load.
    Sanitized,
}

/// The files of packages that were built together.
#[derive(Debug, Default)]
pub struct Artifacts(Vec<Value>);

impl Artifacts {
    /// These files, and `others`.
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// The program of `package`.
    pub fn executable(&self, package: &str) -> Result<PathBuf> {
        let program = self.of(package).find_map(|artifact| artifact["executable"].as_str());
        program.map(PathBuf::from).with_context(|| format!("Package {package} has no program"))
    }

    /// The static library of `package`.
    pub fn static_library(&self, package: &str) -> Result<PathBuf> {
        let mut files = self.of(package).flat_map(|artifact| artifact["filenames"].as_array()).flatten();
        let library = files.find_map(|file| file.as_str().filter(|name| name.ends_with(".a")));
        library.map(PathBuf::from).with_context(|| format!("Package {package} has no static library"))
    }

    fn of(&self, package: &str) -> impl Iterator<Item = &Value> {
        self.0
            .iter()
            .filter(move |artifact| is_package(artifact["package_id"].as_str().unwrap_or_default(), package))
    }

    fn parse(messages: &str) -> Self {
        let is_artifact = |message: &Value| message["reason"] == "compiler-artifact";
        Self(
            messages.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(is_artifact).collect(),
        )
    }
}

/// The emulator and NVIDIA's libraries on it. They depend on no other part, and no other part depends on them.
pub const EMULATOR: [&str; 3] = ["cuda-emulator", "cuda-emulator-libraries", "cuda-emulator-testing"];

/// The packages of one call of cargo. Cargo unites the features that they request from a common dependency: with other packages
/// it has other features, and is compiled once more.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'a> {
    /// All but the emulator's.
    Workspace,
    /// The emulator's.
    Emulator,
    /// These.
    Packages(&'a [&'a str]),
}

impl<'a> Selection<'a> {
    /// Cargo's arguments.
    pub fn arguments(self) -> Vec<&'a str> {
        let each = |option: &'a str, packages: &'a [&'a str]| {
            packages.iter().flat_map(move |package| [option, package]).collect::<Vec<_>>()
        };
        match self {
            Self::Workspace => [vec!["--workspace"], each("--exclude", &EMULATOR)].concat(),
            Self::Emulator => each("--package", &EMULATOR),
            Self::Packages(packages) => each("--package", packages),
        }
    }
}

/// Compiles the packages. Cargo's messages go to stderr.
pub fn compile(paths: &Paths, selection: Selection<'_>, linkage: Linkage) -> Result<Artifacts> {
    let mut cargo = command(paths, selection, linkage);
    let output =
        cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("Cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo build {} failed", selection.arguments().join(" "));
    }
    Ok(Artifacts::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Compiles the packages as a part of `step`.
pub fn compile_in(
    step: &Step,
    paths: &Paths,
    selection: Selection<'_>,
    linkage: Linkage,
) -> Result<Artifacts> {
    Ok(Artifacts::parse(&step.output(&mut command(paths, selection, linkage))?))
}

fn command(paths: &Paths, selection: Selection<'_>, linkage: Linkage) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--profile", paths.profile, "--message-format=json-render-diagnostics"]);
    cargo.args(selection.arguments());
    // Build scripts and macros are not compiled with the flags where a target is named.
    let flags = match linkage {
        Linkage::Shared => None,
        Linkage::Static => Some("-C target-feature=+crt-static -C strip=symbols"),
        Linkage::Sanitized => {
            // The stable compiler has the sanitizer's runtime, but not its flag.
            cargo.env("RUSTC_BOOTSTRAP", "1");
            Some("-Zsanitizer=address -Cdebug-assertions -Coverflow-checks -Clink-arg=-rdynamic")
        }
    };
    if let Some(flags) = flags {
        cargo.args(["--target", "x86_64-unknown-linux-gnu"]).env("RUSTFLAGS", flags);
        cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    }
    cargo.current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    cargo
}

/// A package id is `path+file:///folder#name@version`, or `…/name#version` when folder and name are the same.
fn is_package(id: &str, package: &str) -> bool {
    let Some((folder, fragment)) = id.split_once('#') else { return false };
    match fragment.split_once('@') {
        Some((name, _)) => name == package,
        None => folder.rsplit('/').next() == Some(package),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_ids() {
        assert!(is_package("path+file:///r/guest-lib/libcuda#0.1.0", "libcuda"));
        assert!(is_package("path+file:///r/protocol#virtio-cuda-protocol@0.1.0", "virtio-cuda-protocol"));
        assert!(!is_package("path+file:///r/guest-lib/libcudart#0.1.0", "libcuda"));
        assert!(!is_package("registry+https://example.invalid#libc@0.2.0", "libcuda"));
    }

    #[test]
    fn files_of_packages_that_were_built_together() {
        let artifacts = Artifacts::parse(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r/a#0.1.0","filenames":["/t/liba.rlib","/t/liba.a"],"executable":null}
               {"reason":"compiler-artifact","package_id":"path+file:///r/b#0.1.0","filenames":["/t/b"],"executable":"/t/b"}
               {"reason":"build-finished","success":true}"#,
        );
        assert_eq!(artifacts.static_library("a").unwrap(), PathBuf::from("/t/liba.a"));
        assert_eq!(artifacts.executable("b").unwrap(), PathBuf::from("/t/b"));
        assert!(artifacts.executable("a").is_err());
        assert!(artifacts.static_library("b").is_err());
    }
}
