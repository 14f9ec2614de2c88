// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Attention as a graph of many operations, as cudnn-frontend builds it: products, scale, mask, softmax and dropout,
//! and its gradients. The results are compared with simple loops, and the gradients with differences.

use std::collections::HashMap;

use super::super::layout::Layout;
use super::backend_test::{create, finalized, node, numbers, packed, pointwise, refer, set, strided};
use super::graph::Graph;
use super::tensor::Tensor;
use super::*;
use crate::numbers::Type;

const BATCHES: usize = 2;
const HEADS: usize = 4;
/// Heads of keys and of values.
const SHARED: usize = 2;
const LENGTH: usize = 6;
const DEPTH: usize = 4;
const SCALE: f64 = 0.7;
/// The probability of keeping an element, and its factor.
const KEPT: f64 = 0.75;

const Q: i64 = 1;
const K: i64 = 2;
const V: i64 = 3;
const O: i64 = 4;
const STATISTICS: i64 = 5;
const MASK: i64 = 6;
const GRADIENT: i64 = 7;
const DQ: i64 = 8;
const DK: i64 = 9;
const DV: i64 = 10;
const SEED: i64 = 11;
const LENGTHS: i64 = 12;
/// Numbers in host memory.
const FACTOR: i64 = 20;
const INFINITY: i64 = 21;
const RECIPROCAL: i64 = 22;
const KEPT_FACTOR: i64 = 23;

/// The four dimensions of a tensor, in elements.
type Dims = [i64; 4];

const QUERIES: Dims = [BATCHES as i64, HEADS as i64, LENGTH as i64, DEPTH as i64];
const KEYS: Dims = [BATCHES as i64, SHARED as i64, LENGTH as i64, DEPTH as i64];
const ROWS: Dims = [BATCHES as i64, HEADS as i64, LENGTH as i64, 1];
const SCORES: Dims = [BATCHES as i64, HEADS as i64, LENGTH as i64, LENGTH as i64];

fn swapped([a, b, c, d]: Dims) -> Dims {
    [a, b, d, c]
}

/// A variant of the attention.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// The `cudnnDataType_t` of inputs and outputs.
    kind: i32,
    is_causal: bool,
    has_dropout: bool,
    /// Numbers of queries and keys of each batch, if they are not all.
    lengths: Option<[usize; BATCHES]>,
}

/// Operations and virtual tensors of a graph that grows.
struct Builder {
    form: Form,
    operations: Vec<Handle>,
    next: i64,
}

impl Builder {
    fn new(form: Form) -> Self {
        Self { form, operations: Vec::new(), next: 100 }
    }

    /// A tensor in memory, of the type of inputs and outputs. Batches, positions and heads follow each other in this order.
    fn memory(&self, uid: i64, dims: Dims) -> Handle {
        let [_, heads, length, depth] = dims;
        let strides = [length * heads * depth, depth, heads * depth, 1];
        strided(uid, self.form.kind, &dims, &strides, false)
    }

    /// The same tensor with its matrices transposed.
    fn transposed(&self, uid: i64, dims: Dims) -> Handle {
        let [_, heads, length, depth] = dims;
        let strides = [length * heads * depth, depth, 1, heads * depth];
        strided(uid, self.form.kind, &swapped(dims), &strides, false)
    }

    fn one(&self, uid: i64) -> Handle {
        strided(uid, 0, &[1; 4], &[1; 4], false)
    }

    fn rows(&self, uid: i64) -> Handle {
        strided(uid, 0, &ROWS, &packed(&ROWS), false)
    }

    fn lengths(&self) -> Handle {
        strided(LENGTHS, 4, &[BATCHES as i64, 1, 1, 1], &[1; 4], false)
    }

    /// A tensor between two operations.
    fn between(&mut self, dims: Dims, kind: i32) -> Handle {
        self.next += 1;
        strided(self.next, kind, &dims, &packed(&dims), true)
    }

