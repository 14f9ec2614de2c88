// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suspends and resumes the sessions of a daemon.

mod leaving;
mod pool;
pub mod renewing;
mod waking;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, log};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::link::{MOVED, Moved, NO_HOST_MEMORY};

use self::pool::Division;
use super::host_memory::HostMemory;
use super::policy::{Candidate, Rules, victims};
use crate::limits::throttle::Throttle;
use crate::owner::{Machine, Owner};
use crate::sessions::endings::Endings;
use crate::sessions::residence::{Extent, MoveError, Phase};
use crate::sessions::session::Session;
use crate::sessions::session::saving::SavingError;
use crate::shares::client::{Client, MakesRoom};
use crate::shares::room::Room;

/// The time for the work of a session that makes room for another one. It has had no call for long, so that it mostly has
/// no work; one with a long kernel goes on.
const SHORT: Duration = Duration::from_millis(100);
/// The time for the work of a machine that was paused to end, and for its sessions to come back.
const PAUSE_TIME: Duration = Duration::from_secs(10);
/// The number of sessions that are moved at the same time.
const AT_ONCE: usize = 8;
/// Limits messages about sessions that are not suspended with their machines.
static PAUSES: Throttle = Throttle::new(10, Duration::from_secs(60));
/// The maximum number of sessions that are tried for one that needs memory. It bounds the time for which calls of sessions
/// with long kernels are delayed.
const MAX_TRIES: usize = 8;
/// The bytes that contents may take beyond twice the memory that a session is charged for, which is not exact.
const SLACK: u64 = 64 << 20;
/// The maximum and minimum time between two looks at the counters of all sessions.
const SLOWEST_LOOK: Duration = Duration::from_secs(1);
const FASTEST_LOOK: Duration = Duration::from_millis(50);

/// The bit of the first device of workers, on which they make their first context.
pub const FIRST_DEVICE: u64 = 1;

/// The operator's settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The time without calls after which a session makes room for others. `None`: never.
    pub after: Option<Duration>,
    /// The time without calls after which a session is suspended in any case. `None`: never.
    pub idle: Option<Duration>,
    /// The device memory of a machine that stays on the card, in bytes.
    pub floor: u64,
    /// The device memory that a session may have, in bytes. `None`: any.
    pub most: Option<u64>,
    /// The host memory that contents may take, in bytes. `None`: half of what is available.
    pub host_memory: Option<u64>,
    /// The host memory that workers keep ready for contents, in bytes. 0: none.
    pub pool: u64,
    /// The time for which contents stay in host memory after a session has come back. 0: they do not.
    pub keep: Duration,
}

/// The sessions that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The session with this number in the log.
    Session(u64),
    /// All sessions of this connection.
    Connection(u64),
    /// The sessions of the process with this id, as far as its user may watch it.
    Process(Owner, u32),
    /// All sessions.
    All,
}

/// A session of the daemon.
#[derive(Debug)]
struct Entry {
    connection: u64,
    machine: Machine,
    session: Arc<Session>,
    /// Its calls at the last look, and the time since which there were no more.
    calls: u64,
    idle_since: Instant,
    /// The time when it was brought back, or when an attempt to suspend it failed.
    tried: Option<Instant>,
    /// True while a thread brings it back.
    is_waking: bool,
}

/// How long ago things have happened to a session, for the next program. By default nothing has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ages {
    /// Its calls so far, and the time since the last one of them.
    calls: u64,
    idle: Duration,
    /// The time since it was brought back, or since an attempt to suspend it has failed.
    tried: Option<Duration>,
}

/// A session, for those who ask for its state.
#[derive(Debug)]
pub struct Member {
    /// Its machine's connection.
    pub connection: u64,
    /// The session.
    pub session: Arc<Session>,
    /// The time since its last call.
    pub idle: Duration,
}

/// The sessions of a daemon, and the memory for their contents.
#[derive(Debug)]
pub struct Suspender {
    options: Options,
    host: HostMemory,
    endings: Arc<Endings>,
    sessions: Mutex<BTreeMap<u64, Entry>>,
    /// Counts what may have made room: suspensions, and ends of sessions.
    room: Mutex<u64>,
    has_room: Condvar,
    /// Held while a session is suspended for another one, so that two that need memory do not take one each.
    evicting: Mutex<()>,
    /// The division of [`Options::pool`].
    division: Mutex<Division>,
    /// The session that comes back in pieces. Two at the same time would each wait for the room that the other one has.
    in_pieces: Mutex<Option<u64>>,
    /// The way to the other daemons of the host.
    others: Option<Arc<Client>>,
    wakes: Sender<u64>,
}

