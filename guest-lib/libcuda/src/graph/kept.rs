// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The memory of this library to which nodes point programs: values of kernel parameters, graphs of conditional nodes,
//! operations on values in memory. And which executable graphs can be launched without asking.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::module::function_table::Parameters;
use cuda_abi::CUstreamBatchMemOpParams;

/// Kernel parameters that a program was pointed to.
#[derive(Debug, Default)]
struct Values {
    /// The packed block.
    block: Vec<u8>,
    /// The address of each in `block`.
    addresses: Vec<usize>,
}

/// The memory by node.
#[derive(Debug, Default)]
pub struct Kept {
    values: Mutex<HashMap<u64, Values>>,
    graphs: Mutex<HashMap<u64, Vec<u64>>>,
    operations: Mutex<HashMap<u64, Vec<CUstreamBatchMemOpParams>>>,
    /// Executable graphs that were launched and the device had nothing against it, each with the context.
    proven: Mutex<HashSet<(u64, u64)>>,
    /// Graphs allocate: a second launch may then be refused where the first was not.
    allocate: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// The array of addresses for `kernelParams`, good until the node's parameters change.
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

    /// The array of the graphs in a conditional node, good as long as the node.
    pub fn graphs(&self, node: u64, graphs: Vec<u64>) -> usize {
        let mut all = lock(&self.graphs);
        all.insert(node, graphs);
        all.get(&node).map_or(0, |graphs| graphs.as_ptr() as usize)
    }

    /// The array of a node's operations, good until they change.
    pub fn operations(&self, node: u64, operations: Vec<CUstreamBatchMemOpParams>) -> usize {
        let mut all = lock(&self.operations);
        let kept = all.entry(node).or_default();
        if *kept != operations {
            *kept = operations;
        }
        kept.as_ptr() as usize
    }

    /// Returns whether a launch of an executable graph cannot be refused.
    pub fn is_proven(&self, exec: u64, context: u64) -> bool {
        !self.allocate.load(Ordering::Relaxed) && lock(&self.proven).contains(&(exec, context))
    }

    /// Notes a launch that was accepted.
    pub fn exec_launched(&self, exec: u64, context: u64) {
        lock(&self.proven).insert((exec, context));
    }

    /// An executable graph is another one now, or none.
    pub fn exec_changed(&self, exec: u64) {
        lock(&self.proven).retain(|&(proven, _)| proven != exec);
    }

    /// A graph has got a node that allocates.
    pub fn graphs_allocate(&self) {
        self.allocate.store(true, Ordering::Relaxed);
    }

    /// A node is no more.
    pub fn forget(&self, node: u64) {
        lock(&self.values).remove(&node);
        lock(&self.graphs).remove(&node);
        lock(&self.operations).remove(&node);
    }
}
