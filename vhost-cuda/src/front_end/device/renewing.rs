// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers for sessions that get another one.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use vhost_cuda_common::link;

use super::Device;
use super::opening::Membership;
use crate::limits::descriptors;
use crate::sessions::process::Worker;
use crate::sessions::session::Session;
use crate::suspend::suspender::renewing::{Error, Workers};

/// The workers for one session.
struct Fresh<'a> {
    device: &'a Arc<Device>,
    session: &'a Arc<Session>,
    /// The place of the worker in the control group of its user, until the one that the session has is that of this worker.
    membership: RefCell<Option<Membership>>,
}

impl Device {
    /// Gives a session another worker. `time` is the time for its work to end. Must not be called by a confined thread.
    ///
    /// Errors: see [`Error`].
    pub fn renew(self: &Arc<Self>, session: &Arc<Session>, time: Duration) -> Result<(), Error> {
        // Those of the worker before are closed in the end.
        let charge = self.settings.descriptors.budget.charge(descriptors::WORKER);
        let _charge = charge.ok_or_else(|| Error::Worker("the daemon is out of descriptors".to_owned()))?;
        let workers = Fresh { device: self, session, membership: RefCell::default() };
        self.settings.suspender.renew(session, time, &workers)
    }
}

impl Workers for Fresh<'_> {
    fn take(&self) -> Result<Worker, String> {
        let taken = self.device.settings.pool.take(|| self.session.goes_on());
        taken.map_err(|error| error.to_string())?.ok_or_else(|| "the session has ended".into())
    }

    fn put_back(&self, worker: Worker) {
        self.device.settings.pool.put_back(worker);
    }

    fn assign(&self, worker: &Worker) -> io::Result<()> {
        let place = self.session.place();
        *self.membership.borrow_mut() = self.device.join_group(place.charged_uid, &worker.process);
        let account = self.device.account.lock().clone();
        if let (Some(account), Some(index)) = (account, place.account) {
            let (terms, file) = account.terms(index);
            link::send_account(&worker.sockets.link, &terms, file)?;
        }
        let (_, _, uid) = self.session.program();
        let owner = self.device.owner(uid);
        self.device.serve_questions(self.session, &worker.sockets, owner, Vec::new());
        Ok(())
    }
}
