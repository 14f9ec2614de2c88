// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemons, one for each owner of shards: a container of a pod. The kubelet says when an owner begins, and lists those that
//! there are. It does not say when one ends.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::folder::Folder;
use crate::process;
use crate::shards::{Inventory, Shards};
use crate::sockets::Sockets;

/// The time limit for a daemon to listen. The kubelet waits for 30 s before a container starts.
const START: Duration = Duration::from_secs(20);
/// The pause between two looks at a daemon that starts.
const LOOK: Duration = Duration::from_millis(5);
/// The pause before a daemon that has ended is started again: one second, twice as long with each further failure, and at most
/// 64 seconds. A daemon that has run for so long has not failed.
const MAX_PAUSE: Duration = Duration::from_secs(64);
/// The part of a daemon's messages that an error shows, in bytes.
const SHOWN: usize = 400;

/// The settings of all daemons.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program.
    pub program: PathBuf,
    /// Text of options for each, in TOML.
    pub options: String,
    /// The arbiter's socket, if GPU time is shared by weights.
    pub arbiter: Option<PathBuf>,
    /// The time for which an owner may be missing in the kubelet's list.
    pub grace: Duration,
}

/// All daemons.
#[derive(Debug)]
pub struct Daemons {
    folder: Folder,
    settings: Settings,
    owners: BTreeMap<String, Owner>,
}

#[derive(Debug)]
struct Owner {
    shards: Shards,
    /// The daemon, if this plugin has started it.
    child: Option<Child>,
    /// The moment of the kubelet's last list with it.
    listed: Instant,
    started: Instant,
    failures: u32,
}

impl Owner {
    fn new(shards: Shards) -> Self {
        let now = Instant::now();
        Self { shards, child: None, listed: now, started: now, failures: 0 }
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.failures.saturating_sub(1).min(6))
    }
}

impl Daemons {
    /// Takes over the daemons of the last plugin. Daemons without complete files are ended.
    pub fn open(folder: Folder, settings: Settings, inventory: &Inventory) -> Result<Self> {
        let mut daemons = Self { folder, settings, owners: BTreeMap::new() };
        let owners = daemons.folder.owners(inventory)?;
        for process in process::all(&daemons.folder) {
            if !owners.iter().any(|(name, shards)| *name == process.name && shards.is_some()) {
                log::warn!("{}: a daemon without files is ended", process.name);
                ensure!(process::end(&[&process]), "A daemon of the last plugin does not end: {process:?}");
            }
        }
        for (name, shards) in owners {
            let Some(shards) = shards else {
                daemons.folder.remove(&name)?;
                continue;
            };
            let twice = daemons.owners.values().any(|owner| owner.shards.overlap(&shards));
            ensure!(!twice, "Shards of {name} have two owners: remove {}", daemons.folder.path().display());
            daemons.owners.insert(name, Owner::new(shards));
        }
        if !daemons.owners.is_empty() {
            log::info!("found daemons of the last plugin: {}", daemons.owners.len());
        }
        Ok(daemons)
    }

