// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups (cgroup v2) that bound the host memory, the threads and the CPU time of a virtual machine's workers.
//!
//! The daemon creates a group for each connection under a folder that has been delegated to it, and in it a group for
//! each user of the guest. It moves workers there when they get a session. A guest can make workers allocate host memory
//! that no limit covers (objects, device code, compilers), and start threads. Without a group these come from the whole
//! host. Without the groups of users, one user could take the whole machine's part, and the kernel could end another
//! user's worker for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use log::{debug, info, warn};

/// The maximum number of threads and processes of a machine's workers. Some programs have several hundred each.
const MAX_TASKS: u32 = 8192;
/// The maximum number of threads and processes of the workers of one user of the guest, other than its root.
const MAX_USER_TASKS: u32 = MAX_TASKS / 2;
/// The user id of the guest's root, whose workers are limited only as those of the machine.
const ROOT: u32 = 0;
/// The required controllers.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// The controller that is used where it has been delegated.
const CPU: &str = "cpu";
/// The weight of CPU time that groups have in the kernel.
const DEFAULT_WEIGHT: u32 = 100;
/// The daemon's own group next to those of machines, because a group that contains groups cannot have processes.
const OWN: &str = "daemon";

/// The parent of the groups.
#[derive(Debug)]
pub struct Cgroups {
    root: PathBuf,
    memory: Option<u64>,
    /// The weight of each machine's CPU time. `None`: the controller is not there.
    cpu_weight: Option<u32>,
}

/// The limits of each virtual machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineLimits {
    /// The maximum host memory, in bytes.
    pub memory: Option<u64>,
    /// The weight of its CPU time, of 100 for other groups.
    pub cpu_weight: Option<u32>,
}

/// The group of one virtual machine, and those of its users; removed when dropped, if its workers have ended.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    memory: Option<u64>,
    /// The number of sessions of each user that has a group. A guest chooses the numbers of its users, so a group without
    /// sessions is removed as soon as its last worker has ended.
    users: HashMap<u32, u32>,
}

impl Cgroups {
    /// Opens the parent from the option `--cgroup`, with these limits per machine. Returns `None` for no groups.
    ///
    /// `before` is the parent that the program before this one has found.
    ///
    /// Errors: the folder of the option is not a delegated group.
    pub fn open(
        option: &str,
        limits: MachineLimits,
        before: Option<&Path>,
    ) -> anyhow::Result<Option<Arc<Self>>> {
        let MachineLimits { memory, cpu_weight } = limits;
        let root = match option {
            "none" => Err(anyhow::anyhow!("--cgroup none")),
            // The daemon is in a group below it.
            "auto" if before.is_some() => Ok(before.map(Path::to_path_buf).unwrap_or_default()),
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
                let divided = enable(&root, &[CPU]);
                if let (Err(error), Some(_)) = (&divided, cpu_weight) {
                    warn!("--cpu-weight has no effect: {error:#}");
                }
                let cpu_weight = divided.ok().map(|()| cpu_weight.unwrap_or(DEFAULT_WEIGHT));
                Ok(Some(Arc::new(Self { root, memory, cpu_weight })))
            }
            Err(reason) => {
                let cost = "the workers of a virtual machine can use up the host's memory and threads";
                let given = [("--host-memory", memory.is_some()), ("--cpu-weight", cpu_weight.is_some())];
                let without_effect: Vec<_> =
                    given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
                match without_effect[..] {
                    [_, ..] => warn!(
                        "{} has no effect: no control groups ({reason:#}): {cost}",
                        without_effect.join(", ")
                    ),
                    [] => info!("no control groups ({reason:#}): {cost}"),
                }
                Ok(None)
            }
        }
    }

    /// The parent.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Goes on with the group of a connection of the program before this one, with the number of sessions of each user.
    pub fn group_again(&self, connection: u64, users: HashMap<u32, u32>) -> Group {
        Group { path: self.path_of(connection), memory: self.memory, users }
    }

    fn path_of(&self, connection: u64) -> PathBuf {
        self.root.join(format!("vm-{}-{connection}", std::process::id()))
    }

    /// Creates the group of a connection.
    pub fn group(&self, connection: u64) -> io::Result<Group> {
        self.create(&self.path_of(connection), || Ok(()))
    }

    /// Creates a group. `files` runs when its folder is there.
    fn create(&self, path: &Path, files: impl FnOnce() -> io::Result<()>) -> io::Result<Group> {
        fs::create_dir(path)?;
        let group = Group { path: path.to_owned(), memory: self.memory, users: HashMap::new() };
        files()?;
        set(path, "pids.max", MAX_TASKS)?;
        if let Some(memory) = self.memory {
            set(path, "memory.max", memory)?;
            // Memory that is swapped out is not limited. Not every kernel has swap.
            let _ = set(path, "memory.swap.max", 0);
        }
        if let Some(weight) = self.cpu_weight {
            set(path, "cpu.weight", weight)?;
        }
        let controllers: &[&str] = if self.cpu_weight.is_some() { &[CPU] } else { &[] };
        enable(&group.path, &[&CONTROLLERS, controllers].concat()).map_err(io::Error::other)?;
        Ok(group)
    }
}

