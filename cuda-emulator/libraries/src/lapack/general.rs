// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Eigenvalues of any square matrix: A = Z T Zᴴ with an upper triangular T, by the QR algorithm with one shift.

use super::qr;
use crate::memory::Dense;
use crate::numbers::C64;

/// Steps of the QR algorithm per eigenvalue. Two or three are usual.
const MAX_STEPS: usize = 30;
/// An element of a vector at which the vector is made smaller: the next one may be 1e16 times larger.
const LARGE: f64 = 1e100;

/// Eigenvalues, and eigenvectors of length one whose largest element is real.
#[derive(Debug)]
pub struct Eigen {
    /// In the order of the diagonal of T.
    pub values: Vec<C64>,
    /// The columns belong to the values.
    pub vectors: Dense,
    /// The number of the last eigenvalue that has not converged, from 1, or 0. The eigenvalues after it are correct.
    pub failed: usize,
}

/// The eigenvalues and eigenvectors of a matrix.
pub fn decompose(a: &Dense) -> Eigen {
    let order = a.rows;
    let (mut t, mut z) = hessenberg(a);
    let failed = triangularise(&mut t, &mut z);
    let values: Vec<C64> = (0..order).map(|at| t[(at, at)]).collect();
    let mut vectors = z.times(&vectors_of_triangle(&t));
    (0..order).for_each(|column| normalise(&mut vectors, column));
    Eigen { values, vectors, failed }
}

/// As [`decompose`], for a matrix of real numbers. Complex eigenvalues come as adjacent conjugate pairs, with the
/// positive imaginary part first, and vectors of real eigenvalues are real.
pub fn decompose_real(a: &Dense) -> Eigen {
    let order = a.rows;
    let Eigen { values, vectors, failed } = decompose(a);
    let partners = conjugates(&values);
    let mut columns: Vec<(C64, Vec<C64>)> = Vec::with_capacity(order);
    for (at, partner) in partners.into_iter().enumerate() {
        if partner < at {
            continue;
        }
        if partner == at {
            let real = vectors.column(at).iter().map(|value| C64::new(value.re, 0.0)).collect();
            columns.push((C64::new(values[at].re, 0.0), real));
            continue;
        }
        let first = if values[at].im >= 0.0 { at } else { partner };
        columns.push((values[first], vectors.column(first).to_vec()));
        columns.push((values[first].conj(), vectors.column(first).iter().map(C64::conj).collect()));
    }
    let mut vectors = Dense::from(order, order, |row, column| columns[column].1[row]);
    (0..order).for_each(|column| normalise(&mut vectors, column));
    Eigen { values: columns.iter().map(|(value, _)| *value).collect(), vectors, failed }
}

/// For each eigenvalue of a real matrix the one that is its conjugate, which may be itself: those that are closest to it.
fn conjugates(values: &[C64]) -> Vec<usize> {
    let count = values.len();
    let mut pairs: Vec<(f64, usize, usize)> = (0..count)
        .flat_map(|first| (first..count).map(move |second| (first, second)))
        .map(|(first, second)| ((values[second] - values[first].conj()).norm(), first, second))
        .collect();
    pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut partners = vec![usize::MAX; count];
    for (_, first, second) in pairs {
        if partners[first] == usize::MAX && partners[second] == usize::MAX {
            (partners[first], partners[second]) = (second, first);
        }
    }
    partners
}

/// A matrix H without elements below the first diagonal under the main one, and a unitary Z: A = Z H Zᴴ.
fn hessenberg(a: &Dense) -> (Dense, Dense) {
    let order = a.rows;
    let (mut h, mut z) = (a.clone(), Dense::identity(order, order));
    for column in 0..order.saturating_sub(2) {
        let mut reflection =
            Dense::from(order, 1, |row, _| if row > column { h[(row, column)] } else { C64::default() });
        // One column below the diagonal, as the first column of a matrix of its own.
        let below = order - column - 1;
        let mut part = Dense::from(below, 1, |row, _| reflection[(row + column + 1, 0)]);
        let tau = qr::factor(&mut part)[0];
        for row in 0..below {
            reflection[(row + column + 1, 0)] = if row == 0 { C64::new(1.0, 0.0) } else { part[(row, 0)] };
        }
        reflect_left(&mut h, &reflection, tau.conj());
        reflect_right(&mut h, &reflection, tau);
        reflect_right(&mut z, &reflection, tau);
        (column + 2..order).for_each(|row| h[(row, column)] = C64::default());
    }
    (h, z)
}

