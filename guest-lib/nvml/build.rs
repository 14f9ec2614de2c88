// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives every name of the library a definition: tools look names up, and take a missing one for an old library.
//! Each name in `names.txt` becomes a weak alias of one function that answers NVML_ERROR_NOT_SUPPORTED; a function
//! of the same name in `src/` is strong and wins when the library is linked.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const NAMES: &str = "names.txt";

fn main() {
    println!("cargo::rerun-if-changed={NAMES}");
    let names = fs::read_to_string(NAMES).unwrap_or_else(|error| panic!("cannot read {NAMES}: {error}"));
    let jump = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "jmp vhost_nvml_not_supported@PLT",
        Ok("aarch64") => "b vhost_nvml_not_supported",
        other => panic!("no jump instruction known for {other:?}: add it here"),
    };
    let mut assembly = format!(".text\n.p2align 4\nnot_supported:\n    {jump}\n");
    for name in names.lines() {
        writeln!(assembly, ".weak {name}\n.type {name}, %function\n.set {name}, not_supported")
            .expect("writing to a String");
    }
    assembly.push_str(".section .note.GNU-stack,\"\",%progbits\n");
    let path = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("not_supported.S");
    fs::write(&path, assembly).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    cc::Build::new().file(&path).compile("nvml_not_supported");
}
