// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The apiserver, as far as a driver sees it: objects by their paths, by a program that is called as kubectl.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// A folder with objects.
pub struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// An apiserver without objects, with its files in `folder`.
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder.join("objects"))?;
        let cluster = Self { folder: folder.to_path_buf() };
        fs::write(cluster.kubectl(), include_str!("kubectl.sh"))?;
        fs::set_permissions(cluster.kubectl(), Permissions::from_mode(0o755))?;
        Ok(cluster)
    }

    /// The program.
    pub fn kubectl(&self) -> PathBuf {
        self.folder.join("kubectl")
    }

    /// Makes or replaces an object. Readers see all of it, or what was there before.
    pub fn put(&self, path: &str, object: impl AsRef<[u8]>) -> Result<()> {
        let new = self.folder.join("new");
        fs::write(&new, object)?;
        Ok(fs::rename(new, self.file(path))?)
    }

    /// The object with that path, if there is one.
    pub fn get(&self, path: &str) -> Option<serde_json::Value> {
        serde_json::from_slice(&fs::read(self.file(path)).ok()?).ok()
    }

    /// Removes an object.
    pub fn delete(&self, path: &str) -> Result<()> {
        Ok(fs::remove_file(self.file(path))?)
    }

    /// Makes the apiserver unreachable, or reachable again.
    pub fn set_reachable(&self, is_reachable: bool) -> Result<()> {
        let down = self.folder.join("down");
        if is_reachable { Ok(fs::remove_file(down)?) } else { Ok(fs::write(down, "")?) }
    }

    fn file(&self, path: &str) -> PathBuf {
        self.folder.join("objects").join(path.replace('/', "%"))
    }
}
