// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of daemons for device memory that idle sessions of others have.
//!
//! The arbiter asks all daemons of the same GPU how long the session has been idle that would go first. The one with the longest
//! answer is told to suspend it. If that gives nothing, the next one is told. A daemon that does not answer in time counts as one
//! without such a session.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{IDLE, MAKE_ROOM, Message, ROOM};
use super::policy::Id;

/// The time for answers about idle sessions, in nanoseconds.
const ANSWERS: u64 = 1_000_000_000;
/// The time for a session to be suspended, in nanoseconds.
const SUSPENSION: u64 = 60_000_000_000;
/// The time for which a daemon waits for the answer to its request, in nanoseconds: for one session of each of a few daemons.
pub const PATIENCE: u64 = 90_000_000_000;

/// What a search for room on a GPU has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// No session may be suspended.
    #[default]
    None,
    /// One may be, but there is no host memory.
    NoHostMemory,
    /// There may be more room now.
    Made,
}

impl Room {
    /// Returns the value of a message.
    pub fn value(self) -> u32 {
        self as u32
    }

    /// Returns what a message says; [`Room::None`] for an unknown value.
    pub fn of(value: u32) -> Self {
        let all = [Self::NoHostMemory, Self::Made];
        all.into_iter().find(|room| room.value() == value).unwrap_or_default()
    }
}

/// A request of a daemon.
#[derive(Debug)]
struct Request {
    from: Id,
    number: u64,
    /// The GPU; zeros stand for any.
    gpu: [u8; 16],
    /// Daemons that were asked, and have not answered.
    asked: BTreeSet<Id>,
    /// Daemons that have a session to suspend, by the time for which it has been idle.
    idle: BTreeSet<(u64, Id)>,
    /// The daemon that suspends one.
    suspends: Option<Id>,
    found: Room,
    /// When the arbiter waits no longer for the answers that are missing.
    deadline: u64,
}

/// A message, and the daemon that gets it.
pub type Outgoing = (Id, Message);

/// The requests under way, by the tickets under which the arbiter asks others. A daemon has one at a time.
#[derive(Debug, Default)]
pub struct Requests {
    requests: BTreeMap<u64, Request>,
    next: u64,
}

impl Requests {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Begins request `number` of daemon `from` for memory of `gpu`, in place of an earlier one of it. `others` are the daemons of the same
    /// GPU.
    pub fn begin(
        &mut self,
        from: Id,
        number: u64,
        gpu: [u8; 16],
        others: BTreeSet<Id>,
        now: u64,
    ) -> Vec<Outgoing> {
        self.requests.retain(|_, request| request.from != from);
        let ticket = self.next;
        self.next += 1;
        let ask = Message { kind: IDLE, number: ticket, uuid: gpu, ..Message::default() };
        let mut outgoing: Vec<_> = others.iter().map(|&other| (other, ask)).collect();
        let request = Request {
            from,
            number,
            gpu,
            asked: others,
            idle: BTreeSet::new(),
            suspends: None,
            found: Room::None,
            deadline: now.saturating_add(ANSWERS),
        };
        self.requests.insert(ticket, request);
        outgoing.extend(self.go_on(ticket, now));
        outgoing
    }

    /// Takes an answer of daemon `by`: of [`IDLE`] or [`MAKE_ROOM`]. One that nobody waits for changes nothing.
    pub fn answered(&mut self, by: Id, message: &Message, now: u64) -> Vec<Outgoing> {
        let Some(request) = self.requests.get_mut(&message.number) else { return Vec::new() };
        match message.kind {
            IDLE if request.asked.remove(&by) => {
                if message.used > 0 {
                    request.idle.insert((message.used, by));
                }
            }
            MAKE_ROOM if request.suspends == Some(by) => {
                request.suspends = None;
                request.found = request.found.max(Room::of(message.value));
            }
            _ => return Vec::new(),
        }
        self.go_on(message.number, now).into_iter().collect()
    }

    /// Forgets a daemon that has ended.
    pub fn leave(&mut self, id: Id, now: u64) -> Vec<Outgoing> {
        self.requests.retain(|_, request| request.from != id);
        for request in self.requests.values_mut() {
            request.asked.remove(&id);
            request.idle.retain(|(_, other)| *other != id);
            request.suspends = request.suspends.filter(|other| *other != id);
        }
        let tickets: Vec<_> = self.requests.keys().copied().collect();
        tickets.into_iter().filter_map(|ticket| self.go_on(ticket, now)).collect()
    }

    /// Goes on without answers that have not come in time.
    pub fn step(&mut self, now: u64) -> Vec<Outgoing> {
        let late = |(&ticket, request): (&u64, &Request)| (request.deadline <= now).then_some(ticket);
        let late: Vec<_> = self.requests.iter().filter_map(late).collect();
        for ticket in &late {
            if let Some(request) = self.requests.get_mut(ticket) {
                request.asked.clear();
                request.suspends = None;
            }
        }
        late.into_iter().filter_map(|ticket| self.go_on(ticket, now)).collect()
    }

