// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that graphs allocate and free. Its address is fixed when the node is created, and so is its block here: it
//! belongs to the graph until the graph and its executable graphs have ended. A launch only changes whether it counts
//! as allocated. A later node that waits for a free in the same graph reuses the freed block.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cuda_abi::CUDA_MEM_ALLOC_NODE_PARAMS;

use super::body::{CUgraphNode, Graph};
use super::footprint::Live;
use super::work::Work;
use crate::driver::device::{CUdeviceptr, Device};
use crate::driver::result::{CUresult, CuResult};
use crate::memory::RangeKind;

/// All allocations by address. Allocations of the same block follow each other, with the latest one last.
static MEMORY: Mutex<BTreeMap<CUdeviceptr, Vec<Weak<GraphMemory>>>> = Mutex::new(BTreeMap::new());

/// A block of device memory.
pub(super) struct Block {
    device: &'static Device,
    ptr: CUdeviceptr,
    bytes: u64,
    live: Live,
}

impl Block {
    pub(super) fn device(&self) -> &'static Device {
        self.device
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the allocation in it has not been freed.
    pub(super) fn is_live(&self) -> bool {
        self.live.any()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.device.memory.free(self.ptr);
    }
}

/// The memory of an allocation node.
pub(in super::super) struct GraphMemory {
    device: &'static Device,
    pub(super) ptr: CUdeviceptr,
    bytes: u64,
    block: Arc<Block>,
    live: AtomicBool,
    /// The given parameters, with the address.
    pub(super) params: CUDA_MEM_ALLOC_NODE_PARAMS,
}

impl GraphMemory {
    pub(super) fn new(
        device: &'static Device,
        params: CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> CuResult<Arc<GraphMemory>> {
        let bytes = params.bytes as u64;
        let ptr = device.memory.allocate_as(bytes, 1, RangeKind::Device);
        let ptr = ptr.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Self::at(Arc::new(Block { device, ptr, bytes, live: Live::default() }), params))
    }

    fn at(block: Arc<Block>, mut params: CUDA_MEM_ALLOC_NODE_PARAMS) -> Arc<GraphMemory> {
        params.dptr = block.ptr;
        let (device, ptr, bytes) = (block.device, block.ptr, params.bytes as u64);
        let memory = GraphMemory { device, ptr, bytes, block, live: AtomicBool::new(false), params };
        let memory = Arc::new(memory);
        let mut known = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(ptr).or_default().push(Arc::downgrade(&memory));
        memory
    }

    /// Returns a similar allocation in a block that nodes of `graph` free before `dependencies` are done, if there is
    /// one.
    pub(super) fn at_freed_place(
        &self,
        graph: &Graph,
        dependencies: Vec<CUgraphNode>,
    ) -> Option<Arc<GraphMemory>> {
        let before = graph.ancestors(dependencies);
        let nodes = graph.lock();
        // The number of allocations of a block anywhere in the graph, and of earlier frees: the same if it is free.
        let count = |block: &Arc<Block>| {
            let same = |memory: &Arc<GraphMemory>| Arc::ptr_eq(&memory.block, block);
            let allocated = nodes.values().filter(|node| matches!(&node.work, Work::Alloc(m) if same(m)));
            let freed = nodes.iter().filter(
                |(handle, node)| matches!(&node.work, Work::Free(_, Some(m)) if same(m) && before.contains(handle)),
            );
            (allocated.count(), freed.count())
        };
        let freed = nodes.iter().filter(|(handle, _)| before.contains(handle));
        let block = freed.filter_map(|(_, node)| match &node.work {
            Work::Free(_, Some(memory)) => Some(&memory.block),
            _ => None,
        });
        let fits = |block: &&Arc<Block>| {
            let (allocated, freed) = count(block);
            block.device.ordinal == self.device.ordinal && block.bytes >= self.bytes && allocated == freed
        };
        let block = block.filter(fits).min_by_key(|block| block.bytes).cloned();
        drop(nodes);
        block.map(|block| Self::at(block, self.params))
    }

    pub(super) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Marks it as allocated. Returns false if it was already.
    pub(super) fn allocate(&self) -> bool {
        let changed = !self.live.swap(true, Ordering::AcqRel);
        if changed {
            self.block.live.add();
        }
        changed
    }

    /// Marks it as freed. Returns false if it was already.
    pub(super) fn free(&self) -> bool {
        let changed = self.live.swap(false, Ordering::AcqRel);
        if changed {
            self.block.live.remove();
        }
        changed
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.free();
        let mut known = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = known.get_mut(&self.ptr) {
            list.retain(|memory| memory.strong_count() > 0);
            if list.is_empty() {
                known.remove(&self.ptr);
            }
        }
    }
}

fn all_at(ptr: CUdeviceptr) -> Vec<Arc<GraphMemory>> {
    let known = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    known.get(&ptr).map_or(Vec::new(), |list| list.iter().filter_map(Weak::upgrade).collect())
}

/// Returns the memory of a node that begins at an address: of several, the newest.
pub(super) fn find(ptr: CUdeviceptr) -> Option<Arc<GraphMemory>> {
    all_at(ptr).pop()
}

/// cuMemFree and cuMemFreeAsync of memory that a graph allocated and did not free. Returns false for other memory.
pub(in super::super) fn free_outside(ptr: CUdeviceptr) -> bool {
    all_at(ptr).iter().any(|memory| memory.free())
}
