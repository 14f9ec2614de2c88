// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts how often the functions of the driver API are spelled, which is the cost of a new call.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use cuda_api_description::calls::{Area, areas};
use regex::Regex;

use super::files::GENERATED;

/// Lists that spell functions of the driver API: title, folders or files, and the pattern of one name.
const LISTS: [(&str, &[&str], &str); 6] = [
    ("prototypes", &["protocol/cuda-abi/src/prototypes"], r"\bfn (cu[A-Z]\w*)\b"),
    ("worker's functions", &["vhost-cuda/worker/src/gpu"], r"(?m)^ *(?:un)?safe (cu[A-Z]\w*) \["),
    ("worker's handlers", &["vhost-cuda/worker/src/handlers"], r"\bfn (cu[A-Z]\w*)\b"),
    ("libcuda", &["guest-lib/libcuda/src"], r"(?m)^ *\w+ (cu[A-Z]\w*)(?: / \w+)? *\("),
    ("libcudart", &["guest-lib/libcudart/src"], r"\bfn (cu[A-Z]\w*)\b"),
    ("emulator", &["cuda-emulator/src/driver"], r"(?m)^ *(cu[A-Z]\w*)(?: \+ \w+)* =>"),
];

/// The folders and files of the worker's half of the API.
const WORKER: [&str; 6] = ["handlers", "words", "gpu", "objects", "call/resolve.rs", "dispatch"];

/// The beginning of the tests of a file.
const TESTS: &str = "#[cfg(test)]\nmod tests {\n";

/// Prints the counts.
pub fn print(root: &Path, sources: &[PathBuf]) -> Result<()> {
    let mut texts = Vec::new();
    for file in sources.iter().filter(|file| !file.starts_with("tests")) {
        let text = fs::read_to_string(root.join(file))?;
        if !text.contains(GENERATED) {
            texts.push((file.as_path(), without_comments(&text)));
        }
    }
    let definition = Regex::new(r"(?m)^ *macro_rules! \w+ \{$")?;
    let macros = texts.iter().map(|(file, text)| (file, definition.find_iter(text).count()));
    let (emulator, others): (Vec<_>, Vec<_>) =
        macros.partition(|(file, _)| file.starts_with("cuda-emulator"));
    let sum = |counts: &[(_, usize)]| counts.iter().map(|(_, count)| count).sum::<usize>();
    println!("macros: {} in the emulator, {} elsewhere", sum(&emulator), sum(&others));
    let areas = areas(root)?;
    let (kinds, plain) = rows(&areas);
    let total: usize = kinds.values().sum();
    let each: Vec<_> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    println!("call table: {total} rows: {}", each.join(", "));
    let by_hand = kinds.get("custom").copied().unwrap_or(0);
    println!("rows without a handler by hand: {} %", (total - by_hand) * 100 / total.max(1));
    let worker: Vec<String> = WORKER.iter().map(|part| format!("vhost-cuda/worker/src/{part}")).collect();
    let (product, tests) = files_below(&texts, &worker)
        .map(lines_by_use)
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!("lines by hand of the worker's half of the API: {product}, and {tests} of its tests");
    let mut spelled = BTreeMap::<String, usize>::new();
    for row in areas.iter().flat_map(|area| &area.rows).filter(|row| row.name.starts_with("cu")) {
        *spelled.entry(row.name.clone()).or_default() += 1;
    }
    println!("driver functions in rows: {}", spelled.len());
    for (title, folders, pattern) in LISTS {
        let names = names(below(&texts, folders), &Regex::new(pattern)?);
        println!("driver functions in {title}: {}", names.len());
        names.into_iter().for_each(|name| *spelled.entry(name).or_default() += 1);
    }
    let spellings: usize = spelled.values().sum();
    println!(
        "driver functions: {}, spelled {spellings} times, {:.1} each",
        spelled.len(),
        spellings as f64 / spelled.len().max(1) as f64
    );
    let mut counts: Vec<_> = plain.iter().map(|name| files_with(&texts, name)).collect();
    counts.sort_unstable();
    if let (Some(median), Some(most)) = (counts.get(counts.len() / 2), counts.last()) {
        println!(
            "sources by hand that name a plain call, beside its row: {median} (median of {}), at most {most}",
            counts.len()
        );
    }
    Ok(())
}

