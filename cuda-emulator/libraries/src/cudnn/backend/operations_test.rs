// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors of operations with several tensors, some of which may be absent. Their modules test the computations.

use super::super::pooling::{Mode, Pooling};
use super::backend_test::{DESCRIPTOR, create, node, numbers, packed, pointwise, refer, set, strided};
use super::graph::Graph;
use super::*;
use crate::cudnn::NOT_SUPPORTED;

const NORM_MODE: c_int = 27;
const NORM_PHASE: c_int = 28;

fn tensor(uid: i64, dims: &[i64]) -> Handle {
    strided(uid, 0, dims, &packed(dims), false)
}

/// An operation with these tensors, which are numbered in their order.
fn operation(kind: c_int, tensors: &[(c_int, &[i64])]) -> Handle {
    let made = create(kind);
    for (uid, (name, dims)) in tensors.iter().enumerate() {
        refer(made, *name, tensor(uid as i64, dims));
    }
    made
}

fn uids(found: impl Iterator<Item = impl std::borrow::Borrow<tensor::Tensor>>) -> Vec<i64> {
    found.map(|tensor| tensor.borrow().uid).collect()
}

fn norm(kind: c_int, mode: i32, phase: Option<i32>, tensors: &[(c_int, &[i64])]) -> Handle {
    let made = operation(kind, tensors);
    assert_eq!(set(made, if kind == 29 { 2000 } else { 2100 }, NORM_MODE, &[mode]), SUCCESS);
    if let Some(phase) = phase {
        assert_eq!(set(made, 2001, NORM_PHASE, &[phase]), SUCCESS);
    }
    made
}

const X: &[i64] = &[4, 6, 1, 1];
const ROW: &[i64] = &[4, 1, 1, 1];
const PARAMETER: &[i64] = &[1, 6, 1, 1];
const ONE: &[i64] = &[1, 1, 1, 1];

#[test]
fn normalisations_have_the_tensors_of_their_phase() {
    let training: &[(c_int, &[i64])] =
        &[(2002, X), (2013, X), (2003, ROW), (2004, ROW), (2005, PARAMETER), (2006, PARAMETER), (2007, ONE)];
    let layer = norm(29, 0, Some(1), training);
    assert_eq!(cudnnBackendFinalize(layer), SUCCESS);
    let layer = node(layer);
    assert_eq!((uids(layer.inputs()), uids(layer.outputs())), (vec![0, 4, 5, 6], vec![1, 2, 3]));
    let x: Vec<f64> = (0..24).map(|at| f64::from(at * 7 % 5)).collect();
    let results = layer.compute(&[&x, &[1.0; 6], &[0.5; 6], &[0.25], &[], &[], &[], &[], &[]]);
    let mean = x[..6].iter().sum::<f64>() / 6.0;
    let variance = x[..6].iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 6.0;
    assert!((results[0][0] - ((x[0] - mean) / (variance + 0.25).sqrt() + 0.5)).abs() < 1e-12);
    assert!((results[1][0] - mean).abs() < 1e-12 && results[3].is_empty());

    // Batch normalisation by known statistics reads what it would otherwise write.
    let known: &[(c_int, &[i64])] =
        &[(2002, X), (2013, X), (2003, PARAMETER), (2004, PARAMETER), (2005, PARAMETER), (2006, PARAMETER)];
    let batch = norm(29, 2, Some(0), known);
    assert_eq!(cudnnBackendFinalize(batch), SUCCESS);
    let batch = node(batch);
    assert_eq!((uids(batch.inputs()), uids(batch.outputs())), (vec![0, 4, 5, 2, 3], vec![1]));

    let refused =
        |mode, phase, tensors: &[(c_int, &[i64])]| cudnnBackendFinalize(norm(29, mode, Some(phase), tensors));
    assert_eq!(refused(3, 1, training), NOT_SUPPORTED, "groups of channels");
    assert_eq!(refused(0, 2, training), BAD_PARAM, "no phase");
    assert_eq!(refused(0, 1, &training[..6]), BAD_PARAM, "no epsilon");
    assert_eq!(refused(2, 0, &known[..3]), BAD_PARAM, "no scale");
    assert_eq!(refused(2, 1, training), BAD_PARAM, "statistics of rows");
    let half = [training, &[(2009, ROW)]].concat();
    assert_eq!(refused(0, 1, &half), BAD_PARAM, "one running mean");
    let peers = norm(29, 0, Some(1), training);
    assert_eq!(set(peers, 2014, DESCRIPTOR, &[tensor(9, ROW)]), SUCCESS);
    assert_eq!(cudnnBackendFinalize(peers), NOT_SUPPORTED, "statistics of several devices");

    let gradients: &[(c_int, &[i64])] =
        &[(2101, X), (2104, X), (2105, PARAMETER), (2109, X), (2103, ROW), (2107, PARAMETER), (2102, ROW)];
    let rms = norm(30, 4, None, &gradients[..6]);
    assert_eq!(cudnnBackendFinalize(rms), SUCCESS);
    assert_eq!(uids(node(rms).outputs()), [3, 5]);
    let refused = |mode, tensors| cudnnBackendFinalize(norm(30, mode, None, tensors));
    assert_eq!(refused(0, gradients), SUCCESS);
    assert_eq!(refused(0, &gradients[..6]), BAD_PARAM, "no mean");
    assert_eq!(refused(4, &gradients[..4]), BAD_PARAM, "no statistics and no epsilon");
}

