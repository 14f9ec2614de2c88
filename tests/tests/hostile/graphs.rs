// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs of a guest that lies: names that it did not get, memory of others, lists that end early.

use anyhow::{Result, ensure};
use vhost_cuda_tests::frontend::CallParts;
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{
    Box3, COPY_ARRAY, COPY_DEVICE, COPY_HOST, CopyEnd, DevicePtr, MemcpyNode, MemsetNode, NODE_CONDITIONAL,
    NODE_EMPTY, NODE_GRAPH, NODE_KERNEL, NODE_MEM_FREE, NODE_MEMCPY, NODE_MEMSET, Opcode, WINDOW_BASE, Wire,
    Writer,
};

use crate::calls::{CONTEXT, ILLEGAL_STATE, INVALID_VALUE, Session, in_context};
use crate::{Target, attack};

const INVALID_HANDLE: i32 = 400;
/// Names that this test uses.
const GRAPH: u64 = 0x8000;
const NODE: u64 = 0x9000;

pub fn collect(suite: &mut Suite) {
    attack(suite, "graphs::forged_names", forged_names);
    attack(suite, "graphs::names_of_the_worker", names_of_the_worker);
    attack(suite, "graphs::memory_of_others", memory_of_others);
    attack(suite, "graphs::lists_that_end_early", lists_that_end_early);
    attack(suite, "graphs::values_elsewhere", values_elsewhere);
    attack(suite, "graphs::a_graph_stays_while_a_stream_captures_into_it", captured_graphs_stay);
}

fn bytes<T: Wire>(value: &T) -> Vec<u8> {
    let mut room = [0; 512];
    let mut writer = Writer::new(&mut room);
    value.put(&mut writer).expect("fits");
    let used = writer.used();
    room[..used].to_vec()
}

fn words(opcode: Opcode, long: &[u64], short: &[u32]) -> CallParts {
    let mut args: Vec<u8> = long.iter().flat_map(|word| word.to_le_bytes()).collect();
    args.extend(short.iter().flat_map(|word| word.to_le_bytes()));
    CallParts::new(opcode, &args).context(CONTEXT)
}

fn with_graph(target: &Target) -> Result<Session> {
    let mut session = Session::open(target)?;
    session.expect(&words(Opcode::cuGraphCreate, &[GRAPH], &[0]), &[0])?;
    Ok(session)
}

fn add(kind: u32, parameters: &[u8]) -> CallParts {
    words(Opcode::graph_add_node, &[GRAPH, NODE], &[kind, 0]).bulk(parameters)
}

fn forged_names(target: &mut Target) -> Result<()> {
    let mut session = with_graph(target)?;
    for forged in [0u64, 3, 0x1000, GRAPH + 1, 0x4000_0000_0010, 0x7fff_ffff_f000, u64::MAX] {
        for opcode in [
            Opcode::cuGraphDestroy,
            Opcode::cuGraphGetEdges_v2,
            Opcode::cuGraphDestroyNode,
            Opcode::cuGraphNodeGetType,
            Opcode::cuGraphChildGraphNodeGetGraph,
            Opcode::cuGraphExecDestroy,
            Opcode::cuGraphExecGetFlags,
        ] {
            session.expect(&in_context(opcode, &[forged]), &[INVALID_VALUE])?;
        }
        session.expect(&in_context(Opcode::cuGraphLaunch, &[forged, 0]), &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuGraphExecUpdate_v2, &[forged, GRAPH]), &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuGraphNodeFindInClone, &[forged, GRAPH]), &[INVALID_VALUE])?;
        session.expect(&words(Opcode::graph_node_get_params, &[forged], &[0]).wants(64), &[INVALID_VALUE])?;
        session.expect(&words(Opcode::cuUserObjectRelease, &[forged], &[1]), &[INVALID_HANDLE])?;
        session.expect(&add(NODE_GRAPH, &forged.to_le_bytes()), &[INVALID_VALUE])?;
        session.expect(&add(NODE_MEM_FREE, &forged.to_le_bytes()), &[INVALID_VALUE])?;
        let kernel = [&forged.to_le_bytes()[..], &[1; 28]].concat();
        session.expect(&add(NODE_KERNEL, &kernel), &[INVALID_HANDLE])?;
        // Handles of conditional nodes are the driver's own: only those that it gave are taken.
        let conditional = [&forged.to_le_bytes()[..], &0u32.to_le_bytes(), &1u32.to_le_bytes()].concat();
        session.expect(&add(NODE_CONDITIONAL, &conditional), &[INVALID_VALUE])?;
    }
    session.greet()
}

