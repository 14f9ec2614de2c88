// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sums of two sparse matrices in compressed rows: C = alpha A + beta B.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;

use super::descriptors::{Format, Sparse};
use super::handle::{Settings, settings};
use super::matrix::general;
use super::{Status, status, workspace};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::Array;
use crate::numbers::{C64, Type};
use crate::stream::{Done, Fault};

/// A matrix of an argument list: descriptor, number of elements, offsets, indices and values.
type Given = (Handle, c_int, [usize; 3]);

/// The arguments that all functions of this file have.
#[derive(Clone, Copy)]
struct Sum {
    settings: Settings,
    a: Sparse,
    b: Sparse,
    /// Its number of elements is not known.
    c: Sparse,
}

impl Sum {
    fn new(
        handle: Handle,
        [m, n]: [c_int; 2],
        kind: Type,
        a: Given,
        b: Given,
        c: Given,
    ) -> Result<Self, Status> {
        let settings = settings(handle)?;
        let open = |(matrix, count, places): Given| {
            Sparse::legacy(Format::Rows, [m, n, count], places, general(matrix)?, kind)
        };
        Ok(Self { settings, a: open(a)?, b: open(b)?, c: open(c)? })
    }

    /// Writes the offsets of C, and returns the number of its elements.
    fn count(&self) -> Result<usize, Fault> {
        let offsets = Array::new(Type::I32, self.c.offsets.address, self.c.rows + 1)?;
        let mut places = BTreeSet::new();
        for matrix in [self.a, self.b] {
            places.extend(matrix.positions()?.into_iter().map(|(row, column, _)| (row, column)));
        }
        let mut in_rows = vec![0; self.c.rows];
        places.iter().for_each(|(row, _)| in_rows[*row] += 1);
        let mut sum = 0;
        for (row, count) in in_rows.iter().enumerate() {
            offsets.set_real(row, (sum + self.c.base) as f64);
            sum += count;
        }
        offsets.set_real(self.c.rows, (sum + self.c.base) as f64);
        Ok(sum)
    }

    fn compute(&self, [alpha, beta]: [C64; 2]) -> Done {
        let mut sums = BTreeMap::new();
        for (factor, matrix) in [(alpha, self.a), (beta, self.b)] {
            for (row, column, value) in matrix.load()? {
                *sums.entry((row, column)).or_insert_with(C64::default) += factor * value;
            }
        }
        // The lengths of the arrays of C follow from its offsets.
        let count = self.c.starts(sums.len())?.last().copied().unwrap_or(0);
        Sparse { count, ..self.c }.store(sums.into_iter().map(|((row, column), sum)| (row, column, sum)))
    }
}

/// Writes the offsets of C, and counts its elements.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseXcsrgeam2Nnz(
    handle: Handle,
    m: c_int,
    n: c_int,
    a: Handle,
    a_count: c_int,
    a_offsets: usize,
    a_columns: usize,
    b: Handle,
    b_count: c_int,
    b_offsets: usize,
    b_columns: usize,
    c: Handle,
    c_offsets: usize,
    total: usize,
    _buffer: usize,
) -> Status {
    let (a, b) = ((a, a_count, [a_offsets, a_columns, 0]), (b, b_count, [b_offsets, b_columns, 0]));
    let given = Sum::new(handle, [m, n], Type::F32, a, b, (c, 0, [c_offsets, 0, 0]));
    status(given.and_then(|sum| sum.settings.count(total, move || sum.count())))
}

exported! {
    /// C = alpha A + beta B, whose offsets exist already.
    pub extern "C" fn(kind) [
        cusparseScsrgeam2(Type::F32), cusparseDcsrgeam2(Type::F64), cusparseCcsrgeam2(Type::C32), cusparseZcsrgeam2(Type::C64),
    ]
    (
        handle: Handle, m: c_int, n: c_int, alpha: usize, a: Handle, a_count: c_int, a_values: usize, a_offsets: usize,
        a_columns: usize, beta: usize, b: Handle, b_count: c_int, b_values: usize, b_offsets: usize, b_columns: usize,
        c: Handle, c_values: usize, c_offsets: usize, c_columns: usize, _buffer: usize,
    ) -> Status {
        let compute = || {
            let (a, b) = ((a, a_count, [a_offsets, a_columns, a_values]), (b, b_count, [b_offsets, b_columns, b_values]));
            let sum = Sum::new(handle, [m, n], kind, a, b, (c, 0, [c_offsets, c_columns, c_values]))?;
            let (alpha, beta) = (sum.settings.scalar(kind, alpha)?, sum.settings.scalar(kind, beta)?);
            sum.settings.queue(move || sum.compute([alpha.get()?, beta.get()?]))
        };
        status(compute())
    }

    /// Its workspace.
    pub unsafe extern "C" fn [
        cusparseScsrgeam2_bufferSizeExt, cusparseDcsrgeam2_bufferSizeExt, cusparseCcsrgeam2_bufferSizeExt,
        cusparseZcsrgeam2_bufferSizeExt,
    ]
    (
        handle: Handle, _m: c_int, _n: c_int, _alpha: usize, _a: Handle, _a_count: c_int, _a_values: usize, _a_offsets: usize,
        _a_columns: usize, _beta: usize, _b: Handle, _b_count: c_int, _b_values: usize, _b_offsets: usize, _b_columns: usize,
        _c: Handle, _c_values: usize, _c_offsets: usize, _c_columns: usize, size: *mut usize,
    ) -> Status {
        // SAFETY: the caller gives a place for a number, or null.
        unsafe { workspace(handle, size) }
    }
}
