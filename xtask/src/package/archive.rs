// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One package: its control files, and `dpkg-deb`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::tree::{FILE, PROGRAM, Tree};
use crate::build::OLDEST_GLIBC;
use crate::progress::output_of;

/// The version of all packages.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The variable that reproducible builds take their time from (reproducible-builds.org), in seconds since 1970.
pub const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Debian wants an address; issues go to the repository.
const MAINTAINER: &str = "The vhost-cuda authors <maintainers@vhost-cuda.invalid>";

/// The contents of a package's control file.
#[derive(Debug)]
pub struct Package {
    /// Its name.
    pub name: &'static str,
    /// One line, without a full stop.
    pub summary: &'static str,
    /// Sentences, a line each.
    pub description: &'static str,
    /// `Depends` and others. `@GLIBC@` is replaced by the oldest glibc of guests, `@VERSION@` by the version.
    pub fields: &'static [(&'static str, &'static str)],
    /// Maintainer scripts, and files such as `triggers`: name and text. `@VERSION@` is replaced by the version.
    pub scripts: &'static [(&'static str, &'static str)],
    /// Files that an administrator may change, with `/` in front.
    pub settings: &'static [&'static str],
}

/// Packs `tree` into `folder`; the path of the package. Its bytes depend on the files and on `time` only.
pub fn build(package: &Package, tree: &Tree, folder: &Path, time: u64) -> Result<PathBuf> {
    let size = installed_size(tree.root())?;
    let sums = output_of(
        Command::new("sh")
            .current_dir(tree.root())
            .args(["-c", "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 md5sum"]),
    )?;
    tree.bytes(control(package, size).as_bytes(), "DEBIAN/control", FILE)?;
    tree.bytes(format!("{sums}\n").as_bytes(), "DEBIAN/md5sums", FILE)?;
    if !package.settings.is_empty() {
        tree.bytes(format!("{}\n", package.settings.join("\n")).as_bytes(), "DEBIAN/conffiles", FILE)?;
    }
    for (name, text) in package.scripts {
        let mode = if text.starts_with("#!") { PROGRAM } else { FILE };
        tree.bytes(text.replace("@VERSION@", VERSION).as_bytes(), &format!("DEBIAN/{name}"), mode)?;
    }
    output_of(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree.root()))?;
    let touch = format!("@{time}");
    output_of(Command::new("find").arg(tree.root()).args(["-exec", "touch", "-h", "-d", &touch, "{}", "+"]))?;
    let target = folder.join(format!("{}_{VERSION}_amd64.deb", package.name));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--build"]).arg(tree.root()).arg(&target);
    output_of(dpkg.env(EPOCH, time.to_string()))?;
    Ok(target)
}

/// KiB that the files take: each rounded up, so that the number does not depend on the file system.
fn installed_size(folder: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        size += if meta.is_dir() { 1 + installed_size(&entry.path())? } else { meta.len().div_ceil(1024) };
    }
    Ok(size)
}

fn control(package: &Package, size: u64) -> String {
    let mut text = format!("Package: {}\nVersion: {VERSION}\nArchitecture: amd64\n", package.name);
    text += &format!("Maintainer: {MAINTAINER}\nInstalled-Size: {size}\nPriority: optional\n");
    for (name, value) in package.fields {
        let _ = writeln!(
            text,
            "{name}: {}",
            value.replace("@GLIBC@", OLDEST_GLIBC).replace("@VERSION@", VERSION)
        );
    }
    let _ = writeln!(text, "Description: {}", package.summary);
    for line in package.description.lines() {
        let _ = writeln!(text, " {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_package_do_not_say_when_and_where_it_was_built() -> Result<()> {
        let package = Package {
            name: "example",
            summary: "An example",
            description: "It has one file.",
            fields: &[("Depends", "libc6")],
            scripts: &[("postinst", "#!/bin/sh\necho @VERSION@\n")],
            settings: &["/etc/example"],
        };
        let pack = || -> Result<Vec<u8>> {
            let folder = tempfile::tempdir()?;
            let tree = Tree::new(folder.path().join("tree"))?;
            tree.bytes(b"text", "etc/example", FILE)?;
            Ok(fs::read(build(&package, &tree, folder.path(), 1_000_000_000)?)?)
        };
        let first = pack()?;
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(first == pack()?, "the packages differ");
        Ok(())
    }
}
