// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditional nodes: graphs that run depending on a condition that device code sets (IF, WHILE, SWITCH).

use std::sync::Arc;

use cuda_abi::CUDA_CONDITIONAL_NODE_PARAMS;

use super::body::{self, CUgraph, Graph, forget};
use super::work::Work;
use crate::conditions::Condition;
use crate::driver::context::{self, CUcontext};
use crate::driver::ffi::{InOut, Out};
use crate::driver::result::{CUresult, CuResult};

/// CU_GRAPH_COND_ASSIGN_DEFAULT
const ASSIGN_DEFAULT: u32 = 1;
/// CUgraphConditionalNodeType
const IF: u32 = 0;
const WHILE: u32 = 1;
const SWITCH: u32 = 2;
/// The maximum number of graphs of a SWITCH. Bounds the allocation for a wrong number.
const MAX_GRAPHS: u32 = 1 << 12;

/// The work of a conditional node.
pub(in super::super) struct Conditional {
    pub(super) condition: Arc<Condition>,
    kind: u32,
    pub(super) graphs: Vec<Arc<Graph>>,
    /// The array that programs receive.
    handles: Box<[CUgraph]>,
}

impl Drop for Conditional {
    fn drop(&mut self) {
        self.handles.iter().for_each(|handle| forget(*handle));
        self.condition.take(false);
    }
}

/// The next step of a conditional node.
pub(super) enum Next {
    /// Run this graph, and then the node is done.
    Last(usize),
    /// Run this graph, and then check the condition again.
    Again(usize),
    /// The node is done.
    Done,
}

impl Conditional {
    /// Returns the graph that runs with the present condition.
    pub(super) fn next(&self) -> Next {
        let (value, count) = (self.condition.value() as usize, self.graphs.len());
        match self.kind {
            WHILE if value != 0 => Next::Again(0),
            IF if value != 0 => Next::Last(0),
            IF if count > 1 => Next::Last(1),
            SWITCH if value < count => Next::Last(value),
            _ => Next::Done,
        }
    }

    /// Returns whether another node is the same except for the contents of its graphs.
    pub(super) fn is_like(&self, other: &Conditional) -> bool {
        self.kind == other.kind && self.graphs.len() == other.graphs.len()
    }
}

/// Returns the conditional node of parameters. Its graphs are stored there.
pub(super) fn conditional_of(place: InOut<CUDA_CONDITIONAL_NODE_PARAMS>) -> CuResult<Work> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let mut params = place.get()?;
    context::find_or_current(CUcontext::new(params.context as usize))?;
    let condition = Condition::find(params.handle).ok_or(invalid)?;
    if condition.is_taken() {
        return Err(invalid);
    }
    let sizes = match params.kind {
        IF => 1..=2,
        WHILE => 1..=1,
        SWITCH => 1..=MAX_GRAPHS,
        _ => return Err(invalid),
    };
    if !sizes.contains(&params.size) {
        return Err(invalid);
    }
    let graphs: Vec<_> = (0..params.size).map(|_| Graph::new()).collect();
    let handles: Box<[_]> = graphs.iter().map(Graph::publish).collect();
    params.graphs = handles.as_ptr() as usize;
    place.set_if_wanted(params);
    condition.take(true);
    Ok(Work::Conditional(Arc::new(Conditional { condition, kind: params.kind, graphs, handles })))
}

/// Creates a handle that lives as long as the graph, which must get a node for it before it can be instantiated.
fn create_handle(
    out: Out<u64>,
    graph: CUgraph,
    context: CUcontext,
    default: u32,
    flags: u32,
) -> CuResult<()> {
    out.check()?;
    let graph = body::find(graph)?;
    if context == CUcontext::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    context::find_or_current(context)?;
    if flags & !ASSIGN_DEFAULT != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let condition = Condition::new((flags & ASSIGN_DEFAULT != 0).then_some(default));
    out.set_if_wanted(condition.handle);
    graph.add_condition(condition);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuGraphConditionalHandleCreate => create_handle(
        out: Out<u64>, graph: CUgraph, context: CUcontext, default: u32, flags: u32);
}
