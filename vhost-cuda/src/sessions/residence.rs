// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a session's device memory: on the card, in host memory, or on its way.
//!
//! A session is suspended and resumed by one move at a time. The worker executes it; here is what the daemon knows
//! of it. Nothing that a worker sends is trusted: a move ends by its time limit, an answer that nobody waits for and a
//! flood of wake-ups are faults, which end the session.

use std::sync::OnceLock;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::link::{
    CONTENTS_DIFFER, DRIVER_FAILED, IN_PIECES, MOVED_IN_PART, Moved, NO_DEVICE_MEMORY, NO_HOST_MEMORY,
    NOT_IDLE, NOTHING_MOVABLE, ON_CARD, POOL_BLOCK_BYTES, WITH_NOTHING,
};

use crate::hand_over::freeze;

/// The wake-ups that a worker may send for each move and each refusal. It sends one per suspension; one more may have
/// been under way.
const WAKES: u32 = 2;

/// Where a session's device memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// On the card.
    #[default]
    Running,
    /// On its way to host memory.
    Suspending,
    /// In host memory.
    Suspended,
    /// On its way back.
    Resuming,
}

impl Phase {
    /// Returns the name, for operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
        }
    }
}

/// The reason for which a session was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MoveError {
    /// Another move is under way.
    #[error("another move of the session is under way: try again")]
    Busy,
    /// The operator holds it.
    #[error("the operator holds the session")]
    Held,
    /// Its contents are in a file.
    #[error("its contents are in a file: restore them first (ctl restore FILE)")]
    Saved,
    /// It goes over to another worker.
    #[error("the session is getting another worker: try again")]
    Renewing,
    /// It has come with its machine, and guest memory is not mapped yet.
    #[error("its machine has not run since it was loaded")]
    Arriving,
    /// It has ended.
    #[error("the session has ended")]
    Ended,
    /// Its worker did not answer in time, and was ended.
    #[error("its worker did not answer in time: the session was ended")]
    Stuck,
    /// The worker could not do it, and the session is as before.
    #[error("{}", reason(*.outcome, *.cuda))]
    Failed {
        /// The worker's reason ([`Moved::outcome`]).
        outcome: u32,
        /// The driver's error, or 0.
        cuda: u32,
        /// The devices that have no memory for it, a bit for each. 0: not known, or another reason.
        devices: u64,
    },
}

impl MoveError {
    /// Returns whether the session had ended before.
    pub fn has_ended(&self) -> bool {
        *self == Self::Ended
    }

    /// Returns whether the session has nothing to move. It runs on, and that is no failure.
    pub fn is_nothing_movable(&self) -> bool {
        matches!(self, Self::Failed { outcome: NOTHING_MOVABLE, .. })
    }
}

/// Returns the text of a worker's reason.
fn reason(outcome: u32, cuda: u32) -> String {
    match outcome {
        NOT_IDLE => "its work did not end within the time limit: allow more time (--timeout)".into(),
        NO_HOST_MEMORY => {
            "there is not enough host memory for its contents: raise --suspend-memory, or end programs of the host".into()
        }
        NO_DEVICE_MEMORY => "the card has no room for its memory: suspend or end other sessions".into(),
        DRIVER_FAILED => format!("the driver failed with CUDA error {cuda}"),
        CONTENTS_DIFFER => {
            "its contents have changed (a digest differs): the memory of the host, or a saved file, is faulty".into()
        }
        NOTHING_MOVABLE => "it has no memory that can be moved".into(),
        _ => "its worker gave no valid answer".into(),
    }
}

