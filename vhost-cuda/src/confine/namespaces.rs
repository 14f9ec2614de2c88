// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The namespaces of all workers of a daemon.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use log::{error, info, warn};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::Folders;
use super::keeper::Keeper;
use super::loopback;
use super::own::OF_WORKERS;
use super::tree::Tree;

/// The namespaces of the processes that the calling thread starts. They end with the value.
#[derive(Debug)]
pub struct Namespaces {
    keeper: Keeper,
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
        tree.close()?;
        Ok(Self { keeper })
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
/// again in new namespaces when these are lost. Returns when the first ones exist.
///
/// Errors: the namespaces cannot be created, or the thread cannot be started.
pub fn work_in(
    folders: Option<Folders>,
    name: &'static str,
    work: impl Fn(Option<&Namespaces>) -> Ended + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let (entered, first) = channel();
    let supervise = move || {
        let mut entered = Some(entered);
        while !work_once(folders.as_ref(), name, &work, &mut entered) {
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
    name: &str,
    work: &(impl Fn(Option<&Namespaces>) -> Ended + Sync),
    entered: &mut Option<Sender<anyhow::Result<()>>>,
) -> bool {
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
