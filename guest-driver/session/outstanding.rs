// SPDX-License-Identifier: GPL-2.0-only

//! The outstanding calls of one file. The table is protected by a lock that interrupts take: nothing here sleeps or
//! allocates, and values that a caller gets must be dropped without the lock.

use crate::{
    error::Fault,
    request::{
        Pending,
        Request, //
    }, //
};
use core::mem;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// An outstanding call.
pub(crate) struct Call {
    ticket: u64,
    request: Arc<Request>,
    /// Set while no thread waits for the call, after a signal has interrupted the waiter.
    suspended: Option<Pending>,
}

/// The table.
pub(crate) struct Calls {
    list: KVec<Call>,
    last_ticket: u64,
}

impl Calls {
    /// Returns a table for at most `limit` calls.
    pub(crate) fn new(limit: u32) -> Result<Self> {
        Ok(Self {
            list: KVec::with_capacity(limit as usize, GFP_KERNEL)?,
            last_ticket: 0,
        })
    }

    fn find(&mut self, ticket: u64) -> Option<&mut Call> {
        self.list.iter_mut().find(|call| call.ticket == ticket)
    }

    /// Adds a call. Returns its ticket, never 0. [`Fault::Quota`]: there are too many.
    pub(crate) fn add(&mut self, request: Arc<Request>) -> Result<u64, Fault> {
        let ticket = self.last_ticket + 1;
        let call = Call {
            ticket,
            request,
            suspended: None,
        };
        self.list
            .push_within_capacity(call)
            .map_err(|_| Fault::Quota)?;
        self.last_ticket = ticket;
        Ok(ticket)
    }

    /// Removes a call.
    pub(crate) fn remove(&mut self, ticket: u64) -> Option<Call> {
        let place = self.list.iter().position(|call| call.ticket == ticket)?;
        self.list.remove(place).ok()
    }

    /// Removes all calls. No more can be added.
    pub(crate) fn remove_all(&mut self) -> KVec<Call> {
        mem::replace(&mut self.list, KVec::new())
    }

    /// Stores an unanswered call. Returns it if the call is no longer in the table.
    pub(crate) fn suspend(&mut self, ticket: u64, pending: Pending) -> Option<Pending> {
        match self.find(ticket) {
            Some(call) => call.suspended.replace(pending),
            None => Some(pending),
        }
    }

    /// Takes a suspended call.
    pub(crate) fn unpark(&mut self, ticket: u64) -> Option<Pending> {
        self.find(ticket)?.suspended.take()
    }

    /// Ends all waits.
    pub(crate) fn interrupt(&self) {
        for call in &self.list {
            call.request.interrupt();
        }
    }
}