fn names_of_the_worker(target: &mut Target) -> Result<()> {
    let mut session = with_graph(target)?;
    for name in [0u64, 2, GRAPH, 0x4000_0000_0000, u64::MAX] {
        session.expect(&words(Opcode::cuGraphCreate, &[name], &[0]), &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuGraphClone, &[name, GRAPH]), &[INVALID_VALUE])?;
    }
    session.greet()
}

fn memory_of_others(target: &mut Target) -> Result<()> {
    let mut session = with_graph(target)?;
    let own = session.memory;
    let end = |kind, address| CopyEnd { kind, address: DevicePtr(address), ..CopyEnd::default() };
    let size = Box3 { width: 16, height: 1, depth: 1 };
    for address in [0, 1, 0x40_0000, WINDOW_BASE, own - 1, own + 4090, u64::MAX - 7, u64::MAX] {
        for kind in [COPY_HOST, COPY_DEVICE] {
            let (here, there) = (end(COPY_DEVICE, own), end(kind, address));
            for (dst, src) in [(here, there), (there, here)] {
                let copy = MemcpyNode { dst, src, size, ..MemcpyNode::default() };
                session.expect(&add(NODE_MEMCPY, &bytes(&copy)), &[INVALID_VALUE])?;
            }
        }
        let set =
            MemsetNode { dst: DevicePtr(address), pitch: 0, value: 0, element_bytes: 4, width: 4, height: 1 };
        session.expect(&add(NODE_MEMSET, &bytes(&set)), &[INVALID_VALUE])?;
    }
    let array =
        MemcpyNode { dst: end(COPY_ARRAY, own), src: end(COPY_DEVICE, own), size, ..Default::default() };
    session.expect(&add(NODE_MEMCPY, &bytes(&array)), &[INVALID_HANDLE, INVALID_VALUE])?;
    // Boxes whose products overflow, or whose last row is outside.
    for (pitch, height, rows, slices, x) in [
        (u64::MAX, 1, 2, 1, 0),
        (1 << 32, 1 << 32, 2, 2, 0),
        (64, 64, 65, 1, 0),
        (4096, 1, 2, 1, 0),
        (64, 1, 1, 1, u64::MAX),
        (8, 4, 4, 1, 0),
    ] {
        let far = CopyEnd { pitch, height, x, ..end(COPY_DEVICE, own) };
        let size = Box3 { width: 16, height: rows, depth: slices };
        let copy = MemcpyNode { dst: far, src: far, size, ..MemcpyNode::default() };
        session.expect(&add(NODE_MEMCPY, &bytes(&copy)), &[INVALID_VALUE])?;
    }
    session.greet()
}

fn lists_that_end_early(target: &mut Target) -> Result<()> {
    let mut session = with_graph(target)?;
    for links in [1u32, 2, 1 << 20, u32::MAX] {
        let parts = words(Opcode::graph_add_node, &[GRAPH, NODE], &[5, links]);
        session.expect(&parts.bulk(&[0; 15]), &[INVALID_VALUE])?;
    }
    for bulk in [1usize, 23, 25] {
        let parts = in_context(Opcode::cuGraphAddDependencies_v2, &[GRAPH]).bulk(&vec![0; bulk]);
        session.expect(&parts, &[INVALID_VALUE])?;
    }
    for kind in 0..20 {
        let answer = session.expect(&add(kind, &[7]), &[0, 1, 400, 801])?;
        // An empty node has no parameters; a byte too many is ignored.
        ensure!(answer.result != 0 || kind == 5, "kind {kind} was made of one byte");
    }
    session.greet()
}

fn values_elsewhere(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let own = session.memory;
    let operation = |kind: u32, address: u64| {
        let head = [kind.to_le_bytes(), 0u32.to_le_bytes()].concat();
        [&head[..], &address.to_le_bytes(), &1u64.to_le_bytes()].concat()
    };
    for (kind, address) in [
        (2u32, 0u64),
        (2, own - 1),
        (2, own + 4093),
        (5, own + 4089),
        (5, u64::MAX),
        (1, WINDOW_BASE),
        (9, own),
    ] {
        let parts = words(Opcode::cuStreamBatchMemOp_v2, &[0], &[0]).bulk(&operation(kind, address));
        session.expect(&parts, &[INVALID_VALUE])?;
    }
    let many: Vec<u8> = (0..300).flat_map(|_| operation(2, own)).collect();
    session.expect(&words(Opcode::cuStreamBatchMemOp_v2, &[0], &[0]).bulk(&many), &[INVALID_VALUE])?;
    session.greet()
}

