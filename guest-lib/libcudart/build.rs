// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets the major version of the runtime, and defines every name of its ABI (see the crate `cuda-absent-names`). The packages
//! `libcudart`, `libcudart12` and `libcudart11` share sources and this script; the sources see `cfg(cuda_major = "13")`, `"12"` or
//! `"11"`.
//!
//! Names that were added after 13.0 (`names/13.5.txt`) come last.

use cuda_absent_names::build::{Binding, define, read, variable, write};

fn main() {
    let (major, files) = match variable("CARGO_PKG_NAME").as_str() {
        "libcudart11" => ("11", &["../libcudart/names/11.8.txt"][..]),
        "libcudart12" => ("12", &["../libcudart/names/12.9.txt"][..]),
        _ => ("13", &["names/13.0.txt", "names/13.5.txt"][..]),
    };
    println!("cargo::rustc-check-cfg=cfg(cuda_major, values(\"11\", \"12\", \"13\"))");
    println!("cargo::rustc-cfg=cuda_major=\"{major}\"");
    let texts: Vec<String> = files.iter().map(|file| read(file)).collect();
    define("vhost_cudart_absent", Binding::Weak, texts.iter().flat_map(|text| text.lines()));
    write("first_names.rs", &format!("{}\n", texts[0].lines().count()));
}
