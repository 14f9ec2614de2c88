// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemons, one for each owner of a part of a GPU.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::container::Edits;
use crate::folder::Folder;
use crate::owner::{CLAIM, Owner};
use crate::process;
use crate::settings::Settings;
use crate::shards::Inventory;
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

/// All daemons.
#[derive(Debug)]
pub struct Daemons {
    folder: Folder,
    settings: Settings,
    inventory: Arc<Inventory>,
    daemons: BTreeMap<String, Daemon>,
}

#[derive(Debug)]
struct Daemon {
    owner: Owner,
    /// The process, if this plugin has started it.
    child: Option<Child>,
    /// The moment of the kubelet's last list with the owner.
    listed: Instant,
    started: Instant,
    failures: u32,
}

impl Daemon {
    fn new(owner: Owner) -> Self {
        let now = Instant::now();
        Self { owner, child: None, listed: now, started: now, failures: 0 }
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.failures.saturating_sub(1).min(6))
    }
}

impl Daemons {
    /// Takes over the daemons of the last plugin. Daemons without complete files are ended, and those of the other kind of owners.
    pub fn open(folder: Folder, settings: Settings, inventory: Arc<Inventory>) -> Result<Self> {
        let mut owners = folder.owners(&inventory)?;
        for (name, owner) in &mut owners {
            if owner.take_if(|owner| owner.is_claim() != settings.specs.is_some()).is_some() {
                log::warn!("{name} is removed: it is of the kubelet's other interface");
            }
        }
        for process in process::all(&folder) {
            if !owners.iter().any(|(name, owner)| *name == process.name && owner.is_some()) {
                log::warn!("{}: a daemon without files is ended", process.name);
                ensure!(process::end(&[&process]), "A daemon of the last plugin does not end: {process:?}");
            }
        }
        let mut daemons = Self { folder, settings, inventory, daemons: BTreeMap::new() };
        for (name, owner) in owners {
            let Some(owner) = owner else {
                daemons.folder.remove(&name)?;
                continue;
            };
            let twice = daemons.daemons.values().any(|daemon| daemon.owner.excludes(&owner));
            ensure!(!twice, "Shards of {name} have two owners: remove {}", daemons.folder.path().display());
            daemons.daemons.insert(name, Daemon::new(owner));
        }
        if let Some(specs) = &daemons.settings.specs {
            specs.keep(CLAIM, &daemons.daemons.keys().cloned().collect())?;
        }
        if !daemons.daemons.is_empty() {
            log::info!("found daemons of the last plugin: {}", daemons.daemons.len());
        }
        Ok(daemons)
    }

