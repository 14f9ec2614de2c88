// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs, their nodes, and objects created from them: CUDA does not synchronise any of them.

use vhost_cuda_tests::frontend::CallParts;
use virtio_cuda_protocol::cuda::{NODE_EMPTY, NODE_GRAPH, NODE_KERNEL, Opcode};

use super::kinds::{FUNCTION, IT, launch, with_function};
use super::{ANSWER, Kind, Test, pieces, words};
use crate::calls::Session;

pub const ALL: &[Test] = &[
    ("graphs", graphs),
    ("nodes", nodes),
    ("child_graphs", child_graphs),
    ("executable_graphs", executable_graphs),
    ("user_objects", user_objects),
    ("captures", captures),
    ("edges", edges),
    ("clones", clones),
    ("originals", originals),
    ("graphs_of_captures", graphs_of_captures),
    ("device_graphs", device_graphs),
    ("nodes_of_executables", nodes_of_executables),
    ("streams_of_graphs", streams_of_graphs),
    ("updates", updates),
    ("owners_of_user_objects", owners_of_user_objects),
    ("retained_user_objects", retained_user_objects),
];

const NODE: u64 = 0x20_0000;
const CLONE: u64 = 0x20_0010;
const EXEC: u64 = 0x20_0020;
const OUTER: u64 = 0x20_0030;
const INNER: u64 = 0x20_0040;
const STREAM: u64 = 0x20_0050;
const USER_OBJECT: u64 = 0x20_0060;
const LEGACY: u64 = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: another thread may add to it, and end it.
const RELAXED: u32 = 2;
/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
const SET_DEPENDENCIES: u32 = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;

fn add(graph: u64, node: u64, kind: u32, parameters: &[u8]) -> CallParts {
    words(Opcode::graph_add_node, &[graph, node], &[kind, 0]).bulk(parameters)
}