    /// Starts a daemon for a new owner of `shards`. Their last owners have ended, as the kubelet gives each shard to one
    /// container at a time.
    ///
    /// Errors: a daemon of a last owner does not end, or the new one does not start. Nothing is left of it then.
    pub fn allocate(&mut self, shards: Shards) -> Result<()> {
        let name = shards.name();
        let last = self.owners.iter().filter(|(_, owner)| owner.shards.overlap(&shards));
        for last in last.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.end(&last)?;
        }
        let options = self.options(&shards);
        self.folder.add(&shards, &options).with_context(|| format!("Cannot write the files of {name}"))?;
        self.owners.insert(name.clone(), Owner::new(shards));
        let started = self.start(&name);
        if started.is_err() {
            self.end(&name)?;
        }
        started
    }

    /// Prepares the start of a container of the owner of `shards`: starts its daemon if that has ended, or if the node has
    /// restarted.
    ///
    /// Errors: the daemon does not start.
    pub fn prepare(&mut self, shards: Shards) -> Result<()> {
        let name = shards.name();
        match self.owners.get_mut(&name) {
            Some(owner) if owner.shards == shards => {
                owner.listed = Instant::now();
                let runs = process::all(&self.folder).iter().any(|process| process.name == name);
                if runs && Sockets::now().listens(&self.folder.socket(&name)) {
                    Ok(())
                } else {
                    self.start(&name)
                }
            }
            _ => self.allocate(shards),
        }
    }

    /// Ends daemons whose owners have ended, and starts those that have ended before their owners. `listed` are the ids of all
    /// shards that the kubelet lists, `None` if it does not answer: owners do not end then.
    pub fn reconcile(&mut self, listed: Option<&HashSet<String>>) {
        let now = Instant::now();
        let running: HashSet<String> =
            process::all(&self.folder).into_iter().map(|process| process.name).collect();
        let sockets = Sockets::now();
        let (mut ended, mut fallen) = (Vec::new(), Vec::new());
        for (name, owner) in &mut self.owners {
            if listed.is_none_or(|listed| owner.shards.ids().any(|id| listed.contains(&id))) {
                owner.listed = now;
            }
            // A kubelet that has just started may list no pods. Programs that are connected live.
            let gone = now.duration_since(owner.listed) >= self.settings.grace;
            if gone && !sockets.is_connected(&self.folder.socket(name)) {
                ended.push(name.clone());
            } else if !running.contains(name) && now.duration_since(owner.started) >= owner.pause() {
                fallen.push(name.clone());
            }
        }
        for name in ended {
            if let Err(error) = self.end(&name) {
                log::error!("{error:#}");
            }
        }
        for name in fallen {
            log::warn!("{name}: the daemon has ended before its container{}", self.last_words(&name));
            if let Err(error) = self.start(&name) {
                log::error!("{error:#}");
            }
        }
    }

    /// The folder of their files.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Starts the daemon of an owner, and waits until it listens.
    fn start(&mut self, name: &str) -> Result<()> {
        let owner = self.owners.get_mut(name).context("It has no owner")?;
        if owner.started.elapsed() > MAX_PAUSE {
            owner.failures = 0;
        }
        owner.failures = owner.failures.saturating_add(1);
        owner.started = Instant::now();
        if let Some(mut last) = owner.child.take() {
            let _ = last.kill();
            last.wait()?;
        }
        // The last one, if this plugin has not started it.
        end_processes(&self.folder, name)?;
        let log = self.folder.log(name);
        let log = File::options().create(true).append(true).open(&log);
        let log = log.with_context(|| format!("Cannot write the log of {name}"))?;
        let mut command = Command::new(&self.settings.program);
        // A group of its own: it outlives the plugin, also at a terminal.
        command.arg("--config").arg(self.folder.options(name)).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let program = self.settings.program.display();
        let socket = self.folder.socket(name);
        let deadline = Instant::now() + START;
        // The last one's socket, while the kernel or a child of it still has it open.
        while Sockets::now().listens(&socket) {
            ensure!(
                Instant::now() < deadline,
                "A process that has ended still listens on {}",
                socket.display()
            );
            thread::sleep(LOOK);
        }
        let mut child = command.spawn().with_context(|| format!("Cannot start {program}"))?;
        while !Sockets::now().listens(&socket) {
            if let Some(status) = child.try_wait()? {
                bail!("{program} for {name} ended at once ({status}){}", self.last_words(name));
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                child.wait()?;
                bail!("{program} for {name} does not listen within {START:?}{}", self.last_words(name));
            }
            thread::sleep(LOOK);
        }
        // The users of containers differ. No other user of the node reaches the folder.
        fs::set_permissions(&socket, Permissions::from_mode(0o666))
            .with_context(|| format!("Cannot open {} to the container's users", socket.display()))?;
        log::info!("{name}: started daemon {} for {} shards", child.id(), owner.shards.count());
        owner.child = Some(child);
        Ok(())
    }

    /// Ends the daemon of a name, and removes its files.
    ///
    /// Errors: it does not end. The owner stays, and this is tried again.
    fn end(&mut self, name: &str) -> Result<()> {
        end_processes(&self.folder, name)?;
        self.folder.remove(name).with_context(|| format!("Cannot remove the files of {name}"))?;
        if let Some(mut child) = self.owners.remove(name).and_then(|owner| owner.child) {
            // It has ended.
            child.wait()?;
        }
        log::info!("{name}: ended");
        Ok(())
    }

    /// The text of the options of a daemon.
    fn options(&self, shards: &Shards) -> String {
        let name = shards.name();
        let text = |path: PathBuf| quoted(&path.to_string_lossy());
        let mut lines = vec![
            format!(
                "# {} shards of a container of Kubernetes; vhost-cuda-plugin removes this file.",
                shards.count()
            ),
            self.settings.options.clone(),
            format!("socket-path = {}", text(self.folder.socket(&name))),
            format!("workers-lock = {}", text(self.folder.workers_lock(&name))),
            format!("metrics = {}", text(self.folder.metrics(&name))),
            format!("gpus = {}", quoted(shards.gpu())),
            format!("memory = \"{}\"", shards.memory()),
        ];
        if let Some(arbiter) = &self.settings.arbiter {
            lines.push(format!("arbiter = {}", text(arbiter.clone())));
            lines.push(format!("share = {}", shards.count()));
        }
        lines.join("\n") + "\n"
    }

    /// The end of a daemon's messages, for an error.
    fn last_words(&self, name: &str) -> String {
        let text = fs::read(self.folder.log(name)).unwrap_or_default();
        let end = &text[text.len().saturating_sub(SHOWN)..];
        let end = String::from_utf8_lossy(end);
        if end.trim().is_empty() { String::new() } else { format!(": {}", end.trim()) }
    }
}

fn end_processes(folder: &Folder, name: &str) -> Result<()> {
    let all = process::all(folder);
    let processes: Vec<_> = all.iter().filter(|process| process.name == name).collect();
    ensure!(process::end(&processes), "The daemon of {name} does not end: {processes:?}");
    Ok(())
}

/// A basic string of TOML. Control characters do not come up in paths that clap and `Folder` accept; they are escaped all the
/// same.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted += &format!("\\u{:04X}", u32::from(control)),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}
