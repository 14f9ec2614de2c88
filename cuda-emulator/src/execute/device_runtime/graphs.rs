// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels that launch graphs, and change nodes of graphs.

use super::caller::{Caller, End, with_status};
use crate::code::{Handler, Instr};
use crate::execute::state::{Flow, Machine};
use crate::launch::FaultKind;
use crate::nested::error::RuntimeError;
use crate::nested::{NodeChange, Refusal};

/// cudaGraphKernelNodeField
const FIELD_GRID: u32 = 1;
const FIELD_PARAM: u32 = 2;
const FIELD_ENABLED: u32 = 3;
/// The maximum number of bytes of parameters that a kernel has.
const MAX_PARAM_BYTES: u64 = 32 << 10;
/// sizeof(cudaGraphKernelNodeUpdate)
const UPDATE_BYTES: u64 = 40;

pub(super) fn select(name: &str) -> Option<(Handler, usize)> {
    Some(match name {
        "GraphLaunch" => (graph_launch, 2),
        "GraphKernelNodeSetParam" => (set_param, 4),
        "GraphKernelNodeSetEnabled" => (set_enabled, 2),
        "GraphKernelNodeSetGridDim" => (set_grid, 2),
        "GraphKernelNodeUpdatesApply" => (apply, 2),
        _ => return None,
    })
}

impl Caller<'_, '_> {
    /// Returns the end of a refused call that was given `handle`.
    fn refused(&mut self, refusal: Refusal, handle: u64) -> End {
        match refusal {
            Refusal::Error(error) => error.into(),
            Refusal::NoHandle => {
                let what = format!("{handle:#x} is no graph or node for the device");
                self.machine.fail(self.instr, self.lane, FaultKind::IllegalAddress, handle, &what).into()
            }
        }
    }
}

impl Caller<'_, '_> {
    fn change(&mut self, node: u64, change: NodeChange<'_>) -> Result<(), End> {
        let changed = self.machine.grid.launch.device.change_node(node, change);
        changed.map_err(|refusal| self.refused(refusal, node))
    }

    /// Changes `bytes` bytes of a node's parameters to those at an address.
    fn change_param(&mut self, node: u64, offset: u64, value: u64, bytes: u64) -> Result<(), End> {
        if bytes > MAX_PARAM_BYTES {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        let mut copy = vec![0; bytes as usize];
        if bytes > 0 {
            let place = self.machine.generic(self.instr, self.lane, value, bytes)?;
            // SAFETY: checked for that many bytes.
            unsafe { std::ptr::copy_nonoverlapping(place, copy.as_mut_ptr(), copy.len()) };
        }
        self.change(node, NodeChange::Parameter(offset, &copy))
    }

    /// Applies a cudaGraphKernelNodeUpdate.
    fn apply(&mut self, update: u64) -> Result<(), End> {
        let bytes: [u8; UPDATE_BYTES as usize] = self.load(update)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let node = long(0);
        match word(8) {
            FIELD_GRID => self.change(node, NodeChange::Grid([word(16), word(20), word(24)])),
            FIELD_PARAM => self.change_param(node, long(24), long(16), long(32)),
            FIELD_ENABLED => self.change(node, NodeChange::Enabled(word(16) != 0)),
            _ => Err(RuntimeError::INVALID_VALUE.into()),
        }
    }
}

/// `cudaError_t cudaGraphKernelNodeSetParam(cudaGraphDeviceNode_t node, size_t offset, const void *value, size_t size)`
unsafe fn set_param(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let [node, offset, value, bytes] = [0, 1, 2, 3].map(|index| caller.argument(index));
        caller.change_param(node, offset, value, bytes)
    })
}

/// `cudaError_t cudaGraphKernelNodeSetEnabled(cudaGraphDeviceNode_t node, bool enable)`
unsafe fn set_enabled(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (node, enabled) = (caller.argument(0), caller.argument(1));
        caller.change(node, NodeChange::Enabled(enabled as u8 != 0))
    })
}

/// `cudaError_t cudaGraphKernelNodeSetGridDim(cudaGraphDeviceNode_t node, dim3 gridDim)`
unsafe fn set_grid(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (node, grid) = (caller.argument(0), caller.dimensions(1));
        caller.change(node, NodeChange::Grid(grid))
    })
}

/// `cudaError_t cudaGraphKernelNodeUpdatesApply(const cudaGraphKernelNodeUpdate *updates, size_t count)`
unsafe fn apply(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (updates, count) = (caller.argument(0), caller.argument(1));
        // A count that is too large runs into memory that is not there.
        (0..count).try_for_each(|index| caller.apply(updates.wrapping_add(index.wrapping_mul(UPDATE_BYTES))))
    })
}

/// `cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)`
unsafe fn graph_launch(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (exec, stream) = (caller.argument(0), caller.argument(1));
        let launched = caller.machine.grid.launch.device.launch_graph(exec, stream);
        launched.map_err(|refusal| caller.refused(refusal, exec))
    })
}
