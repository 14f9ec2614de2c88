// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that the files, headings, commands and variables in the documents exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::CommandFactory;
use regex::Regex;
use xtask::cli::Cli;

use crate::{files, root};

/// The page that lists the environment variables.
const ENVIRONMENT: &str = "docs/environment.md";
/// The page that lists those of the emulator.
const EMULATOR: &str = "docs/emulator.md";
/// The project's environment variables.
const VARIABLE: &str = "(?:VHOST_CUDA|VIRTIO_CUDA|CUDA_EMULATOR)_[A-Z0-9_]*[A-Z0-9]\\b|UPDATE_GOLDEN";

/// Name and text of each document.
fn pages() -> Result<Vec<(String, String)>> {
    let pages = files(&["*.md"])?;
    ensure!(pages.len() > 20, "Only {} documents were found", pages.len());
    pages.into_iter().map(|page| Ok((page.clone(), fs::read_to_string(root().join(page))?))).collect()
}

/// Fails with all `problems`, if there are any. `checked` is the number of checked items.
fn report(problems: &BTreeSet<String>, checked: usize, least: usize) -> Result<()> {
    ensure!(checked >= least, "Only {checked} items were checked, which used to be at least {least}");
    ensure!(problems.is_empty(), "{}", problems.iter().cloned().collect::<Vec<_>>().join("\n"));
    Ok(())
}

/// The anchor that a forge derives from a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_to_files_and_headings() -> Result<()> {
    let link = Regex::new(r"\]\(([^)\s]*)\)")?;
    let (mut problems, mut checked) = (BTreeSet::new(), 0);
    for (page, text) in pages()? {
        let folder = root().join(&page).parent().context("A document has no folder")?.to_path_buf();
        for target in link.captures_iter(&text).map(|found| found[1].to_owned()) {
            if target.contains("://") {
                continue;
            }
            checked += 1;
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { root().join(&page) } else { folder.join(file) };
            if !file.exists() {
                problems.insert(format!("{page} links to {target}, which does not exist"));
            } else if !heading.is_empty() {
                let there = fs::read_to_string(&file)?;
                let mut headings = there.lines().filter(|line| line.starts_with('#'));
                if !headings.any(|line| anchor(line.trim_start_matches('#')) == heading) {
                    problems.insert(format!("{page} links to {target}, a heading that does not exist"));
                }
            }
        }
    }
    report(&problems, checked, 100)
}

#[test]
fn paths_exist() -> Result<()> {
    let quoted = Regex::new(r"`([^`\s]+)`")?;
    let folders: BTreeSet<String> =
        files(&["*/*"])?.iter().filter_map(|file| Some(file.split_once('/')?.0.to_owned())).collect();
    let (mut problems, mut checked) = (BTreeSet::new(), 0);
    for (page, text) in pages()? {
        for path in quoted.captures_iter(&text).map(|found| found[1].to_owned()) {
            let is_ours = path.split_once('/').is_some_and(|(first, _)| folders.contains(first));
            if !is_ours || path.contains(['*', '…', '<', '$']) || path.contains("NAME") {
                continue;
            }
            checked += 1;
            // `file.rs:12` and `file.rs::test` point into a file.
            let file = path.split(':').next().unwrap_or(&path);
            if !root().join(file).exists() && !root().join(format!("{file}.rs")).exists() {
                problems.insert(format!("{page} names {path}, which does not exist"));
            }
        }
    }
    report(&problems, checked, 80)
}

