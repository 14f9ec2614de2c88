// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the graphs of a session that has stopped.

use std::collections::{HashMap, HashSet};

use virtio_cuda_protocol::cuda::{
    ContextId, GraphId, GraphNodeId, NODE_CONDITIONAL, NODE_EMPTY, NODE_GRAPH, NODE_KERNEL, NODE_MEM_ALLOC,
    NODE_MEM_FREE, NODE_MEMCPY, NODE_SEMAPHORES_SIGNAL, NODE_SEMAPHORES_WAIT,
};
use zerocopy::IntoBytes;

use super::library::Repeater;
use super::{
    AttributeRow, EdgeRow, ExecHead, GraphHead, Head, MAX_BYTES, MAX_DEPTH, NodeHead, OF_LIBRARY, References,
    call,
};
use crate::call::{CallContext, ThreadState};
use crate::gpu::{CUgraph, CUgraphNode, CudaError, EVENT_ATTRIBUTES, is_documented};
use crate::handlers::graph::node::{Known, check_parameters, described};
use crate::objects::graphs::sources::{ExecRow, GraphRow};
use crate::run::callbacks::tied_objects;
use crate::state::SessionState;
use crate::words::contents::encode;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;
/// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`.
const DEVICE_UPDATABLE: i32 = 13;
/// The attributes of kernel nodes, and those whose default is not 0: `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP` with 0 and 1,
/// `CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT` with -1.
const ATTRIBUTES: std::ops::RangeInclusive<i32> = 1..=18;
const DEFAULTS: [(i32, &[u8]); 2] = [(9, &[0, 1]), (14, &[0xff; 4])];

/// What is known while graphs are written.
struct Describer<'a> {
    cx: CallContext<'a>,
    out: Vec<u8>,
    known: Known,
    /// The nodes, with their names and the graph that lies in no node.
    places: HashMap<usize, (u64, GraphId)>,
    has_children: bool,
    repeater: Repeater,
}

/// Returns all graphs of a session in which no call runs. Nothing if there are none.
///
/// Errors: the reason for which they cannot be made again.
pub fn describe(session: &'static SessionState) -> Result<Vec<u8>, String> {
    let tied = tied_objects();
    let mut objects = session.objects.user_objects.rows();
    // The others have ended, and the program has not been told yet.
    objects.retain(|(name, _)| tied.contains(name));
    let (graphs, execs) = session.graphs.rows()?;
    if graphs.is_empty() && execs.is_empty() && objects.is_empty() {
        return Ok(Vec::new());
    }
    let context = session.contexts.only().ok_or("graphs of several contexts are not followed")?;
    if session.exec_callbacks.has_copies() {
        return Err("functions of executable graphs in captures are not followed".into());
    }
    let referred: HashSet<u64> =
        graphs.iter().flat_map(|graph| graph.user_objects.iter().map(|(name, _)| *name)).collect();
    if objects.iter().any(|(name, own)| *own == 0 && !referred.contains(name)) {
        return Err("references to user objects are not known".into());
    }
    let mut thread = ThreadState::default();
    thread.make_current(session, context).map_err(|error| error.to_string())?;
    let mut describer = Describer {
        cx: call(session, &mut thread, context, &[]),
        out: Vec::new(),
        known: Known::default(),
        places: HashMap::new(),
        has_children: false,
        repeater: Repeater::new(session, context),
    };
    describer.put(&Head {
        context: context.0,
        named: 0,
        objects: objects.len() as u64,
        graphs: graphs.len() as u64,
        execs: execs.len() as u64,
    })?;
    for (object, count) in &objects {
        describer.put(&References { object: *object, count: *count })?;
    }
    graphs.iter().try_for_each(|graph| describer.nodes(graph.name, graph.raw as CUgraph, graph, 0))?;
    execs.iter().try_for_each(|exec| describer.exec(exec, context))?;
    if describer.has_children && !objects.is_empty() {
        return Err("user objects beside graphs in nodes are not followed".into());
    }
    let mut out = describer.out;
    // Nodes that had no name have one now.
    let named = session.graphs.named().to_le_bytes();
    out[8..16].copy_from_slice(&named);
    Ok(out)
}

