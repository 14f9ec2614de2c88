// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that the files and tests in the tables of the threat model and of the support tiers exist.

use std::fs;

use anyhow::{Context, Result, ensure};
use regex::Regex;

use crate::{files, root};

const PAGE: &str = "docs/threat-model.md";
/// The page whose tables name features and their tests.
const TIERS: &str = "docs/tiers.md";
/// The folders of the paths in the table that do not begin at the repository's root.
const FOLDERS: [&str; 2] = ["vhost-cuda/src", "vhost-cuda"];
/// The levels of `cargo xtask test` whose tests register themselves with a name.
const LEVELS: [&str; 5] = ["conformance", "hostile", "integration", "timeline", "vm"];
/// The prefix of the driver's own tests in C.
const SELFTEST: &str = "selftest";
/// The table has at least this number of rows.
const ROWS: usize = 30;

/// Paths and texts of the files with this ending.
fn texts(ending: &str) -> Result<Vec<(String, String)>> {
    let read = |path: String| fs::read_to_string(root().join(&path)).map(|text| (path, text));
    Ok(files(&[&format!("*.{ending}")])?.into_iter().map(read).collect::<Result<_, _>>()?)
}

struct Tests {
    rust: Vec<(String, String)>,
    c: Vec<(String, String)>,
}

impl Tests {
    /// Returns whether there is a test of this name, as the table spells it.
    fn has(&self, name: &str) -> Result<bool> {
        let Some((first, rest)) = name.split_once("::") else { return self.has_fuzz_target(name) };
        if first == SELFTEST {
            let function = format!("\nvoid {rest}(void)\n{{");
            return Ok(self.c.iter().any(|(_, text)| text.contains(&function)));
        }
        if LEVELS.contains(&first) { self.has_registered(first, rest) } else { self.has_unit(name) }
    }

    /// A test of a level has its name in a literal, perhaps with variable parts.
    fn has_registered(&self, level: &str, name: &str) -> Result<bool> {
        let (file, folder) = (format!("tests/tests/{level}.rs"), format!("tests/tests/{level}/"));
        let literal = Regex::new(r#""([a-z][a-z0-9_:{}]*)""#)?;
        let part = Regex::new(r"\\\{[a-z_]*\\\}")?;
        for (_, text) in self.rust.iter().filter(|(path, _)| *path == file || path.starts_with(&folder)) {
            for found in literal.captures_iter(text) {
                let pattern = part.replace_all(&regex::escape(&found[1]), "[a-z0-9_]+").into_owned();
                // A name of variable parts alone says nothing.
                if pattern.starts_with(|c: char| c.is_ascii_lowercase())
                    && Regex::new(&format!("^(?:{pattern})$"))?.is_match(name)
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// A unit test is a function with the attribute, in the file of its module.
    fn has_unit(&self, name: &str) -> Result<bool> {
        let mut modules: Vec<&str> = name.split("::").collect();
        let function = modules.pop().context("a name")?;
        modules.retain(|module| *module != "tests");
        let module = modules.join("/");
        let test = Regex::new(&format!(r"#\[test\]\n(?:\s*#\[[^\n]*\n)*\s*fn {function}\("))?;
        let in_module = |path: &str| {
            // The modules of a crate come behind the name of its folder.
            let path = path.replace("/src/", "/");
            let file = path.trim_end_matches(".rs").trim_end_matches("/mod");
            let beside = file.trim_end_matches("_test").trim_end_matches("_fuzz").trim_end_matches("/tests");
            [file, beside].iter().any(|path| path.ends_with(&format!("/{module}")))
        };
        Ok(self.rust.iter().any(|(path, text)| in_module(path) && test.is_match(text)))
    }

    fn has_fuzz_target(&self, name: &str) -> Result<bool> {
        let targets = self.rust.iter().find(|(path, _)| path == "tests/fuzz/src/targets.rs");
        let (_, text) = targets.context("tests/fuzz/src/targets.rs has gone")?;
        Ok(text.contains(&format!("\"{name}\"")))
    }
}

#[test]
fn files_and_tests_of_the_table_exist() -> Result<()> {
    let text = fs::read_to_string(root().join(PAGE))?;
    let tests = Tests { rust: texts("rs")?, c: texts("c")? };
    let quoted = Regex::new("`([^`]+)`")?;
    let (mut problems, mut rows) = (Vec::new(), 0);
    let table = text.lines().skip_while(|line| !line.starts_with("| against |")).skip(2);
    for row in table.take_while(|line| line.starts_with('|')) {
        rows += 1;
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [_, defence, places, shown] = cells[..] else {
            problems.push(format!("not four cells: {row}"));
            continue;
        };
        let names =
            |cell: &str| quoted.captures_iter(cell).map(|found| found[1].to_owned()).collect::<Vec<_>>();
        for place in names(places) {
            let is_in = |folder: &str| root().join(folder).join(&place).exists();
            if !is_in("") && !FOLDERS.into_iter().any(is_in) {
                problems.push(format!("{place} does not exist:{defence}"));
            }
        }
        if names(shown).is_empty() {
            problems.push(format!("no test:{defence}"));
        }
        for test in names(shown) {
            if !tests.has(&test)? {
                problems.push(format!("{test} does not exist:{defence}"));
            }
        }
    }
    ensure!(rows >= ROWS, "The table has {rows} rows, and used to have at least {ROWS}");
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn tests_of_tiers_exist() -> Result<()> {
    let text = fs::read_to_string(root().join(TIERS))?;
    let tests = Tests { rust: texts("rs")?, c: texts("c")? };
    let quoted = Regex::new("`([a-z_]+(?:::[a-z0-9_]+)+)`")?;
    let (mut problems, mut checked) = (Vec::new(), 0);
    for found in quoted.captures_iter(&text) {
        checked += 1;
        if !tests.has(&found[1])? {
            problems.push(format!("{} does not exist", &found[1]));
        }
    }
    ensure!(checked >= 20, "{TIERS} names {checked} tests, which used to be at least 20");
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}
