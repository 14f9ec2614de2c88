// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The pattern of zeros of a sparse matrix: pruning to it, the compressed form, and its expansion.

use std::ffi::c_int;

use super::matrix::Matrix;
use crate::cublas::operation::Operation;
use crate::cublaslt::View;
use crate::cusparse::{INVALID_VALUE, Status};
use crate::memory::{Array, Dense, pointer, set_i32};
use crate::numbers::{C64, Type};
use crate::stream::{Done, Fault};

/// The size of a compressed matrix is a multiple of this, in bytes.
pub const ALIGNMENT: usize = 16;

/// A matrix with zeros in a pattern, as a factor of a product. Elements whose products are added are adjacent in a
/// line.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    matrix: Matrix,
    is_a: bool,
    is_turned: bool,
    lines: usize,
    length: usize,
}

impl Pattern {
    /// The matrix as the factor A or B.
    pub fn new(matrix: Matrix, is_a: bool, operation: Operation) -> Result<Self, Status> {
        if !matrix.is_sparse {
            return Err(INVALID_VALUE);
        }
        let (rows, columns) = operation.stored(matrix.rows, matrix.columns);
        let (lines, length) = if is_a { (rows, columns) } else { (columns, rows) };
        Ok(Self { matrix, is_a, is_turned: operation != Operation::None, lines, length })
    }

    /// The place in the matrix of an element of a line.
    fn place(&self, line: usize, index: usize) -> (usize, usize) {
        if self.is_a == self.is_turned { (index, line) } else { (line, index) }
    }

    /// Neighbours in a line, of which half are zero.
    fn group(&self) -> usize {
        if self.matrix.kind == Type::F32 { 2 } else { 4 }
    }

    /// Bytes of one compressed matrix: values, then a byte for each group with the places of its values.
    fn compressed_bytes(&self) -> usize {
        (self.value_bytes() + self.lines * self.length / self.group()).next_multiple_of(ALIGNMENT)
    }

    fn value_bytes(&self) -> usize {
        self.lines * self.length / 2 * self.matrix.kind.bytes()
    }

    /// Bytes of all compressed matrices.
    pub fn size(&self) -> usize {
        self.matrix.count * self.compressed_bytes()
    }