    fn apply(&mut self, mode: i32, inputs: &[Handle], dims: Dims) -> Handle {
        let y = self.between(dims, 0);
        self.apply_to(mode, inputs, y);
        y
    }

    fn apply_to(&mut self, mode: i32, inputs: &[Handle], y: Handle) {
        let names = [751, 752, 758].into_iter().zip(inputs.iter().copied());
        let tensors: Vec<(c_int, Handle)> = names.chain([(753, y)]).collect();
        self.operations.push(pointwise(mode, &tensors));
    }

    /// The index of each score along a dimension.
    fn index(&mut self, x: Handle, axis: i64) -> Handle {
        let (what, operation, y) = (create(0), create(13), self.between(SCORES, 4));
        assert_eq!(set(what, 0, 14, &[501_i32]), SUCCESS);
        numbers(what, 9, &[axis]);
        refer(operation, 750, finalized(what));
        refer(operation, 751, x);
        refer(operation, 753, y);
        self.operations.push(finalized(operation));
        y
    }

    fn reduce_to(&mut self, operator: i32, x: Handle, y: Handle) {
        let (what, operation) = (create(21), create(22));
        assert_eq!(set(what, 1600, 18, &[operator]), SUCCESS);
        refer(operation, 1612, finalized(what));
        refer(operation, 1610, x);
        refer(operation, 1611, y);
        self.operations.push(finalized(operation));
    }

    fn reduce(&mut self, operator: i32, x: Handle, dims: Dims) -> Handle {
        let y = self.between(dims, 0);
        self.reduce_to(operator, x, y);
        y
    }

    /// A product; `cut` are the dimensions (of rows, columns and sums) that the lengths override.
    fn product_to(&mut self, a: Handle, b: Handle, c: Handle, cut: [bool; 3]) {
        let operation = create(19);
        refer(operation, 1523, finalized(create(18)));
        [(1520, a), (1521, b), (1522, c)].iter().for_each(|(name, tensor)| refer(operation, *name, *tensor));
        for (name, _) in [1525, 1526, 1527].into_iter().zip(cut).filter(|(_, cut)| *cut) {
            if self.form.lengths.is_some() {
                refer(operation, name, self.lengths());
            }
        }
        self.operations.push(finalized(operation));
    }

    fn product(&mut self, a: Handle, b: Handle, dims: Dims, cut: [bool; 3]) -> Handle {
        let c = self.between(dims, 0);
        self.product_to(a, b, c, cut);
        c
    }

    /// The same elements with the matrices transposed.
    fn view(&mut self, x: Handle, dims: Dims, strides: Dims) -> Handle {
        self.next += 1;
        let (operation, y) = (create(31), strided(self.next, self.form.kind, &dims, &strides, true));
        refer(operation, 2200, x);
        refer(operation, 2201, y);
        self.operations.push(finalized(operation));
        y
    }

    /// The mask of a dropout.
    fn dropout(&mut self) -> Handle {
        let (what, operation, mask) =
            (create(32), create(33), strided(MASK, 0, &SCORES, &packed(&SCORES), false));
        assert_eq!(set(what, 2300, 29, &[0_i32]), SUCCESS);
        assert_eq!(set(what, 2305, 5, &[KEPT]), SUCCESS);
        refer(operation, 2312, finalized(what));
        refer(operation, 2311, strided(SEED, 10, &[1; 4], &[1; 4], false));
        refer(operation, 2310, mask);
        self.operations.push(finalized(operation));
        mask
    }

    /// Scores by queries and keys: scaled, and with minus infinity where they do not count.
    fn scores(&mut self) -> Handle {
        let (q, k) = (self.memory(Q, QUERIES), self.transposed(K, KEYS));
        let raw = self.product(q, k, SCORES, [true, true, false]);
        let scale = self.one(FACTOR);
        self.apply(1, &[raw, scale], SCORES)
    }

