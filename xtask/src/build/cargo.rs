// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Has cargo build one package, and finds what came out.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::paths::Paths;

/// The way in which a package is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As usual.
    Shared,
    /// Without shared libraries: for the initramfs, and for any C library.
    Static,
}

/// The program of `package`.
pub fn executable(paths: &Paths, package: &str, profile: Profile) -> Result<PathBuf> {
    let artifacts = build(paths, package, profile)?;
    let program = artifacts.iter().find_map(|artifact| artifact["executable"].as_str());
    program.map(PathBuf::from).with_context(|| format!("Package {package} has no program yet"))
}

/// The static library of `package`.
pub fn static_library(paths: &Paths, package: &str) -> Result<PathBuf> {
    let artifacts = build(paths, package, Profile::Shared)?;
    let mut files = artifacts.iter().flat_map(|artifact| artifact["filenames"].as_array()).flatten();
    let library = files.find_map(|file| file.as_str().filter(|name| name.ends_with(".a")));
    library.map(PathBuf::from).with_context(|| format!("Package {package} has no static library yet"))
}

/// Builds; the artifacts of the package itself, as cargo describes them.
fn build(paths: &Paths, package: &str, profile: Profile) -> Result<Vec<Value>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--package", package, "--message-format=json-render-diagnostics"]);
    if profile == Profile::Static {
        cargo
            .args(["--target", "x86_64-unknown-linux-gnu"])
            .env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols");
    }
    cargo.current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    let output =
        cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("Cannot start cargo")?;
    if !output.status.success() {
        bail!("Package {package} does not build");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let of_package = |message: &Value| {
        let id = message["package_id"].as_str().unwrap_or_default();
        message["reason"] == "compiler-artifact" && is_package(id, package)
    };
    Ok(messages.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(of_package).collect())
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
    use super::is_package;

    #[test]
    fn package_ids() {
        assert!(is_package("path+file:///r/guest-lib/libcuda#0.1.0", "libcuda"));
        assert!(is_package("path+file:///r/protocol#virtio-cuda-protocol@0.1.0", "virtio-cuda-protocol"));
        assert!(!is_package("path+file:///r/guest-lib/libcudart#0.1.0", "libcuda"));
        assert!(!is_package("registry+https://example.invalid#libc@0.2.0", "libcuda"));
    }
}
