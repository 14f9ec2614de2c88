// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of the plugin. All its state is here: a plugin that starts finds the daemons of the last one.
//!
//! | file below the folder | contents |
//! | --- | --- |
//! | `lock` | locked by the plugin that runs |
//! | `NAME/shards` | the ids of a container's shards, one per line |
//! | `NAME/claim` | or the request, GPU, memory and weight of a claim |
//! | `NAME/daemon.toml` | the daemon's options |
//! | `NAME/daemon.log` | its messages |
//! | `NAME/metrics.sock` | its metrics |
//! | `NAME/guest/vhost.sock` | its socket; containers see `guest` |
//! | `.NAME` | files that are written, or removed |

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::owner::{CLAIM_FILE, Owner, SHARDS_FILE};
use crate::shards::Inventory;

/// The maximum length of a socket's path (`sun_path` without its zero).
const MAX_SOCKET_PATH: usize = 107;
/// More than the ids of all shards of a GPU.
const MAX_OWNER_FILE: u64 = 1 << 20;
const OPTIONS: &str = "daemon.toml";

/// The time for the lock of a plugin that has just ended, and the pause between two attempts. A process that it was starting has the
/// lock, too, until it executes its program.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// The folder of all daemons. Other users cannot enter it: sockets in it are reached through mounts only.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder, or takes over the last plugin's, and removes what a plugin has not finished.
    ///
    /// Errors: it belongs to another user, another plugin uses it, or files cannot be made.
    pub fn open(path: &Path, inventory: &Inventory) -> Result<Self> {
        ensure!(path.is_absolute(), "--folder {} is not an absolute path", path.display());
        let longest = Owner::longest_name(inventory);
        let socket = path.as_os_str().len() + longest + "//guest/vhost.sock".len();
        ensure!(socket <= MAX_SOCKET_PATH, "--folder {} is too long for paths of sockets", path.display());
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("Cannot make --folder {}", path.display()))?;
        let owner = fs::symlink_metadata(path)?;
        let me = rustix::process::geteuid().as_raw();
        ensure!(
            owner.is_dir() && owner.uid() == me,
            "--folder {} is not a folder of user {me}",
            path.display()
        );
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
        let lock = File::create(path.join("lock"))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => bail!("Another plugin uses --folder {}", path.display()),
                Err(TryLockError::Error(error)) => return Err(error).context("Cannot lock the folder"),
            }
        }
        Ok(Self { path: path.to_path_buf(), _lock: lock })
    }

    /// The names that have files, and their owners. `None` for files that no plugin of this inventory has made, or not
    /// completely.
    pub fn owners(&self, inventory: &Inventory) -> Result<Vec<(String, Option<Owner>)>> {
        let mut owners = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            let owner = self.owner(&name, inventory);
            if let Err(error) = &owner {
                log::warn!("{name} is removed: {error:#}");
            }
            owners.push((name, owner.ok()));
        }
        Ok(owners)
    }

    fn owner(&self, name: &str, inventory: &Inventory) -> Result<Owner> {
        let folder = self.path.join(name);
        let file = if folder.join(CLAIM_FILE).exists() { CLAIM_FILE } else { SHARDS_FILE };
        let path = folder.join(file);
        ensure!(fs::metadata(&path)?.len() <= MAX_OWNER_FILE, "{} is too long", path.display());
        Owner::parse(inventory, name, file, &fs::read_to_string(&path)?)
            .with_context(|| format!("Cannot use {}", path.display()))
    }

    /// Makes the files of an owner, whose daemon has these options. It has none yet.
    pub fn add(&self, owner: &Owner, options: &str) -> Result<()> {
        let name = owner.name();
        let new = self.path.join(format!(".{name}"));
        remove(&new)?;
        fs::create_dir(&new)?;
        fs::create_dir(new.join("guest"))?;
        fs::set_permissions(new.join("guest"), Permissions::from_mode(0o755))?;
        let (file, text) = owner.file();
        fs::write(new.join(file), text)?;
        fs::write(new.join(OPTIONS), options)?;
        fs::rename(&new, self.path.join(&name)).context("Cannot rename")
    }

    /// Removes the files of a name, if there are any.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let old = self.path.join(format!(".{}", name.trim_start_matches('.')));
        if !name.starts_with('.') {
            remove(&old)?;
            match fs::rename(self.path.join(name), &old) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                renamed => renamed?,
            }
        }
        remove(&old)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The options of a daemon.
    pub fn options(&self, name: &str) -> PathBuf {
        self.path.join(name).join(OPTIONS)
    }

    /// The messages of a daemon.
    pub fn log(&self, name: &str) -> PathBuf {
        self.path.join(name).join("daemon.log")
    }

    /// The file that workers lock.
    pub fn workers_lock(&self, name: &str) -> PathBuf {
        self.path.join(name).join("workers")
    }

    /// The socket of a daemon's metrics.
    pub fn metrics(&self, name: &str) -> PathBuf {
        self.path.join(name).join("metrics.sock")
    }

    /// The folder that is mounted into containers.
    pub fn guest(&self, name: &str) -> PathBuf {
        self.path.join(name).join("guest")
    }

    /// The socket of a daemon.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.guest(name).join("vhost.sock")
    }

    /// The name of the daemon that has `options` as its `--config`.
    pub fn name_of<'a>(&self, options: &'a Path) -> Option<&'a str> {
        let mut parts = options.strip_prefix(&self.path).ok()?.components();
        let name = parts.next()?.as_os_str().to_str()?;
        (parts.as_path() == Path::new(OPTIONS)).then_some(name)
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;
    use crate::gpus::Gpu;

    fn inventory() -> Inventory {
        Inventory::new(&[Gpu { id: "0".into(), memory: 4 << 30 }], 1 << 30).unwrap()
    }

    #[test]
    fn the_next_plugin_finds_the_files() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("plugin");
        let shards = Owner::Shards(inventory().check(&["0-3", "0-1"]).unwrap());
        let uid = "5e0a2b1c-0000-4000-8000-000000000001";
        let claim = Owner::Claim(Claim::new(&inventory(), uid, "gpu", "0", 1 << 20, 1).unwrap());
        let (name, other) = (claim.name(), format!("claim-{}2", &uid[..35]));
        let folder = Folder::open(&path, &inventory()).unwrap();
        assert!(Folder::open(&path, &inventory()).unwrap_err().to_string().contains("Another plugin"));
        folder.add(&shards, "a = 1").unwrap();
        folder.add(&claim, "a = 1").unwrap();
        fs::create_dir(path.join(&other)).unwrap();
        fs::write(path.join(&other).join("claim"), "gpu\n1\n1048576\n1\n").unwrap();
        fs::create_dir(path.join(".0-2")).unwrap();
        fs::create_dir(path.join("0-2")).unwrap();
        fs::create_dir(path.join("0-0")).unwrap();
        fs::write(path.join("0-0/shards"), "0-3").unwrap();
        drop(folder);
        let folder = Folder::open(&path, &inventory()).unwrap();
        let mut owners = folder.owners(&inventory()).unwrap();
        owners.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [
            (".0-2", None),
            ("0-0", None),
            ("0-1", Some(shards)),
            ("0-2", None),
            (&name, Some(claim)),
            (&other, None),
        ];
        assert_eq!(owners, expected.map(|(name, shards)| (name.to_owned(), shards)));
        for (name, _) in owners {
            folder.remove(&name).unwrap();
            folder.remove(&name).unwrap();
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    }

    #[test]
    fn options_have_the_name_of_their_folder() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(temporary.path(), &inventory()).unwrap();
        assert_eq!(folder.name_of(&folder.options("0-1")), Some("0-1"));
        for other in [folder.log("0-1"), folder.options("0-1/x"), "/x/0-1/daemon.toml".into()] {
            assert_eq!(folder.name_of(&other), None, "{}", other.display());
        }
    }

    #[test]
    fn paths_of_sockets_have_a_limit() {
        let long = Path::new("/tmp").join("x".repeat(100));
        assert!(Folder::open(&long, &inventory()).unwrap_err().to_string().contains("too long"));
        assert!(!long.exists());
    }
}
