// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice of the session that makes room for another one.

use std::collections::HashMap;
use std::time::Duration;

/// The conditions under which a session may be suspended for another one.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The minimum time without calls.
    pub after: Duration,
    /// The device memory of a machine that stays on the card, in bytes.
    pub floor: u64,
}

/// A session whose memory is on the card.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Its number in the log.
    pub label: u64,
    /// Its machine's connection.
    pub connection: u64,
    /// The time since its last call.
    pub idle: Duration,
    /// The time since it was brought back, or since another attempt to suspend it. `None`: there was none.
    pub rested: Option<Duration>,
    /// The time that its last move took.
    pub last_move: Duration,
    /// Its device memory in bytes.
    pub bytes: u64,
    /// The devices of its memory, a bit for each.
    pub devices: u64,
}

/// Returns the sessions that may be suspended for `requester`, which needs memory of one of `devices` (a bit for each; 0: of any
/// device), in this order: the one that has been idle longest comes
/// first. A session that was brought back stays for at least `after`, and for as long as moving it takes, so that
/// sessions that need more memory together than the card has spend at most half of their time moving.
pub fn victims(candidates: &[Candidate], rules: Rules, requester: Option<u64>, devices: u64) -> Vec<u64> {
    let mut machines: HashMap<u64, u64> = HashMap::new();
    for candidate in candidates {
        let sum = machines.entry(candidate.connection).or_default();
        *sum = sum.saturating_add(candidate.bytes);
    }
    let may_go = |candidate: &&Candidate| {
        let rest = rules.after.max(2 * candidate.last_move);
        Some(candidate.label) != requester
            && candidate.bytes > 0
            && (devices == 0 || candidate.devices & devices != 0)
            && candidate.idle >= rules.after
            && candidate.rested.is_none_or(|rested| rested >= rest)
            && machines[&candidate.connection] - candidate.bytes >= rules.floor
    };
    let mut chosen: Vec<&Candidate> = candidates.iter().filter(may_go).collect();
    chosen.sort_by_key(|candidate| (std::cmp::Reverse(candidate.idle), candidate.label));
    chosen.into_iter().map(|candidate| candidate.label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RULES: Rules = Rules { after: Duration::from_secs(10), floor: 0 };

    fn candidate(label: u64, idle: u32) -> Candidate {
        Candidate {
            label,
            connection: label,
            idle: idle * SECOND,
            rested: None,
            last_move: Duration::ZERO,
            bytes: 100,
            devices: 1,
        }
    }

    #[test]
    fn the_longest_idle_goes_first_and_none_that_works() {
        let all = [candidate(1, 20), candidate(2, 9), candidate(3, 300), candidate(4, 10), candidate(5, 0)];
        assert_eq!(victims(&all, RULES, None, 0), [3, 1, 4]);
        assert_eq!(victims(&all, RULES, Some(3), 0), [1, 4], "nobody makes room for itself");
        assert!(victims(&[], RULES, Some(1), 0).is_empty());
    }

    #[test]
    fn only_sessions_with_memory_of_that_device_make_room() {
        let all = [(1, 0b01), (2, 0b10), (3, 0b11)]
            .map(|(label, devices)| Candidate { devices, ..candidate(label, 100) });
        assert_eq!(victims(&all, RULES, None, 0b01), [1, 3]);
        assert_eq!(victims(&all, RULES, None, 0b10), [2, 3]);
        assert_eq!(victims(&all, RULES, None, 0b11), [1, 2, 3]);
        assert!(victims(&all, RULES, None, 0b100).is_empty());
        assert_eq!(victims(&all, RULES, None, 0), [1, 2, 3]);
    }

    #[test]
    fn a_session_without_memory_makes_no_room() {
        assert!(victims(&[Candidate { bytes: 0, ..candidate(1, 100) }], RULES, None, 0).is_empty());
    }

    #[test]
    fn who_was_brought_back_stays_for_a_while() {
        let rested = |seconds: u32, moving: u32| Candidate {
            rested: Some(seconds * SECOND),
            last_move: moving * SECOND,
            ..candidate(1, 100)
        };
        assert!(victims(&[rested(9, 0)], RULES, None, 0).is_empty());
        assert_eq!(victims(&[rested(10, 5)], RULES, None, 0), [1]);
        assert!(victims(&[rested(10, 6)], RULES, None, 0).is_empty(), "moving took longer");
        assert_eq!(victims(&[rested(12, 6)], RULES, None, 0), [1]);
    }

    #[test]
    fn a_machine_keeps_its_floor() {
        let rules = Rules { floor: 150, ..RULES };
        let of_one = |label, bytes| Candidate { connection: 7, bytes, ..candidate(label, 100) };
        assert_eq!(victims(&[of_one(1, 100), of_one(2, 60)], rules, None, 0), Vec::<u64>::new());
        assert_eq!(victims(&[of_one(1, 100), of_one(2, 160)], rules, None, 0), [1]);
        // The sum of figures that workers report does not overflow.
        assert_eq!(victims(&[of_one(1, u64::MAX), of_one(2, u64::MAX)], RULES, None, 0), [1, 2]);
    }
}
