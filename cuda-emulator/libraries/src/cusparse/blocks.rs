// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sparse matrices of dense blocks, all of one size.

use std::ffi::c_int;

use super::descriptors::{Format, Sparse, size};
use super::{INVALID_VALUE, Status, give};
use crate::exported::exported;
use crate::handles::Handle;

/// The shape of a block, with at least one row and one column.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub(super) rows: usize,
    pub(super) columns: usize,
    is_by_rows: bool,
}

impl Block {
    /// A single element.
    pub const ELEMENT: Self = Self { rows: 1, columns: 1, is_by_rows: true };

    fn new([rows, columns]: [i64; 2], order: c_int) -> Result<Self, Status> {
        let (rows, columns) = (size(rows)?, size(columns)?);
        // CUSPARSE_ORDER_COL and CUSPARSE_ORDER_ROW.
        if rows.checked_mul(columns).is_none_or(|size| size == 0) || !(1..=2).contains(&order) {
            return Err(INVALID_VALUE);
        }
        Ok(Self { rows, columns, is_by_rows: order == 2 })
    }

    /// The number of elements.
    pub fn size(self) -> usize {
        // `new` has checked that it is a number.
        self.rows * self.columns
    }

    /// The elements of a block as they are stored, given its place among the blocks of the matrix and among those that are
    /// stored: row, column and the index of the value.
    pub fn positions(
        self,
        row: usize,
        column: usize,
        at: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.size()).map(move |index| {
            let (inner_row, inner_column) = if self.is_by_rows {
                (index / self.columns, index % self.columns)
            } else {
                (index % self.rows, index / self.rows)
            };
            (row * self.rows + inner_row, column * self.columns + inner_column, at * self.size() + index)
        })
    }
}

fn describe(
    sizes: [i64; 3],
    block: Result<Block, Status>,
    places: [usize; 3],
    types: [c_int; 4],
) -> Result<Sparse, Status> {
    let (blocks, block) = (Sparse::new(Format::Blocks, sizes, places, types)?, block?);
    let rows = blocks.rows.checked_mul(block.rows).ok_or(INVALID_VALUE)?;
    let columns = blocks.columns.checked_mul(block.columns).ok_or(INVALID_VALUE)?;
    Ok(Sparse { rows, columns, block, ..blocks })
}

exported! {
    /// Describes a matrix by the blocks of each row of blocks.
    pub unsafe extern "C" fn [cusparseCreateBsr, cusparseCreateConstBsr]
    (
        place: *mut Handle, rows: i64, columns: i64, count: i64, block_rows: i64, block_columns: i64, offsets: usize,
        indices: usize, values: usize, offset_type: c_int, index: c_int, base: c_int, value: c_int, order: c_int,
    ) -> Status {
        let (places, types) = ([offsets, indices, values], [offset_type, index, base, value]);
        let made = describe([rows, columns, count], Block::new([block_rows, block_columns], order), places, types);
        // SAFETY: the caller gives a place for a handle, or null.
        unsafe { give(place, made) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_elements_of_a_block_are_in_its_order() {
        let positions =
            |order| Block::new([2, 3], order).map(|block| block.positions(1, 2, 4).collect::<Vec<_>>());
        let by_rows = vec![(2, 6, 24), (2, 7, 25), (2, 8, 26), (3, 6, 27), (3, 7, 28), (3, 8, 29)];
        let by_columns = vec![(2, 6, 24), (3, 6, 25), (2, 7, 26), (3, 7, 27), (2, 8, 28), (3, 8, 29)];
        assert_eq!((positions(2), positions(1)), (Ok(by_rows), Ok(by_columns)));
        assert_eq!(Block::ELEMENT.positions(5, 6, 7).collect::<Vec<_>>(), [(5, 6, 7)]);
    }

    #[test]
    fn a_block_has_an_element_and_an_order() {
        for (rows, columns, order) in
            [(0, 1, 1), (1, 0, 1), (-1, 1, 1), (i64::MAX, 3, 1), (1, 1, 0), (1, 1, 3)]
        {
            assert_eq!(Block::new([rows, columns], order).err(), Some(INVALID_VALUE));
        }
    }
}