/// Each crate has a page, and the types in the pages' tables are in the files beside them.
#[test]
fn crates_have_pages_and_their_types_exist() -> Result<()> {
    let (mut problems, mut checked) = (BTreeSet::new(), 0);
    for manifest in files(&["*Cargo.toml"])? {
        let text = fs::read_to_string(root().join(&manifest))?;
        let page = Path::new(&manifest).with_file_name("README.md");
        if text.lines().any(|line| line == "[package]") && !root().join(&page).exists() {
            problems.insert(format!("{} is missing", page.display()));
        }
    }
    let row = Regex::new(r"(?m)^\| `(\w+)` \|[^|]*\| `(\S+\.rs)` \|$")?;
    for (page, text) in pages()? {
        for (_, [name, file]) in row.captures_iter(&text).map(|found| found.extract()) {
            checked += 1;
            let source = fs::read_to_string(root().join(file)).unwrap_or_default();
            let defined = Regex::new(&format!(r"\b(?:struct|enum|trait|type) {name}\b"))?;
            if !defined.is_match(&source) {
                problems.insert(format!("{page}: {file} does not define {name}"));
            }
        }
    }
    report(&problems, checked, 100)
}

#[test]
fn commands_exist() -> Result<()> {
    let command = Regex::new(r"cargo\s+xtask\s+([a-z][a-z-]*)([^`\n|&;#\\]*(?:\\\n[^`\n|&;#]*)*)")?;
    let cli = Cli::command();
    let (mut problems, mut checked) = (BTreeSet::new(), 0);
    for (page, text) in pages()? {
        for found in command.captures_iter(&text) {
            checked += 1;
            let (name, arguments) = (&found[1], found[2].replace('\\', " "));
            let Some(subcommand) = cli.find_subcommand(name) else {
                problems.insert(format!("{page}: cargo xtask has no {name}"));
                continue;
            };
            let mut words = arguments.split_whitespace().take_while(|word| *word != "--").peekable();
            while let Some(word) = words.next() {
                let word = word.trim_start_matches(['[', '(']).trim_end_matches([',', '.', ';', ')', ']']);
                let Some(option) = word.strip_prefix("--") else { continue };
                let (option, value) = match option.split_once('=') {
                    Some((option, value)) => (option, Some(value)),
                    None => (option, words.peek().copied()),
                };
                let Some(argument) =
                    subcommand.get_arguments().find(|known| known.get_long() == Some(option))
                else {
                    if !matches!(option, "help" | "version") {
                        problems.insert(format!("{page}: cargo xtask {name} has no --{option}"));
                    }
                    continue;
                };
                let known: Vec<_> = argument.get_possible_values();
                // Upper-case words and words with dots stand for values.
                let is_value = |value: &&str| value.starts_with(|c: char| c.is_ascii_lowercase());
                let takes_value = argument.get_action().takes_values() && !known.is_empty();
                for value in
                    value.filter(is_value).filter(|_| takes_value).into_iter().flat_map(|v| v.split(','))
                {
                    let value = value.trim_end_matches([',', '.', ';', ')', ']']);
                    if !known.iter().any(|possible| possible.matches(value, false)) {
                        problems
                            .insert(format!("{page}: cargo xtask {name} --{option} has no value {value}"));
                    }
                }
            }
        }
    }
    report(&problems, checked, 60)
}

#[test]
fn variables_are_listed() -> Result<()> {
    let variable = Regex::new(VARIABLE)?;
    let sources: Vec<PathBuf> = files(&["*.rs", "*.c", "*.cu", "*.h", "*.sh", "*.py", ".ci/run"])?
        .into_iter()
        .map(PathBuf::from)
        .collect();
    let sources = xtask::layers::variables::names(&root(), &sources)?;
    let listed = |page: &str| -> Result<BTreeSet<String>> {
        let text = fs::read_to_string(root().join(page))?;
        Ok(variable.find_iter(&text).map(|name| name.as_str().to_owned()).collect())
    };
    let mut documented = listed(ENVIRONMENT)?;
    documented.extend(listed(EMULATOR)?.into_iter().filter(|name| name.starts_with("CUDA_EMULATOR_")));
    let mut problems = BTreeSet::new();
    for name in sources.difference(&documented) {
        problems.insert(format!("{ENVIRONMENT} lacks {name}"));
    }
    for name in documented.difference(&sources) {
        problems.insert(format!("{ENVIRONMENT} names {name}, which nothing reads"));
    }
    report(&problems, sources.len(), 20)
}
