// SPDX-License-Identifier: GPL-2.0-only

//! Outstanding calls.

use super::Session;
use crate::{
    error::Fault,
    linux::wait::{
        Cut,
        Mode,
        Patience, //
    },
    request::{
        Answer,
        Awaited,
        Pending,
        Request, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
impl Session {
    /// Adds a call to the table of outstanding calls, and sends it.
    pub(crate) fn start(&self, request: Arc<Request>, mode: Mode) -> Result<(u64, Pending)> {
        let mut state = self.state.lock();
        if state.lost || state.closed {
            return Err(Fault::Lost.into());
        }
        let ticket = state.calls.add(request.clone())?;
        drop(state);
        match self.device.submit(request, mode, || self.is_lost()) {
            Ok(pending) => Ok((ticket, pending)),
            Err(error) => {
                self.end(ticket);
                Err(error)
            }
        }
    }

    /// Removes a call from the table.
    pub(super) fn end(&self, ticket: u64) {
        let call = self.state.lock().calls.remove(ticket);
        drop(call);
    }

    /// Stores an unanswered call, for a later wait.
    pub(crate) fn suspend(&self, ticket: u64, pending: Pending) {
        let left_over = self.state.lock().calls.suspend(ticket, pending);
        // The session was closed meanwhile, so there will be no later wait.
        drop(left_over);
    }

    /// Takes a suspended call. `ENOENT`: the ticket is unknown, or another thread waits for the call.
    pub(crate) fn unpark(&self, ticket: u64) -> Result<Pending> {
        self.state.lock().calls.unpark(ticket).ok_or(ENOENT)
    }

    /// Waits for a call and takes its reply. `ENOLINK`: the reply may never come. If the wait is interrupted, returns
    /// the call for [`Self::suspend`].
    pub(crate) fn finish(
        &self,
        ticket: u64,
        pending: Pending,
        mode: Mode,
        patience: &mut Patience,
    ) -> Result<Result<Answer>, (Pending, Cut)> {
        match pending.wait(mode, patience) {
            Ok(Awaited::Answered) => {
                self.end(ticket);
                Ok(pending.settle())
            }
            Ok(Awaited::Interrupted) => {
                self.end(ticket);
                Ok(Err(Fault::Lost.into()))
            }
            Err(cut) => Err((pending, cut)),
        }
    }

    /// Like [`Self::finish`]. If the wait is interrupted, the request continues without a waiter.
    pub(crate) fn wait_for(
        &self,
        ticket: u64,
        pending: Pending,
        mode: Mode,
        patience: &mut Patience,
    ) -> Result<Answer> {
        self.finish(ticket, pending, mode, patience)
            .unwrap_or_else(|(pending, cut)| {
                self.end(ticket);
                drop(pending);
                Err(cut.into())
            })
    }
}