    /// Lets the next daemon suspend a session, or answers the request, unless there is something to wait for.
    fn go_on(&mut self, ticket: u64, now: u64) -> Option<Outgoing> {
        let request = self.requests.get_mut(&ticket)?;
        if !request.asked.is_empty() || request.suspends.is_some() {
            return None;
        }
        let next = if request.found == Room::Made { None } else { request.idle.pop_last() };
        match next {
            Some((_, id)) => {
                request.suspends = Some(id);
                request.deadline = now.saturating_add(SUSPENSION);
                let uuid = request.gpu;
                Some((id, Message { kind: MAKE_ROOM, number: ticket, uuid, ..Message::default() }))
            }
            None => {
                let Request { from, number, found, .. } = self.requests.remove(&ticket)?;
                Some((from, Message { kind: ROOM, number, value: found.value(), ..Message::default() }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1 << 40;
    const GPU: [u8; 16] = [7; 16];

    fn idle(ticket: u64, nanoseconds: u64) -> Message {
        Message { kind: IDLE, number: ticket, used: nanoseconds, ..Message::default() }
    }

    fn made(ticket: u64, room: Room) -> Message {
        Message { kind: MAKE_ROOM, number: ticket, value: room.value(), ..Message::default() }
    }

    fn kinds(outgoing: &[Outgoing]) -> Vec<(Id, u32)> {
        outgoing.iter().map(|(id, message)| (*id, message.kind)).collect()
    }

    /// The answer to a request.
    fn answer(outgoing: &[Outgoing]) -> (Id, u64, Room) {
        let [(id, message)] = outgoing else { panic!("{outgoing:?}") };
        assert_eq!(message.kind, ROOM);
        (*id, message.number, Room::of(message.value))
    }

    #[test]
    fn the_longest_idle_goes_first_until_there_is_room() {
        let mut requests = Requests::default();
        let sent = requests.begin(1, 70, GPU, BTreeSet::from([2, 3, 4, 5]), NOW);
        assert_eq!(kinds(&sent), [2, 3, 4, 5].map(|id| (id, IDLE)));
        assert!(sent.iter().all(|(_, message)| message.uuid == GPU));
        assert!(requests.answered(2, &idle(0, 5), NOW).is_empty());
        assert!(requests.answered(3, &idle(0, 9), NOW).is_empty());
        assert!(requests.answered(4, &idle(0, 0), NOW).is_empty());
        let told = requests.answered(5, &idle(0, 7), NOW);
        assert_eq!((kinds(&told), told[0].1.uuid), (vec![(3, MAKE_ROOM)], GPU));
        assert!(requests.answered(5, &made(0, Room::Made), NOW).is_empty(), "it was not told to");
        assert_eq!(kinds(&requests.answered(3, &made(0, Room::NoHostMemory), NOW)), [(5, MAKE_ROOM)]);
        assert_eq!(answer(&requests.answered(5, &made(0, Room::Made), NOW)), (1, 70, Room::Made));
        assert!(requests.is_empty() && requests.answered(5, &made(0, Room::Made), NOW).is_empty());
    }

    #[test]
    fn without_others_the_answer_is_there_at_once() {
        let mut requests = Requests::default();
        assert_eq!(answer(&requests.begin(1, 3, GPU, BTreeSet::new(), NOW)), (1, 3, Room::None));
        let _ = requests.begin(1, 4, GPU, BTreeSet::from([2]), NOW);
        assert_eq!(answer(&requests.answered(2, &idle(1, 0), NOW)), (1, 4, Room::None));
    }

    #[test]
    fn who_is_silent_or_gone_is_not_waited_for() {
        let mut requests = Requests::default();
        let _ = requests.begin(1, 3, GPU, BTreeSet::from([2, 3]), NOW);
        let _ = requests.answered(2, &idle(0, 5), NOW);
        assert!(requests.step(NOW + ANSWERS - 1).is_empty());
        assert_eq!(kinds(&requests.step(NOW + ANSWERS)), [(2, MAKE_ROOM)]);
        assert!(requests.answered(3, &idle(0, 50), NOW).is_empty(), "too late");
        assert_eq!(answer(&requests.step(NOW + ANSWERS + SUSPENSION)), (1, 3, Room::None));

        let _ = requests.begin(1, 4, GPU, BTreeSet::from([2, 3]), NOW);
        let _ = requests.answered(2, &idle(1, 5), NOW);
        assert_eq!(kinds(&requests.leave(3, NOW)), [(2, MAKE_ROOM)]);
        assert_eq!(answer(&requests.leave(2, NOW)), (1, 4, Room::None));
        let _ = requests.begin(1, 5, GPU, BTreeSet::from([2]), NOW);
        assert!(requests.leave(1, NOW).is_empty() && requests.is_empty());
    }

    #[test]
    fn a_daemon_has_one_request() {
        let mut requests = Requests::default();
        for number in 0..1000 {
            let _ = requests.begin(1, number, GPU, BTreeSet::from([2]), NOW);
        }
        assert_eq!(requests.requests.len(), 1);
        assert_eq!(answer(&requests.answered(2, &idle(999, 0), NOW)), (1, 999, Room::None));
    }

    #[test]
    fn an_unknown_value_is_no_room() {
        for room in [Room::None, Room::NoHostMemory, Room::Made] {
            assert_eq!(Room::of(room.value()), room);
        }
        assert_eq!(Room::of(7), Room::None);
    }
}
