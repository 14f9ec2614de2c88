// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that stop with their machine. A front-end saves guest memory between the stop of the queues and the state of the device, so no worker may
//! write to it then.

use std::time::{Duration, Instant};

use log::debug;
use vhost_cuda_common::link::{TO_STAY, TO_STOP, ToWorker, VERSION_OF_STOPPING};
use vhost_cuda_common::recipes::Description;
use zerocopy::IntoBytes;

use super::asked::AskError;
use super::{Outgoing, Session};
use crate::guest::memory::Memory;
use crate::hand_over::freeze;

/// The time for a worker to answer beyond the time for its work.
const GRACE: Duration = Duration::from_secs(1);

impl Session {
    /// Has the worker stop, until `deadline`. Requests that come later wait until [`Self::go_on`]. A session that does not stop
    /// goes on at once.
    pub fn stop(&self, deadline: Instant) {
        let stop = self.try_to_stop(deadline);
        if let Err(reason) = &stop {
            debug!("{}: does not stop with its machine: {reason}", self.describe());
            self.release(None);
        }
        self.state.lock().stop = Some(stop);
    }

    fn try_to_stop(&self, deadline: Instant) -> Result<(), String> {
        if self.assigned().worker.version < VERSION_OF_STOPPING {
            return Err("its worker is of an older release".to_owned());
        }
        let time = deadline.saturating_duration_since(Instant::now());
        let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let answer = self.ask_with(&self.stopping, TO_STOP, millis.as_bytes(), None, time + GRACE);
        let answer = answer.and_then(|answer| Description::read(&answer).ok_or(AskError::Malformed));
        match answer.map_err(|error| error.to_string())? {
            Description { obstacle: None, .. } => Ok(()),
            Description { obstacle: Some(reason), .. } => Err(reason),
        }
    }

    /// Returns whether the session has stopped with its machine, and nothing of it writes to guest memory.
    ///
    /// Errors: the reason for which it has not.
    pub fn has_stopped(&self) -> Result<(), String> {
        let stop = self.state.lock().stop.clone();
        stop.unwrap_or_else(|| Err("it was opened or loaded while its machine was stopped".to_owned()))
    }

    /// Goes on with the machine, whose memory is `memory`. Sends what has waited.
    pub fn go_on(&self, memory: &Memory) {
        self.release(Some(memory));
    }

    fn release(&self, memory: Option<&Memory>) {
        let _permit = freeze::permit();
        let mut state = self.state.lock();
        state.stop = None;
        if !std::mem::take(&mut state.is_stopped) {
            return;
        }
        self.residence.goes_on();
        state.is_arriving = false;
        let pages = std::mem::take(&mut state.arriving);
        if let (Some(named), Some(memory)) = (&self.assigned().named, memory) {
            named.hold(pages, memory);
        }
        self.send(Outgoing::of(&ToWorker { kind: TO_STAY, ..ToWorker::default() }, &[]));
        self.send_waiting(&mut state);
    }
}
