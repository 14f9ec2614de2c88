// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host memory that workers keep ready for contents (`--suspend-pool`).
//!
//! The pool is an amount, which is divided among the sessions: each worker keeps its share as private memory. A worker could go on
//! reading memory that it has had in common with the daemon, so no page of one session is ever given to another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vhost_cuda_common::link::POOL_BLOCK_BYTES as BLOCK;

use super::Suspender;
use crate::sessions::session::Session;

/// The minimum time between two times that shares shrink. A session that allocates and frees in turn cannot keep the workers of
/// others busy with giving back pages and getting new ones.
const REST: Duration = Duration::from_secs(10);
/// The time for which there is no pool after a suspension has found no host memory.
const BREAK: Duration = Duration::from_secs(60);

/// The state of the division.
#[derive(Debug, Default)]
pub struct Division {
    /// The time when shares have shrunk.
    pub(super) shrunk: Option<Instant>,
    /// The time when the pool was given up for a suspension.
    pub(super) given_up: Option<Instant>,
}

impl Suspender {
    /// Divides the pool among the sessions by the device memory that they have now.
    pub(super) fn divide_pool(&self) {
        let mut division = self.division.lock();
        let is_over = |then: Option<Instant>, time| then.is_none_or(|then: Instant| then.elapsed() >= time);
        let pool = if is_over(division.given_up, BREAK) { self.options.pool } else { 0 };
        let sessions = self.all_sessions();
        let kept = |session: &Arc<Session>| {
            let residence = session.residence();
            residence.moves().stored_bytes.min(residence.pool_bytes()).saturating_add(session.ready_memory())
        };
        let pool = self.host.pool(pool, sessions.iter().map(kept).fold(0, u64::saturating_add));
        let wants: Vec<u64> = sessions.iter().map(|session| self.device_memory(session)).collect();
        let shares = shares(&wants, pool);
        let now = || sessions.iter().map(|session| session.residence().pool_bytes());
        if is_over(division.shrunk, REST) || now().fold(0, u64::saturating_add) > pool {
            let too_much =
                |(session, share): &(&Arc<Session>, &u64)| session.residence().pool_bytes() > **share;
            for (session, share) in sessions.iter().zip(&shares).filter(too_much) {
                session.keep_pool(*share, |bytes| self.host.charge(bytes));
                division.shrunk = Some(Instant::now());
            }
        }
        let mut left = pool.saturating_sub(now().fold(0, u64::saturating_add));
        for (session, share) in sessions.iter().zip(&shares) {
            let has = session.residence().pool_bytes();
            let more = share.saturating_sub(has).min(left);
            if more > 0 {
                left -= more;
                session.keep_pool(has + more, |bytes| self.host.charge(bytes));
            }
        }
    }

    /// Gives up the pool for a while: the suspension of session `label`, which may use its own share, needs the others'. Returns
    /// whether there were any.
    pub(super) fn give_up_pool(&self, label: u64) -> bool {
        let mut division = self.division.lock();
        division.given_up = Some(Instant::now());
        let sessions = self.all_sessions();
        let has_share =
            |session: &&Arc<Session>| session.label() != label && session.residence().pool_bytes() > 0;
        let some = sessions.iter().filter(has_share);
        some.map(|session| session.keep_pool(0, |bytes| self.host.charge(bytes))).count() > 0
    }

    /// The host memory that workers have ready, as far as they were told to, and the size of the pool, in bytes.
    pub fn pool(&self) -> (u64, u64) {
        let ready =
            self.all_sessions().iter().map(|session| session.ready_memory()).fold(0, u64::saturating_add);
        (ready, self.options.pool)
    }
}

/// Returns each session's share of `pool` bytes, in whole blocks: all that it wants if there is enough for all, otherwise in
/// proportion to that. No session counts for more than the pool, whatever its worker says of its device memory.
fn shares(wants: &[u64], pool: u64) -> Vec<u64> {
    let blocks = |bytes: u64| u128::from(bytes.min(pool).div_ceil(BLOCK));
    let sum: u128 = wants.iter().map(|want| blocks(*want)).sum();
    let all = u128::from(pool / BLOCK);
    let share = |want: &u64| if sum <= all { blocks(*want) } else { blocks(*want) * all / sum };
    // At most `pool`.
    wants.iter().map(|want| u64::try_from(share(want)).unwrap_or(0) * BLOCK).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_get_what_they_want_or_their_share_of_it() {
        let of = |wants: &[u64], pool: u64| {
            let wants: Vec<u64> = wants.iter().map(|want| want * BLOCK / 2).collect();
            shares(&wants, pool * BLOCK).into_iter().map(|share| share / BLOCK).collect::<Vec<_>>()
        };
        assert!(of(&[], 5).is_empty());
        assert_eq!(of(&[3, 0, 4], 5), [2, 0, 2], "in whole blocks");
        assert_eq!(of(&[8, 12], 6), [2, 3]);
        assert_eq!(of(&[8, 24], 8), [2, 5], "none counts for more than all");
        let most = u64::MAX / BLOCK * BLOCK;
        assert_eq!(shares(&[u64::MAX, u64::MAX, 0], 4 * BLOCK), [2 * BLOCK, 2 * BLOCK, 0]);
        assert_eq!(shares(&[1, u64::MAX], u64::MAX), [0, most - BLOCK]);
        for pool in [0, 1, BLOCK - 1] {
            assert_eq!(shares(&[1, BLOCK], pool), [0, 0]);
        }
    }
}
