// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Orders of rows and columns.

use std::collections::VecDeque;

use super::matrix::Csr;

/// Cuthill and McKee's order of a square matrix, reversed: elements of A + A^T are near the diagonal.
pub fn reverse_cuthill_mckee(a: &Csr) -> Vec<usize> {
    let n = a.rows();
    let mut near: Vec<Vec<usize>> = vec![Vec::new(); n];
    for row in 0..n {
        for &column in a.row_indices(row).iter().filter(|column| **column != row) {
            near[row].push(column);
            near[column].push(row);
        }
    }
    for list in &mut near {
        list.sort_unstable();
        list.dedup();
    }
    let degree = |index: &usize| near[*index].len();
    let mut starts: Vec<usize> = (0..n).collect();
    starts.sort_by_key(degree);
    let (mut order, mut seen) = (Vec::with_capacity(n), vec![false; n]);
    for start in starts {
        let mut queue = VecDeque::from([start]);
        while let Some(index) = queue.pop_front() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            order.push(index);
            let mut next: Vec<usize> = near[index].iter().copied().filter(|index| !seen[*index]).collect();
            next.sort_by_key(degree);
            queue.extend(next);
        }
    }
    order.reverse();
    order
}

/// The order of rows with which as many places of the diagonal as possible have an element, and their number.
pub fn zero_free_diagonal(a: &Csr) -> (Vec<usize>, usize) {
    let n = a.rows();
    let (mut column_of, mut row_of) = (vec![None; n], vec![None; n]);
    for start in 0..n {
        // A path along which all rows change their columns, breadth first.
        let mut from: Vec<Option<usize>> = vec![None; n];
        let mut queue = VecDeque::from([start]);
        let end = 'search: loop {
            let Some(row) = queue.pop_front() else { break None };
            for &column in a.row_indices(row) {
                if from[column].is_some() {
                    continue;
                }
                from[column] = Some(row);
                match row_of[column] {
                    None => break 'search Some(column),
                    Some(next) => queue.push_back(next),
                }
            }
        };
        let mut next = end;
        while let Some(column) = next {
            let Some(row) = from[column] else { break };
            row_of[column] = Some(row);
            next = column_of[row].replace(column);
        }
    }
    let found = row_of.iter().flatten().count();
    let mut free = (0..n).filter(|row| column_of[*row].is_none());
    let order = row_of.into_iter().map(|row| row.or_else(|| free.next()).unwrap_or(0)).collect();
    (order, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::C64;
    use crate::sparse::matrix::example;

    fn is_permutation(order: &[usize]) -> bool {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        sorted.into_iter().eq(0..order.len())
    }

    #[test]
    fn elements_come_near_the_diagonal() {
        let a = example(40);
        let apart: Vec<usize> = (0..40).map(|index| index * 7 % 40).collect();
        let (scattered, _) = a.permuted(&apart, &apart);
        let order = reverse_cuthill_mckee(&scattered);
        assert!(is_permutation(&order));
        let width = |matrix: &Csr| {
            let rows = (0..40)
                .flat_map(|row| matrix.row_indices(row).iter().map(move |column| column.abs_diff(row)));
            rows.max().unwrap_or(0)
        };
        let (near, _) = scattered.permuted(&order, &order);
        assert!(width(&near) <= 12 && width(&scattered) > 20, "{} {}", width(&near), width(&scattered));
    }

    #[test]
    fn a_diagonal_without_zeros_is_found() {
        let one = C64::new(1.0, 0.0);
        let rows =
            [vec![(0, one), (1, one)], vec![(0, one)], vec![(1, one), (2, one), (3, one)], vec![(2, one)]];
        let (order, found) = zero_free_diagonal(&Csr::from_rows(4, &rows));
        assert_eq!((&order[..], found), (&[1, 0, 3, 2][..], 4));
        let rows = [vec![(1, one)], vec![(2, one)], vec![(0, one)]];
        assert_eq!(zero_free_diagonal(&Csr::from_rows(3, &rows)), (vec![2, 0, 1], 3), "as NVIDIA's library");
        let rows = [vec![(0, one)], vec![(0, one)], vec![(2, one)]];
        let (order, found) = zero_free_diagonal(&Csr::from_rows(3, &rows));
        assert!(found == 2 && is_permutation(&order), "{order:?}");
    }
}