    fn masked(&mut self, scores: Handle) -> Handle {
        let infinity = self.one(INFINITY);
        let mut scores = scores;
        if self.form.lengths.is_some() {
            let lengths = self.lengths();
            let inside = [2, 3].map(|axis| {
                let index = self.index(scores, axis);
                let is_inside = self.between(SCORES, 11);
                self.apply_to(304, &[index, lengths], is_inside);
                is_inside
            });
            let both = self.between(SCORES, 11);
            self.apply_to(400, &inside, both);
            scores = self.apply(601, &[scores, infinity, both], SCORES);
        }
        if self.form.is_causal {
            let (row, column) = (self.index(scores, 2), self.index(scores, 3));
            let is_seen = self.between(SCORES, 11);
            self.apply_to(303, &[row, column], is_seen);
            scores = self.apply(601, &[scores, infinity, is_seen], SCORES);
        }
        scores
    }

    fn forward(mut self) -> Graph {
        let scores = self.scores();
        let scores = self.masked(scores);
        let largest = self.reduce(3, scores, ROWS);
        let shifted = self.apply(9, &[scores, largest], SCORES);
        let exponentials = self.apply(13, &[shifted], SCORES);
        let sum = self.reduce(0, exponentials, ROWS);
        let logarithm = self.apply(15, &[sum], ROWS);
        let statistics = self.rows(STATISTICS);
        self.apply_to(0, &[largest, logarithm], statistics);
        let mut weights = self.apply(6, &[exponentials, sum], SCORES);
        if self.form.has_dropout {
            let (mask, factor) = (self.dropout(), self.one(KEPT_FACTOR));
            weights = self.apply(1, &[weights, mask], SCORES);
            weights = self.apply(1, &[weights, factor], SCORES);
        }
        let (v, o) = (self.memory(V, KEYS), self.memory(O, QUERIES));
        self.product_to(weights, v, o, [true, false, true]);
        self.graph()
    }

    fn backward(mut self) -> Graph {
        let across = [ROWS[1] * SCORES[2] * SCORES[3], SCORES[2] * SCORES[3], 1, SCORES[3]];
        let (o, gradient) = (self.memory(O, QUERIES), self.memory(GRADIENT, QUERIES));
        let along = self.apply(1, &[gradient, o], QUERIES);
        let along = self.reduce(0, along, ROWS);
        let kept = self.one(RECIPROCAL);
        let along = self.apply(1, &[along, kept], ROWS);

        let scores = self.scores();
        let statistics = self.rows(STATISTICS);
        let shifted = self.apply(9, &[scores, statistics], SCORES);
        let shifted = self.masked(shifted);
        let weights = self.apply(13, &[shifted], SCORES);
        let mut dropped = weights;
        let mask = self.form.has_dropout.then(|| self.dropout());
        let factor = self.one(KEPT_FACTOR);
        if let Some(mask) = mask {
            dropped = self.apply(1, &[weights, mask], SCORES);
            dropped = self.apply(1, &[dropped, factor], SCORES);
        }
        let dropped = self.view(dropped, swapped(SCORES), across);
        let dv = self.product(dropped, gradient, QUERIES, [true, false, true]);
        let to = self.memory(DV, KEYS);
        self.reduce_to(0, dv, to);

        let v = self.transposed(V, KEYS);
        let mut slopes = self.product(gradient, v, SCORES, [true, true, false]);
        if let Some(mask) = mask {
            slopes = self.apply(1, &[slopes, mask], SCORES);
        }
        slopes = self.apply(9, &[slopes, along], SCORES);
        slopes = self.apply(1, &[slopes, weights], SCORES);
        if mask.is_some() {
            slopes = self.apply(1, &[slopes, factor], SCORES);
        }
        let scale = self.one(FACTOR);
        let slopes = self.apply(1, &[slopes, scale], SCORES);
        let columns = self.view(slopes, swapped(SCORES), across);
        let q = self.memory(Q, QUERIES);
        let dk = self.product(columns, q, QUERIES, [true, false, true]);
        let to = self.memory(DK, KEYS);
        self.reduce_to(0, dk, to);
        let [_, heads, length, depth] = KEYS;
        let k = self.transposed(K, KEYS);
        let k = self.view(k, KEYS, [length * heads * depth, depth, heads * depth, 1]);
        let dq = self.memory(DQ, QUERIES);
        self.product_to(slopes, k, dq, [true, false, true]);
        self.graph()
    }

