// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel nodes that kernels change (CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::KernelWork;
use super::device_runtime::RunningGraph;
use crate::driver::handle::Handle;
use crate::driver::result::CuResult;
use crate::nested::error::RuntimeError;
use crate::nested::{NodeChange, Refusal};

/// All updatable nodes by CUgraphDeviceNode.
static NODES: Mutex<BTreeMap<u64, Weak<Updatable>>> = Mutex::new(BTreeMap::new());

/// The state of a node that kernels can change.
pub(in crate::driver) struct Updatable {
    /// CUgraphDeviceNode
    pub(in crate::driver) handle: u64,
    state: Mutex<Option<State>>,
    /// True if it is in an executable graph. It can be in only one at a time.
    taken: AtomicBool,
}

/// The work of the node in its executable graph.
struct State {
    kernel: Arc<KernelWork>,
    enabled: bool,
    /// The host's version ([`Wanted::version`]) from which this state was created.
    version: u64,
}

/// The host's state of a node of an executable graph. It takes effect when the stream reaches the next launch.
/// Launches that were queued before keep their state.
#[derive(Clone, Copy)]
pub(in crate::driver) struct Wanted<'a> {
    pub(in crate::driver) kernel: &'a Arc<KernelWork>,
    pub(in crate::driver) enabled: bool,
    /// The number of the state (see [`next_version`]).
    pub(in crate::driver) version: u64,
}

impl Wanted<'_> {
    fn state(self) -> State {
        State { kernel: Arc::clone(self.kernel), enabled: self.enabled, version: self.version }
    }
}

/// Returns a version for a state of the host. Each change, and each executable graph, has a higher version than those
/// before.
pub(in crate::driver) fn next_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn nodes() -> MutexGuard<'static, BTreeMap<u64, Weak<Updatable>>> {
    NODES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Updatable {
    /// Creates a node that is found by its handle as long as it lives.
    pub(in crate::driver) fn new() -> Arc<Updatable> {
        let handle = Handle::<()>::unique_high().0 as u64;
        let node = Arc::new(Updatable { handle, state: Mutex::default(), taken: AtomicBool::new(false) });
        nodes().insert(handle, Arc::downgrade(&node));
        node
    }

    /// Returns the node with this handle.
    pub(in crate::driver) fn find(handle: u64) -> Option<Arc<Updatable>> {
        nodes().get(&handle).and_then(Weak::upgrade)
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts it into an executable graph. Returns false if it is in one already.
    pub(in crate::driver) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::AcqRel)
    }

    /// Allows another executable graph to have it.
    pub(in crate::driver) fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Ends its executable graph and the launches of that graph. `version` is the last version there.
    pub(in crate::driver) fn end(&self, version: u64) {
        let mut state = self.lock();
        if state.as_ref().is_some_and(|state| state.version <= version) {
            *state = None;
        }
    }

    /// Uploads its executable graph: kernels can change it from now on.
    pub(in crate::driver) fn upload(&self, wanted: Wanted<'_>) {
        self.lock().get_or_insert_with(|| wanted.state());
    }

    /// Returns the node's work after the host's and the kernels' changes. Called when a stream reaches a launch or an
    /// upload.
    pub(in crate::driver) fn settle(&self, wanted: Wanted<'_>) -> (Arc<KernelWork>, bool) {
        let mut state = self.lock();
        let state = match &mut *state {
            // A newer executable graph has it.
            Some(state) if state.version > wanted.version => &mut wanted.state(),
            Some(state) if state.version == wanted.version => state,
            state => state.insert(wanted.state()),
        };
        (Arc::clone(&state.kernel), state.enabled)
    }

    /// Runs the node's present work, as a node of `graph`.
    pub(in crate::driver) fn run(&self, wanted: Wanted<'_>, graph: &dyn RunningGraph) -> CuResult<()> {
        let (kernel, enabled) = self.settle(wanted);
        if enabled { kernel.run(Some(graph)) } else { Ok(()) }
    }

    /// Applies a kernel's change to the node.
    fn change(&self, change: NodeChange<'_>) -> Result<(), RuntimeError> {
        let mut state = self.lock();
        let state = state.as_mut().ok_or(RuntimeError::INVALID_VALUE)?;
        let kernel = match change {
            NodeChange::Enabled(enabled) => {
                state.enabled = enabled;
                return Ok(());
            }
            NodeChange::Grid(grid) => state.kernel.with_grid(grid),
            NodeChange::Parameter(offset, bytes) => state.kernel.with_parameter(offset, bytes),
        };
        state.kernel = Arc::new(kernel.ok_or(RuntimeError::INVALID_VALUE)?);
        Ok(())
    }
}

impl Drop for Updatable {
    fn drop(&mut self) {
        nodes().remove(&self.handle);
    }
}

/// cudaGraphKernelNodeSetEnabled, cudaGraphKernelNodeSetGridDim, cudaGraphKernelNodeSetParam
pub(in crate::driver) fn change(node: u64, change: NodeChange<'_>) -> Result<(), Refusal> {
    if node == 0 {
        return Err(RuntimeError::INVALID_VALUE.into());
    }
    Ok(Updatable::find(node).ok_or(Refusal::NoHandle)?.change(change)?)
}
