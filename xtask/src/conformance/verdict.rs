// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides if a run was right.

use anyhow::{Context, Result};
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::execute::Outcome;
use super::mask::Mask;
use super::table::{Program, Suite};
use crate::process;

/// The status with which NVIDIA's samples report that the device does not support them.
const WAIVED: i32 = 2;
/// Output of samples with a wrong result, whatever their exit status is.
const USUAL_FAILURES: [&str; 3] =
    [r"(?i)\btests?:? failed", r"(?i)result = fail", r"(?i)^error!? .*mismatch|^CUDA error"];
/// Characters of a line that a reason shows.
const SHOWN: usize = 160;

/// The verdict on a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was; where there is a native run, it was the same.
    Passed,
    /// It reports that the device does not support it.
    Waived(String),
    /// It was not, for a reason that the table has.
    Known(String),
    /// It was not, and why.
    Failed(String),
    /// It did not run, and why.
    Skipped(String),
}

/// Judges the runs of one program.
pub struct Judge {
    mask: Mask,
    failures: Vec<Regex>,
    status_only: bool,
    exit: i32,
}

impl Judge {
    /// A judge for `program`.
    pub fn new(suite: &Suite, program: &Program) -> Result<Self> {
        let patterns = USUAL_FAILURES.into_iter().chain(suite.fail.iter().map(String::as_str));
        let compile = |pattern| {
            Regex::new(&format!("(?m){pattern}")).with_context(|| format!("{pattern} is no pattern"))
        };
        Ok(Self {
            mask: Mask::new(suite, program)?,
            failures: patterns.map(compile).collect::<Result<_>>()?,
            status_only: program.status_only.is_some(),
            exit: program.exit,
        })
    }

    /// Judges a run without a comparison.
    pub fn alone(&self, run: &Outcome) -> Verdict {
        match run.status {
            None => Verdict::Failed(took_too_long(run)),
            Some(status) if status == self.exit => match self.complaint(run) {
                Some(line) if !self.status_only => Verdict::Failed(line),
                _ => Verdict::Passed,
            },
            Some(WAIVED) => Verdict::Waived(last_line(run)),
            Some(status) => Verdict::Failed(ended(status, run)),
        }
    }

    /// Judges a run beside those of the same program on the GPU with NVIDIA's libraries.
    pub fn beside(&self, run: &Outcome, native: &[Outcome]) -> Verdict {
        let Some(first) = native.first() else { return self.alone(run) };
        let Some(expected) = first.status else { return self.alone(run) };
        match run.status {
            None => return Verdict::Failed(took_too_long(run)),
            Some(status) if status != expected => {
                return Verdict::Failed(format!("{}; natively {expected}", ended(status, run)));
            }
            Some(_) => {}
        }
        if self.status_only {
            return Verdict::Passed;
        }
        match self.difference(run, native) {
            Some(difference) => Verdict::Failed(difference),
            None => Verdict::Passed,
        }
    }

    /// The first line that is not as in all native runs; a line that differs among those is not compared.
    fn difference(&self, run: &Outcome, native: &[Outcome]) -> Option<String> {
        let lines = self.mask.lines(&run.stdout);
        let native: Vec<_> = native.iter().map(|run| self.mask.lines(&run.stdout)).collect();
        let first = native.first()?;
        if native.iter().any(|other| other.len() != first.len()) {
            // The number of printed lines is random.
            return self.complaint(run);
        }
        for (index, expected) in first.iter().enumerate() {
            let stable = native.iter().all(|other| other[index] == *expected);
            match lines.get(index) {
                Some(line) if line == expected || !stable => {}
                Some(line) => return Some(format!("`{}`; natively `{}`", shown(line), shown(expected))),
                None => return Some(format!("ends before `{}`", shown(expected))),
            }
        }
        lines.get(first.len()).map(|line| format!("also prints `{}`", shown(line)))
    }

    /// Returns the line in which the program reports an error.
    fn complaint(&self, run: &Outcome) -> Option<String> {
        let texts = [&run.stdout, &run.stderr];
        let found = texts.iter().find_map(|text| {
            text.lines().find(|line| self.failures.iter().any(|failure| failure.is_match(line)))
        });
        found.map(|line| format!("prints `{}`", shown(line.trim())))
    }
}

