// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The namespaces of all workers of a daemon.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use log::{error, info, warn};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use serde::{Deserialize, Serialize};
use vhost_cuda_common::confine::Folders;

use super::keeper::{Keeper, SavedKeeper};
use super::loopback;
use super::own::OF_WORKERS;
use super::tree::Tree;
use crate::hand_over::files::{Inherited, Leaving, Number};

/// The namespaces of the processes that the calling thread starts. They end with the value.
#[derive(Debug)]
pub struct Namespaces {
    keeper: Keeper,
    /// Their descriptors, in the order of [`KINDS`].
    files: [File; 4],
}

/// The namespaces by their names in the thread's folder `ns`.
const KINDS: [(&str, LinkNameSpaceType); 4] = [
    ("net", LinkNameSpaceType::Network),
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("pid_for_children", LinkNameSpaceType::ProcessID),
    // Last, because it changes the root.
    ("mnt", LinkNameSpaceType::Mount),
];

/// Namespaces that are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedNamespaces {
    keeper: SavedKeeper,
    files: [Number; 4],
}

impl Namespaces {
    /// Creates them for the calling thread, which must end if this fails, and can start no threads afterwards. Its
    /// root becomes a tree with the files that workers need.
    pub fn enter(folders: &Folders) -> anyhow::Result<Self> {
        // SAFETY: the table of descriptors is not unshared. Other threads keep their root and their namespaces.
        unsafe { unshare_unsafe(OF_WORKERS | UnshareFlags::FS) }
            .context("Cannot make namespaces for workers")?;
        if let Err(error) = loopback::bring_up() {
            info!(
                "workers have no loopback interface, which NCCL needs between processes of a guest: {error}"
            );
        }
        let tree = Tree::enter(folders)?;
        let keeper = Keeper::start(&Tree::program())?;
        // The namespace of processes has no name before its first process.
        let open = |(name, _)| File::open(Tree::of_thread().join("ns").join(name));
        let [net, ipc, pid, mnt] = KINDS.map(open);
        let files = [net?, ipc?, pid?, mnt?];
        tree.close()?;
        Ok(Self { keeper, files })
    }

    /// Takes over those of the program before this one. [`Self::enter_again`] follows.
    ///
    /// Errors: the state is wrong.
    pub fn restore(saved: SavedNamespaces, files: &mut Inherited) -> io::Result<Self> {
        let keeper = Keeper::restore(saved.keeper, files)?;
        let [net, ipc, pid, mnt] = saved.files.map(|number| files.take(number).map(File::from));
        Ok(Self { keeper, files: [net?, ipc?, pid?, mnt?] })
    }

    /// Makes them the namespaces of the calling thread, which must end if this fails, and can start no threads afterwards.
    fn enter_again(&self) -> anyhow::Result<()> {
        // SAFETY: the table of descriptors is not unshared. Other threads keep their root.
        unsafe { unshare_unsafe(UnshareFlags::FS) }.context("Cannot leave the root of the other threads")?;
        self.files.iter().zip(KINDS).try_for_each(|(file, (name, kind))| {
            move_into_link_name_space(file.as_fd(), Some(kind))
                .with_context(|| format!("Cannot enter the workers' namespace {name}"))
        })
    }

    /// Returns what the next program needs to start processes in them.
    pub fn save(&self, files: &mut Leaving) -> SavedNamespaces {
        SavedNamespaces {
            keeper: self.keeper.save(files),
            files: self.files.each_ref().map(|file| files.add(file)),
        }
    }

    /// Returns whether processes can still be started in them.
    pub fn are_there(&self) -> bool {
        self.keeper.is_running()
    }
}

/// The pause before another attempt to create namespaces.
const PAUSE: Duration = Duration::from_secs(1);

/// The reason why a thread that starts processes has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its work is done.
    Done,
    /// The namespaces have ended, with all their processes.
    NamespacesLost,
}