/// An operation may allocate much beside its tensors, which the limit of a graph counts.
#[test]
fn temporaries_count_where_no_memory_bounds_them() {
    let graph = |rows: i64| {
        let (x, own) = ([rows, 1 << 12], [1, 1 << 12]);
        let made = |uid, dims: &[i64], is_virtual| strided(uid, 0, dims, &packed(dims), is_virtual);
        let copy = |from, to| node(pointwise(21, &[(751, from), (753, to)]));
        let (scale, inverse) = (made(4, &own, false), made(5, &[rows, 1], false));
        let [x_virtual, from, to] =
            [(1, true), (2, false), (3, false)].map(|(uid, kind)| made(uid, &x, kind));
        let backward = create(30);
        for (name, tensor) in [(2101, x_virtual), (2104, from), (2105, scale), (2103, inverse), (2109, to)] {
            refer(backward, name, tensor);
        }
        assert_eq!(set(backward, 2100, NORM_MODE, &[4_i32]), SUCCESS);
        assert_eq!(cudnnBackendFinalize(backward), SUCCESS);
        Graph::of(vec![copy(from, x_virtual), node(backward)]).err()
    };
    assert_eq!(graph(1 << 14), None);
    assert_eq!(graph(1 << 16), Some(NOT_SUPPORTED), "one tensor of the maximum size, and three more");
}

#[test]
fn attention_has_optional_tensors() {
    let (q, k): (&[i64], &[i64]) = (&[2, 4, 3, 8], &[2, 2, 5, 8]);
    let (rows, batches): (&[i64], &[i64]) = (&[2, 4, 3, 1], &[2, 1, 1, 1]);
    let forward: &[(c_int, &[i64])] = &[
        (2800, q),
        (2801, k),
        (2802, k),
        (2803, q),
        (2804, rows),
        (2805, ONE),
        (2809, batches),
        (2810, batches),
    ];
    for count in [4, 5, 6, 8] {
        let made = operation(41, &forward[..count]);
        assert_eq!(cudnnBackendFinalize(made), SUCCESS, "{count}");
        let results = node(made).compute(&[&[0.5; 192], &[0.5; 160], &[2.0; 160], &[], &[], &[]]);
        assert!(results[0].iter().all(|value| (value - 2.0).abs() < 1e-12) && results[1].len() == 24);
    }
    let refused = |tensors: &[(c_int, &[i64])]| cudnnBackendFinalize(operation(41, tensors));
    assert_eq!(refused(&forward[..3]), BAD_PARAM, "no output");
    assert_eq!(refused(&[&forward[..4], &[(2804, q)]].concat()), BAD_PARAM, "other statistics");
    assert_eq!(refused(&[&forward[..4], &[(2809, rows)]].concat()), BAD_PARAM, "other lengths");
    assert_eq!(refused(&[&forward[..4], &[(2807, ONE)]].concat()), NOT_SUPPORTED, "keys in pages");

    let backward: &[(c_int, &[i64])] = &[
        (2851, q),
        (2852, k),
        (2853, k),
        (2854, q),
        (2859, q),
        (2860, k),
        (2861, k),
        (2862, q),
        (2855, rows),
        (2856, ONE),
    ];
    let made = operation(43, backward);
    assert_eq!(cudnnBackendFinalize(made), SUCCESS);
    let made = node(made);
    assert_eq!((uids(made.inputs()), uids(made.outputs())), (vec![0, 1, 2, 9, 3, 8, 7], vec![4, 5, 6]));
    assert_eq!(cudnnBackendFinalize(operation(43, &backward[..8])), BAD_PARAM, "no statistics");
    let other = [&[(2851, q), (2852, k), (2853, k), (2854, q), (2859, k)][..], &backward[5..]].concat();
    assert_eq!(cudnnBackendFinalize(operation(43, &other)), BAD_PARAM, "another gradient");
}

