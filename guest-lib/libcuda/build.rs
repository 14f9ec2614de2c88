// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Generates from the lists in `protocol/names`: every name of the driver API (see the crate `cuda-absent-names`), and the tables of
//! names, refusals, states and results.

use std::fmt::Write as _;

use cuda_absent_names::build::{Binding, define, read, refusals, write};

const NAMES: &str = "../../protocol/names/libcuda.txt";
const REFUSED: &str = "../../protocol/names/refused.txt";
const STATES: &str = "../../protocol/names/states.txt";
const RESULTS: &str = "../../protocol/names/results.txt";

fn main() {
    let (names, table) = (read(NAMES), read(STATES));
    let names = || names.lines().filter(|line| !line.is_empty());
    define("virtio_cuda_absent", Binding::Weak, names());
    write("refusals.rs", &refusals(names(), &read(REFUSED)));
    write("functions.rs", &functions(names()));
    let states: Vec<State> = table.lines().filter(|line| !line.is_empty()).map(State::of).collect();
    write_states(&states);
    results(&read(RESULTS));
}

/// Returns the table of all names with the addresses of their functions.
fn functions<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let (mut declared, mut table) = (String::new(), String::new());
    for name in names {
        writeln!(declared, "    fn {name}();").expect("writing to a string");
        writeln!(table, "    ({name:?}, {name}),").expect("writing to a string");
    }
    format!(
        "unsafe extern \"C\" {{\n{declared}}}\n\nstatic FUNCTIONS: &[(&str, unsafe extern \"C\" fn())] = &[\n{table}];\n"
    )
}

/// A line of `states.txt`: `name [before=CODE] [context] [broken] [destroyed]`.
struct State<'a> {
    name: &'a str,
    before: &'a str,
    context: bool,
    broken: bool,
    destroyed: bool,
}

impl<'a> State<'a> {
    fn of(line: &'a str) -> Self {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let mut state = Self { name, before: "3", context: false, broken: false, destroyed: false };
        for word in words {
            match (word, word.strip_prefix("before=")) {
                (_, Some(code)) => state.before = code,
                ("context", _) => state.context = true,
                ("broken", _) => state.broken = true,
                ("destroyed", _) => state.destroyed = true,
                _ => panic!("{STATES}: {line}"),
            }
        }
        state
    }
}

/// Writes the table of `src/local/states.rs`.
fn write_states(states: &[State]) {
    let mut source = String::from("&[\n");
    for State { name, before, context, broken, destroyed } in states {
        writeln!(
            source,
            "    ({name:?}, State {{ is_recorded: true, before: {before}, needs_context: {context}, works_when_broken: \
             {broken}, refuses_destroyed: {destroyed} }}),"
        )
        .expect("writing to a string");
    }
    source.push_str("]\n");
    write("states.rs", &source);
}

/// Converts lines `number NAME description` to entries `(number, c"NAME", c"description")`.
fn results(table: &str) {
    let mut source = String::from("&[\n");
    for line in table.lines().filter(|line| !line.is_empty()) {
        let mut parts = line.splitn(3, ' ');
        let (Some(number), Some(name), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
            panic!("{RESULTS}: not `number NAME description`: {line}");
        };
        writeln!(source, "    ({number}, c\"{name}\", c{text:?}),").expect("writing to a string");
    }
    source.push_str("]\n");
    write("results.rs", &source);
}
