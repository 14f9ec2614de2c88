// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the lists of names in `protocol/names` into Rust: the error codes, the table that cuGetProcAddress searches, and the
//! answers of the functions that the emulator lacks. `absent.txt` has the names of these (see the crate `cuda-absent-names`): a
//! function that is missing there and in the sources does not link.

use std::fmt::Write as _;

use cuda_absent_names::build::{Binding, define, read, refusals, write};

/// The names of the driver API without a function here.
const ABSENT: &str = "absent.txt";
const NAMES: &str = "../protocol/names/libcuda.txt";
const VERSIONS: &str = "../protocol/names/libcuda-versions.txt";
const REFUSED: &str = "../protocol/names/refused.txt";
const RESULTS: &str = "../protocol/names/results.txt";

fn main() {
    let absent = read(ABSENT);
    define("cuda_emulator_absent", Binding::Global, absent.lines());
    write("refusals.rs", &refusals(absent.lines(), &read(REFUSED)));
    write("symbols.rs", &symbols(&read(NAMES), &read(VERSIONS)));
    write("results.rs", &results(&read(RESULTS)));
}

fn symbols(all: &str, versions: &str) -> String {
    let mut text = String::from("unsafe extern \"C\" {\n");
    for name in all.lines() {
        writeln!(text, "    fn {name}();").expect("writing to a string");
    }
    text.push_str("}\n/// Sorted by base name, then legacy before per-thread, then version.\n");
    text.push_str("pub(super) static SYMBOLS: &[Symbol] = &[\n");
    for line in versions.lines() {
        let [base, version, name] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("protocol/names/libcuda-versions.txt: not `base version name`: {line}");
        };
        writeln!(
            text,
            "    Symbol {{ base: \"{base}\", version: {version}, name: \"{name}\", address: {name} }},"
        )
        .expect("writing to a string");
    }
    text.push_str("];\n");
    text
}

fn results(table: &str) -> String {
    let mut constants =
        String::from("#[allow(missing_docs, reason = \"NVIDIA documents them\")]\nimpl CUresult {\n");
    let mut meanings = String::from("static RESULTS: &[(CUresult, &CStr, &CStr)] = &[\n");
    for line in table.lines() {
        let [code, name, meaning] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("protocol/names/results.txt: not `code name meaning`: {line}");
        };
        writeln!(constants, "    pub const {name}: CUresult = CUresult({code});")
            .expect("writing to a string");
        writeln!(meanings, "    (CUresult::{name}, c\"{name}\", c{meaning:?}),")
            .expect("writing to a string");
    }
    constants + "}\n" + &meanings + "];\n"
}