#[test]
fn elements_are_moved_and_made() {
    let (first, second, both) = (tensor(1, &[2, 2]), tensor(2, &[2, 1]), tensor(3, &[2, 3]));
    let concatenation = |axis: i64, in_place: Option<i64>| {
        let made = create(27);
        numbers(made, 1800, &[axis]);
        assert_eq!(set(made, 1801, DESCRIPTOR, &[first, second]), SUCCESS);
        refer(made, 1803, both);
        in_place.into_iter().for_each(|index| numbers(made, 1802, &[index]));
        (cudnnBackendFinalize(made), made)
    };
    let (status, made) = concatenation(1, None);
    assert_eq!(status, SUCCESS);
    assert_eq!(node(made).compute(&[&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0]]), [[1.0, 2.0, 5.0, 3.0, 4.0, 6.0]]);
    assert_eq!(concatenation(0, None).0, BAD_PARAM);
    assert_eq!(concatenation(-1, None).0, BAD_PARAM);
    assert_eq!(concatenation(1, Some(0)).0, NOT_SUPPORTED);

    let view = |from, to| {
        let made = create(31);
        refer(made, 2200, from);
        refer(made, 2201, to);
        (cudnnBackendFinalize(made), made)
    };
    let (status, made) = view(both, strided(4, 0, &[3, 2], &[1, 3], false));
    assert_eq!(status, SUCCESS);
    assert_eq!(node(made).compute(&[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]), [[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]]);
    assert_eq!(view(both, first).0, BAD_PARAM, "fewer elements");
    assert_eq!(view(both, strided(4, 0, &[2, 3], &[6, 1], false)).0, NOT_SUPPORTED, "other places");

    let random = |distribution: i32, seed: Option<i64>| {
        let (what, made) = (create(32), create(33));
        assert_eq!(set(what, 2300, 29, &[distribution]), SUCCESS);
        assert_eq!(cudnnBackendFinalize(what), SUCCESS);
        refer(made, 2312, what);
        match seed {
            Some(seed) => numbers(made, 2311, &[seed]),
            None => refer(made, 2311, tensor(7, &[1])),
        }
        refer(made, 2310, both);
        (cudnnBackendFinalize(made), made)
    };
    let ((_, constant), (_, read)) = (random(1, Some(5)), random(1, None));
    assert_eq!(node(constant).compute(&[&[], &[]]), node(read).compute(&[&[5.0], &[]]));
    assert_ne!(node(constant).compute(&[&[], &[]]), node(read).compute(&[&[6.0], &[]]));
    assert_eq!(random(3, Some(5)).0, BAD_PARAM, "no distribution");
}

const FRACTION: c_int = 26;
const IMAGE: &[i64] = &[2, 3, 7, 6];

/// A descriptor of windows of 3 x 2 elements, in steps of 2 and 3, with one padding before and another one after.
fn windows(mode: i32, padding: i32, before: [i64; 2], after: [i64; 2]) -> Handle {
    let made = create(24);
    // RESAMPLE_MODE, PADDING_MODE, INT64
    assert_eq!(set(made, 1700, 21, &[mode]), SUCCESS);
    assert_eq!(set(made, 1708, 22, &[padding]), SUCCESS);
    assert_eq!(set(made, 1702, 3, &[2_i64]), SUCCESS);
    assert_eq!(set(made, 1703, 3, &after), SUCCESS);
    assert_eq!(set(made, 1704, FRACTION, &before.map(|value| [2 * value, 2])), SUCCESS);
    assert_eq!(set(made, 1705, FRACTION, &[[2_i64, 1], [3, 1]]), SUCCESS);
    assert_eq!(set(made, 1706, FRACTION, &[[3_i64, 1], [2, 1]]), SUCCESS);
    made
}