/// Figures of a session's moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moves {
    /// Where the memory is.
    pub phase: Phase,
    /// True if only the operator brings it back.
    pub held: bool,
    /// True if the contents of a suspended session are in a file, and not in host memory.
    #[serde(default, skip_serializing_if = "is_false")]
    pub saved: bool,
    /// True if a call of its program waits for it.
    pub wanted: bool,
    /// Device memory in host memory, in bytes. 0 while it is on the card.
    pub suspended_bytes: u64,
    /// The host memory that it takes, in bytes, and that contents kept from the last suspension take. Chunks of zeros take none.
    pub stored_bytes: u64,
    /// The part of the contents that the last suspension copied, in bytes: the rest had not changed since the one before.
    pub copied_bytes: u64,
    /// Device memory that a suspended session still has, in bytes, without its context.
    pub resident_bytes: u64,
    /// The part of that which could move: more than 0 for a session that is suspended in part.
    pub movable_bytes: u64,
    /// The devices of that part, a bit for each number of a device in workers.
    pub movable_devices: u64,
    /// The number of times that it was suspended.
    pub suspensions: u64,
    /// The number of times that it was resumed.
    pub resumes: u64,
    /// The number of moves that failed.
    pub failures: u64,
    /// The time of all moves, with the time that work took to end before them.
    pub moving: Duration,
    /// The time of the last move.
    pub last_move: Duration,
    /// The number of times that it has got another worker. Left out without any, so that programs that do not know it go on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub renewals: u64,
}

impl Moves {
    /// Returns the state's name, for operators.
    pub fn state(&self) -> &'static str {
        match self.phase {
            Phase::Suspended if self.saved => "saved",
            Phase::Suspended if self.held => "held",
            phase => phase.name(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    moves: Moves,
    /// The request of the move under way, and its answer once it is there.
    request: u64,
    /// The phase before the move under way, and whether the operator held the session then.
    from: Phase,
    was_held: bool,
    answer: Option<Result<Moved, MoveError>>,
    begun: Option<Instant>,
    /// Wake-ups that the worker may still send.
    wakes: u32,
    /// The host memory that its contents are charged for, and that which its worker keeps ready for them.
    charge: Option<Charge>,
    /// The host memory that its worker keeps for contents, those that are there included, in bytes.
    pool_bytes: u64,
    /// The time since which contents are kept that are on the card again.
    kept_since: Option<Instant>,
    /// True while contents go ahead of the machine: what the worker keeps of them stays.
    ahead: bool,
    /// True if the driver's objects may have ended, too: a resumption makes them again.
    deep: bool,
    /// True while it goes over to another worker: nothing brings it back.
    renewing: bool,
    ended: bool,
}

impl State {
    fn is_waited_for(&self) -> bool {
        let Moves { phase, wanted, held, .. } = self.moves;
        phase == Phase::Suspended && wanted && !held && !self.renewing
    }

    fn is_moving(&self) -> bool {
        !self.ended && matches!(self.moves.phase, Phase::Suspending | Phase::Resuming)
    }

    fn charged(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::amount)
    }

    fn add_charge(&mut self, more: Option<Charge>) {
        match (&mut self.charge, more) {
            (Some(charge), Some(more)) => charge.merge(more),
            (charge @ None, more) => *charge = more,
            _ => {}
        }
    }

    /// Gives back what is charged beyond the contents and the worker's pool.
    fn settle_charge(&mut self) {
        let needed = usize::try_from(self.moves.stored_bytes.max(self.pool_bytes)).unwrap_or(usize::MAX);
        self.charge.iter_mut().for_each(|charge| charge.shrink_to(needed));
    }
}

/// Where a session's device memory is, and the move under way.
#[derive(Debug, Default)]
pub struct Residence {
    state: Mutex<State>,
    changed: Condvar,
    /// Gets the session's label when a call of its program needs memory that is in host memory.
    wakes: OnceLock<Sender<u64>>,
}

/// The state of a session that is handed over while nothing moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedResidence {
    moves: Moves,
    wakes: u32,
    charged_bytes: usize,
    /// Left out without such memory, so that programs that do not know it go on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pool_bytes: u64,
    kept_for: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_false")]
    deep: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl SavedResidence {
    /// The host memory that its contents are charged for, in bytes.
    pub fn charged_bytes(&self) -> usize {
        self.charged_bytes
    }

    /// Returns the host memory that its contents take, in bytes, if the session is suspended as a whole, with its contents in host memory.
    pub fn whole_bytes(&self) -> Option<u64> {
        let Moves { phase, saved, movable_bytes, stored_bytes, .. } = self.moves;
        let is_whole = phase == Phase::Suspended && !saved && movable_bytes == 0 && self.deep;
        is_whole.then_some(stored_bytes)
    }

    /// Returns the state in another daemon, which counts moves anew, and in which nobody holds the session.
    pub fn elsewhere(self) -> Self {
        let Moves { phase, suspended_bytes, stored_bytes, copied_bytes, .. } = self.moves;
        let moves = Moves { phase, suspended_bytes, stored_bytes, copied_bytes, ..Moves::default() };
        Self { moves, wakes: WAKES, deep: self.deep, ..Self::default() }
    }

    /// Returns true if no move is under way.
    pub fn is_settled(&self) -> bool {
        matches!(self.moves.phase, Phase::Running | Phase::Suspended)
    }
}

/// A move of a session's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// To host memory.
    Out {
        /// True if only the operator brings it back.
        hold: bool,
    },
    /// Back to the card.
    Back,
}

