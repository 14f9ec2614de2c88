// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Matrices of argument lists, and the numbers beside them.

use std::ffi::c_int;

use super::{INVALID_VALUE, Status, size};
use crate::cublas::operation::{Fill, Operation};
use crate::memory::{Matrix, moved};
use crate::numbers::Type;
use crate::stream::Fault;

/// A matrix of an argument list.
#[derive(Clone, Copy)]
pub struct Given {
    pub kind: Type,
    pub base: usize,
    pub rows: usize,
    pub columns: usize,
    pub leading: usize,
}

impl Given {
    /// A matrix of that size whose columns are that far apart.
    pub fn new<T: TryInto<usize>>(
        kind: Type,
        base: usize,
        [rows, columns, leading]: [T; 3],
    ) -> Result<Self, Status> {
        let given = Self { kind, base, rows: size(rows)?, columns: size(columns)?, leading: size(leading)? };
        if given.leading < given.rows.max(1) { Err(INVALID_VALUE) } else { Ok(given) }
    }

    /// The matrix in memory, when the work runs.
    pub fn open(self) -> Result<Matrix, Fault> {
        Matrix::new(self.kind, self.base, self.rows, self.columns, self.leading)
    }

    /// The matrix at another address.
    pub fn at(self, base: usize) -> Self {
        Self { base, ..self }
    }

    /// Returns a matrix of the same size that begins `elements` elements later.
    pub fn behind(self, elements: i64) -> Self {
        self.at(moved(self.base, elements, self.kind))
    }

    /// The matrix of that index, where all columns of all matrices are equally far apart.
    pub fn of_batch(self, index: usize) -> Self {
        self.behind((self.leading as i64).wrapping_mul(self.columns as i64).wrapping_mul(index as i64))
    }
}

/// The operation of that number.
pub fn operation(number: c_int) -> Result<Operation, Status> {
    Operation::new(number).map_err(|_| INVALID_VALUE)
}

/// The triangle of that number.
pub fn fill(number: c_int) -> Result<Fill, Status> {
    Fill::new(number).map_err(|_| INVALID_VALUE)
}