/// Returns the driver's error as a reason.
fn failed(what: &'static str) -> impl Fn(CudaError) -> String {
    move |error| format!("{what}: {error}")
}

impl Describer<'_> {
    fn put(&mut self, row: &(impl IntoBytes + zerocopy::Immutable)) -> Result<(), String> {
        self.put_bytes(row.as_bytes())
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.out.len() + bytes.len() > MAX_BYTES {
            return Err(format!("its graphs are longer than {} MiB", MAX_BYTES >> 20));
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn nodes(&mut self, name: GraphId, raw: CUgraph, root: &GraphRow, depth: usize) -> Result<(), String> {
        let gpu = self.cx.gpu();
        let nodes = gpu.graph_nodes(raw, false).map_err(failed("nodes of a graph cannot be listed"))?.0.found;
        let edges = gpu.graph_edges(raw).map_err(failed("edges of a graph cannot be listed"))?.0.found;
        let objects = if depth == 0 { &root.user_objects[..] } else { &[] };
        self.put(&GraphHead {
            name: name.0,
            nodes: nodes.len() as u64,
            edges: edges.from.len() as u64,
            objects: objects.len() as u32,
            is_hidden: (depth == 0 && root.is_hidden).into(),
        })?;
        nodes.into_iter().try_for_each(|node| self.node(node, name, root, depth))?;
        for ((from, to), data) in edges.from.iter().zip(&edges.to.nodes).zip(&edges.to.edges) {
            let name_of = |node: CUgraphNode| self.places.get(&(node as usize)).map(|(name, _)| *name);
            let (Some(from), Some(to)) = (name_of(*from), name_of(*to)) else {
                return Err("an edge of a graph leads out of it".into());
            };
            self.put(&EdgeRow { from, to, data: *data })?;
        }
        objects.iter().try_for_each(|&(object, count)| self.put(&References { object, count }))
    }

    fn node(
        &mut self,
        raw: CUgraphNode,
        graph: GraphId,
        root: &GraphRow,
        depth: usize,
    ) -> Result<(), String> {
        let (gpu, graphs) = (self.cx.gpu(), &self.cx.session.graphs);
        let name = graphs.name_node(raw, graph);
        self.places.insert(raw as usize, (name.0, root.name));
        if let Some(place) = graphs.captured(graph, raw) {
            let bytes = self.repeater.describe(raw, place)?;
            let is_kernel = gpu.cuGraphNodeGetType(raw).is_ok_and(|(kind,)| kind == NODE_KERNEL);
            let attributes = if is_kernel { self.attributes(raw)? } else { Vec::new() };
            let (kind, length) = (OF_LIBRARY, bytes.len() as u32);
            self.put(&NodeHead { name: name.0, kind, bytes: length, attributes: attributes.len() as u64 })?;
            self.put_bytes(&bytes)?;
            return attributes.iter().try_for_each(|row| self.put(row));
        }
        let copy = graphs.disguised_copy(name);
        let kind = match copy {
            Some(_) => NODE_MEMCPY,
            None => gpu.cuGraphNodeGetType(raw).map_err(failed("the kind of a node is not known"))?.0,
        };
        let parameters = match (kind, copy) {
            (NODE_MEM_ALLOC | NODE_MEM_FREE, _) => return Err("memory of graphs is not kept".into()),
            (NODE_CONDITIONAL, _) => return Err("conditional nodes of graphs are not followed".into()),
            (NODE_SEMAPHORES_SIGNAL | NODE_SEMAPHORES_WAIT, _) => {
                return Err("semaphores of other APIs in graphs are not followed".into());
            }
            (NODE_EMPTY | NODE_GRAPH, _) => Vec::new(),
            (_, Some(copy)) => encode(&copy).map_err(failed("a copy in a graph is not known"))?,
            (_, None) => {
                let found = described(&self.cx, raw, None, kind, &mut self.known);
                found.map_err(|error| unknown(kind, error))?
            }
        };
        if kind != NODE_GRAPH {
            self.check(kind, &parameters)?;
        }
        let attributes = if kind == NODE_KERNEL { self.attributes(raw)? } else { Vec::new() };
        self.put(&NodeHead {
            name: name.0,
            kind,
            bytes: parameters.len() as u32,
            attributes: attributes.len() as u64,
        })?;
        self.put_bytes(&parameters)?;
        attributes.iter().try_for_each(|row| self.put(row))?;
        if kind == NODE_GRAPH {
            if depth + 1 >= MAX_DEPTH {
                return Err("graphs lie too deep in each other".into());
            }
            self.has_children = true;
            let (inner,) =
                gpu.cuGraphChildGraphNodeGetGraph(raw).map_err(failed("a graph in a node is not known"))?;
            let inner_name = graphs.name_graph(inner, Some(name));
            self.nodes(inner_name, inner, root, depth + 1)?;
        }
        Ok(())
    }

    /// Checks that a node can be made again: what it refers to may have ended.
    fn check(&mut self, kind: u32, parameters: &[u8]) -> Result<(), String> {
        let checked = check_parameters(&self.cx, kind, parameters);
        self.cx.thread.held.release();
        checked.map_err(|error| unknown(kind, error))
    }

    fn attributes(&self, node: CUgraphNode) -> Result<Vec<AttributeRow>, String> {
        let mut rows = Vec::new();
        for id in ATTRIBUTES.filter(|id| is_documented(*id) && !EVENT_ATTRIBUTES.contains(id)) {
            // A driver may not have all of them.
            let Ok((value,)) = self.cx.gpu().node_attribute(node, id) else { continue };
            let default = DEFAULTS.iter().find(|(of, _)| *of == id).map_or(&[][..], |(_, value)| *value);
            let (head, rest) = value.split_at(default.len());
            if value == [0; 64] || (head == default && rest.iter().all(|byte| *byte == 0)) {
                continue;
            }
            if id == DEVICE_UPDATABLE {
                return Err("nodes of graphs that device code changes are not followed".into());
            }
            rows.push(AttributeRow { id: id as u64, value });
        }
        Ok(rows)
    }

    fn exec(&mut self, row: &ExecRow, context: ContextId) -> Result<(), String> {
        let gpu = self.cx.gpu();
        let raw = row.object.raw();
        let (flags,) = gpu.cuGraphExecGetFlags(raw).map_err(failed("flags of a graph are not known"))?;
        if flags & DEVICE_LAUNCH != 0 || row.object.context() != context.0 {
            return Err("executable graphs for device code are not followed".into());
        }
        let name_of = |node: usize| match self.places.get(&node) {
            Some((name, graph)) if *graph == row.graph => Ok(GraphNodeId(*name)),
            _ => Err("an executable graph was changed by nodes of another graph"),
        };
        let mut own = Vec::new();
        for (node, (kind, bytes)) in &row.own {
            own.push((name_of(*node)?, *kind, bytes));
        }
        let mut off = Vec::new();
        for node in &row.off {
            let enabled = gpu.cuGraphNodeGetEnabled(raw, *node as CUgraphNode);
            let (enabled,) = enabled.map_err(failed("it is not known whether a node is switched off"))?;
            if enabled == 0 {
                off.push(name_of(*node)?);
            }
        }
        own.sort_by_key(|(node, ..)| node.0);
        let (name, graph) = (row.name.0, row.graph.0);
        let (own_nodes, off_nodes) = (own.len() as u64, off.len() as u64);
        self.put(&ExecHead { name, graph, flags, own: own_nodes, off: off_nodes })?;
        for (node, kind, bytes) in own {
            self.check(kind, bytes)?;
            self.put(&NodeHead { name: node.0, kind, bytes: bytes.len() as u32, attributes: 0 })?;
            self.put_bytes(bytes)?;
        }
        off.iter().try_for_each(|node| self.put(&node.0))
    }
}

/// Returns the reason for a node that cannot be described.
fn unknown(kind: u32, error: CudaError) -> String {
    match kind {
        NODE_KERNEL => "a graph has kernels of NVIDIA's libraries, or of code that was unloaded".into(),
        _ => format!("a node of a graph refers to something that has ended ({error})"),
    }
}
