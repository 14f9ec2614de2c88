// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A = U S Vᴴ, by Jacobi's rotations of columns.

use super::qr;
use crate::memory::Dense;
use crate::numbers::C64;

/// More are never needed: convergence is quadratic.
const MAX_SWEEPS: usize = 60;

/// A decomposition of an m x n matrix.
#[derive(Debug)]
pub struct Svd {
    /// The singular values in descending order: as many as the smaller side.
    pub values: Vec<f64>,
    /// m x m
    pub u: Dense,
    /// n x n, not transposed
    pub v: Dense,
    /// False for a matrix with a NaN.
    pub converged: bool,
}

/// Decomposes a matrix.
pub fn decompose(a: &Dense) -> Svd {
    if a.rows < a.columns {
        let Svd { values, u, v, converged } = decompose(&a.adjoint());
        return Svd { values, u: v, v: u, converged };
    }
    let (rows, columns) = (a.rows, a.columns);
    let (mut work, mut v) = (a.clone(), Dense::identity(columns, columns));
    let mut converged = false;
    for _ in 0..MAX_SWEEPS {
        let mut rotated = false;
        for p in 0..columns {
            for q in p + 1..columns {
                rotated |= rotate(&mut work, &mut v, p, q);
            }
        }
        if !rotated {
            converged = true;
            break;
        }
    }
    let norm = |column: usize| work.column(column).iter().map(C64::norm_sqr).sum::<f64>().sqrt();
    let norms: Vec<f64> = (0..columns).map(norm).collect();
    let mut places: Vec<usize> = (0..columns).collect();
    places.sort_by(|x, y| norms[*y].total_cmp(&norms[*x]));
    let values: Vec<f64> = places.iter().map(|place| norms[*place]).collect();
    let v = Dense::from(columns, columns, |row, column| v[(row, places[column])]);
    let tiny = values.first().copied().unwrap_or(0.0) * f64::EPSILON * rows.max(1) as f64;
    let left: Vec<Vec<C64>> = places
        .iter()
        .filter(|place| norms[**place] > tiny)
        .map(|place| work.column(*place).iter().map(|value| value / norms[*place]).collect())
        .collect();
    Svd {
        values,
        u: completed(&left, rows),
        v,
        converged: converged && norms.iter().all(|norm| norm.is_finite()),
    }
}

/// Makes two columns orthogonal; false: they are already.
fn rotate(work: &mut Dense, v: &mut Dense, p: usize, q: usize) -> bool {
    let product: C64 = work.column(p).iter().zip(work.column(q)).map(|(x, y)| x.conj() * y).sum();
    let square = |column: &[C64]| column.iter().map(C64::norm_sqr).sum::<f64>();
    let (alpha, beta) = (square(work.column(p)), square(work.column(q)));
    let size = product.norm();
    if size.is_nan() || size <= f64::EPSILON * (alpha * beta).sqrt() || size < f64::MIN_POSITIVE {
        return false;
    }
    let phase = product / size;
    let zeta = (beta - alpha) / (2.0 * size);
    let sign = if zeta >= 0.0 { 1.0 } else { -1.0 };
    let t = sign / (zeta.abs() + zeta.hypot(1.0));
    let c = 1.0 / t.hypot(1.0);
    let s = phase * (t * c);
    for matrix in [work, v] {
        for row in 0..matrix.rows {
            let (x, y) = (matrix[(row, p)], matrix[(row, q)]);
            matrix[(row, p)] = c * x - s.conj() * y;
            matrix[(row, q)] = s * x + c * y;
        }
    }
    true
}

/// Orthonormal columns, completed to a basis.
fn completed(columns: &[Vec<C64>], rows: usize) -> Dense {
    let mut factors = Dense::from(rows, columns.len(), |row, column| columns[column][row]);
    let tau = qr::factor(&mut factors);
    let mut basis = Dense::identity(rows, rows);
    qr::apply(&factors, &tau, false, &mut basis);
    // The basis spans the same space; its first columns may differ by a sign.
    Dense::from(rows, rows, |row, column| {
        columns.get(column).map_or(basis[(row, column)], |known| known[row])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapack::qr::tests::{distance, random};

    #[test]
    fn factors_multiply_to_the_matrix() {
        let singular = Dense::from(5, 3, |row, column| C64::new((row + 1) as f64 * (column + 1) as f64, 0.0));
        for a in [random(7, 4, 11), random(4, 7, 12), random(5, 5, 13), singular] {
            let svd = decompose(&a);
            assert!(svd.converged && svd.values.is_sorted_by(|x, y| x >= y));
            let middle = Dense::from(a.rows, a.columns, |row, column| {
                C64::new(if row == column { svd.values[row] } else { 0.0 }, 0.0)
            });
            assert!(distance(&svd.u.times(&middle).times(&svd.v.adjoint()), &a) < 1e-11);
            for unit in [&svd.u, &svd.v] {
                let order = unit.rows;
                assert!(distance(&unit.adjoint().times(unit), &Dense::identity(order, order)) < 1e-11);
            }
        }
    }
}
