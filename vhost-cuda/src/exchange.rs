// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects that processes of a guest share with each other: memory and events, identified by tokens.
//!
//! A worker offers an object that libcuda exported and gets a token of 128 random bits. The guest process sees only
//! the token and can pass it on. Another worker that presents the token gets the object. So any process of the same
//! user of a guest that knows a token may use it, and others cannot guess one. An offer ends with the object, or with
//! its session. Processes that have found it keep it. Each worker uses a socket of its own, served by a thread of the
//! daemon.
//!
//! Workers are not trusted. The daemon stores files for them, but no sockets: if a worker made the daemon store the
//! worker's own end of a socket, its hang-up would never be seen.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use parking_lot::{Condvar, Mutex};
use rustix::fs::fcntl_get_seals;
use serde::{Deserialize, Serialize};
use vhost_cuda_common::budget::{Budget, Charge};
use vhost_cuda_common::exchange::{
    AWAY, Answer, BACK, CLOSED, EVENT, LOOK_UP, OFFER, Offer, Question, RECORD, SETTLE, Shortage,
    TOKEN_BYTES, Token, WITHDRAW,
};
use vhost_cuda_common::files::{invalid, write_with};
use zerocopy::{FromZeros, IntoBytes};

use crate::cache::read_with;
use crate::confine::threads;
use crate::hand_over::files::{Inherited, Leaving, Number};
use crate::hand_over::freeze;
use crate::owner::Owner;

/// The maximum number of offers of one session.
const MAX_OFFERS: usize = 4096;
/// The time for an event that is made again to be there: that of a session to get another worker. A call of the guest waits meanwhile.
const AWAY_PATIENCE: Duration = Duration::from_secs(20);
/// The major number of NVIDIA's devices. Other devices of NVIDIA get theirs when their module is loaded.
const NVIDIA_MAJOR: u32 = 195;

/// What the daemon does for a worker beside storing its offers.
pub trait Services: Send + 'static {
    /// Waits for the sessions that are ending, and may suspend others. Returns whether there may be more memory.
    fn settle(&self, shortage: Shortage) -> bool;

    /// Records the process with this id, or the worker's own (0), and returns the socket from which the recording is read.
    /// `None`: the worker's user may not watch such a process, or there is none.
    fn record(&self, pid: u32) -> Option<OwnedFd>;
}

/// The budgets for the files of a session's offers, each of which is an open file of the daemon.
#[derive(Clone, Debug)]
pub struct FileBudgets {
    /// The maximum number of files that the daemon stores for one user, in all its sessions.
    pub of_user: usize,
    /// Files that the daemon stores for one machine.
    pub machine: Arc<Budget>,
    /// Descriptors of the daemon.
    pub descriptors: Arc<Budget>,
}

/// The budgets that each stored file is charged to.
type Budgets = [Arc<Budget>; 3];

#[derive(Clone, Debug)]
struct Shared {
    owner: Owner,
    session: u64,
    offer: Offer,
    file: Option<Arc<Kept>>,
    /// The sessions that have it open, and how often. Only events are counted.
    openers: HashMap<u64, u32>,
    /// True while an event is made again.
    is_away: bool,
}

/// An offer of the program before this one: its token, what it is, its file, and the sessions that have it open.
pub type Restored = (Token, Offer, Option<File>, HashMap<u64, u32>);

/// An offer that is handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedOffer {
    token: Token,
    what: u32,
    device: u32,
    bytes: u64,
    handle: Vec<u8>,
    file: Option<Number>,
    #[serde(default)]
    openers: HashMap<u64, u32>,
}

impl SavedOffer {
    /// Returns the offer for [`Exchange::serve`].
    ///
    /// Errors: the state is wrong.
    pub fn restore(self, files: &mut Inherited) -> io::Result<Restored> {
        let handle = self.handle.try_into().map_err(|_| invalid("a handle of another length"))?;
        let file = self.file.map(|number| files.take(number)).transpose()?.map(File::from);
        let offer = Offer { what: self.what, device: self.device, bytes: self.bytes, handle };
        Ok((self.token, offer, file, self.openers))
    }
}

/// A file that the daemon stores.
#[derive(Debug)]
struct Kept {
    file: File,
    _charges: [Charge; 3],
}

/// The offers of a session.
#[derive(Debug, Default)]
struct Session {
    /// The number of its workers: two while it goes over from one to the other.
    workers: usize,
    tokens: HashSet<Token>,
    /// The offers that can be distinguished.
    named: HashMap<Offer, Token>,
}

/// A worker that shares.
#[derive(Debug)]
pub struct Sharer {
    /// Its socket.
    pub socket: Arc<UnixStream>,
    /// The number of its session.
    pub session: u64,
    /// The owner of the session.
    pub owner: Owner,
}