impl Group {
    fn of_user(&self, uid: u32) -> PathBuf {
        self.path.join(format!("user-{uid}"))
    }

    /// Moves the processes `pids` of a new session's worker into the group of its user. Memory that they have allocated
    /// already does not move.
    pub fn join(&mut self, uid: u32, mut pids: impl Iterator<Item = u32>) -> io::Result<()> {
        self.sweep();
        let path = self.of_user(uid);
        let created = match self.users.entry(uid) {
            Entry::Vacant(user) => {
                fs::create_dir(&path)?;
                user.insert(0);
                true
            }
            Entry::Occupied(_) => false,
        };
        if created && uid != ROOT {
            set(&path, "pids.max", MAX_USER_TASKS)?;
            if let Some(memory) = self.memory {
                set(&path, "memory.max", user_memory(memory))?;
            }
        }
        pids.try_for_each(|pid| set(&path, "cgroup.procs", pid))?;
        *self.users.entry(uid).or_default() += 1;
        Ok(())
    }

    /// Ends a session of [`Self::join`].
    pub fn leave(&mut self, uid: u32) {
        if let Some(sessions) = self.users.get_mut(&uid) {
            *sessions = sessions.saturating_sub(1);
        }
        self.sweep();
    }

    /// Removes the groups of users without sessions, unless a worker has not ended yet.
    fn sweep(&mut self) {
        let Self { path, users, .. } = self;
        users.retain(|uid, sessions| *sessions > 0 || !remove(&path.join(format!("user-{uid}"))));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for &uid in self.users.keys() {
            remove(&self.of_user(uid));
        }
        remove(&self.path);
    }
}

/// Returns the host memory that the workers of one user may have, of that of the machine. The rest is left to other
/// users: their workers are not ended for it.
fn user_memory(machine: u64) -> u64 {
    machine / 4 * 3
}

fn set(group: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    fs::write(group.join(file), value.to_string())
}

/// Removes a group. Returns false if it has processes.
fn remove(group: &Path) -> bool {
    let removed = fs::remove_dir(group);
    if let Err(error) = &removed {
        debug!("The control group {} stays: {error}", group.display());
    }
    removed.is_ok()
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
    enable(root, &CONTROLLERS)
}