/// (I - tau v vᴴ) M
fn reflect_left(matrix: &mut Dense, v: &Dense, tau: C64) {
    for column in 0..matrix.columns {
        let sum: C64 = (0..matrix.rows).map(|row| v[(row, 0)].conj() * matrix[(row, column)]).sum();
        (0..matrix.rows).for_each(|row| matrix[(row, column)] -= tau * sum * v[(row, 0)]);
    }
}

/// M (I - tau v vᴴ)
fn reflect_right(matrix: &mut Dense, v: &Dense, tau: C64) {
    for row in 0..matrix.rows {
        let sum: C64 = (0..matrix.columns).map(|column| matrix[(row, column)] * v[(column, 0)]).sum();
        (0..matrix.columns).for_each(|column| matrix[(row, column)] -= tau * sum * v[(column, 0)].conj());
    }
}

/// Makes H upper triangular, and keeps Z H Zᴴ. Returns the number of the last eigenvalue that has not converged, or 0.
fn triangularise(h: &mut Dense, z: &mut Dense) -> usize {
    let order = h.rows;
    let Some(mut last) = order.checked_sub(1) else { return 0 };
    let (mut steps, mut left) = (0, MAX_STEPS * order);
    let norm: f64 = (0..order).flat_map(|column| h.column(column)).map(|value| value.norm()).sum();
    if !norm.is_finite() {
        return order;
    }
    while last > 0 {
        let first = (1..=last).rev().find(|row| is_small(h, *row, norm)).unwrap_or(0);
        if first > 0 {
            h[(first, first - 1)] = C64::default();
        }
        if first == last {
            (last, steps) = (last - 1, 0);
            continue;
        }
        if left == 0 {
            return last + 1;
        }
        (steps, left) = (steps + 1, left - 1);
        let shift = if steps % 10 == 0 {
            // An unusual shift ends a cycle.
            h[(last, last)] + h[(last, last - 1)].norm()
        } else {
            shift(h, last)
        };
        step(h, z, first, last, shift);
    }
    0
}

/// The element left of the diagonal may count as zero.
fn is_small(h: &Dense, row: usize, norm: f64) -> bool {
    let beside = h[(row, row)].norm() + h[(row - 1, row - 1)].norm();
    let scale = if beside == 0.0 { norm } else { beside };
    h[(row, row - 1)].norm() <= f64::EPSILON * scale
}

/// Wilkinson's shift: the eigenvalue of the last two rows and columns that is closer to the last element.
fn shift(h: &Dense, last: usize) -> C64 {
    let (a, b) = (h[(last - 1, last - 1)], h[(last - 1, last)]);
    let (c, d) = (h[(last, last - 1)], h[(last, last)]);
    let half = (a - d) / 2.0;
    let root = (half * half + b * c).sqrt();
    let root = if (half + root).norm() >= (half - root).norm() { root } else { -root };
    let sum = half + root;
    if sum == C64::default() { d } else { d - b * c / sum }
}

/// One step: rotations of neighbouring rows and columns of an active block.
fn step(h: &mut Dense, z: &mut Dense, first: usize, last: usize, shift: C64) {
    let order = h.rows;
    let (mut x, mut y) = (h[(first, first)] - shift, h[(first + 1, first)]);
    for at in first..last {
        if at > first {
            (x, y) = (h[(at, at - 1)], h[(at + 1, at - 1)]);
        }
        let length = x.norm().hypot(y.norm());
        if length == 0.0 {
            continue;
        }
        let (c, s) = (x / length, y / length);
        // Rows: (cᴴ sᴴ; -s c) makes y zero.
        for column in at.saturating_sub(1)..order {
            let (above, below) = (h[(at, column)], h[(at + 1, column)]);
            h[(at, column)] = c.conj() * above + s.conj() * below;
            h[(at + 1, column)] = c * below - s * above;
        }
        for matrix in [&mut *h, &mut *z] {
            let rows = matrix.rows;
            for row in 0..rows {
                let (left, right) = (matrix[(row, at)], matrix[(row, at + 1)]);
                matrix[(row, at)] = c * left + s * right;
                matrix[(row, at + 1)] = c.conj() * right - s.conj() * left;
            }
        }
        if at > first {
            h[(at + 1, at - 1)] = C64::default();
        }
    }
}

/// The eigenvectors of an upper triangular matrix: upper triangular, too, with ones on the diagonal.
fn vectors_of_triangle(t: &Dense) -> Dense {
    let order = t.rows;
    let norm: f64 =
        (0..order).flat_map(|column| t.column(column)).map(|value| value.norm()).fold(0.0, f64::max);
    let tiny = (norm * f64::EPSILON).max(f64::MIN_POSITIVE);
    let mut vectors = Dense::identity(order, order);
    for column in 0..order {
        for row in (0..column).rev() {
            let sum: C64 = (row + 1..=column).map(|inner| t[(row, inner)] * vectors[(inner, column)]).sum();
            let apart = t[(column, column)] - t[(row, row)];
            // Equal eigenvalues: as if they were different by a rounding error.
            let value = sum / if apart.norm() < tiny { C64::new(tiny, 0.0) } else { apart };
            vectors[(row, column)] = value;
            if value.norm() > LARGE {
                let size = value.norm();
                (row..=column).for_each(|row| vectors[(row, column)] /= size);
            }
        }
        normalise(&mut vectors, column);
    }
    vectors
}

