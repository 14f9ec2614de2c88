// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory of this library to which pointers in returned node parameters lead: values of kernel parameters, graphs of
//! conditional nodes, operations of batch nodes. Also the set of executable graphs whose launches need not wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::state::modules::functions::Parameters;
use cuda_abi::CUstreamBatchMemOpParams;

/// Kernel parameter values that were returned to a program.
#[derive(Debug, Default)]
struct Values {
    /// The packed block of parameters.
    block: Vec<u8>,
    /// The address of each parameter in `block`.
    addresses: Vec<usize>,
}

/// The kernels and child graphs of an executable graph, by node. For each, that on which the acceptance of the parameters depends
/// which the device has accepted last, and their number of bytes: see [`Kept::has_other_values`].
type Kernels = FxHashMap<u64, (Vec<u8>, usize)>;

/// The memory by node.
#[derive(Debug, Default)]
pub struct Kept {
    values: Mutex<HashMap<u64, Values>>,
    graphs: Mutex<HashMap<u64, Vec<u64>>>,
    operations: Mutex<HashMap<u64, Vec<CUstreamBatchMemOpParams>>>,
    /// Pairs of an executable graph and a context for which the device has accepted a launch.
    proven: Mutex<FxHashSet<(u64, u64)>>,
    /// By executable graph.
    kernels: Mutex<FxHashMap<u64, Kernels>>,
    /// Set if any graph allocates memory: a later launch may then fail although the first one succeeded.
    allocate: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Returns the address array for `kernelParams`. It is valid until the node's parameters change.
    pub fn values(&self, node: u64, block: Vec<u8>, parameters: &Parameters) -> usize {
        let mut all = lock(&self.values);
        let kept = all.entry(node).or_default();
        if kept.block != block || kept.addresses.len() != parameters.layouts.len() {
            let mut block = block;
            block.resize(block.len().max(parameters.block_bytes), 0);
            let start = block.as_ptr() as usize;
            let addresses = parameters.layouts.iter().map(|one| start + one.offset as usize).collect();
            *kept = Values { block, addresses };
        }
        kept.addresses.as_ptr() as usize
    }

    /// Returns the array of a conditional node's graphs. It is valid as long as the node.
    pub fn graphs(&self, node: u64, graphs: Vec<u64>) -> usize {
        let mut all = lock(&self.graphs);
        all.insert(node, graphs);
        all.get(&node).map_or(0, |graphs| graphs.as_ptr() as usize)
    }

    /// Returns the array of a node's operations. It is valid until they change.
    pub fn operations(&self, node: u64, operations: Vec<CUstreamBatchMemOpParams>) -> usize {
        let mut all = lock(&self.operations);
        let kept = all.entry(node).or_default();
        if *kept != operations {
            *kept = operations;
        }
        kept.as_ptr() as usize
    }

    /// Returns whether the launch of an executable graph cannot fail.
    pub fn is_proven(&self, exec: u64, context: u64) -> bool {
        !self.allocate.load(Ordering::Relaxed) && lock(&self.proven).contains(&(exec, context))
    }

    /// Records an accepted launch.
    pub fn exec_launched(&self, exec: u64, context: u64) {
        lock(&self.proven).insert((exec, context));
    }

    /// Forgets the launches of an executable graph that was changed.
    pub fn exec_changed(&self, exec: u64) {
        lock(&self.proven).retain(|&(proven, _)| proven != exec);
    }

    /// Forgets the launches and kernels of an executable graph that was updated or destroyed.
    pub fn exec_replaced(&self, exec: u64) {
        self.exec_changed(exec);
        lock(&self.kernels).remove(&exec);
    }

    /// Returns whether parameters of a node differ from those that the device has accepted for it last at most in the values of a
    /// kernel's parameters, here or in a child graph. Then it accepts them as well, and launches of the graph fail no more than before.
    ///
    /// `fixed`: all but these values; for a child graph, the number of its work; empty for other kinds of nodes. `bytes`: the length
    /// of the parameters.
    pub fn has_other_values(&self, exec: u64, node: u64, fixed: &[u8], bytes: usize) -> bool {
        let kernels = lock(&self.kernels);
        let known = kernels.get(&exec).and_then(|nodes| nodes.get(&node));
        known.is_some_and(|known| (&known.0[..], known.1) == (fixed, bytes))
    }

    /// Records accepted parameters of a node in an executable graph, as in [`Self::has_other_values`].
    pub fn node_set(&self, exec: u64, node: u64, fixed: &[u8], bytes: usize) {
        let mut kernels = lock(&self.kernels);
        let nodes = kernels.entry(exec).or_default();
        match fixed {
            [] => nodes.remove(&node),
            fixed => nodes.insert(node, (fixed.to_vec(), bytes)),
        };
    }

    /// Forgets all kernels: an attribute of a function has changed, on which their acceptance depends.
    pub fn forget_kernels(&self) {
        lock(&self.kernels).clear();
    }

    /// Records that a graph has an allocation node.
    pub fn graphs_allocate(&self) {
        self.allocate.store(true, Ordering::Relaxed);
    }

    /// Frees the memory of a destroyed node.
    pub fn forget(&self, node: u64) {
        lock(&self.values).remove(&node);
        lock(&self.graphs).remove(&node);
        lock(&self.operations).remove(&node);
    }
}
