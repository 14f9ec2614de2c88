// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A = Q R, with Q as a product of reflections I - tau v vᴴ, of which the first element that is not 0 of each v is 1.

use crate::memory::Dense;
use crate::numbers::C64;

/// Replaces a matrix by R, and the reflections below its diagonal. Returns their factors tau.
pub fn factor(a: &mut Dense) -> Vec<C64> {
    (0..a.rows.min(a.columns)).map(|step| reflect(a, step)).collect()
}

/// LAPACK's `larfg` for a column, applied to the columns after it.
fn reflect(a: &mut Dense, step: usize) -> C64 {
    let alpha = a[(step, step)];
    let rest: f64 = (step + 1..a.rows).map(|row| a[(row, step)].norm_sqr()).sum();
    if rest == 0.0 && alpha.im == 0.0 {
        return C64::default();
    }
    let norm = (alpha.norm_sqr() + rest).sqrt();
    let beta = if alpha.re >= 0.0 { -norm } else { norm };
    let tau = C64::new((beta - alpha.re) / beta, -alpha.im / beta);
    for row in step + 1..a.rows {
        a[(row, step)] /= alpha - beta;
    }
    a[(step, step)] = C64::new(1.0, 0.0);
    for column in step + 1..a.columns {
        // The adjoint of the reflection.
        let sum: C64 = (step..a.rows).map(|row| a[(row, step)].conj() * a[(row, column)]).sum();
        for row in step..a.rows {
            let value = a[(row, step)];
            a[(row, column)] -= tau.conj() * sum * value;
        }
    }
    a[(step, step)] = C64::new(beta, 0.0);
    tau
}

/// Multiplies by Q, or by its adjoint, from the left.
pub fn apply(reflections: &Dense, tau: &[C64], is_adjoint: bool, b: &mut Dense) {
    let count = tau.len();
    for index in 0..count {
        let step = if is_adjoint { index } else { count - 1 - index };
        let factor = if is_adjoint { tau[step].conj() } else { tau[step] };
        let element = |row: usize| if row == step { C64::new(1.0, 0.0) } else { reflections[(row, step)] };
        for column in 0..b.columns {
            let sum: C64 = (step..b.rows).map(|row| element(row).conj() * b[(row, column)]).sum();
            for row in step..b.rows {
                b[(row, column)] -= factor * sum * element(row);
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A matrix of deterministic numbers.
    pub fn random(rows: usize, columns: usize, seed: usize) -> Dense {
        let number = |at: usize| ((at * 7919 + seed * 104_729) % 1009) as f64 / 504.5 - 1.0;
        Dense::from(rows, columns, |row, column| {
            let at = row * 31 + column * 17 + row * column;
            C64::new(number(at + 1), number(at * 3 + 7))
        })
    }

    /// The largest difference between elements.
    pub fn distance(a: &Dense, b: &Dense) -> f64 {
        assert_eq!((a.rows, a.columns), (b.rows, b.columns));
        let all = (0..a.rows).flat_map(|row| (0..a.columns).map(move |column| (row, column)));
        all.map(|at| (a[at] - b[at]).norm()).fold(0.0, f64::max)
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        for (rows, columns) in [(7, 4), (4, 4), (3, 6)] {
            let a = random(rows, columns, 5);
            let mut factors = a.clone();
            let tau = factor(&mut factors);
            let mut product = Dense::from(rows, columns, |row, column| {
                if row <= column { factors[(row, column)] } else { C64::default() }
            });
            apply(&factors, &tau, false, &mut product);
            assert!(distance(&product, &a) < 1e-12, "{rows} x {columns}");
            let mut unit = Dense::identity(rows, rows);
            apply(&factors, &tau, false, &mut unit);
            assert!(distance(&unit.adjoint().times(&unit), &Dense::identity(rows, rows)) < 1e-12);
        }
    }
}
