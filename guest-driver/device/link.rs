// SPDX-License-Identifier: GPL-2.0-only

//! Whether requests make sense now: the backend's coming and going, as seen by the driver.
//!
//! Each backend gets an `OP_HELLO` before it gets anything else. A greeting has a number, because one that a
//! dying backend has left in the ring is answered by the next one, which then gets another.

use crate::error::Fault;

/// The state of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nobody has asked the VMM yet.
    New,
    /// The VMM has no backend.
    Down,
    /// The backend has yet to answer the greeting.
    Greeting,
    /// Sessions can be opened.
    Up,
    /// The backend speaks another version, or did not understand the greeting.
    Refused,
    /// The device is gone, or broken.
    Gone,
}

/// Phase and number of the last greeting.
pub(crate) struct Link {
    phase: Phase,
    greeting: u64,
}

/// The reaction to a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Step {
    /// Sessions of the time before are lost.
    pub(crate) lose_sessions: bool,
    /// Send this greeting.
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

    /// Number of the last greeting; names the backend of now.
    pub(crate) fn greeting(&self) -> u64 {
        self.greeting
    }

    fn greet(&mut self) -> Option<u64> {
        self.phase = Phase::Greeting;
        self.greeting += 1;
        Some(self.greeting)
    }

    /// The VMM says whether it has a backend.
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

    /// The backend that was greeted with `greeting` knows no sessions: it is another one now, and the
    /// configuration interrupts of its coming and going were seen as one.
    pub(crate) fn restarted(&mut self, greeting: u64) -> Step {
        if self.phase != Phase::Up || self.greeting != greeting {
            return Step::default();
        }
        Step {
            lose_sessions: true,
            greet: self.greet(),
        }
    }

    /// A greeting was answered, or could not be sent. The phase that follows; None if nobody waits for it.
    pub(crate) fn answered(&mut self, greeting: u64, result: Result<(), Fault>) -> Option<Phase> {
        if self.phase != Phase::Greeting || self.greeting != greeting {
            return None;
        }
        self.phase = match result {
            Ok(()) => Phase::Up,
            Err(Fault::Refused | Fault::Garbled) => Phase::Refused,
            // The next change of status, or the next open, tries again.
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
        // the greeting of the last backend, answered by this one
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