impl Suspender {
    /// Starts to watch the sessions that [`Self::join`] adds.
    ///
    /// Sessions that find no room ask the daemons that `others` leads to, and make room for these, with [`Options::after`].
    pub fn start(
        options: Options,
        endings: Arc<Endings>,
        others: Option<Arc<Client>>,
    ) -> io::Result<Arc<Self>> {
        let (wakes, woken) = channel();
        let suspender = Arc::new(Self {
            options,
            host: HostMemory::new(options.host_memory),
            endings,
            sessions: Mutex::default(),
            room: Mutex::default(),
            has_room: Condvar::new(),
            evicting: Mutex::default(),
            division: Mutex::default(),
            in_pieces: Mutex::default(),
            others,
            wakes,
        });
        waking::start(&suspender, woken)?;
        if let (Some(others), Some(_)) = (&suspender.others, options.after) {
            let makes_room: Weak<Self> = Arc::downgrade(&suspender);
            others.serve_room(makes_room);
        }
        let watching = Arc::downgrade(&suspender);
        let shortest = [options.after, options.idle].into_iter().flatten().min();
        let interval = shortest.map_or(SLOWEST_LOOK, |time| time / 4).clamp(FASTEST_LOOK, SLOWEST_LOOK);
        thread::Builder::new().name("idle-sessions".into()).spawn(move || {
            while let Some(suspender) = watching.upgrade() {
                suspender.look();
                if let Some(after) = suspender.options.idle {
                    suspender.suspend_idle(after);
                }
                suspender.forget(suspender.options.keep);
                suspender.divide_pool();
                drop(suspender);
                thread::sleep(interval);
            }
        })?;
        Ok(suspender)
    }

    /// Adds a session of `connection` and `machine`, whose worker can be asked from now on.
    pub fn join(&self, connection: u64, machine: Machine, session: &Arc<Session>, ages: Ages) {
        session.residence().wake_to(self.wakes.clone());
        let now = Instant::now();
        let ago = |age| now.checked_sub(age).unwrap_or(now);
        let entry = Entry {
            connection,
            machine,
            session: session.clone(),
            calls: ages.calls,
            idle_since: ago(ages.idle),
            tried: ages.tried.map(ago),
            is_waking: false,
        };
        self.sessions.lock().insert(session.label(), entry);
    }

    /// Returns what [`Self::join`] gets in the next program. `None` for a session that is not there.
    pub fn ages(&self, label: u64) -> Option<Ages> {
        self.look();
        let sessions = self.sessions.lock();
        let entry = sessions.get(&label)?;
        let tried = entry.tried.map(|then| then.elapsed());
        Some(Ages { calls: entry.calls, idle: entry.idle_since.elapsed(), tried })
    }

    /// Takes the host memory of contents that a session of the program before this one has. Others may have taken some since, so it
    /// may be less.
    pub fn charge_again(&self, bytes: usize) -> Option<Charge> {
        (bytes > 0).then(|| self.host.charge(bytes as u64))
    }

    /// Removes a session that has ended.
    pub fn leave(&self, label: u64) {
        self.sessions.lock().remove(&label);
        self.made_room();
    }

    /// Returns the selected sessions, by their numbers.
    pub fn members(&self, selection: Selection) -> Vec<Member> {
        self.look();
        let is_selected = |label: u64, entry: &Entry| match selection {
            Selection::Session(other) => label == other,
            Selection::Connection(connection) => entry.connection == connection,
            Selection::All => true,
            Selection::Process(owner, process) => {
                let (_, pid, uid) = entry.session.program();
                pid == process && owner.may_watch(Owner { machine: entry.machine, uid })
            }
        };
        let sessions = self.sessions.lock();
        let selected = sessions.iter().filter(|(label, entry)| is_selected(**label, entry));
        let member = |entry: &Entry| Member {
            connection: entry.connection,
            session: entry.session.clone(),
            idle: entry.idle_since.elapsed(),
        };
        selected.map(|(_, entry)| member(entry)).collect()
    }

    /// The host memory that contents take and may take, in bytes.
    pub fn host_memory(&self) -> (u64, Option<u64>) {
        (self.host.used(), self.host.limit())
    }

    /// Suspends a session, after another move that may be under way. `time` is the time for that and for its work to end. With `hold`, it stays suspended until
    /// [`Self::resume`]. Returns `None` if it is suspended already.
    ///
    /// Errors: see [`MoveError`].
    pub fn suspend(&self, session: &Session, time: Duration, hold: bool) -> Result<Option<Moved>, MoveError> {
        self.suspend_to(session, time, hold, Extent::Whole)
    }

    fn suspend_to(
        &self,
        session: &Session,
        time: Duration,
        hold: bool,
        extent: Extent,
    ) -> Result<Option<Moved>, MoveError> {
        let deadline = Instant::now() + time;
        loop {
            let result = self.move_out(session, time, hold, extent, 0);
            let waits = result == Err(MoveError::Busy) && session.residence().settled(deadline);
            if !waits || Instant::now() >= deadline {
                if result.is_ok() {
                    self.made_room();
                }
                return result;
            }
        }
    }

