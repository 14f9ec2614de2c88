// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Moves running programs between daemons, as QEMU moves a virtual machine: it stops the queues, saves the state of the device from one
//! daemon, loads it into another one, and goes on there.
//!
//! It stands between programs and daemons, and passes their messages on. Of those of a program it keeps what a daemon must know. While a
//! program moves it is stopped (SIGSTOP), as the processors of a machine are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use vhost::vhost_user::message::{FrontendReq, VhostUserProtocolFeatures};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// The bytes of a message's head, and the maximum of its body.
const HEAD: usize = 12;
const MAX_BODY: usize = 0x1000;
/// The maximum number of files of a message.
const MAX_FILES: usize = 32;
/// The flags of a message without a reply: its version.
const VERSION: u32 = 1;
/// The maximum number of queues.
const QUEUES: u32 = 17;
/// The bit of a queue's number that says that there is no event.
const NO_EVENT: u32 = 1 << 8;
/// The directions of a transfer.
const SAVE: u32 = 0;
const LOAD: u32 = 1;
/// The reason for which a transfer has no end.
const KILLED: &str = "the front-end was killed";
/// The maximum length of a piece of contents that goes ahead.
const MAX_PIECE: u64 = 4 << 20;
/// The time for contents to go ahead.
const LIMIT: Duration = Duration::from_secs(240);
/// The pause between two looks at sockets without messages.
const LOOK: Duration = Duration::from_millis(1);
/// The time limit for a daemon's reply.
const PATIENCE: Duration = Duration::from_secs(120);

/// A message of vhost-user.
#[derive(Debug)]
struct Message {
    request: u32,
    flags: u32,
    body: Vec<u8>,
    files: Vec<File>,
}

impl Message {
    fn new(request: FrontendReq, words: &[u32]) -> Self {
        let body = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Self { request: request as u32, flags: VERSION, body, files: Vec::new() }
    }

    fn word(&self, index: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.body.get(4 * index..4 * index + 4)?.try_into().ok()?))
    }

    fn copy(&self) -> Result<Self> {
        let files = self.files.iter().map(File::try_clone).collect::<Result<_, _>>()?;
        Ok(Self { request: self.request, flags: VERSION, body: self.body.clone(), files })
    }

    fn send(&self, socket: &UnixStream) -> Result<()> {
        let head = [self.request, self.flags, self.body.len() as u32].map(u32::to_ne_bytes).concat();
        let bytes = [head, self.body.clone()].concat();
        let files: Vec<RawFd> = self.files.iter().map(AsRawFd::as_raw_fd).collect();
        let sent = socket.send_with_fds(&[&bytes[..]], &files)?;
        ensure!(sent == bytes.len(), "a message was not sent as a whole");
        Ok(())
    }

    /// Receives a message, or `None` if none has come. It is an error if the other side has closed its socket.
    fn receive(socket: &UnixStream) -> Result<Option<Self>> {
        let mut head = [0; HEAD];
        let mut descriptors = [0; MAX_FILES];
        socket.set_nonblocking(true)?;
        let mut room = [libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: HEAD }];
        // SAFETY: the room is that of `head`, which lives through the call.
        let received = unsafe { socket.recv_with_fds(&mut room, &mut descriptors) };
        socket.set_nonblocking(false)?;
        let (bytes, count) = match received {
            Err(error) if error.errno() == libc::EAGAIN => return Ok(None),
            received => received?,
        };
        ensure!(bytes > 0, "the other end has gone");
        let mut from = socket;
        from.read_exact(&mut head[bytes..])?;
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        ensure!(word(8) as usize <= MAX_BODY, "a message is too long");
        let mut body = vec![0; word(8) as usize];
        from.read_exact(&mut body)?;
        // SAFETY: the kernel has just made these descriptors, and nobody else has them.
        let files =
            descriptors[..count].iter().map(|&file| unsafe { OwnedFd::from_raw_fd(file) }.into()).collect();
        Ok(Some(Self { request: word(0), flags: word(4), body, files }))
    }
}

/// The messages of a program that another daemon must know.
#[derive(Debug, Default)]
struct Record {
    device: BTreeMap<u32, Message>,
    memory: Vec<Message>,
    /// By the queue and the request.
    queues: BTreeMap<(u32, u32), Message>,
}

