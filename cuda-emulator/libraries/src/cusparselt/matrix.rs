// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Matrices in device memory, as their objects describe them.

use std::ffi::c_int;

use cublaslt_descriptors::objects::{Kind, SPARSITY};

use crate::cublaslt::View;
use crate::cusparse::{INVALID_VALUE, NOT_SUPPORTED, Status};
use crate::memory::moved;
use crate::numbers::Type;
use crate::stream::Fault;

/// A matrix in device memory, or several.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// The type of the elements.
    pub kind: Type,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Matrices.
    pub count: usize,
    /// It has zeros in a pattern.
    pub is_sparse: bool,
    pub(super) leading: usize,
    pub(super) is_by_rows: bool,
    pub(super) stride: i64,
}

impl Matrix {
    /// The matrix of these contents.
    ///
    /// Errors: NVIDIA's for sizes and types that tensor cores do not have.
    pub fn new(of: Kind, contents: &[u8]) -> Result<Self, Status> {
        let size = |number| {
            let value = of.value(contents, number) as i64;
            usize::try_from(value).ok().filter(|value| (1..1 << 31).contains(value)).ok_or(INVALID_VALUE)
        };
        let (index, _) = of.descriptor.attribute(SPARSITY).ok_or(NOT_SUPPORTED)?;
        let is_sparse = of.descriptor.value(index, contents).is_some();
        let kind = Type::new(of.value(contents, 104) as c_int).ok_or(NOT_SUPPORTED)?;
        if !matches!(kind, Type::F16 | Type::Bf16 | Type::F32 | Type::I8 | Type::I32) {
            return Err(NOT_SUPPORTED);
        }
        // CUSPARSE_ORDER_COL, CUSPARSE_ORDER_ROW
        let is_by_rows = match of.value(contents, 105) {
            1 => false,
            2 => true,
            _ => return Err(INVALID_VALUE),
        };
        let (rows, columns, leading) = (size(100)?, size(101)?, size(102)?);
        let matrix = Self {
            kind,
            rows,
            columns,
            count: usize::try_from(of.value(contents, 0) as i32).map_err(|_| INVALID_VALUE)?,
            is_sparse,
            leading,
            is_by_rows,
            stride: of.value(contents, 1) as i64,
        };
        let inner = if is_by_rows { columns } else { rows };
        if leading < inner || matrix.count == 0 || !of.value(contents, 103).is_multiple_of(16) {
            return Err(INVALID_VALUE);
        }
        let step = if is_sparse { 32 } else { 16 } / kind.bytes();
        if rows % step != 0 || columns % step != 0 { Err(NOT_SUPPORTED) } else { Ok(matrix) }
    }

    /// The matrix of that index in a batch.
    pub fn open(&self, base: usize, index: usize) -> Result<View, Fault> {
        let base = moved(base, self.stride.wrapping_mul(index as i64), self.kind);
        View::new(self.kind, base, [self.rows, self.columns], self.leading, self.is_by_rows)
    }
}
