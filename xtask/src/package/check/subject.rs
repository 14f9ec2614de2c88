// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts that all trials use.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::package::root::Root;
use crate::paths::Paths;
use crate::progress::duration;

/// A line that the program prints.
pub const PRINTED: &str = "after: 1 2 3 4";
/// The instance of the units, and the name of the virtual machine.
pub const INSTANCE: &str = "vm1";
/// Its daemon's socket.
pub const SOCKET: &str = "/run/vhost-user-cuda/vm1.sock";
/// Options of its daemon. Namespaces are required, so that the daemon does not start where the unit forbids them.
pub const CONFIGURATION: &str = "device = \"emulated\"\nnamespaces = \"require\"\n";
/// The maximum time for the end of workers, and for the start of the daemon.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The tested files.
pub struct Subject<'a> {
    /// The repository and its outputs.
    pub paths: &'a Paths,
    /// All packages.
    pub packages: &'a [PathBuf],
    /// Their folder, for more files.
    pub folder: &'a Path,
    /// A compiled CUDA program, which prints [`PRINTED`].
    pub program: PathBuf,
    /// The image of a guest has been made.
    pub has_image: Cell<bool>,
}

impl Subject<'_> {
    /// The package of that name.
    pub fn package(&self, name: &str) -> Result<PathBuf> {
        let start = format!("{name}_");
        let is_it =
            |path: &&PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&start));
        self.packages.iter().find(is_it).cloned().with_context(|| format!("There is no package {name}"))
    }
}

/// A step of a trial, and its name.
pub type Step<'a> = (&'a str, &'a dyn Fn() -> Result<()>);

/// Does the steps one after the other, and prints their times.
pub fn steps(steps: &[Step]) -> Result<()> {
    for (name, step) in steps {
        let started = Instant::now();
        step().with_context(|| format!("Step {name} of the check"))?;
        println!("{name:16} ok  {}", duration(started.elapsed()));
    }
    Ok(())
}

/// Installs packages in a root.
pub fn install(root: &Root, packages: &[PathBuf]) -> Result<()> {
    let mut inside = Vec::new();
    for package in packages {
        let name = package.file_name().context("A package has no name")?.to_string_lossy().into_owned();
        fs::copy(package, root.path(&name))?;
        inside.push(format!("/{name}"));
    }
    root.run(["dpkg", "--install"].into_iter().chain(inside.iter().map(String::as_str)))?;
    inside.iter().try_for_each(|name| Ok(fs::remove_file(root.path(&name[1..]))?))
}

/// The name of an instance's unit.
pub fn unit(kind: &str) -> String {
    format!("vhost-user-cuda@{INSTANCE}.{kind}")
}