impl Record {
    fn note(&mut self, message: &Message) -> Result<()> {
        let Ok(request) = FrontendReq::try_from(message.request) else { return Ok(()) };
        match request {
            FrontendReq::SET_OWNER | FrontendReq::SET_PROTOCOL_FEATURES | FrontendReq::SET_FEATURES => {
                self.device.insert(message.request, message.copy()?);
            }
            FrontendReq::SET_MEM_TABLE => self.memory = vec![message.copy()?],
            FrontendReq::ADD_MEM_REG => self.memory.push(message.copy()?),
            FrontendReq::REM_MEM_REG => {
                let is_it = |other: &Message| other.body.get(8..24) == message.body.get(8..24);
                self.memory.retain(|other| other.request != FrontendReq::ADD_MEM_REG as u32 || !is_it(other));
            }
            FrontendReq::SET_VRING_NUM
            | FrontendReq::SET_VRING_ADDR
            | FrontendReq::SET_VRING_BASE
            | FrontendReq::SET_VRING_CALL
            | FrontendReq::SET_VRING_KICK
            | FrontendReq::SET_VRING_ENABLE => {
                let queue = message.word(0).context("a message without a queue")? & !NO_EVENT;
                self.queues.insert((queue, message.request), message.copy()?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the program has set up its queues, all of which it enables.
    fn is_ready(&self) -> bool {
        let has = |queue: u32, request: FrontendReq| self.queues.contains_key(&(queue, request as u32));
        let begun = (0..QUEUES).filter(|&queue| has(queue, FrontendReq::SET_VRING_NUM));
        let mut begun = begun.peekable();
        begun.peek().is_some() && begun.all(|queue| has(queue, FrontendReq::SET_VRING_ENABLE))
    }

    /// The queues that run.
    fn running(&self) -> Vec<u32> {
        let kick = FrontendReq::SET_VRING_KICK as u32;
        (0..QUEUES).filter(|queue| self.queues.contains_key(&(*queue, kick))).collect()
    }
}

/// A program's connection.
#[derive(Debug)]
struct Connection {
    program: UnixStream,
    daemon: UnixStream,
    record: Record,
    pid: libc::pid_t,
}

/// The end of a transfer before all of the state has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The source's pipe is closed after so many bytes.
    Save(usize),
    /// The destination's pipe is closed after so many bytes.
    Load(usize),
    /// The front-end, and the program in its machine, are killed when so many bytes were saved.
    KilledInSave(usize),
    /// The same when so many bytes were loaded.
    KilledInLoad(usize),
}

/// The order in which the daemon learns of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Its state, and then its memory: as QEMU does in a machine that is new.
    StateFirst,
    /// Its memory, and then its state.
    MemoryFirst,
}

impl Connection {
    fn of(program: UnixStream, daemon: &Path) -> Result<Self> {
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes a structure of that length.
        let result = unsafe {
            libc::getsockopt(
                program.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut bytes,
            )
        };
        ensure!(result == 0, "the program's process is not known");
        let daemon = UnixStream::connect(daemon)?;
        Ok(Self { program, daemon, record: Record::default(), pid: credentials.pid })
    }

    /// Passes what is there on. Returns whether there was something.
    fn pass(&mut self) -> Result<bool> {
        let request = Message::receive(&self.program)?;
        if let Some(mut message) = request {
            if message.request == FrontendReq::SET_PROTOCOL_FEATURES as u32 {
                let wanted = VhostUserProtocolFeatures::DEVICE_STATE.bits();
                let all = u64::from_ne_bytes(message.body[..8].try_into()?) | wanted;
                message.body = all.to_ne_bytes().to_vec();
            }
            message.send(&self.daemon)?;
            self.record.note(&message)?;
            return Ok(true);
        }
        let reply = Message::receive(&self.daemon)?;
        let is_there = reply.is_some();
        reply.map_or(Ok(()), |message| message.send(&self.program))?;
        Ok(is_there)
    }

    /// Sends a request to the daemon, and returns its reply. Replies to the program's own requests before it are passed on.
    fn ask(&self, message: &Message) -> Result<Message> {
        message.send(&self.daemon)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Message::receive(&self.daemon)? {
                None if Instant::now() > deadline => bail!("the daemon does not reply within {PATIENCE:?}"),
                None => thread::sleep(LOOK),
                Some(reply) if reply.request == message.request => return Ok(reply),
                Some(reply) => reply.send(&self.program)?,
            }
        }
    }

    /// Ends a transfer. An error: the daemon refuses.
    fn check(&self) -> Result<()> {
        let reply = self.ask(&Message::new(FrontendReq::CHECK_DEVICE_STATE, &[]))?;
        ensure!(reply.body == [0; 8], "the daemon says that the transfer has failed");
        Ok(())
    }

    fn begin(&self, direction: u32, file: OwnedFd) -> Result<()> {
        let mut message = Message::new(FrontendReq::SET_DEVICE_STATE_FD, &[direction, 0]);
        message.files = vec![file.into()];
        let reply = self.ask(&message)?;
        ensure!(reply.word(0).is_some_and(|word| word & 0xff == 0), "the daemon takes no transfer");
        Ok(())
    }

    /// Stops all queues. Returns their positions.
    fn stop(&self) -> Result<Vec<(u32, u32)>> {
        let base = |queue: u32| {
            let reply = self.ask(&Message::new(FrontendReq::GET_VRING_BASE, &[queue, 0]))?;
            Ok((queue, reply.word(1).context("a reply without a position")?))
        };
        self.record.running().into_iter().map(base).collect()
    }

    fn save(&self, cut: Option<Cut>) -> Result<Vec<u8>> {
        let (from, to) = std::io::pipe()?;
        self.begin(SAVE, to.into())?;
        let most = match cut {
            Some(Cut::Save(bytes) | Cut::KilledInSave(bytes)) => bytes as u64,
            _ => u64::MAX,
        };
        let mut state = Vec::new();
        from.take(most).read_to_end(&mut state)?;
        match cut {
            Some(Cut::KilledInSave(_)) => bail!(KILLED),
            _ => self.check()?,
        }
        ensure!(state.len() as u64 != most, "the state is cut");
        Ok(state)
    }

    fn load(&self, state: &[u8], cut: Option<Cut>) -> Result<()> {
        let (from, mut to) = std::io::pipe()?;
        self.begin(LOAD, from.into())?;
        let state = match cut {
            Some(Cut::Load(bytes) | Cut::KilledInLoad(bytes)) => &state[..bytes.min(state.len())],
            _ => state,
        };
        match to.write_all(state) {
            // The daemon says why.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
            _ => drop(to),
        }
        match cut {
            Some(Cut::KilledInLoad(_)) => bail!(KILLED),
            _ => self.check(),
        }
    }

    /// Starts the queues at these positions.
    fn start(&self, positions: &[(u32, u32)]) -> Result<()> {
        for &(queue, position) in positions {
            let requests = [
                FrontendReq::SET_VRING_NUM,
                FrontendReq::SET_VRING_ADDR,
                FrontendReq::SET_VRING_BASE,
                FrontendReq::SET_VRING_CALL,
                FrontendReq::SET_VRING_KICK,
                FrontendReq::SET_VRING_ENABLE,
            ];
            for request in requests {
                if request == FrontendReq::SET_VRING_BASE {
                    Message::new(request, &[queue, position]).send(&self.daemon)?;
                } else if let Some(message) = self.record.queues.get(&(queue, request as u32)) {
                    message.send(&self.daemon)?;
                }
            }
            let kick = self.record.queues.get(&(queue, FrontendReq::SET_VRING_KICK as u32));
            for mut event in kick.iter().flat_map(|kick| &kick.files) {
                // As QEMU does.
                event.write_all(&1_u64.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    /// Lets the daemon know the program's features.
    fn greet(&self) -> Result<()> {
        // Without these questions the daemon does not confirm messages.
        for request in [FrontendReq::GET_FEATURES, FrontendReq::GET_PROTOCOL_FEATURES] {
            self.ask(&Message::new(request, &[]))?;
        }
        for request in [FrontendReq::SET_OWNER, FrontendReq::SET_PROTOCOL_FEATURES, FrontendReq::SET_FEATURES]
        {
            self.record.device.get(&(request as u32)).map_or(Ok(()), |message| message.send(&self.daemon))?;
        }
        Ok(())
    }

    /// Begins to load what goes ahead into another daemon. Returns its socket, and the end of the pipe.
    fn begin_there(&mut self, daemon: &Path) -> Result<(UnixStream, PipeWriter)> {
        let (from, to) = std::io::pipe()?;
        let here = std::mem::replace(&mut self.daemon, UnixStream::connect(daemon)?);
        let begun = self.greet().and_then(|()| self.begin(LOAD, from.into()));
        let there = std::mem::replace(&mut self.daemon, here);
        begun.map(|()| (there, to))
    }

    /// Makes the device of the program in a daemon that has none for it yet, or only what has gone ahead.
    fn arrive(
        &self,
        has_more: bool,
        state: &[u8],
        positions: &[(u32, u32)],
        order: Order,
        cut: Option<Cut>,
    ) -> Result<()> {
        if has_more {
            self.check()?
        } else {
            self.greet()?
        }
        if order == Order::StateFirst {
            self.load(state, cut)?;
        }
        self.record.memory.iter().try_for_each(|message| message.send(&self.daemon))?;
        if order == Order::MemoryFirst {
            self.load(state, cut)?;
        }
        self.start(positions)
    }
}

/// Contents that go ahead of a program.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The pipe to the other daemon. Until it is there, the stream is kept below.
    to: Option<File>,
    kept: Vec<u8>,
    /// True if the other daemon reads no more.
    is_refused: bool,
    bytes: usize,
    /// The bytes that are still to come, as the daemon says.
    pub pending: u64,
    /// True if nobody reads on.
    is_over: bool,
}

impl Ahead {
    /// The bytes that have gone ahead.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Passes a piece of the stream on, from pipe to pipe without a copy. A daemon that reads no more says why when the transfer is checked.
    fn put(&mut self, from: &File, bytes: u64) -> Result<()> {
        let mut piece = from.take(bytes);
        match &mut self.to {
            Some(to) => {
                self.is_refused |= !self.is_refused && std::io::copy(&mut piece, to).is_err();
                std::io::copy(&mut piece, &mut std::io::sink())?;
            }
            None => drop(piece.read_to_end(&mut self.kept)?),
        }
        ensure!(piece.limit() == 0, "a piece is cut");
        self.bytes += usize::try_from(bytes)?;
        Ok(())
    }

    /// Passes the stream on to the other daemon from now on.
    fn pass_to(&mut self, mut to: File) {
        let kept = std::mem::take(&mut self.kept);
        self.is_refused |= to.write_all(&kept).is_err();
        self.to = Some(to);
    }
}

/// Reads contents that go ahead.
#[derive(Debug)]
struct Reading {
    ahead: Arc<Mutex<Ahead>>,
    thread: thread::JoinHandle<Result<()>>,
    /// The socket of the other daemon, which reads the contents as they come.
    there: Option<UnixStream>,
}

impl Reading {
    fn begin(connection: &Connection) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let reading = Self::try_to_begin(connection)?;
            let has_begun = || locked(&reading.ahead).bytes() > 0;
            while !has_begun() && !reading.thread.is_finished() {
                thread::sleep(LOOK);
            }
            if has_begun() {
                return Ok(reading);
            }
            // It was the whole state, because the queues, which have just started, do not run yet.
            thread::sleep(10 * LOOK);
        }
        bail!("contents do not begin to go ahead")
    }

    fn try_to_begin(connection: &Connection) -> Result<Self> {
        let (from, to) = std::io::pipe()?;
        connection.begin(SAVE, to.into())?;
        let from: File = OwnedFd::from(from).into();
        let ahead = Arc::<Mutex<Ahead>>::default();
        let theirs = ahead.clone();
        let thread = thread::spawn(move || {
            loop {
                let mut head = [[0; 8]; 2];
                match (&from).read_exact(head.as_flattened_mut()) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                    result => result?,
                }
                let [bytes, pending] = head.map(u64::from_le_bytes);
                ensure!(bytes <= MAX_PIECE, "a piece is too long");
                let mut ahead = locked(&theirs);
                ahead.put(&from, bytes)?;
                ahead.pending = pending;
                if ahead.is_over {
                    return Ok(());
                }
            }
        });
        Ok(Self { ahead, thread, there: None })
    }

    fn wait(&self, is_enough: &impl Fn(&Ahead) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !is_enough(&locked(&self.ahead)) {
            ensure!(!self.thread.is_finished() && begun.elapsed() < LIMIT, "contents do not go ahead");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Returns the socket of the other daemon, which has got all of it, after the queues have stopped.
    fn finish(self, connection: &Connection) -> Result<Option<UnixStream>> {
        self.thread.join().ok().context("the reader has failed")??;
        connection.check()?;
        locked(&self.ahead).to = None;
        Ok(self.there)
    }
}

/// A program's connection, until one of its ends has gone.
type Slot = Arc<Mutex<Option<Connection>>>;

/// The connections of programs.
#[derive(Debug)]
pub struct Mover {
    folder: TempDir,
    /// The daemon of programs that start.
    daemon: Arc<Mutex<PathBuf>>,
    connections: Arc<Mutex<Vec<Slot>>>,
}

/// The outcome of a move.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// The program is with the other daemon: the length of its state.
    There(usize),
    /// A daemon has refused, and the program goes on where it was.
    Stays(String),
    /// The program has not set its device up.
    TooEarly,
    /// The program has ended.
    Gone,
    /// The daemon that has the program has ended, or the front-end was killed: the program is lost.
    Lost(String),
}

impl Mover {
    /// Passes programs on to the daemon at `daemon`.
    pub fn start(daemon: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("socket"))?;
        let connections = Arc::<Mutex<Vec<_>>>::default();
        let daemon = Arc::new(Mutex::new(daemon.to_path_buf()));
        let (all, of_new) = (Arc::clone(&connections), Arc::clone(&daemon));
        thread::spawn(move || {
            for program in listener.incoming() {
                let daemon = locked(&of_new).clone();
                let Ok(connection) = program.map_err(Into::into).and_then(|one| Connection::of(one, &daemon))
                else {
                    continue;
                };
                let connection = Arc::new(Mutex::new(Some(connection)));
                locked(&all).push(connection.clone());
                thread::spawn(move || serve(&connection));
            }
        });
        Ok(Self { folder, daemon, connections })
    }

    /// The socket for programs.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Moves all programs to the daemon at `daemon`, to which programs come that start later, too.
    pub fn move_to(&self, daemon: &Path, order: Order) -> Vec<Moved> {
        self.try_to_move(daemon, order, None)
    }

    /// As [`Self::move_to`]. With `cut`, the transfers do not pass as a whole.
    pub fn try_to_move(&self, daemon: &Path, order: Order, cut: Option<Cut>) -> Vec<Moved> {
        *locked(&self.daemon) = daemon.to_path_buf();
        let all = locked(&self.connections).clone();
        let moved = all.iter().map(|slot| move_one(&mut locked(slot), daemon, order, cut, None)).collect();
        locked(&self.connections).retain(|connection| locked(connection).is_some());
        moved
    }
}

impl Mover {
    /// Moves all programs as [`Self::move_to`] does, after so much of each one's contents that it `is_enough` has gone ahead, while it ran.
    /// Returns the bytes that have gone ahead of each one, too, and the time for which it stood still.
    pub fn move_live(
        &self,
        daemon: &Path,
        order: Order,
        is_enough: impl Fn(&Ahead) -> bool,
    ) -> Vec<(Moved, usize, Duration)> {
        let all = locked(&self.connections).clone();
        let move_it = |connection: &Slot| {
            let (reading, bytes) = match read_ahead(connection, daemon, &is_enough) {
                Ok(found) => found,
                Err(error) => return (Moved::Stays(format!("{error:#}")), 0, Duration::ZERO),
            };
            let begun = Instant::now();
            let moved = move_one(&mut locked(connection), daemon, order, None, reading);
            (moved, bytes, begun.elapsed())
        };
        *locked(&self.daemon) = daemon.to_path_buf();
        all.iter().map(move_it).collect()
    }

