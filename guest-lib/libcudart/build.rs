// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says which major version of the runtime this is, and gives every name of its ABI a definition.
//!
//! The packages `libcudart` and `libcudart12` share sources and this script; the sources see
//! `cfg(cuda_major = "13")` or `"12"`.
//!
//! Programs and extensions are often bound at load (RTLD_NOW), where one missing name is fatal. So each name
//! in `names/` becomes a weak alias of one function that answers cudaErrorNotSupported; a function of
//! the same name in `src/` is strong and wins when the library is linked. This is an object file of its own
//! because an assembler refuses both definitions in one.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

fn main() {
    let (major, names) = match variable("CARGO_PKG_NAME").as_str() {
        "libcudart12" => ("12", "../libcudart/names/12.9.txt"),
        _ => ("13", "names/13.0.txt"),
    };
    println!("cargo::rustc-check-cfg=cfg(cuda_major, values(\"12\", \"13\"))");
    println!("cargo::rustc-cfg=cuda_major=\"{major}\"");
    println!("cargo::rerun-if-changed={names}");
    let names = fs::read_to_string(names).unwrap_or_else(|error| panic!("cannot read {names}: {error}"));
    let jump = match variable("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "jmp vhost_cudart_not_supported@PLT",
        "aarch64" => "b vhost_cudart_not_supported",
        other => panic!("no jump instruction known for {other:?}: add it here"),
    };
    let mut assembly = format!(".text\n.p2align 4\nnot_supported:\n    {jump}\n");
    for name in names.lines() {
        writeln!(assembly, ".weak {name}\n.type {name}, %function\n.set {name}, not_supported")
            .expect("writing to a String");
    }
    assembly.push_str(".section .note.GNU-stack,\"\",%progbits\n");
    let path = PathBuf::from(variable("OUT_DIR")).join("not_supported.S");
    fs::write(&path, assembly).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    cc::Build::new().file(&path).compile("cudart_not_supported");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo sets {name}: {error}"))
}
