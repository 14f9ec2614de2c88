// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The launches of an executor, and how often each has come.

use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use super::graphs::{Graph, Graphs};
use crate::worker::gpu::{CuResult, Driver, OneKernel};
use crate::worker::objects::Object;

/// The maximum number of launches that a table counts.
const MAX_KNOWN: usize = 1024;
/// Launches after which a table looks for graphs that were not used since the last look, where there is no room for another one.
const SWEEP: u32 = 16 * 1024;

/// A function's object, the name of a stream, and a context's object. The entry keeps the memory of both objects, so that no
/// other object gets their addresses.
pub(super) type Key = (usize, u64, usize);

/// The launches of an executor.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: FxHashMap<Key, Entry>,
    /// Launches since the last sweep.
    uses: u32,
}

#[derive(Debug)]
struct Entry {
    /// Both keep the memory of an object whose address the key contains.
    _code: Weak<Object>,
    _context: Weak<Object>,
    state: State,
    /// True if it was used since the last sweep.
    used: bool,
}

#[derive(Debug)]
enum State {
    Counted(u32),
    Ready(Arc<Graph>),
    /// The driver refuses to prepare it.
    Plain,
}

impl Table {
    /// Counts a launch. Returns its graph, which is made by `make` the `after`th time; `None`: launch plainly.
    pub(super) fn graph(
        &mut self,
        (gpu, graphs): (&Driver, &Graphs),
        (code, stream, context): (&Arc<Object>, u64, &Weak<Object>),
        after: u32,
        make: impl FnOnce() -> CuResult<OneKernel>,
    ) -> Option<Arc<Graph>> {
        self.uses = self.uses.saturating_add(1);
        let key = key(code, stream, context);
        if self.entries.len() >= MAX_KNOWN && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| matches!(entry.state, State::Ready(_)));
        }
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            _code: Arc::downgrade(code),
            _context: context.clone(),
            state: State::Counted(0),
            used: true,
        });
        entry.used = true;
        match &mut entry.state {
            State::Ready(graph) => return Some(graph.clone()),
            State::Plain => return None,
            State::Counted(count) => {
                *count += 1;
                if *count < after {
                    return None;
                }
            }
        }
        let made = graphs.make(context, make);
        entry.state = match &made {
            Some(Ok(graph)) => State::Ready(graph.clone()),
            Some(Err(_)) => State::Plain,
            None => State::Counted(0),
        };
        if made.is_none() {
            self.sweep(gpu);
        }
        made?.ok()
    }

    /// Ends the graph of a launch, which stays plain.
    pub(super) fn give_up(
        &mut self,
        gpu: &Driver,
        (code, stream, context): (&Arc<Object>, u64, &Weak<Object>),
    ) {
        if let Some(entry) = self.entries.get_mut(&key(code, stream, context)) {
            entry.end(gpu);
        }
    }

    /// Ends graphs that were not used since the last sweep, if that was long ago.
    fn sweep(&mut self, gpu: &Driver) {
        if self.uses < SWEEP {
            return;
        }
        self.uses = 0;
        self.entries.retain(|_, entry| {
            let keep = std::mem::take(&mut entry.used);
            if !keep {
                entry.end(gpu);
            }
            keep
        });
    }

    /// Ends all of them.
    pub(super) fn clear(&mut self, gpu: &Driver) {
        for (_, mut entry) in self.entries.drain() {
            entry.end(gpu);
        }
    }
}

impl Entry {
    fn end(&mut self, gpu: &Driver) {
        if let State::Ready(graph) = std::mem::replace(&mut self.state, State::Plain) {
            graph.end(gpu);
        }
    }
}

fn key(code: &Arc<Object>, stream: u64, context: &Weak<Object>) -> Key {
    (Arc::as_ptr(code).addr(), stream, Weak::as_ptr(context).addr())
}
