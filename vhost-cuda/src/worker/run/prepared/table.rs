// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs of frequent work, and how often other work has come.

use std::borrow::Borrow;
use std::collections::hash_map::Entry as Place;
use std::hash::Hash;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

use log::debug;
use rustc_hash::FxHashMap;

use crate::worker::gpu::{CuResult, Driver, OneKernel, while_current, with_capture_relaxed};
use crate::worker::objects::Object;

/// The maximum number of pieces of work that a table counts.
const MAX_KNOWN: usize = 1024;
/// Uses of a table after which it looks for graphs that were not used since the last look, where there is no room for another one.
const SWEEP: u32 = 16 * 1024;

/// The graphs of one kind in this worker.
#[derive(Debug)]
pub(super) struct Ready {
    count: AtomicUsize,
    most: usize,
}

impl Ready {
    /// Allows that many.
    pub(super) const fn at_most(most: usize) -> Self {
        Self { count: AtomicUsize::new(0), most }
    }

    fn reserve(&self) -> bool {
        let more = |count: usize| (count < self.most).then_some(count + 1);
        self.count.try_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn release(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An executable graph.
pub(super) trait Graph {
    /// Destroys it.
    fn end(self, gpu: &Driver) -> CuResult<()>;
}

impl Graph for OneKernel {
    fn end(self, gpu: &Driver) -> CuResult<()> {
        gpu.end_one_kernel(self)
    }
}

/// The way in which a piece of work is to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Queue it plainly.
    Plain,
    /// Make its graph, for which there is room, and pass it to [`Table::put`].
    Make,
    /// Launch its graph.
    Launch,
}

/// The work of an executor by its keys.
#[derive(Debug)]
pub(super) struct Table<K, G> {
    entries: FxHashMap<K, Entry<G>>,
    ready: &'static Ready,
    /// Uses since the last sweep.
    uses: u32,
}

#[derive(Debug)]
struct Entry<G> {
    /// Keeps the memory of an object, so that no other one gets the address in the key.
    _code: Weak<Object>,
    context: Weak<Object>,
    state: State<G>,
    /// True if it was used since the last sweep.
    used: bool,
}

#[derive(Debug)]
enum State<G> {
    Counted(u32),
    Ready(G),
    /// The driver refuses to prepare it.
    Plain,
}

impl<K: Eq + Hash, G: Graph> Table<K, G> {
    pub(super) fn new(ready: &'static Ready) -> Self {
        Self { entries: FxHashMap::default(), ready, uses: 0 }
    }

    /// Counts a piece of work. The graph is made the `after`th time.
    ///
    /// `owned`: the key, and the object whose address it contains. `context`: the context that the graph belongs to.
    pub(super) fn turn<Q: Eq + Hash + ?Sized>(
        &mut self,
        gpu: &Driver,
        key: &Q,
        after: u32,
        context: &Weak<Object>,
        owned: impl FnOnce() -> (K, Weak<Object>),
    ) -> Turn
    where
        K: Borrow<Q>,
    {
        self.uses = self.uses.saturating_add(1);
        if !self.entries.contains_key(key) {
            if self.entries.len() >= MAX_KNOWN {
                self.entries.retain(|_, entry| matches!(entry.state, State::Ready(_)));
            }
            let (key, code) = owned();
            if let Place::Vacant(place) = self.entries.entry(key) {
                let state = State::Counted(0);
                place.insert(Entry { _code: code, context: context.clone(), state, used: true });
            }
        }
        let Some(entry) = self.entries.get_mut(key) else { return Turn::Plain };
        entry.used = true;
        match &mut entry.state {
            State::Ready(_) => Turn::Launch,
            State::Plain => Turn::Plain,
            State::Counted(count) => {
                *count += 1;
                if *count < after {
                    return Turn::Plain;
                }
                if self.ready.reserve() {
                    return Turn::Make;
                }
                self.sweep(gpu);
                Turn::Plain
            }
        }
    }

    /// Keeps the graph that was made on [`Turn::Make`]; on an error the work stays plain.
    pub(super) fn put<Q: Eq + Hash + ?Sized>(&mut self, key: &Q, made: CuResult<G>)
    where
        K: Borrow<Q>,
    {
        let state = made.map_or(State::Plain, State::Ready);
        if matches!(state, State::Plain) {
            self.ready.release();
        }
        if let Some(entry) = self.entries.get_mut(key) {
            entry.state = state;
        }
    }

    /// Returns the graph of a piece of work.
    pub(super) fn graph<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&G>
    where
        K: Borrow<Q>,
    {
        match &self.entries.get(key)?.state {
            State::Ready(graph) => Some(graph),
            _ => None,
        }
    }

    /// Ends the graph of a piece of work, which stays plain.
    pub(super) fn give_up<Q: Eq + Hash + ?Sized>(&mut self, gpu: &Driver, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(entry) = self.entries.get_mut(key) {
            end(gpu, self.ready, entry);
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
                end(gpu, self.ready, entry);
            }
            keep
        });
    }

    /// Ends all of them.
    pub(super) fn clear(&mut self, gpu: &Driver) {
        for (_, mut entry) in self.entries.drain() {
            end(gpu, self.ready, &mut entry);
        }
    }
}

/// Ends an entry's graph. If its context has ended, the driver has freed a part of it, and must not be called: the rest stays,
/// and counts as a graph for ever.
fn end<G: Graph>(gpu: &Driver, ready: &Ready, entry: &mut Entry<G>) {
    let State::Ready(graph) = std::mem::replace(&mut entry.state, State::Plain) else { return };
    let Some(context) = entry.context.upgrade() else { return };
    ready.release();
    let ended = with_capture_relaxed(gpu, || while_current(gpu, context.raw(), || graph.end(gpu)));
    if let Err(error) = ended {
        debug!("a prepared launch does not end: {error}");
    }
}
