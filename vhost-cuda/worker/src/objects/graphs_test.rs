// SPDX-License-Identifier: Apache-2.0 OR MIT

use virtio_cuda_protocol::cuda::{CallbackId, NODE_GRAPH};

use super::*;

const STREAM: Capturing = Capturing::Stream(5);

fn raw<T>(number: usize) -> *mut T {
    std::ptr::without_provenance_mut(number)
}

#[test]
fn the_guest_may_not_take_names_of_the_worker() {
    let graphs = Graphs::default();
    for bad in [0, 2, FIRST_HANDLE - 1, FIRST_WORKER_HANDLE, u64::MAX] {
        assert_eq!(graphs.take_graph_name(GraphId(bad)).unwrap_err(), CudaError::INVALID_VALUE);
    }
    let taken = graphs.take_graph_name(GraphId(FIRST_HANDLE)).unwrap();
    graphs.take_graph_name(GraphId(FIRST_HANDLE)).expect_err("another thread makes it");
    graphs.take_node_name(GraphNodeId(FIRST_HANDLE)).expect("kinds have names of their own");
    graphs.add_graph(&Held::default(), GraphId(FIRST_HANDLE), raw(8), None);
    drop(taken);
    assert_eq!(graphs.take_graph_name(GraphId(FIRST_HANDLE)).unwrap_err(), CudaError::INVALID_VALUE);
}

#[test]
fn nodes_of_the_driver_get_one_name() {
    let graphs = Graphs::default();
    let graph = graphs.name_graph(raw(8), None);
    let node = graphs.name_node(raw(16), graph);
    assert_eq!(graphs.name_node(raw(16), graph), node);
    assert_ne!(graphs.name_node(raw(24), graph), node);
    assert_eq!(graphs.name_node(raw(0), graph), GraphNodeId(0));
    assert_eq!(graphs.node(&Held::default(), node), Ok(raw(16)));
}

#[test]
fn a_graph_takes_what_is_in_it_along() {
    let graphs = Graphs::default();
    let graph = graphs.name_graph(raw(8), None);
    let node = graphs.name_node(raw(16), graph);
    let inner = graphs.name_graph(raw(24), Some(node));
    let leaf = graphs.name_node(raw(32), inner);
    graphs.add_lease(inner, Lease::new(0x1000));
    assert!(graphs.remove_graph(inner).is_err(), "a graph in a node dies with the node");
    let (_, leases) = graphs.remove_graph(graph).unwrap().expect("nothing was made from it");
    assert_eq!(leases.len(), 1);
    let held = Held::default();
    assert!(graphs.graph(&held, inner).is_err());
    assert!(graphs.node(&held, leaf).is_err() && graphs.node(&held, node).is_err());
}

#[test]
fn graphs_for_the_device_keep_the_name_of_the_driver() {
    let graphs = Graphs::default();
    let address = 0x7fff_0000_1230_usize;
    let object = |address| Arc::new(Object::new::<u8>(raw(address)));
    let exec = graphs.add_device_exec(object(address)).unwrap();
    assert_eq!((exec.0, graphs.exec(&Held::default(), exec)), (address as u64, Ok(raw(address))));
    assert!(graphs.take_exec_name(exec).is_err(), "no name for the guest to choose");
    let taken = graphs.add_device_exec(object(FIRST_HANDLE as usize));
    assert_eq!(taken.unwrap_err().0, CudaError::NOT_SUPPORTED, "a name that the guest may choose");
    graphs.remove_exec(exec).unwrap();
    assert!(graphs.exec(&Held::default(), exec).is_err());
    graphs.add_device_exec(object(address)).expect("the driver may use an address again");
}

#[test]
fn a_failed_capture_takes_its_graph_along() {
    let graphs = Graphs::default();
    let graph = graphs.name_graph(raw(8), None);
    assert!(graphs.capture_begins(STREAM) && !graphs.capture_begins(STREAM));
    graphs.capture_begun(STREAM, graph, true);
    assert!(graphs.is_capturing());
    graphs.capture_ended(STREAM, true);
    assert!(!graphs.is_capturing() && graphs.graph(&Held::default(), graph).is_err());
}

#[test]
fn nothing_is_taken_from_a_graph_into_which_a_stream_captures() {
    let graphs = Graphs::default();
    let outer = graphs.name_graph(raw(8), None);
    let (around, beside) = (graphs.name_node(raw(16), outer), graphs.name_node(raw(24), outer));
    let inner = graphs.name_graph(raw(32), Some(around));
    let leaf = graphs.name_node(raw(40), inner);
    graphs.capture_begins(STREAM);
    graphs.capture_begun(STREAM, inner, false);
    assert!(graphs.remove_graph(outer).is_err(), "it contains the graph");
    assert!(graphs.check_removable(leaf).is_err() && graphs.check_removable(around).is_err());
    assert!(graphs.check_replaceable(around).is_err());
    assert!(graphs.check_removable(beside).is_ok() && graphs.check_replaceable(beside).is_ok());
    graphs.capture_ended(STREAM, true);
    assert!(graphs.graph(&Held::default(), inner).is_ok(), "it was there before the capture");
    assert!(graphs.check_removable(leaf).is_ok() && graphs.check_replaceable(around).is_ok());
    assert!(graphs.remove_graph(outer).is_ok());
}