#[test]
fn pooling_is_that_of_the_windows() {
    let x: Vec<f64> = (0..2 * 3 * 7 * 6).map(|at| f64::from(at * 37 % 101)).collect();
    for (number, mode, padding) in
        [(2, Mode::AverageWithPadding, 0), (3, Mode::Max, 1), (4, Mode::Average, 0)]
    {
        let described = windows(number, padding, [1, 1], [1, 1]);
        assert_eq!(cudnnBackendFinalize(described), SUCCESS);
        let pooling = Pooling::new(mode, true, &[3, 2], &[1, 1], &[2, 3]).expect("valid");
        let y = pooling.output(&[2, 3, 7, 6]).expect("fits");
        let output: Vec<i64> = y.iter().map(|size| *size as i64).collect();
        let forward = operation(25, &[(1710, IMAGE), (1711, &output)]);
        refer(forward, 1716, described);
        assert_eq!(cudnnBackendFinalize(forward), SUCCESS);
        let found = node(forward).compute(&[&x]);
        assert_eq!(found[0], pooling.forward(&x, &[2, 3, 7, 6]).expect("fits"));

        let dy: Vec<f64> = (0..found[0].len()).map(|at| at as f64).collect();
        let backward = operation(26, &[(1720, IMAGE), (1721, &output), (1726, IMAGE)]);
        refer(backward, 1725, described);
        assert_eq!(cudnnBackendFinalize(backward), SUCCESS);
        let gradient = node(backward).compute(&[&dy, &x]);
        assert_eq!(gradient[0], pooling.backward(&x, &dy, &[2, 3, 7, 6]).expect("fits"));

        // Without the input, maxima are not known.
        let blind = operation(26, &[(1720, IMAGE), (1721, &output)]);
        refer(blind, 1725, described);
        assert_eq!(cudnnBackendFinalize(blind), if mode == Mode::Max { NOT_SUPPORTED } else { SUCCESS });
        let wrong = operation(25, &[(1710, IMAGE), (1711, IMAGE)]);
        refer(wrong, 1716, described);
        assert_eq!(cudnnBackendFinalize(wrong), BAD_PARAM, "other sizes");
    }
}

#[test]
fn windows_that_cannot_be_are_refused() {
    // Padding only after the last elements: one more column.
    let described = windows(2, 0, [0, 0], [0, 1]);
    assert_eq!(cudnnBackendFinalize(described), SUCCESS);
    let forward = operation(25, &[(1710, &[1, 1, 3, 4]), (1711, &[1, 1, 1, 2])]);
    refer(forward, 1716, described);
    assert_eq!(cudnnBackendFinalize(forward), SUCCESS);
    let x: Vec<f64> = (0..12).map(f64::from).collect();
    assert_eq!(node(forward).compute(&[&x])[0], [27.0 / 6.0, 21.0 / 6.0]);

    assert_eq!(cudnnBackendFinalize(windows(1, 2, [0, 0], [0, 0])), NOT_SUPPORTED, "interpolation");
    assert_eq!(
        cudnnBackendFinalize(windows(3, 0, [1, 1], [1, 1])),
        NOT_SUPPORTED,
        "maxima with zeros around"
    );
    assert_eq!(cudnnBackendFinalize(windows(2, 0, [0, 2], [0, 0])), BAD_PARAM, "a window of padding alone");
    assert_eq!(cudnnBackendFinalize(windows(2, 0, [0, 0], [3, 0])), BAD_PARAM, "a window of padding alone");
    let broken = windows(2, 0, [0, 0], [0, 0]);
    assert_eq!(set(broken, 1706, FRACTION, &[[3_i64, 2], [2, 1]]), SUCCESS);
    assert_eq!(cudnnBackendFinalize(broken), NOT_SUPPORTED, "one and a half");
    let divided = windows(2, 0, [0, 0], [0, 0]);
    assert_eq!(set(divided, 1706, FRACTION, &[[i64::MIN, -1], [2, 0]]), SUCCESS);
    assert_ne!(cudnnBackendFinalize(divided), SUCCESS, "nothing is divided by zero");
}
