// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A sparse matrix by rows.

use crate::numbers::C64;

/// A matrix by compressed rows, with index base 0.
///
/// # Invariants
///
/// `starts` has one number more than there are rows, never decreases, and ends with the length of `indices`, which are below
/// `columns`.
/// There are as many values as indices, or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Csr {
    /// Columns.
    pub columns: usize,
    /// The index of the first element of each row, and the number of elements.
    pub starts: Vec<usize>,
    /// The column of each element.
    pub indices: Vec<usize>,
    /// The elements.
    pub values: Vec<C64>,
}

impl Csr {
    /// A matrix of arrays whose indices begin at `base`. `None` if they break the invariants.
    pub fn new(columns: usize, starts: &[i32], indices: &[i32], values: Vec<C64>, base: i32) -> Option<Self> {
        let number = |value: &i32| usize::try_from(value.checked_sub(base)?).ok();
        let starts: Vec<usize> = starts.iter().map(number).collect::<Option<_>>()?;
        let indices: Vec<usize> = indices.iter().map(number).collect::<Option<_>>()?;
        let is_one = starts.first() == Some(&0)
            && starts.last() == Some(&indices.len())
            && starts.is_sorted()
            && indices.iter().all(|index| *index < columns)
            && (values.is_empty() || values.len() == indices.len());
        is_one.then_some(Self { columns, starts, indices, values })
    }

    /// A matrix of rows with columns and elements.
    pub fn from_rows(columns: usize, rows: &[Vec<(usize, C64)>]) -> Self {
        let mut matrix = Self { columns, starts: vec![0], ..Self::default() };
        for row in rows {
            matrix.indices.extend(row.iter().map(|(column, _)| *column));
            matrix.values.extend(row.iter().map(|(_, value)| *value));
            matrix.starts.push(matrix.indices.len());
        }
        matrix
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// The columns of a row.
    pub fn row_indices(&self, row: usize) -> &[usize] {
        &self.indices[self.starts[row]..self.starts[row + 1]]
    }

    /// The elements of a row with their columns.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (usize, C64)> + '_ {
        (self.starts[row]..self.starts[row + 1]).map(|at| (self.indices[at], self.values[at]))
    }

    /// The columns, each with its rows and elements.
    pub fn by_columns(&self) -> Vec<Vec<(usize, C64)>> {
        let mut columns = vec![Vec::new(); self.columns];
        for row in 0..self.rows() {
            self.row(row).for_each(|(column, value)| columns[column].push((row, value)));
        }
        columns
    }

    /// The product with a vector.
    #[cfg(test)]
    pub fn times(&self, x: &[C64]) -> Vec<C64> {
        (0..self.rows()).map(|row| self.row(row).map(|(column, value)| value * x[column]).sum()).collect()
    }

    /// Rows and columns in another order: element (i, j) is that of (`rows[i]`, `columns[j]`) here. Also answers which element each of
    /// the new ones was.
    pub fn permuted(&self, rows: &[usize], columns: &[usize]) -> (Self, Vec<usize>) {
        let mut places = vec![0; self.columns];
        columns.iter().enumerate().for_each(|(new, old)| places[*old] = new);
        let (mut matrix, mut map) =
            (Self { columns: self.columns, starts: vec![0], ..Self::default() }, Vec::new());
        for &row in rows {
            let mut elements: Vec<(usize, usize)> =
                (self.starts[row]..self.starts[row + 1]).map(|at| (places[self.indices[at]], at)).collect();
            elements.sort_unstable();
            for (column, at) in elements {
                matrix.indices.push(column);
                matrix.values.extend(self.values.get(at));
                map.push(at);
            }
            matrix.starts.push(matrix.indices.len());
        }
        (matrix, map)
    }
}

/// Matrices for tests: `n` rows, a strong diagonal and some elements beside it.
#[cfg(test)]
pub fn example(n: usize) -> Csr {
    let rows: Vec<Vec<(usize, C64)>> = (0..n)
        .map(|row| {
            let near = [row.wrapping_sub(3), row.wrapping_sub(1), row, row + 1, row + 3];
            let value = |column: usize| match column == row {
                true => C64::new(5.0, 0.0),
                false => C64::new(-1.0, (row as f64 - column as f64) / 8.0),
            };
            near.into_iter().filter(|column| *column < n).map(|column| (column, value(column))).collect()
        })
        .collect();
    Csr::from_rows(n, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_describe_no_matrix_are_refused() {
        assert!(Csr::new(2, &[1, 2, 3], &[1, 2], vec![], 1).is_some());
        for (starts, indices) in [
            (&[0, 2, 1][..], &[0, 1][..]),
            (&[1, 2, 2], &[0, 1]),
            (&[0, 1, 2], &[0, 2]),
            (&[0, 1, 2], &[-1, 0]),
            (&[0, 1, 3], &[0, 1]),
            (&[], &[]),
        ] {
            assert_eq!(Csr::new(2, starts, indices, vec![], 0), None, "{starts:?} {indices:?}");
        }
    }

    #[test]
    fn rows_and_columns_change_their_places() {
        let matrix = example(4);
        let (permuted, map) = matrix.permuted(&[2, 0, 3, 1], &[1, 3, 0, 2]);
        assert_eq!(permuted.row_indices(0), [0, 1, 3]);
        assert!(map.iter().enumerate().all(|(new, old)| permuted.values[new] == matrix.values[*old]));
        let columns = permuted.by_columns();
        assert_eq!(columns.iter().map(Vec::len).sum::<usize>(), matrix.indices.len());
    }
}
