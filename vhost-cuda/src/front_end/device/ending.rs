// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of all sessions of a device: when the driver resets it, and when its front-end has disconnected.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use log::error;

use super::{Device, END_PATIENCE};
use crate::owner::Machine;
use crate::sessions::session::Session;

impl Device {
    /// Kills every session, and returns those that are ending. With `closed`, no other session ever starts.
    pub(super) fn end_sessions(&self, closed: bool) -> Vec<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        sessions.epoch += 1;
        sessions.closed |= closed;
        let ending: Vec<_> = sessions.open.values().cloned().collect();
        drop(sessions);
        self.settings.pool.look_again();
        for session in &ending {
            session.kill();
        }
        ending
    }

    /// Ends all sessions that the driver has opened, after a reset of the device. Called once per reset, by the
    /// thread that notices it first.
    pub fn reset(&self) {
        // Queues that restart later must not treat it as another reset.
        for ring in &self.rings {
            ring.forget_stop();
        }
        let ending = self.end_sessions(false);
        if !wait_for(&ending, Instant::now() + END_PATIENCE) {
            return self.fail(&ending);
        }
        self.events.clear();
        self.driver_version.store(0, Ordering::Relaxed);
    }

    /// Gives the device up because its workers do not end, so that it cannot be reset. It disconnects its front-end,
    /// which reports to the driver that there is no backend. The next connection for the same memory answers the
    /// driver when the workers have ended.
    fn fail(&self, ending: &[Arc<Session>]) {
        error!(
            "connection {}: the device cannot be reset: {}. The front-end is dropped; programs of the guest get no session \
             before these workers have ended",
            self.connection,
            running(ending)
        );
        self.failed.store(true, Ordering::Release);
        self.abandon();
        self.settings.endings.leave(self.connection, labels(ending), &self.memory_files.lock());
        self.hang_up();
    }

    /// Stops answering the front-end, and kills every session. Does not wait.
    pub fn abandon(&self) -> Vec<Arc<Session>> {
        for ring in &self.rings {
            ring.abandon();
        }
        self.end_sessions(true)
    }

    /// Ends everything after the front-end has disconnected. Returns when all workers have ended, or at `deadline`.
    /// Returns false and logs it if some have not ended.
    pub fn shut_down(&self, deadline: Instant) -> bool {
        let ending = self.abandon();
        let all = wait_for(&ending, deadline);
        if !all {
            error!("connection {}: {}", self.connection, running(&ending));
        }
        self.settings.endings.leave(self.connection, labels(&ending), &self.memory_files.lock());
        self.settings.images.forget(Machine::Virtual(self.connection));
        all
    }
}

/// Waits until all have ended. Returns false if some have not at `deadline`.
pub(super) fn wait_for(ending: &[Arc<Session>], deadline: Instant) -> bool {
    ending.iter().all(|session| session.wait_ended(deadline.saturating_duration_since(Instant::now())))
}

fn labels(sessions: &[Arc<Session>]) -> impl Iterator<Item = u64> {
    sessions.iter().map(|session| session.label())
}

/// Returns a list of those that have not ended, for the log.
fn running(sessions: &[Arc<Session>]) -> String {
    let running = sessions.iter().filter(|session| !session.wait_ended(Duration::ZERO));
    let pids: Vec<String> = running.map(|session| session.worker_pid().to_string()).collect();
    format!("{} workers do not end after SIGKILL (processes {})", pids.len(), pids.join(", "))
}
