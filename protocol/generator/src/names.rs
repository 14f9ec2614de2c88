// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adds the driver's functions of later versions of CUDA that rows serve to the lists of names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;
use cuda_api_description::calls::Area;

use crate::bindings::Bindings;
use crate::file::File;

/// The exported names, and what cuGetProcAddress answers for them.
const LISTS: [&str; 2] = ["protocol/names/libcuda.txt", "protocol/names/libcuda-versions.txt"];
/// The version of which the lists have all names.
const COMPLETE: u32 = 13000;

/// The lists with the exported functions of all rows that are of a later version.
pub fn files(root: &Path, areas: &[Area], bindings: &Bindings) -> Result<Vec<File>> {
    let rows = areas.iter().flat_map(|area| &area.rows).filter(|row| row.entry.is_some());
    let later = rows.filter_map(|row| {
        let since = bindings.functions.get(&row.name)?.since;
        (since > COMPLETE).then(|| (row.name.clone(), format!("{} {since} {}", base(&row.name), row.name)))
    });
    let (names, versions): (Vec<String>, Vec<String>) = later.unzip();
    let with = |(path, new): (&str, Vec<String>)| {
        let old = fs::read_to_string(root.join(path))?;
        let missing: BTreeSet<String> =
            new.into_iter().filter(|line| !old.lines().any(|known| known == line)).collect();
        let text = missing.iter().fold(old, |text, line| inserted(&text, line));
        Ok(File { path: path.into(), text })
    };
    LISTS.into_iter().zip([names, versions]).map(with).collect()
}

/// The name without its version: `cuGraphAddNode` of `cuGraphAddNode_v3`.
fn base(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, version)) if version.parse::<u32>().is_ok() => base,
        _ => name,
    }
}

/// Returns the lines of `text` with `line` before the first one that is greater.
fn inserted(text: &str, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|known| *known > line).unwrap_or(lines.len());
    lines.insert(at, line);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_inserted_in_order() {
        assert_eq!(inserted("a\nc\n", "b"), "a\nb\nc\n");
        assert_eq!(inserted("a\n", "b"), "a\nb\n");
        assert_eq!(
            (base("cuGraphAddNode_v3"), base("cuOne_vX"), base("cuTwo")),
            ("cuGraphAddNode", "cuOne_vX", "cuTwo")
        );
    }
}
