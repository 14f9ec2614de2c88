// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Moves of programs between two daemons at random moments.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::mover::{Moved, Mover, Order};

/// The longest sleep after which it is looked whether the programs have ended.
const LOOK: Duration = Duration::from_millis(20);

/// The moves of programs, and the reasons for which they have stayed.
#[derive(Debug, Default)]
pub struct Moves {
    there: AtomicU64,
    refused: Mutex<BTreeMap<String, u64>>,
}

impl Moves {
    fn note(&self, moved: Moved) {
        match moved {
            Moved::There(_) => drop(self.there.fetch_add(1, Ordering::Relaxed)),
            Moved::Stays(why) | Moved::Lost(why) => {
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(why).or_default() += 1;
            }
            Moved::TooEarly | Moved::Gone => {}
        }
    }

    /// The number of moves.
    pub fn count(&self) -> u64 {
        self.there.load(Ordering::Relaxed)
    }
}

/// The moments of moves.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    /// The seed of pauses and orders.
    pub seed: u64,
    /// The part of a pause that is so many times as long as the move before it.
    pub times: u32,
    /// The maximum of its random part.
    pub pause: Duration,
    /// The number of moves after which programs stay.
    pub most: u64,
}

/// Runs `body` while the programs of `mover` move between the daemons at `sockets`, and counts the moves in `moves`.
///
/// Errors: those of `body`.
pub fn while_moving(
    mover: &Mover,
    sockets: &[PathBuf; 2],
    moments: Moments,
    moves: &Moves,
    body: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let moving = scope.spawn(|| {
            let mut random = Rng::with_seed(moments.seed);
            let mut to = 0;
            while !is_over.load(Ordering::Relaxed) && moves.count() < moments.most {
                to = 1 - to;
                let begun = Instant::now();
                let order = if random.bool() { Order::StateFirst } else { Order::MemoryFirst };
                mover.move_to(&sockets[to], order).into_iter().for_each(|moved| moves.note(moved));
                let pause = moments.times * begun.elapsed() + moments.pause.mul_f64(random.f64());
                let until = Instant::now() + pause;
                while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
                }
            }
        });
        let result = body();
        is_over.store(true, Ordering::Relaxed);
        moving.join().ok().context("moves have failed")?;
        result
    })
}
