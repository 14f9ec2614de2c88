// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask instructions`: instructions of the pieces of `tests/bench/micro`, counted by valgrind, which has no
//! noise; an error if one takes more than 10 % more than its limit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::build;
use crate::paths::Paths;
use crate::progress::output_of;
use crate::setup;

/// The program that does the work, and the limits, below the repository.
const PACKAGE: &str = "vhost-cuda-microbench";
const LIMITS: &str = "tests/bench/micro/limits.txt";
/// The number of executions of each piece in the first run, and of the additional ones in the second. The difference
/// excludes the program's start.
const FEW: u64 = 100;
const MORE: u64 = 1000;
/// A piece may take so much more than its limit.
const TOLERANCE: f64 = 0.10;
/// The C library chooses its functions by the processor: the same ones everywhere, please.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM";
const HEAD: &str = "\
# Instructions of one call of each piece of tests/bench/micro. A piece that takes 10 % more fails CI.
# Written by: cargo xtask instructions --update
";

/// The use of the counts.
#[derive(Debug, Args)]
pub struct InstructionsArguments {
    /// Make them the new limits
    #[arg(long)]
    update: bool,
}

/// Counts, prints, compares.
pub fn run(paths: &Paths, arguments: &InstructionsArguments) -> Result<()> {
    setup::valgrind(paths)?;
    let program = build::program(paths, PACKAGE)?;
    let mut counts = BTreeMap::new();
    for name in output_of(&mut Command::new(&program))?.lines() {
        counts.insert(
            name.to_owned(),
            (count(&program, name, FEW + MORE)? - count(&program, name, FEW)?) / MORE as f64,
        );
    }
    let file = paths.root.join(LIMITS);
    if arguments.update {
        return fs::write(&file, to_text(&counts))
            .with_context(|| format!("Cannot write {}", file.display()));
    }
    let limits = fs::read_to_string(&file).with_context(|| format!("Cannot read {}", file.display()))?;
    let (table, too_many) = compare(&counts, &parse(&limits)?);
    print!("{table}");
    if !too_many.is_empty() {
        bail!(
            "More instructions than {:.0} % above the limit: {}. Make them fewer, or say why not and run: \
             cargo xtask instructions --update",
            100.0 * TOLERANCE,
            too_many.join(", ")
        );
    }
    Ok(())
}

/// Instructions of the whole program when it does a piece `times` times.
fn count(program: &Path, name: &str, times: u64) -> Result<f64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let output = valgrind
        .arg(name)
        .arg(times.to_string())
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .context("Cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind {name}: {}: {}", output.status, text.trim());
    }
    collected(&text).with_context(|| format!("valgrind says no count for {name}:\n{text}"))
}

/// The number in `==1== Collected : 123`.
fn collected(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}

fn to_text(counts: &BTreeMap<String, f64>) -> String {
    counts.iter().fold(HEAD.to_owned(), |mut text, (name, count)| {
        writeln!(text, "{name} {count:.1}").expect("writing to a String");
        text
    })
}

fn parse(limits: &str) -> Result<BTreeMap<String, f64>> {
    let lines = limits.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    lines.map(|line| entry(line).with_context(|| format!("{LIMITS}: not `NAME COUNT`: {line}"))).collect()
}

/// Returns a table, and the names of pieces that are too slow or have no limit.
fn compare(counts: &BTreeMap<String, f64>, limits: &BTreeMap<String, f64>) -> (String, Vec<String>) {
    let (mut table, mut too_many) = (String::new(), Vec::new());
    for (name, count) in counts {
        let limit = limits.get(name);
        let change = limit.map(|limit| count / limit - 1.0);
        let shown = change.map_or("no limit".to_owned(), |change| format!("{:+.1} %", 100.0 * change));
        writeln!(table, "{name:28} {count:10.1}  {shown}").expect("writing to a String");
        if change.is_none_or(|change| change > TOLERANCE) {
            too_many.push(name.clone());
        }
    }
    (table, too_many)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(count: f64) -> BTreeMap<String, f64> {
        BTreeMap::from([("encode".to_owned(), count)])
    }

    #[test]
    fn more_than_a_tenth_is_too_many() {
        assert!(compare(&one(109.9), &one(100.0)).1.is_empty());
        assert_eq!(compare(&one(110.2), &one(100.0)).1, ["encode"]);
        assert!(compare(&one(50.0), &one(100.0)).1.is_empty());
        assert_eq!(compare(&one(1.0), &BTreeMap::new()).1, ["encode"]);
    }

    #[test]
    fn limits_are_read_as_they_are_written() -> Result<()> {
        assert_eq!(parse(&to_text(&one(101.5)))?, one(101.5));
        assert!(parse("encode many").is_err());
        Ok(())
    }

    #[test]
    fn valgrind_says_what_it_counted() {
        let text = "==7== Events    : Ir\n==7== Collected : 1234567\n==7== \n";
        assert_eq!(collected(text), Some(1_234_567.0));
        assert_eq!(collected("==7== Terminated"), None);
    }
}
