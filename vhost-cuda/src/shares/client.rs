// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's side: registers its workers at the arbiter, and opens their gates if the arbiter ends.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use log::{debug, info, warn};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};

use super::message::{self, ENDED, GPU, HELLO, Message, USAGE, VERSION, WORKER};
use super::page::{MAX_GPUS, Page, Slot};
use crate::hand_over::files::{Inherited, Leaving, Number};

/// The time between two attempts to connect to the arbiter.
const RETRY: Duration = Duration::from_secs(1);
/// The time for the arbiter to accept a message.
const PATIENCE: Duration = Duration::from_secs(1);

/// The machine's use of a GPU while machines competed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// GPU time, in nanoseconds.
    pub used: u64,
    /// Time for which it was held back, in nanoseconds.
    pub held: u64,
}

/// Metrics for the operator.
#[derive(Clone, Debug, Default)]
pub struct ShareReport {
    /// The machine's weight.
    pub weight: u32,
    /// True if there is an arbiter.
    pub connected: bool,
    /// The usage by the GPU's UUID.
    pub usage: Vec<([u8; 16], Usage)>,
}

/// The daemon's connection to the arbiter.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    weight: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    arbiter: Option<UnixStream>,
    workers: HashMap<u64, Worker>,
    next: u64,
    usage: HashMap<[u8; 16], Total>,
}

/// The usage reported by earlier arbiters, and by this one.
#[derive(Debug, Default)]
struct Total {
    before: Usage,
    now: Usage,
}

#[derive(Debug)]
struct Worker {
    page: Page,
    file: File,
    bell: File,
    /// The UUIDs of its GPUs, once it is ready. The page is not read again, because a guest may take the worker over.
    gpus: Vec<[u8; 16]>,
}

/// A worker's registration. Dropping it withdraws the worker.
#[derive(Debug)]
pub struct Enrolment {
    client: Weak<Client>,
    number: u64,
    fds: [RawFd; 2],
}

/// A registration that is handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedEnrolment {
    page: Number,
    bell: Number,
    gpus: Vec<[u8; 16]>,
}