/// A user with sessions.
#[derive(Debug)]
struct User {
    sessions: usize,
    files: Arc<Budget>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<u64, Session>,
    users: HashMap<Owner, User>,
    offers: HashMap<Token, Shared>,
}

/// The offers of all sessions of one daemon.
#[derive(Debug, Default)]
pub struct Exchange(Mutex<State>, Condvar);

impl Exchange {
    /// Returns an exchange without offers.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Serves a worker until it ends. If no thread can be started, the worker shares nothing. `offers` are those that it made to the program before this
    /// one.
    pub fn serve(
        self: &Arc<Self>,
        sharer: Sharer,
        budgets: FileBudgets,
        offers: Vec<Restored>,
        services: impl Services,
    ) {
        let (exchange, Sharer { socket, session, owner }) = (self.clone(), sharer);
        // At once, so that other workers find what was offered before.
        let of_user = exchange.begin(session, owner, budgets.of_user);
        let budgets = [of_user, budgets.machine, budgets.descriptors];
        for (token, offer, file, openers) in offers {
            // What the limits allowed before, they may not allow any more.
            let kept = file.map(|file| keep(file, &budgets)).transpose();
            let offered = kept.and_then(|kept| {
                let file = kept.map(Arc::new);
                exchange.offer_as(token, Shared { owner, session, offer, file, openers, is_away: false })
            });
            if let Err(error) = offered {
                debug!("exchange: an offer is not kept: {error}");
            }
        }
        let serving = move || {
            // They are read from a file, once. The worker has loaded NVIDIA's modules.
            is_nvidia(NVIDIA_MAJOR);
            threads::read_foreign_bytes();
            if let Err(error) = exchange.answer_all(&socket, owner, session, &budgets, &services) {
                debug!("exchange: a worker's socket: {error}");
            }
            exchange.end(session, owner);
        };
        if let Err(error) = thread::Builder::new().name("exchange".into()).spawn(serving) {
            debug!("exchange: no thread: {error}");
            self.end(session, owner);
        }
    }

    /// Returns what a session has offered, for the next program.
    pub fn save(&self, session: u64, files: &mut Leaving) -> Vec<SavedOffer> {
        let state = self.0.lock();
        let tokens = state.sessions.get(&session).into_iter().flat_map(|session| &session.tokens);
        let mut save = |token: &Token| {
            let shared = state.offers.get(token)?;
            let Offer { what, device, bytes, handle } = shared.offer;
            let file = shared.file.as_ref().map(|kept| files.add(&kept.file));
            let openers = shared.openers.clone();
            Some(SavedOffer { token: *token, what, device, bytes, handle: handle.to_vec(), file, openers })
        };
        tokens.filter_map(&mut save).collect()
    }

    /// Begins session `session` of `owner`. Returns the budget for files of its user, who may have `max_files`.
    fn begin(&self, session: u64, owner: Owner, max_files: usize) -> Arc<Budget> {
        let mut state = self.0.lock();
        state.sessions.entry(session).or_default().workers += 1;
        let new_user = || User { sessions: 0, files: Budget::new(max_files) };
        let user = state.users.entry(owner).or_insert_with(new_user);
        user.sessions += 1;
        user.files.clone()
    }

    fn end(&self, session: u64, owner: Owner) {
        let mut state = self.0.lock();
        if let Entry::Occupied(mut user) = state.users.entry(owner) {
            user.get_mut().sessions -= 1;
            if user.get().sessions == 0 {
                user.remove();
            }
        }
        let Entry::Occupied(mut entry) = state.sessions.entry(session) else { return };
        entry.get_mut().workers -= 1;
        if entry.get().workers > 0 {
            return;
        }
        let ended = entry.remove();
        let files: Vec<_> = ended.tokens.iter().filter_map(|token| state.offers.remove(token)).collect();
        state.close_all(session);
        drop(state);
        self.1.notify_all();
        // Closing the last descriptor of GPU memory is slow.
        drop(files);
    }

    fn answer_all(
        &self,
        socket: &UnixStream,
        owner: Owner,
        session: u64,
        budgets: &Budgets,
        services: &impl Services,
    ) -> io::Result<()> {
        let mut question = Question::new_zeroed();
        loop {
            let _permit = freeze::readable(socket);
            let Some(file) = read_with(socket, question.as_mut_bytes())? else { return Ok(()) };
            refuse_haste(socket)?;
            if question.kind == SETTLE {
                let found = u32::from(services.settle(Shortage::of(question.number, question.offer.device)));
                write_with(socket, Answer { found, ..Answer::new_zeroed() }.as_bytes(), None)?;
                continue;
            }
            if question.kind == RECORD {
                let recording = services.record(question.number).map(File::from);
                let found = u32::from(recording.is_some());
                write_with(socket, Answer { found, ..Answer::new_zeroed() }.as_bytes(), recording.as_ref())?;
                continue;
            }
            if let Some((answer, kept)) = self.answer(owner, session, budgets, &question, file)? {
                write_with(socket, answer.as_bytes(), kept.as_ref().map(|kept| &kept.file))?;
            }
        }
    }

