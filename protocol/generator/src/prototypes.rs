// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prototypes of the driver API, from cudarc's declarations.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use regex::Regex;

use crate::bindings::Bindings;
use crate::file::{DUAL, File};

/// The folder of the crate that has the prototypes, and their types.
const CRATE: &str = "protocol/cuda-abi/src";
/// Types that have another name here.
const RENAMED: [(&str, &str); 8] = [
    ("CUresult", "c_uint"),
    ("CU_DEV_SM_RESOURCE_GROUP_PARAMS", "CUdevSmResourceGroupParams"),
    ("c_uchar", "u8"),
    ("c_ulonglong", "u64"),
    ("c_ushort", "u16"),
    ("cuuint32_t", "u32"),
    ("cuuint64_t", "u64"),
    ("size_t", "usize"),
];

/// A macro that passes all prototypes to another one, but those that are written by hand. A function of which no crate defines
/// a type has no prototype.
pub fn file(root: &Path, bindings: &Bindings) -> Result<File> {
    let by_hand = fs::read_to_string(root.join(CRATE).join("prototypes/others.rs"))?;
    let by_hand: BTreeSet<&str> = Regex::new(r"\bfn (cu\w+)")?
        .captures_iter(&by_hand)
        .filter_map(|found| Some(found.get(1)?.as_str()))
        .collect();
    let known = types(root)?;
    let words = Regex::new(r"\w+")?;
    let mut rows = String::new();
    for (name, function) in &bindings.functions {
        let parameters = function.parameters.iter().map(|(name, of)| {
            let of =
                words.replace_all(of, |found: &regex::Captures<'_>| c_type(&found[0], bindings).to_owned());
            (name, of.into_owned())
        });
        let parameters: Vec<_> = parameters.collect();
        let is_known = |of: &str| words.find_iter(of).all(|word| known.contains(word.as_str()));
        if by_hand.contains(name.as_str()) || !parameters.iter().all(|(_, of)| is_known(of)) {
            continue;
        }
        let list: Vec<String> = parameters.iter().map(|(name, of)| format!("{name}: {of}")).collect();
        let _ = writeln!(rows, "            fn {name}({});", list.join(", "));
    }
    let code = format!(
        "/// Passes the prototypes that follow from cudarc's declarations to a macro.\n#[macro_export]\n\
         macro_rules! bound_prototypes {{\n    ($callback:ident) => {{\n        $callback! {{\n{rows}        }}\n    }};\n}}\n"
    );
    File::new(
        &format!("{CRATE}/prototypes/bound.rs"),
        DUAL,
        "The prototypes of functions that the crate cudarc declares, too, by name.",
        "cudarc's src/driver/sys/mod.rs",
        &code,
    )
}

/// The name of a type in prototypes: enums are `c_uint`.
pub(crate) fn c_type<'t>(name: &'t str, bindings: &Bindings) -> &'t str {
    match RENAMED.iter().find(|(of, _)| *of == name) {
        Some((_, here)) => here,
        None if bindings.enums.contains(name) => "c_uint",
        None => name,
    }
}

/// All words of the files that define the types of prototypes, and Rust's own.
fn types(root: &Path) -> Result<BTreeSet<String>> {
    let mut files = vec![root.join(CRATE).join("prototypes/types.rs"), root.join(CRATE).join("lib.rs")];
    for entry in fs::read_dir(root.join(CRATE).join("structs")).context("Cannot read the structures")? {
        files.push(entry?.path());
    }
    let defined = Regex::new(r"\b(?:CU|CUDA_)\w+|c_\w+")?;
    let mut known: BTreeSet<String> =
        ["const", "mut", "u8", "u16", "u32", "u64", "usize", "f32"].map(str::to_owned).into();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("Cannot read {}", file.display()))?;
        known.extend(defined.find_iter(&text).map(|found| found.as_str().to_owned()));
    }
    Ok(known)
}
