// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A = L Lᴴ.

use crate::memory::Dense;
use crate::numbers::C64;

/// L of a Hermitian matrix. Errors: the order, from 1, of the first leading part that is not positive.
pub fn factor(a: &Dense) -> Result<Dense, usize> {
    let mut lower = Dense::from(a.rows, a.rows, |_, _| C64::default());
    for column in 0..a.rows {
        let known: f64 = (0..column).map(|inner| lower[(column, inner)].norm_sqr()).sum();
        let square = a[(column, column)].re - known;
        if square.is_nan() || square <= 0.0 {
            return Err(column + 1);
        }
        let diagonal = square.sqrt();
        lower[(column, column)] = C64::new(diagonal, 0.0);
        for row in column + 1..a.rows {
            let known: C64 =
                (0..column).map(|inner| lower[(row, inner)] * lower[(column, inner)].conj()).sum();
            lower[(row, column)] = (a[(row, column)] - known) / diagonal;
        }
    }
    Ok(lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapack::qr::tests::{distance, random};

    #[test]
    fn factors_multiply_to_the_matrix() {
        let a = random(6, 6, 3);
        let positive = a.times(&a.adjoint());
        let lower = factor(&positive).expect("positive");
        assert!(distance(&lower.times(&lower.adjoint()), &positive) < 1e-11);
        let negative = Dense::from(2, 2, |row, column| {
            C64::new(if row == column { 1.0 - 2.0 * row as f64 } else { 0.0 }, 0.0)
        });
        assert_eq!(factor(&negative), Err(2));
    }
}
