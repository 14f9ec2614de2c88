// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors through the C interface. What needs device memory is tested by `tests/cuda/dnn_graph.cu`.

use std::ptr::null_mut;
use std::sync::Arc;

use super::graph::Graph;
use super::node::Node;
use super::pack::by_value;
use super::*;
use crate::cudnn::{NOT_FINALIZED, NOT_SUPPORTED};
use crate::numbers::Type;

pub const INT64: c_int = 3;
const FLOAT: c_int = 4;
pub const DESCRIPTOR: c_int = 15;

pub fn create(kind: c_int) -> Handle {
    let mut made = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cudnnBackendCreateDescriptor(kind, &raw mut made) }, SUCCESS);
    made
}

pub fn set<T>(descriptor: Handle, name: c_int, kind: c_int, values: &[T]) -> Status {
    let count = values.len() as i64;
    // SAFETY: the elements are a slice's; the tests give elements of the size of their type.
    unsafe { cudnnBackendSetAttribute(descriptor, name, kind, count, values.as_ptr().cast()) }
}

pub fn numbers(descriptor: Handle, name: c_int, values: &[i64]) {
    assert_eq!(set(descriptor, name, INT64, values), SUCCESS, "{name}");
}

pub fn refer(descriptor: Handle, name: c_int, other: Handle) {
    assert_eq!(set(descriptor, name, DESCRIPTOR, &[other]), SUCCESS, "{name}");
}

pub fn finalized(descriptor: Handle) -> Handle {
    assert_eq!(cudnnBackendFinalize(descriptor), SUCCESS);
    descriptor
}

/// The strides of a packed tensor.
pub fn packed(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    (0..dims.len() - 1).rev().for_each(|dim| strides[dim] = strides[dim + 1] * dims[dim + 1]);
    strides
}

fn tensor(uid: i64, dims: &[i64], is_virtual: bool) -> Handle {
    strided(uid, 1, dims, &packed(dims), is_virtual)
}

/// A tensor of a `cudnnDataType_t`.
pub fn strided(uid: i64, kind: i32, dims: &[i64], strides: &[i64], is_virtual: bool) -> Handle {
    let made = create(17);
    assert_eq!(set(made, 901, 1, &[kind]), SUCCESS);
    numbers(made, 902, dims);
    numbers(made, 903, strides);
    numbers(made, 906, &[uid]);
    assert_eq!(set(made, 907, 2, &[is_virtual]), SUCCESS);
    finalized(made)
}

pub fn pointwise(mode: i32, tensors: &[(c_int, Handle)]) -> Handle {
    weighted(mode, [1.0; 2], tensors)
}

/// An operation on single elements, with factors of the first two tensors.
fn weighted(mode: i32, factors: [f32; 2], tensors: &[(c_int, Handle)]) -> Handle {
    let (what, operation) = (create(0), create(13));
    assert_eq!(set(what, 0, 14, &[mode]), SUCCESS);
    for (name, factor) in [754, 755].into_iter().zip(factors) {
        assert_eq!(set(operation, name, FLOAT, &[factor]), SUCCESS);
    }
    refer(operation, 750, finalized(what));
    tensors.iter().for_each(|(name, tensor)| refer(operation, *name, *tensor));
    finalized(operation)
}

pub fn node(operation: Handle) -> Arc<Node> {
    let found = with(operation, |found| found.finalized(found.kind())).expect("finalised");
    let Made::Operation(node) = &found.made else { panic!("an operation") };
    node.clone()
}

fn compute(operation: Handle, inputs: &[&[f64]]) -> Vec<f64> {
    let [result] = node(operation).compute(inputs).try_into().expect("one result");
    result
}

