// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Defines every name of the library, because programs are often bound at load time, where one missing name is fatal.
//! Each name in `names.txt` becomes a weak alias of a function that returns CUPTI_ERROR_NOT_SUPPORTED. A function of
//! the same name in `src/` is strong and wins when the library is linked. Also generates tables from `cbids.txt` and
//! `results.txt`.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const NAMES: &str = "names.txt";
const CBIDS: &str = "cbids.txt";
const RESULTS: &str = "results.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    not_supported(&out);
    cbids(&out);
    results(&out);
}

fn not_supported(out: &Path) {
    let jump = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "jmp vhost_cupti_not_supported@PLT",
        Ok("aarch64") => "b vhost_cupti_not_supported",
        other => panic!("no jump instruction known for {other:?}: add it here"),
    };
    let mut assembly = format!(".text\n.p2align 4\nnot_supported:\n    {jump}\n");
    for name in read(NAMES).lines() {
        writeln!(assembly, ".weak {name}\n.type {name}, %function\n.set {name}, not_supported")
            .expect("writing to a String");
    }
    assembly.push_str(".section .note.GNU-stack,\"\",%progbits\n");
    let path = out.join("not_supported.S");
    write(&path, &assembly);
    cc::Build::new().file(&path).compile("cupti_not_supported");
}

/// Converts lines `driver NUMBER NAME` and `runtime NUMBER NAME` to entries `(name, number)` of two tables, sorted by
/// name.
fn cbids(out: &Path) {
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
    write(&out.join("cbids.rs"), &source);
}

fn entry<'a>(line: &'a str, api: &str) -> Option<(&'a str, u32)> {
    let mut words = line.split(' ');
    let (of, number, name) = (words.next()?, words.next()?, words.next()?);
    (of == api).then(|| (name, number.parse().unwrap_or_else(|error| panic!("{CBIDS}: {line}: {error}"))))
}

/// Converts lines `NUMBER NAME` to entries `(number, name)`.
fn results(out: &Path) {
    let mut source = String::from("&[\n");
    for line in read(RESULTS).lines() {
        let (number, name) =
            line.split_once(' ').unwrap_or_else(|| panic!("{RESULTS}: not `NUMBER NAME`: {line}"));
        writeln!(source, "    ({number}, c{name:?}),").expect("writing to a String");
    }
    source.push_str("]\n");
    write(&out.join("results.rs"), &source);
}

fn read(file: &str) -> String {
    println!("cargo::rerun-if-changed={file}");
    fs::read_to_string(file).unwrap_or_else(|error| panic!("cannot read {file}: {error}"))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
