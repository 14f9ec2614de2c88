// SPDX-License-Identifier: GPL-2.0-only

//! Calls under way.

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
    /// Enters a call into the table of those under way, and sends it.
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

    /// Takes a call out of the table.
    pub(super) fn end(&self, ticket: u64) {
        let call = self.state.lock().calls.remove(ticket);
        drop(call);
    }

    /// Puts an unanswered call aside, to be waited for later.
    pub(crate) fn suspend(&self, ticket: u64, pending: Pending) {
        let left_over = self.state.lock().calls.suspend(ticket, pending);
        // The session was closed meanwhile: nobody will ask.
        drop(left_over);
    }

    /// Takes up a suspended call. `ENOENT`: there is none of that name, or another thread waits for it.
    pub(crate) fn unpark(&self, ticket: u64) -> Result<Pending> {
        self.state.lock().calls.unpark(ticket).ok_or(ENOENT)
    }

    /// Waits for a call and takes its answer; `ENOLINK`: the wait is pointless. When it is cut short, gives
    /// the call back, for [`Self::suspend`].
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

    /// As [`Self::finish`]; when the wait is cut short, the request goes on alone.
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
