// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the exported names of the linked library, of each version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources of both packages.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../libcudart");

/// The static library of this build, which Cargo puts beside the test program.
fn archive() -> PathBuf {
    let prefix = concat!("lib", env!("CARGO_PKG_NAME"), "-");
    let test = std::env::current_exe().unwrap();
    let files = fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let found = files.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(prefix) && name.ends_with(".a")
    });
    found
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .expect("Cargo builds the static library")
}

#[test]
fn every_name_is_exported_with_its_version() {
    let (soname, names) = match env!("CARGO_PKG_NAME") {
        "libcudart11" => ("libcudart.so.11.0", &["11.8.txt"][..]),
        "libcudart12" => ("libcudart.so.12", &["12.9.txt"][..]),
        _ => ("libcudart.so.13", &["13.0.txt", "13.5.txt"][..]),
    };
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(soname);
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-Wl,--whole-archive"]).arg(archive()).arg("-Wl,--no-whole-archive");
    cc.arg(format!("-Wl,--version-script={SOURCES}/{soname}.map")).arg("-Wl,--gc-sections");
    cc.args(["-ldl", "-lpthread", "-lm", "-o"]).arg(&library);
    assert!(cc.status().unwrap().success());

    let mut nm = Command::new("nm");
    let output = nm.args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    // Not part of CUDA: this project's libcupti calls it.
    let own = format!("{}@@{soname}", cuda_abi::RUNTIME_NAME.to_str().unwrap());
    assert!(exported.contains(&own.as_str()), "{own} is missing");
    // The version is also a symbol.
    exported.retain(|name| !name.starts_with(soname) && *name != own);
    let names: Vec<_> =
        names.iter().map(|file| fs::read_to_string(format!("{SOURCES}/names/{file}")).unwrap()).collect();
    let names = names.concat();
    let expected: Vec<String> = names.lines().map(|name| format!("{name}@@{soname}")).collect();
    let missing: Vec<_> = expected.iter().filter(|name| !exported.contains(&name.as_str())).collect();
    let unknown: Vec<_> = exported.iter().filter(|name| !expected.contains(&(**name).to_owned())).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, not of this version {unknown:?}");
}
