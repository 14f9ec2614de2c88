// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups (cgroup v2) that bound the host memory and the threads of a virtual machine's workers.
//!
//! The daemon creates a group for each connection under a folder that has been delegated to it, and moves workers
//! there when they get a session. A guest can make workers allocate host memory that no limit covers (objects, device
//! code, compilers). Without a group it comes from the whole host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use log::{debug, info, warn};

/// The maximum number of threads and processes of a machine's workers. Some programs have several hundred each.
const MAX_TASKS: u32 = 8192;
/// The required controllers.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// The daemon's own group next to those of machines, because a group that contains groups cannot have processes.
const OWN: &str = "daemon";

/// The parent of the groups.
#[derive(Debug)]
pub struct Cgroups {
    root: PathBuf,
    memory: Option<u64>,
}

/// The group of one virtual machine; removed when dropped, if its workers have ended.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Cgroups {
    /// Opens the parent from the option `--cgroup`, with `memory` bytes per machine. Returns `None` for no groups.
    ///
    /// Errors: the folder of the option is not a delegated group.
    pub fn open(option: &str, memory: Option<u64>) -> anyhow::Result<Option<Arc<Self>>> {
        let root = match option {
            "none" => Err(anyhow::anyhow!("--cgroup none")),
            "auto" => delegated(),
            path => {
                let root = PathBuf::from(path);
                prepare(&root).with_context(|| format!("--cgroup {path}"))?;
                Ok(root)
            }
        };
        match root {
            Ok(root) => {
                info!("workers are put into control groups under {}", root.display());
                Ok(Some(Arc::new(Self { root, memory })))
            }
            Err(reason) => {
                let cost = "the workers of a virtual machine can use up the host's memory and threads";
                match memory {
                    Some(_) => warn!("--host-memory has no effect: no control groups ({reason:#}): {cost}"),
                    None => info!("no control groups ({reason:#}): {cost}"),
                }
                Ok(None)
            }
        }
    }

    /// Creates the group of a connection.
    pub fn group(&self, connection: u64) -> io::Result<Group> {
        let path = self.root.join(format!("vm-{}-{connection}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group(path);
        group.set("pids.max", &MAX_TASKS.to_string())?;
        if let Some(memory) = self.memory {
            group.set("memory.max", &memory.to_string())?;
            // Memory that is swapped out is not limited. Not every kernel has swap.
            let _ = group.set("memory.swap.max", "0");
        }
        Ok(group)
    }
}

impl Group {
    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.0.join(file), value)
    }

    /// Moves a process into the group. Memory that it has allocated already does not move.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            debug!("The control group {} stays: {error}", self.0.display());
        }
    }
}

/// Returns the daemon's own group, if it has been delegated, for example by `Delegate=yes` in a systemd unit.
fn delegated() -> anyhow::Result<PathBuf> {
    let own = own_group()?;
    let members = fs::read_to_string(own.join("cgroup.procs")).context("its members cannot be read")?;
    let pid = std::process::id().to_string();
    if members.split_whitespace().ne([pid.as_str()]) {
        bail!("{} is not the daemon's alone; systemd: Delegate=yes", own.display());
    }
    let inner = own.join(OWN);
    if let Err(error) = fs::create_dir(&inner)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("{} is not delegated", own.display()));
    }
    let moved = fs::write(inner.join("cgroup.procs"), &pid).context("the daemon cannot be moved");
    if let Err(error) = moved.and_then(|()| prepare(&own)) {
        let _ = fs::write(own.join("cgroup.procs"), &pid);
        let _ = fs::remove_dir(&inner);
        return Err(error);
    }
    Ok(own)
}

/// Allows groups under `root` to have limits.
fn prepare(root: &Path) -> anyhow::Result<()> {
    let has = fs::read_to_string(root.join("cgroup.controllers")).context("it is no group of cgroup v2")?;
    for controller in CONTROLLERS {
        if !has.split_whitespace().any(|word| word == controller) {
            bail!("{} lacks the controller `{controller}`", root.display());
        }
    }
    let wanted = CONTROLLERS.map(|controller| format!("+{controller}")).join(" ");
    fs::write(root.join("cgroup.subtree_control"), wanted).context("controllers cannot be enabled")
}

fn own_group() -> anyhow::Result<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).context("there is no cgroup v2")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let mounted = mount_point(&mounts).context("cgroup v2 is not mounted")?;
    Ok(Path::new(mounted).join(own))
}

/// Returns the mount point of the whole hierarchy.
fn mount_point(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (kind.starts_with("cgroup2 ") && root == "/").then_some(point)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempdir::TempDir;

    #[test]
    fn the_hierarchy_is_found_where_it_is_mounted() {
        let mounts = "22 1 0:20 / /proc rw - proc proc rw\n30 25 0:26 /part /mnt rw - cgroup2 none rw\n\
                      31 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup"));
        assert_eq!(mount_point(""), None);
    }

    /// Creates a folder that resembles a group.
    fn fixture(controllers: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        fs::write(folder.as_path().join("cgroup.controllers"), controllers).unwrap();
        folder
    }

    #[test]
    fn a_machine_has_a_group_with_limits() {
        let folder = fixture("cpu memory pids\n");
        let path = folder.as_path().to_str().unwrap();
        let groups = Cgroups::open(path, Some(1 << 30)).unwrap().unwrap();
        let enabled = fs::read_to_string(folder.as_path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(enabled, "+memory +pids");
        let group = groups.group(7).unwrap();
        group.add(42).unwrap();
        let read = |file: &str| fs::read_to_string(group.0.join(file)).unwrap();
        assert_eq!((read("memory.max"), read("cgroup.procs")), ("1073741824".into(), "42".into()));
        assert_eq!(read("pids.max"), MAX_TASKS.to_string());
        assert!(group.0.ends_with(format!("vm-{}-7", std::process::id())));
    }

    #[test]
    fn a_named_folder_must_do_and_others_may() {
        let without = fixture("cpu\n");
        let error = Cgroups::open(without.as_path().to_str().unwrap(), None).unwrap_err();
        assert!(format!("{error:#}").contains("`memory`"), "{error:#}");
        assert!(Cgroups::open("/nonexistent", None).is_err());
        assert!(Cgroups::open("none", Some(1)).unwrap().is_none());
    }
}
