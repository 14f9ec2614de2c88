// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions stop with their machine, and go on with it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Device;
use crate::guest::memory::Memory;
use crate::guest::request::{Malformed, Request};
use crate::guest::ring::Chain;
use crate::suspend::suspender::for_each;

/// The time for the work of all sessions to end when their machine stops. The front-end, and a reset of the machine, wait meanwhile.
const STOP_TIME: Duration = Duration::from_secs(5);

impl Device {
    /// Has all sessions stop, because the front-end stops the first queue. Returns when they have, or when the time is over: those
    /// that have not stopped go on, and the machine cannot be saved with them.
    pub fn stop(&self) {
        {
            let mut stops = self.stops.lock();
            *stops += 1;
            if self.stopped.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        let deadline = Instant::now() + STOP_TIME;
        for_each(&self.sessions(), |session| session.stop(deadline));
    }

    /// Returns whether its sessions have stopped, or none of its queues runs.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.rings.iter().all(|ring| !ring.is_running())
    }

    /// Returns how often a queue was stopped, for [`Self::go_on`].
    pub fn stops(&self) -> u64 {
        *self.stops.lock()
    }

    /// Lets all sessions go on, because a queue has started, unless another one has chains of another backend that belong to them, or a
    /// queue was stopped since there were so many `stops`: then they have to stop, whatever the threads of the other queues find.
    pub fn go_on(&self, memory: &Memory, stops: u64) {
        let now = self.stops.lock();
        let has_waited = self.rings.iter().any(|ring| ring.has_inherited());
        if *now == stops && !has_waited && self.stopped.swap(false, Ordering::AcqRel) {
            self.end_ahead();
            self.sessions().iter().for_each(|session| session.go_on(memory));
        }
    }

    /// Takes up a request that another backend had. It is that of a session with this number there, or nobody has executed any of it.
    pub fn take_up(
        self: &std::sync::Arc<Self>,
        session: u64,
        number: u64,
        request: Result<Request, Malformed>,
        chain: Chain,
    ) {
        match (self.session(session), request) {
            (Some(session), Ok(request)) if number != 0 => {
                let bytes = request.footprint() + chain.footprint();
                match self.budget.charge(session.id(), bytes) {
                    Some(charge) => session.take_up(number, request, chain, charge),
                    // Its worker answers a request that nobody knows: it is lost.
                    None => session.end_worker(),
                }
            }
            (_, request) => self.handle(request, chain),
        }
    }
}
