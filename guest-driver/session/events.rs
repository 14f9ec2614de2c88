// SPDX-License-Identifier: GPL-2.0-only

//! Messages of the device to a session: events, and the loss of the session.

use super::Session;
use crate::{
    error::Fault,
    request::Answer,
    transport::{
        Event,
        EVENT_SESSION_LOST, //
    }, //
};
use kernel::{
    fs::File,
    pr_warn_once,
    prelude::*,
    sync::poll::PollTable, //
};
impl Session {
    /// Checks whether a reply says that the session is lost.
    pub(crate) fn note(&self, answer: &Result<Answer, Fault>) {
        if matches!(answer, Err(Fault::Lost)) {
            self.lose_quietly();
        }
    }

    /// Records that the session is lost, while its requests will still be answered. For any context.
    fn lose_quietly(&self) {
        let mut state = self.state.lock();
        if !core::mem::replace(&mut state.lost, true) {
            let event = Event {
                kind: EVENT_SESSION_LOST,
                session: self.id(),
                ..Default::default()
            };
            state.events.push(event);
        }
        drop(state);
        self.events_changed.notify_all();
    }

    /// Records that the session is lost and its requests will not be answered soon: waiters return at once. For any
    /// context.
    pub(crate) fn lose(&self) {
        self.lose_quietly();
        self.state.lock().calls.interrupt();
    }

    /// Delivers an event to this session. For any context.
    pub(crate) fn deliver(&self, event: Event) {
        if event.kind == EVENT_SESSION_LOST {
            self.lose_quietly();
            return;
        }
        let taken = self.state.lock().events.push(event);
        if taken {
            self.events_changed.notify_all();
        } else {
            pr_warn_once!("a process does not read its events; further ones are dropped\n");
        }
    }

    /// Returns the next event for read(2), None at the end. `EAGAIN`: there is none now, and `block` is false.
    pub(crate) fn next_event(&self, block: bool) -> Result<Option<Event>> {
        let mut state = self.state.lock();
        loop {
            if let Some(event) = state.events.pop() {
                return Ok(Some(event));
            }
            if state.lost || state.closed {
                return Ok(None);
            }
            if !block {
                return Err(EAGAIN);
            }
            if self.events_changed.wait_interruptible(&mut state) {
                return Err(ERESTARTSYS);
            }
        }
    }

    /// Returns for poll(2) whether there are events, and whether the session is lost.
    pub(crate) fn poll(&self, file: &File, table: &PollTable<'_>) -> (bool, bool) {
        table.register_wait(file, &self.events_changed);
        let state = self.state.lock();
        (!state.events.is_empty(), state.lost || state.closed)
    }
}
