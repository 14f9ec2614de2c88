// SPDX-License-Identifier: Apache-2.0 OR MIT

//! LU with partial pivoting, column by column (Gilbert and Peierls).

use super::matrix::Csr;
use crate::numbers::C64;

/// P A = L U.
#[derive(Debug)]
pub struct Lu {
    /// The row of A in each row of the factors.
    pub order: Vec<usize>,
    /// The elements below the diagonal, by columns: rows of A.
    lower: Vec<Vec<(usize, C64)>>,
    /// The elements above the diagonal, by columns: rows of U.
    upper: Vec<Vec<(usize, C64)>>,
    diagonal: Vec<C64>,
}

impl Lu {
    /// Factorizes. A row is exchanged if its element on the diagonal is below `threshold` times the largest.
    pub fn factor(a: &Csr, threshold: f64) -> Self {
        let n = a.rows();
        let mut lu = Self { order: Vec::new(), lower: Vec::new(), upper: Vec::new(), diagonal: Vec::new() };
        let (mut work, mut is_pivot) = (vec![C64::default(); n], vec![false; n]);
        for (column, elements) in a.by_columns().into_iter().enumerate() {
            elements.into_iter().for_each(|(row, value)| work[row] += value);
            let mut above = Vec::new();
            for (step, &pivot) in lu.order.iter().enumerate() {
                let value = std::mem::take(&mut work[pivot]);
                if value != C64::default() {
                    above.push((step, value));
                    lu.lower[step].iter().for_each(|(row, factor)| work[*row] -= factor * value);
                }
            }
            let rest = || (0..n).filter(|row| !is_pivot[*row]);
            let size = |row: usize| work[row].norm();
            let largest = rest().fold(None, |best: Option<usize>, row| match best {
                Some(best) if size(best) >= size(row) => Some(best),
                _ => Some(row),
            });
            let Some(largest) = largest else { break };
            let on_diagonal = !is_pivot[column] && size(column) > 0.0;
            let pivot =
                if on_diagonal && size(column) >= threshold * size(largest) { column } else { largest };
            let value = std::mem::take(&mut work[pivot]);
            is_pivot[pivot] = true;
            let below = (0..n).filter(|row| !is_pivot[*row] && work[*row] != C64::default());
            let below: Vec<(usize, C64)> = below.map(|row| (row, work[row] / value)).collect();
            below.iter().for_each(|(row, _)| work[*row] = C64::default());
            lu.order.push(pivot);
            lu.lower.push(below);
            lu.upper.push(above);
            lu.diagonal.push(value);
        }
        lu
    }

    /// The first index at which U has at most `tolerance` on its diagonal.
    pub fn zero_pivot(&self, tolerance: f64) -> Option<usize> {
        self.diagonal.iter().position(|value| value.norm() <= tolerance)
    }

    /// Solves A x = b.
    pub fn solve(&self, b: &[C64]) -> Vec<C64> {
        let mut work = b.to_vec();
        let mut x: Vec<C64> = Vec::with_capacity(b.len());
        for (step, &row) in self.order.iter().enumerate() {
            let value = work[row];
            self.lower[step].iter().for_each(|(row, factor)| work[*row] -= factor * value);
            x.push(value);
        }
        for column in (0..x.len()).rev() {
            x[column] /= self.diagonal[column];
            let value = x[column];
            self.upper[column].iter().for_each(|(row, factor)| x[*row] -= factor * value);
        }
        x
    }

    /// L without its diagonal of ones, and U.
    pub fn factors(&self) -> (Csr, Csr) {
        let n = self.order.len();
        let mut places = vec![0; n];
        self.order.iter().enumerate().for_each(|(place, row)| places[*row] = place);
        let (mut lower, mut upper) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        for column in 0..n {
            self.lower[column].iter().for_each(|(row, value)| lower[places[*row]].push((column, *value)));
            self.upper[column].iter().for_each(|(row, value)| upper[*row].push((column, *value)));
            upper[column].push((column, self.diagonal[column]));
        }
        (Csr::from_rows(n, &lower), Csr::from_rows(n, &upper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::matrix::example;

    #[test]
    fn a_system_is_solved_and_its_factors_are_a() {
        let a = example(12);
        // Rows from the last to the first: there is nothing on the diagonal.
        let reversed: Vec<usize> = (0..12).rev().collect();
        let same: Vec<usize> = (0..12).collect();
        let (a, _) = a.permuted(&reversed, &same);
        let x: Vec<C64> = (0..12).map(|index| C64::new(1.0 + f64::from(index), -0.5)).collect();
        let lu = Lu::factor(&a, 1.0);
        let found = lu.solve(&a.times(&x));
        assert!(x.iter().zip(&found).all(|(x, found)| (x - found).norm() < 1e-12), "{found:?}");
        assert_eq!(lu.zero_pivot(1e-14), None);
        let (lower, upper) = lu.factors();
        // P A x = L U x
        let upper_x = upper.times(&x);
        let lower_upper_x = lower.times(&upper_x).into_iter().zip(&upper_x).map(|(below, one)| below + one);
        let product = a.times(&x);
        for (row, value) in lower_upper_x.enumerate() {
            assert!((value - product[lu.order[row]]).norm() < 1e-12);
        }
    }

    #[test]
    fn a_zero_on_the_diagonal_is_found() {
        let one = C64::new(1.0, 0.0);
        let a = Csr::from_rows(3, &[vec![(0, one)], vec![(0, one), (1, one)], vec![(1, one)]]);
        assert_eq!(Lu::factor(&a, 1.0).zero_pivot(1e-14), Some(2));
    }
}
