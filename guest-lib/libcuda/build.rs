// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Generates from the lists in `protocol/names`: a weak function for every name of the driver API, and the table of
//! results. The weak functions stand for calls that this library lacks: they check their arguments and refuse the call.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

const NAMES: &str = "../../protocol/names/libcuda.txt";
const REFUSED: &str = "../../protocol/names/refused.txt";
const STATES: &str = "../../protocol/names/states.txt";
const RESULTS: &str = "../../protocol/names/results.txt";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    let table = read(STATES);
    let states: Vec<State> = table.lines().filter(|line| !line.is_empty()).map(State::of).collect();
    unsupported_calls(&read(NAMES), &read(REFUSED), &states, &out);
    results(&read(RESULTS), &out);
    write_states(&states, &out);
}

fn read(path: &str) -> String {
    println!("cargo::rerun-if-changed={path}");
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path} is needed to build libcuda: {error}"))
}

/// Writes the weak functions in C: the linker prefers the library's own function where there is one. The real functions
/// may have fewer parameters than these, because no check uses a missing one. `cuGetProcAddress` finds the functions in
/// a table.
fn unsupported_calls(names: &str, refused: &str, states: &[State], out: &Path) {
    let mut source = String::from(
        "extern int virtio_cuda_refuse(const char *name, int code, int before, unsigned bits);\nextern int virtio_cuda_is_device(int device);\n",
    );
    let refused: HashMap<_, _> = refused.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut table = String::new();
    for name in names.lines().filter(|line| !line.is_empty()) {
        let (checks, code) = match refused.get(name) {
            Some(rule) => rule.rsplit_once(' ').unwrap_or(("", rule)),
            None => ("", "801"),
        };
        let plain = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let state = states.iter().find(|state| state.name == plain).map_or("3, 0".into(), State::in_c);
        let checks: String = checks.split_whitespace().map(|rule| check(name, rule, &state)).collect();
        writeln!(
            source,
            "__attribute__((weak)) int {name}(long a0, long a1, long a2, long a3, long a4, long a5) {{\n{checks}\
             \treturn virtio_cuda_refuse(\"{name}\", {code}, {state});\n}}"
        )
        .expect("writing to a string");
        writeln!(table, "\t{{\"{name}\", {name}}},").expect("writing to a string");
    }
    writeln!(
        source,
        "const struct {{ const char *name; int (*address)(long, long, long, long, long, long); }} virtio_cuda_functions[] = \
         {{\n{table}\t{{0, 0}},\n}};"
    )
    .expect("writing to a string");
    let file = out.join("unsupported.c");
    fs::write(&file, source).expect("OUT_DIR is writable");
    cc::Build::new().file(file).pic(true).cargo_warnings(false).compile("virtio_cuda_unsupported");
}

/// Returns a check of `refused.txt` as C code.
fn check(name: &str, rule: &str, state: &str) -> String {
    let (condition, code) = if let Some((argument, code)) = rule.split_once('!') {
        (format!("a{argument} == 0"), code)
    } else if let Some((argument, code)) = rule.split_once('~') {
        (format!("(int)a{argument} == 0"), code)
    } else if let Some((argument, code)) = rule.split_once('?') {
        (format!("!virtio_cuda_is_device((int)a{argument})"), code)
    } else if let Some((argument, rest)) = rule.split_once('&') {
        let (mask, code) = rest.split_once(':').unwrap_or_else(|| panic!("{REFUSED}: {name} {rule}"));
        (format!("((int)a{argument} & ~{mask}) != 0"), code)
    } else {
        let (argument, rest) = rule.split_once('=').unwrap_or_else(|| panic!("{REFUSED}: {name} {rule}"));
        let (values, code) = rest.split_once(':').unwrap_or_else(|| panic!("{REFUSED}: {name} {rule}"));
        let others: Vec<_> = values.split(',').map(|value| format!("(int)a{argument} != {value}")).collect();
        (others.join(" && "), code)
    };
    format!("\tif ({condition}) return virtio_cuda_refuse(\"{name}\", {code}, {state});\n")
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

    /// Returns the last arguments of `virtio_cuda_refuse`: see `State::from_bits`.
    fn in_c(&self) -> String {
        let bits =
            1 | u32::from(self.context) << 1 | u32::from(self.broken) << 2 | u32::from(self.destroyed) << 3;
        format!("{}, {bits}", self.before)
    }
}

/// Writes the table of `src/local/states.rs`.
fn write_states(states: &[State], out: &Path) {
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
    fs::write(out.join("states.rs"), source).expect("OUT_DIR is writable");
}

/// Converts lines `number NAME description` to entries `(number, c"NAME", c"description")`.
fn results(table: &str, out: &Path) {
    let mut source = String::from("&[\n");
    for line in table.lines().filter(|line| !line.is_empty()) {
        let mut parts = line.splitn(3, ' ');
        let (Some(number), Some(name), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
            panic!("{RESULTS}: not `number NAME description`: {line}");
        };
        writeln!(source, "    ({number}, c\"{name}\", c{text:?}),").expect("writing to a string");
    }
    source.push_str("]\n");
    fs::write(out.join("results.rs"), source).expect("OUT_DIR is writable");
}
