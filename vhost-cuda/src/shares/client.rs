// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's side: registers its workers at the arbiter, and opens their gates if the arbiter ends.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use log::{debug, info, warn};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};
use vhost_cuda_common::gates::{MAX_GPUS, Page, Slot};

use super::message::{self, ENDED, GPU, HELLO, IDLE, MAKE_ROOM, Message, ROOM, USAGE, VERSION, WORKER};
use super::room::{self, Room};
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

/// What a daemon does for others that need device memory.
pub trait MakesRoom: Send + Sync {
    /// Returns the time for which the session has been idle that would make room first on these devices, a bit for each of their numbers
    /// in workers; 0: on any. `None`: there is none. Does not wait.
    fn longest_idle(&self, devices: u64) -> Option<Duration>;
    /// Suspends that session on these devices.
    fn suspend_longest_idle(&self, devices: u64) -> Room;
}

/// The daemon's connection to the arbiter.
pub struct Client {
    path: PathBuf,
    weight: u32,
    state: Mutex<State>,
    /// Serves requests of others for room.
    makes_room: OnceLock<Weak<dyn MakesRoom>>,
    /// True while a session is suspended for others.
    is_making_room: AtomicBool,
    /// Held by the one that asks others.
    asks: Mutex<()>,
    answered: Condvar,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("path", &self.path).field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    arbiter: Option<UnixStream>,
    workers: HashMap<u64, Worker>,
    next: u64,
    usage: HashMap<[u8; 16], Total>,
    /// The number of the last request for room, and its answer once it is there.
    request: u64,
    answer: Option<Room>,
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
        let client = Arc::new(Self {
            path,
            weight,
            state: Mutex::default(),
            makes_room: OnceLock::new(),
            is_making_room: AtomicBool::new(false),
            asks: Mutex::default(),
            answered: Condvar::new(),
        });
        let running = client.clone();
        thread::Builder::new().name("shares".into()).spawn(move || running.run())?;
        Ok(client)
    }

    /// Serves requests of other daemons for room by `makes_room` from now on.
    pub fn serve_room(&self, makes_room: Weak<dyn MakesRoom>) {
        let _ = self.makes_room.set(makes_room);
    }

    /// Asks the other daemons of the same GPUs for room on the first of these devices, a bit for each of their numbers in workers; 0: on any.
    /// Waits until the arbiter answers, or has ended.
    pub fn ask_for_room(&self, devices: u64) -> Room {
        let _asks = self.asks.lock();
        let mut state = self.lock();
        state.request += 1;
        state.answer = None;
        let uuid = state.uuid_of(devices.trailing_zeros());
        let message = Message { kind: ROOM, number: state.request, uuid, ..Message::default() };
        if !state.send(&message) {
            return Room::None;
        }
        let deadline = Instant::now() + Duration::from_nanos(room::PATIENCE);
        while state.answer.is_none() && !self.answered.wait_until(&mut state, deadline).timed_out() {}
        state.answer.take().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn run(self: &Arc<Self>) -> ! {
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
    fn listen(self: &Arc<Self>, arbiter: &UnixStream) -> String {
        loop {
            match message::receive(arbiter) {
                Ok(Some((message, _))) if message.kind == USAGE => {
                    let mut state = self.lock();
                    if state.usage.len() < MAX_GPUS || state.usage.contains_key(&message.uuid) {
                        let now = Usage { used: message.used, held: message.held };
                        state.usage.entry(message.uuid).or_default().now = now;
                    }
                }
                Ok(Some((message, _))) if message.kind == ROOM => {
                    let mut state = self.lock();
                    if message.number == state.request {
                        state.answer = Some(Room::of(message.value));
                        self.answered.notify_all();
                    }
                }
                Ok(Some((message, _))) if message.kind == IDLE => {
                    let devices = self.lock().devices_of(&message.uuid);
                    let idle = self.makes_room().and_then(|makes_room| makes_room.longest_idle(devices));
                    let nanoseconds =
                        idle.map_or(0, |idle| idle.as_nanos().try_into().unwrap_or(u64::MAX).max(1));
                    self.lock().send(&Message { used: nanoseconds, ..message });
                }
                Ok(Some((message, _))) if message.kind == MAKE_ROOM => self.make_room(message),
                Ok(Some((message, _))) => debug!("the arbiter sent a message of kind {}", message.kind),
                Ok(None) => return "it has closed the connection".into(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn makes_room(&self) -> Option<Arc<dyn MakesRoom>> {
        self.makes_room.get().and_then(Weak::upgrade)
    }

    /// Lets a session be suspended for another daemon, on a thread of its own, one at a time. It is always answered.
    fn make_room(self: &Arc<Self>, message: Message) {
        let refuse = || {
            self.lock().send(&Message { value: Room::None.value(), ..message });
        };
        let Some(makes_room) = self.makes_room() else { return refuse() };
        if self.is_making_room.swap(true, Ordering::Acquire) {
            return refuse();
        }
        let client = self.clone();
        let devices = self.lock().devices_of(&message.uuid);
        let make = move || {
            let room = makes_room.suspend_longest_idle(devices);
            client.is_making_room.store(false, Ordering::Release);
            client.lock().send(&Message { value: room.value(), ..message });
        };
        if thread::Builder::new().name("room-for-others".into()).spawn(make).is_err() {
            self.is_making_room.store(false, Ordering::Release);
            refuse();
        }
    }

    fn disconnect(&self) {
        let mut state = self.lock();
        state.arbiter = None;
        state.answer.get_or_insert_default();
        self.answered.notify_all();
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
        state.tell(|arbiter| worker.announce(number, arbiter));
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

impl State {
    /// The GPUs of the workers, which all see the same, by their numbers.
    fn gpus(&self) -> &[[u8; 16]] {
        self.workers.values().map(|worker| &worker.gpus[..]).max_by_key(|gpus| gpus.len()).unwrap_or_default()
    }

    /// Returns the UUID of the GPU with that number in workers; zeros, which stand for any, if there is none.
    fn uuid_of(&self, number: u32) -> [u8; 16] {
        self.gpus().get(number as usize).copied().unwrap_or_default()
    }

    /// Returns the bit of the GPU with that UUID; 0, which stands for any, if workers have no such GPU.
    fn devices_of(&self, uuid: &[u8; 16]) -> u64 {
        let number = self.gpus().iter().position(|gpu| gpu == uuid).unwrap_or(usize::MAX);
        u32::try_from(number).ok().and_then(|number| 1_u64.checked_shl(number)).unwrap_or(0)
    }

    /// Sends a message to the arbiter. Returns false if there is none, or if it does not take the message.
    fn send(&self, message: &Message) -> bool {
        self.tell(|arbiter| message::send(arbiter, message, &[]))
    }

    /// Sends messages by `send`. Returns false if there is no arbiter. One that does not take them is given up.
    fn tell(&self, send: impl FnOnce(&UnixStream) -> io::Result<()>) -> bool {
        let Some(arbiter) = &self.arbiter else { return false };
        let sent = send(arbiter);
        if let Err(error) = &sent {
            debug!("the arbiter does not take a message: {error}");
            // The listening thread notices its end.
            let _ = arbiter.shutdown(std::net::Shutdown::Both);
        }
        sent.is_ok()
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
        let Some(worker) = state.workers.get_mut(&self.number) else { return };
        worker.gpus = worker.page.slots().iter().map_while(Slot::uuid).collect();
        let Some(worker) = state.workers.get(&self.number) else { return };
        state.tell(|arbiter| worker.name_gpus(self.number, arbiter));
    }
}

impl Drop for Enrolment {
    fn drop(&mut self) {
        let Some(client) = self.client.upgrade() else { return };
        let mut state = client.lock();
        state.workers.remove(&self.number);
        state.send(&Message { kind: ENDED, number: self.number, ..Message::default() });
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

    /// A client, and the arbiter's end of its connection.
    fn connected(folder: &TempDir) -> (UnixListener, Arc<Client>, UnixStream) {
        let path = folder.as_path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = Client::start(path, 7).unwrap();
        let arbiter = listener.accept().unwrap().0;
        assert_eq!(next(&arbiter, HELLO).number, 7);
        while client.lock().arbiter.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        (listener, client, arbiter)
    }

    /// Suspends a session when it is let.
    struct Slow(Mutex<std::sync::mpsc::Receiver<Room>>);

    impl MakesRoom for Slow {
        fn longest_idle(&self, _: u64) -> Option<Duration> {
            Some(Duration::from_nanos(5))
        }

        fn suspend_longest_idle(&self, _: u64) -> Room {
            self.0.lock().recv().unwrap()
        }
    }

    #[test]
    fn room_is_made_for_others_one_session_at_a_time() {
        let folder = TempDir::new().unwrap();
        let (_listener, client, arbiter) = connected(&folder);
        let tell = |kind: u32, number: u64| {
            message::send(&arbiter, &Message { kind, number, ..Message::default() }, &[]).unwrap();
        };
        let told = |kind: u32| {
            let message = next(&arbiter, kind);
            (message.number, message.used, Room::of(message.value))
        };
        tell(IDLE, 1);
        assert_eq!(told(IDLE), (1, 0, Room::None), "nobody makes room");
        tell(MAKE_ROOM, 1);
        assert_eq!(told(MAKE_ROOM), (1, 0, Room::None));
        let (lets, let_go) = std::sync::mpsc::channel();
        let slow = Arc::new(Slow(Mutex::new(let_go)));
        let makes_room: Weak<Slow> = Arc::downgrade(&slow);
        client.serve_room(makes_room);
        for number in 2..4 {
            tell(MAKE_ROOM, number);
            tell(MAKE_ROOM, number + 100);
            assert_eq!(told(MAKE_ROOM), (number + 100, 0, Room::None), "another one is under way");
            tell(IDLE, number);
            assert_eq!(told(IDLE), (number, 5, Room::None));
            lets.send(Room::NoHostMemory).unwrap();
            assert_eq!(told(MAKE_ROOM), (number, 0, Room::NoHostMemory));
        }
    }

    #[test]
    fn who_asks_for_room_waits_for_the_answer_to_its_own_request() {
        let folder = TempDir::new().unwrap();
        let (listener, client, arbiter) = connected(&folder);
        let ask = || {
            let client = client.clone();
            thread::spawn(move || client.ask_for_room(0))
        };
        let answer = |arbiter: &UnixStream, number: u64, room: Room| {
            let message = Message { kind: ROOM, number, value: room.value(), ..Message::default() };
            message::send(arbiter, &message, &[]).unwrap();
        };
        for _ in 0..3 {
            let asks = ask();
            let number = next(&arbiter, ROOM).number;
            answer(&arbiter, number - 1, Room::None);
            answer(&arbiter, number, Room::Made);
            assert_eq!(asks.join().unwrap(), Room::Made);
        }
        let asks = ask();
        next(&arbiter, ROOM);
        drop(arbiter);
        assert_eq!(asks.join().unwrap(), Room::None, "the arbiter has ended");
        drop(listener);
    }

    #[test]
    fn gpus_are_named_once_and_not_read_again() {
        let folder = TempDir::new().unwrap();
        let (listener, client, arbiter) = connected(&folder);
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
            assert_eq!(client.lock().uuid_of(slot), named.uuid);
            assert_eq!(client.lock().devices_of(&named.uuid), 1 << slot);
        }
        // Any.
        assert_eq!([2, u32::MAX].map(|number| client.lock().uuid_of(number)), [[0; 16]; 2]);
        assert_eq!([[9; 16], [0; 16]].map(|uuid| client.lock().devices_of(&uuid)), [0; 2]);
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
