// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of the program that were set in executable graphs after their creation.
//!
//! The callbacks of a graph's own nodes are tied to the graph (`handlers::graph::node`), and the driver lets executable
//! graphs share them. A function that is set later belongs to the executable graph alone, to which the driver can tie nothing.
//! The guest is notified to forget it once it was replaced, or the graph was destroyed, and the last launch is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use parking_lot::Mutex;
use virtio_cuda_protocol::cuda::{CallbackId, ContextId, GraphExecId, GraphNodeId, StreamId};

/// The latest launch of a graph. The driver executes launches of one graph one after the other, so that all are
/// over when this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub stream: StreamId,
    pub context: ContextId,
    pub thread: ThreadId,
}

/// Functions of one executable graph.
#[derive(Debug, Default)]
struct Own {
    by_node: HashMap<u64, CallbackId>,
    last: Option<Launch>,
    /// True if a captured launch has copied them: the copy may live for ever.
    copied: bool,
}

/// The callbacks of all executable graphs of a session.
#[derive(Debug, Default)]
pub struct ExecCallbacks {
    graphs: Mutex<HashMap<u64, Own>>,
    /// True if there are any. Launches do not take the lock otherwise.
    any: AtomicBool,
}

/// Functions that the guest has to forget, and the launch after which it may.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Retired {
    pub callbacks: Vec<CallbackId>,
    pub after: Option<Launch>,
}

impl Own {
    fn retire(&self, callbacks: Vec<CallbackId>) -> Retired {
        if self.copied { Retired::default() } else { Retired { callbacks, after: self.last } }
    }
}

impl ExecCallbacks {
    /// Notes another function of a node. Returns the earlier one.
    #[must_use]
    pub fn replaced(&self, exec: GraphExecId, node: GraphNodeId, callback: CallbackId) -> Retired {
        let mut graphs = self.graphs.lock();
        self.any.store(true, Ordering::Release);
        let own = graphs.entry(exec.0).or_default();
        let earlier = own.by_node.insert(node.0, callback);
        own.retire(earlier.into_iter().collect())
    }

    /// Forgets all functions: they come from a graph now, or the executable graph was destroyed.
    #[must_use]
    pub fn dropped(&self, exec: GraphExecId) -> Retired {
        if !self.any.load(Ordering::Acquire) {
            return Retired::default();
        }
        let Some(mut own) = self.graphs.lock().remove(&exec.0) else { return Retired::default() };
        let all = own.by_node.drain().map(|(_, callback)| callback).collect();
        own.retire(all)
    }

    /// Notes that a graph is being launched.
    pub fn launched(&self, exec: GraphExecId, launch: Launch, captured: bool) {
        if let Some(own) = self.graphs.lock().get_mut(&exec.0) {
            own.copied |= captured;
            own.last = Some(launch);
        }
    }

    /// Returns whether a captured launch has copied functions, so that they may live for ever.
    pub fn has_copies(&self) -> bool {
        self.graphs.lock().values().any(|own| own.copied)
    }

    /// Forgets all functions, without a word to the guest: the graphs are made again.
    pub fn clear(&self) {
        self.graphs.lock().clear();
    }

    /// Returns whether a graph has functions of its own.
    pub fn has(&self, exec: GraphExecId) -> bool {
        self.any.load(Ordering::Acquire) && self.graphs.lock().contains_key(&exec.0)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const EXEC: GraphExecId = GraphExecId(0x100);
    const NODE: GraphNodeId = GraphNodeId(0x200);

    fn launch() -> Launch {
        Launch { stream: StreamId(1), context: ContextId(3), thread: thread::current().id() }
    }

    #[test]
    fn what_was_never_launched_is_forgotten_at_once() {
        let own = ExecCallbacks::default();
        assert!(!own.has(EXEC));
        assert_eq!(own.replaced(EXEC, NODE, CallbackId(1)), Retired::default());
        let earlier = own.replaced(EXEC, NODE, CallbackId(2));
        assert_eq!(earlier, Retired { callbacks: vec![CallbackId(1)], after: None });
        assert_eq!(own.dropped(EXEC), Retired { callbacks: vec![CallbackId(2)], after: None });
        assert_eq!(own.dropped(EXEC), Retired::default());
    }

    #[test]
    fn a_launch_is_waited_for() {
        let own = ExecCallbacks::default();
        let _ = own.replaced(EXEC, NODE, CallbackId(1));
        own.launched(EXEC, launch(), false);
        let earlier = own.replaced(EXEC, NODE, CallbackId(2));
        assert_eq!(earlier, Retired { callbacks: vec![CallbackId(1)], after: Some(launch()) });
    }

    #[test]
    fn what_a_capture_has_copied_is_kept() {
        let own = ExecCallbacks::default();
        let _ = own.replaced(EXEC, NODE, CallbackId(1));
        own.launched(EXEC, launch(), true);
        assert_eq!(own.replaced(EXEC, NODE, CallbackId(2)), Retired::default());
        assert_eq!(own.dropped(EXEC), Retired::default());
    }
}
