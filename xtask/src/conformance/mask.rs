// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removes from an output the parts that differ between two correct runs: times, rates, addresses, names of devices.

use anyhow::{Context, Result};
use regex::Regex;

use super::table::{Program, Suite};

/// The replacement for removed text.
const MASKED: &str = "<masked>";
/// Addresses and names of devices, wherever they are.
const ANYWHERE: [&str; 4] = [
    r"\b0x[0-9a-fA-F]+\b",
    // helper_cuda.h: GPU Device 0: "Hopper" with compute capability 9.0
    r#""[^"\n]*" with compute capability \d+\.\d+"#,
    r"NVIDIA [A-Z][A-Za-z0-9 -]*|vhost-cuda emulated [A-Za-z0-9 ]*|Emulated [A-Za-z0-9 ]*",
    r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b",
];
/// In a line with one of these, all numbers are times or depend on them.
const TIMED: &str = r"(?ix)
    \b(time|times|timer|elapsed|took|bandwidth|throughput|performance|perf|speed|speed-?up|latency|duration|runtime
      |overhead|fps|clocks?|clock\s?ticks|cycles|seconds?|secs?|milliseconds?|microseconds?|msecs?|usecs?|ms|us|ns
      |gflops?|gflop/s|tflops|mflops|kops|mops|iterations?/s)\b
    | /s(ec|econd)?\b | \bper\ssec | \d\s?(ms|us|ns|s)\b | (g|m|k)i?b(yte)?s?/s | _time | time_";
/// With its unit, if that follows at once.
const NUMBER: &str = r"[-+]?\b\d+(\.\d*)?([eE][-+]?\d+)?(ms|us|ns|s)?\b|\b(nan|inf)\b";

/// The masks of one program.
pub struct Mask {
    anywhere: Vec<Regex>,
    timed: Regex,
    number: Regex,
    unordered: bool,
}

impl Mask {
    /// The usual ones, and those of the suite and the program.
    pub fn new(suite: &Suite, program: &Program) -> Result<Self> {
        let own = suite.mask.iter().chain(&program.mask).map(String::as_str);
        let all = ANYWHERE.into_iter().chain(own);
        let compile =
            |pattern| Regex::new(pattern).with_context(|| format!("The mask {pattern} is no pattern"));
        Ok(Self {
            anywhere: all.map(compile).collect::<Result<_>>()?,
            timed: compile(TIMED)?,
            number: compile(NUMBER)?,
            unordered: program.unordered,
        })
    }

    /// The lines of `output` that mean something, masked; in order of the alphabet if their own order means nothing.
    pub fn lines(&self, output: &str) -> Vec<String> {
        let mut lines: Vec<String> = output
            .split(['\n', '\r'])
            .map(|line| self.line(line.trim_end()))
            .filter(|line| !line.is_empty())
            .collect();
        if self.unordered {
            lines.sort();
        }
        lines
    }

    fn line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for pattern in &self.anywhere {
            line = pattern.replace_all(&line, MASKED).into_owned();
        }
        if self.timed.is_match(&line) {
            line = self.number.replace_all(&line, MASKED).into_owned();
        }
        // The padding of a column depends on the length of the masked text.
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(output: &str) -> Vec<String> {
        Mask::new(&Suite::default(), &Program::default()).unwrap().lines(output)
    }

    #[test]
    fn times_rates_addresses_and_names_are_masked() {
        assert_eq!(
            masked("Time= 0.012 msec, Size= 131072000 Ops"),
            ["Time= <masked> msec, Size= <masked> Ops"]
        );
        assert_eq!(masked("matrixMul, Throughput = 2.5e+3 GB/s"), ["matrixMul, Throughput = <masked> GB/s"]);
        assert_eq!(masked("Measured time for sample = 0.060s"), ["Measured time for sample = <masked>"]);
        assert_eq!(masked("pointer 0x7f00dead\n\n"), ["pointer <masked>"]);
        let line = "GPU Device 0: \"Hopper\" with compute capability 9.0";
        assert_eq!(masked(line), ["GPU Device 0: <masked>"]);
    }

    #[test]
    fn results_are_not() {
        for line in ["sum = 4096", "Result = PASS", "max error 1.5e-07 at 17", "1024 items, 32 uses"] {
            assert_eq!(masked(line), [line]);
        }
    }

    #[test]
    fn lines_may_come_in_any_order() {
        let program = Program { unordered: true, mask: vec!["x+".to_owned()], ..Program::default() };
        let mask = Mask::new(&Suite::default(), &program).unwrap();
        assert_eq!(mask.lines("b\na xxx\r\n"), ["a <masked>", "b"]);
    }
}