/// The driver would continue to add nodes to a graph that it has freed, after a node that it has freed.
fn captured_graphs_stay(target: &mut Target) -> Result<()> {
    const STREAM: u64 = 0xa000;
    const RELAXED: u32 = 2;
    let mut session = with_graph(target)?;
    session.expect(&words(Opcode::cuStreamCreateWithPriority, &[STREAM], &[1, 0]), &[0])?;
    session.expect(&add(NODE_EMPTY, &[]), &[0])?;
    let fill = words(Opcode::cuMemcpyAsync, &[session.memory, session.memory + 64, 64, STREAM], &[]);
    let refused = |session: &mut Session, graph: u64| -> Result<()> {
        session.expect(&fill, &[0])?;
        let nodes = session.expect(&words(Opcode::graph_nodes, &[graph], &[0]).wants(256), &[0])?;
        let count = u32::from_le_bytes(nodes.results[..].try_into()?) as usize;
        ensure!(count > 0 && nodes.bulk.len() >= 8 * count, "{count} nodes in {:02x?}", nodes.bulk);
        for node in nodes.bulk.chunks_exact(8).take(count) {
            let node = u64::from_le_bytes(node.try_into()?);
            session.expect(&in_context(Opcode::cuGraphDestroyNode, &[node]), &[ILLEGAL_STATE])?;
        }
        session.expect(&in_context(Opcode::cuGraphDestroy, &[graph]), &[ILLEGAL_STATE])?;
        session.expect(&fill, &[0])?;
        Ok(())
    };
    session.expect(&words(Opcode::cuStreamBeginCapture_v2, &[STREAM], &[RELAXED]), &[0])?;
    let info = session.expect(&words(Opcode::cuStreamGetCaptureInfo_v3, &[STREAM], &[]).wants(256), &[0])?;
    let graph = u64::from_le_bytes(info.results[12..20].try_into()?);
    refused(&mut session, graph)?;
    session.expect(&in_context(Opcode::cuStreamEndCapture, &[STREAM]), &[0])?;
    session.expect(&in_context(Opcode::cuGraphDestroy, &[graph]), &[0])?;

    session.expect(&words(Opcode::cuStreamBeginCaptureToGraph, &[STREAM, GRAPH], &[RELAXED]), &[0])?;
    refused(&mut session, GRAPH)?;
    session.expect(&in_context(Opcode::cuStreamEndCapture, &[STREAM]), &[0])?;
    session.expect(&in_context(Opcode::cuGraphDestroyNode, &[NODE]), &[0])?;

    // The graph in a node, which ends with the node and with the outer graph.
    let (outer, around) = (GRAPH + 16, NODE + 16);
    session.expect(&words(Opcode::cuGraphCreate, &[outer], &[0]), &[0])?;
    let child = words(Opcode::graph_add_node, &[outer, around], &[NODE_GRAPH, 0]).bulk(&GRAPH.to_le_bytes());
    session.expect(&child, &[0])?;
    let inner = session.expect(&in_context(Opcode::cuGraphChildGraphNodeGetGraph, &[around]), &[0])?;
    let inner = u64::from_le_bytes(inner.results[..].try_into()?);
    session.expect(&words(Opcode::cuStreamBeginCaptureToGraph, &[STREAM, inner], &[RELAXED]), &[0])?;
    session.expect(&fill, &[0])?;
    let replace = words(Opcode::cuGraphNodeSetParams, &[around], &[NODE_GRAPH]).bulk(&GRAPH.to_le_bytes());
    session.expect(&replace, &[INVALID_VALUE])?;
    session.expect(&in_context(Opcode::cuGraphDestroyNode, &[around]), &[ILLEGAL_STATE])?;
    session.expect(&in_context(Opcode::cuGraphDestroy, &[outer]), &[ILLEGAL_STATE])?;
    session.expect(&fill, &[0])?;
    session.expect(&in_context(Opcode::cuStreamEndCapture, &[STREAM]), &[0])?;
    session.expect(&in_context(Opcode::cuGraphDestroy, &[outer]), &[0])?;
    session.greet()
}