/// TensorFlow adds a side input with the factor 0 to a convolution with bias, and passes null for it.
#[test]
fn nothing_is_read_of_a_tensor_whose_factor_is_0() {
    let tensors = || {
        [(751, tensor(1, &[2, 1], false)), (752, tensor(2, &[1, 2], false)), (753, tensor(3, &[2, 2], false))]
    };
    let sum = |factors: [f32; 2]| weighted(0, factors, &tensors());
    assert_eq!(compute(sum([3.0, 0.0]), &[&[1.0, 2.0]]), [3.0, 3.0, 6.0, 6.0]);
    assert_eq!(compute(sum([0.0, 0.5]), &[&[4.0, 8.0]]), [2.0, 4.0, 2.0, 4.0]);
    assert_eq!(compute(sum([1.0, 2.0]), &[&[1.0, 2.0], &[4.0, 8.0]]), [9.0, 17.0, 10.0, 18.0]);
    let uids = |operation| node(operation).inputs().map(|tensor| tensor.uid).collect::<Vec<_>>();
    assert_eq!((uids(sum([1.0, 0.0])), uids(sum([0.0, 1.0]))), (vec![1], vec![2]));
    // A sum of nothing: the first is read, and counts nothing.
    assert_eq!(uids(sum([0.0, 0.0])).len(), 1);
}

/// conv(x, w) + bias, then relu; with the operations in the wrong order.
fn graph() -> Handle {
    let (x, w) = (tensor(1, &[1, 1, 3, 3], false), tensor(2, &[1, 1, 2, 2], false));
    let (sum, bias) = (tensor(3, &[1, 1, 2, 2], true), tensor(4, &[1, 1, 1, 1], false));
    let (biased, y) = (tensor(5, &[1, 1, 2, 2], true), tensor(6, &[1, 1, 2, 2], false));
    let (what, convolution) = (create(1), create(10));
    assert_eq!(set(what, 100, 1, &[0_i32]), SUCCESS);
    assert_eq!(set(what, 101, 7, &[1_i32]), SUCCESS);
    numbers(what, 102, &[1, 1]);
    numbers(what, 103, &[1, 1]);
    numbers(what, 104, &[0, 0]);
    numbers(what, 105, &[0, 0]);
    numbers(what, 106, &[2]);
    refer(convolution, 702, finalized(what));
    [(704, x), (703, w), (705, sum)].iter().for_each(|(name, tensor)| refer(convolution, *name, *tensor));
    let relu = pointwise(100, &[(751, biased), (753, y)]);
    let add = pointwise(0, &[(751, sum), (752, bias), (753, biased)]);
    let made = create(15);
    assert_eq!(set(made, 801, DESCRIPTOR, &[relu, add, finalized(convolution)]), SUCCESS);
    finalized(made)
}

fn get<T: Default + Clone>(
    descriptor: Handle,
    name: c_int,
    kind: c_int,
    room: usize,
) -> (Status, i64, Vec<T>) {
    let (mut count, mut values) = (-1, vec![T::default(); room]);
    let place = values.as_mut_ptr().cast();
    // SAFETY: the places are locals, with as much room; the tests ask for elements of the size of their type.
    let status =
        unsafe { cudnnBackendGetAttribute(descriptor, name, kind, room as i64, &raw mut count, place) };
    (status, count, values)
}

