// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the result of each test from the output of its program.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

/// The result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It passed, or failed as its author expects.
    Passed,
    /// It failed.
    Failed,
    /// It reports that it does not apply.
    Skipped,
    /// The program ended before the test did.
    Unfinished,
}

/// Verdicts by test.
pub type Verdicts = BTreeMap<String, Verdict>;

static RUST: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^test (\S+)(?: - should panic)? \.\.\. (\w+)"));
static PYTEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?m)^\S*?::(\S.*?)(?: (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b.*)?$"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("is a regular expression")
}

/// Parses the output of a cargo test program.
pub fn of_rust(text: &str) -> Verdicts {
    let verdict = |word: &str| match word {
        "ok" => Verdict::Passed,
        "ignored" => Verdict::Skipped,
        _ => Verdict::Failed,
    };
    RUST.captures_iter(text).map(|found| (found[1].to_owned(), verdict(&found[2]))).collect()
}

/// Parses the output of `pytest -v` for one file, whose name without `.py` is `stem`.
pub fn of_pytest(text: &str, stem: &str) -> Verdicts {
    // After these headings names of tests appear without a verdict.
    let run = text.split("= FAILURES =").next().unwrap_or_default();
    let run = run.split("= ERRORS =").next().unwrap_or_default();
    let run = run.split("short test summary info").next().unwrap_or_default();
    let mut verdicts = Verdicts::new();
    for found in PYTEST.captures_iter(run) {
        let name = format!("{stem}::{}", found[1].trim_end());
        let verdict = match found.get(2).map(|word| word.as_str()) {
            Some("PASSED" | "XFAIL" | "XPASS") => Verdict::Passed,
            Some("SKIPPED") => Verdict::Skipped,
            Some(_) => Verdict::Failed,
            None if verdicts.contains_key(&name) || name.contains(" SUB") => continue,
            None => Verdict::Unfinished,
        };
        // A failing teardown of a passed test counts.
        if verdicts.get(&name) != Some(&Verdict::Failed) {
            verdicts.insert(name, verdict);
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust() {
        let text = "running 4 tests\ntest a::b ... ok\ntest a::c - should panic ... ok\ntest d ... FAILED\n\
                    test e ... ignored, must be alone\n";
        let verdicts = of_rust(text);
        assert_eq!(verdicts.len(), 4);
        assert_eq!((verdicts["a::c"], verdicts["d"]), (Verdict::Passed, Verdict::Failed));
        assert_eq!(verdicts["e"], Verdict::Skipped);
    }

    #[test]
    fn pytest() {
        let text = "collected 5 items\n\n::TestA::test_one PASSED   [ 20%]\n::TestA::test_two[x y] FAILED [ 40%]\n\
                    x/test_z.py::test_three SUBPASSED [ 60%]\nx/test_z.py::test_three SKIPPED (no) [ 60%]\n\
                    ::test_four PASSED [ 80%]\n::test_four ERROR [ 80%]\n::test_five \nFatal Python error\n";
        let verdicts = of_pytest(text, "test_z");
        let of = |name: &str| verdicts[&format!("test_z::{name}")];
        assert_eq!((of("TestA::test_one"), of("TestA::test_two[x y]")), (Verdict::Passed, Verdict::Failed));
        assert_eq!((of("test_three"), of("test_four")), (Verdict::Skipped, Verdict::Failed));
        assert_eq!(of("test_five"), Verdict::Unfinished);
        assert_eq!(verdicts.len(), 5);
    }
}
