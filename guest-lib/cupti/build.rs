// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Defines every name of the library (see the crate `cuda-absent-names`), and generates tables from `cbids.txt` and `results.txt`.

use std::fmt::Write;

use cuda_absent_names::build::{Binding, define, read, write};

const CBIDS: &str = "cbids.txt";
const RESULTS: &str = "results.txt";

fn main() {
    define("vhost_cupti_absent", Binding::Weak, read("names.txt").lines());
    cbids();
    results();
}

/// Converts lines `driver NUMBER NAME` and `runtime NUMBER NAME` to entries `(name, number)` of two tables, sorted by
/// name.
fn cbids() {
    let text = read(CBIDS);
    let mut source = String::new();
    for (api, table) in [("driver", "DRIVER"), ("runtime", "RUNTIME")] {
        let mut entries: Vec<(&str, u32)> = text.lines().filter_map(|line| entry(line, api)).collect();
        entries.sort_unstable();
        writeln!(source, "/// Functions of the {api} API.\nstatic {table}: &[(&CStr, u32)] = &[")
            .expect("writing to a String");
        for (name, number) in entries {
            writeln!(source, "    (c{name:?}, {number}),").expect("writing to a String");
        }
        source.push_str("];\n");
    }
    write("cbids.rs", &source);
}

fn entry<'a>(line: &'a str, api: &str) -> Option<(&'a str, u32)> {
    let mut words = line.split(' ');
    let (of, number, name) = (words.next()?, words.next()?, words.next()?);
    (of == api).then(|| (name, number.parse().unwrap_or_else(|error| panic!("{CBIDS}: {line}: {error}"))))
}

/// Converts lines `NUMBER NAME` to entries `(number, name)`.
fn results() {
    let mut source = String::from("&[\n");
    for line in read(RESULTS).lines() {
        let (number, name) =
            line.split_once(' ').unwrap_or_else(|| panic!("{RESULTS}: not `NUMBER NAME`: {line}"));
        writeln!(source, "    ({number}, c{name:?}),").expect("writing to a String");
    }
    source.push_str("]\n");
    write("results.rs", &source);
}
