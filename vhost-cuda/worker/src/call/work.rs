// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a call that puts work on the GPU: its turn, where machines share GPU time, and its time limit.

use super::CallContext;
use super::time_limit::Timed;
use super::turns::Turn;
use crate::run::marks::Place;

/// A call's work.
#[derive(Debug, Default)]
pub struct Work {
    turn: Option<Turn>,
    timed: Option<Timed>,
}

impl Work {
    /// Waits until work may start. Must be called before the call locks anything.
    pub fn begin(cx: &CallContext<'_>, place: Place) -> Self {
        let turn = cx.session.turns.as_ref().and_then(|turns| turns.enter(cx, place));
        // The wait for the turn is not the work's.
        let timed = cx.session.time_limit.as_ref().and_then(|limit| limit.begin(cx, place));
        Self { turn, timed }
    }

    /// Notes that the work has started, or failed.
    pub fn started(self, cx: &CallContext<'_>) {
        if let Some(turn) = self.turn {
            turn.started(cx);
        }
        if let Some(timed) = self.timed {
            timed.started(cx);
        }
    }
}