#[test]
fn a_plan_is_found_by_heuristics() {
    let (graph, heuristics) = (graph(), create(4));
    assert_eq!(get::<i64>(graph, 802, INT64, 1), (SUCCESS, 1, vec![1]));
    refer(heuristics, 201, graph);
    assert_eq!(set(heuristics, 200, 8, &[0_i32]), SUCCESS);
    // The described object outlives the descriptors from which it was created.
    assert_eq!(cudnnBackendDestroyDescriptor(graph), SUCCESS);
    finalized(heuristics);
    assert_eq!(get::<u64>(heuristics, 202, DESCRIPTOR, 0).1, 1);
    let (config, engine, plan) = (create(3), create(2), create(5));
    let (mut count, mut configs) = (0, [config]);
    // SAFETY: the places are locals.
    let status = unsafe {
        cudnnBackendGetAttribute(heuristics, 202, DESCRIPTOR, 1, &raw mut count, configs.as_mut_ptr().cast())
    };
    assert_eq!((status, count), (SUCCESS, 1));
    let mut engines = [engine];
    // SAFETY: the places are locals, or null.
    let status = unsafe {
        cudnnBackendGetAttribute(config, 300, DESCRIPTOR, 1, null_mut(), engines.as_mut_ptr().cast())
    };
    assert_eq!(status, SUCCESS);
    assert_eq!(get::<i64>(engine, 1301, INT64, 1), (SUCCESS, 1, vec![0]));
    for (name, kind) in [(1302, DESCRIPTOR), (1303, 11)] {
        assert_eq!(get::<u64>(engine, name, kind, 0).1, 0, "{name}");
    }
    // It makes graphs of CUDA's.
    assert_eq!(get::<u32>(engine, 1305, 19, 1), (SUCCESS, 1, vec![3]));
    refer(plan, 401, config);
    finalized(plan);
    assert_eq!(get::<i64>(plan, 402, INT64, 1), (SUCCESS, 1, vec![0]));
}

#[test]
fn operations_compute_their_definitions() {
    let all = [1.0, -2.0, 3.0, 4.0, -5.0, 6.0];
    let (x, y) = (tensor(1, &[2, 3], false), tensor(3, &[2, 3], false));
    let add = pointwise(0, &[(751, x), (752, tensor(2, &[1, 3], false)), (753, y)]);
    assert_eq!(compute(add, &[&all, &[10.0, 20.0, 30.0]]), [11.0, 18.0, 33.0, 14.0, 15.0, 36.0]);
    let tensors = [(751, x), (752, tensor(2, &[2, 3], false)), (753, y)];
    assert_eq!(
        compute(weighted(0, [2.0, 0.5], &tensors), &[&all, &[2.0; 6]]),
        [3.0, -3.0, 7.0, 9.0, -9.0, 13.0]
    );
    let relu = pointwise(200, &[(751, x), (757, tensor(2, &[2, 3], false)), (756, y)]);
    assert_eq!(compute(relu, &[&all, &[7.0; 6]]), [7.0, 0.0, 7.0, 7.0, 0.0, 7.0]);
    let select = pointwise(
        601,
        &[(751, x), (752, tensor(2, &[1, 1], false)), (758, tensor(4, &[2, 1], false)), (753, y)],
    );
    assert_eq!(compute(select, &[&all, &[9.0], &[0.0, 1.0]]), [9.0, 9.0, 9.0, 4.0, -5.0, 6.0]);

    let product = create(19);
    refer(product, 1523, finalized(create(18)));
    let [a, b, c] =
        [(1_i64, [2, 2, 3]), (2, [1, 3, 2]), (3, [2, 2, 2])].map(|(uid, dims)| tensor(uid, &dims, false));
    [(1520, a), (1521, b), (1522, c)].iter().for_each(|(name, tensor)| refer(product, *name, *tensor));
    let a: Vec<f64> = (0..12).map(f64::from).collect();
    let got = compute(finalized(product), &[&a, &all]);
    for (batch, (i, j)) in (0..2).flat_map(|batch| [(0, 0), (0, 1), (1, 0), (1, 1)].map(|at| (batch, at))) {
        let wanted: f64 = (0..3).map(|l| a[batch * 6 + i * 3 + l] * all[l * 2 + j]).sum();
        assert_eq!(got[batch * 4 + i * 2 + j], wanted);
    }

    let (what, reduction) = (create(21), create(22));
    assert_eq!(set(what, 1600, 18, &[3_i32]), SUCCESS);
    refer(reduction, 1612, finalized(what));
    refer(reduction, 1610, x);
    refer(reduction, 1611, tensor(2, &[2, 1], false));
    assert_eq!(compute(finalized(reduction), &[&all]), [3.0, 6.0]);
}

