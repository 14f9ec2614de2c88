// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root of workers: a read-only tree with the files of [`paths`], and no other files of the host.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{chdir, pivot_root};
use vhost_cuda_common::confine::{Folders, paths};

/// The folder in which the tree is built. Every host has it, and its contents are hidden in this namespace only.
const BASE: &str = "/tmp";
/// The host's root while the tree is built.
const OLD: &str = "/old";

/// A tree that is being built.
#[derive(Debug)]
pub struct Tree {
    /// Mounts that become read-only at the end, and whether they may contain device nodes.
    read_only: Vec<(PathBuf, bool)>,
}

impl Tree {
    /// Makes the tree the root of this thread, with the host's root at [`OLD`]. The thread must have a mount
    /// namespace of its own and share its root with no other thread.
    pub fn enter(folders: &Folders) -> anyhow::Result<Self> {
        let nodes = paths::nodes();
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).context("Cannot make the mounts of workers private")?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", BASE, "tmpfs", flags, c"mode=755,size=4m")
            .context("Cannot mount a root for workers")?;
        let old = Path::new(BASE).join(&OLD[1..]);
        fs::create_dir(&old)?;
        pivot_root(BASE, &old).context("Cannot change the root of workers")?;
        chdir("/")?;
        let mut tree = Self { read_only: Vec::new() };
        let read = paths::READ.iter().map(Path::new);
        for path in read.chain(folders.read.iter().map(PathBuf::as_path)) {
            if tree.show(path)? {
                tree.read_only.push((path.to_owned(), false));
            }
        }
        for path in nodes {
            // A read-only mount prevents changes of the node's permissions; the device can still be written.
            if tree.show(&path)? {
                tree.read_only.push((path, true));
            }
        }
        for path in &folders.write {
            tree.show(path)?;
        }
        fs::create_dir_all(paths::SHM)?;
        mount("tmpfs", paths::SHM, "tmpfs", flags | MountFlags::NOEXEC, c"mode=1777,size=64m")
            .context("Cannot mount shared memory for workers")?;
        fs::create_dir_all(paths::PROC)?;
        Ok(tree)
    }

    /// Returns the program of this process in the tree until [`Tree::close`].
    pub fn program() -> PathBuf {
        Path::new(OLD).join("proc/self/exe")
    }

    /// Returns the folder in the host's `/proc` of the calling thread until [`Tree::close`].
    pub fn of_thread() -> PathBuf {
        Path::new(OLD).join("proc/thread-self")
    }

    /// Unmounts the host's root.
    pub fn close(self) -> anyhow::Result<()> {
        for (path, nodes) in &self.read_only {
            restrict(path, true, *nodes)
                .with_context(|| format!("Cannot make {} read-only", path.display()))?;
        }
        unmount(OLD, UnmountFlags::DETACH).context("Cannot take the host's root from workers")?;
        fs::remove_dir(OLD)?;
        restrict(Path::new("/"), false, false).context("Cannot make the root of workers read-only")
    }

    /// Adds `path` of the host to the tree, if the host has it. Returns true if it became a mount.
    fn show(&self, path: &Path) -> anyhow::Result<bool> {
        let host = Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path));
        let Ok(meta) = fs::symlink_metadata(&host) else { return Ok(false) };
        if fs::symlink_metadata(path).is_ok() {
            // It lies in a folder that the tree contains already.
            return Ok(false);
        }
        let failed = || format!("Cannot show workers {}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(failed)?;
        }
        if meta.is_symlink() {
            return symlink(fs::read_link(&host)?, path).map(|()| false).with_context(failed);
        }
        if meta.is_dir() {
            fs::create_dir(path).with_context(failed)?;
        } else {
            File::create_new(path).with_context(failed)?;
        }
        mount_bind_recursive(&host, path).map(|()| true).with_context(failed)
    }
}

/// Makes `path` read-only, with `recursive` also the mounts below it, and disables devices unless `nodes` is true.
fn restrict(path: &Path, recursive: bool, nodes: bool) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut attributes: libc::mount_attr = unsafe { std::mem::zeroed() };
    attributes.attr_set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;
    if !nodes {
        attributes.attr_set |= libc::MOUNT_ATTR_NODEV;
    }
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    let bytes = size_of::<libc::mount_attr>();
    // SAFETY: the path is a C string and the attributes are a local of the size given; the kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            bytes,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