    /// Brings a session back, also one that is held. If the card has no room, makes some, for at most `time`. Returns
    /// `None` if it is there already.
    ///
    /// Errors: see [`MoveError`]. The session is no longer held then, and its next call tries again.
    pub fn resume(&self, session: &Session, time: Duration) -> Result<Option<Moved>, MoveError> {
        session.residence().release();
        self.bring_back(session, Instant::now() + time)
    }

    /// Has the worker of a session read its contents from a pipe.
    ///
    /// Errors: see [`SavingError`]; nothing has changed.
    pub fn load(&self, session: &Session, from: OwnedFd) -> Result<(), SavingError> {
        session.load_contents(from, self.host.charge(session.residence().moves().suspended_bytes))
    }

    /// Suspends all sessions of a virtual machine that was paused. Logs those that are not.
    pub fn pause(&self, connection: u64) {
        let members = self.members(Selection::Connection(connection));
        let results = for_each(&members, |member| self.suspend(&member.session, PAUSE_TIME, false).err());
        for (member, error) in members.iter().zip(results) {
            match error {
                None | Some(MoveError::Ended) => {}
                Some(error) if error.is_nothing_movable() => {}
                Some(error) => log!(
                    PAUSES.level(Level::Warn),
                    "{}: not suspended with its machine: {error}",
                    member.session.describe()
                ),
            }
        }
    }

    /// Brings all sessions of a virtual machine back that runs again, but those that the operator holds. Their calls bring
    /// back those for which the card has no room yet.
    pub fn unpause(&self, connection: u64) {
        let members = self.members(Selection::Connection(connection));
        let deadline = Instant::now() + PAUSE_TIME;
        for_each(&members, |member| {
            // A call of its program tries again.
            let _ = self.bring_back(&member.session, deadline);
        });
    }

    /// Suspends the memory on these devices (a bit for each number of a device in workers; 0: on all) of the session that has been idle
    /// longest of those with such memory, if there is one that may be, for session `requester`, or for one that is starting. If there is
    /// no host memory for all of it, suspends a part. Returns whether there may be more room now.
    pub fn make_room(&self, requester: Option<u64>, devices: u64) -> bool {
        self.find_room(requester, devices) == Room::Made
    }

    /// As [`Self::make_room`]. If no session of this daemon makes room, asks other daemons.
    fn find_room(&self, requester: Option<u64>, devices: u64) -> Room {
        let Some(after) = self.options.after else { return Room::None };
        let own = self.find_own_room(after, requester, devices);
        // Nothing is locked: they may ask this daemon meanwhile.
        match &self.others {
            Some(others) if own != Room::Made => match others.ask_for_room(devices) {
                // In pieces they could not know of each other.
                Room::Made => Room::Made,
                _ => own,
            },
            _ => own,
        }
    }

    fn find_own_room(&self, after: Duration, requester: Option<u64>, devices: u64) -> Room {
        if let Some(entry) = self.sessions.lock().get_mut(&requester.unwrap_or_default()) {
            // One of its calls waits for memory, and is not counted yet. Labels begin at 1.
            entry.idle_since = Instant::now();
        }
        let before = *self.room.lock();
        let _evicting = self.evicting.lock();
        if *self.room.lock() != before {
            return Room::Made;
        }
        self.look();
        let mut found = Room::None;
        for label in self.victims(after, requester, devices).into_iter().take(MAX_TRIES) {
            let mut moved = self.try_suspend(label, Extent::Whole, devices);
            if moved == Room::NoHostMemory {
                moved = self.try_suspend(label, Extent::Pieces, devices);
            }
            found = found.max(moved);
            if found == Room::Made {
                self.made_room();
                break;
            }
        }
        found
    }

    /// Suspends all sessions that have made no call for this time.
    fn suspend_idle(&self, after: Duration) {
        for label in self.victims(after, None, 0) {
            if self.try_suspend(label, Extent::Whole, 0) == Room::Made {
                self.made_room();
            }
        }
    }

    /// Returns the sessions that may be suspended after this time, for `requester`, which needs memory of these devices.
    fn victims(&self, after: Duration, requester: Option<u64>, devices: u64) -> Vec<u64> {
        victims(&self.candidates(), Rules { after, floor: self.options.floor }, requester, devices)
    }

    /// Suspends a session that seems to be idle, on these devices.
    fn try_suspend(&self, label: u64, extent: Extent, devices: u64) -> Room {
        let Some(session) = self.sessions.lock().get(&label).map(|entry| entry.session.clone()) else {
            return Room::None;
        };
        match self.move_out(&session, SHORT, false, extent, devices) {
            Ok(Some(moved)) if moved.outcome == MOVED && moved.moved_bytes > 0 => Room::Made,
            // Room that others give back may serve it soon.
            Err(MoveError::Failed { outcome: NO_HOST_MEMORY, .. }) => Room::NoHostMemory,
            _ => {
                self.tried(label);
                Room::None
            }
        }
    }

