// SPDX-License-Identifier: Apache-2.0 OR MIT

//! QR of a sparse matrix, row by row: each row is rotated against those above until nothing is left of it, or it starts a new row
//! of R (George and Heath).

use super::matrix::Csr;
use crate::numbers::C64;

/// A rotation of a row of R and the row that is added.
#[derive(Clone, Copy, Debug)]
struct Rotation {
    /// The row of R.
    row: usize,
    /// Factors of that row and of the added one, such that their first elements become a positive number and 0.
    kept: (C64, C64),
    added: (C64, C64),
}

impl Rotation {
    /// The rotation for two elements of which the second becomes 0.
    fn of(row: usize, first: C64, second: C64) -> Self {
        let length = first.norm().hypot(second.norm());
        Self {
            row,
            kept: (first.conj() / length, second.conj() / length),
            added: (-second / length, first / length),
        }
    }

    fn apply(&self, first: C64, second: C64) -> (C64, C64) {
        (self.kept.0 * first + self.kept.1 * second, self.added.0 * first + self.added.1 * second)
    }
}

/// A = Q R, for a matrix with at least as many rows as columns.
#[derive(Debug)]
pub struct Qr {
    /// Rows of R, from the diagonal on; empty where A has no full rank.
    rows: Vec<Vec<(usize, C64)>>,
    /// The steps that eliminated each row of A: its rotations with rows of R, and the index of the row of R that its remainder
    /// became. `None` if nothing remained.
    steps: Vec<(Vec<Rotation>, Option<usize>)>,
}

impl Qr {
    /// Factorizes.
    pub fn factor(a: &Csr) -> Self {
        let mut qr = Self { rows: vec![Vec::new(); a.columns], steps: Vec::new() };
        for index in 0..a.rows() {
            let mut row: Vec<(usize, C64)> = a.row(index).collect();
            row.sort_unstable_by_key(|(column, _)| *column);
            let (mut rotations, mut became) = (Vec::new(), None);
            loop {
                row.retain(|(_, value)| *value != C64::default());
                let Some(&(column, value)) = row.first() else { break };
                if qr.rows[column].is_empty() {
                    qr.rows[column] = row;
                    became = Some(column);
                    break;
                }
                let rotation = Rotation::of(column, qr.rows[column][0].1, value);
                let (kept, added) = merge(&rotation, &qr.rows[column], &row);
                qr.rows[column] = kept;
                row = added;
                rotations.push(rotation);
            }
            qr.steps.push((rotations, became));
        }
        qr
    }

    /// The first index at which R has at most `tolerance` on its diagonal.
    pub fn zero_pivot(&self, tolerance: f64) -> Option<usize> {
        self.rows.iter().position(|row| row.first().is_none_or(|(_, value)| value.norm() <= tolerance))
    }

    /// Solves A x = b with the minimum residual.
    pub fn solve(&self, b: &[C64]) -> Vec<C64> {
        let mut x = vec![C64::default(); self.rows.len()];
        for ((rotations, became), value) in self.steps.iter().zip(b) {
            let mut value = *value;
            for rotation in rotations {
                (x[rotation.row], value) = rotation.apply(x[rotation.row], value);
            }
            if let Some(row) = became {
                x[*row] = value;
            }
        }
        for column in (0..x.len()).rev() {
            let row = &self.rows[column];
            let right: C64 = row.iter().skip(1).map(|(column, value)| value * x[*column]).sum();
            x[column] = (x[column] - right) / row.first().map_or(C64::default(), |(_, value)| *value);
        }
        x
    }
}

/// A sparse row.
type Row = Vec<(usize, C64)>;

/// Two rows, rotated. The second loses its first element.
fn merge(rotation: &Rotation, first: &[(usize, C64)], second: &[(usize, C64)]) -> (Row, Row) {
    let (mut kept, mut added) = (Vec::with_capacity(first.len()), Vec::with_capacity(second.len()));
    let (mut left, mut right) = (first.iter().peekable(), second.iter().peekable());
    while let Some(column) = [left.peek(), right.peek()].iter().flatten().map(|(column, _)| *column).min() {
        let take = |row: &mut std::iter::Peekable<std::slice::Iter<'_, (usize, C64)>>| {
            row.next_if(|(known, _)| *known == column).map_or(C64::default(), |(_, value)| *value)
        };
        let (above, below) = rotation.apply(take(&mut left), take(&mut right));
        kept.push((column, above));
        if column != rotation.row {
            added.push((column, below));
        }
    }
    (kept, added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::matrix::example;

    #[test]
    fn a_system_is_solved() {
        let a = example(12);
        let reversed: Vec<usize> = (0..12).rev().collect();
        let same: Vec<usize> = (0..12).collect();
        let (a, _) = a.permuted(&reversed, &same);
        let x: Vec<C64> = (0..12).map(|index| C64::new(1.0 + f64::from(index), -0.5)).collect();
        let qr = Qr::factor(&a);
        let found = qr.solve(&a.times(&x));
        assert!(x.iter().zip(&found).all(|(x, found)| (x - found).norm() < 1e-12), "{found:?}");
        assert_eq!(qr.zero_pivot(1e-14), None);
    }

    #[test]
    fn the_rest_is_the_least() {
        let number = |value: f64| C64::new(value, 0.0);
        // A line through (0, 1), (1, 3), (2, 4), (3, 4).
        let rows: Vec<Row> = (0..4).map(|x| vec![(0, number(1.0)), (1, number(f64::from(x)))]).collect();
        let line = Qr::factor(&Csr::from_rows(2, &rows)).solve(&[1.0, 3.0, 4.0, 4.0].map(number));
        assert!((line[0] - 1.5).norm() < 1e-14 && (line[1] - 1.0).norm() < 1e-14, "{line:?}");
    }

    #[test]
    fn a_column_of_zeros_is_found() {
        let one = C64::new(1.0, 0.0);
        let a = Csr::from_rows(3, &[vec![(0, one)], vec![(0, one), (2, one)], vec![(2, one)]]);
        assert_eq!(Qr::factor(&a).zero_pivot(1e-14), Some(1));
    }
}
