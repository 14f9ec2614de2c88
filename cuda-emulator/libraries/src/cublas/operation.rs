// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The ways to read a matrix: transposed, one triangle only, from the left or the right.

use std::ffi::c_int;

use super::{INVALID_VALUE, Status};
use crate::memory::{Dense, Matrix};
use crate::numbers::C64;

/// The way to read a matrix (`cublasOperation_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// As it is.
    None,
    /// Transposed.
    Transpose,
    /// Transposed and conjugated.
    Conjugate,
}

impl Operation {
    /// The operation of that number.
    pub fn new(number: c_int) -> Result<Self, Status> {
        match number {
            0 => Ok(Self::None),
            1 => Ok(Self::Transpose),
            2 => Ok(Self::Conjugate),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Rows and columns of a matrix that has these after the operation.
    pub fn stored(self, rows: usize, columns: usize) -> (usize, usize) {
        if self == Self::None { (rows, columns) } else { (columns, rows) }
    }

    /// The matrix after the operation.
    pub fn of(self, matrix: &Dense) -> Dense {
        match self {
            Self::None => matrix.clone(),
            Self::Transpose => Dense::from(matrix.columns, matrix.rows, |row, column| matrix[(column, row)]),
            Self::Conjugate => matrix.adjoint(),
        }
    }
}

/// The triangle of a matrix that is read or written (`cublasFillMode_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// On and below the diagonal.
    Lower,
    /// On and above the diagonal.
    Upper,
    /// All.
    Full,
}

impl Fill {
    /// The triangle of that number.
    pub fn new(number: c_int) -> Result<Self, Status> {
        match number {
            0 => Ok(Self::Lower),
            1 => Ok(Self::Upper),
            _ => Err(INVALID_VALUE),
        }
    }

    /// The element lies in the triangle.
    pub fn has(self, row: usize, column: usize) -> bool {
        match self {
            Self::Lower => row >= column,
            Self::Upper => row <= column,
            Self::Full => true,
        }
    }

    /// A triangular matrix: zeros elsewhere, and ones on the diagonal of a `is_unit` one.
    pub fn triangle(self, matrix: Matrix, is_unit: bool) -> Dense {
        Dense::from(matrix.rows, matrix.columns, |row, column| match (self.has(row, column), row == column) {
            (true, true) if is_unit => C64::new(1.0, 0.0),
            (true, _) => matrix.get(row, column),
            (false, _) => C64::default(),
        })
    }

    /// A symmetric matrix, or a Hermitian one, of which this triangle is stored.
    pub fn symmetric(self, matrix: Matrix, is_hermitian: bool) -> Dense {
        Dense::from(matrix.rows, matrix.columns, |row, column| {
            let value = if self.has(row, column) { matrix.get(row, column) } else { matrix.get(column, row) };
            match (is_hermitian, row == column) {
                (true, true) => C64::new(value.re, 0.0),
                (true, false) if !self.has(row, column) => value.conj(),
                _ => value,
            }
        })
    }
}

/// True if all elements of the diagonal are one (`cublasDiagType_t`).
pub fn is_unit(number: c_int) -> Result<bool, Status> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(INVALID_VALUE),
    }
}

/// True if the matrix is the right factor of the product (`cublasSideMode_t`).
pub fn is_right(number: c_int) -> Result<bool, Status> {
    is_unit(number)
}

/// Solves `triangle * x = right`, where the triangle is lower or upper after all operations. A zero on the diagonal gives
/// infinities, as in BLAS.
pub fn solve(triangle: &Dense, is_lower: bool, right: &mut Dense) {
    let order = triangle.rows;
    for column in 0..right.columns {
        for step in 0..order {
            let row = if is_lower { step } else { order - 1 - step };
            let known = if is_lower { 0..row } else { row + 1..order };
            let sum: C64 = known.map(|inner| triangle[(row, inner)] * right[(inner, column)]).sum();
            let value = (right[(row, column)] - sum) / triangle[(row, row)];
            right[(row, column)] = value;
        }
    }
}