    /// Suspends a session. If there is no host memory, others give up contents that they have kept, and their shares of the pool.
    fn move_out(
        &self,
        session: &Session,
        time: Duration,
        hold: bool,
        extent: Extent,
        devices: u64,
    ) -> Result<Option<Moved>, MoveError> {
        let result = session.suspend(time, self.charge(session), hold, extent, devices);
        let is_short = matches!(result, Err(MoveError::Failed { outcome: NO_HOST_MEMORY, .. }));
        // Both, whatever the first one finds.
        if is_short && (self.forget(Duration::ZERO) | self.give_up_pool(session.label())) {
            return session.suspend(time, self.charge(session), hold, extent, devices);
        }
        result
    }

    /// Ends contents that running sessions have kept for `age` or longer. Returns whether there were any.
    fn forget(&self, age: Duration) -> bool {
        let all = self.all_sessions();
        let is_old = |session: &&Arc<Session>| session.residence().kept_for().is_some_and(|kept| kept >= age);
        all.iter().filter(is_old).filter(|session| session.forget()).count() > 0
    }

    fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().map(|entry| entry.session.clone()).collect()
    }

    /// Takes host memory for a session's contents.
    fn charge(&self, session: &Session) -> Charge {
        self.host.charge(self.device_memory(session).saturating_mul(2).saturating_add(SLACK))
    }

    /// Returns a session's device memory in bytes, as far as its worker may have so much.
    fn device_memory(&self, session: &Session) -> u64 {
        session.device_memory().min(self.options.most.unwrap_or(u64::MAX))
    }

    fn candidates(&self) -> Vec<Candidate> {
        let in_pieces = *self.in_pieces.lock();
        let sessions = self.sessions.lock();
        let candidate = |(&label, entry): (&u64, &Entry)| {
            let moves = entry.session.residence().moves();
            let (connection, last_move) = (entry.connection, moves.last_move);
            let devices = entry.session.movable_devices();
            match moves.phase {
                Phase::Running => Some(Candidate {
                    label,
                    connection,
                    idle: entry.idle_since.elapsed(),
                    rested: entry.tried.map(|then| then.elapsed()),
                    last_move,
                    bytes: self.device_memory(&entry.session),
                    devices,
                }),
                // What is left of it is of no use to anybody, unless the rest is on its way back.
                Phase::Suspended if moves.movable_bytes > 0 && Some(label) != in_pieces => Some(Candidate {
                    label,
                    connection,
                    idle: Duration::MAX,
                    rested: None,
                    last_move,
                    bytes: moves.movable_bytes,
                    devices,
                }),
                _ => None,
            }
        };
        sessions.iter().filter_map(candidate).collect()
    }

    /// Reads the counters of all sessions. A call counts when it has ended. One that is under way, such as a wait for a long
    /// kernel, is noticed by the worker when it is to suspend the session.
    fn look(&self) {
        for entry in self.sessions.lock().values_mut() {
            let calls = entry.session.calls();
            if calls != entry.calls {
                entry.calls = calls;
                entry.idle_since = Instant::now();
            }
        }
    }

    /// Records that a session was brought back, or could not be suspended.
    fn tried(&self, label: u64) {
        if let Some(entry) = self.sessions.lock().get_mut(&label) {
            entry.tried = Some(Instant::now());
        }
    }

    fn made_room(&self) {
        *self.room.lock() += 1;
        self.has_room.notify_all();
    }
}

impl MakesRoom for Suspender {
    fn longest_idle(&self, devices: u64) -> Option<Duration> {
        self.look();
        let first = self.victims(self.options.after?, None, devices).into_iter().next()?;
        self.sessions.lock().get(&first).map(|entry| entry.idle_since.elapsed())
    }

    fn suspend_longest_idle(&self, devices: u64) -> Room {
        self.options.after.map_or(Room::None, |after| self.find_own_room(after, None, devices))
    }
}

/// Calls `work` for each of `members`, for several at once. Returns the results in their order.
pub fn for_each<'a, M: Sync, T: Send>(members: &'a [M], work: impl Fn(&'a M) -> T + Sync) -> Vec<T> {
    let mut results = Vec::with_capacity(members.len());
    for some in members.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let moving: Vec<_> = some.iter().map(|member| scope.spawn(|| work(member))).collect();
            // `work` does not panic, and a panic of it would be that of the caller.
            results.extend(moving.into_iter().filter_map(|thread| thread.join().ok()));
        });
    }
    results
}

#[cfg(test)]
#[path = "suspender_test.rs"]
mod tests;
