// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-user-cuda arbiter`: the daemons of a host connect to this process, which decides whose turn it is.
//!
//! One thread does all the work. It sleeps while machines do not compete: a worker that starts work after a pause
//! rings its bell. While they compete it reads all pages at short intervals, and at once when a bell rings.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::Context;
use log::{Level, debug, info, log};
use vhost_cuda_common::gates::{self, Page};
use vhost_cuda_common::timers;

use super::machine::{Gpu, Machine, Worker};
use super::message::{
    self, ENDED, GPU, HELLO, IDLE, MAKE_ROOM, MAX_WEIGHT, Message, Peer, ROOM, USAGE, VERSION, WORKER,
};
use super::policy::{Grant, Id, Policy, RECENT};
use super::room::{Outgoing, Requests};
use super::users::Users;
use crate::limits::throttle::Throttle;
use crate::socket::remove_stale;

/// The time between two steps while machines compete, in nanoseconds.
const TICK: u64 = 50_000;
/// The time after which a worker that works without competition announces itself again, in nanoseconds.
const ANNOUNCEMENTS: u64 = RECENT / 2;
/// The time between two looks at requests for room that others have not answered, in nanoseconds.
const REQUESTS: u64 = 100_000_000;
/// The time between two usage messages, in nanoseconds.
const REPORTS: u64 = 500_000_000;
/// The maximum number of connected daemons.
const MAX_MACHINES: usize = 256;
/// The maximum number of workers of a daemon: of sessions, and warm ones.
const MAX_WORKERS: usize = 2048;
/// The maximum number of arbitrated GPUs.
const MAX_GPUS: usize = 64;
/// The pause after a connection that cannot be accepted.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// Limits messages that a daemon can cause.
static COMPLAINTS: Throttle = Throttle::new(20, std::time::Duration::from_secs(10));

/// The sources of events.
const LISTENER: u64 = 0;
const BELL: u64 = u64::MAX;

/// The arbitration of one GPU.
#[derive(Debug, Default)]
struct Arbitration {
    policy: Policy,
    /// The number of times that machines began to compete.
    epoch: u32,
}

#[derive(Debug)]
struct Arbiter {
    listener: UnixListener,
    /// The users that may connect. `None`: all that may write to the socket.
    users: Option<Users>,
    /// A descriptor to give up for a connection that is refused because no other one is left.
    spare: Option<File>,
    poller: File,
    machines: BTreeMap<Id, Machine>,
    gpus: HashMap<Gpu, Arbitration>,
    requests: Requests,
    next: Id,
    announced: u64,
    reported: u64,
    /// The time when a machine was last seen working.
    active: Option<u64>,
}

/// Listens at `path` until the process is ended. Serves `users`, or all that may write to the socket.
pub fn run(path: &Path, users: Option<Users>) -> anyhow::Result<()> {
    let cannot = || format!("Cannot listen on {}", path.display());
    remove_stale(path).with_context(cannot)?;
    let listener = UnixListener::bind(path).with_context(cannot)?;
    listener.set_nonblocking(true).with_context(cannot)?;
    timers::exact();
    let mut arbiter = Arbiter::new(listener, users).context("Cannot make a poller")?;
    info!("sharing GPU time on {}", path.display());
    loop {
        arbiter.turn()?;
    }
}

