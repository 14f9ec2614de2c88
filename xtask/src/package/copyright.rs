// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/usr/share/doc/PACKAGE/copyright`, in Debian's machine-readable form, and the licences of crates that are linked in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::tree::{FILE, Tree};
use crate::paths::Paths;
use crate::progress::output_of;

/// The licence of some files.
#[derive(Debug, Clone, Copy)]
pub struct Licence {
    holder: &'static str,
    expression: &'static str,
    /// The licences that the expression names.
    texts: &'static [(&'static str, Text)],
}

#[derive(Debug, Clone, Copy)]
enum Text {
    /// A file of `LICENSES`.
    File(&'static str),
    /// A file of `/usr/share/common-licenses`.
    Common(&'static str),
}

const APACHE: (&str, Text) = ("Apache-2.0", Text::Common("Apache-2.0"));
const GPL: (&str, Text) = ("GPL-2", Text::Common("GPL-2"));
const AUTHORS: &str = "The vhost-cuda authors";

/// The licence of most of the project.
pub const OWN: Licence = Licence {
    holder: AUTHORS,
    expression: "Apache-2.0 or MIT",
    texts: &[APACHE, ("MIT", Text::File("MIT.txt"))],
};
/// The kernel module.
pub const DRIVER: Licence = Licence { holder: AUTHORS, expression: "GPL-2", texts: &[GPL] };
/// The ABI between driver and device.
pub const PROTOCOL: Licence = Licence {
    holder: AUTHORS,
    expression: "GPL-2 with Linux-syscall-note or BSD-3-Clause",
    texts: &[
        GPL,
        ("Linux-syscall-note", Text::File("Linux-syscall-note.txt")),
        ("BSD-3-Clause", Text::File("BSD-3-Clause.txt")),
    ],
};
/// QEMU with our patches.
pub const QEMU: Licence = Licence {
    holder: "Fabrice Bellard and the QEMU team; patches: The vhost-cuda authors",
    expression: "GPL-2+",
    texts: &[("GPL-2+", Text::Common("GPL-2"))],
};

const FORMAT: &str = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/";
/// Beginnings of the names of files with licences in a crate.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Writes both files of `package`: `files` are patterns and their licences, `crates` those of this workspace that are in it.
pub fn write(
    paths: &Paths,
    tree: &Tree,
    package: &str,
    files: &[(&str, Licence)],
    crates: &[&str],
) -> Result<()> {
    let docs = format!("usr/share/doc/{package}");
    let mut text = format!("Format: {FORMAT}\nUpstream-Name: vhost-cuda\n");
    if package.ends_with("-qemu") {
        text += "Comment: The program is linked statically with glib, pcre2, zlib, libattr and the C library of\n \
                 Debian 12; their licences are in the packages of these names. Its source is\n \
                 Debian's source package qemu with the patches in this folder.\n";
    }
    if !crates.is_empty() {
        text += "Comment: Crates that are linked in, with their licences, are in third-party-licences.gz. The Rust\n \
                 standard library is under Apache-2.0 or MIT.\n";
        tree.compressed(third_party(paths, crates)?.as_bytes(), &format!("{docs}/third-party-licences"))?;
    }
    let mut texts: BTreeMap<&str, Text> = BTreeMap::new();
    for (pattern, licence) in files {
        text +=
            &format!("\nFiles: {pattern}\nCopyright: {}\nLicense: {}\n", licence.holder, licence.expression);
        texts.extend(licence.texts.iter().copied());
    }
    for (name, of) in texts {
        text += &format!("\nLicense: {name}\n{}", paragraph(paths, of)?);
    }
    tree.bytes(text.as_bytes(), &format!("{docs}/copyright"), FILE)
}

/// A text as the format has it: lines begin with a blank, empty ones are a dot.
fn paragraph(paths: &Paths, text: Text) -> Result<String> {
    let text = match text {
        Text::Common(name) => format!("The text is in /usr/share/common-licenses/{name}.\n"),
        Text::File(name) => {
            let path = paths.root.join("LICENSES").join(name);
            fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))?
        }
    };
    let line = |line: &str| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") };
    Ok(text.lines().map(line).collect())
}

/// Names, versions and licences of the crates that `crates` are linked with, and each text once.
fn third_party(paths: &Paths, crates: &[&str]) -> Result<String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--locked", "--format-version", "1"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(&paths.root);
    let metadata: Value = serde_json::from_str(&output_of(&mut cargo)?)?;
    let (mut list, mut texts) = (String::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for package in linked(&metadata, crates)? {
        // Those of this workspace have no source.
        if package["source"].is_null() {
            continue;
        }
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        list += &format!("{name}: {}\n", field("license"));
        let folder = Path::new(field("manifest_path")).parent().context("A crate has no folder")?;
        for text in licences(folder)? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    // By names, so that the order does not depend on the texts.
    let mut texts: Vec<_> = texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        let names: Vec<_> = names.into_iter().collect();
        list += &format!("\n{}\n{}\n\n{}\n", "-".repeat(80), names.join(", "), text.trim_end());
    }
    Ok(list)
}

/// The packages that `crates` need to run, by name and version.
fn linked<'a>(metadata: &'a Value, crates: &[&str]) -> Result<Vec<&'a Value>> {
    let by_id = |list: &'a Value| -> BTreeMap<&'a str, &'a Value> {
        list.as_array().into_iter().flatten().filter_map(|item| Some((item["id"].as_str()?, item))).collect()
    };
    let (packages, nodes) = (by_id(&metadata["packages"]), by_id(&metadata["resolve"]["nodes"]));
    let mut open = Vec::new();
    for name in crates {
        let own =
            packages.iter().find(|(_, package)| package["name"] == *name && package["source"].is_null());
        open.push(*own.with_context(|| format!("There is no crate {name}"))?.0);
    }
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let is_linked = |dependency: &&Value| {
            dependency["dep_kinds"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        open.extend(dependencies.filter(is_linked).filter_map(|dependency| dependency["pkg"].as_str()));
    }
    let mut found: Vec<&Value> = seen.iter().filter_map(|id| packages.get(id).copied()).collect();
    found.sort_by_key(|package| (package["name"].as_str(), package["version"].as_str()));
    Ok(found)
}

/// The texts of a crate's licences.
fn licences(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.path().is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            texts.push(String::from_utf8_lossy(&fs::read(entry.path())?).into_owned());
        }
    }
    texts.sort();
    Ok(texts)
}
