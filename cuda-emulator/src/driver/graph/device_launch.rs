// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs that kernels launch.
//!
//! The launches of a graph's kernels run after its own nodes: first the fire-and-forget ones, then the tail launches,
//! each with all its own launches before the next. The programming guide allows this order and guarantees no other.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::exec::{self, Body, CUgraphExec, GraphExec};
use crate::driver::context::Context;
use crate::driver::handle::Handle;
use crate::driver::launch::RunningGraph;
use crate::driver::result::CuResult;
use crate::nested::Refusal;
use crate::nested::error::RuntimeError;

/// cudaStreamGraphTailLaunch, cudaStreamGraphFireAndForget, cudaStreamGraphFireAndForgetAsSibling
const TAIL: u64 = 0x0100_0000_0000_0000;
const FIRE_AND_FORGET: u64 = 0x0200_0000_0000_0000;
const SIBLING: u64 = 0x0300_0000_0000_0000;
/// The maximum number of graphs that one graph may launch, and of its waiting tail launches (programming guide).
const MAX_FIRED: usize = 120;
const MAX_TAILS: usize = 255;

/// A graph whose nodes are running.
pub(super) struct Running {
    /// NULL if kernels cannot launch it.
    exec: CUgraphExec,
    launched: Mutex<Launched>,
}

/// A graph, and its body at the time of the launch.
type Launch = (Arc<GraphExec>, Arc<Body>);

/// The launches of a graph that have not begun.
#[derive(Default)]
struct Launched {
    fired: VecDeque<Launch>,
    siblings: VecDeque<Launch>,
    tails: VecDeque<Launch>,
    /// The number of fire-and-forget launches, including siblings.
    count: usize,
}

impl Launched {
    fn next(&mut self) -> Option<Launch> {
        self.fired.pop_front().or_else(|| self.tails.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.fired.is_empty() && self.tails.is_empty()
    }
}

impl Running {
    fn new(exec: &GraphExec) -> Running {
        let exec = if exec.is_for_device() { exec.handle } else { Handle::NULL };
        Running { exec, launched: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Launched> {
        self.launched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningGraph for Running {
    fn current(&self) -> u64 {
        self.exec.0 as u64
    }

    fn launch(&self, exec: u64, stream: u64) -> Result<(), Refusal> {
        let invalid = Refusal::Error(RuntimeError::INVALID_VALUE);
        if exec == 0 || !matches!(stream, TAIL | FIRE_AND_FORGET | SIBLING) {
            return Err(invalid);
        }
        let exec = usize::try_from(exec).map_err(|_| Refusal::NoHandle)?;
        let exec = exec::find(Handle::new(exec)).map_err(|_| Refusal::NoHandle)?;
        if !exec.is_for_device() {
            return Err(Refusal::NoHandle);
        }
        let body = exec.uploaded().ok_or(invalid)?;
        let mut launched = self.lock();
        let full = match stream {
            TAIL => launched.tails.len() >= MAX_TAILS,
            _ => launched.count >= MAX_FIRED,
        };
        // A graph can be launched when its last launch has ended. It may launch itself once, as a tail launch.
        let itself = stream == TAIL
            && exec.handle == self.exec
            && launched.tails.iter().all(|(tail, _)| tail.handle != self.exec);
        if full || exec.waiting.swap(true, Ordering::AcqRel) && !itself {
            return Err(invalid);
        }
        match stream {
            TAIL => launched.tails.push_back((exec, body)),
            SIBLING => launched.siblings.push_back((exec, body)),
            _ => launched.fired.push_back((exec, body)),
        }
        launched.count += usize::from(stream != TAIL);
        Ok(())
    }
}

/// Runs a graph that the host launches, and all graphs that it launches.
pub(super) fn run(
    exec: &Arc<GraphExec>,
    body: &Body,
    context: &Context,
    stamps: &mut VecDeque<Arc<OnceLock<Instant>>>,
) -> CuResult<()> {
    let mut launched = run_one(exec, body, context, stamps)?;
    let siblings = Launched { fired: std::mem::take(&mut launched.siblings), ..Launched::default() };
    let mut open = vec![siblings, launched];
    while let Some(last) = open.last_mut() {
        let next = last.next();
        // No empty entry is kept, because a graph may launch itself endlessly.
        if last.is_empty() {
            open.pop();
        }
        let Some((exec, body)) = next else { continue };
        let mut launched = run_one(&exec, &body, context, &mut VecDeque::new())?;
        match open.last_mut() {
            Some(parent) => parent.fired.append(&mut launched.siblings),
            None => launched.fired.append(&mut launched.siblings),
        }
        if !launched.is_empty() {
            open.push(launched);
        }
    }
    Ok(())
}

/// Runs the nodes of a graph. Returns their launches.
fn run_one(
    exec: &GraphExec,
    body: &Body,
    context: &Context,
    stamps: &mut VecDeque<Arc<OnceLock<Instant>>>,
) -> CuResult<Launched> {
    let running = Running::new(exec);
    exec.waiting.store(true, Ordering::Release);
    body.start();
    body.run(context, stamps, &running)?;
    let launched = running.launched.into_inner().unwrap_or_else(PoisonError::into_inner);
    let again = launched.tails.iter().any(|(tail, _)| tail.handle == exec.handle);
    exec.waiting.store(again, Ordering::Release);
    Ok(launched)
}
