// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The launches of an executor, and how often each has come.

use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use super::Stream;
use super::graphs::{Graph, Graphs};
use crate::gpu::{CuResult, Driver, OneKernel};
use crate::objects::Object;

/// The maximum number of launches that a table counts.
const MAX_KNOWN: usize = 1024;
/// Launches after which a table looks for graphs that were not used since the last look, where there is no room for another one.
const SWEEP: u32 = 16 * 1024;

/// The objects that a graph is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of<'r> {
    pub(super) code: &'r Arc<Object>,
    pub(super) stream: Stream<'r>,
    pub(super) context: &'r Weak<Object>,
}

/// The addresses of the three objects. A default stream has its name in place of an address.
type Key = (usize, u64, usize);

impl Of<'_> {
    fn key(self) -> Key {
        let stream =
            self.stream.object.map_or(self.stream.name.0, |stream| Arc::as_ptr(stream).addr() as u64);
        (Arc::as_ptr(self.code).addr(), stream, Weak::as_ptr(self.context).addr())
    }
}

/// The launches of an executor.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: FxHashMap<Key, Entry>,
    /// Launches since the last sweep.
    uses: u32,
}

#[derive(Debug)]
struct Entry {
    /// Keep the memory of the objects, so that no other ones get the addresses in the key.
    _code: Weak<Object>,
    _stream: Option<Weak<Object>>,
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
        of: Of<'_>,
        after: u32,
        make: impl FnOnce() -> CuResult<OneKernel>,
    ) -> Option<Arc<Graph>> {
        self.uses = self.uses.saturating_add(1);
        let key = of.key();
        if self.entries.len() >= MAX_KNOWN && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| matches!(entry.state, State::Ready(_)));
        }
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            _code: Arc::downgrade(of.code),
            _stream: of.stream.object.map(Arc::downgrade),
            _context: of.context.clone(),
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
        let made = graphs.make(of.context, make);
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
    pub(super) fn give_up(&mut self, gpu: &Driver, of: Of<'_>) {
        if let Some(entry) = self.entries.get_mut(&of.key()) {
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

#[cfg(test)]
mod tests {
    use virtio_cuda_protocol::cuda::StreamId;

    use super::super::graphs::tests::{kernel, object};
    use super::*;

    /// A graph has the priority of the stream that it was made for.
    #[test]
    fn a_stream_with_the_name_of_an_earlier_one_has_its_own_graph() {
        let (gpu, graphs, mut table) = (Driver::null(), Graphs::default(), Table::default());
        let (code, context) = (object(8), object(16));
        let mut graph = |stream: Option<&Arc<Object>>, name| {
            let stream = Stream { name: StreamId(name), object: stream, raw: std::ptr::null_mut() };
            let of = Of { code: &code, stream, context: &Arc::downgrade(&context) };
            table.graph((&gpu, &graphs), of, 1, || kernel(&gpu)).expect("there is room")
        };
        let (first, second) = (object(24), object(32));
        let made = graph(Some(&first), 16);
        assert!(Arc::ptr_eq(&made, &graph(Some(&first), 16)));
        assert!(!Arc::ptr_eq(&made, &graph(Some(&second), 16)));
        assert!(!Arc::ptr_eq(&graph(None, 1), &graph(None, 2)));
    }
}
