// SPDX-License-Identifier: Apache-2.0 OR MIT
//! C structures outside of the crate that owns them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use regex::Regex;

/// The folder of the owned definitions.
const OWNER: &str = "protocol/cuda-abi/src/structs";

/// The structures that the crate `cuda-abi` owns.
pub struct Structures {
    /// Their number.
    pub owned: usize,
    /// Definitions of them in other files: under the same name, or under another one with a first line of
    /// documentation that contains the structure's name.
    pub copies: Vec<String>,
}

/// Looks for structures in all sources.
pub fn structures(root: &Path, sources: &[PathBuf]) -> Result<Structures> {
    let read = |file: &PathBuf| fs::read_to_string(root.join(file));
    let mut owned = BTreeSet::new();
    for file in sources.iter().filter(|file| file.starts_with(OWNER)) {
        owned.extend(owned_in(&read(file)?));
    }
    let mut copies = Vec::new();
    for file in sources.iter().filter(|file| !file.starts_with(OWNER)) {
        let text = read(file)?;
        copies.extend(copies_in(&text, &owned).into_iter().map(|name| {
            format!("{}: {name} is defined in {OWNER}, and should be used from there", file.display())
        }));
    }
    Ok(Structures { owned: owned.len(), copies })
}

/// The names of CUDA's structures that a file of the owner defines.
fn owned_in(text: &str) -> Vec<String> {
    let defined =
        Regex::new(r"(?m)^(?:    |pub struct |pub type )((?:CU|nvml|__fat)\w+)(?:: \d+ .*\{| \{| = )")
            .expect("a pattern");
    defined.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// The owned structures that a file defines.
fn copies_in(text: &str, owned: &BTreeSet<String>) -> Vec<String> {
    let definition = Regex::new(
        r"(?m)^ *(?:/// `?(?P<documented>\w+).*\n(?: *///.*\n)*)?(?P<attributes>(?: *#\[.*\n)*) *(?:pub(?:\([^)]*\))? )?(?:struct|union) (?P<name>\w+)",
    )
    .expect("a pattern");
    let copied = |found: regex::Captures<'_>| {
        let is_c = found["attributes"].contains("repr(C");
        let documented = found.name("documented").filter(|_| is_c).map(|name| name.as_str());
        [Some(&found["name"]), documented]
            .into_iter()
            .flatten()
            .find(|name| owned.contains(*name))
            .map(str::to_owned)
    };
    definition.captures_iter(text).filter_map(copied).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_found_under_any_name() {
        let owner = "c_structs! {\n    /// `CUone`.\n    CUone: 8 (Eq) {\n    }\n}\npub type CUtwo = CUone;\npub struct CUthree {\n";
        let owned: BTreeSet<_> = owned_in(owner).into_iter().collect();
        assert_eq!(owned.iter().collect::<Vec<_>>(), ["CUone", "CUthree", "CUtwo"]);
        let copies = |text: &str| copies_in(text, &owned);
        assert_eq!(copies("struct CUone(u8);\n"), ["CUone"]);
        assert_eq!(copies("    pub(super) union CUtwo {\n"), ["CUtwo"]);
        let renamed =
            "/// `CUthree`, as it is here.\n/// More.\n#[derive(Clone)]\n#[repr(C)]\npub struct Three {\n";
        assert_eq!(copies(renamed), ["CUthree"]);
        assert!(copies("/// CUone\n#[derive(Clone)]\nstruct InRust {\n").is_empty());
        assert!(copies("/// Uses CUone.\n#[repr(C)]\nstruct Other {\n").is_empty());
    }
}
