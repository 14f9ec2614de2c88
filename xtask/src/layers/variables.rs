// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment variables of the project: all of them are names to remember and states to test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use regex::Regex;

/// The maximum number of variables. It is lowered, and not raised.
pub const MAX_VARIABLES: usize = 29;
/// Tests set these for processes that they start.
const OF_TESTS: [&str; 2] = ["CUDA_EMULATOR_TEST_", "VHOST_CUDA_ATTACK_"];
/// A name in a literal, or in a script.
const USE: &str = r#"["']((?:VHOST_CUDA|VIRTIO_CUDA|CUDA_EMULATOR)_[A-Z0-9_]*[A-Z0-9]|UPDATE_GOLDEN)["'=]"#;
/// Names of ioctls look the same there.
const IOCTLS: &str = "protocol/tests";

/// The names of the variables in `sources`, which are relative to `root`.
pub fn names(root: &Path, sources: &[PathBuf]) -> Result<BTreeSet<String>> {
    let pattern = Regex::new(USE).expect("a pattern");
    let golden = |name: &str| name == "UPDATE_GOLDEN";
    let mut all = BTreeSet::new();
    for file in sources {
        let text =
            fs::read_to_string(root.join(file)).with_context(|| format!("Cannot read {}", file.display()))?;
        let found = pattern.captures_iter(&text).map(|found| found[1].to_owned());
        all.extend(found.filter(|name| golden(name) || !file.starts_with(IOCTLS)));
    }
    all.retain(|name| !OF_TESTS.iter().any(|prefix| name.starts_with(prefix)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_literals() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let text = r#"const NAME: &str = "VIRTIO_CUDA_LOG"; // VIRTIO_CUDA_NOT
            env("VHOST_CUDA_ATTACK_SECRET"); getenv("CUDA_EMULATOR_LOG"); "CUDA_EMULATOR_"; "UPDATE_GOLDEN""#;
        fs::write(folder.path().join("a.rs"), text)?;
        let found = names(folder.path(), &["a.rs".into()])?;
        assert_eq!(Vec::from_iter(found), ["CUDA_EMULATOR_LOG", "UPDATE_GOLDEN", "VIRTIO_CUDA_LOG"]);
        Ok(())
    }
}