#[test]
fn a_context_takes_captures_of_threads_along() {
    let graphs = Graphs::default();
    let of_thread = |context| Capturing::OfThread { thread: 7, context };
    let [ours, others, object] = [8, 16, 24].map(|address| graphs.name_graph(raw(address), None));
    for (stream, graph) in [(of_thread(1), ours), (of_thread(2), others), (STREAM, object)] {
        graphs.capture_begins(stream);
        graphs.capture_begun(stream, graph, true);
    }
    graphs.default_captures_ended(1);
    let exists = |graph| graphs.graph(&Held::default(), graph).is_ok();
    assert_eq!([ours, others, object].map(exists), [false, true, true]);
    assert!(graphs.is_capturing());
}

#[test]
fn a_call_has_a_graph_and_what_is_in_it_for_itself() {
    let graphs = Graphs::default();
    let graph = graphs.name_graph(raw(8), None);
    let node = graphs.name_node(raw(16), graph);
    let inner = graphs.name_graph(raw(24), Some(node));
    let mut held = Held::default();
    graphs.graph(&held, inner).unwrap();
    assert_eq!((graphs.graph(&held, graph), graphs.node(&held, node)), (Ok(raw(8)), Ok(raw(16))));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| graphs.node(&Held::default(), node).map(drop));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!other.is_finished(), "it waits for the first call");
        // This destroys the node.
        graphs.remove_node(node).unwrap();
        held.release();
        assert_eq!(other.join().unwrap(), Err(CudaError::INVALID_VALUE));
    });
}

#[test]
fn several_families_are_taken_at_once() {
    let graphs = Graphs::default();
    let (one, other) = (graphs.name_graph(raw(8), None), graphs.name_graph(raw(16), None));
    let node = graphs.name_node(raw(24), other);
    let mut held = Held::default();
    graphs.graph(&held, one).unwrap();
    assert_eq!(graphs.node(&held, node), Err(CudaError::INVALID_VALUE), "of another graph");
    held.release();
    graphs.enter(&held, &[one, GraphId(99)], &[node]);
    assert!(graphs.node(&held, node).is_ok() && graphs.graph(&held, one).is_ok());
    assert!(graphs.graph(&held, GraphId(99)).is_err());
}

#[test]
fn an_address_that_the_driver_uses_again_keeps_its_new_name() {
    let graphs = Graphs::default();
    let (one, other) = (graphs.name_graph(raw(8), None), graphs.name_graph(raw(16), None));
    let node = graphs.name_node(raw(24), one);
    // The driver has destroyed the node and made another one at its address before the first lost its name.
    graphs.add_node(GraphNodeId(FIRST_HANDLE), raw(24), other, None);
    graphs.remove_node(node).unwrap();
    assert_eq!(graphs.name_node(raw(24), other), GraphNodeId(FIRST_HANDLE));
}

#[test]
fn handles_of_conditional_nodes_die_with_their_graph() {
    let graphs = Graphs::default();
    let graph = graphs.name_graph(raw(8), None);
    graphs.add_conditional_handle(graph, 77).unwrap();
    assert!(graphs.is_conditional_handle(77));
    graphs.remove_graph(graph).unwrap();
    assert!(!graphs.is_conditional_handle(77));
}

const EXEC: GraphExecId = GraphExecId(FIRST_HANDLE + 160);

fn executable(graphs: &Graphs, exec: GraphExecId, graph: GraphId) {
    graphs.add_exec(exec, Arc::new(Object::new::<u8>(raw(exec.0 as usize))), graph).unwrap();
}

/// The graph that describes [`EXEC`].
fn described(graphs: &Graphs) -> Result<GraphId, &'static str> {
    graphs.rows().map(|(_, execs)| execs[0].graph)
}

#[test]
fn a_graph_stays_for_its_executable_graphs() {
    let graphs = Graphs::default();
    let other = GraphExecId(EXEC.0 + 16);
    let graph = graphs.name_graph(raw(8), None);
    let node = graphs.name_node(raw(16), graph);
    graphs.add_disguised(raw(24), raw(8), MemcpyNode { before: CallbackId(5), ..MemcpyNode::default() });
    executable(&graphs, EXEC, graph);
    executable(&graphs, other, graph);
    graphs.set_user_objects(graph, UserObjectId(7), 2);
    assert_eq!(described(&graphs), Ok(graph));
    assert!(graphs.remove_graph(graph).unwrap().is_none());
    let (rows, _) = graphs.rows().unwrap();
    let hidden = described(&graphs).unwrap();
    assert_ne!(hidden, graph);
    assert_eq!((rows.len(), rows[0].name, rows[0].raw, rows[0].is_hidden), (1, hidden, 8, true));
    assert_eq!(rows[0].user_objects, [(7, 2)]);
    assert_eq!(graphs.disguised_in(hidden).len(), 1);
    let held = Held::default();
    assert!(graphs.graph(&held, hidden).is_err() && graphs.graph(&held, graph).is_err());
    let inside = graphs.name_node(raw(16), hidden);
    assert!(graphs.node(&held, inside).is_err() && graphs.node(&held, node).is_err());
    assert!(graphs.remove_graph(hidden).is_err(), "a name that the guest has guessed");
    graphs.remove_exec(EXEC).unwrap();
    assert!(graphs.take_unused().is_empty());
    graphs.remove_exec(other).unwrap();
    assert_eq!(graphs.take_unused(), [raw(8)]);
    assert!(graphs.rows().unwrap().0.is_empty() && graphs.take_unused().is_empty());
}