fn kernel_node() -> Vec<u8> {
    let mut bytes = FUNCTION.to_le_bytes().to_vec();
    bytes.extend([1u32, 1, 1, 1, 1, 1, 0].iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

fn graph() -> Vec<CallParts> {
    vec![
        words(Opcode::cuGraphCreate, &[IT], &[0]),
        add(IT, NODE, NODE_KERNEL, &kernel_node()),
        add(IT, NODE + 1, NODE_EMPTY, &[]),
    ]
}

fn graphs(_: &Session) -> Kind {
    let mut once = with_function();
    once.push(words(Opcode::cuGraphCreate, &[OUTER], &[0]));
    Kind {
        handles: &["GraphId"],
        once,
        make: graph(),
        uses: vec![
            add(IT, NODE + 2, NODE_EMPTY, &[]),
            words(Opcode::graph_nodes, &[IT], &[0]).wants(256),
            words(Opcode::cuGraphGetEdges_v2, &[IT], &[]).wants(256),
            words(Opcode::cuGraphClone, &[CLONE, IT], &[]),
            words(Opcode::cuGraphInstantiateWithFlags, &[EXEC, IT, 0], &[]),
            words(Opcode::cuGraphInstantiateWithParams, &[EXEC, IT, 0, 0], &[]),
            words(Opcode::cuGraphAddDependencies_v2, &[IT], &[]).bulk(&edge()),
            words(Opcode::cuGraphConditionalHandleCreate, &[IT], &[0, 0]),
            add(OUTER, INNER, NODE_GRAPH, &IT.to_le_bytes()),
        ],
        destroy: words(Opcode::cuGraphDestroy, &[IT], &[]),
        clean: vec![
            words(Opcode::cuGraphDestroy, &[CLONE], &[]),
            words(Opcode::cuGraphExecDestroy, &[EXEC], &[]),
            words(Opcode::cuGraphDestroyNode, &[INNER], &[]),
        ],
        ..Kind::default()
    }
}

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
const COOPERATIVE: i32 = 2;

/// From one node to the other.
fn edge() -> Vec<u8> {
    [NODE.to_le_bytes(), (NODE + 1).to_le_bytes(), [0; 8]].concat()
}

fn edges(_: &Session) -> Kind {
    let mut make = graph();
    make.push(words(Opcode::cuGraphAddDependencies_v2, &[IT], &[]).bulk(&edge()));
    Kind {
        handles: &["GraphId", "GraphNodeId"],
        once: with_function(),
        make,
        uses: vec![words(Opcode::cuGraphRemoveDependencies_v2, &[IT], &[]).bulk(&edge())],
        destroy: words(Opcode::cuGraphDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn clones(_: &Session) -> Kind {
    let mut once = with_function();
    once.extend(graph());
    Kind {
        handles: &["GraphId"],
        once,
        make: vec![words(Opcode::cuGraphClone, &[CLONE, IT], &[])],
        uses: vec![words(Opcode::cuGraphNodeFindInClone, &[NODE, CLONE], &[])],
        destroy: words(Opcode::cuGraphDestroy, &[CLONE], &[]),
        ..Kind::default()
    }
}

fn originals(_: &Session) -> Kind {
    let mut make = graph();
    make.push(words(Opcode::cuGraphClone, &[CLONE, IT], &[]));
    Kind {
        handles: &["GraphNodeId"],
        once: with_function(),
        make,
        uses: vec![words(Opcode::cuGraphNodeFindInClone, &[NODE, CLONE], &[])],
        destroy: words(Opcode::cuGraphDestroyNode, &[NODE], &[]),
        clean: vec![words(Opcode::cuGraphDestroy, &[CLONE], &[]), words(Opcode::cuGraphDestroy, &[IT], &[])],
        ..Kind::default()
    }
}

/// Captures into a graph that the program made.
fn graphs_of_captures(_: &Session) -> Kind {
    let mut once = with_function();
    once.push(words(Opcode::cuStreamCreateWithPriority, &[STREAM], &[1, 0]));
    once.push(words(Opcode::cuGraphCreate, &[IT], &[0]));
    Kind {
        handles: &["StreamId", "GraphId"],
        once,
        make: vec![words(Opcode::cuStreamBeginCaptureToGraph, &[STREAM, IT], &[RELAXED])],
        uses: vec![launch(FUNCTION, STREAM), words(Opcode::graph_nodes, &[IT], &[0]).wants(256)],
        destroy: words(Opcode::cuStreamEndCapture, &[STREAM], &[]),
        clean: vec![words(Opcode::cuStreamSynchronize, &[STREAM], &[])],
        // The graph grows.
        every: 8,
        ..Kind::default()
    }
}

/// Graphs that device code launches.
fn device_graphs(_: &Session) -> Kind {
    Kind {
        handles: &["GraphId", "StreamId"],
        once: with_function(),
        make: graph(),
        uses: vec![words(Opcode::graph_instantiate_for_device, &[IT, DEVICE_LAUNCH, 0], &[0])],
        destroy: words(Opcode::cuGraphDestroy, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

/// A node by which an executable graph is changed.
fn nodes_of_executables(_: &Session) -> Kind {
    let mut make = graph();
    make.push(words(Opcode::cuGraphInstantiateWithFlags, &[EXEC, IT, 0], &[]));
    Kind {
        handles: &["GraphNodeId"],
        once: with_function(),
        make,
        uses: vec![
            words(Opcode::cuGraphExecNodeSetParams, &[EXEC, NODE], &[NODE_KERNEL]).bulk(&kernel_node()),
            words(Opcode::cuGraphNodeSetEnabled, &[EXEC, NODE], &[1]),
            words(Opcode::cuGraphNodeGetEnabled, &[EXEC, NODE], &[]),
        ],
        destroy: words(Opcode::cuGraphDestroyNode, &[NODE], &[]),
        clean: vec![
            words(Opcode::cuGraphExecDestroy, &[EXEC], &[]),
            words(Opcode::cuGraphDestroy, &[IT], &[]),
        ],
        ..Kind::default()
    }
}

fn streams_of_graphs(_: &Session) -> Kind {
    let mut once = with_function();
    once.extend(graph());
    once.push(words(Opcode::cuGraphInstantiateWithFlags, &[EXEC, IT, 0], &[]));
    Kind {
        handles: &["StreamId"],
        once,
        make: vec![words(Opcode::cuStreamCreateWithPriority, &[STREAM], &[1, 0])],
        uses: vec![
            words(Opcode::cuGraphLaunch, &[EXEC, STREAM], &[]),
            words(Opcode::cuGraphUpload, &[EXEC, STREAM], &[]),
        ],
        destroy: words(Opcode::cuStreamDestroy_v2, &[STREAM], &[]),
        ..Kind::default()
    }
}

/// A graph from which an executable one takes its parameters.
fn updates(_: &Session) -> Kind {
    let mut once = with_function();
    once.extend(graph());
    once.push(words(Opcode::cuGraphInstantiateWithFlags, &[EXEC, IT, 0], &[]));
    Kind {
        handles: &["GraphId"],
        once,
        make: vec![words(Opcode::cuGraphClone, &[CLONE, IT], &[])],
        uses: vec![words(Opcode::cuGraphExecUpdate_v2, &[EXEC, CLONE], &[])],
        destroy: words(Opcode::cuGraphDestroy, &[CLONE], &[]),
        ..Kind::default()
    }
}

fn owners_of_user_objects(_: &Session) -> Kind {
    let retain = words(Opcode::cuGraphRetainUserObject, &[IT, USER_OBJECT], &[1, 0]);
    Kind {
        handles: &["GraphId"],
        once: vec![words(Opcode::cuUserObjectCreate, &[USER_OBJECT, USER_OBJECT], &[1, 1])],
        make: vec![words(Opcode::cuGraphCreate, &[IT], &[0]), retain.clone()],
        uses: vec![retain, words(Opcode::cuGraphReleaseUserObject, &[IT, USER_OBJECT], &[1])],
        destroy: words(Opcode::cuGraphDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

/// The graph has a reference, too.
fn retained_user_objects(session: &Session) -> Kind {
    let objects = user_objects(session);
    let retain = words(Opcode::cuGraphRetainUserObject, &[IT, USER_OBJECT], &[1, 0]);
    let uses = vec![words(Opcode::cuGraphReleaseUserObject, &[IT, USER_OBJECT], &[1])];
    Kind { make: [objects.make, vec![retain]].concat(), uses, ..objects }
}

fn nodes(_: &Session) -> Kind {
    Kind {
        handles: &["GraphNodeId"],
        once: with_function(),
        make: graph(),
        uses: vec![
            words(Opcode::cuGraphNodeGetType, &[NODE], &[]),
            words(Opcode::graph_node_links, &[NODE], &[1]).wants(256),
            words(Opcode::graph_node_get_params, &[NODE], &[NODE_KERNEL]).wants(256),
            words(Opcode::cuGraphNodeSetParams, &[NODE], &[NODE_KERNEL]).bulk(&kernel_node()),
            words(Opcode::cuGraphKernelNodeCopyAttributes, &[NODE, NODE], &[]),
            words(Opcode::cuGraphAddDependencies_v2, &[IT], &[]).bulk(&edge()),
            words(Opcode::cuGraphClone, &[CLONE, IT], &[]),
            pieces(Opcode::cuGraphKernelNodeGetAttribute, &[&NODE.to_le_bytes(), &COOPERATIVE.to_le_bytes()]),
            pieces(
                Opcode::cuGraphKernelNodeSetAttribute,
                &[&NODE.to_le_bytes(), &COOPERATIVE.to_le_bytes(), &[0; 64]],
            ),
        ],
        destroy: words(Opcode::cuGraphDestroyNode, &[NODE], &[]),
        clean: vec![words(Opcode::cuGraphDestroy, &[CLONE], &[]), words(Opcode::cuGraphDestroy, &[IT], &[])],
        ..Kind::default()
    }
}

fn child_graphs(_: &Session) -> Kind {
    let mut once = with_function();
    once.push(words(Opcode::cuGraphCreate, &[INNER], &[0]));
    once.push(add(INNER, NODE, NODE_EMPTY, &[]));
    Kind {
        handles: &["GraphId", "GraphNodeId"],
        once,
        make: vec![
            words(Opcode::cuGraphCreate, &[OUTER], &[0]),
            add(OUTER, NODE + 1, NODE_GRAPH, &INNER.to_le_bytes()),
            words(Opcode::cuGraphChildGraphNodeGetGraph, &[NODE + 1], &[]),
        ],
        uses: vec![
            words(Opcode::graph_nodes, &[ANSWER], &[0]).wants(256),
            add(ANSWER, NODE + 2, NODE_EMPTY, &[]),
            words(Opcode::cuGraphChildGraphNodeGetGraph, &[NODE + 1], &[]),
        ],
        destroy: words(Opcode::cuGraphDestroy, &[OUTER], &[]),
        ..Kind::default()
    }
}

fn executable_graphs(_: &Session) -> Kind {
    let mut once = with_function();
    once.extend(graph());
    Kind {
        handles: &["GraphExecId"],
        once,
        make: vec![words(Opcode::cuGraphInstantiateWithFlags, &[EXEC, IT, 0], &[])],
        uses: vec![
            words(Opcode::cuGraphLaunch, &[EXEC, LEGACY], &[]),
            words(Opcode::cuGraphUpload, &[EXEC, LEGACY], &[]),
            words(Opcode::cuGraphExecGetFlags, &[EXEC], &[]),
            words(Opcode::cuGraphExecUpdate_v2, &[EXEC, IT], &[]),
            words(Opcode::cuGraphNodeSetEnabled, &[EXEC, NODE], &[1]),
            words(Opcode::cuGraphNodeGetEnabled, &[EXEC, NODE], &[]),
            words(Opcode::cuGraphExecNodeSetParams, &[EXEC, NODE], &[NODE_KERNEL]).bulk(&kernel_node()),
        ],
        destroy: words(Opcode::cuGraphExecDestroy, &[EXEC], &[]),
        ..Kind::default()
    }
}

fn user_objects(_: &Session) -> Kind {
    Kind {
        handles: &["UserObjectId"],
        once: vec![words(Opcode::cuGraphCreate, &[IT], &[0])],
        make: vec![words(Opcode::cuUserObjectCreate, &[USER_OBJECT, USER_OBJECT], &[1, 1])],
        uses: vec![
            words(Opcode::cuUserObjectRetain, &[USER_OBJECT], &[1]),
            words(Opcode::cuGraphRetainUserObject, &[IT, USER_OBJECT], &[1, 0]),
        ],
        destroy: words(Opcode::cuUserObjectRelease, &[USER_OBJECT], &[1]),
        clean: vec![
            words(Opcode::cuGraphReleaseUserObject, &[IT, USER_OBJECT], &[1]),
            words(Opcode::cuGraphReleaseUserObject, &[IT, USER_OBJECT], &[1]),
            words(Opcode::cuUserObjectRelease, &[USER_OBJECT], &[1]),
            words(Opcode::cuUserObjectRelease, &[USER_OBJECT], &[1]),
            // Its name is free again when its end was reported to the guest.
            pieces(Opcode::session_next_callback, &[&[0; 8]]),
        ],
        ends_later: true,
        ..Kind::default()
    }
}

fn captures(_: &Session) -> Kind {
    let mut once = with_function();
    once.push(words(Opcode::cuStreamCreateWithPriority, &[STREAM], &[1, 0]));
    Kind {
        handles: &["StreamId"],
        once,
        make: vec![words(Opcode::cuStreamBeginCapture_v2, &[STREAM], &[RELAXED]), launch(FUNCTION, STREAM)],
        uses: vec![
            launch(FUNCTION, STREAM),
            words(Opcode::cuStreamGetCaptureInfo_v3, &[STREAM], &[]).wants(256),
            words(Opcode::cuStreamIsCapturing, &[STREAM], &[]),
            words(Opcode::cuStreamUpdateCaptureDependencies_v2, &[STREAM], &[SET_DEPENDENCIES]),
        ],
        destroy: words(Opcode::cuStreamEndCapture, &[STREAM], &[]),
        clean: vec![words(Opcode::cuStreamSynchronize, &[STREAM], &[])],
        ..Kind::default()
    }
}