/// Runs `work` on a thread of its own, in namespaces for the processes that it starts (if `folders` are given), and
/// again in new namespaces when these are lost. Returns when the first ones exist. The first ones are `previous`, if those can
/// be entered.
///
/// Errors: the namespaces cannot be created, or the thread cannot be started.
pub fn work_in(
    folders: Option<Folders>,
    previous: Option<Namespaces>,
    name: &'static str,
    work: impl Fn(Option<&Namespaces>) -> Ended + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let (entered, first) = channel();
    let supervise = move || {
        let (mut entered, mut previous) = (Some(entered), previous);
        while !work_once(folders.as_ref(), &mut previous, name, &work, &mut entered) {
            if entered.is_none() {
                warn!("the namespaces of workers have ended, and all workers with them: making new ones");
            }
        }
    };
    thread::Builder::new().name(format!("{name}-guard")).spawn(supervise)?;
    first.recv().unwrap_or_else(|_| Err(anyhow::anyhow!("The thread that starts workers has ended")))
}

/// Returns whether the work is done.
fn work_once(
    folders: Option<&Folders>,
    previous: &mut Option<Namespaces>,
    name: &str,
    work: &(impl Fn(Option<&Namespaces>) -> Ended + Sync),
    entered: &mut Option<Sender<anyhow::Result<()>>>,
) -> bool {
    if let Some(namespaces) = previous.take() {
        match thread::scope(|scope| enter_and_work(scope, namespaces, name, work, entered)) {
            Ok(is_done) => return is_done,
            Err(error) => warn!(
                "new workers cannot be started in the namespaces of the others ({error:#}): programs of a guest that have \
                 started before and after now do not share memory with each other"
            ),
        }
    }
    let body = || {
        let namespaces = match folders.map(Namespaces::enter).transpose() {
            Ok(namespaces) => namespaces,
            Err(error) => {
                match entered.take() {
                    // The requester decides.
                    Some(entered) => drop(entered.send(Err(error))),
                    None => {
                        error!("workers have no namespaces, so none is started: {error:#}");
                        thread::sleep(PAUSE);
                        return (Ended::NamespacesLost, None);
                    }
                }
                return (Ended::Done, None);
            }
        };
        if let Some(entered) = entered.take() {
            let _ = entered.send(Ok(()));
        }
        // The namespaces end on the other thread, because this one cannot start a thread that waits for the end.
        (work(namespaces.as_ref()), namespaces)
    };
    thread::scope(|scope| {
        let worker = thread::Builder::new().name(name.into()).spawn_scoped(scope, body);
        let ended = worker.ok().and_then(|worker| worker.join().ok());
        ended.is_none_or(|(ended, _)| ended == Ended::Done)
    })
}

/// Runs `work` in namespaces of the program before this one. Returns whether it is done.
///
/// Errors: they cannot be entered. They last until the daemon ends, because workers are in them.
fn enter_and_work<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    namespaces: Namespaces,
    name: &str,
    work: &'scope (impl Fn(Option<&Namespaces>) -> Ended + Sync),
    entered: &mut Option<Sender<anyhow::Result<()>>>,
) -> anyhow::Result<bool> {
    let namespaces = Arc::new(namespaces);
    let (inner, (said, result)) = (namespaces.clone(), channel());
    let body = move || {
        let is_entered = inner.enter_again();
        let goes_on = is_entered.is_ok();
        let _ = said.send(is_entered);
        goes_on.then(|| work(Some(&inner)))
    };
    let worker = thread::Builder::new().name(name.into()).spawn_scoped(scope, body)?;
    if let Err(error) = result.recv().unwrap_or_else(|_| Err(anyhow::anyhow!("The thread has ended"))) {
        std::mem::forget(namespaces);
        return Err(error);
    }
    let _ = entered.take().map(|entered| entered.send(Ok(())));
    Ok(worker.join().ok().flatten().is_none_or(|ended| ended == Ended::Done))
}