/// The number of rows by kind, and the names of plain calls: `forward`, with an `entry` clause.
fn rows(areas: &[Area]) -> (BTreeMap<&str, usize>, Vec<&str>) {
    let mut kinds = BTreeMap::new();
    let mut plain = Vec::new();
    for row in areas.iter().flat_map(|area| &area.rows) {
        *kinds.entry(row.kind.as_str()).or_default() += 1;
        if row.kind == "forward" && row.entry.is_some() {
            plain.push(row.name.as_str());
        }
    }
    (kinds, plain)
}

/// The files below `folders`, with their texts.
fn files_below<'t>(
    texts: &'t [(&Path, String)],
    folders: &[impl AsRef<Path>],
) -> impl Iterator<Item = &'t (&'t Path, String)> {
    texts.iter().filter(move |(file, _)| folders.iter().any(|folder| file.starts_with(folder.as_ref())))
}

/// The texts of the files below `folders`.
fn below<'t>(texts: &'t [(&Path, String)], folders: &[impl AsRef<Path>]) -> impl Iterator<Item = &'t str> {
    files_below(texts, folders).map(|(_, text)| text.as_str())
}

/// The numbers of lines of the product and of its tests: a file `…_test.rs` has tests only, others end with theirs.
fn lines_by_use((file, text): &(&Path, String)) -> (usize, usize) {
    let all = text.lines().count();
    let is_test = file.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("_test"));
    let product = text.split_once(TESTS).map_or(all, |(before, _)| before.lines().count());
    if is_test { (0, all) } else { (product, all - product) }
}

fn names<'t>(texts: impl Iterator<Item = &'t str>, pattern: &Regex) -> BTreeSet<String> {
    texts.flat_map(|text| pattern.captures_iter(text)).map(|found| found[1].to_owned()).collect()
}

/// The number of files that have `name` as a word.
fn files_with(texts: &[(&Path, String)], name: &str) -> usize {
    let word = Regex::new(&format!(r"\b{}\b", regex::escape(name))).expect("a pattern");
    texts.iter().filter(|(_, text)| word.is_match(text)).count()
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).fold(
        String::with_capacity(text.len()),
        |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_by_list() {
        let found = |list: usize, text: &str| -> Vec<String> {
            let pattern = Regex::new(LISTS[list].2).unwrap();
            names(std::iter::once(text), &pattern).into_iter().collect()
        };
        assert_eq!(found(0, "fn cuOne(a: c_uint);"), ["cuOne"]);
        assert_eq!(
            found(1, "    safe cuOne [] (a: c_uint) [];\n    unsafe cuTwo [] () [];"),
            ["cuOne", "cuTwo"]
        );
        assert_eq!(found(2, "pub fn cuOne(\n    cx: &mut CallContext<'_>,\n"), ["cuOne"]);
        assert_eq!(
            found(3, "    call cuOne / cuOne_ptsz (api, a: u32) {\n        calls::cuTwo(&mut call)?"),
            ["cuOne"]
        );
        assert_eq!(found(4, "fn cuOne(a: c_uint);"), ["cuOne"]);
        assert_eq!(found(5, "    cuOne + cuOne_ptsz => one(a: u32);"), ["cuOne"]);
    }

    #[test]
    fn lines_of_tests_are_not_the_products() {
        let text = "fn one() {}\n\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\n".to_owned();
        assert_eq!(lines_by_use(&(Path::new("a.rs"), text.clone())), (2, 4));
        assert_eq!(lines_by_use(&(Path::new("a_test.rs"), text)), (0, 6));
    }

    #[test]
    fn files_that_name_a_call() {
        let texts =
            [(Path::new("a.rs"), "cuOne(1)".to_owned()), (Path::new("b.rs"), "cuOne_ptsz".to_owned())];
        assert_eq!(files_with(&texts, "cuOne"), 1);
    }
}
