// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets the major version of the runtime, and defines every name of its ABI.
//!
//! The packages `libcudart`, `libcudart12` and `libcudart11` share sources and this script; the sources see
//! `cfg(cuda_major = "13")`, `"12"` or `"11"`.
//!
//! Programs and extensions are often bound at load time (RTLD_NOW), where one missing name is fatal. Each name in
//! `names/` therefore becomes a weak alias of a function that returns cudaErrorNotSupported. Names that were added
//! after 13.0 return cudaErrorCallRequiresNewerDriver instead. A function of the same name in `src/` is strong and wins
//! when the library is linked. The aliases are in a separate object file because an assembler refuses both definitions
//! in one file.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Defined in `src/api.rs`.
const NOT_SUPPORTED: &str = "vhost_cudart_not_supported";
const NEEDS_NEWER_DRIVER: &str = "vhost_cudart_needs_newer_driver";

fn main() {
    let (major, files) = match variable("CARGO_PKG_NAME").as_str() {
        "libcudart11" => ("11", &[("../libcudart/names/11.8.txt", NOT_SUPPORTED)][..]),
        "libcudart12" => ("12", &[("../libcudart/names/12.9.txt", NOT_SUPPORTED)][..]),
        _ => ("13", &[("names/13.0.txt", NOT_SUPPORTED), ("names/13.5.txt", NEEDS_NEWER_DRIVER)][..]),
    };
    println!("cargo::rustc-check-cfg=cfg(cuda_major, values(\"11\", \"12\", \"13\"))");
    println!("cargo::rustc-cfg=cuda_major=\"{major}\"");
    let mut assembly = String::from(".text\n");
    for (file, answer) in files {
        println!("cargo::rerun-if-changed={file}");
        let names = fs::read_to_string(file).unwrap_or_else(|error| panic!("cannot read {file}: {error}"));
        let jump = match variable("CARGO_CFG_TARGET_ARCH").as_str() {
            "x86_64" => format!("jmp {answer}@PLT"),
            "aarch64" => format!("b {answer}"),
            other => panic!("no jump instruction known for {other:?}: add it here"),
        };
        writeln!(assembly, ".p2align 4\nto_{answer}:\n    {jump}").expect("writing to a String");
        for name in names.lines() {
            writeln!(assembly, ".weak {name}\n.type {name}, %function\n.set {name}, to_{answer}")
                .expect("writing to a String");
        }
    }
    assembly.push_str(".section .note.GNU-stack,\"\",%progbits\n");
    let path = PathBuf::from(variable("OUT_DIR")).join("not_supported.S");
    fs::write(&path, assembly).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    cc::Build::new().file(&path).compile("cudart_not_supported");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo sets {name}: {error}"))
}