#[test]
fn graphs_that_are_none_are_refused() {
    let [a, b] = [1, 2].map(|uid| tensor(uid, &[2], true));
    let (from, to) = (tensor(3, &[2], false), tensor(4, &[2], false));
    let step = |from, to| node(pointwise(21, &[(751, from), (753, to)]));
    assert!(Graph::of(vec![]).is_err());
    assert!(Graph::of(vec![step(b, to), step(a, b), step(from, a)]).is_ok(), "in any order");
    assert_eq!(Graph::of(vec![step(a, b), step(b, a)]).err(), Some(BAD_PARAM), "a circle");
    assert_eq!(Graph::of(vec![step(a, a)]).err(), Some(BAD_PARAM), "a circle of one");
    assert_eq!(Graph::of(vec![step(from, to), step(from, to)]).err(), Some(BAD_PARAM), "two of one output");
    assert_eq!(Graph::of(vec![step(a, to)]).err(), Some(NOT_SUPPORTED), "a virtual tensor of nothing");
    let other = tensor(3, &[1], false);
    assert_eq!(
        Graph::of(vec![step(from, a), step(other, b)]).err(),
        Some(BAD_PARAM),
        "one number, two tensors"
    );
}

#[test]
fn graphs_that_need_much_memory_are_refused() {
    let dims = [1 << 28];
    let [a, b, c] = [1, 2, 3].map(|uid| tensor(uid, &dims, true));
    let (from, to) = (tensor(4, &dims, false), tensor(5, &dims, false));
    let step = |from, to| node(pointwise(21, &[(751, from), (753, to)]));
    let add = |first, second, to| node(pointwise(0, &[(751, first), (752, second), (753, to)]));
    assert!(Graph::of(vec![step(from, a), step(a, b), step(b, c), step(c, to)]).is_ok(), "two at once");
    let three = vec![step(from, a), step(a, b), step(b, c), add(a, c, to)];
    assert_eq!(Graph::of(three).err(), Some(NOT_SUPPORTED), "three at once");
    let ragged = |uid| {
        let made = create(17);
        assert_eq!(set(made, 901, 1, &[0_i32]), SUCCESS);
        numbers(made, 902, &[1, 1 << 28]);
        numbers(made, 903, &[1 << 28, 1]);
        numbers(made, 906, &[uid]);
        refer(made, 913, tensor(9, &[2], false));
        finalized(made)
    };
    let [from, to] = [6, 7].map(ragged);
    assert!(Graph::of(vec![step(from, to)]).is_ok());
    assert_eq!(Graph::of(vec![add(from, ragged(8), to)]).err(), Some(NOT_SUPPORTED), "ragged ones");
}

#[test]
fn chains_of_references_are_short() {
    let mut last = finalized(create(0));
    for length in 2..=17 {
        let next = create(0);
        refer(next, 750, last);
        let expected = if length <= 16 { SUCCESS } else { BAD_PARAM };
        assert_eq!(cudnnBackendFinalize(next), expected, "{length}");
        last = next;
    }
}