#[test]
fn a_graph_that_has_changed_does_not_describe_its_executable_graph() {
    let graphs = Graphs::default();
    let graph = graphs.name_graph(raw(8), None);
    let node = graphs.name_node(raw(16), graph);
    let inner = graphs.name_graph(raw(24), Some(node));
    let leaf = graphs.name_node(raw(32), inner);
    executable(&graphs, EXEC, graph);
    let changes: [&dyn Fn(); 4] =
        [&|| graphs.changed(graph), &|| graphs.node_changed(node), &|| graphs.changed(inner), &|| {
            graphs.node_changed(leaf)
        }];
    for change in changes {
        change();
        assert_eq!(described(&graphs), Err("a graph was changed after it was made executable"));
        graphs.updated(EXEC, graph);
        assert_eq!(described(&graphs), Ok(graph));
    }
    let other = graphs.name_graph(raw(40), None);
    graphs.updated(EXEC, other);
    assert_eq!(described(&graphs), Err("an executable graph was updated from another graph"));
    // It describes nothing.
    assert!(graphs.remove_graph(graph).unwrap().is_some());
    assert_eq!(described(&graphs), Ok(other), "its nodes have no names any more");
    assert!(graphs.remove_graph(other).unwrap().is_none());
    let third = graphs.name_graph(raw(48), None);
    graphs.updated(EXEC, third);
    assert_eq!((graphs.take_unused(), described(&graphs)), (vec![raw(40)], Ok(third)));
    let node = graphs.name_node(raw(16), third);
    executable(&graphs, GraphExecId(EXEC.0 + 16), graphs.name_graph(raw(24), Some(node)));
    assert!(described(&graphs).is_err_and(|reason| reason.contains("in nodes")));
}

#[test]
fn parameters_of_executable_graphs_are_kept_and_bounded() {
    let graphs = Graphs::default();
    let graph = graphs.name_graph(raw(8), None);
    executable(&graphs, EXEC, graph);
    let own = || graphs.rows().map(|(_, execs)| (execs[0].own.clone(), execs[0].off.clone()));
    graphs.set_own(EXEC, raw(16), 1, &[1; 8]);
    graphs.set_own(EXEC, raw(16), 1, &[2; 4]);
    graphs.set_off(EXEC, raw(24), true);
    graphs.set_off(EXEC, raw(32), true);
    graphs.set_off(EXEC, raw(32), false);
    assert_eq!(own(), Ok((vec![(16, (1, [2; 4].into()))], vec![24])));
    graphs.updated(EXEC, graph);
    assert_eq!(own(), Ok((vec![], vec![24])), "the graph's parameters replace them");
    let many = vec![0; 9 << 20];
    graphs.set_own(EXEC, raw(16), 1, &many);
    graphs.set_own(EXEC, raw(16), 1, &many);
    assert!(own().is_ok());
    graphs.set_own(EXEC, raw(24), 1, &many);
    assert_eq!(own(), Err("parameters of executable graphs are longer than 16 MiB"));
    let other = GraphExecId(EXEC.0 + 16);
    executable(&graphs, other, graph);
    graphs.set_own(other, raw(16), 1, &many);
    graphs.remove_exec(EXEC).unwrap();
    assert_eq!(own().map(|(own, _)| own.len()), Ok(1), "there is room again");
    graphs.set_own(other, raw(24), NODE_GRAPH, &[]);
    assert!(own().is_err());
}

#[test]
fn names_stay_when_all_graphs_have_ended() {
    let graphs = Graphs::default();
    let graph = graphs.name_graph(raw(8), None);
    executable(&graphs, EXEC, graph);
    let named = graphs.named();
    let (execs, whole) = graphs.take_all();
    assert_eq!((execs.len(), whole), (1, vec![raw(8)]));
    graphs.begin_again(0);
    let taken = graphs.take_graph_name(graph).expect("the worker has chosen it before");
    graphs.add_graph(&Held::default(), graph, raw(16), None);
    drop(taken);
    graphs.hide_again(graph).unwrap();
    graphs.end_again();
    assert!(graphs.take_graph_name(GraphId(graph.0 + 1)).is_err() && graphs.named() == named);
    assert!(graphs.name_graph(raw(24), None).0 > graph.0);
    graphs.hide_unused();
    assert_eq!(graphs.take_unused(), [raw(16)]);
}
