// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a package before they are packed, with modes that do not depend on the umask.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::progress::output_of;

/// The mode of programs, libraries and folders.
pub const PROGRAM: u32 = 0o755;
/// The mode of other files.
pub const FILE: u32 = 0o644;

/// A folder that becomes the root of a package. Paths in it have no `/` in front.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// An empty tree in `root`.
    pub fn new(root: PathBuf) -> Result<Self> {
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(&root).with_context(|| format!("Cannot create {}", root.display()))?;
        Ok(Self { root })
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the place of `path`, with folders made for it.
    fn place(&self, path: &str) -> Result<PathBuf> {
        let place = self.root.join(path);
        let folder = place.parent().context("A file of a package has no folder")?;
        fs::create_dir_all(folder)?;
        Ok(place)
    }

    /// Creates an empty folder.
    pub fn folder(&self, path: &str) -> Result<()> {
        Ok(fs::create_dir_all(self.root.join(path))?)
    }

    /// Copies a file.
    pub fn file(&self, from: &Path, path: &str, mode: u32) -> Result<()> {
        let bytes = fs::read(from).with_context(|| format!("Cannot read {}", from.display()))?;
        self.bytes(&bytes, path, mode)
    }

    /// Copies a program or library without its debugging sections.
    pub fn stripped(&self, from: &Path, path: &str) -> Result<()> {
        self.file(from, path, PROGRAM)?;
        output_of(Command::new("strip").arg("--strip-debug").arg(self.root.join(path))).map(drop)
    }

    /// Writes a file.
    pub fn bytes(&self, bytes: &[u8], path: &str, mode: u32) -> Result<()> {
        let place = self.place(path)?;
        fs::write(&place, bytes).with_context(|| format!("Cannot write {}", place.display()))?;
        Ok(fs::set_permissions(&place, Permissions::from_mode(mode))?)
    }

    /// Writes a file and compresses it, as Debian's policy requires for man pages and long documents. The name gets
    /// `.gz`.
    pub fn compressed(&self, bytes: &[u8], path: &str) -> Result<()> {
        self.bytes(bytes, path, FILE)?;
        output_of(Command::new("gzip").args(["-9", "-n"]).arg(self.root.join(path))).map(drop)
    }

    /// Creates a symbolic link.
    pub fn link(&self, target: &str, path: &str) -> Result<()> {
        symlink(target, self.place(path)?).with_context(|| format!("Cannot create the link {path}"))
    }

    /// Copies the libraries of a folder and the links between them.
    pub fn libraries(&self, from: &Path, path: &str) -> Result<()> {
        let entries = fs::read_dir(from).with_context(|| format!("Cannot read {}", from.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let to = format!("{path}/{name}");
            if entry.file_type()?.is_symlink() {
                let target = fs::read_link(entry.path())?;
                self.link(&target.to_string_lossy(), &to)?;
            } else {
                self.stripped(&entry.path(), &to)?;
            }
        }
        Ok(())
    }
}
