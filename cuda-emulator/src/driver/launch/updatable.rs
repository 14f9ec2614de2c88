// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel nodes that kernels change (CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// It is in an executable graph: there can be one at a time.
    taken: AtomicBool,
}

/// The work of the node in its executable graph.
struct State {
    kernel: Arc<KernelWork>,
    enabled: bool,
}

fn nodes() -> MutexGuard<'static, BTreeMap<u64, Weak<Updatable>>> {
    NODES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Updatable {
    /// A node that is found by its handle for as long as it lives.
    pub(in crate::driver) fn new() -> Arc<Updatable> {
        let handle = Handle::<()>::mint_high().0 as u64;
        let node = Arc::new(Updatable { handle, state: Mutex::default(), taken: AtomicBool::new(false) });
        nodes().insert(handle, Arc::downgrade(&node));
        node
    }

    /// The node with this handle.
    pub(in crate::driver) fn find(handle: u64) -> Option<Arc<Updatable>> {
        nodes().get(&handle).and_then(Weak::upgrade)
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is in an executable graph now; false if it is in one already.
    pub(in crate::driver) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::AcqRel)
    }

    /// Its executable graph is no more.
    pub(in crate::driver) fn release(&self) {
        *self.lock() = None;
        self.taken.store(false, Ordering::Release);
    }

    /// Its executable graph is uploaded, in which the host wants the node to do this.
    pub(in crate::driver) fn upload(&self, kernel: &Arc<KernelWork>, enabled: bool) {
        self.lock().get_or_insert_with(|| State { kernel: Arc::clone(kernel), enabled });
    }

    /// The host has changed the node in its executable graph.
    pub(in crate::driver) fn set(&self, kernel: &Arc<KernelWork>, enabled: bool) {
        if let Some(state) = self.lock().as_mut() {
            *state = State { kernel: Arc::clone(kernel), enabled };
        }
    }

    /// Runs what the node does now, as a node of `graph`; of one that was destroyed after its launch, what the host wanted.
    pub(in crate::driver) fn run(
        &self,
        kernel: &Arc<KernelWork>,
        enabled: bool,
        graph: &dyn RunningGraph,
    ) -> CuResult<()> {
        let (kernel, enabled) = match &*self.lock() {
            Some(state) => (Arc::clone(&state.kernel), state.enabled),
            None => (Arc::clone(kernel), enabled),
        };
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