impl Client {
    /// Connects to the arbiter at `path`, and reconnects whenever it has ended.
    pub fn start(path: PathBuf, weight: u32) -> io::Result<Arc<Self>> {
        let client = Arc::new(Self { path, weight, state: Mutex::default() });
        let running = client.clone();
        thread::Builder::new().name("shares".into()).spawn(move || running.run())?;
        Ok(client)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn run(&self) -> ! {
        // Logged once per change.
        let mut said = None;
        loop {
            match self.connect() {
                Ok(arbiter) => {
                    info!("GPU time is shared by {} with weight {}", self.path.display(), self.weight);
                    let end = self.listen(&arbiter);
                    warn!(
                        "the arbiter of GPU time has ended ({end}): work goes on without shares until it is back"
                    );
                    said = Some(());
                    self.disconnect();
                }
                Err(error) if said.replace(()).is_none() => warn!(
                    "no arbiter of GPU time at {} ({error}): work goes on without shares until there is one; start \
                     `vhost-user-cuda arbiter --socket {}`",
                    self.path.display(),
                    self.path.display()
                ),
                Err(_) => {}
            }
            thread::sleep(RETRY);
        }
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let arbiter = UnixStream::connect(&self.path)?;
        arbiter.set_write_timeout(Some(PATIENCE))?;
        let hello = Message { kind: HELLO, value: VERSION, number: self.weight.into(), ..Message::default() };
        message::send(&arbiter, &hello, &[])?;
        let mut state = self.lock();
        for (&number, worker) in &state.workers {
            worker.announce(number, &arbiter)?;
        }
        state.arbiter = Some(arbiter.try_clone()?);
        Ok(arbiter)
    }

    /// Receives the arbiter's messages until it ends.
    fn listen(&self, arbiter: &UnixStream) -> String {
        loop {
            match message::receive(arbiter) {
                Ok(Some((message, _))) if message.kind == USAGE => {
                    let mut state = self.lock();
                    if state.usage.len() < MAX_GPUS || state.usage.contains_key(&message.uuid) {
                        let now = Usage { used: message.used, held: message.held };
                        state.usage.entry(message.uuid).or_default().now = now;
                    }
                }
                Ok(Some((message, _))) => debug!("the arbiter sent a message of kind {}", message.kind),
                Ok(None) => return "it has closed the connection".into(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn disconnect(&self) {
        let mut state = self.lock();
        state.arbiter = None;
        state.workers.values().for_each(|worker| worker.page.open_all());
        for total in state.usage.values_mut() {
            let now = std::mem::take(&mut total.now);
            total.before.used = total.before.used.saturating_add(now.used);
            total.before.held = total.before.held.saturating_add(now.held);
        }
    }

    /// Creates a page and a bell for a worker that is about to start.
    pub fn enrol(self: &Arc<Self>) -> io::Result<Enrolment> {
        let (page, file) = Page::create()?;
        let bell = File::from(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        Ok(self.insert(Worker { page, file, bell, gpus: Vec::new() }))
    }

    /// Registers a worker of the program before this one.
    ///
    /// Errors: the state is wrong.
    pub fn enrol_again(
        self: &Arc<Self>,
        saved: SavedEnrolment,
        files: &mut Inherited,
    ) -> io::Result<Enrolment> {
        let (file, bell) = (File::from(files.take(saved.page)?), files.take(saved.bell)?.into());
        if saved.gpus.len() > MAX_GPUS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let page = Page::map(&file)?;
        // The arbiter has seen the end of the connection before, and competes anew.
        page.open_all();
        Ok(self.insert(Worker { page, file, bell, gpus: saved.gpus }))
    }

    fn insert(self: &Arc<Self>, worker: Worker) -> Enrolment {
        let fds = [worker.file.as_raw_fd(), worker.bell.as_raw_fd()];
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        if let Some(arbiter) = &state.arbiter
            && let Err(error) = worker.announce(number, arbiter)
        {
            // The listening thread notices its end.
            debug!("the arbiter was not told of a worker: {error}");
            let _ = arbiter.shutdown(std::net::Shutdown::Both);
        }
        state.workers.insert(number, worker);
        Enrolment { client: Arc::downgrade(self), number, fds }
    }

    /// Returns metrics for the operator.
    pub fn report(&self) -> ShareReport {
        let state = self.lock();
        let sum = |total: &Total| Usage {
            used: total.before.used.saturating_add(total.now.used),
            held: total.before.held.saturating_add(total.now.held),
        };
        let mut usage: Vec<_> = state.usage.iter().map(|(&uuid, total)| (uuid, sum(total))).collect();
        usage.sort_unstable_by_key(|(uuid, _)| *uuid);
        ShareReport { weight: self.weight, connected: state.arbiter.is_some(), usage }
    }
}

impl Worker {
    fn announce(&self, number: u64, arbiter: &UnixStream) -> io::Result<()> {
        let message = Message { kind: WORKER, number, ..Message::default() };
        message::send(arbiter, &message, &[self.file.as_raw_fd(), self.bell.as_raw_fd()])?;
        self.name_gpus(number, arbiter)
    }

    fn name_gpus(&self, number: u64, arbiter: &UnixStream) -> io::Result<()> {
        (0..).zip(&self.gpus).try_for_each(|(slot, &uuid)| {
            message::send(
                arbiter,
                &Message { kind: GPU, value: slot, number, uuid, ..Message::default() },
                &[],
            )
        })
    }
}

impl Enrolment {
    /// Returns the page and the bell, for the worker to inherit.
    pub fn fds(&self) -> [RawFd; 2] {
        self.fds
    }

    /// Returns what the next program needs.
    pub fn save(&self, files: &mut Leaving) -> Option<SavedEnrolment> {
        let client = self.client.upgrade()?;
        let state = client.lock();
        let worker = state.workers.get(&self.number)?;
        let (page, bell) = (files.add(&worker.file), files.add(&worker.bell));
        Some(SavedEnrolment { page, bell, gpus: worker.gpus.clone() })
    }

    /// Names the worker's GPUs to the arbiter. Called once, when the worker is ready and before it serves a guest.
    pub fn name_gpus(&self) {
        let Some(client) = self.client.upgrade() else { return };
        let mut state = client.lock();
        let State { arbiter, workers, .. } = &mut *state;
        let Some(worker) = workers.get_mut(&self.number) else { return };
        worker.gpus = worker.page.slots().iter().map_while(Slot::uuid).collect();
        if let Some(arbiter) = arbiter
            && worker.name_gpus(self.number, arbiter).is_err()
        {
            // The listening thread notices its end.
            let _ = arbiter.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Enrolment {
    fn drop(&mut self) {
        let Some(client) = self.client.upgrade() else { return };
        let mut state = client.lock();
        state.workers.remove(&self.number);
        if let Some(arbiter) = &state.arbiter {
            let message = Message { kind: ENDED, number: self.number, ..Message::default() };
            if message::send(arbiter, &message, &[]).is_err() {
                let _ = arbiter.shutdown(std::net::Shutdown::Both);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use vmm_sys_util::tempdir::TempDir;

    /// Receives the next message of a kind.
    fn next(arbiter: &UnixStream, kind: u32) -> Message {
        loop {
            let (message, _) = message::receive(arbiter).unwrap().unwrap();
            if message.kind == kind {
                return message;
            }
        }
    }

    #[test]
    fn gpus_are_named_once_and_not_read_again() {
        let folder = TempDir::new().unwrap();
        let path = folder.as_path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = Client::start(path, 7).unwrap();
        let arbiter = listener.accept().unwrap().0;
        assert_eq!(next(&arbiter, HELLO).number, 7);
        let enrolment = client.enrol().unwrap();
        assert_eq!(next(&arbiter, WORKER).number, enrolment.number);
        let set = |slot: usize, uuid| {
            client.lock().workers[&enrolment.number].page.slots()[slot].set_uuid([uuid; 16])
        };
        set(0, 1);
        set(1, 2);
        enrolment.name_gpus();
        for slot in [0, 1] {
            let named = next(&arbiter, GPU);
            assert_eq!((named.number, named.value), (enrolment.number, slot));
            assert_eq!(named.uuid, [slot as u8 + 1; 16]);
        }
        // A worker that was taken over, and an arbiter that has restarted.
        set(1, 9);
        set(2, 9);
        drop(arbiter);
        let arbiter = listener.accept().unwrap().0;
        assert_eq!([next(&arbiter, GPU).uuid, next(&arbiter, GPU).uuid], [[1; 16], [2; 16]]);
        drop(enrolment);
        assert_eq!(next(&arbiter, ENDED).kind, ENDED, "no third GPU was named before");
    }
}
