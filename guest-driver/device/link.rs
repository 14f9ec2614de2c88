// SPDX-License-Identifier: GPL-2.0-only

//! The state of the connection to the backend, as seen by the driver.
//!
//! The first request to each backend is `OP_HELLO`, the greeting. A greeting has a number: if a backend dies before it
//! answers, its successor answers the greeting that is left in the ring, and then gets another one.

use crate::error::Fault;

/// The state of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The VMM's status was not read yet.
    New,
    /// The VMM has no backend.
    Down,
    /// The backend has not answered the greeting yet.
    Greeting,
    /// Sessions can be opened.
    Up,
    /// The backend has another protocol version, or did not understand the greeting.
    Refused,
    /// The device was removed, or is broken.
    Gone,
}

/// Phase and number of the last greeting.
pub(crate) struct Link {
    phase: Phase,
    greeting: u64,
}

/// The actions after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Step {
    /// Earlier sessions are lost.
    pub(crate) lose_sessions: bool,
    /// Number of the greeting to send.
    pub(crate) greet: Option<u64>,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::New,
            greeting: 0,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the number of the last greeting, which identifies the current backend.
    pub(crate) fn greeting(&self) -> u64 {
        self.greeting
    }

    fn greet(&mut self) -> Option<u64> {
        self.phase = Phase::Greeting;
        self.greeting += 1;
        Some(self.greeting)
    }

    /// Handles the VMM's status: whether it has a backend.
    pub(crate) fn status(&mut self, up: bool) -> Step {
        let lose_sessions = !up || self.phase == Phase::Gone;
        let greet = match (self.phase, up) {
            (Phase::Gone, _) => None,
            (Phase::New | Phase::Down, true) => self.greet(),
            (_, true) => None,
            (_, false) => {
                self.phase = Phase::Down;
                None
            }
        };
        Step {
            lose_sessions,
            greet,
        }
    }

    /// Handles a backend that does not know the greeting `greeting`: it has replaced the greeted one, and the
    /// configuration interrupts for both changes were merged.
    pub(crate) fn restarted(&mut self, greeting: u64) -> Step {
        if self.phase != Phase::Up || self.greeting != greeting {
            return Step::default();
        }
        Step {
            lose_sessions: true,
            greet: self.greet(),
        }
    }

    /// Handles the answer to a greeting, or a failure to send it. Returns the next phase, or None if the greeting is
    /// not the current one.
    pub(crate) fn answered(&mut self, greeting: u64, result: Result<(), Fault>) -> Option<Phase> {
        if self.phase != Phase::Greeting || self.greeting != greeting {
            return None;
        }
        self.phase = match result {
            Ok(()) => Phase::Up,
            Err(Fault::Refused | Fault::Garbled) => Phase::Refused,
            // The next change of the status, or the next open, tries again.
            Err(_) => Phase::Down,
        };
        Some(self.phase)
    }

    /// The device is being removed, or is broken.
    pub(crate) fn disconnect(&mut self) {
        self.phase = Phase::Gone;
    }
}

#[kernel::prelude::kunit_tests(virtio_cuda_link)]
mod tests {
    use super::*;

    const NOTHING: Step = Step {
        lose_sessions: false,
        greet: None,
    };

    fn greet(number: u64) -> Step {
        Step {
            lose_sessions: false,
            greet: Some(number),
        }
    }

    #[test]
    fn a_backend_is_greeted_once() {
        let mut link = Link::new();
        assert_eq!(link.status(true), greet(1));
        assert_eq!(link.status(true), NOTHING);
        link.answered(1, Ok(()));
        assert_eq!(link.phase(), Phase::Up);
        assert_eq!(link.status(true), NOTHING);
    }

    #[test]
    fn a_device_without_a_backend_is_down() {
        let mut link = Link::new();
        assert_eq!(link.phase(), Phase::New);
        assert_eq!(link.status(false).greet, None);
        assert_eq!(link.phase(), Phase::Down);
        assert_eq!(link.status(true), greet(1));
    }

    #[test]
    fn losing_the_backend_loses_sessions() {
        let mut link = Link::new();
        link.status(true);
        link.answered(1, Ok(()));
        assert!(link.status(false).lose_sessions);
        assert_eq!(link.phase(), Phase::Down);
        assert_eq!(link.status(true), greet(2));
        // the greeting to the previous backend, answered by this one
        assert_eq!(link.answered(1, Ok(())), None);
        assert_eq!(link.phase(), Phase::Greeting);
        assert_eq!(link.answered(2, Ok(())), Some(Phase::Up));
    }

    #[test]
    fn an_unseen_restart_is_greeted() {
        let mut link = Link::new();
        link.status(true);
        assert_eq!(link.restarted(1), NOTHING);
        link.answered(1, Ok(()));
        assert_eq!(link.restarted(0), NOTHING);
        let step = link.restarted(1);
        assert!(step.lose_sessions && step.greet == Some(2));
        assert_eq!(link.restarted(1), NOTHING);
    }

    #[test]
    fn a_version_is_refused_until_the_next_backend() {
        let mut link = Link::new();
        link.status(true);
        link.answered(1, Err(Fault::Refused));
        assert_eq!(link.phase(), Phase::Refused);
        assert_eq!(link.status(true), NOTHING);
        link.status(false);
        assert_eq!(link.status(true), greet(2));
    }

    #[test]
    fn gone_is_for_ever() {
        let mut link = Link::new();
        link.status(true);
        link.disconnect();
        link.answered(1, Ok(()));
        let step = link.status(true);
        assert!(step.lose_sessions && step.greet.is_none());
        assert_eq!(link.phase(), Phase::Gone);
    }
}
