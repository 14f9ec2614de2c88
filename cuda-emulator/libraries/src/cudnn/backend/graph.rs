// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs of operations.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::{BAD_PARAM, NOT_SUPPORTED, Operand, Status};
use super::descriptor::{Attributes, Made};
use super::node::Node;
use super::pack::{Pack, by_value};
use super::tensor::Tensor;
use crate::stream::Done;

/// Operations in an order in which each follows those that it depends on.
///
/// # Invariants
/// No tensor is the output of two operations, tensors with the same number are the same, and each virtual tensor is an output
/// before it is an input.
#[derive(Debug)]
pub struct Graph {
    nodes: Vec<Arc<Node>>,
}

/// The addresses of the tensors of an execution.
#[derive(Debug, Default)]
pub struct Bound {
    values: HashMap<i64, Vec<f64>>,
    operands: HashMap<i64, Operand>,
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
        for tensor in waiting.iter().flat_map(|node| node.inputs.iter().chain([&node.output])) {
            if known.entry(tensor.uid).or_insert_with(|| tensor.clone()) != tensor {
                return Err(BAD_PARAM);
            }
        }
        let outputs: HashSet<i64> = waiting.iter().map(|node| node.output.uid).collect();
        let is_output_by_value = waiting.iter().any(|node| node.output.is_by_value);
        if outputs.len() != waiting.len() || is_output_by_value {
            return Err(BAD_PARAM);
        }
        let (mut nodes, mut done) = (Vec::new(), HashSet::new());
        while !waiting.is_empty() {
            let is_ready = |input: &Tensor| done.contains(&input.uid) || !outputs.contains(&input.uid);
            let ready = waiting.iter().position(|node| node.inputs.iter().all(is_ready));
            // None is ready: they depend on each other in a circle.
            let node = waiting.remove(ready.ok_or(BAD_PARAM)?);
            if node.inputs.iter().any(|input| input.is_virtual && !done.contains(&input.uid)) {
                return Err(NOT_SUPPORTED);
            }
            done.insert(node.output.uid);
            nodes.push(node);
        }
        Ok(Self { nodes })
    }

    /// Finds the tensors of an execution. Numbers in host memory are read now.
    pub fn bind(&self, pack: &Pack) -> Result<Bound, Status> {
        let mut bound = Bound::default();
        for tensor in self.nodes.iter().flat_map(|node| node.inputs.iter().chain([&node.output])) {
            if tensor.is_virtual {
                continue;
            }
            let address = pack.address(tensor.uid)?;
            if tensor.is_by_value {
                bound.values.insert(tensor.uid, vec![by_value(tensor.layout.kind, address)?]);
            } else {
                bound.operands.insert(tensor.uid, Operand::new(tensor.layout.clone(), address)?);
            }
        }
        Ok(bound)
    }

    /// Computes all outputs.
    pub fn execute(&self, bound: &Bound) -> Done {
        bound.operands.values().try_for_each(Operand::check)?;
        let mut values = bound.values.clone();
        for node in &self.nodes {
            for input in &node.inputs {
                if let (Some(operand), false) =
                    (bound.operands.get(&input.uid), values.contains_key(&input.uid))
                {
                    values.insert(input.uid, operand.load()?);
                }
            }
            let inputs: Vec<&[f64]> = node.inputs.iter().map(|input| &values[&input.uid][..]).collect();
            let result = node.compute(&inputs);
            match bound.operands.get(&node.output.uid) {
                // A later operation reads the rounded elements.
                Some(operand) => operand.store(&result, node.blend)?,
                None => {
                    let scaled = result.into_iter().map(|value| node.blend.alpha * value).collect();
                    values.insert(node.output.uid, scaled);
                }
            }
        }
        Ok(())
    }
}
