// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Compares the output of a program with the table.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail, ensure};

use crate::cases::{Case, Stdout};
use crate::daemon::is_emulated;
use crate::running::Outcome;
use crate::stack::{Device, Way};

/// The party that answered a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// The emulator, without our driver library.
    EmulatorAlone,
    /// Our driver library, with the emulator behind it.
    EmulatedDevice,
    /// Our driver library with a GPU behind it, or NVIDIA's.
    Gpu,
}

impl Answering {
    /// The party that answers on `way`.
    pub fn on(way: Way) -> Self {
        match (way, way.device()) {
            (Way::Emulator, _) => Self::EmulatorAlone,
            (_, Device::Emulated) => Self::EmulatedDevice,
            (_, Device::Native) => Self::Gpu,
        }
    }

    /// The party that answers through the daemons of the tests.
    pub fn behind_daemons() -> Self {
        if is_emulated() { Self::EmulatedDevice } else { Self::Gpu }
    }
}

/// Compares how a run of `case` ended and what it printed with what the table expects.
pub fn check(case: &Case, outcome: &Outcome, answering: Answering) -> Result<()> {
    outcome.expect_exit(case.exit)?;
    let alone = answering == Answering::EmulatorAlone;
    let any = case.stdout == Stdout::OfDevice || (alone && case.stdout == Stdout::BadInputOfLibrary);
    if !any {
        let name = format!("tests/expected/{}.txt", case.name);
        let expected = case.expected_stdout().with_context(|| format!("There is no {name}"))?;
        if matches!(case.stdout, Stdout::BadInput | Stdout::BadInputOfLibrary) {
            let known = known_differences(case.name, answering);
            let differences = other_answers(expected, &outcome.stdout, &known);
            let count = differences.len();
            ensure!(count == 0, "{count} answers are not those of {name}:\n{}", differences.join("\n"));
        } else if outcome.stdout != expected {
            let difference = first_difference(expected, &outcome.stdout);
            bail!("stdout is not {name}: {difference}\n{outcome}");
        }
    }
    for text in case.stderr_has {
        ensure!(outcome.stderr.contains(text), "`{text}` is missing in stderr\n{outcome}");
    }
    Ok(())
}

/// The calls of a program of bad arguments whose answers are known to be others than NVIDIA's: a reason and its lines
/// `PROGRAM CALL` for each.
const DIFFERENT: &str = include_str!("../expected/bad_input_different.txt");
/// The same for calls that are answered otherwise by the emulated device only.
const DIFFERENT_EMULATED: &str = include_str!("../expected/bad_input_different_emulated.txt");

/// The calls of `program` in those lists.
fn known_differences(program: &str, answering: Answering) -> HashSet<&'static str> {
    let emulated = if answering == Answering::Gpu { "" } else { DIFFERENT_EMULATED };
    let lines = DIFFERENT.lines().chain(emulated.lines()).filter(|line| !line.starts_with('#'));
    let of_program = |line: &'static str| line.strip_prefix(program)?.strip_prefix(' ');
    lines.filter_map(of_program).collect()
}

/// Lines `call -> answer` whose answers differ, and calls that were not made. Where a crash is expected, or another
/// answer is known, any answer but a crash is right.
fn other_answers(expected: &str, seen: &str, known: &HashSet<&str>) -> Vec<String> {
    let answers = |text: &str| -> HashMap<String, String> {
        let lines = text.lines().filter_map(|line| line.split_once(" -> "));
        lines.map(|(call, answer)| (call.to_owned(), answer.to_owned())).collect()
    };
    let is_answer = |answer: &str| answer.parse::<i64>().is_ok();
    // The program's own memory is not there: reading it ends the program, natively, too.
    let may_crash = |call: &str, answer: &str| is_nowhere(call) && answer == "crash";
    let seen = answers(seen);
    let lines = expected.lines().filter_map(|line| line.split_once(" -> "));
    let differs = lines.filter_map(|(call, expected)| {
        let answer = seen.get(call).map_or("no such call", String::as_str);
        let exact = is_answer(expected) && !known.contains(call);
        let both_crash = !exact && may_crash(call, answer);
        let right = if exact { answer == expected } else { is_answer(answer) || both_crash };
        (!right).then(|| format!("{call}: expected {expected}, got {answer}"))
    });
    differs.collect()
}

/// Returns whether a call passes an address without memory where memory of the program is required.
pub fn is_nowhere(call: &str) -> bool {
    call.ends_with(" unmapped") || call.ends_with(" reserved")
}

fn first_difference(expected: &str, seen: &str) -> String {
    let mut seen = seen.lines();
    for (number, line) in expected.lines().enumerate() {
        match seen.next() {
            Some(other) if other == line => {}
            other => return format!("line {}: expected `{line}`, got {other:?}", number + 1),
        }
    }
    match seen.next() {
        Some(line) => format!("more than expected: `{line}`"),
        None => "the same lines, but not the same bytes".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{CASES, MANAGEMENT};

    #[test]
    fn an_expected_crash_is_any_answer_but_a_crash() {
        let expected = "a 0 null -> 1\na 1 forged -> crash\na 2 null -> 400\n3 calls\n";
        let none = HashSet::new();
        let good = "a 0 null -> 1\na 1 forged -> 400\na 2 null -> 400\n";
        assert!(other_answers(expected, good, &none).is_empty());
        let differences = other_answers(expected, "a 0 null -> 2\na 1 forged -> crash\n", &none);
        assert_eq!(differences.len(), 3, "{differences:?}");
        let known = HashSet::from(["a 0 null", "a 2 null"]);
        let differences =
            other_answers(expected, "a 0 null -> 2\na 1 forged -> 1\na 2 null -> hang\n", &known);
        assert_eq!(differences.len(), 1, "{differences:?}");
        let (crash, answer) = ("cuMemcpy to unmapped -> crash\n", "cuMemcpy to unmapped -> 1\n");
        assert!(other_answers(crash, crash, &none).is_empty());
        assert_eq!(other_answers(answer, crash, &none).len(), 1);
    }

    #[test]
    fn known_differences_are_lines_of_tables() {
        for text in [DIFFERENT, DIFFERENT_EMULATED] {
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let (program, call) = line.split_once(' ').unwrap();
                let of = CASES.iter().chain([&MANAGEMENT]).find(|case| case.name == program).unwrap();
                let expected = of.expected_stdout().unwrap();
                let line = format!("{call} -> ");
                assert!(expected.lines().any(|expected| expected.starts_with(&line)), "{program} {call}");
            }
        }
        let of_gpu = known_differences("bad_input_addresses", Answering::Gpu);
        assert!(of_gpu.len() < known_differences("bad_input_addresses", Answering::EmulatedDevice).len());
    }

    #[test]
    fn differences_are_named() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), "line 2: expected `b`, got Some(\"c\")");
        assert_eq!(first_difference("a\nb\n", "a\n"), "line 2: expected `b`, got None");
        assert_eq!(first_difference("a\n", "a\nb\n"), "more than expected: `b`");
        assert_eq!(first_difference("a\n", "a"), "the same lines, but not the same bytes");
    }
}
