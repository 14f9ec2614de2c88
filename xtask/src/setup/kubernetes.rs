// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cluster of Kubernetes 1.20 from Debian 12, for the level `kubernetes`. Debian has its source package and the packages of
//! what it needs, but no packages of the servers. Nothing is installed on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::apt::Apt;
use super::cache::{Entry, newest_version};
use crate::paths::Paths;
use crate::progress::Step;

const SUITE: &str = "bookworm";
const SOURCE: &str = "kubernetes";
/// The parts of a node, which are used as they are.
const PACKAGES: [&str; 6] = [
    "etcd-server",
    "containerd",
    "runc",
    "kubernetes-client",
    "containernetworking-plugins",
    "busybox-static",
];
/// The compiler.
const GO: [&str; 2] = ["golang-1.19-go", "golang-1.19-src"];
const BUILD: &str = include_str!("kubernetes.sh");

/// Makes sure that the cluster's programs are there.
pub fn setup(paths: &Paths) -> Result<()> {
    let step = Step::new("kubernetes", &paths.setup_logs())?;
    if let Some(version) = newest_version(&paths.cache, SOURCE, "") {
        step.cached(&version);
        return Ok(());
    }
    let apt = Apt::open(&paths.cache, &step)?;
    let version = apt.newest_source(SOURCE, SUITE)?;
    let entry = Entry::named(&paths.cache, SOURCE, &version);
    entry.begin_empty()?;
    let unpack = |packages: &[&str], target: &Path| {
        packages
            .iter()
            .try_for_each(|package| apt.unpack(package, &apt.newest(package, Some(SUITE))?, target, &step))
    };
    unpack(&PACKAGES, &entry.path.join("root"))?;
    let work = entry.path.join("work");
    unpack(&GO, &work.join("go"))?;
    apt.source(SOURCE, &version, &work, &step)?;
    drop(apt);
    step.note(&format!("building {version}, 5 to 30 minutes on 2 cores"));
    step.run(Command::new("sh").args(["-c", BUILD, "sh"]).arg(&work).arg(entry.path.join("bin")))?;
    fs::remove_dir_all(&work)?;
    entry.complete()?;
    step.done(&version);
    Ok(())
}

/// The folder that [`setup`] made: `bin` with the programs of Kubernetes, `root` with Debian's packages.
pub fn find(paths: &Paths) -> Result<PathBuf> {
    let version =
        newest_version(&paths.cache, SOURCE, "").context("run: cargo xtask setup --only kubernetes")?;
    Ok(Entry::named(&paths.cache, SOURCE, &version).path)
}
