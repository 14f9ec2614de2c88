// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Factors of matrices whose elements have known places.

use crate::cusolver::sparse::{Place, permutation};
use crate::cusolver::{INVALID_VALUE, Status};
use crate::sparse::matrix::Csr;

/// The factors of one matrix, or of several with equal places.
#[derive(Debug)]
pub(super) struct Factors {
    /// The places of L and U together, in order; they have no values.
    pub(super) places: Csr,
    pub(super) values: Vec<Vec<f64>>,
    /// The position at which each matrix was found to be singular.
    pub(super) zeros: Vec<Option<usize>>,
}

/// Row pointers, columns and orders as they are given.
pub(super) struct Given {
    a: Csr,
    p: Vec<usize>,
    q: Vec<usize>,
}

impl Given {
    /// Reads a matrix without its values, and the orders. `at`: the addresses of row pointers, columns, P and Q.
    pub(super) fn read(place: Place, n: usize, count: usize, at: [usize; 4]) -> Result<Self, Status> {
        if at.contains(&0) {
            return Err(INVALID_VALUE);
        }
        let [starts, indices, p, q] = at;
        let (starts, indices, p, q) = place.run(move |place| {
            let orders = (place.integers(p, n)?, place.integers(q, n)?);
            Ok((place.integers(starts, n + 1)?, place.integers(indices, count)?, orders.0, orders.1))
        })?;
        Ok(Self {
            a: Csr::new(n, &starts, &indices, Vec::new(), 0).ok_or(INVALID_VALUE)?,
            p: permutation(&p).ok_or(INVALID_VALUE)?,
            q: permutation(&q).ok_or(INVALID_VALUE)?,
        })
    }
}

impl Factors {
    /// The places of L and U, which are given by rows.
    pub(super) fn places(lower: &Csr, upper: &Csr) -> Option<Csr> {
        let n = lower.rows();
        let mut places = Csr { columns: n, starts: vec![0], ..Csr::default() };
        for row in 0..n {
            let below = lower.row_indices(row).iter().filter(|column| **column < row);
            let above = upper.row_indices(row).iter().filter(|column| **column >= row);
            let mut columns: Vec<usize> = below.chain(above).copied().collect();
            columns.sort_unstable();
            columns.dedup();
            columns.binary_search(&row).ok()?;
            places.indices.extend(columns);
            places.starts.push(places.indices.len());
        }
        Some(places)
    }

    /// The values of P A Q^T at the places. `None`: A has elements elsewhere.
    pub(super) fn assemble(places: &Csr, given: &Given, values: &[f64]) -> Option<Vec<f64>> {
        let mut new_columns = vec![0; places.columns];
        given.q.iter().enumerate().for_each(|(new, old)| new_columns[*old] = new);
        let mut assembled = vec![0.0; places.indices.len()];
        for (row, &old) in given.p.iter().enumerate() {
            for at in given.a.starts[old]..given.a.starts[old + 1] {
                let column = new_columns[given.a.indices[at]];
                let place = places.row_indices(row).binary_search(&column).ok()?;
                assembled[places.starts[row] + place] = *values.get(at)?;
            }
        }
        Some(assembled)
    }

    /// The index of the element of a row on the diagonal.
    fn diagonal(&self, row: usize) -> usize {
        let place = self.places.row_indices(row).binary_search(&row);
        self.places.starts[row] + place.expect("`places` has the diagonal")
    }

    /// Factorizes all matrices. Returns whether an element of a diagonal was replaced.
    pub(super) fn factor(&mut self, zero: f64, boost: f64) -> bool {
        let n = self.places.rows();
        let mut was_boosted = false;
        for matrix in 0..self.values.len() {
            let mut values = std::mem::take(&mut self.values[matrix]);
            self.zeros[matrix] = None;
            let mut work = vec![0.0; n];
            for row in 0..n {
                let range = self.places.starts[row]..self.places.starts[row + 1];
                range.clone().for_each(|at| work[self.places.indices[at]] = values[at]);
                for &step in self.places.row_indices(row).iter().take_while(|column| **column < row) {
                    let diagonal = self.diagonal(step);
                    let factor = work[step] / values[diagonal];
                    work[step] = factor;
                    for at in diagonal + 1..self.places.starts[step + 1] {
                        work[self.places.indices[at]] -= factor * values[at];
                    }
                }
                if work[row].abs() <= zero {
                    if boost > 0.0 {
                        (work[row], was_boosted) = (boost, true);
                    } else {
                        self.zeros[matrix].get_or_insert(row);
                    }
                }
                range.for_each(|at| values[at] = work[self.places.indices[at]]);
                work.fill(0.0);
            }
            self.values[matrix] = values;
        }
        was_boosted
    }

    /// Solves A x = b with the factors of one of the matrices.
    pub(super) fn solve(&self, matrix: usize, p: &[usize], q: &[usize], b: &[f64]) -> Vec<f64> {
        let (n, values) = (self.places.rows(), &self.values[matrix]);
        let mut y: Vec<f64> = p.iter().map(|row| b[*row]).collect();
        for row in 0..n {
            let below = self.places.starts[row]..self.diagonal(row);
            y[row] -= below.map(|at| values[at] * y[self.places.indices[at]]).sum::<f64>();
        }
        for row in (0..n).rev() {
            let diagonal = self.diagonal(row);
            let above = diagonal + 1..self.places.starts[row + 1];
            y[row] -= above.map(|at| values[at] * y[self.places.indices[at]]).sum::<f64>();
            y[row] /= values[diagonal];
        }
        let mut x = vec![0.0; n];
        q.iter().zip(y).for_each(|(column, value)| x[*column] = value);
        x
    }
}
