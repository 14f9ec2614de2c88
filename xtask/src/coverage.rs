// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `cargo xtask api-coverage`: writes `docs/api-coverage.md` from the symbols of the built libraries.
//!
//! A name that is not done yet is a weak alias of the library's "not supported" function, so the symbol
//! table itself says what is real: the page cannot drift from the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Libraries that the page lists: title, path below `target/stack`, what stands behind a missing name.
const LIBRARIES: &[(&str, &str, &str)] = &[
    ("Runtime API (`libcudart.so.13`)", "guest/lib/libcudart.so.13", "cudaErrorNotSupported (801)"),
    ("Runtime API of 12 (`libcudart.so.12`)", "guest/lib/libcudart.so.12", "cudaErrorNotSupported (801)"),
    ("Driver API in the guest (`libcuda.so.1`)", "guest/lib/libcuda.so.1", "CUDA_ERROR_NOT_SUPPORTED (801)"),
];

/// Exported functions of a library and whether each is real.
fn exports(library: &Path) -> Result<BTreeMap<String, bool>> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .output()
        .context("cannot run nm: install binutils")?;
    if !output.status.success() {
        bail!(
            "nm {}: {}: run `cargo xtask build` first",
            library.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let text = String::from_utf8(output.stdout).context("nm printed something other than text")?;
    Ok(text.lines().filter_map(parse_symbol).collect())
}

/// `0000… T cudaMalloc@@libcudart.so.13` → (`cudaMalloc`, real).
fn parse_symbol(line: &str) -> Option<(String, bool)> {
    let mut words = line.split_whitespace().skip(1);
    let kind = words.next()?;
    let name = words.next()?.split('@').next()?;
    let cuda = name.starts_with("cu") || name.starts_with("__cuda");
    match kind {
        "T" if cuda => Some((name.to_owned(), true)),
        "W" if cuda => Some((name.to_owned(), false)),
        _ => None,
    }
}

/// Writes the page; with `check`, fails instead when it differs from what is there.
pub fn run(root: &Path, stack: &Path, check: bool) -> Result<()> {
    let mut page = String::from(
        "# API coverage\n\n\
         Written by `cargo xtask api-coverage` from the symbol tables of the built libraries; do not edit.\n\
         Every name of CUDA 13.0 is exported, and of 12.9 by `libcudart.so.12`. *Real* names are implemented; the others answer the error that\n\
         each section names.\n",
    );
    for (title, path, error) in LIBRARIES {
        let names = exports(&stack.join(path))?;
        let list = |real: bool| {
            names
                .iter()
                .filter(|(_, is)| **is == real)
                .map(|(name, _)| format!("`{name}`"))
                .collect::<Vec<_>>()
        };
        let (real, missing) = (list(true), list(false));
        write!(
            page,
            "\n## {title}\n\n{} of {} names are real.\n\n### Real\n\n{}\n\n### Not supported: {error}\n\n{}\n",
            real.len(),
            names.len(),
            real.join(", "),
            if missing.is_empty() { "None.".to_owned() } else { missing.join(", ") },
        )?;
    }
    let target = root.join("docs/api-coverage.md");
    if check {
        let there = std::fs::read_to_string(&target).unwrap_or_default();
        if there != page {
            bail!("docs/api-coverage.md is out of date: run `cargo xtask api-coverage` and commit it");
        }
        println!("docs/api-coverage.md is up to date");
        return Ok(());
    }
    std::fs::write(&target, page).with_context(|| format!("cannot write {}", target.display()))?;
    println!("wrote {}", target.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_parsed() {
        assert_eq!(
            parse_symbol("0000000000011f00 T cudaMalloc@@libcudart.so.13"),
            Some(("cudaMalloc".into(), true))
        );
        assert_eq!(parse_symbol("0000000000011f00 W cuTexRefCreate"), Some(("cuTexRefCreate".into(), false)));
        assert_eq!(parse_symbol("0000000000000000 A libcudart.so.13@@libcudart.so.13"), None);
        assert_eq!(parse_symbol("                 U malloc"), None);
    }
}