/// How much of a session's memory moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, or nothing.
    Whole,
    /// As much as there is room for ([`IN_PIECES`]).
    Pieces,
    /// All of it. A session without any is suspended, too ([`WITH_NOTHING`]): the driver's objects end next.
    Any,
    /// As [`Self::Any`], for a session that goes to another worker at once: its memory stays on the card if it can ([`ON_CARD`]).
    Held,
}

impl Extent {
    /// Returns [`MoveTerms::flags`](vhost_cuda_common::link::MoveTerms::flags).
    pub fn flags(self) -> u32 {
        match self {
            Self::Whole => 0,
            Self::Pieces => IN_PIECES,
            Self::Any => WITH_NOTHING,
            Self::Held => WITH_NOTHING | ON_CARD,
        }
    }
}

/// As long as it is held, nothing brings the session back, and no other one is held.
#[derive(Debug)]
pub struct Renewing<'a>(&'a Residence);

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().renewing = false;
        self.0.changed.notify_all();
    }
}

/// A move that has begun: until [`Residence::finish`], no other one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It has.
    Now,
    /// There is nothing to move: the session is in that state.
    Already,
}

impl Residence {
    /// Reports wake-ups to `wakes` from now on.
    pub fn wake_to(&self, wakes: Sender<u64>) {
        let _ = self.wakes.set(wakes);
    }

    /// Returns what the next program needs.
    pub fn save(&self) -> SavedResidence {
        let state = self.state.lock();
        SavedResidence {
            moves: state.moves,
            wakes: state.wakes,
            charged_bytes: state.charged(),
            pool_bytes: state.pool_bytes,
            kept_for: state.kept_since.map(|since| since.elapsed()),
            deep: state.deep,
        }
    }