    fn graph(mut self) -> Graph {
        // In any order.
        self.operations.reverse();
        Graph::of(self.operations.iter().map(|operation| node(*operation)).collect()).expect("a graph")
    }
}

/// The bytes of tensors, by their numbers.
type Memory = HashMap<i64, Vec<u8>>;

fn run(form: Form, graph: &Graph, memory: &mut Memory) {
    let kept = if form.has_dropout { KEPT } else { 1.0 };
    let value = |(uid, value): (i64, f64)| (uid, vec![value]);
    let numbers =
        [(FACTOR, SCALE), (INFINITY, f64::NEG_INFINITY), (RECIPROCAL, kept), (KEPT_FACTOR, 1.0 / kept)];
    let cell = std::cell::RefCell::new(memory);
    let load = |tensor: &Tensor| {
        let memory = cell.borrow();
        let bytes = &memory[&tensor.uid];
        assert_eq!(bytes.len(), tensor.layout.bytes());
        // SAFETY: there are as many bytes.
        Ok(unsafe { tensor.layout.read(bytes.as_ptr() as usize) })
    };
    let store = |tensor: &Tensor, values: &[f64], _| {
        let mut bytes = vec![0; tensor.layout.bytes()];
        // SAFETY: there are as many bytes.
        unsafe { tensor.layout.write(bytes.as_mut_ptr() as usize, values) };
        cell.borrow_mut().insert(tensor.uid, bytes);
        Ok(())
    };
    graph.run(numbers.into_iter().map(value).collect(), load, store).expect("memory of all tensors");
}

/// A tensor in memory in the order batch, position, head. Its elements are in the order batch, head, position.
fn layout(kind: i32, dims: Dims) -> Layout {
    let [_, heads, length, depth] = dims;
    let strides = [length * heads * depth, depth, heads * depth, 1];
    let kind = [Type::F32, Type::F64, Type::F16].get(kind as usize).copied().unwrap_or(Type::Bf16);
    Layout::new(kind, &dims, &strides).expect("valid")
}

fn stored(kind: i32, dims: Dims, values: &[f64]) -> Vec<u8> {
    let layout = layout(kind, dims);
    let mut bytes = vec![0; layout.bytes()];
    // SAFETY: there are as many bytes.
    unsafe { layout.write(bytes.as_mut_ptr() as usize, values) };
    bytes
}

fn loaded(kind: i32, dims: Dims, bytes: &[u8]) -> Vec<f64> {
    let layout = layout(kind, dims);
    assert_eq!(bytes.len(), layout.bytes());
    // SAFETY: there are as many bytes.
    unsafe { layout.read(bytes.as_ptr() as usize) }
}

/// The output by simple loops. Elements are in the order batch, head, position.
fn wanted(form: Form, [q, k, v]: [&[f64]; 3], mask: &[f64]) -> Vec<f64> {
    let mut o = vec![0.0; q.len()];
    for head in 0..BATCHES * HEADS {
        let (batch, shared) = (head / HEADS, head / (HEADS / SHARED));
        let length = form.lengths.map_or(LENGTH, |lengths| lengths[batch]);
        for row in 0..length {
            let keys = if form.is_causal { row + 1 } else { length };
            let key = |at: usize, d: usize| (shared * LENGTH + at) * DEPTH + d;
            let query = (head * LENGTH + row) * DEPTH;
            let score = |at: usize| SCALE * (0..DEPTH).map(|d| q[query + d] * k[key(at, d)]).sum::<f64>();
            let sum: f64 = (0..keys).map(|at| score(at).exp()).sum();
            for at in 0..keys {
                let kept =
                    if form.has_dropout { mask[(head * LENGTH + row) * LENGTH + at] / KEPT } else { 1.0 };
                (0..DEPTH).for_each(|d| o[query + d] += score(at).exp() / sum * kept * v[key(at, d)]);
            }
        }
    }
    o
}

