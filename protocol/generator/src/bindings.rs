// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver API as the crate cudarc declares it: it has the functions of all versions of `cuda.h`, as bindgen reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cuda_api_description::rows::{fields, split};
use regex::Regex;
use serde::Deserialize;

/// The declarations, inside the crate.
const SOURCE: &str = "src/driver/sys/mod.rs";

/// All declarations.
#[derive(Debug)]
pub struct Bindings {
    /// The functions by name.
    pub functions: BTreeMap<String, Function>,
    /// The types that C passes as `int` or `unsigned int`.
    pub enums: BTreeSet<String>,
    /// The types of objects, devices and addresses.
    pub handles: BTreeSet<String>,
}

/// A function of the driver API, as its newest version declares it.
#[derive(Debug)]
pub struct Function {
    /// The first version of CUDA with it, as `cuDriverGetVersion` returns it. 0: that of all versions that cudarc has.
    pub since: u32,
    /// Names and Rust types of the parameters, in C order.
    pub parameters: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

impl Bindings {
    /// Reads the sources of the crate of which `Cargo.lock` has the version.
    pub fn read(root: &Path) -> Result<Self> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(root).args(["metadata", "--format-version", "1", "--locked", "--offline"]);
        let output = cargo.output().context("Cannot start cargo")?;
        ensure!(
            output.status.success(),
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
        let cudarc = metadata.packages.iter().find(|package| package.name == "cudarc");
        let manifest = &cudarc.context("no crate of the workspace uses cudarc")?.manifest_path;
        let source = manifest.with_file_name(SOURCE);
        let text =
            fs::read_to_string(&source).with_context(|| format!("Cannot read {}", source.display()))?;
        Self::of(&text)
    }

    fn of(text: &str) -> Result<Self> {
        let function = Regex::new(
            r"(?:#\[cfg\(any\((?<versions>[^\]]*)\)\)\]\n)?pub unsafe fn (?<name>cu\w+)\((?<parameters>.*)\) -> CUresult",
        )?;
        let version = Regex::new("cuda-([0-9]+)")?;
        let mut functions = BTreeMap::<String, Function>::new();
        for found in function.captures_iter(text) {
            let versions = found.name("versions").map_or("", |versions| versions.as_str());
            let versions = version.captures_iter(versions).map(|found| found[1].parse());
            let versions = versions.collect::<Result<Vec<u32>, _>>()?;
            let (first, last) = (versions.iter().min().copied(), versions.iter().max().copied());
            let parameters = split(&found["parameters"]).join(", ").replace("::core::ffi::", "");
            let parameters = fields(&parameters).map_err(anyhow::Error::msg)?;
            let new = Function { since: first.unwrap_or(0), parameters };
            // A function with another signature in older versions is declared several times.
            match functions.get_mut(&found["name"]) {
                Some(known) if last.unwrap_or(u32::MAX) < known.since => known.since = new.since,
                Some(known) => *known = Function { since: known.since.min(new.since), ..new },
                None => drop(functions.insert(found["name"].to_owned(), new)),
            }
        }
        let numbers = Regex::new(r"pub (?:struct (\w+)\(pub ::core::ffi::c_u?int\)|enum (\w+))")?;
        let mut enums: BTreeSet<String> = numbers
            .captures_iter(text)
            .filter_map(|found| found.get(1).or(found.get(2)).map(|name| name.as_str().to_owned()))
            .collect();
        let alias = Regex::new(r"pub (?:type (\w+) = (\w+)|use self::(\w+) as (\w+));")?;
        let aliases: Vec<(&str, &str)> = alias
            .captures_iter(text)
            .filter_map(|found| {
                let pair = |name, of| Some((found.get(name)?.as_str(), found.get(of)?.as_str()));
                pair(1, 2).or_else(|| pair(4, 3))
            })
            .collect();
        let pointer = Regex::new(r"pub type (CU\w+) = \*mut CU\w+;")?;
        let pointers = pointer.captures_iter(text).map(|found| found[1].to_owned());
        let handles = pointers.chain(["CUdevice", "CUdeviceptr"].map(str::to_owned)).collect();
        // An alias may come before the one that it refers to.
        loop {
            let new = aliases.iter().filter(|(name, of)| enums.contains(*of) && !enums.contains(*name));
            let new: Vec<String> = new.map(|(name, _)| (*name).to_owned()).collect();
            if new.is_empty() {
                return Ok(Self { functions, enums, handles });
            }
            enums.extend(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_newest_signature_and_oldest_version() {
        let text = "pub type CUarray = *mut CUarray_st;\npub use self::CUlimit_enum as CUlimit;\npub struct CUlimit_enum(pub ::core::ffi::c_uint);\n\
            #[cfg(any(feature = \"cuda-11080\", feature = \"cuda-12000\"))]\npub unsafe fn cuOne(a: *const CUuuid) -> CUresult {\n\
            #[cfg(any(feature = \"cuda-13000\"))]\npub unsafe fn cuOne(a: *mut CUuuid, f: ::core::option::Option<unsafe extern \"C\" fn(a: i32, b: i32)>) -> CUresult {\n\
            pub unsafe fn cuTwo() -> CUresult {\n";
        let Bindings { functions, enums, handles } = Bindings::of(text).unwrap();
        assert!(enums.contains("CUlimit") && handles.contains("CUarray"));
        assert_eq!((functions["cuOne"].since, functions["cuOne"].parameters.len()), (11080, 2));
        assert_eq!(functions["cuOne"].parameters[0], ("a".to_owned(), "*mut CUuuid".to_owned()));
        assert!(functions["cuTwo"].since == 0 && functions["cuTwo"].parameters.is_empty());
    }
}
