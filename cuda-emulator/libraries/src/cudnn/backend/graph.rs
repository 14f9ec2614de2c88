// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs of operations.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::{BAD_PARAM, Blend, NOT_SUPPORTED, Operand, Status};
use super::descriptor::{Attributes, Made};
use super::node::Node;
use super::pack::{Pack, by_value};
use super::ragged::Ragged;
use super::tensor::{MAX_ALIVE, Tensor};
use crate::stream::{Done, Fault};

/// Operations in an order in which each follows those that it depends on.
///
/// # Invariants
/// No tensor is the output of two operations, tensors with the same number are the same, and each virtual tensor is an output
/// before it is an input. The tensors whose size no memory bounds and that are alive at once, and what an operation allocates for
/// itself, have at most [`MAX_ALIVE`] elements.
#[derive(Debug)]
pub struct Graph {
    nodes: Vec<Arc<Node>>,
    /// The last operation that uses a tensor.
    last: HashMap<i64, usize>,
}

/// The addresses of the tensors of an execution.
#[derive(Debug, Default)]
pub struct Bound {
    values: HashMap<i64, Vec<f64>>,
    operands: HashMap<i64, Operand>,
    ragged: HashMap<i64, Ragged>,
}

impl Graph {
    /// A graph of these attributes.
    pub fn new(attributes: &Attributes) -> Result<Self, Status> {
        let nodes = attributes.descriptors(801)?.iter().map(|found| match &found.made {
            Made::Operation(node) => Ok(node.clone()),
            _ => Err(BAD_PARAM),
        });
        // Sizes that are known only when the plan is executed.
        if attributes.integer_or(803, 0)? != 0 {
            return Err(NOT_SUPPORTED);
        }
        Self::of(nodes.collect::<Result<_, _>>()?)
    }

    /// A graph of operations in any order.
    pub fn of(mut waiting: Vec<Arc<Node>>) -> Result<Self, Status> {
        if waiting.is_empty() {
            return Err(BAD_PARAM);
        }
        let mut known: HashMap<i64, Tensor> = HashMap::new();
        for tensor in waiting.iter().flat_map(|node| node.tensors()) {
            if known.entry(tensor.uid).or_insert_with(|| tensor.clone()) != tensor {
                return Err(BAD_PARAM);
            }
        }
        let mut outputs = HashSet::new();
        for output in waiting.iter().flat_map(|node| node.outputs()) {
            if !outputs.insert(output.uid) || output.is_by_value {
                return Err(BAD_PARAM);
            }
        }
        let (mut nodes, mut done) = (Vec::new(), HashSet::new());
        while !waiting.is_empty() {
            let is_ready = |input: &Tensor| done.contains(&input.uid) || !outputs.contains(&input.uid);
            let ready = waiting.iter().position(|node| node.inputs().all(is_ready));
            // If none is ready, they depend on each other in a circle.
            let node = waiting.remove(ready.ok_or(BAD_PARAM)?);
            if node.inputs().any(|input| input.is_virtual && !done.contains(&input.uid)) {
                return Err(NOT_SUPPORTED);
            }
            done.extend(node.outputs().map(|output| output.uid));
            nodes.push(node);
        }
        let uses = |(index, node): (usize, &Arc<Node>)| -> Vec<(i64, usize)> {
            node.tensors().map(|tensor| (tensor.uid, index)).collect()
        };
        let last = nodes.iter().enumerate().flat_map(uses).collect();
        if !is_small(&nodes, &last) {
            return Err(NOT_SUPPORTED);
        }
        Ok(Self { nodes, last })
    }

    /// Finds the tensors of an execution. Numbers in host memory are read now.
    pub fn bind(&self, pack: &Pack) -> Result<Bound, Status> {
        let mut bound = Bound::default();
        for tensor in self.nodes.iter().flat_map(|node| node.tensors()) {
            if tensor.is_virtual {
                continue;
            }
            let address = pack.address(tensor.uid)?;
            if tensor.is_by_value {
                bound.values.insert(tensor.uid, vec![by_value(tensor.layout.kind, address)?]);
            } else if let Some((uid, layout)) = &tensor.offsets {
                let offsets = Operand::new(layout.clone(), pack.address(*uid)?)?;
                let ragged = Ragged::new(tensor.layout.clone(), address, offsets)?;
                bound.ragged.insert(tensor.uid, ragged);
            } else {
                bound.operands.insert(tensor.uid, Operand::new(tensor.layout.clone(), address)?);
            }
        }
        Ok(bound)
    }

    /// Computes all outputs.
    pub fn execute(&self, bound: &Bound) -> Done {
        bound.operands.values().try_for_each(Operand::check)?;
        self.run(
            bound.values.clone(),
            |tensor| match bound.ragged.get(&tensor.uid) {
                Some(ragged) => ragged.load(),
                None => bound.operands[&tensor.uid].load(),
            },
            |tensor, elements, blend| match bound.ragged.get(&tensor.uid) {
                Some(ragged) => ragged.store(elements),
                None => bound.operands[&tensor.uid].store(elements, blend),
            },
        )
    }

    /// Computes all outputs, of `values` and of tensors in memory.
    pub fn run(
        &self,
        mut values: HashMap<i64, Vec<f64>>,
        load: impl Fn(&Tensor) -> Result<Vec<f64>, Fault>,
        mut store: impl FnMut(&Tensor, &[f64], Blend) -> Done,
    ) -> Done {
        for (index, node) in self.nodes.iter().enumerate() {
            for input in node.inputs() {
                if let Entry::Vacant(place) = values.entry(input.uid) {
                    place.insert(load(input)?);
                }
            }
            let elements =
                |input: &Option<Tensor>| input.as_ref().map_or(&[][..], |input| &values[&input.uid]);
            let inputs: Vec<&[f64]> = node.inputs.iter().map(elements).collect();
            let results = node.compute(&inputs);
            for (output, mut result) in node.outputs.iter().zip(results) {
                match output {
                    Some(output) if output.is_virtual => {
                        result.iter_mut().for_each(|value| *value *= node.blend.alpha);
                        values.insert(output.uid, result);
                    }
                    // A later operation reads the rounded elements.
                    Some(output) => store(output, &result, node.blend)?,
                    None => {}
                }
            }
            // As `is_small` counts: the matrices of an attention are much larger than its inputs and outputs.
            for tensor in node.tensors().filter(|tensor| self.last[&tensor.uid] == index) {
                values.remove(&tensor.uid);
            }
        }
        Ok(())
    }
}

/// Returns whether the tensors whose size no memory bounds, and the temporary memory of an operation, have few enough
/// elements at any time. Each tensor is alive from the first to the last operation that uses it.
fn is_small(nodes: &[Arc<Node>], last: &HashMap<i64, usize>) -> bool {
    let (mut alive, mut count) = (HashSet::new(), 0);
    nodes.iter().enumerate().all(|(index, node)| {
        let tensors = || node.tensors().filter(|tensor| tensor.is_unbounded());
        count += tensors().filter(|tensor| alive.insert(tensor.uid)).map(elements).sum::<usize>();
        let is_small = count.saturating_add(node.temporaries()) <= MAX_ALIVE;
        let ending = tensors().filter(|tensor| last[&tensor.uid] == index && alive.remove(&tensor.uid));
        count -= ending.map(elements).sum::<usize>();
        is_small
    })
}

fn elements(tensor: &Tensor) -> usize {
    tensor.layout.count()
}
