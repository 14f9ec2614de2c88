// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other kinds of nodes. Their parameters are the same in both APIs.

use core::ffi::c_void;

use crate::abi::{
    CUdeviceptr, cudaEvent_t, cudaExternalSemaphoreSignalNodeParams, cudaExternalSemaphoreWaitNodeParams,
    cudaGraph_t, cudaGraphExec_t, cudaGraphNode_t, cudaHostNodeParams, cudaMemAllocNodeParams,
    cudaMemsetParams,
};
use crate::memory::address;
use crate::{driver, state};

api! {
    fn cudaGraphAddMemsetNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *const cudaMemsetParams,
    ) {
        state::context()?;
    } => driver::cuGraphAddMemsetNode(node, graph, dependencies, count, parameters, state::current_context()?);

    fn cudaGraphMemsetNodeGetParams(node: cudaGraphNode_t, parameters: *mut cudaMemsetParams) {
        state::context()?;
    } => driver::cuGraphMemsetNodeGetParams(node, parameters);

    fn cudaGraphMemsetNodeSetParams(node: cudaGraphNode_t, parameters: *const cudaMemsetParams) {
        state::context()?;
    } => driver::cuGraphMemsetNodeSetParams(node, parameters);

    fn cudaGraphExecMemsetNodeSetParams(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, parameters: *const cudaMemsetParams,
    ) {
        state::context()?;
    } => driver::cuGraphExecMemsetNodeSetParams(exec, node, parameters, state::current_context()?);

    fn cudaGraphAddHostNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *const cudaHostNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphAddHostNode(node, graph, dependencies, count, parameters);

    fn cudaGraphHostNodeGetParams(node: cudaGraphNode_t, parameters: *mut cudaHostNodeParams) {
        state::context()?;
    } => driver::cuGraphHostNodeGetParams(node, parameters);

    fn cudaGraphHostNodeSetParams(node: cudaGraphNode_t, parameters: *const cudaHostNodeParams) {
        state::context()?;
    } => driver::cuGraphHostNodeSetParams(node, parameters);

    fn cudaGraphExecHostNodeSetParams(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, parameters: *const cudaHostNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphExecHostNodeSetParams(exec, node, parameters);

    fn cudaGraphAddChildGraphNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        child: cudaGraph_t,
    ) {
        state::context()?;
    } => driver::cuGraphAddChildGraphNode(node, graph, dependencies, count, child);

    fn cudaGraphChildGraphNodeGetGraph(node: cudaGraphNode_t, graph: *mut cudaGraph_t) {
        state::context()?;
    } => driver::cuGraphChildGraphNodeGetGraph(node, graph);

    fn cudaGraphExecChildGraphNodeSetParams(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, child: cudaGraph_t,
    ) {
        state::context()?;
    } => driver::cuGraphExecChildGraphNodeSetParams(exec, node, child);

    fn cudaGraphAddEmptyNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
    ) {
        state::context()?;
    } => driver::cuGraphAddEmptyNode(node, graph, dependencies, count);

    fn cudaGraphAddEventRecordNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        event: cudaEvent_t,
    ) {
        state::context()?;
    } => driver::cuGraphAddEventRecordNode(node, graph, dependencies, count, event);

    fn cudaGraphEventRecordNodeGetEvent(node: cudaGraphNode_t, event: *mut cudaEvent_t) {
        state::context()?;
    } => driver::cuGraphEventRecordNodeGetEvent(node, event);

    fn cudaGraphEventRecordNodeSetEvent(node: cudaGraphNode_t, event: cudaEvent_t) {
        state::context()?;
    } => driver::cuGraphEventRecordNodeSetEvent(node, event);

    fn cudaGraphExecEventRecordNodeSetEvent(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, event: cudaEvent_t,
    ) {
        state::context()?;
    } => driver::cuGraphExecEventRecordNodeSetEvent(exec, node, event);

    fn cudaGraphAddEventWaitNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        event: cudaEvent_t,
    ) {
        state::context()?;
    } => driver::cuGraphAddEventWaitNode(node, graph, dependencies, count, event);

    fn cudaGraphEventWaitNodeGetEvent(node: cudaGraphNode_t, event: *mut cudaEvent_t) {
        state::context()?;
    } => driver::cuGraphEventWaitNodeGetEvent(node, event);

    fn cudaGraphEventWaitNodeSetEvent(node: cudaGraphNode_t, event: cudaEvent_t) {
        state::context()?;
    } => driver::cuGraphEventWaitNodeSetEvent(node, event);

    fn cudaGraphExecEventWaitNodeSetEvent(exec: cudaGraphExec_t, node: cudaGraphNode_t, event: cudaEvent_t) {
        state::context()?;
    } => driver::cuGraphExecEventWaitNodeSetEvent(exec, node, event);

    fn cudaGraphAddExternalSemaphoresSignalNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *const cudaExternalSemaphoreSignalNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphAddExternalSemaphoresSignalNode(node, graph, dependencies, count, parameters);

    fn cudaGraphExternalSemaphoresSignalNodeGetParams(
        node: cudaGraphNode_t, parameters: *mut cudaExternalSemaphoreSignalNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphExternalSemaphoresSignalNodeGetParams(node, parameters);

    fn cudaGraphExternalSemaphoresSignalNodeSetParams(
        node: cudaGraphNode_t, parameters: *const cudaExternalSemaphoreSignalNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphExternalSemaphoresSignalNodeSetParams(node, parameters);

    fn cudaGraphExecExternalSemaphoresSignalNodeSetParams(
        exec: cudaGraphExec_t, node: cudaGraphNode_t,
        parameters: *const cudaExternalSemaphoreSignalNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, node, parameters);

    fn cudaGraphAddExternalSemaphoresWaitNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *const cudaExternalSemaphoreWaitNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphAddExternalSemaphoresWaitNode(node, graph, dependencies, count, parameters);

    fn cudaGraphExternalSemaphoresWaitNodeGetParams(
        node: cudaGraphNode_t, parameters: *mut cudaExternalSemaphoreWaitNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphExternalSemaphoresWaitNodeGetParams(node, parameters);

    fn cudaGraphExternalSemaphoresWaitNodeSetParams(
        node: cudaGraphNode_t, parameters: *const cudaExternalSemaphoreWaitNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphExternalSemaphoresWaitNodeSetParams(node, parameters);

    fn cudaGraphExecExternalSemaphoresWaitNodeSetParams(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, parameters: *const cudaExternalSemaphoreWaitNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, node, parameters);

    fn cudaGraphAddMemAllocNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *mut cudaMemAllocNodeParams,
    ) {
        state::context()?;
    } => driver::cuGraphAddMemAllocNode(node, graph, dependencies, count, parameters);

    fn cudaGraphMemAllocNodeGetParams(node: cudaGraphNode_t, parameters: *mut cudaMemAllocNodeParams) {
        state::context()?;
    } => driver::cuGraphMemAllocNodeGetParams(node, parameters);

    fn cudaGraphAddMemFreeNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        memory: *mut c_void,
    ) {
        state::context()?;
    } => driver::cuGraphAddMemFreeNode(node, graph, dependencies, count, address(memory));

    fn cudaGraphMemFreeNodeGetParams(node: cudaGraphNode_t, memory: *mut c_void) {
        state::context()?;
    } => driver::cuGraphMemFreeNodeGetParams(node, memory.cast::<CUdeviceptr>());
}