    /// Goes on with the state of the program before this one. `charge` is for the contents.
    pub fn restore(saved: &SavedResidence, charge: Option<Charge>) -> Self {
        let SavedResidence { moves, wakes, kept_for, pool_bytes, deep, .. } = *saved;
        let now = Instant::now();
        let kept_since = kept_for.map(|age| now.checked_sub(age).unwrap_or(now));
        let state = State { moves, wakes, charge, pool_bytes, kept_since, deep, ..State::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// Returns the present figures.
    pub fn moves(&self) -> Moves {
        self.state.lock().moves
    }

    /// Begins a move. `request` is the number of the request that the worker gets. A session that is suspended already may be held
    /// from now on; one that is suspended in part moves on.
    ///
    /// Errors: another move is under way, the operator holds the session, or it has ended.
    pub fn begin(&self, to: Move, request: u64) -> Result<Begun, MoveError> {
        let mut state = self.state.lock();
        if state.ended {
            return Err(MoveError::Ended);
        }
        let State { moves, renewing, .. } = &mut *state;
        let (hold, moving) = match to {
            Move::Out { hold } => (hold, Phase::Suspending),
            Move::Back => (false, Phase::Resuming),
        };
        let was_held = moves.held;
        match (moves.phase, to) {
            (Phase::Suspending | Phase::Resuming, _) => return Err(MoveError::Busy),
            (Phase::Running, Move::Back) => return Ok(Begun::Already),
            (_, Move::Back) if *renewing => return Err(MoveError::Renewing),
            (Phase::Suspended, Move::Back) if moves.saved => return Err(MoveError::Saved),
            (Phase::Suspended, Move::Back) if moves.held => return Err(MoveError::Held),
            (Phase::Suspended, Move::Out { .. }) if moves.movable_bytes == 0 => {
                moves.held |= hold;
                return Ok(Begun::Already);
            }
            (Phase::Suspended, Move::Out { .. }) => moves.held |= hold,
            (Phase::Running, Move::Out { .. }) | (Phase::Suspended, Move::Back) => moves.held = hold,
        }
        state.from = std::mem::replace(&mut moves.phase, moving);
        state.was_held = was_held;
        state.request = request;
        state.answer = None;
        state.begun = Some(Instant::now());
        state.wakes = state.wakes.saturating_add(WAKES);
        Ok(Begun::Now)
    }

    /// Waits for the answer to the move under way, until `deadline`.
    ///
    /// Errors: the worker's reason, or none of its answers came.
    pub fn finish(&self, deadline: Instant, charge: Option<Charge>) -> Result<Moved, MoveError> {
        let mut state = self.state.lock();
        while state.answer.is_none() && !state.ended {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        let stuck = if state.ended { MoveError::Ended } else { MoveError::Stuck };
        let answer = state.answer.take().unwrap_or(Err(stuck));
        state.request = 0;
        let time = state.begun.take().map(|begun| begun.elapsed()).unwrap_or_default();
        state.moves.moving += time;
        state.moves.last_move = time;
        let (from, was_held) = (state.from, state.was_held);
        // A worker says what it likes, and has no more than it may take.
        let allowed = state.charged().saturating_add(charge.as_ref().map_or(0, Charge::amount)) as u64;
        let is_suspension = state.moves.phase == Phase::Suspending;
        let moves = &mut state.moves;
        moves.failures += u64::from(answer.is_err_and(|error| !error.is_nothing_movable()));
        moves.phase = match answer {
            Ok(moved) if is_suspension || moved.outcome == MOVED_IN_PART => {
                moves.suspensions += u64::from(from == Phase::Running);
                moves.suspended_bytes = moved.moved_bytes;
                moves.stored_bytes = moved.stored_bytes.min(allowed);
                moves.copied_bytes = moved.copied_bytes;
                moves.resident_bytes = moved.resident_bytes;
                moves.movable_bytes = moved.movable_bytes;
                moves.movable_devices = moved.movable_devices;
                Phase::Suspended
            }
            Err(_) if from == Phase::Suspended => {
                moves.held = was_held;
                Phase::Suspended
            }
            Ok(moved) => {
                moves.resumes += 1;
                moves.stored_bytes = moves.stored_bytes.min(moved.stored_bytes);
                Phase::Running
            }
            Err(error) => {
                // After other failures the worker has dropped what it had kept.
                if !matches!(error, MoveError::Failed { outcome: NOT_IDLE, .. }) {
                    moves.stored_bytes = 0;
                }
                Phase::Running
            }
        };
        if moves.phase == Phase::Running {
            (moves.suspended_bytes, moves.resident_bytes, moves.movable_bytes) = (0, 0, 0);
            moves.movable_devices = 0;
            (moves.held, moves.wanted) = (false, false);
            state.deep = false;
            if !is_suspension {
                state.kept_since = Some(Instant::now());
            }
        }
        // What a failed move was to take is given back.
        state.add_charge(charge.filter(|_| answer.is_ok()));
        state.settle_charge();
        drop(state);
        self.changed.notify_all();
        answer
    }

    /// Returns the time for which a running session has kept the contents of its last suspension. `None`: it has kept none.
    pub fn kept_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        let has_kept = state.moves.phase == Phase::Running && state.moves.stored_bytes > 0;
        state.kept_since.filter(|_| has_kept && !state.ahead).map(|since| since.elapsed())
    }

    /// Returns the host memory that the contents of the last suspension and the worker's pool are charged for, in bytes.
    pub fn kept_bytes(&self) -> u64 {
        self.state.lock().charged() as u64
    }

    /// Returns the host memory that the worker keeps for contents, those that are there included, in bytes.
    pub fn pool_bytes(&self) -> u64 {
        self.state.lock().pool_bytes
    }

    /// Changes the host memory that the worker keeps for contents to `bytes`, or to what `charge`, which takes host memory, gives for it.
    /// Returns the new number of bytes if it has changed; the worker must be told. Nothing changes while the session moves.
    pub fn set_pool(&self, bytes: u64, charge: impl FnOnce(u64) -> Charge) -> Option<u64> {
        let mut state = self.state.lock();
        if state.ended || state.renewing || state.is_moving() {
            return None;
        }
        let missing = bytes.saturating_sub(state.charged() as u64);
        if missing > 0 {
            state.add_charge(Some(charge(missing)));
        }
        let before = std::mem::replace(&mut state.pool_bytes, 0);
        state.pool_bytes = bytes.min(state.charged() as u64) / POOL_BLOCK_BYTES * POOL_BLOCK_BYTES;
        state.settle_charge();
        Some(state.pool_bytes).filter(|now| *now != before)
    }

    /// Records that the worker copies contents ahead of a suspension, and keeps them. Their maximum is `bytes`, or as much as `charge`, which takes host
    /// memory, gives for it. Returns the host memory that all contents may take, in bytes. `None` while the session moves, and for contents that
    /// are in a file.
    pub fn go_ahead(&self, bytes: u64, charge: impl FnOnce(u64) -> Charge) -> Option<u64> {
        let mut state = self.state.lock();
        match state.moves.phase {
            _ if state.ended => return None,
            Phase::Running => {}
            Phase::Suspended => return Some(state.charged() as u64).filter(|charged| *charged > 0),
            Phase::Suspending | Phase::Resuming => return None,
        }
        let missing = bytes.saturating_sub(state.charged() as u64);
        if missing > 0 {
            state.add_charge(Some(charge(missing)));
        }
        let charged = state.charged() as u64;
        state.moves.stored_bytes = charged;
        state.kept_since.get_or_insert_with(Instant::now);
        state.ahead = true;
        Some(charged)
    }

    /// Records that no contents go ahead any more: those of a session that runs are kept as after a resumption.
    pub fn end_ahead(&self) {
        self.state.lock().ahead = false;
    }

    /// Records that the worker is asked to end the driver's objects, and may do so.
    pub fn deepens(&self) {
        self.state.lock().deep = true;
    }

    /// Returns whether the driver's objects may have ended.
    pub fn is_deep(&self) -> bool {
        self.state.lock().deep
    }

    /// Releases the charge of contents that a running session has kept. Returns false if it has none. The worker must be told.
    pub fn forget(&self) -> bool {
        let mut state = self.state.lock();
        if state.moves.phase != Phase::Running || state.moves.stored_bytes == 0 || state.ahead {
            return false;
        }
        state.moves.stored_bytes = 0;
        state.settle_charge();
        true
    }

    /// Lets calls of the program bring a suspended session back that was held, unless its contents are in a file.
    pub fn release(&self) {
        let moves = &mut self.state.lock().moves;
        moves.held &= moves.saved;
    }

    /// Notes that the contents of a suspended session have left host memory.
    pub fn saved(&self) {
        let mut state = self.state.lock();
        state.moves.saved = true;
        state.moves.held = true;
        state.moves.stored_bytes = 0;
        state.settle_charge();
    }

    /// Notes that they have come back, with `charge` for these `bytes` of them.
    pub fn loaded(&self, bytes: u64, charge: Charge) {
        let mut state = self.state.lock();
        state.moves.saved = false;
        state.moves.stored_bytes = bytes.min(charge.amount() as u64);
        state.add_charge(Some(charge));
        state.settle_charge();
    }

    /// Takes the worker's answer to request `id`. Returns false if that is not the move under way.
    pub fn answered(&self, id: u64, answer: Result<Moved, MoveError>) -> bool {
        let mut state = self.state.lock();
        let expected = state.request == id && id != 0 && state.answer.is_none();
        if expected {
            state.answer = Some(answer);
            self.changed.notify_all();
        }
        expected
    }

    /// Takes a wake-up of the worker of session `label`. Returns false if it sends too many.
    pub fn woken(&self, label: u64) -> bool {
        let mut state = self.state.lock();
        let Some(left) = state.wakes.checked_sub(1) else { return false };
        state.wakes = left;
        // One that comes when the memory is on the card is of an earlier suspension.
        if state.moves.phase != Phase::Running {
            state.moves.wanted = true;
            self.report_wake(&state, label);
        }
        true
    }

    /// Reports once more that a call waits, if so: the wake-up came while the session was being suspended.
    pub fn wake_again(&self, label: u64) {
        self.report_wake(&self.state.lock(), label);
    }

    fn report_wake(&self, state: &State, label: u64) {
        if state.is_waited_for() {
            // Without a receiver the daemon is ending.
            let _ = self.wakes.get().map(|wakes| wakes.send(label));
        }
    }

    /// Returns true for a suspended session of which a call waits that may bring it back.
    pub fn is_waited_for(&self) -> bool {
        self.state.lock().is_waited_for()
    }

    /// Records that the calls that wait are refused: the next one wakes the session again. Returns false if they wait on, because the
    /// session is getting another worker.
    pub fn refused(&self) -> bool {
        let mut state = self.state.lock();
        if state.renewing {
            return false;
        }
        state.moves.wanted = false;
        state.wakes = state.wakes.saturating_add(WAKES);
        true
    }

    /// Begins to get another worker, when no move is under way. The session can still be suspended.
    ///
    /// Errors: it gets one already, it moves until `deadline`, it is in a file, or it has ended.
    pub fn renew(&self, deadline: Instant) -> Result<Renewing<'_>, MoveError> {
        self.settled(deadline);
        // Until that is recorded.
        let _permit = freeze::permit();
        let mut state = self.state.lock();
        match state.moves {
            _ if state.ended => return Err(MoveError::Ended),
            _ if state.renewing => return Err(MoveError::Renewing),
            _ if state.is_moving() => return Err(MoveError::Busy),
            moves if moves.saved => return Err(MoveError::Saved),
            _ => state.renewing = true,
        }
        // A worker that has begun to leave, and stays, reports again that a call waits.
        state.wakes = state.wakes.saturating_add(WAKES);
        Ok(Renewing(self))
    }

    /// Returns whether the session is getting another worker.
    pub fn is_renewing(&self) -> bool {
        self.state.lock().renewing
    }

    /// Records that another worker has the session now, suspended as it was.
    pub fn renewed(&self) {
        let mut state = self.state.lock();
        state.moves.renewals += 1;
        state.wakes = state.wakes.saturating_add(WAKES);
    }

    /// Records that the session goes on with its machine: a call that waits is reported again.
    pub fn goes_on(&self) {
        let mut state = self.state.lock();
        state.wakes = state.wakes.saturating_add(WAKES);
    }

    /// Records that the session has ended. Nothing moves any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.pool_bytes = 0;
        let charge = state.charge.take();
        drop(state);
        drop(charge);
        self.changed.notify_all();
    }

