// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves of a session's device memory to host memory and back: the requests to its worker, and their time limits.

use std::time::{Duration, Instant};

use log::{debug, error};
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::link::{
    FromWorker, MOVED, MOVED_BEFORE, MOVED_IN_PART, MoveTerms, Moved, TO_FORGET, TO_POOL, TO_RESUME,
    TO_RESUME_REFUSED, TO_SUSPEND, ToWorker, VERSION_OF_STOPPING, moved_of,
};
use virtio_cuda_protocol::transport::REPLY_OK;
use zerocopy::IntoBytes;

use super::{Outgoing, Phase, Session};
use crate::hand_over::freeze;
use crate::sessions::residence::{Begun, Extent, Move, MoveError};

/// The time for a move beside the work that is waited for and the copies. A worker that needs longer is ended.
const GRACE: Duration = Duration::from_secs(30);
/// The time for the driver to make the objects of a session again. It compiles up to 4096 images of device code.
pub(super) const MAKING: Duration = Duration::from_secs(600);
/// The slowest rate of copies that is waited for, in bytes per second: a tenth of what new pages of host memory take.
const SLOWEST: u64 = 256 << 20;

impl Session {
    /// Moves the session's device memory to host memory, or that part of it that is on the card still: of these devices, a bit for each
    /// of their numbers in workers, or of all (0). `time` is the time for its work to end. `charge` is the host memory that its contents
    /// may take, beside that of contents which are there already. With `hold`, calls of the program do not bring it back. Returns `None`
    /// if it is suspended already.
    ///
    /// Errors: see [`MoveError`]. The session goes on as before, except after [`MoveError::Stuck`].
    pub fn suspend(
        &self,
        time: Duration,
        charge: Charge,
        hold: bool,
        extent: Extent,
        devices: u64,
    ) -> Result<Option<Moved>, MoveError> {
        let deadline_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        // Workers of the release before refuse flags that they do not know.
        let is_older = self.assigned().worker.version < VERSION_OF_STOPPING;
        let extent =
            if is_older && matches!(extent, Extent::Any | Extent::Held) { Extent::Whole } else { extent };
        let terms = MoveTerms { deadline_ms, flags: extent.flags(), devices, ..MoveTerms::default() };
        let limit = time + self.time_to_leave(&charge);
        self.carry_out(Move::Out { hold }, terms, limit, Some(charge))
    }

    /// Brings the session's memory back. Returns `None` if it is on the card already.
    ///
    /// Errors: see [`MoveError`]. The session stays suspended with all its contents.
    pub fn resume(&self, extent: Extent) -> Result<Option<Moved>, MoveError> {
        let terms = MoveTerms { flags: extent.flags(), ..MoveTerms::default() };
        self.carry_out(Move::Back, terms, self.time_to_return(), None)
    }

    /// Returns the time limit for a move to host memory, of which `charge` may be taken. Both limits follow from host memory that the
    /// daemon has counted: others wait for a move, and a worker can say that it has any amount of device memory.
    fn time_to_leave(&self, charge: &Charge) -> Duration {
        time_of(self.residence.kept_bytes().saturating_add(charge.amount() as u64))
    }

    /// Returns the time limit for a move back to the card.
    fn time_to_return(&self) -> Duration {
        let objects = if self.residence.is_deep() { MAKING } else { Duration::ZERO };
        time_of(self.residence.moves().stored_bytes) + objects
    }

    /// Lets the calls that wait for the session's memory fail with `CUDA_ERROR_OUT_OF_MEMORY`. It stays suspended.
    pub fn refuse_resume(&self) {
        let _permit = freeze::permit();
        // Locked, so that the session does not go over to another worker meanwhile.
        let _state = self.state.lock();
        if !self.residence.refused() {
            return;
        }
        self.send(Outgoing::of(&ToWorker { kind: TO_RESUME_REFUSED, ..ToWorker::default() }, &[]));
    }

    /// Ends the contents that the session has kept from its last suspension. Returns false if there are none.
    pub fn forget(&self) -> bool {
        let _permit = freeze::permit();
        // Locked, so that the worker is told before the next move begins.
        let _state = self.state.lock();
        let has_kept = self.residence.forget();
        if has_kept {
            self.send(Outgoing::of(&ToWorker { kind: TO_FORGET, ..ToWorker::default() }, &[]));
        }
        has_kept
    }

    /// Lets the worker keep `bytes` of host memory for contents, ahead of need, or as much as `charge` gives for it.
    pub fn keep_pool(&self, bytes: u64, charge: impl FnOnce(u64) -> Charge) {
        let _permit = freeze::permit();
        // Locked, so that the worker is told before the next move begins.
        let state = self.state.lock();
        if state.phase != Phase::Open {
            return;
        }
        if let Some(bytes) = self.residence.set_pool(bytes, charge) {
            self.send(Outgoing::of(&ToWorker { kind: TO_POOL, ..ToWorker::default() }, bytes.as_bytes()));
        }
    }