    /// Moves the only program as [`Self::move_live`] does, and again for at most `limit` as long as a daemon refuses it. Returns the length of
    /// its state, the bytes that have gone ahead, and the time for which it stood still.
    pub fn move_live_surely(
        &self,
        daemon: &Path,
        order: Order,
        limit: Duration,
        is_enough: impl Fn(&Ahead) -> bool,
    ) -> Result<(usize, usize, Duration)> {
        let begun = Instant::now();
        loop {
            match self.move_live(daemon, order, &is_enough)[..] {
                [(Moved::There(state), ahead, time)] => return Ok((state, ahead, time)),
                [(Moved::Stays(ref why), ..)] if begun.elapsed() < limit => eprintln!("again: {why}"),
                ref moved => bail!("{moved:?}"),
            }
            thread::sleep(LOOK);
        }
    }

    /// Lets contents of all programs go ahead until that `is_enough`, and gives the move up.
    pub fn cancel(&self, is_enough: impl Fn(&Ahead) -> bool) -> Result<()> {
        for connection in locked(&self.connections).clone() {
            let Some(reading) = locked(&connection).as_ref().map(Reading::begin).transpose()? else {
                continue;
            };
            reading.wait(&is_enough)?;
            locked(&reading.ahead).is_over = true;
            reading.thread.join().ok().context("the reader has failed")??;
        }
        Ok(())
    }
}

/// Lets contents of a program go ahead to the daemon at `daemon`, until that `is_enough`. Returns their bytes at the least: more may come until
/// the stop.
fn read_ahead(
    connection: &Slot,
    daemon: &Path,
    is_enough: &impl Fn(&Ahead) -> bool,
) -> Result<(Option<Reading>, usize)> {
    let Some(mut reading) = locked(connection).as_ref().map(Reading::begin).transpose()? else {
        return Ok((None, 0));
    };
    let began = locked(connection).as_mut().map(|connection| connection.begin_there(daemon)).transpose();
    let waited = began.and_then(|began| {
        let (there, to) = began.context("the program has ended")?;
        locked(&reading.ahead).pass_to(OwnedFd::from(to).into());
        reading.there = Some(there);
        reading.wait(is_enough)
    });
    let mut ahead = locked(&reading.ahead);
    ahead.is_over = waited.is_err();
    let bytes = ahead.bytes();
    drop(ahead);
    waited.map(|()| (Some(reading), bytes))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes messages on until one of the ends has gone.
fn serve(connection: &Mutex<Option<Connection>>) {
    loop {
        let mut now = locked(connection);
        match now.as_mut().map(Connection::pass) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => {
                drop(now);
                thread::sleep(LOOK);
            }
            _ => return *now = None,
        }
    }
}

/// Stops a process, and lets it go on in the end.
struct Stopped(libc::pid_t);

impl Stopped {
    fn new(pid: libc::pid_t) -> Result<Self> {
        // SAFETY: a plain system call. The process is at the other end of a socket, so that it is no other one.
        ensure!(unsafe { libc::kill(pid, libc::SIGSTOP) } == 0, "the program has ended");
        let stopped = Self(pid);
        let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        for _ in 0..1000 {
            let is =
                |state: &str| status().lines().any(|line| line.starts_with("State:") && line.contains(state));
            if is("T (stopped)") {
                return Ok(stopped);
            }
            if is("Z (zombie)") {
                break;
            }
            thread::sleep(LOOK);
        }
        bail!("the program does not stop")
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

/// Moves the program of a connection, which is closed if its daemon has ended, or `cut` has killed it.
fn move_one(
    slot: &mut Option<Connection>,
    daemon: &Path,
    order: Order,
    cut: Option<Cut>,
    reading: Option<Reading>,
) -> Moved {
    let Some(connection) = slot.as_mut() else { return Moved::Gone };
    connection.try_to_move(daemon, order, cut, reading).unwrap_or_else(|error| {
        // As if the front-end had ended.
        *slot = None;
        Moved::Lost(format!("{error:#}"))
    })
}

impl Connection {
    /// Moves the program to another daemon, after the contents that have gone ahead.
    ///
    /// Errors: its daemon has ended, or `cut` has killed it.
    fn try_to_move(
        &mut self,
        daemon: &Path,
        order: Order,
        cut: Option<Cut>,
        reading: Option<Reading>,
    ) -> Result<Moved> {
        let Ok(_stopped) = Stopped::new(self.pid) else { return Ok(Moved::Gone) };
        // Messages that it sent before it stopped.
        loop {
            match self.pass() {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Ok(Moved::Gone),
            }
        }
        if !self.record.is_ready() {
            return Ok(Moved::TooEarly);
        }
        let positions = self.stop()?;
        let there = reading.map_or(Ok(None), |reading| reading.finish(self));
        let moved = there.and_then(|there| {
            let state = self.save(cut)?;
            let has_more = there.is_some();
            let there = there.map_or_else(|| UnixStream::connect(daemon), Ok)?;
            let before = std::mem::replace(&mut self.daemon, there);
            self.arrive(has_more, &state, &positions, order, cut).map(|()| state.len()).inspect_err(|_| {
                self.daemon = before;
            })
        });
        match moved {
            Ok(bytes) => Ok(Moved::There(bytes)),
            Err(error) if matches!(cut, Some(Cut::KilledInSave(_) | Cut::KilledInLoad(_))) => {
                // SAFETY: a plain system call. The process is at the other end of a socket, so that it is no other one.
                unsafe { libc::kill(self.pid, libc::SIGKILL) };
                Err(error)
            }
            Err(error) => {
                self.start(&positions)?;
                Ok(Moved::Stays(format!("{error:#}")))
            }
        }
    }
}
