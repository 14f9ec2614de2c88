// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the lists of names in `protocol/names` into Rust: the error codes, one function that refuses
//! the call for each exported name that no `entries!` table implements, and the table that cuGetProcAddress
//! searches.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let names = root.join("../protocol/names");
    let driver = root.join("src/driver");
    println!("cargo::rerun-if-changed={}", names.display());
    println!("cargo::rerun-if-changed={}", driver.display());
    println!("cargo::rerun-if-changed=build.rs");

    let all = fs::read_to_string(names.join("libcuda.txt"))?;
    let mut implemented = BTreeSet::new();
    collect_entries(&driver, &mut implemented)?;
    let unknown: Vec<_> = implemented.iter().filter(|name| !all.lines().any(|line| line == *name)).collect();
    if !unknown.is_empty() {
        return Err(
            format!("src/driver exports names that protocol/names/libcuda.txt lacks: {unknown:?}").into()
        );
    }
    let refused = fs::read_to_string(names.join("refused.txt"))?;
    fs::write(out.join("not_supported.rs"), not_supported(&all, &implemented, &refused)?)?;
    fs::write(
        out.join("symbols.rs"),
        symbols(&all, &fs::read_to_string(names.join("libcuda-versions.txt"))?)?,
    )?;
    fs::write(out.join("results.rs"), results(&fs::read_to_string(names.join("results.txt"))?)?)?;
    Ok(())
}

/// Finds the rows of the `entries!` tables: lines that begin with one or two exported names and `=>` or `+`.
fn collect_entries(folder: &Path, found: &mut BTreeSet<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_entries(&path, found)?;
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        for line in fs::read_to_string(&path)?.lines() {
            let mut words = line.split_whitespace();
            let Some(first) = words.next().filter(|word| is_name(word)) else { continue };
            match (words.next(), words.next()) {
                (Some("=>"), _) => found.extend([first.to_string()]),
                (Some("+"), Some(second)) => found.extend([first.to_string(), second.to_string()]),
                _ => {}
            }
        }
    }
    Ok(())
}

fn is_name(word: &str) -> bool {
    word.starts_with("cu") && word[2..].starts_with(|c: char| c.is_ascii_uppercase())
}

/// Returns functions with the result in `refused`, or with CUDA_ERROR_NOT_SUPPORTED for any arguments.
fn not_supported(all: &str, implemented: &BTreeSet<String>, refused: &str) -> Result<String, Box<dyn Error>> {
    let known: BTreeMap<_, _> = refused.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut text = String::from("not_supported! {\n");
    for name in all.lines().filter(|name| !implemented.contains(*name)) {
        let (checks, code) = match known.get(name) {
            Some(rule) => rule.rsplit_once(' ').unwrap_or(("", rule)),
            None => ("", "801"),
        };
        let checks = checks.split_whitespace().map(check).collect::<Option<Vec<_>>>();
        let checks = checks.ok_or_else(|| format!("protocol/names/refused.txt: {name}"))?;
        writeln!(text, "    {name} [{}] {code};", checks.join(", "))?;
    }
    text.push_str("}\n");
    Ok(text)
}

/// A check of `refused.txt` as a value of type `Check`.
fn check(rule: &str) -> Option<String> {
    if let Some((argument, code)) = rule.split_once('!') {
        return Some(format!("Check::NotNull({argument}, {code})"));
    }
    if let Some((argument, code)) = rule.split_once('?') {
        return Some(format!("Check::Device({argument}, {code})"));
    }
    if let Some((argument, code)) = rule.split_once('~') {
        return Some(format!("Check::NotZero({argument}, {code})"));
    }
    if let Some((argument, rest)) = rule.split_once('&') {
        let (mask, code) = rest.split_once(':')?;
        return Some(format!("Check::Bits({argument}, {mask}, {code})"));
    }
    let (argument, rest) = rule.split_once('=')?;
    let (values, code) = rest.split_once(':')?;
    Some(format!("Check::OneOf({argument}, &[{values}], {code})"))
}

fn symbols(all: &str, versions: &str) -> Result<String, Box<dyn Error>> {
    let mut text = String::from("unsafe extern \"C\" {\n");
    for name in all.lines() {
        writeln!(text, "    fn {name}();")?;
    }
    text.push_str("}\n/// Sorted by base name, then legacy before per-thread, then version.\n");
    text.push_str("pub(super) static SYMBOLS: &[Symbol] = &[\n");
    for line in versions.lines() {
        let [base, version, name] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(
                format!("protocol/names/libcuda-versions.txt: not `base version name`: {line}").into()
            );
        };
        writeln!(
            text,
            "    Symbol {{ base: \"{base}\", version: {version}, name: \"{name}\", address: {name} }},"
        )?;
    }
    text.push_str("];\n");
    Ok(text)
}

fn results(table: &str) -> Result<String, Box<dyn Error>> {
    let mut text = String::from("results! {\n");
    for line in table.lines() {
        let [code, name, meaning] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            return Err(format!("protocol/names/results.txt: not `code name meaning`: {line}").into());
        };
        writeln!(text, "    {name} = {code}, c\"{name}\", c{meaning:?};")?;
    }
    text.push_str("}\n");
    Ok(text)
}