    /// Sets the smaller half of each group to zero.
    pub fn prune(&self, from: usize, to: usize, algorithm: c_int) -> Done {
        let group = self.group();
        for index in 0..self.matrix.count {
            let (from, to) = (self.matrix.open(from, index)?, self.matrix.open(to, index)?);
            // CUSPARSELT_PRUNE_SPMMA_STRIP works on single lines, CUSPARSELT_PRUNE_SPMMA_TILE on as many as a group is long.
            let height = if algorithm == 1 { 1 } else { group };
            for line in (0..self.lines).step_by(height) {
                for start in (0..self.length).step_by(group) {
                    let value = |y: usize, x: usize| {
                        let (row, column) = self.place(line + y, start + x);
                        from.get(row, column)
                    };
                    let sizes = |y: usize| -> Vec<f64> { (0..group).map(|x| value(y, x).re.abs()).collect() };
                    let kept = match height {
                        1 => vec![largest(&sizes(0))],
                        _ => best_tile(&(0..height).map(sizes).collect::<Vec<_>>()),
                    };
                    for (y, mask) in kept.into_iter().enumerate() {
                        for x in 0..group {
                            let new = if mask >> x & 1 == 1 { value(y, x) } else { C64::default() };
                            let (row, column) = self.place(line + y, start + x);
                            to.set(row, column, new);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes 0 if at least half of each group is zero, otherwise 1.
    pub fn check(&self, from: usize, valid: usize) -> Done {
        let mut is_right = true;
        for index in 0..self.matrix.count {
            let from = self.matrix.open(from, index)?;
            for line in 0..self.lines {
                for start in (0..self.length).step_by(self.group()) {
                    is_right &= self.places(from, line, start).is_some();
                }
            }
        }
        set_i32(valid, 0, i32::from(!is_right))
    }

    /// Returns the places of a group's values, with places of zeros to make up exactly half of the group. `None` if more than half
    /// are not zero.
    fn places(&self, from: View, line: usize, start: usize) -> Option<Vec<usize>> {
        let group = self.group();
        let is_value = |x: &usize| {
            let (row, column) = self.place(line, start + x);
            from.get(row, column) != C64::default()
        };
        let mut places: Vec<usize> = (0..group).filter(is_value).collect();
        for place in 0..group {
            if places.len() < group / 2 && !places.contains(&place) {
                places.push(place);
            }
        }
        places.sort_unstable();
        (places.len() == group / 2).then_some(places)
    }

    /// Leaves zeros out. A matrix whose pattern is wrong loses values.
    pub fn compress(&self, from: usize, to: usize) -> Done {
        let (group, half) = (self.group(), self.group() / 2);
        for index in 0..self.matrix.count {
            let from = self.matrix.open(from, index)?;
            let to = to.checked_add(index * self.compressed_bytes()).ok_or(Fault)?;
            let values = Array::new(self.matrix.kind, to, self.lines * self.length / 2)?;
            let bytes = pointer::<u8>(to + self.value_bytes(), self.lines * self.length / group)?;
            for line in 0..self.lines {
                for start in (0..self.length).step_by(group) {
                    let first = (0..half).collect();
                    let places = self.places(from, line, start).unwrap_or(first);
                    let number = line * (self.length / group) + start / group;
                    let mut byte = 0;
                    for (at, place) in places.into_iter().enumerate() {
                        let (row, column) = self.place(line, start + place);
                        values.set(number * half + at, from.get(row, column));
                        byte |= (place as u8) << (2 * at);
                    }
                    // SAFETY: `pointer` has checked a byte for each group.
                    unsafe { bytes.add(number).write(byte) };
                }
            }
        }
        Ok(())
    }

    /// Returns the factor of that index as a dense matrix, from its compressed form.
    pub fn expand(&self, from: usize, index: usize) -> Result<Dense, Fault> {
        let (group, half) = (self.group(), self.group() / 2);
        let from = from.checked_add(index * self.compressed_bytes()).ok_or(Fault)?;
        let values = Array::new(self.matrix.kind, from, self.lines * self.length / 2)?;
        let bytes = pointer::<u8>(from + self.value_bytes(), self.lines * self.length / group)?;
        let (rows, columns) = if self.is_a { (self.lines, self.length) } else { (self.length, self.lines) };
        let mut dense = Dense::from(rows, columns, |_, _| C64::default());
        for number in 0..self.lines * self.length / group {
            // SAFETY: `pointer` has checked a byte for each group.
            let byte = unsafe { bytes.add(number).read() };
            let (line, start) = (number / (self.length / group), number % (self.length / group) * group);
            for at in 0..half {
                let inner = start + usize::from(byte >> (2 * at) & 3) % group;
                let (row, column) = if self.is_a { (line, inner) } else { (inner, line) };
                dense[(row, column)] = values.get(number * half + at);
            }
        }
        Ok(dense)
    }
}

/// Returns a mask with the bits of the larger half of some values. Of equal values it takes the first.
fn largest(sizes: &[f64]) -> usize {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|one, other| sizes[*other].total_cmp(&sizes[*one]));
    order[..sizes.len() / 2].iter().fold(0, |mask, place| mask | 1 << place)
}

/// Chooses half of each line and half of each column of a square, so that their sum is the largest. Returns a mask per line.
fn best_tile(sizes: &[Vec<f64>]) -> Vec<usize> {
    let side = sizes.len();
    let masks: Vec<usize> =
        (0..1 << side).filter(|mask: &usize| mask.count_ones() as usize == side / 2).collect();
    let mut best = (f64::NEG_INFINITY, vec![0; side]);
    let mut choice = vec![0; side];
    for number in 0..masks.len().pow(side as u32) {
        let mut rest = number;
        for mask in &mut choice {
            *mask = masks[rest % masks.len()];
            rest /= masks.len();
        }
        let has_half = |x: usize| choice.iter().filter(|mask| *mask >> x & 1 == 1).count() == side / 2;
        if !(0..side).all(has_half) {
            continue;
        }
        let kept = |(line, mask): (&Vec<f64>, &usize)| -> f64 {
            line.iter().enumerate().filter(|(x, _)| mask >> x & 1 == 1).map(|(_, size)| size).sum()
        };
        let sum = sizes.iter().zip(&choice).map(kept).sum();
        if sum > best.0 {
            best = (sum, choice.clone());
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_half_stays() {
        assert_eq!(largest(&[1.0, 5.0, 2.0, 4.0]), 0b1010);
        assert_eq!(largest(&[1.0, 1.0, 1.0, 1.0]), 0b0011, "of equal ones the first");
        assert_eq!(largest(&[3.0, 7.0]), 0b10);
    }

    #[test]
    fn a_tile_keeps_half_of_each_line_and_column() {
        let tile = [[9.0, 8.0, 1.0, 0.0], [9.0, 7.0, 2.0, 0.0], [9.0, 8.0, 3.0, 5.0], [0.0, 1.0, 4.0, 6.0]];
        let best = best_tile(&tile.map(Vec::from));
        assert_eq!(best.len(), 4);
        assert!(best.iter().all(|mask| mask.count_ones() == 2));
        assert!((0..4).all(|x| best.iter().filter(|mask| *mask >> x & 1 == 1).count() == 2));
        let sum = |masks: &[usize]| -> f64 {
            let kept = |(line, mask): (&[f64; 4], &usize)| -> f64 {
                (0..4).filter(|x| mask >> x & 1 == 1).map(|x| line[x]).sum()
            };
            tile.iter().zip(masks).map(kept).sum()
        };
        assert_eq!(sum(&best), 51.0);
        assert_eq!(best_tile(&[vec![1.0, 2.0], vec![5.0, 3.0]]), [0b10, 0b01]);
    }

    #[test]
    fn elements_that_are_added_are_side_by_side() {
        let matrix = Matrix {
            kind: Type::F16,
            rows: 16,
            columns: 32,
            count: 1,
            is_sparse: true,
            leading: 32,
            is_by_rows: true,
            stride: 0,
        };
        let pattern = |is_a, operation| Pattern::new(matrix, is_a, operation).expect("sparse");
        for (is_a, operation, lines, place) in [
            (true, Operation::None, 16, (1, 2)),
            (true, Operation::Transpose, 32, (2, 1)),
            (false, Operation::None, 32, (2, 1)),
            (false, Operation::Transpose, 16, (1, 2)),
        ] {
            let pattern = pattern(is_a, operation);
            assert_eq!((pattern.lines, pattern.place(1, 2)), (lines, place));
            assert_eq!(pattern.size(), 16 * 32 / 2 * 2 + 16 * 32 / 4);
        }
    }
}