impl Arbiter {
    fn new(listener: UnixListener, users: Option<Users>) -> io::Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: a plain system call.
        let poller = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if poller < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let poller = unsafe { File::from_raw_fd(poller) };
        let arbiter = Self {
            listener,
            users,
            spare: Some(spare()?),
            poller,
            machines: BTreeMap::new(),
            gpus: HashMap::new(),
            requests: Requests::default(),
            next: LISTENER + 1,
            announced: 0,
            reported: 0,
            active: None,
        };
        arbiter.watch(arbiter.listener.as_raw_fd(), libc::EPOLLIN, LISTENER)?;
        Ok(arbiter)
    }

    fn watch(&self, fd: RawFd, events: i32, about: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: about };
        // SAFETY: both descriptors are open, and the event is a local.
        match unsafe { libc::epoll_ctl(self.poller.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for events, handles them, and decides again.
    fn turn(&mut self) -> anyhow::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let count = self.wait(&mut events).context("Cannot wait for daemons")?;
        for event in &events[..count] {
            match event.u64 {
                LISTENER => self.accept(),
                // Edge-triggered: there is nothing to read.
                BELL => {}
                id => self.hear(id),
            }
        }
        self.step(gates::now());
        Ok(())
    }

    fn wait(&self, events: &mut [libc::epoll_event]) -> io::Result<usize> {
        let contended = self.gpus.values().any(|gpu| gpu.policy.is_contended());
        let nanoseconds = match self.active {
            _ if contended => Some(TICK),
            Some(_) => Some(ANNOUNCEMENTS),
            None if !self.requests.is_empty() => Some(REQUESTS),
            None => None,
        };
        let time =
            nanoseconds.map(|nanoseconds| libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.cast_signed() });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `events` has as many places as said; the time is null or a local.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.poller.as_raw_fd(),
                events.as_mut_ptr(),
                events.len(),
                time,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                error => Err(error),
            },
        }
    }

    /// Accepts a connection, which takes it from the queue in any case: the listener is readable until then.
    fn accept(&mut self) {
        let error = match self.listener.accept() {
            Ok((socket, _)) => return self.admit(socket),
            Err(error) => error,
        };
        if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted, io::ErrorKind::ConnectionAborted]
            .contains(&error.kind())
        {
            return;
        }
        log!(COMPLAINTS.level(Level::Warn), "A daemon is refused: {error}");
        self.spare = None;
        if self.listener.accept().is_err() {
            // Not the arbiter's own limit of open files. It must not keep the processor busy until there is room.
            std::thread::sleep(ACCEPT_PAUSE);
        }
        self.spare = spare().ok();
    }

    fn admit(&mut self, socket: UnixStream) {
        let peer = match Peer::of(&socket) {
            Ok(peer) => peer,
            Err(error) => {
                return log!(
                    COMPLAINTS.level(Level::Warn),
                    "A daemon is refused: its user is unknown: {error}"
                );
            }
        };
        if self.users.as_ref().is_some_and(|users| !users.contain(peer.uid)) {
            log!(COMPLAINTS.level(Level::Warn), "{peer}: refused: not a user of --users");
            return;
        }
        if self.machines.len() >= MAX_MACHINES {
            log!(COMPLAINTS.level(Level::Warn), "{peer}: refused: {MAX_MACHINES} daemons are connected");
            return;
        }
        let id = self.next;
        let watched =
            socket.set_nonblocking(true).and_then(|()| self.watch(socket.as_raw_fd(), libc::EPOLLIN, id));
        if let Err(error) = watched {
            log!(COMPLAINTS.level(Level::Warn), "{peer}: refused: {error}");
            return;
        }
        self.next += 1;
        log!(COMPLAINTS.level(Level::Info), "machine {id}: {peer} has connected");
        self.machines.insert(id, Machine::new(socket));
    }

    /// Reads a daemon's messages.
    fn hear(&mut self, id: Id) {
        while let Some(machine) = self.machines.get(&id) {
            let heard = match message::receive(&machine.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => Err(error.to_string()),
                Ok(None) => Err("it has ended".into()),
                Ok(Some((message, files))) => self.obey(id, &message, files),
            };
            if let Err(why) = heard {
                log!(COMPLAINTS.level(Level::Info), "machine {id}: disconnected: {why}");
                self.forget(id);
            }
        }
    }

    fn obey(&mut self, id: Id, message: &Message, files: Vec<File>) -> Result<(), String> {
        let poller = self.poller.as_raw_fd();
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        match (message.kind, machine.weight) {
            (HELLO, None) => {
                let weight = u32::try_from(message.number).unwrap_or(0);
                if message.value != VERSION || !(1..=MAX_WEIGHT).contains(&weight) {
                    return Err(format!("version {} with weight {weight}", message.value));
                }
                machine.weight = Some(weight);
                info!("machine {id}: weight {weight}");
                Ok(())
            }
            // A duplicate number would replace the first worker's bell, which remains watched as long as a process
            // has it.
            (WORKER, Some(_)) if machine.workers.contains_key(&message.number) => {
                Err(format!("worker {} twice", message.number))
            }
            (WORKER, Some(_)) if machine.workers.len() < MAX_WORKERS => {
                let [page, bell] = <[File; 2]>::try_from(files).map_err(|_| "a worker without files")?;
                let page = Page::map(&page).map_err(|error| format!("a worker's page: {error}"))?;
                let events = (libc::EPOLLIN | libc::EPOLLET).cast_unsigned();
                let mut event = libc::epoll_event { events, u64: BELL };
                // SAFETY: both descriptors are open, and the event is a local.
                if unsafe { libc::epoll_ctl(poller, libc::EPOLL_CTL_ADD, bell.as_raw_fd(), &raw mut event) }
                    != 0
                {
                    return Err(format!("a worker's bell: {}", io::Error::last_os_error()));
                }
                machine.workers.insert(message.number, Worker::new(page, bell));
                self.announced = 0;
                Ok(())
            }
            (GPU, Some(_)) if message.uuid != [0; 16] => {
                let named = machine.name(message.number, message.value, message.uuid);
                let what = || format!("GPU {} of worker {}", message.value, message.number);
                named.then_some(()).ok_or_else(what)
            }
            (ENDED, Some(_)) => {
                if let Some(worker) = machine.workers.remove(&message.number) {
                    unwatch(poller, &worker.bell);
                }
                Ok(())
            }
            (ROOM, Some(_)) => {
                let own = machine.gpus();
                // Of its own GPUs, and only of the named one, if there is one.
                let is_wanted = |gpu: &Gpu| message.uuid == [0; 16] || *gpu == message.uuid;
                let shares_one =
                    |other: &Machine| other.gpus().iter().any(|gpu| own.contains(gpu) && is_wanted(gpu));
                let others =
                    self.machines.iter().filter(|(other, machine)| **other != id && shares_one(machine));
                let others = others.map(|(other, _)| *other).collect();
                let outgoing = self.requests.begin(id, message.number, message.uuid, others, gates::now());
                self.send_all(outgoing);
                Ok(())
            }
            (IDLE | MAKE_ROOM, Some(_)) => {
                let outgoing = self.requests.answered(id, message, gates::now());
                self.send_all(outgoing);
                Ok(())
            }
            (kind, _) => Err(format!("a message of kind {kind} out of turn")),
        }
    }

    /// Sends messages. A daemon that does not read gets none, and counts as one that does not answer.
    fn send_all(&self, outgoing: Vec<Outgoing>) {
        for (id, message) in outgoing {
            if let Some(machine) = self.machines.get(&id)
                && let Err(error) = message::send(&machine.socket, &message, &[])
            {
                log!(COMPLAINTS.level(Level::Debug), "machine {id}: not told of a request for room: {error}");
            }
        }
    }

    fn forget(&mut self, id: Id) {
        let Some(machine) = self.machines.remove(&id) else { return };
        for worker in machine.workers.values() {
            unwatch(self.poller.as_raw_fd(), &worker.bell);
        }
        for arbitration in self.gpus.values_mut() {
            arbitration.policy.leave(id);
        }
        self.gpus.retain(|_, arbitration| !arbitration.policy.is_empty());
        let outgoing = self.requests.leave(id, gates::now());
        self.send_all(outgoing);
    }

    /// Reads all pages, and sets all gates.
    fn step(&mut self, now: u64) {
        let mut is_new = false;
        for (&id, machine) in &mut self.machines {
            let Some(weight) = machine.weight else { continue };
            is_new |= machine.has_named();
            for gpu in machine.gpus() {
                if self.gpus.len() < MAX_GPUS || self.gpus.contains_key(&gpu) {
                    self.gpus.entry(gpu).or_default().policy.join(id, weight);
                }
            }
        }
        // With a single machine no worker has to announce work. A worker whose GPUs have just become known has an
        // open gate, and nothing wakes the arbiter when it begins to work.
        let several = self.machines.len() > 1;
        let announce = several && (is_new || now.saturating_sub(self.announced) >= ANNOUNCEMENTS);
        if announce {
            self.announced = now;
        }
        let mut active = false;
        for (&gpu, Arbitration { policy, epoch }) in &mut self.gpus {
            let mut seen = HashMap::new();
            for (&id, machine) in &mut self.machines {
                let look = machine.look(gpu, now);
                active |= look.waiting || look.busy;
                seen.insert(id, look);
            }
            let before = policy.is_contended();
            policy.step(now, |id| seen.get(&id).copied().unwrap_or_default());
            if policy.is_contended() && !before {
                *epoch = epoch.wrapping_add(1);
                debug!("machines compete for GPU {}", name(&gpu));
            }
            // Those that must wait come first.
            let holds = |id: &Id| policy.grant(*id) == Grant::Hold;
            for first in [true, false] {
                for (id, machine) in self.machines.iter().filter(|(id, _)| holds(id) == first) {
                    machine.grant(gpu, policy.grant(*id), *epoch, announce);
                }
            }
        }
        if active {
            self.active = Some(now);
        } else if self.active.is_some_and(|then| now.saturating_sub(then) > 4 * RECENT) {
            self.active = None;
        }
        if !self.requests.is_empty() {
            let outgoing = self.requests.step(now);
            self.send_all(outgoing);
        }
        if now.saturating_sub(self.reported) >= REPORTS {
            self.reported = now;
            self.report();
        }
    }

    fn report(&mut self) {
        for (&gpu, arbitration) in &self.gpus {
            for (&id, machine) in &mut self.machines {
                let account = arbitration.policy.account(id);
                let (used, held) = (account.used, account.held);
                if (used, held) == (0, 0) || machine.told.get(&gpu) == Some(&(used, held)) {
                    continue;
                }
                debug!("machine {id}: GPU {}: {account}", name(&gpu));
                let message = Message { kind: USAGE, used, held, uuid: gpu, ..Message::default() };
                // A daemon that does not read gets the next message.
                if message::send(&machine.socket, &message, &[]).is_ok() {
                    machine.told.insert(gpu, (used, held));
                }
            }
        }
    }
}

fn spare() -> io::Result<File> {
    File::open("/dev/null")
}

/// Formats a GPU like `nvidia-smi -L`.
pub fn name(gpu: &Gpu) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&gpu[..4], &gpu[4..6], &gpu[6..8], &gpu[8..10], &gpu[10..]].map(hex);
    format!("GPU-{}", parts.join("-"))
}

fn unwatch(poller: RawFd, bell: &File) {
    // SAFETY: both descriptors are open; others may hold the bell, so that it would be watched for ever.
    unsafe { libc::epoll_ctl(poller, libc::EPOLL_CTL_DEL, bell.as_raw_fd(), std::ptr::null_mut()) };
}

#[cfg(any(test, fuzzing))]
#[path = "arbiter_fuzz.rs"]
pub mod fuzz;