fn close(name: &str, form: Form, got: &[f64], wanted: &[f64]) {
    let tolerance = [1e-6, 1e-12, 2e-3].get(form.kind as usize).copied().unwrap_or(2e-2);
    assert_eq!(got.len(), wanted.len());
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let error = (got - wanted).abs() / wanted.abs().max(1.0);
        assert!(error <= tolerance, "{name} {at} of {form:?}: {got} instead of {wanted}");
    }
}

fn check(form: Form) {
    let made = |dims: Dims, seed: i64| -> (Vec<u8>, Vec<f64>) {
        let values: Vec<f64> =
            (0..dims.iter().product::<i64>()).map(|at| ((at * 7 + seed) % 13) as f64 / 6.0 - 1.0).collect();
        let bytes = stored(form.kind, dims, &values);
        // As rounded.
        let values = loaded(form.kind, dims, &bytes);
        (bytes, values)
    };
    let inputs = [made(QUERIES, 1), made(KEYS, 5), made(KEYS, 8)];
    let gradient = made(QUERIES, 3);
    let mut memory = Memory::new();
    for (uid, (bytes, _)) in [Q, K, V].into_iter().zip(&inputs) {
        memory.insert(uid, bytes.clone());
    }
    memory.insert(GRADIENT, gradient.0);
    memory.insert(SEED, 4711_i64.to_le_bytes().to_vec());
    if let Some(lengths) = form.lengths {
        memory.insert(LENGTHS, lengths.iter().flat_map(|length| (*length as i32).to_le_bytes()).collect());
    }
    run(form, &Builder::new(form).forward(), &mut memory);
    let mask: Vec<f64> = memory.get(&MASK).map_or_else(Vec::new, |mask| {
        mask.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
    });
    if form.has_dropout {
        let kept = mask.iter().sum::<f64>() / mask.len() as f64;
        assert!(mask.iter().all(|value| *value == 0.0 || *value == 1.0) && (kept - KEPT).abs() < 0.1);
    }
    let values = || inputs.each_ref().map(|(_, values)| values.clone());
    let output = |values: &[Vec<f64>; 3]| wanted(form, values.each_ref().map(|values| &values[..]), &mask);
    close("output", form, &loaded(form.kind, QUERIES, &memory[&O]), &output(&values()));

    run(form, &Builder::new(form).backward(), &mut memory);
    for (which, (uid, dims)) in [(DQ, QUERIES), (DK, KEYS), (DV, KEYS)].into_iter().enumerate() {
        let got = loaded(form.kind, dims, &memory[&uid]);
        let difference = |at: usize| {
            let loss = |by: f64| -> f64 {
                let mut values = values();
                values[which][at] += by;
                output(&values).iter().zip(&gradient.1).map(|(o, gradient)| o * gradient).sum()
            };
            (loss(1e-4) - loss(-1e-4)) / 2e-4
        };
        let wanted: Vec<f64> = (0..got.len()).map(difference).collect();
        // Differences have an error of their own.
        let form = Form { kind: if form.kind == 1 { 0 } else { form.kind }, ..form };
        close(["dq", "dk", "dv"][which], form, &got, &wanted);
    }
}

#[test]
fn attention_of_all_types() {
    for kind in [0, 1, 2, 9] {
        check(Form { kind, is_causal: true, has_dropout: false, lengths: None });
    }
}

#[test]
fn attention_with_dropout() {
    check(Form { kind: 0, is_causal: false, has_dropout: true, lengths: None });
    check(Form { kind: 1, is_causal: true, has_dropout: true, lengths: None });
}

#[test]
fn attention_of_sequences_of_different_lengths() {
    check(Form { kind: 0, is_causal: false, has_dropout: false, lengths: Some([LENGTH, 3]) });
    check(Form { kind: 1, is_causal: true, has_dropout: true, lengths: Some([2, 5]) });
}