fn took_too_long(run: &Outcome) -> String {
    format!("not finished after {} s", run.milliseconds / 1000)
}

fn ended(status: i32, run: &Outcome) -> String {
    let how = match status {
        134 => "abort".to_owned(),
        136 => "arithmetic exception".to_owned(),
        139 => "segmentation fault".to_owned(),
        _ => format!("status {status}"),
    };
    match last_line(run) {
        line if line.is_empty() => how,
        line => format!("{how}: `{line}`"),
    }
}

/// The last line of its output, preferably of standard error.
fn last_line(run: &Outcome) -> String {
    let last = |text: &str| process::last_line(text).map(shown);
    last(&run.stderr).or_else(|| last(&run.stdout)).unwrap_or_default()
}

/// The start of a line, without the folders in it and what would disturb a table.
fn shown(line: &str) -> String {
    let without_folders = |word: &str| match word.rsplit_once('/') {
        Some((_, file)) if word.starts_with('/') => file.to_owned(),
        _ => word.to_owned(),
    };
    let words: Vec<String> = line.split_whitespace().map(without_folders).collect();
    let clean = words.join(" ").replace('|', "/").replace('`', "'");
    clean.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(status: i32, stdout: &str) -> Outcome {
        Outcome { status: Some(status), stdout: stdout.to_owned(), ..Outcome::default() }
    }

    fn judge(program: Program) -> Judge {
        Judge::new(&Suite::default(), &program).unwrap()
    }

    fn is_failed(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Failed(_))
    }

    #[test]
    fn alone_the_programs_own_word_counts() {
        let judge = judge(Program::default());
        assert_eq!(judge.alone(&run(0, "fine\n")), Verdict::Passed);
        assert!(is_failed(&judge.alone(&run(0, "Test FAILED!\n"))));
        assert!(is_failed(&judge.alone(&run(1, "fine\n"))));
        assert!(is_failed(&judge.alone(&Outcome::default())));
        assert_eq!(judge.alone(&run(2, "Waiving test\n")), Verdict::Waived("Waiving test".to_owned()));
    }

    #[test]
    fn beside_native_the_output_counts() {
        let judge = judge(Program::default());
        let native = [run(0, "sum 1\nrandom 5\ntime 3 ms\n"), run(0, "sum 1\nrandom 6\ntime 4 ms\n")];
        assert_eq!(judge.beside(&run(0, "sum 1\nrandom 7\ntime 9 ms\n"), &native), Verdict::Passed);
        assert!(is_failed(&judge.beside(&run(0, "sum 2\nrandom 5\ntime 3 ms\n"), &native)));
        assert!(is_failed(&judge.beside(&run(0, "sum 1\nrandom 5\n"), &native)));
        assert!(is_failed(&judge.beside(&run(0, "sum 1\nrandom 5\ntime 3 ms\nmore\n"), &native)));
        assert!(is_failed(&judge.beside(&run(1, "sum 1\nrandom 5\ntime 3 ms\n"), &native)));
    }

    #[test]
    fn what_fails_natively_may_fail() {
        let judge = judge(Program::default());
        let native = [run(1, "no such device\n")];
        assert_eq!(judge.beside(&run(1, "no such device\n"), &native), Verdict::Passed);
        assert!(is_failed(&judge.beside(&run(0, "no such device\n"), &native)));
    }

    #[test]
    fn a_reason_shows_what_is_telling() {
        let verdict = judge(Program::default()).alone(&run(1, "error at /long/path/a.cu:7 | code=1\n"));
        assert_eq!(verdict, Verdict::Failed("status 1: `error at a.cu:7 / code=1`".to_owned()));
    }

    #[test]
    fn some_outputs_are_not_compared() {
        let judge = judge(Program { status_only: Some("device".to_owned()), ..Program::default() });
        assert_eq!(
            judge.beside(&run(0, "66 multiprocessors\n"), &[run(0, "132 multiprocessors\n")]),
            Verdict::Passed
        );
        assert!(is_failed(&judge.beside(&run(1, "fine\n"), &[run(0, "fine\n")])));
    }
}