    /// Executes a worker's question. Returns `None` if there is no answer.
    ///
    /// Errors: a question of unknown kind.
    fn answer(
        &self,
        owner: Owner,
        session: u64,
        budgets: &Budgets,
        question: &Question,
        file: Option<File>,
    ) -> io::Result<Option<(Answer, Option<Arc<Kept>>)>> {
        let mut answer = Answer::new_zeroed();
        let mut found_file = None;
        match question.kind {
            OFFER => {
                let file = file.map(|file| keep(file, budgets)).transpose();
                let offered = file.and_then(|file| {
                    let file = file.map(Arc::new);
                    let (openers, is_away) = (HashMap::new(), false);
                    self.offer(Shared { owner, session, offer: question.offer, file, openers, is_away })
                });
                match offered {
                    Ok(token) => (answer.found, answer.token) = (1, token),
                    Err(error) => debug!("exchange: an offer is refused: {error}"),
                }
            }
            LOOK_UP => {
                if let Some(shared) = self.find(&question.token, owner, session, question.offer.what) {
                    (answer.found, answer.offer, found_file) = (1, shared.offer, shared.file);
                }
            }
            WITHDRAW => {
                self.withdraw(&question.token, session);
                return Ok(None);
            }
            AWAY => answer.found = self.away(session).into(),
            BACK => {
                let kept = file.map(|file| keep(file, budgets)).transpose();
                let kept = kept.inspect_err(|error| debug!("exchange: an event is not kept: {error}"));
                let is_back = kept.is_ok_and(|kept| {
                    self.back(&question.token, session, question.offer, kept.map(Arc::new))
                });
                answer.found = is_back.into();
            }
            CLOSED => {
                self.0.lock().closed(&question.token, session);
                return Ok(None);
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(Some((answer, found_file)))
    }

    /// Notes that the events of a session end until they are made again, unless another one has any of them open. Those that it has opened
    /// end, too.
    fn away(&self, session: u64) -> bool {
        let mut state = self.0.lock();
        let state = &mut *state;
        let Some(of) = state.sessions.get(&session) else { return false };
        let events = |shared: &&mut Shared| shared.session == session && shared.offer.what == EVENT;
        if !of.tokens.iter().filter_map(|token| state.offers.get(token)).all(|one| one.openers.is_empty()) {
            return false;
        }
        state.offers.values_mut().filter(events).for_each(|shared| shared.is_away = true);
        state.close_all(session);
        true
    }

    /// Notes that an event of a session is there again. Returns whether it is one.
    fn back(&self, token: &Token, session: u64, offer: Offer, file: Option<Arc<Kept>>) -> bool {
        let mut state = self.0.lock();
        let state = &mut *state;
        let (Some(shared), Some(of)) = (state.offers.get_mut(token), state.sessions.get_mut(&session)) else {
            return false;
        };
        if shared.session != session || (shared.offer.what, offer.what) != (EVENT, EVENT) {
            return false;
        }
        if of.named.get(&shared.offer) == Some(token) {
            of.named.remove(&shared.offer);
        }
        if file.is_none() {
            of.named.insert(offer, *token);
        }
        (shared.offer, shared.file, shared.is_away) = (offer, file, false);
        self.1.notify_all();
        true
    }

    fn offer(&self, shared: Shared) -> io::Result<Token> {
        let mut token = [0; TOKEN_BYTES];
        getrandom::fill(&mut token).map_err(|error| io::Error::other(error.to_string()))?;
        self.offer_as(token, shared)
    }

    /// Stores an offer under a token, unless the session has offered the object under another one.
    fn offer_as(&self, token: Token, shared: Shared) -> io::Result<Token> {
        let mut state = self.0.lock();
        let state = &mut *state;
        let session =
            state.sessions.get_mut(&shared.session).ok_or_else(|| invalid("its session has ended"))?;
        // A repeated offer of the same object keeps its token. Objects with files cannot be distinguished here: blocks of the same
        // size have the same handle. Workers know what they have offered.
        let named = shared.file.is_none();
        if let Some(&token) = session.named.get(&shared.offer).filter(|_| named) {
            return Ok(token);
        }
        if session.tokens.len() >= MAX_OFFERS {
            return Err(invalid("the session has offered too much"));
        }
        session.tokens.insert(token);
        if named {
            session.named.insert(shared.offer, token);
        }
        state.offers.insert(token, shared);
        Ok(token)
    }

    /// Ends an offer of `session`, and ignores offers of others.
    fn withdraw(&self, token: &Token, session: u64) {
        let mut state = self.0.lock();
        let state = &mut *state;
        let Some(of) = state.sessions.get_mut(&session).filter(|of| of.tokens.contains(token)) else {
            return;
        };
        let Some(shared) = state.offers.remove(token) else { return };
        of.tokens.remove(token);
        if of.named.get(&shared.offer) == Some(token) {
            of.named.remove(&shared.offer);
        }
        self.1.notify_all();
    }

    /// Returns what is offered under a token, once it is there. An event counts as open in `session` from now on.
    fn find(&self, token: &Token, owner: Owner, session: u64, what: u32) -> Option<Shared> {
        let until = Instant::now() + AWAY_PATIENCE;
        let mut state = self.0.lock();
        loop {
            let shared = state.offers.get_mut(token)?;
            if shared.owner != owner || shared.offer.what != what {
                return None;
            }
            if !shared.is_away {
                if what == EVENT && shared.session != session {
                    let times = shared.openers.entry(session).or_default();
                    *times = times.saturating_add(1);
                }
                return Some(shared.clone());
            }
            if self.1.wait_until(&mut state, until).timed_out() {
                return None;
            }
        }
    }
}

impl State {
    /// Notes that an event that a session has looked up has ended there.
    fn closed(&mut self, token: &Token, session: u64) {
        let Some(shared) = self.offers.get_mut(token) else { return };
        if let Entry::Occupied(mut times) = shared.openers.entry(session) {
            *times.get_mut() -= 1;
            if *times.get() == 0 {
                times.remove();
            }
        }
    }

    /// Notes that all events that a session has opened have ended there.
    fn close_all(&mut self, session: u64) {
        for shared in self.offers.values_mut() {
            shared.openers.remove(&session);
        }
    }
}

/// Disconnects a worker that does not wait for each answer before it asks again. It could otherwise make the daemon
/// send files that are never received, and the kernel limits the number of these per user.
fn refuse_haste(socket: &UnixStream) -> io::Result<()> {
    let mut unread: libc::c_int = 0;
    // SAFETY: the call writes one integer, which lives across it.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) } < 0;
    match failed {
        true => Err(io::Error::last_os_error()),
        false if unread > 0 => Err(invalid("a question before the last answer was read")),
        false => Ok(()),
    }
}

/// Stores a file that a worker offers: memory of the GPU (a device of NVIDIA's) or of the emulator (a memfd). Refuses
/// all other files.
fn keep(file: File, budgets: &Budgets) -> io::Result<Kept> {
    let meta = file.metadata()?;
    let kind = meta.file_type();
    let is_memory = if kind.is_file() {
        // Files on a disk have no seals.
        fcntl_get_seals(&file).is_ok()
    } else {
        kind.is_char_device() && is_nvidia(libc::major(meta.rdev()))
    };
    if !is_memory {
        let (mode, device) = (meta.mode(), meta.rdev());
        return Err(invalid(&format!("its file is no memory: mode {mode:o}, device {device:#x}")));
    }
    let charges = budgets.each_ref().map(|budget| budget.charge(1));
    let [Some(of_user), Some(machine), Some(descriptors)] = charges else {
        return Err(invalid("too many files are shared"));
    };
    Ok(Kept { file, _charges: [of_user, machine, descriptors] })
}

/// Returns whether a character device of this major number is one of NVIDIA's.
fn is_nvidia(major: u32) -> bool {
    static MAJORS: OnceLock<Vec<u32>> = OnceLock::new();
    let majors =
        MAJORS.get_or_init(|| nvidia_majors(&std::fs::read_to_string("/proc/devices").unwrap_or_default()));
    majors.contains(&major) || major == NVIDIA_MAJOR
}

fn nvidia_majors(devices: &str) -> Vec<u32> {
    let characters = devices.split("Block devices").next().unwrap_or_default();
    let nvidia = |line: &str| {
        let (major, name) = line.trim().split_once(' ')?;
        major.parse().ok().filter(|_| name.starts_with("nvidia"))
    };
    characters.lines().filter_map(nvidia).collect()
}

#[cfg(test)]
#[path = "exchange_test.rs"]
mod tests;

#[cfg(any(test, fuzzing))]
#[path = "exchange_fuzz.rs"]
pub mod fuzz;
