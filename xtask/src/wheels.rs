// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask wheels`: the page of packages that were tried, from `tests/programs/wheels.toml`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Deserialize;

const RESULTS: &str = "tests/programs/wheels.toml";
const PAGE: &str = "docs/wheels.md";
const HEAD: &str = "\
<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->
<!-- Made by `cargo xtask wheels` of tests/programs/wheels.toml. -->
# Packages that were tried

Unmodified wheels, started with `vhost-cuda-run` ([programs](programs.md) has the figures). \"Runs\" means that the package's own work
gives the right results: on a GPU those of the same program natively, on the emulator those of the CPU. \"Loads\" means that it was not
run further. An empty field was not tried. The GPU is an H200 or H100 with driver 580. November 2026.
";

/// The page.
#[derive(Debug, Args)]
pub struct WheelsArguments {
    /// Only fail if the page is not up to date
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Results {
    wheel: Vec<Wheel>,
}

/// A package, or several alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wheel {
    package: String,
    version: String,
    /// Where its CUDA runtime is.
    runtime: String,
    state: State,
    /// What ran on a GPU.
    #[serde(default)]
    gpu: String,
    /// What ran on the emulator.
    #[serde(default)]
    emulator: String,
    /// What ran in a virtual machine, with the emulator.
    #[serde(default)]
    vm: String,
    /// The command behind `cargo xtask`, or `by hand`.
    how: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Runs,
    Loads,
    No,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Loads => "loads",
            Self::No => "no",
        }
    }
}

/// Writes or checks the page.
pub fn run(root: &Path, arguments: &WheelsArguments) -> Result<()> {
    let results = fs::read_to_string(root.join(RESULTS)).with_context(|| format!("Cannot read {RESULTS}"))?;
    let text = page(&results)?;
    if arguments.check {
        ensure!(
            fs::read_to_string(root.join(PAGE)).is_ok_and(|there| there == text),
            "{PAGE} is not what {RESULTS} gives; run: cargo xtask wheels"
        );
        return Ok(());
    }
    fs::write(root.join(PAGE), text).with_context(|| format!("Cannot write {PAGE}"))
}

fn page(results: &str) -> Result<String> {
    let Results { wheel: mut wheels } =
        toml::from_str(results).with_context(|| format!("{RESULTS} cannot be read"))?;
    // Those that run first, in the order of the file.
    wheels.sort_by_key(|wheel| wheel.state);
    let mut counts = BTreeMap::<State, usize>::new();
    for wheel in &wheels {
        *counts.entry(wheel.state).or_default() += 1;
    }
    let mut text = HEAD.to_owned();
    let counts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {}", state.text())).collect();
    writeln!(text, "\nOf {} rows: {}.\n", wheels.len(), counts.join(", "))?;
    writeln!(
        text,
        "| package | version | CUDA runtime | state | on a GPU | on the emulator | in a VM without a GPU | how |"
    )?;
    writeln!(text, "| --- | --- | --- | --- | --- | --- | --- | --- |")?;
    for Wheel { package, version, runtime, state, gpu, emulator, vm, how } in &wheels {
        let how = if how.starts_with("programs ") { format!("`cargo xtask {how}`") } else { how.clone() };
        writeln!(
            text,
            "| {package} | {version} | {runtime} | {} | {gpu} | {emulator} | {vm} | {how} |",
            state.text()
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_row_for_each_package() {
        let results = "[[wheel]]\npackage = \"b\"\nversion = \"1\"\nruntime = \"static\"\nstate = \"loads\"\nhow = \"by hand\"\n\
                       [[wheel]]\npackage = \"a\"\nversion = \"2\"\nruntime = \"shared\"\nstate = \"runs\"\ngpu = \"runs\"\n\
                       how = \"programs --only a\"\n";
        let page = page(results).expect("results");
        assert!(page.contains("Of 2 rows: 1 runs, 1 loads.\n"), "{page}");
        let rows: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| a") || line.starts_with("| b")).collect();
        assert_eq!(
            rows,
            [
                "| a | 2 | shared | runs | runs |  |  | `cargo xtask programs --only a` |",
                "| b | 1 | static | loads |  |  |  | by hand |"
            ]
        );
        assert!(super::page("[[wheel]]\npackage = \"c\"\n").is_err());
    }

    /// The page is the file's, and the commands name programs that there are.
    #[test]
    fn the_page_is_up_to_date() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository");
        run(root, &WheelsArguments { check: true }).expect("the page is up to date");
        let text = fs::read_to_string(root.join(RESULTS)).expect("the results");
        let Results { wheel: wheels } = toml::from_str(&text).expect("results");
        for how in wheels.iter().filter_map(|wheel| wheel.how.strip_prefix("programs --only ")) {
            let names: Vec<String> = how.split(',').map(str::to_owned).collect();
            crate::programs::programs(&names).unwrap_or_else(|error| panic!("{how}: {error:#}"));
        }
    }
}
