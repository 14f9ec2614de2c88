// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Nodes that signal or wait for semaphores of other APIs. No such semaphores exist here, but nodes without any are
//! valid.

use cuda_abi::CUDA_EXT_SEM_NODE_PARAMS;
use virtio_cuda_client::protocol::{GraphNodeId, NODE_SEMAPHORES_SIGNAL, NODE_SEMAPHORES_WAIT};
use virtio_cuda_client::{CudaError, calls};

use super::node::{Links, NodeParams, add_own, set, set_exec};
use super::params::Form;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};

/// Returns the parameters of a node of `kind`.
fn get(api: Api, node: u64, kind: u32, params: Out<CUDA_EXT_SEM_NODE_PARAMS>) -> Result<(), CudaError> {
    params.check()?;
    match calls::cuGraphNodeGetType(&mut api.call(), GraphNodeId(node)) {
        Ok(found) if found == kind => params.set(CUDA_EXT_SEM_NODE_PARAMS::ZERO),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

entry_points! {
    /// Adds a node that signals nothing.
    call cuGraphAddExternalSemaphoresSignalNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, nodeParams: HostPtr) {
        add_own(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_SEMAPHORES_SIGNAL, nodeParams)
    }

    /// Adds a node that waits for nothing.
    call cuGraphAddExternalSemaphoresWaitNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, nodeParams: HostPtr) {
        add_own(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_SEMAPHORES_WAIT, nodeParams)
    }

    /// Returns the semaphores that a node signals: none.
    call cuGraphExternalSemaphoresSignalNodeGetParams(api, hNode: u64, params_out: Out<CUDA_EXT_SEM_NODE_PARAMS>) {
        get(api, hNode, NODE_SEMAPHORES_SIGNAL, params_out)
    }

    /// Returns the semaphores that a node waits for: none.
    call cuGraphExternalSemaphoresWaitNodeGetParams(api, hNode: u64, params_out: Out<CUDA_EXT_SEM_NODE_PARAMS>) {
        get(api, hNode, NODE_SEMAPHORES_WAIT, params_out)
    }

    /// Accepts an empty list of semaphores to signal.
    call cuGraphExternalSemaphoresSignalNodeSetParams(api, hNode: u64, nodeParams: HostPtr) {
        set(api, hNode, NODE_SEMAPHORES_SIGNAL, nodeParams, Form::Own)
    }

    /// Accepts an empty list of semaphores to wait for.
    call cuGraphExternalSemaphoresWaitNodeSetParams(api, hNode: u64, nodeParams: HostPtr) {
        set(api, hNode, NODE_SEMAPHORES_WAIT, nodeParams, Form::Own)
    }

    /// Accepts an empty list of semaphores to signal, for an executable graph.
    call cuGraphExecExternalSemaphoresSignalNodeSetParams(api, hGraphExec: u64, hNode: u64, nodeParams: HostPtr) {
        set_exec(api, hGraphExec, hNode, NodeParams::own(NODE_SEMAPHORES_SIGNAL, nodeParams))
    }

    /// Accepts an empty list of semaphores to wait for, for an executable graph.
    call cuGraphExecExternalSemaphoresWaitNodeSetParams(api, hGraphExec: u64, hNode: u64, nodeParams: HostPtr) {
        set_exec(api, hGraphExec, hNode, NodeParams::own(NODE_SEMAPHORES_WAIT, nodeParams))
    }
}
