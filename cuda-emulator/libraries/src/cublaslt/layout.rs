// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Matrices as a `cublasLtMatrixLayout_t` describes them.

use super::Attributes;
use crate::cublas::{INVALID_VALUE, NOT_SUPPORTED, Status};
use crate::memory::{Dense, Matrix, address_at, moved};
use crate::numbers::{C64, Type};
use crate::stream::Fault;

/// A layout.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The type of the elements.
    pub kind: Type,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Matrices.
    pub count: usize,
    leading: usize,
    is_by_rows: bool,
    stride: i64,
    are_addresses: bool,
}

impl Layout {
    /// The layout at an address.
    ///
    /// # Safety
    ///
    /// `address` is null or a layout.
    pub unsafe fn at(address: usize) -> Result<Self, Status> {
        // SAFETY: `address` is null or a layout by this function's contract.
        let attributes = unsafe { Attributes::at("matrix_layout", address)? };
        let size = |number| usize::try_from(attributes.get(number)).map_err(|_| INVALID_VALUE);
        let is_by_rows = match attributes.int(1) {
            0 => false,
            1 => true,
            // Orders for tensor cores.
            _ => return Err(NOT_SUPPORTED),
        };
        let layout = Self {
            kind: Type::new(attributes.int(0)).ok_or(NOT_SUPPORTED)?,
            rows: size(2)?,
            columns: size(3)?,
            count: usize::try_from(attributes.int(5)).map_err(|_| INVALID_VALUE)?,
            leading: size(4)?,
            is_by_rows,
            stride: attributes.get(6) as i64,
            are_addresses: attributes.int(8) == 1,
        };
        let inner = if is_by_rows { layout.columns } else { layout.rows };
        if layout.leading < inner { Err(INVALID_VALUE) } else { Ok(layout) }
    }

    /// The matrix of that index in a batch.
    pub fn open(&self, base: usize, index: usize) -> Result<View, Fault> {
        let base = if self.are_addresses {
            address_at(base, index)?
        } else {
            moved(base, self.stride.wrapping_mul(index as i64), self.kind)
        };
        View::new(self.kind, base, [self.rows, self.columns], self.leading, self.is_by_rows)
    }
}

/// A matrix in device memory.
#[derive(Clone, Copy, Debug)]
pub struct View {
    matrix: Matrix,
    is_by_rows: bool,
}

impl View {
    /// A matrix of these rows and columns, which are `leading` elements apart.
    pub fn new(
        kind: Type,
        base: usize,
        [rows, columns]: [usize; 2],
        leading: usize,
        is_by_rows: bool,
    ) -> Result<Self, Fault> {
        let (inner, outer) = if is_by_rows { (columns, rows) } else { (rows, columns) };
        Ok(Self { matrix: Matrix::new(kind, base, inner, outer, leading)?, is_by_rows })
    }

    /// An element.
    pub fn get(self, row: usize, column: usize) -> C64 {
        if self.is_by_rows { self.matrix.get(column, row) } else { self.matrix.get(row, column) }
    }

    /// Changes an element.
    pub fn set(self, row: usize, column: usize, value: C64) {
        if self.is_by_rows {
            self.matrix.set(column, row, value)
        } else {
            self.matrix.set(row, column, value)
        }
    }

    /// All elements.
    pub fn load(self) -> Dense {
        let (rows, columns) = if self.is_by_rows {
            (self.matrix.columns, self.matrix.rows)
        } else {
            (self.matrix.rows, self.matrix.columns)
        };
        Dense::from(rows, columns, |row, column| self.get(row, column))
    }
}