/// Gives a column the length one and a largest element that is real.
fn normalise(vectors: &mut Dense, column: usize) {
    let elements = vectors.column(column);
    let Some(largest) = elements.iter().copied().max_by(|one, other| one.norm().total_cmp(&other.norm()))
    else {
        return;
    };
    // Scaled by the largest element first, because its square could overflow.
    let size = largest.norm();
    if size == 0.0 || !size.is_finite() {
        return;
    }
    let length = elements.iter().map(|value| (value / size).norm_sqr()).sum::<f64>().sqrt();
    let factor = (largest / size).conj() / length;
    for row in 0..vectors.rows {
        let value = vectors[(row, column)] / size * factor;
        vectors[(row, column)] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapack::qr::tests::{distance, random};

    fn check(a: &Dense, found: &Eigen, tolerance: f64) {
        assert_eq!(found.failed, 0);
        let scaled =
            Dense::from(a.rows, a.rows, |row, column| found.vectors[(row, column)] * found.values[column]);
        assert!(distance(&a.times(&found.vectors), &scaled) < tolerance, "{found:?}");
        for column in 0..a.rows {
            let length: f64 = found.vectors.column(column).iter().map(C64::norm_sqr).sum();
            assert!((length - 1.0).abs() < 1e-12);
        }
        let trace: C64 = (0..a.rows).map(|at| a[(at, at)]).sum();
        assert!((found.values.iter().sum::<C64>() - trace).norm() < tolerance);
    }

    fn real(order: usize, element: impl Fn(usize, usize) -> f64) -> Dense {
        Dense::from(order, order, |row, column| C64::new(element(row, column), 0.0))
    }

    #[test]
    fn vectors_belong_to_values() {
        for order in [1, 2, 3, 8, 21] {
            let a = random(order, order, 3);
            check(&a, &decompose(&a), 1e-10);
        }
        assert_eq!(decompose(&random(0, 0, 1)).values.len(), 0);
    }

    #[test]
    fn values_of_real_matrices_are_real_or_pairs() {
        for order in [2, 5, 12, 20] {
            let numbers = random(order, order, 7);
            let a = real(order, |row, column| numbers[(row, column)].re);
            let found = decompose_real(&a);
            check(&a, &found, 1e-10);
            let mut at = 0;
            while at < order {
                if found.values[at].im == 0.0 {
                    assert!(found.vectors.column(at).iter().all(|value| value.im == 0.0));
                    at += 1;
                } else {
                    assert!(found.values[at].im > 0.0);
                    assert_eq!(found.values[at + 1], found.values[at].conj());
                    at += 2;
                }
            }
        }
    }

    #[test]
    fn known_values() {
        // A permutation of four: the roots of one, on which a QR algorithm without an unusual shift does not move.
        let found = decompose_real(&real(4, |row, column| f64::from(u8::from(row == (column + 1) % 4))));
        let mut values: Vec<_> =
            found.values.iter().map(|value| (value.re.round() as i32, value.im.round() as i32)).collect();
        values.sort_unstable();
        assert_eq!(values, [(-1, 0), (0, -1), (0, 1), (1, 0)]);
        // A rotation, and a matrix with one eigenvector only.
        let rotation = real(2, |row, column| [[0.0, -1.0], [1.0, 0.0]][row][column]);
        assert!((decompose_real(&rotation).values[0] - C64::new(0.0, 1.0)).norm() < 1e-14);
        let shear = decompose_real(&real(2, |row, column| [[1.0, 1.0], [0.0, 1.0]][row][column]));
        assert!(shear.values.iter().all(|value| (value - 1.0).norm() < 1e-7));
    }

    #[test]
    fn vectors_of_equal_values_are_finite() {
        let found =
            decompose(&real(60, |row, column| f64::from(u8::from(row == column || row + 1 == column))));
        assert!((0..60).all(|column| found.vectors.column(column).iter().all(|value| value.is_finite())));
        assert!((found.vectors[(0, 59)].norm() - 1.0).abs() < 1e-12, "there is one eigenvector only");
    }

    #[test]
    fn a_nan_is_reported() {
        assert_ne!(decompose(&real(3, |_, _| f64::NAN)).failed, 0);
    }
}
