// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that go with their machine: suspended deeply, and kept so until they have been copied.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::link::NO_HOST_MEMORY;

use super::renewing::Error;
use super::{SLACK, Suspender};
use crate::sessions::residence::{Extent, MoveError, Renewing};
use crate::sessions::session::Session;

/// The time for a move that is under way to end, and for the work of a session, which has stopped.
const TIME: Duration = Duration::from_secs(10);

impl Suspender {
    /// Suspends a session deeply that has stopped with its machine. Nothing brings it back as long as the result is held.
    ///
    /// Errors: the reason for which it cannot go with its machine. It stays as it is: its next call brings it back.
    pub fn suspend_for_departure<'a>(&self, session: &'a Session) -> Result<Renewing<'a>, Error> {
        session.check_departure()?;
        let renewing = session.residence().renew(Instant::now() + TIME)?;
        self.suspend_to(session, TIME, false, Extent::Any)?;
        self.end_objects(session)?;
        Ok(renewing)
    }

    /// Has the worker of a session write contents to a pipe, ahead of the stop of its machine. `None` while the session moves.
    ///
    /// Errors: the reason for which not all are written.
    pub fn send_ahead(&self, session: &Session, to: OwnedFd, is_first: bool) -> Result<Option<u64>, String> {
        session.check_departure().map_err(|error| error.to_string())?;
        let bytes = self.device_memory(session).saturating_add(SLACK);
        let budget = session.residence().go_ahead(bytes, |bytes| self.host.charge(bytes));
        budget.map(|budget| session.write_ahead(to, budget, is_first)).transpose()
    }

    /// Takes host memory for all contents of a session that enters. If there is none, others give up contents that they have kept, and their
    /// shares of the pool.
    ///
    /// Errors: there is not enough.
    pub fn charge_contents(&self, label: u64, bytes: u64) -> Result<Charge, MoveError> {
        let is_enough = |host: &Charge| host.amount() as u64 >= bytes;
        let first = self.host.charge(bytes);
        if is_enough(&first) {
            return Ok(first);
        }
        drop(first);
        // Both, whatever the first one finds.
        let _ = self.forget(Duration::ZERO) | self.give_up_pool(label);
        let again = Some(self.host.charge(bytes)).filter(is_enough);
        again.ok_or(MoveError::Failed { outcome: NO_HOST_MEMORY, cuda: 0, devices: 0 })
    }
}
