// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Convolutions against loops over all coordinates, and gradients against the adjoint of the convolution.

use super::*;

fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|at| ((at * 7 + at * at % 5 + seed * 13) % 11) as f64 - 5.0).collect()
}

fn count(dims: &[usize]) -> usize {
    dims.iter().product()
}

/// All coordinates.
fn all(dims: &[usize]) -> Vec<Vec<i64>> {
    dims.iter().fold(vec![vec![]], |before, dim| {
        before
            .iter()
            .flat_map(|at| (0..*dim as i64).map(move |next| [at.as_slice(), &[next]].concat()))
            .collect()
    })
}

fn index(at: &[i64], dims: &[usize]) -> Option<usize> {
    at.iter().zip(dims).try_fold(0, |index, (at, dim)| {
        let at = usize::try_from(*at).ok().filter(|at| at < dim)?;
        Some(index * dim + at)
    })
}

/// The definition, by loops.
fn naive(p: &Parameters, x: &[f64], xs: &[usize], w: &[f64], ws: &[usize], ys: &[usize]) -> Vec<f64> {
    let (groups, rank) = (xs[1] / ws[1], p.rank());
    all(ys)
        .iter()
        .map(|at| {
            let first = at[1] / (ws[0] / groups) as i64 * ws[1] as i64;
            let mut sum = 0.0;
            for tap in all(&ws[1..]) {
                let mut from = vec![at[0], first + tap[0]];
                for dim in 0..rank {
                    let tap =
                        if p.is_reversed { ws[dim + 2] as i64 - 1 - tap[dim + 1] } else { tap[dim + 1] };
                    let start = at[dim + 2] * p.strides[dim] as i64 - p.pads[0][dim] as i64;
                    from.push(start + tap * p.dilations[dim] as i64);
                }
                let weight = w[index(&[&[at[1]], &tap[..]].concat(), ws).expect("inside")];
                sum += index(&from, xs).map_or(0.0, |from| x[from] * weight);
            }
            sum
        })
        .collect()
}

/// Pads before and after, strides, dilations, reversal; input and filter.
type Case<'a> = ([&'a [i64]; 2], &'a [i64], &'a [i64], bool, &'a [usize], &'a [usize]);

const CASES: [Case<'static>; 8] = [
    ([&[0, 0], &[0, 0]], &[1, 1], &[1, 1], false, &[2, 3, 5, 6], &[4, 3, 3, 2]),
    ([&[1, 2], &[1, 2]], &[2, 3], &[1, 1], false, &[2, 4, 7, 9], &[6, 4, 3, 3]),
    ([&[2, 2], &[2, 2]], &[1, 2], &[2, 3], true, &[1, 2, 8, 9], &[3, 2, 3, 2]),
    ([&[1, 1], &[1, 1]], &[1, 1], &[1, 1], false, &[3, 6, 5, 5], &[9, 2, 3, 3]),
    ([&[1, 1], &[1, 1]], &[2, 2], &[1, 1], true, &[2, 4, 6, 6], &[4, 1, 3, 3]),
    ([&[3], &[1]], &[2], &[2], false, &[2, 3, 11], &[5, 3, 4]),
    ([&[1, 0, 2], &[0, 1, 2]], &[2, 1, 1], &[1, 2, 1], false, &[2, 4, 5, 6, 4], &[4, 2, 2, 3, 3]),
    // Filters that reach beyond the padded input on one side.
    ([&[4, 4], &[4, 4]], &[5, 5], &[1, 1], false, &[1, 1, 2, 2], &[1, 1, 3, 3]),
];

#[test]
fn convolutions_are_those_of_loops() {
    for (number, (pads, strides, dilations, reversed, xs, ws)) in CASES.into_iter().enumerate() {
        let p = Parameters::new(pads, strides, dilations, reversed).expect("valid");
        let ys = p.output(xs, ws, xs[1] / ws[1]).expect("fits");
        let geometry = Geometry::new(&p, xs, ws, &ys).expect("fits");
        let (x, w, dy) = (numbers(count(xs), 1), numbers(count(ws), 2), numbers(count(&ys), 3));
        let wanted = naive(&p, &x, xs, &w, ws, &ys);
        // Small whole numbers: single precision is exact, too.
        for kind in [Type::F32, Type::F64] {
            assert_eq!(geometry.compute(Direction::Forward, kind, &x, &w), wanted, "case {number}");
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let value = dot(&dy, &wanted);
            let dx = geometry.compute(Direction::Data, kind, &w, &dy);
            let dw = geometry.compute(Direction::Filter, kind, &x, &dy);
            // <dy, conv(x, w)> = <dx, x> = <dw, w>, and by the same for each unit vector every element is right.
            assert_eq!((dot(&dx, &x), dot(&dw, &w)), (value, value), "case {number}");
            for at in (0..x.len()).step_by(7) {
                let mut unit = vec![0.0; x.len()];
                unit[at] = 1.0;
                assert_eq!(dx[at], dot(&dy, &naive(&p, &unit, xs, &w, ws, &ys)), "case {number}, dx {at}");
            }
            for at in (0..w.len()).step_by(5) {
                let mut unit = vec![0.0; w.len()];
                unit[at] = 1.0;
                assert_eq!(dw[at], dot(&dy, &naive(&p, &x, xs, &unit, ws, &ys)), "case {number}, dw {at}");
            }
        }
    }
}

#[test]
fn tiles_make_no_difference() {
    // More rows than fit one tile of all places.
    let p = Parameters::new([&[1, 1], &[1, 1]], &[1, 1], &[1, 1], false).expect("valid");
    let (xs, ws) = ([1, 400, 24, 24], [2, 400, 3, 3]);
    let ys = p.output(&xs, &ws, 1).expect("fits");
    let geometry = Geometry::new(&p, &xs, &ws, &ys).expect("fits");
    let (x, w) = (numbers(count(&xs), 1), numbers(count(&ws), 2));
    assert_eq!(geometry.compute(Direction::Forward, Type::F64, &x, &w), naive(&p, &x, &xs, &w, &ws, &ys));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let p = |pad: i64, stride, dilation| Parameters::new([&[pad], &[pad]], &[stride], &[dilation], false);
    assert!(p(-1, 1, 1).is_err() && p(0, 0, 1).is_err() && p(0, 1, 0).is_err() && p(i64::MAX, 1, 1).is_err());
    let p = p(0, 1, i64::from(i32::MAX)).expect("valid");
    assert!(p.output(&[1, 1, 5], &[1, 1, 2], 1).is_err(), "the filter is longer than the input");
    assert!(p.output(&[1, 4, 5], &[4, 2, 1], 3).is_err(), "channels");
    assert!(p.output(&[1, 4, 5], &[3, 2, 1], 2).is_err(), "features");
    assert!(p.output(&[1, 4, 5], &[4, 4, 1], 0).is_err() && p.output(&[1, 4], &[4, 4, 1], 1).is_err());
    assert!(Geometry::new(&p, &[1, 4, 5], &[4, 4, 1], &[1, 4, 6]).is_err(), "the output's size");
    assert!(Geometry::new(&p, &[1, 1, 5], &[4, 4, 1], &[1, 4, 5]).is_err(), "no group");
}
