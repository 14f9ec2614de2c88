// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host with systemd in a container, with the packages that hosts have.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::subject::{CONFIGURATION, INSTANCE, Subject, install, unit};
use crate::package::booted::{Booted, SHARED};
use crate::package::root::Root;
use crate::setup::{self, RootKind};

const POLL: Duration = Duration::from_millis(200);

/// The host. Dropping it ends its processes.
pub struct Host {
    booted: Booted,
    /// Becomes /srv in the host.
    shared: PathBuf,
    _root: Root,
}

impl Host {
    /// Copies a root, installs `packages` there, lets `prepare` change it, and boots it.
    pub fn start(
        subject: &Subject,
        kind: RootKind,
        packages: &[&str],
        prepare: impl Fn(&Root) -> Result<()>,
    ) -> Result<Self> {
        let root = Root::copy(&setup::package_root(subject.paths, kind)?, subject.folder.join("root"))?;
        let packages: Vec<_> = packages.iter().map(|name| subject.package(name)).collect::<Result<_>>()?;
        install(&root, &packages)?;
        fs::write(root.path(&format!("etc/vhost-user-cuda/{INSTANCE}.toml")), CONFIGURATION)?;
        prepare(&root)?;
        let booted = Booted::start(&root, subject.folder)?;
        Ok(Self { booted, shared: subject.folder.join(SHARED), _root: root })
    }

    /// Runs a command; its standard output.
    pub fn run<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<String> {
        self.booted.run(words)
    }

    /// Runs a command that must fail; its message.
    pub fn refused(&self, words: &[&str]) -> Result<String> {
        match self.run(words.iter().copied()) {
            Ok(output) => bail!("`{}` has not failed: {output}", words.join(" ")),
            Err(error) => Ok(format!("{error:#}")),
        }
    }

    /// The path here of a file in the host's /srv.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.shared.join(name)
    }

    /// The daemon's messages, for an error.
    pub fn daemon_log(&self) -> String {
        let log = self.run(["journalctl", "--no-pager", "-u", &unit("service")]);
        format!("The daemon's log: {}", log.unwrap_or_else(|error| format!("{error:#}")))
    }
}

/// Waits until `done` returns something.
pub fn wait<T>(what: &str, limit: Duration, done: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(result) = done()? {
            return Ok(result);
        }
        if Instant::now() > end {
            bail!("{what} after {limit:?}");
        }
        thread::sleep(POLL);
    }
}
