// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folders that the commands read and write.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Cargo's profile of everything that is packed, tested or measured.
const RELEASE: &str = "release";
/// Cargo's profile of xtask and of what `demo` builds on a machine that has built nothing yet.
const QUICK: &str = "quick";

/// The folders that the commands use.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The repository.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// The output of `cargo xtask build`.
    pub stack: PathBuf,
    /// Files that are slow to download or build, shared by all checkouts.
    pub cache: PathBuf,
    /// Cargo's profile of the stack.
    pub profile: &'static str,
    /// The unpacked bundle that this runs from, if it does. It contains all parts ready-made.
    pub bundle: Option<PathBuf>,
}

impl Paths {
    /// From the environment: `VHOST_CUDA_BUNDLE`, or else `CARGO_TARGET_DIR`, `VHOST_CUDA_STACK`,
    /// `XDG_CACHE_HOME`, `HOME`.
    pub fn discover() -> Result<Self> {
        let from_environment = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        // `cargo run` sets the path. The path of the build may be outdated, because people copy a checkout with its
        // target folder.
        let built_in = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let manifest = from_environment("CARGO_MANIFEST_DIR").unwrap_or_else(built_in);
        let root = manifest.parent().context("The repository has no root")?.to_path_buf();
        if let Some(bundle) = from_environment("VHOST_CUDA_BUNDLE") {
            let folder = |name: &str| bundle.join(name);
            let (target, stack, cache) = (folder("target"), folder("stack"), folder("cache"));
            return Ok(Self {
                root: bundle.clone(),
                target,
                stack,
                cache,
                profile: RELEASE,
                bundle: Some(bundle),
            });
        }
        let target = from_environment("CARGO_TARGET_DIR").unwrap_or_else(|| root.join("target"));
        let target = if target.is_absolute() { target } else { root.join(target) };
        let stack = from_environment("VHOST_CUDA_STACK").unwrap_or_else(|| target.join("stack"));
        let cache = match from_environment("XDG_CACHE_HOME") {
            Some(folder) => folder,
            None => from_environment("HOME").context("HOME is not set; set XDG_CACHE_HOME")?.join(".cache"),
        };
        Ok(Self { root, target, stack, cache: cache.join("vhost-cuda"), profile: RELEASE, bundle: None })
    }

    /// The same, with a stack of its own that is quick to compile and slow to run. A bundle's stack stays as it is.
    pub fn quick(&self) -> Self {
        if self.bundle.is_some() {
            return self.clone();
        }
        Self { stack: self.stack.join("quick"), profile: QUICK, ..self.clone() }
    }

    /// Returns whether the stack is that of [`Self::quick`].
    pub fn is_quick(&self) -> bool {
        self.profile == QUICK
    }

    /// Logs of the setup steps.
    pub fn setup_logs(&self) -> PathBuf {
        self.cache.join("log")
    }

    /// Logs of the builds.
    pub fn build_logs(&self) -> PathBuf {
        self.stack.join("log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_stack_is_never_taken_for_the_optimised_one() {
        let folder = PathBuf::from;
        let paths = Paths {
            root: folder("/r"),
            target: folder("/r/target"),
            stack: folder("/r/target/stack"),
            cache: folder("/c"),
            profile: RELEASE,
            bundle: None,
        };
        let quick = paths.quick();
        assert!(quick.is_quick() && !paths.is_quick());
        assert_ne!(quick.stack, paths.stack);
        let bundled = Paths { bundle: Some(folder("/b")), ..paths };
        assert!(!bundled.quick().is_quick());
    }
}