#[test]
fn mistakes_are_refused() {
    let x = tensor(1, &[2, 3], false);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { cudnnBackendCreateDescriptor(17, null_mut()) }, BAD_PARAM);
    let mut made = 0;
    for kind in [-1, 44] {
        // SAFETY: the place is a local.
        assert_eq!(unsafe { cudnnBackendCreateDescriptor(kind, &raw mut made) }, BAD_PARAM);
    }
    assert_eq!(cudnnBackendFinalize(3), BAD_PARAM, "no handle");
    assert_eq!(cudnnBackendFinalize(create(17)), BAD_PARAM, "nothing is set");
    assert_eq!(cudnnBackendFinalize(create(20)), NOT_SUPPORTED, "a kind without an implementation");
    assert_eq!(set(x, 906, INT64, &[2_i64]), 1001, "it is finalised");
    let (open, operation) = (create(17), create(13));
    assert_eq!(set(operation, 750, DESCRIPTOR, &[create(0)]), SUCCESS, "NVIDIA's library accepts it");
    assert_eq!(cudnnBackendFinalize(operation), NOT_FINALIZED);
    assert_eq!(set(operation, 750, DESCRIPTOR, &[x]), BAD_PARAM, "another kind");
    assert_eq!(set(operation, 801, DESCRIPTOR, &[x]), BAD_PARAM, "no operation");
    assert_eq!(set(operation, 751, DESCRIPTOR, &[5_u64]), BAD_PARAM, "no handle");
    assert_eq!(set(open, 805, DESCRIPTOR, &[x]), NOT_SUPPORTED, "no such attribute");
    assert_eq!(get::<i64>(open, 906, INT64, 1).0, NOT_FINALIZED);
    assert_eq!(get::<i64>(x, 906, 5, 1).0, BAD_PARAM, "another type");
    assert_eq!(get::<i64>(x, 905, INT64, 1).0, NOT_SUPPORTED, "not set");
    for count in [-1, i64::MAX, 1 << 40] {
        // SAFETY: the counts are refused before the elements are read.
        let status = unsafe { cudnnBackendSetAttribute(open, 902, INT64, count, [1_i64].as_ptr().cast()) };
        assert_eq!(status, BAD_PARAM, "{count}");
    }
    for kind in [-1, 31] {
        assert_eq!(set(open, 902, kind, &[1_i64]), BAD_PARAM, "type {kind}");
    }
    // SAFETY: null is allowed.
    assert_eq!(unsafe { cudnnBackendSetAttribute(open, 902, INT64, 1, std::ptr::null()) }, BAD_PARAM);
    // Offsets must lie in memory and must not be ragged themselves.
    let ragged = |offsets| {
        let made = create(17);
        assert_eq!(set(made, 901, 1, &[0_i32]), SUCCESS);
        numbers(made, 902, &[1, 4]);
        numbers(made, 903, &[4, 1]);
        numbers(made, 906, &[8]);
        refer(made, 913, offsets);
        (cudnnBackendFinalize(made), made)
    };
    let (status, made) = ragged(x);
    assert_eq!((status, ragged(made).0), (SUCCESS, BAD_PARAM));
    assert_eq!(ragged(tensor(9, &[2], true)).0, BAD_PARAM, "offsets in no memory");
    let large = create(17);
    assert_eq!(set(large, 901, 1, &[0_i32]), SUCCESS);
    numbers(large, 902, &[1 << 40]);
    numbers(large, 903, &[1]);
    numbers(large, 906, &[1]);
    assert_eq!(set(large, 907, 2, &[true]), SUCCESS);
    assert_eq!(cudnnBackendFinalize(large), NOT_SUPPORTED, "a virtual tensor that no memory bounds");
    let engine = create(2);
    refer(engine, 1300, graph());
    numbers(engine, 1301, &[1]);
    assert_eq!(cudnnBackendFinalize(engine), NOT_SUPPORTED, "there is one engine");
    let pack = create(16);
    numbers(pack, 1000, &[1, 2]);
    assert_eq!(set(pack, 1001, 6, &[0_u64]), SUCCESS);
    assert_eq!(cudnnBackendFinalize(pack), BAD_PARAM, "an address is missing");
    assert_eq!(cudnnBackendExecute(0, x, pack), BAD_PARAM);
}

#[test]
fn a_number_in_host_memory_is_read_only_where_there_is_memory() {
    let number = 2.5_f32;
    assert_eq!(by_value(Type::F32, &raw const number as usize), Ok(2.5));
    assert_eq!(by_value(Type::F32, 8), Err(BAD_PARAM));
    assert_eq!(by_value(Type::F64, usize::MAX - 7), Err(BAD_PARAM));
}
