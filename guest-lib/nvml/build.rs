// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Defines every name of the library: tools look names up, and treat a missing one as a sign of an old library. Each
//! name in `names.txt` becomes a weak alias of a function that returns NVML_ERROR_NOT_SUPPORTED. Names that are also in
//! `setters.txt` (functions that change a card) return NVML_ERROR_NO_PERMISSION instead. A function of the same name in
//! `src/` is strong and wins when the library is linked.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const NAMES: &str = "names.txt";
const SETTERS: &str = "setters.txt";

fn main() {
    let (names, setters) = (read(NAMES), read(SETTERS));
    let setters: BTreeSet<&str> = setters.lines().collect();
    let jump = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => |function: &str| format!("jmp {function}@PLT"),
        Ok("aarch64") => |function: &str| format!("b {function}"),
        other => panic!("no jump instruction known for {other:?}: add it here"),
    };
    let mut assembly = String::from(".text\n.p2align 4\n");
    for label in ["not_supported", "no_permission"] {
        writeln!(assembly, "{label}:\n    {}", jump(&format!("vhost_nvml_{label}")))
            .expect("writing to a String");
    }
    for name in names.lines() {
        let label = if setters.contains(name) { "no_permission" } else { "not_supported" };
        writeln!(assembly, ".weak {name}\n.type {name}, %function\n.set {name}, {label}")
            .expect("writing to a String");
    }
    assembly.push_str(".section .note.GNU-stack,\"\",%progbits\n");
    let path = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("not_supported.S");
    fs::write(&path, assembly).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    cc::Build::new().file(&path).compile("nvml_not_supported");
}

fn read(file: &str) -> String {
    println!("cargo::rerun-if-changed={file}");
    fs::read_to_string(file).unwrap_or_else(|error| panic!("cannot read {file}: {error}"))
}
