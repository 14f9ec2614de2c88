// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A copy of a Debian root, in which packages are installed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use sha2::{Digest, Sha256};
use walkdir::WalkDir;

use crate::progress::output_of;

/// Makes the root in `$0` the root of the following command, in a mount namespace of its own. Does not use `chroot`,
/// in which the kernel refuses to create user namespaces.
const ENTER: &str = r#"
mount --bind "$0" "$0" && cd "$0" && mount -t proc proc proc && mount --rbind /dev dev &&
mount --bind -o ro /sys sys && pivot_root . mnt && umount -l /mnt && exec "$@""#;
/// Files that each installation of any package changes: lists of packages, logs, caches.
const CHANGES: [&str; 4] = ["var/lib/dpkg/", "var/log/", "var/cache/", "etc/ld.so.cache"];
/// A package's own files below them.
const OF_PACKAGES: &str = "var/lib/dpkg/info";
/// The file that keeps documentation out of the cached root.
const EXCLUDES: &str = "etc/dpkg/dpkg.cfg.d/99mmdebstrap";

/// The copy. Dropping it removes it.
pub struct Root {
    folder: PathBuf,
}

impl Root {
    /// Copies `base` to `folder`.
    pub fn copy(base: &Path, folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let root = Self { folder };
        output_of(Command::new("cp").args(["-a", "--reflink=auto"]).arg(base).arg(&root.folder))?;
        let excludes = root.path(EXCLUDES);
        if excludes.exists() {
            fs::remove_file(excludes)?;
        }
        Ok(root)
    }

    /// The path of a file in it, which has no `/` in front.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// A command in it; the program follows.
    pub fn command(&self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", ENTER]).arg(&self.folder);
        command.args(["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]);
        command
    }

    /// Runs a command in it; its standard output.
    pub fn run<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<String> {
        output_of(self.command().args(words))
    }

    /// All paths, with digests or the targets of links where contents must not change.
    pub fn files(&self) -> Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        for entry in WalkDir::new(&self.folder).min_depth(1) {
            let entry = entry?;
            let path = entry.path().strip_prefix(&self.folder)?.to_string_lossy().into_owned();
            let changes = CHANGES.iter().any(|start| path.starts_with(start));
            if changes && !path.starts_with(OF_PACKAGES) {
                continue;
            }
            let meta = entry.metadata()?;
            let contents = if meta.is_symlink() {
                format!("link to {}", fs::read_link(entry.path())?.display())
            } else if meta.is_file() && !changes {
                format!("{:x}", Sha256::digest(fs::read(entry.path())?))
            } else {
                String::new()
            };
            files.insert(path, format!("{:o} {}:{} {contents}", meta.mode(), meta.uid(), meta.gid()));
        }
        Ok(files)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // It lies in the target folder; the next check removes it otherwise.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Lines about what `after` has more, less or otherwise than `before`.
pub fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let missing =
        before.keys().filter(|path| !after.contains_key(*path)).map(|path| format!("missing: {path}"));
    let others = after.iter().filter_map(|(path, now)| match before.get(path) {
        None => Some(format!("left: {path}")),
        Some(then) if then != now => Some(format!("changed: {path}")),
        Some(_) => None,
    });
    missing.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_each_kind() {
        let files = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
            list.iter().map(|(path, is)| ((*path).to_owned(), (*is).to_owned())).collect()
        };
        let before = files(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = files(&[("a", "1"), ("b", "2"), ("d", "1")]);
        assert_eq!(differences(&before, &after), ["missing: c", "changed: b", "left: d"]);
        assert!(differences(&before, &before).is_empty());
    }
}
