// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds the host memory that one guest's outstanding requests occupy, in the daemon and (once more) in its workers.
//!
//! Each session has a reserved part, so that a session that leaves its requests unanswered does not block the others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The maximum bytes of outstanding requests of one connection. A request needs up to 0.6 MB (64 MiB of scattered
/// pages in both directions), usually far less than 1 KB.
const MAX_BYTES: usize = 256 << 20;
/// The bytes that are reserved for each session, if all of that is at most half of [`MAX_BYTES`]: one request of any
/// size.
const RESERVED_BYTES: usize = 1 << 20;

/// The memory that the outstanding requests of one connection occupy.
#[derive(Debug)]
pub struct RequestBudget {
    reserved: usize,
    /// The part that all sessions share, in any order.
    common: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The bytes of sessions with outstanding requests.
    used: HashMap<u64, usize>,
    borrowed: usize,
}

/// A share of a [`RequestBudget`], released when dropped.
#[derive(Debug)]
pub struct RequestCharge {
    budget: Arc<RequestBudget>,
    session: u64,
    bytes: usize,
}

impl RequestBudget {
    /// Returns a budget for at most `max_sessions` sessions.
    pub fn new(max_sessions: u32) -> Arc<Self> {
        let sessions = (max_sessions as usize).max(1);
        let reserved = RESERVED_BYTES.min(MAX_BYTES / 2 / sessions);
        let common = MAX_BYTES - reserved * sessions;
        Arc::new(Self { reserved, common, state: Mutex::default() })
    }

    /// Charges `bytes` for `session`. Returns `None` if that exceeds the limit.
    pub fn charge(self: &Arc<Self>, session: u64, bytes: usize) -> Option<RequestCharge> {
        let mut state = self.state.lock();
        let used = state.used.get(&session).copied().unwrap_or(0);
        let sum = used.checked_add(bytes)?;
        let borrowed = state.borrowed + (self.beyond(sum) - self.beyond(used));
        if borrowed > self.common {
            return None;
        }
        state.borrowed = borrowed;
        state.used.insert(session, sum);
        Some(RequestCharge { budget: self.clone(), session, bytes })
    }

    /// Returns the bytes that all sessions together occupy.
    pub fn used(&self) -> usize {
        self.state.lock().used.values().sum()
    }

    /// Returns the part of a session's `used` bytes that exceeds its own share.
    fn beyond(&self, used: usize) -> usize {
        used.saturating_sub(self.reserved)
    }
}

impl Drop for RequestCharge {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        let used = state.used.remove(&self.session).unwrap_or(0);
        let rest = used.saturating_sub(self.bytes);
        state.borrowed -= self.budget.beyond(used) - self.budget.beyond(rest);
        if rest > 0 {
            state.used.insert(self.session, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_bounded_and_given_back() {
        let budget = RequestBudget::new(1);
        let most = budget.charge(7, MAX_BYTES).unwrap();
        assert!(budget.charge(7, 1).is_none());
        assert!(budget.charge(7, usize::MAX).is_none());
        drop(most);
        assert!(budget.charge(7, MAX_BYTES).is_some());
        assert!(budget.state.lock().used.is_empty());
    }

    #[test]
    fn a_session_cannot_take_the_part_of_another() {
        let budget = RequestBudget::new(64);
        let most = MAX_BYTES - 63 * RESERVED_BYTES;
        let greedy = budget.charge(1, most).unwrap();
        assert!(budget.charge(1, 1).is_none());
        let others: Vec<_> =
            (2..=64).map(|session| budget.charge(session, RESERVED_BYTES).unwrap()).collect();
        assert!(budget.charge(2, 1).is_none());
        drop(greedy);
        let second = budget.charge(2, 10).unwrap();
        drop(others);
        drop(second);
        assert!(budget.charge(1, most).is_some());
        assert_eq!(budget.state.lock().borrowed, 0);
    }

    #[test]
    fn many_sessions_have_a_smaller_part_each() {
        let budget = RequestBudget::new(1024);
        let _greedy = budget.charge(1, MAX_BYTES / 2).unwrap();
        assert!(budget.charge(2, MAX_BYTES / 2 / 1024).is_some());
    }
}