    /// Starts a daemon for a new owner. Those that exclude it have ended, as the kubelet gives each shard to one container at a
    /// time.
    ///
    /// Errors: a daemon of a last owner does not end, the GPU has too little memory for a claim, or the new daemon does not start.
    /// Nothing is left of it then.
    pub fn allocate(&mut self, owner: Owner) -> Result<()> {
        let name = owner.name();
        let last = self.daemons.iter().filter(|(_, daemon)| daemon.owner.excludes(&owner));
        for last in last.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.end(&last)?;
        }
        self.check_room(&owner)?;
        let options = self.settings.text(&self.folder, &owner);
        self.folder.add(&owner, &options).with_context(|| format!("Cannot write the files of {name}"))?;
        self.daemons.insert(name.clone(), Daemon::new(owner));
        let started = self.start(&name);
        if started.is_err() {
            self.end(&name)?;
        }
        started
    }

    /// Checks that the daemons' memory on the GPU of a new one fits it. The scheduler counts, too; but it gives memory away that is
    /// not yet free if somebody removes a claim by force.
    fn check_room(&self, owner: &Owner) -> Result<()> {
        let gpu = self.inventory.gpu(owner.gpu()).context("The GPU is not one of this node")?;
        let others = self.daemons.values().filter(|daemon| daemon.owner.gpu() == gpu.id);
        let used: u64 = others.map(|daemon| daemon.owner.memory()).sum();
        ensure!(
            owner.memory() <= gpu.memory.saturating_sub(used),
            "GPU {} has {} bytes of memory, and {used} of them are in use: {} more do not fit",
            gpu.id,
            gpu.memory,
            owner.memory()
        );
        Ok(())
    }

    /// Prepares the start of a container of an owner: starts its daemon if it is new, if the daemon has ended, or if the node has
    /// restarted.
    ///
    /// Errors: as [`Daemons::allocate`].
    pub fn prepare(&mut self, owner: Owner) -> Result<()> {
        let name = owner.name();
        match self.daemons.get_mut(&name) {
            Some(daemon) if daemon.owner == owner => {
                daemon.listed = Instant::now();
                let runs = process::all(&self.folder).iter().any(|process| process.name == name);
                if !(runs && Sockets::now().listens(&self.folder.socket(&name))) {
                    self.start(&name)?;
                }
            }
            _ => self.allocate(owner)?,
        }
        let Some(specs) = &self.settings.specs else { return Ok(()) };
        specs.write(&name, &self.edits(&name))
    }

    /// The owner with that name.
    pub fn owner(&self, name: &str) -> Option<&Owner> {
        self.daemons.get(name).map(|daemon| &daemon.owner)
    }

    /// The changes to the containers of an owner.
    pub fn edits(&self, name: &str) -> Edits {
        Edits::for_folder(&self.folder.guest(name), &self.settings.libraries)
    }

    /// Ends daemons whose owners have ended, and starts those that have ended before their owners. `listed` are the ids of all
    /// shards that the kubelet lists; `None` if it does not answer, or lists no owners: they do not end then.
    pub fn reconcile(&mut self, listed: Option<&HashSet<String>>) {
        let now = Instant::now();
        let running: HashSet<String> =
            process::all(&self.folder).into_iter().map(|process| process.name).collect();
        let sockets = Sockets::now();
        let (mut ended, mut fallen) = (Vec::new(), Vec::new());
        for (name, daemon) in &mut self.daemons {
            if listed.is_none_or(|listed| daemon.owner.is_listed(listed)) {
                daemon.listed = now;
            }
            // A kubelet that has just started may list no pods. Programs that are connected live.
            let gone = now.duration_since(daemon.listed) >= self.settings.grace;
            if gone && !sockets.is_connected(&self.folder.socket(name)) {
                ended.push(name.clone());
            } else if !running.contains(name) && now.duration_since(daemon.started) >= daemon.pause() {
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

    /// Starts the daemon of an owner, and waits until it listens.
    fn start(&mut self, name: &str) -> Result<()> {
        let daemon = self.daemons.get_mut(name).context("It has no owner")?;
        if daemon.started.elapsed() > MAX_PAUSE {
            daemon.failures = 0;
        }
        daemon.failures = daemon.failures.saturating_add(1);
        daemon.started = Instant::now();
        if let Some(mut last) = daemon.child.take() {
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
        log::info!("{name}: started daemon {} with {} bytes", child.id(), daemon.owner.memory());
        daemon.child = Some(child);
        Ok(())
    }

    /// Ends the daemon of a name, if there is one, and removes all files of it.
    ///
    /// Errors: it does not end, or files cannot be removed. The owner stays, and this is tried again.
    pub fn end(&mut self, name: &str) -> Result<()> {
        if let Some(specs) = &self.settings.specs {
            specs.remove(name)?;
        }
        end_processes(&self.folder, name)?;
        self.folder.remove(name).with_context(|| format!("Cannot remove the files of {name}"))?;
        if let Some(daemon) = self.daemons.remove(name) {
            if let Some(mut child) = daemon.child {
                // It has ended.
                child.wait()?;
            }
            log::info!("{name}: ended");
        }
        Ok(())
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
