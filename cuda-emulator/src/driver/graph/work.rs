// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The execution of a node.

use std::ffi::c_void;
use std::sync::Arc;

use super::body::Graph;
use super::conditional::Conditional;
use super::memory::GraphMemory;
use super::params;
use cuda_abi::{CUDA_MEMCPY3D, CopyEnd3D};

use crate::driver::array;
use crate::driver::copy::{Fill, Kind, Side, Transfer};
use crate::driver::device::{self, CUdeviceptr};
use crate::driver::event::{CUevent, Event};
use crate::driver::ffi::in_host_function;
use crate::driver::launch::{KernelWork, RunningGraph};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::mem_op;
use crate::driver::stream::mem_op::MemOp;

/// The work of a node.
#[derive(Clone)]
pub(in super::super) enum Work {
    Kernel(Arc<KernelWork>),
    Copy(Arc<CopyWork>),
    Fill(Fill),
    Host(HostWork),
    Child(Arc<Graph>),
    Empty,
    EventWait(CUevent, Arc<Event>),
    EventRecord(CUevent, Arc<Event>),
    Alloc(Arc<GraphMemory>),
    /// With the memory, if a node of the same graph allocates it.
    Free(CUdeviceptr, Option<Arc<GraphMemory>>),
    MemOps(Arc<[MemOp]>),
    /// A node of this kind with an empty list of semaphores.
    Semaphores(u32),
    Conditional(Arc<Conditional>),
}

impl Work {
    /// CUgraphNodeType
    pub(super) fn kind(&self) -> u32 {
        match self {
            Work::Kernel(_) => params::KERNEL,
            Work::Copy(_) => params::MEMCPY,
            Work::Fill(_) => params::MEMSET,
            Work::Host(_) => params::HOST,
            Work::Child(_) => params::GRAPH,
            Work::Empty => params::EMPTY,
            Work::EventWait(..) => params::WAIT_EVENT,
            Work::EventRecord(..) => params::EVENT_RECORD,
            Work::Alloc(_) => params::MEM_ALLOC,
            Work::Free(..) => params::MEM_FREE,
            Work::MemOps(_) => params::BATCH_MEM_OP,
            Work::Conditional(_) => params::CONDITIONAL,
            Work::Semaphores(kind) => *kind,
        }
    }

    /// Does the work that needs no data of the launch of `graph`. The launch handles events, memory and children
    /// itself.
    pub(super) fn run(&self, graph: &dyn RunningGraph) -> CuResult<()> {
        match self {
            Work::Kernel(kernel) => kernel.run(Some(graph)),
            Work::Copy(copy) => copy.transfer.as_ref().map_or(Ok(()), Transfer::run),
            Work::Fill(fill) => fill.run(),
            Work::Host(host) => host.run(),
            Work::MemOps(operations) => operations.iter().try_for_each(mem_op::run),
            Work::Free(ptr, None) => {
                let found = device::all().iter().find_map(|device| Some((device, device.disown(*ptr)?)));
                let (device, owner) = found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
                device.release(*ptr, &owner)
            }
            Work::Child(_)
            | Work::Conditional(_)
            | Work::Semaphores(_)
            | Work::Empty
            | Work::EventWait(..)
            | Work::EventRecord(..)
            | Work::Alloc(_)
            | Work::Free(_, Some(_)) => Ok(()),
        }
    }
}

/// A host function and its argument.
#[derive(Clone, Copy)]
pub(in super::super) struct HostWork {
    pub(in super::super) function: unsafe extern "C" fn(*mut c_void),
    pub(in super::super) argument: usize,
}

impl HostWork {
    pub(in super::super) fn run(&self) -> CuResult<()> {
        // SAFETY: the caller passed a function that may be called with this argument until the stream, or the last launch of
        // the graph, got here.
        in_host_function(|| unsafe { (self.function)(self.argument as *mut c_void) })
    }
}

/// A copy, and its parameters for cuGraphMemcpyNodeGetParams.
pub(in super::super) struct CopyWork {
    /// `None` when there are no bytes to copy.
    pub(super) transfer: Option<Transfer>,
    pub(super) params: CUDA_MEMCPY3D,
}

impl CopyWork {
    pub(super) fn new(transfer: Option<Transfer>, params: CUDA_MEMCPY3D) -> Arc<CopyWork> {
        Arc::new(CopyWork { transfer, params })
    }

    /// Returns whether it uses neither host memory nor arrays.
    pub(super) fn is_for_device(&self) -> bool {
        let sides = self.transfer.iter().flat_map(|transfer| [&transfer.from, &transfer.to]);
        sides.into_iter().all(|side| side.array().is_none() && !matches!(side.kind, Kind::Pageable))
    }

    /// Returns a copy that was called in a capturing stream.
    pub(in super::super) fn captured(transfer: Transfer) -> Arc<CopyWork> {
        let [width, height, depth] = transfer.extent.map(|size| size as usize);
        let (from, to) = (place(&transfer.from), place(&transfer.to));
        CopyWork::new(Some(transfer), CUDA_MEMCPY3D { src: from, dst: to, width, height, depth })
    }
}

/// Returns a side of a copy as in CUDA_MEMCPY3D.
fn place(side: &Side) -> CopyEnd3D {
    let height = side.slice.checked_div(side.pitch).unwrap_or(0) as usize;
    let pitch = side.pitch as usize;
    let mut place = CopyEnd3D { memory_type: 2, pitch, height, ..CopyEnd3D::ZERO };
    if let Some((array, at)) = side.array() {
        let [x, y, z] = at.map(|offset| offset as usize);
        return CopyEnd3D {
            x,
            y,
            z,
            memory_type: 3,
            array: array::handle_of(array).0 as u64,
            pitch: 0,
            height: 0,
            ..place
        };
    }
    match side.kind {
        Kind::Device => place.device = side.address,
        Kind::Shared => (place.memory_type, place.device) = (4, side.address),
        Kind::Pageable => (place.memory_type, place.host) = (1, side.address),
    }
    place
}
