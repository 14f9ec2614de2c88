// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A = P L U.

use crate::cublas::operation::{Operation, solve};
use crate::memory::Dense;
use crate::numbers::C64;

/// Replaces a matrix by L, without its diagonal of ones, and U. Returns for each row the row that it was exchanged with, and the
/// first zero on the diagonal of U, from 1, or 0.
pub fn factor(a: &mut Dense, pivots: bool) -> (Vec<usize>, usize) {
    let (mut exchanged, mut zero) = (Vec::new(), 0);
    for step in 0..a.rows.min(a.columns) {
        let size = |row: usize| a[(row, step)].re.abs() + a[(row, step)].im.abs();
        let mut best = step;
        for row in (step + 1..a.rows).filter(|_| pivots) {
            if size(row) > size(best) {
                best = row;
            }
        }
        exchanged.push(best);
        exchange(a, step, best);
        let pivot = a[(step, step)];
        if pivot == C64::default() {
            zero = if zero == 0 { step + 1 } else { zero };
            continue;
        }
        for row in step + 1..a.rows {
            let factor = a[(row, step)] / pivot;
            a[(row, step)] = factor;
            for column in step + 1..a.columns {
                let value = a[(step, column)];
                a[(row, column)] -= factor * value;
            }
        }
    }
    (exchanged, zero)
}

/// Exchanges two rows.
pub fn exchange(a: &mut Dense, first: usize, second: usize) {
    if first != second {
        for column in 0..a.columns {
            let value = a[(first, column)];
            a[(first, column)] = a[(second, column)];
            a[(second, column)] = value;
        }
    }
}

/// Solves op(A) X = B with the factors of a square A; X replaces B.
pub fn solve_with(factors: &Dense, exchanged: &[usize], operation: Operation, b: &mut Dense) {
    let order = factors.rows;
    let one = C64::new(1.0, 0.0);
    let lower = Dense::from(order, order, |row, column| match row.cmp(&column) {
        std::cmp::Ordering::Less => C64::default(),
        std::cmp::Ordering::Equal => one,
        std::cmp::Ordering::Greater => factors[(row, column)],
    });
    let upper =
        Dense::from(
            order,
            order,
            |row, column| {
                if row <= column { factors[(row, column)] } else { C64::default() }
            },
        );
    if operation == Operation::None {
        exchanged.iter().enumerate().for_each(|(row, other)| exchange(b, row, *other));
        solve(&lower, true, b);
        solve(&upper, false, b);
    } else {
        solve(&operation.of(&upper), true, b);
        solve(&operation.of(&lower), false, b);
        exchanged.iter().enumerate().rev().for_each(|(row, other)| exchange(b, row, *other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapack::qr::tests::{distance, random};

    #[test]
    fn solutions_solve() {
        let (a, x) = (random(7, 7, 1), random(7, 3, 2));
        let mut factors = a.clone();
        let (exchanged, zero) = factor(&mut factors, true);
        assert_eq!(zero, 0);
        for operation in [Operation::None, Operation::Transpose, Operation::Conjugate] {
            let mut b = operation.of(&a).times(&x);
            solve_with(&factors, &exchanged, operation, &mut b);
            assert!(distance(&b, &x) < 1e-11, "{operation:?}");
        }
    }

    #[test]
    fn a_singular_matrix_is_reported() {
        let mut a = Dense::from(3, 3, |row, _| C64::new(row as f64, 0.0));
        assert_eq!(factor(&mut a, true).1, 2);
    }
}
