// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Cholesky's factor of a sparse matrix, column by column.

use super::matrix::Csr;
use crate::numbers::C64;

/// A = L L^H.
#[derive(Debug)]
pub struct Cholesky {
    /// The elements below the diagonal, by columns.
    lower: Vec<Vec<(usize, C64)>>,
    diagonal: Vec<f64>,
}

impl Cholesky {
    /// Factorizes the triangle below the diagonal. Where A is not positive definite, the diagonal is 0 from there on.
    pub fn factor(a: &Csr) -> Self {
        let n = a.rows();
        let mut columns = a.by_columns();
        let (mut lower, mut diagonal): (Vec<Vec<(usize, C64)>>, Vec<f64>) = (Vec::new(), Vec::new());
        // The elements of each row of L that are known.
        let mut known: Vec<Vec<(usize, C64)>> = vec![Vec::new(); n];
        let mut work = vec![C64::default(); n];
        for column in 0..n {
            let elements = std::mem::take(&mut columns[column]).into_iter();
            elements.filter(|(row, _)| *row >= column).for_each(|(row, value)| work[row] += value);
            for (before, factor) in &known[column] {
                work[column] -= factor * factor.conj();
                for (row, value) in lower[*before].iter().filter(|(row, _)| *row > column) {
                    work[*row] -= value * factor.conj();
                }
            }
            let pivot = work[column].re;
            if pivot.is_nan() || pivot <= 0.0 {
                break;
            }
            let root = pivot.sqrt();
            work[column] = C64::default();
            let below = (column + 1..n).filter(|row| work[*row] != C64::default());
            let below: Vec<(usize, C64)> = below.map(|row| (row, work[row] / root)).collect();
            for &(row, value) in &below {
                work[row] = C64::default();
                known[row].push((column, value));
            }
            lower.push(below);
            diagonal.push(root);
        }
        lower.resize(n, Vec::new());
        diagonal.resize(n, 0.0);
        Self { lower, diagonal }
    }

    /// The diagonal of L.
    pub fn diagonal(&self) -> &[f64] {
        &self.diagonal
    }

    /// The first index at which L has at most `tolerance` on its diagonal.
    pub fn zero_pivot(&self, tolerance: f64) -> Option<usize> {
        self.diagonal.iter().position(|value| *value <= tolerance)
    }

    /// Solves A x = b.
    pub fn solve(&self, b: &[C64]) -> Vec<C64> {
        let mut x = b.to_vec();
        for column in 0..x.len() {
            x[column] /= self.diagonal[column];
            let value = x[column];
            self.lower[column].iter().for_each(|(row, factor)| x[*row] -= factor * value);
        }
        for column in (0..x.len()).rev() {
            let below: C64 = self.lower[column].iter().map(|(row, factor)| factor.conj() * x[*row]).sum();
            x[column] = (x[column] - below) / self.diagonal[column];
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::matrix::example;

    #[test]
    fn a_system_is_solved() {
        let a = example(12);
        let x: Vec<C64> = (0..12).map(|index| C64::new(1.0 + f64::from(index), -0.5)).collect();
        let cholesky = Cholesky::factor(&a);
        let found = cholesky.solve(&a.times(&x));
        assert!(x.iter().zip(&found).all(|(x, found)| (x - found).norm() < 1e-12), "{found:?}");
        assert_eq!(cholesky.zero_pivot(1e-14), None);
    }

    #[test]
    fn a_matrix_that_is_not_positive_definite_is_found() {
        let mut a = example(5);
        // The element of row 3 on the diagonal.
        let at = a.starts[3] + a.row_indices(3).iter().position(|column| *column == 3).unwrap();
        a.values[at] = C64::new(-5.0, 0.0);
        assert_eq!(Cholesky::factor(&a).zero_pivot(1e-14), Some(3));
    }
}