/// Enables controllers for groups under `root`.
fn enable(root: &Path, controllers: &[&str]) -> anyhow::Result<()> {
    let has = fs::read_to_string(root.join("cgroup.controllers")).context("it is no group of cgroup v2")?;
    for &controller in controllers {
        if !has.split_whitespace().any(|word| word == controller) {
            bail!("{} lacks the controller `{controller}`", root.display());
        }
    }
    let wanted = controllers.iter().map(|controller| format!("+{controller}")).collect::<Vec<_>>().join(" ");
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

    /// Lets groups of a connection be created in a fixture: the kernel gives a new group its files.
    fn group(folder: &TempDir, limits: MachineLimits) -> (Group, String) {
        let path = folder.as_path().to_str().unwrap();
        let groups = Cgroups::open(path, limits, None).unwrap().unwrap();
        let enabled = fs::read_to_string(folder.as_path().join("cgroup.subtree_control")).unwrap();
        let controllers = fs::read_to_string(folder.as_path().join("cgroup.controllers")).unwrap();
        let machine = folder.as_path().join(format!("vm-{}-7", std::process::id()));
        let group = groups.create(&machine, || fs::write(machine.join("cgroup.controllers"), &controllers));
        (group.unwrap(), enabled)
    }

    fn read(group: &Path, file: &str) -> Option<String> {
        fs::read_to_string(group.join(file)).ok()
    }

    #[test]
    fn a_machine_has_a_group_with_limits() {
        let folder = fixture("cpuset cpu memory pids\n");
        let (group, enabled) = group(&folder, MachineLimits { memory: Some(1 << 30), cpu_weight: None });
        assert_eq!(enabled, "+cpu", "the last of two");
        let path = &group.path;
        assert_eq!(read(path, "memory.max").unwrap(), "1073741824");
        assert_eq!(read(path, "pids.max").unwrap(), MAX_TASKS.to_string());
        assert_eq!(read(path, "cpu.weight").unwrap(), "100");
        assert_eq!(read(path, "cgroup.subtree_control").unwrap(), "+memory +pids +cpu");
        assert!(read(path, "cgroup.procs").is_none(), "a group with groups has no processes");
    }

    #[test]
    fn a_user_has_a_part_of_the_machines_limits() {
        let folder = fixture("memory pids\n");
        let (mut group, enabled) =
            group(&folder, MachineLimits { memory: Some(1 << 30), cpu_weight: Some(30) });
        assert_eq!(enabled, "+memory +pids");
        assert!(read(&group.path, "cpu.weight").is_none(), "there is no such controller");
        group.join(1000, [42].into_iter()).unwrap();
        group.join(1001, [43].into_iter()).unwrap();
        group.join(ROOT, [44].into_iter()).unwrap();
        let alice = group.of_user(1000);
        assert_eq!(read(&alice, "cgroup.procs").unwrap(), "42");
        assert_eq!(read(&alice, "memory.max").unwrap(), (3 << 28).to_string());
        let tasks = |path: &Path| read(path, "pids.max").unwrap().parse::<u32>().unwrap();
        assert_eq!(tasks(&alice), MAX_USER_TASKS);
        assert!(2 * tasks(&alice) <= tasks(&group.path), "others have threads, too");
        let root = group.of_user(ROOT);
        assert!(read(&root, "memory.max").is_none() && read(&root, "pids.max").is_none());
        // A group is that of a user, not of a session, and goes with the last session.
        group.join(1000, [45].into_iter()).unwrap();
        assert_eq!(read(&alice, "cgroup.procs").unwrap(), "45");
        group.leave(1000);
        assert_eq!(group.users.get(&1000), Some(&1));
        // Its worker has not ended yet. (A folder with files cannot be removed.)
        group.leave(1000);
        assert_eq!(group.users.get(&1000), Some(&0));
        ["cgroup.procs", "memory.max", "pids.max"]
            .iter()
            .for_each(|file| fs::remove_file(alice.join(file)).unwrap());
        group.join(1001, [46].into_iter()).unwrap();
        assert!(!alice.exists() && group.of_user(1001).exists() && !group.users.contains_key(&1000));
        group.leave(1000);
    }

    #[test]
    fn a_named_folder_must_do_and_others_may() {
        let without = fixture("cpu\n");
        let none = MachineLimits::default();
        let error = Cgroups::open(without.as_path().to_str().unwrap(), none, None).unwrap_err();
        assert!(format!("{error:#}").contains("`memory`"), "{error:#}");
        assert!(Cgroups::open("/nonexistent", none, None).is_err());
        assert!(Cgroups::open("none", MachineLimits { memory: Some(1), ..none }, None).unwrap().is_none());
    }
}
