// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says which major version of the runtime this is, and gives every name of its ABI a definition.
//!
//! The packages `libcudart` and `libcudart12` share sources and this script; the sources see
//! `cfg(cuda_major = "13")` or `"12"`.
//!
//! Programs and extensions are often bound at load (RTLD_NOW), where one missing name is fatal. So each name
//! in `names/` becomes a weak alias of a function that answers cudaErrorNotSupported or, for names that were added
//! after 13.0, cudaErrorCallRequiresNewerDriver; a function of the same name in `src/` is strong and wins when the
//! library is linked. This is an object file of its own
//! because an assembler refuses both definitions in one.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Functions of `src/api.rs`.
const NOT_SUPPORTED: &str = "vhost_cudart_not_supported";
const NEEDS_NEWER_DRIVER: &str = "vhost_cudart_needs_newer_driver";

fn main() {
    let (major, files) = match variable("CARGO_PKG_NAME").as_str() {
        "libcudart12" => ("12", &[("../libcudart/names/12.9.txt", NOT_SUPPORTED)][..]),
        _ => ("13", &[("names/13.0.txt", NOT_SUPPORTED), ("names/13.5.txt", NEEDS_NEWER_DRIVER)][..]),
    };
    println!("cargo::rustc-check-cfg=cfg(cuda_major, values(\"12\", \"13\"))");
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
