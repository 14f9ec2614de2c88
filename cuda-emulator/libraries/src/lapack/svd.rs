// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A = U S Vᴴ, by Jacobi's rotations of columns.

use super::qr;
use crate::memory::Dense;
use crate::numbers::C64;

/// The maximum number of sweeps over all pairs of columns. Convergence is quadratic, so a matrix without NaNs needs far fewer.
const MAX_SWEEPS: usize = 60;

/// A decomposition of an m x n matrix.
#[derive(Debug)]
pub struct Svd {
    /// The singular values in descending order: as many as the smaller side.
    pub values: Vec<f64>,
    /// m rows, and as many columns as were requested
    pub u: Dense,
    /// n rows, and as many columns as were requested; not transposed
    pub v: Dense,
    /// False for a matrix with a NaN.
    pub converged: bool,
}

/// Decomposes a matrix. U gets the first `of_u` of its m columns, and V the first `of_v` of its n.
pub fn decompose(a: &Dense, [of_u, of_v]: [usize; 2]) -> Svd {
    if a.rows < a.columns {
        let Svd { values, u, v, converged } = decompose(&a.adjoint(), [of_v, of_u]);
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
    let v = Dense::from(columns, of_v, |row, column| v[(row, places[column])]);
    let tiny = values.first().copied().unwrap_or(0.0) * f64::EPSILON * rows.max(1) as f64;
    let left: Vec<Vec<C64>> = places
        .iter()
        .filter(|place| norms[**place] > tiny)
        .take(of_u)
        .map(|place| work.column(*place).iter().map(|value| value / norms[*place]).collect())
        .collect();
    Svd {
        values,
        u: completed(&left, rows, of_u),
        v,
        converged: converged && norms.iter().all(|norm| norm.is_finite()),
    }
}

/// Makes two columns orthogonal. Returns false if they were so before.
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

/// Orthonormal columns, and so many others that there are `count`, all orthonormal.
fn completed(columns: &[Vec<C64>], rows: usize, count: usize) -> Dense {
    if columns.len() == count {
        return Dense::from(rows, count, |row, column| columns[column][row]);
    }
    let mut factors = Dense::from(rows, columns.len(), |row, column| columns[column][row]);
    let tau = qr::factor(&mut factors);
    let mut basis = Dense::identity(rows, count);
    qr::apply(&factors, &tau, false, &mut basis);
    // The basis spans the same space; its first columns may differ by a sign.
    Dense::from(rows, count, |row, column| {
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
            let svd = decompose(&a, [a.rows, a.columns]);
            assert!(svd.converged && svd.values.is_sorted_by(|x, y| x >= y));
            let middle = Dense::from(a.rows, a.columns, |row, column| {
                C64::new(if row == column { svd.values[row] } else { 0.0 }, 0.0)
            });
            assert!(distance(&svd.u.times(&middle).times(&svd.v.adjoint()), &a) < 1e-11);
            for unit in [&svd.u, &svd.v] {
                let order = unit.rows;
                assert!(distance(&unit.adjoint().times(unit), &Dense::identity(order, order)) < 1e-11);
            }
            for sizes in [[0, 0], [1, 2], [3, 0], [a.rows.min(a.columns); 2]] {
                let thin = decompose(&a, sizes);
                assert_eq!(thin.values, svd.values);
                for (all, some, count) in [(&svd.u, &thin.u, sizes[0]), (&svd.v, &thin.v, sizes[1])] {
                    let first = Dense::from(all.rows, count, |row, column| all[(row, column)]);
                    assert_eq!(distance(some, &first), 0.0, "{sizes:?}");
                }
            }
        }
    }

    #[test]
    fn a_thin_decomposition_needs_no_square_of_the_longer_side() {
        // All of U would take 95 GiB.
        let a = random(80_000, 2, 14);
        let svd = decompose(&a, [2, 2]);
        let product = svd.u.adjoint().times(&a).times(&svd.v);
        let values =
            Dense::from(2, 2, |row, column| C64::new(if row == column { svd.values[row] } else { 0.0 }, 0.0));
        assert!(svd.converged && distance(&product, &values) < 1e-9);
    }
}
