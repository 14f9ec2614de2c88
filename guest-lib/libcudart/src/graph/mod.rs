// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs: their structure, their lifetime, user objects. Nodes and executable graphs are in the submodules.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::{
    cudaGraph_t, cudaGraphConditionalHandle, cudaGraphEdgeData, cudaGraphNode_t, cudaHostFn_t,
    cudaUserObject_t,
};
use crate::pointers::not_null;
use crate::{driver, state};

mod exec;
pub mod general;
mod kernel;
mod memcpy;
mod node;

api! {
    fn cudaGraphCreate(graph: *mut cudaGraph_t, flags: c_uint) {
        not_null(graph)?;
        state::context()?;
    } => driver::cuGraphCreate(graph, flags);

    fn cudaGraphDestroy(graph: cudaGraph_t) {
        state::context()?;
    } => driver::cuGraphDestroy(graph);

    fn cudaGraphClone(clone: *mut cudaGraph_t, graph: cudaGraph_t) {
        not_null(clone)?;
        state::context()?;
    } => driver::cuGraphClone(clone, graph);

    fn cudaGraphGetNodes(graph: cudaGraph_t, nodes: *mut cudaGraphNode_t, count: *mut usize) {
        state::context()?;
    } => driver::cuGraphGetNodes(graph, nodes, count);

    fn cudaGraphGetRootNodes(graph: cudaGraph_t, nodes: *mut cudaGraphNode_t, count: *mut usize) {
        state::context()?;
    } => driver::cuGraphGetRootNodes(graph, nodes, count);

    fn cudaGraphGetEdges / cudaGraphGetEdges_v2(
        graph: cudaGraph_t, from: *mut cudaGraphNode_t, to: *mut cudaGraphNode_t,
        edges: *mut cudaGraphEdgeData, count: *mut usize,
    ) {
        state::context()?;
    } => driver::cuGraphGetEdges_v2(graph, from, to, edges, count);

    fn cudaGraphAddDependencies / cudaGraphAddDependencies_v2(
        graph: cudaGraph_t, from: *const cudaGraphNode_t, to: *const cudaGraphNode_t,
        edges: *const cudaGraphEdgeData, count: usize,
    ) {
        state::context()?;
    } => driver::cuGraphAddDependencies_v2(graph, from, to, edges, count);

    fn cudaGraphRemoveDependencies / cudaGraphRemoveDependencies_v2(
        graph: cudaGraph_t, from: *const cudaGraphNode_t, to: *const cudaGraphNode_t,
        edges: *const cudaGraphEdgeData, count: usize,
    ) {
        state::context()?;
    } => driver::cuGraphRemoveDependencies_v2(graph, from, to, edges, count);

    fn cudaGraphDestroyNode(node: cudaGraphNode_t) {
        state::context()?;
    } => driver::cuGraphDestroyNode(node);

    fn cudaGraphNodeGetType(node: cudaGraphNode_t, kind: *mut c_uint) {
        state::context()?;
    } => driver::cuGraphNodeGetType(node, kind);

    fn cudaGraphNodeFindInClone(found: *mut cudaGraphNode_t, original: cudaGraphNode_t, clone: cudaGraph_t) {
        state::context()?;
    } => driver::cuGraphNodeFindInClone(found, original, clone);

    fn cudaGraphNodeGetDependencies / cudaGraphNodeGetDependencies_v2(
        node: cudaGraphNode_t, nodes: *mut cudaGraphNode_t, edges: *mut cudaGraphEdgeData, count: *mut usize,
    ) {
        state::context()?;
    } => driver::cuGraphNodeGetDependencies_v2(node, nodes, edges, count);

    fn cudaGraphNodeGetDependentNodes / cudaGraphNodeGetDependentNodes_v2(
        node: cudaGraphNode_t, nodes: *mut cudaGraphNode_t, edges: *mut cudaGraphEdgeData, count: *mut usize,
    ) {
        state::context()?;
    } => driver::cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count);

    fn cudaGraphDebugDotPrint(graph: cudaGraph_t, path: *const c_char, flags: c_uint) {
        state::context()?;
    } => driver::cuGraphDebugDotPrint(graph, path, flags);

    fn cudaGraphConditionalHandleCreate(
        handle: *mut cudaGraphConditionalHandle, graph: cudaGraph_t, default_value: c_uint, flags: c_uint,
    ) {
        state::context()?;
    } => driver::cuGraphConditionalHandleCreate(handle, graph, state::current_context()?, default_value, flags);

    fn cudaUserObjectCreate(
        object: *mut cudaUserObject_t, data: *mut c_void, destroy: cudaHostFn_t, references: c_uint,
        flags: c_uint,
    ) {
        state::context()?;
    } => driver::cuUserObjectCreate(object, data, destroy, references, flags);

    fn cudaUserObjectRetain(object: cudaUserObject_t, count: c_uint) {
        state::context()?;
    } => driver::cuUserObjectRetain(object, count);

    fn cudaUserObjectRelease(object: cudaUserObject_t, count: c_uint) {
        state::context()?;
    } => driver::cuUserObjectRelease(object, count);

    fn cudaGraphRetainUserObject(graph: cudaGraph_t, object: cudaUserObject_t, count: c_uint, flags: c_uint) {
        state::context()?;
    } => driver::cuGraphRetainUserObject(graph, object, count, flags);

    fn cudaGraphReleaseUserObject(graph: cudaGraph_t, object: cudaUserObject_t, count: c_uint) {
        state::context()?;
    } => driver::cuGraphReleaseUserObject(graph, object, count);

    fn cudaDeviceGraphMemTrim(device: c_int) {
        let device = state::context()?.device(device)?.handle;
    } => driver::cuDeviceGraphMemTrim(device);

    fn cudaDeviceGetGraphMemAttribute(device: c_int, attribute: c_uint, value: *mut c_void) {
        let device = state::context()?.device(device)?.handle;
    } => driver::cuDeviceGetGraphMemAttribute(device, attribute, value);

    fn cudaDeviceSetGraphMemAttribute(device: c_int, attribute: c_uint, value: *mut c_void) {
        let device = state::context()?.device(device)?.handle;
    } => driver::cuDeviceSetGraphMemAttribute(device, attribute, value);
}
