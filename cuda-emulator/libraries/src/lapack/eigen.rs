// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Eigenvalues of Hermitian matrices, by Jacobi's rotations.

use crate::memory::Dense;
use crate::numbers::C64;

/// More are never needed: convergence is quadratic.
const MAX_SWEEPS: usize = 60;

/// The eigenvalues in ascending order, and a matrix of eigenvectors; false: they have not converged, as with a NaN.
pub fn hermitian(a: &Dense) -> (Vec<f64>, Dense, bool) {
    let order = a.rows;
    let mut a = a.clone();
    let mut vectors = Dense::identity(order, order);
    let total: f64 = (0..order).flat_map(|column| a.column(column)).map(C64::norm_sqr).sum();
    let mut converged = order < 2;
    for _ in 0..MAX_SWEEPS {
        let outside: f64 = (0..order)
            .flat_map(|column| (0..column).map(move |row| (row, column)))
            .map(|at| a[at].norm_sqr())
            .sum();
        if outside <= total * f64::EPSILON * f64::EPSILON {
            converged = true;
            break;
        }
        for p in 0..order {
            for q in p + 1..order {
                rotate(&mut a, &mut vectors, p, q);
            }
        }
    }
    let mut places: Vec<usize> = (0..order).collect();
    places.sort_by(|x, y| a[(*x, *x)].re.total_cmp(&a[(*y, *y)].re));
    let values = places.iter().map(|place| a[(*place, *place)].re).collect();
    let sorted = Dense::from(order, order, |row, column| vectors[(row, places[column])]);
    (values, sorted, converged)
}

/// Makes the elements (p, q) and (q, p) zero.
fn rotate(a: &mut Dense, vectors: &mut Dense, p: usize, q: usize) {
    let off = a[(p, q)];
    let size = off.norm();
    if size == 0.0 {
        return;
    }
    let phase = off / size;
    let theta = (a[(q, q)].re - a[(p, p)].re) / (2.0 * size);
    let sign = if theta >= 0.0 { 1.0 } else { -1.0 };
    let t = sign / (theta.abs() + theta.hypot(1.0));
    let c = 1.0 / t.hypot(1.0);
    let s = phase * (t * c);
    // Columns: x_p' = c x_p - conj(s) x_q, x_q' = s x_p + c x_q.
    for matrix in [&mut *a, vectors] {
        for row in 0..matrix.rows {
            let (x, y) = (matrix[(row, p)], matrix[(row, q)]);
            matrix[(row, p)] = c * x - s.conj() * y;
            matrix[(row, q)] = s * x + c * y;
        }
    }
    for column in 0..a.columns {
        let (x, y) = (a[(p, column)], a[(q, column)]);
        a[(p, column)] = c * x - s * y;
        a[(q, column)] = s.conj() * x + c * y;
    }
    a[(p, q)] = C64::default();
    a[(q, p)] = C64::default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapack::qr::tests::{distance, random};

    #[test]
    fn vectors_belong_to_values() {
        let a = random(8, 8, 9);
        let hermitian_matrix =
            Dense::from(8, 8, |row, column| (a[(row, column)] + a[(column, row)].conj()) / 2.0);
        let (values, vectors, converged) = hermitian(&hermitian_matrix);
        assert!(converged && values.is_sorted());
        let scaled = Dense::from(8, 8, |row, column| vectors[(row, column)] * values[column]);
        assert!(distance(&hermitian_matrix.times(&vectors), &scaled) < 1e-12);
        assert!(distance(&vectors.adjoint().times(&vectors), &Dense::identity(8, 8)) < 1e-12);
    }
}
