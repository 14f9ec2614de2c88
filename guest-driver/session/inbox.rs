// SPDX-License-Identifier: GPL-2.0-only

//! The unread events of one file for `read(2)`.

use crate::transport::{
    Event,
    EVENT_SESSION_LOST, //
};
use kernel::prelude::*;

/// Maximum number of unread events. An event is not queued twice, so this is the number of things for which a process
/// can wait at once.
const CAPACITY: usize = 256;

/// A bounded queue without duplicates.
pub(crate) struct Events(KVec<Event>);

impl Events {
    pub(crate) fn new() -> Result<Self> {
        // One more, so that there is always room for the end of the session.
        Ok(Self(KVec::with_capacity(CAPACITY + 1, GFP_KERNEL)?))
    }

    /// Queues an event. Returns false if the queue is full and the event was dropped. Allocates nothing.
    pub(crate) fn push(&mut self, event: Event) -> bool {
        let same = |old: &Event| {
            (old.kind, old.session, old.value) == (event.kind, event.session, event.value)
        };
        if self.0.iter().any(same) {
            return true;
        }
        let last_place = self.0.len() >= CAPACITY;
        (!last_place || event.kind == EVENT_SESSION_LOST)
            && self.0.push_within_capacity(event).is_ok()
    }

    /// Takes the oldest event.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.0.remove(0).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[kunit_tests(virtio_cuda_events)]
mod tests {
    use super::*;
    use crate::transport::EVENT_WAKE;

    fn wake(value: u64) -> Event {
        Event {
            kind: EVENT_WAKE,
            reserved: 0,
            session: 1,
            value,
        }
    }

    #[test]
    fn events_come_in_order_and_once() -> Result {
        let mut events = Events::new()?;
        for value in [3, 1, 3, 2] {
            assert!(events.push(wake(value)));
        }
        for value in [3, 1, 2] {
            assert_eq!(events.pop().map(|e| e.value), Some(value));
        }
        assert!(events.pop().is_none() && events.is_empty());
        Ok(())
    }

    #[test]
    fn a_full_queue_still_takes_the_end() -> Result {
        let mut events = Events::new()?;
        assert!((0..CAPACITY as u64).all(|value| events.push(wake(value))));
        assert!(!events.push(wake(u64::MAX)));
        let lost = Event {
            kind: EVENT_SESSION_LOST,
            ..wake(0)
        };
        assert!(events.push(lost));
        assert!(events.push(lost));
        assert!(!events.push(wake(u64::MAX)));
        Ok(())
    }
}