    /// Waits until no move is under way. Returns false at `deadline`.
    pub fn settled(&self, deadline: Instant) -> bool {
        self.wait_while(State::is_moving, deadline)
    }

    /// Waits until the session does not get another worker. Returns false at `deadline`.
    pub fn has_renewed(&self, deadline: Instant) -> bool {
        self.wait_while(|state| state.renewing && !state.ended, deadline)
    }

    fn wait_while(&self, goes_on: impl Fn(&State) -> bool, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while goes_on(&state) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return !goes_on(&state);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::budget::Budget;

    use super::*;

    #[test]
    fn what_goes_ahead_is_charged_and_kept_until_it_is_over() {
        let (residence, budget) = (Residence::default(), Budget::new(1000));
        let charge = |bytes: u64| budget.charge_up_to(bytes as usize);
        assert_eq!(residence.go_ahead(600, charge), Some(600));
        assert_eq!(residence.go_ahead(1200, charge), Some(1000), "as much as there is");
        assert_eq!(residence.kept_for(), None);
        assert!(!residence.forget(), "it is needed at the stop");
        residence.begin(Move::Out { hold: false }, 1).unwrap();
        assert_eq!(residence.go_ahead(600, charge), None, "it moves");
        let moved = Moved { moved_bytes: 500, stored_bytes: 400, ..Moved::default() };
        assert!(residence.answered(1, Ok(moved)));
        residence.finish(Instant::now(), None).unwrap();
        assert_eq!((residence.go_ahead(900, charge), budget.used()), (Some(400), 400), "suspended");
        residence.begin(Move::Back, 2).unwrap();
        assert_eq!(residence.go_ahead(600, charge), None, "it moves");
        assert!(residence.answered(2, Ok(Moved { stored_bytes: 400, ..Moved::default() })));
        residence.finish(Instant::now(), None).unwrap();
        assert!(!residence.forget());
        residence.end_ahead();
        assert!(residence.kept_for().is_some() && residence.forget());
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn saved_contents_take_no_host_memory_and_do_not_come_back_by_a_move() {
        let (residence, budget) = (Residence::default(), Budget::new(1000));
        residence.begin(Move::Out { hold: false }, 1).unwrap();
        let moved = Moved { moved_bytes: 500, stored_bytes: 400, ..Moved::default() };
        assert!(residence.answered(1, Ok(moved)));
        residence.finish(Instant::now(), budget.charge(700)).unwrap();
        residence.saved();
        assert_eq!((residence.moves().state(), budget.used()), ("saved", 0));
        residence.release();
        assert!(residence.moves().held, "its calls wait still");
        assert_eq!(residence.begin(Move::Back, 2), Err(MoveError::Saved));
        let next = Residence::restore(&residence.save(), None);
        assert_eq!(next.begin(Move::Back, 2), Err(MoveError::Saved), "after the program was replaced, too");
        residence.loaded(u64::MAX, budget.charge(600).unwrap());
        assert_eq!((residence.moves().state(), residence.moves().stored_bytes), ("held", 600));
        residence.release();
        assert_eq!(residence.begin(Move::Back, 2), Ok(Begun::Now));
    }

    #[test]
    fn a_suspended_session_goes_over_with_its_charge() {
        let (residence, budget) = (Residence::default(), Budget::new(1000));
        residence.begin(Move::Out { hold: true }, 1).unwrap();
        assert!(!residence.save().is_settled(), "a move is under way");
        let moved = Moved { moved_bytes: 500, stored_bytes: 400, ..Moved::default() };
        assert!(residence.answered(1, Ok(moved)));
        residence.finish(Instant::now(), budget.charge(700)).unwrap();
        let saved = residence.save();
        assert!(saved.is_settled() && saved.charged_bytes() == 400);
        let json = serde_json::to_vec(&saved).unwrap();
        assert_eq!(serde_json::from_slice::<SavedResidence>(&json).unwrap(), saved);
        let next = Budget::new(1000);
        let restored = Residence::restore(&saved, next.charge(saved.charged_bytes()));
        assert_eq!((restored.moves(), restored.kept_bytes()), (residence.moves(), 400));
        assert_eq!(restored.begin(Move::Back, 2), Err(MoveError::Held));
        restored.end();
        assert_eq!(next.used(), 0);
    }
}
