// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs, what is in them, and what is made of them: CUDA synchronises none of it.

use anyhow::Result;
use vhost_cuda_tests::frontend::CallParts;
use virtio_cuda_protocol::cuda::{NODE_EMPTY, NODE_GRAPH, NODE_KERNEL, Opcode};

use super::kinds::{FUNCTION, IT, launch, with_function};
use super::{ANSWER, Kind, pieces, race, words};
use crate::Target;
use crate::calls::Session;

/// A test and its name.
type Test = (&'static str, fn(&mut Target) -> Result<()>);

pub const ALL: &[Test] = &[
    ("graphs", |target| race(target, graphs)),
    ("nodes", |target| race(target, nodes)),
    ("child_graphs", |target| race(target, child_graphs)),
    ("executable_graphs", |target| race(target, executable_graphs)),
    ("user_objects", |target| race(target, user_objects)),
    ("captures", |target| race(target, captures)),
];

const NODE: u64 = 0x20_0000;
const CLONE: u64 = 0x20_0010;
const EXEC: u64 = 0x20_0020;
const OUTER: u64 = 0x20_0030;
const INNER: u64 = 0x20_0040;
const STREAM: u64 = 0x20_0050;
const USER_OBJECT: u64 = 0x20_0060;
const LEGACY: u64 = 1;

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
        once,
        make: graph(),
        uses: vec![
            add(IT, NODE + 2, NODE_EMPTY, &[]),
            words(Opcode::graph_nodes, &[IT], &[0]).wants(256),
            words(Opcode::cuGraphGetEdges_v2, &[IT], &[]).wants(256),
            words(Opcode::cuGraphClone, &[CLONE, IT], &[]),
            words(Opcode::cuGraphInstantiateWithFlags, &[EXEC, IT, 0], &[]),
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

fn nodes(_: &Session) -> Kind {
    Kind {
        once: with_function(),
        make: graph(),
        uses: vec![
            words(Opcode::cuGraphNodeGetType, &[NODE], &[]),
            words(Opcode::graph_node_links, &[NODE], &[1]).wants(256),
            words(Opcode::graph_node_get_params, &[NODE], &[NODE_KERNEL]).wants(256),
            words(Opcode::cuGraphNodeSetParams, &[NODE], &[NODE_KERNEL]).bulk(&kernel_node()),
            words(Opcode::cuGraphKernelNodeCopyAttributes, &[NODE, NODE], &[]),
            words(Opcode::cuGraphAddDependencies_v2, &[IT], &[])
                .bulk(&[NODE.to_le_bytes(), (NODE + 1).to_le_bytes(), [0; 8]].concat()),
            words(Opcode::cuGraphClone, &[CLONE, IT], &[]),
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
        once: vec![words(Opcode::cuGraphCreate, &[IT], &[0])],
        make: vec![words(Opcode::cuUserObjectCreate, &[USER_OBJECT, USER_OBJECT], &[1, 1])],
        uses: vec![
            words(Opcode::cuUserObjectRetain, &[USER_OBJECT], &[1]),
            words(Opcode::cuGraphRetainUserObject, &[IT, USER_OBJECT], &[1, 0]),
        ],
        destroy: words(Opcode::cuUserObjectRelease, &[USER_OBJECT], &[1]),
        clean: vec![
            // One by one: NVIDIA's driver refuses to release more than there are.
            words(Opcode::cuGraphReleaseUserObject, &[IT, USER_OBJECT], &[1]),
            words(Opcode::cuGraphReleaseUserObject, &[IT, USER_OBJECT], &[1]),
            words(Opcode::cuUserObjectRelease, &[USER_OBJECT], &[1]),
            words(Opcode::cuUserObjectRelease, &[USER_OBJECT], &[1]),
            // Its name is free again when the guest has been told of its end.
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
        once,
        make: vec![
            // Relaxed: another thread may add to it, and end it.
            words(Opcode::cuStreamBeginCapture_v2, &[STREAM], &[2]),
            launch(FUNCTION, STREAM),
        ],
        uses: vec![
            launch(FUNCTION, STREAM),
            words(Opcode::cuStreamGetCaptureInfo_v3, &[STREAM], &[]).wants(256),
            words(Opcode::cuStreamIsCapturing, &[STREAM], &[]),
        ],
        destroy: words(Opcode::cuStreamEndCapture, &[STREAM], &[]),
        clean: vec![words(Opcode::cuStreamSynchronize, &[STREAM], &[])],
        ..Kind::default()
    }
}