    fn carry_out(
        &self,
        to: Move,
        terms: MoveTerms,
        limit: Duration,
        charge: Option<Charge>,
    ) -> Result<Option<Moved>, MoveError> {
        let (kind, what) = match to {
            Move::Out { .. } => (TO_SUSPEND, "suspended"),
            Move::Back => (TO_RESUME, "resumed"),
        };
        let begun = Instant::now();
        let away = self.residence.moves().suspended_bytes;
        // Until the move is recorded as under way.
        let permit = freeze::permit();
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Err(MoveError::Ended);
        }
        if state.is_arriving {
            return Err(MoveError::Arriving);
        }
        let id = state.next_request + 1;
        if self.residence.begin(to, id)? == Begun::Already {
            return Ok(None);
        }
        state.next_request = id;
        let header = ToWorker { kind, id, ..ToWorker::default() };
        let allowed = charge.as_ref().map_or(0, |charge| charge.amount() as u64);
        let budget_bytes = allowed.saturating_add(self.residence.kept_bytes());
        let terms = MoveTerms { budget_bytes, ..terms };
        // Still locked: requests reach the worker in the order of their numbers.
        self.send(Outgoing::of(&header, terms.as_bytes()));
        drop(state);
        drop(permit);
        // A limit beyond the clock's range is none that anybody waits for.
        let deadline = begun.checked_add(limit).unwrap_or(begun + GRACE);
        let result = self.residence.finish(deadline, charge);
        match &result {
            Ok(moved) => debug!(
                "{}: {what}{}: {} bytes of device memory moved, {} stored, {} copied, {} stay, {:.3} s",
                self.describe(),
                if moved.outcome == MOVED_IN_PART { " in part" } else { "" },
                moved.moved_bytes.abs_diff(away),
                moved.stored_bytes,
                moved.copied_bytes,
                moved.resident_bytes,
                begun.elapsed().as_secs_f64()
            ),
            Err(MoveError::Stuck) => {
                error!(
                    "{}: ended: its worker did not answer within {:.0} s that it is {what}",
                    self.describe(),
                    limit.as_secs_f64()
                );
                self.end_worker();
            }
            Err(error) => debug!("{}: not {what}: {error}", self.describe()),
        }
        self.residence.wake_again(self.label);
        result.map(Some)
    }

    /// Takes a worker's reply if it answers the move under way. A malformed one is a failure.
    pub(super) fn moved(&self, header: &FromWorker, payload: &[u8]) -> bool {
        let answer = match moved_of(payload).filter(|_| header.status == REPLY_OK) {
            Some(moved) if [MOVED, MOVED_BEFORE, MOVED_IN_PART].contains(&moved.outcome) => Ok(moved),
            Some(Moved { outcome, cuda, full_devices: devices, .. }) => {
                Err(MoveError::Failed { outcome, cuda, devices })
            }
            None => Err(MoveError::Failed { outcome: u32::MAX, cuda: 0, devices: 0 }),
        };
        self.residence.answered(header.id, answer)
    }
}

/// Returns the time limit for moving `bytes`.
pub(super) fn time_of(bytes: u64) -> Duration {
    // No host has more memory, so that the sum with another limit is in the clock's range.
    GRACE + Duration::from_secs(bytes.min(1 << 48) / SLOWEST)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use vhost_cuda_common::budget::Budget;
    use virtio_cuda_protocol::transport::Open;

    use super::*;
    use crate::sessions::fixture::{sleeping_worker, sleeping_worker_with};
    use crate::sessions::process::Worker;
    use crate::sessions::residence::Residence;
    use crate::sessions::session::{End, Place};

    fn session_of(worker: Worker) -> Arc<Session> {
        let open = Open { pid: 1, uid: 0, charged_uid: 0, name: [0; 16] };
        Session::new(1, 1, &open, Place::default(), worker, Arc::default(), Box::new(Arc::default))
    }

    #[test]
    fn a_worker_that_does_not_answer_in_time_is_ended() {
        let (worker, _theirs) = sleeping_worker();
        let session = session_of(worker);
        let ((opens, opened), (ends, ended)) = (channel(), channel());
        let runner = session.clone();
        thread::spawn(move || runner.run(|| opens.send(()).unwrap(), |end| ends.send(end).unwrap()));
        opened.recv().unwrap();
        let limit = Duration::from_millis(50);
        let ask = || session.carry_out(Move::Out { hold: false }, MoveTerms::default(), limit, None);
        assert_eq!(ask(), Err(MoveError::Stuck));
        assert_eq!(ended.recv_timeout(GRACE), Ok(End::Lost));
        assert_eq!(ask(), Err(MoveError::Ended));
    }

    #[test]
    fn what_a_worker_says_of_its_memory_gives_it_no_time() {
        let (worker, _theirs) = sleeping_worker_with(u64::MAX);
        let (session, host) = (session_of(worker), Budget::new(1 << 30));
        let charge = host.charge(512 << 20).unwrap();
        assert_eq!(session.time_to_leave(&charge), GRACE + Duration::from_secs(2));
        session.residence.begin(Move::Out { hold: false }, 1).unwrap();
        let lie = Moved { moved_bytes: u64::MAX, stored_bytes: u64::MAX, ..Moved::default() };
        assert!(session.residence.answered(1, Ok(lie)));
        session.residence.finish(Instant::now(), Some(charge)).unwrap();
        assert_eq!(session.time_to_return(), GRACE + Duration::from_secs(2));
        assert_eq!(session.residence.moves().stored_bytes, 512 << 20, "no more than it may take");
        session.residence.deepens();
        assert_eq!(session.time_to_return(), GRACE + Duration::from_secs(2) + MAKING);
        let restored = Residence::restore(&session.residence.save(), None);
        assert!(restored.is_deep(), "the next program waits as long");
        session.residence.begin(Move::Back, 2).unwrap();
        assert!(session.residence.answered(2, Ok(Moved::default())));
        session.residence.finish(Instant::now(), None).unwrap();
        assert!(!session.residence.is_deep());
    }

    #[test]
    fn a_move_has_time_for_what_it_moves_and_an_end() {
        assert_eq!(time_of(0), GRACE);
        assert_eq!(time_of(80 << 30), GRACE + Duration::from_secs(320));
        assert!(Instant::now().checked_add(time_of(u64::MAX)).is_some());
    }
}
