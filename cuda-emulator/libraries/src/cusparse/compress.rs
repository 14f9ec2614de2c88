// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Matrices in compressed rows without elements that are close to zero.

use std::ffi::c_int;

use super::descriptors::{Format, Sparse};
use super::handle::settings;
use super::matrix::general;
use super::{INVALID_VALUE, Status, status};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::Array;
use crate::numbers::{C32, C64, Type};
use crate::stream::Done;

/// Checks the minimum magnitude of kept elements: the real part of the program's tolerance.
fn limit(value: f64) -> Result<f64, Status> {
    if value >= 0.0 { Ok(value) } else { Err(INVALID_VALUE) }
}

fn count(
    handle: Handle,
    matrix: Handle,
    kind: Type,
    rows: c_int,
    [offsets, values, in_rows, total]: [usize; 4],
    tolerance: f64,
) -> Result<(), Status> {
    let (settings, tolerance) = (settings(handle)?, limit(tolerance)?);
    let matrix = Sparse::legacy(Format::Rows, [rows, 0, 0], [offsets, 0, values], general(matrix)?, kind)?;
    settings.count(total, move || {
        let starts = matrix.starts(usize::MAX)?;
        let values = Array::new(kind, values, starts.last().copied().unwrap_or(0))?;
        let in_rows = Array::new(Type::I32, in_rows, matrix.rows)?;
        let mut total = 0;
        for (row, ends) in starts.windows(2).enumerate() {
            let count = (ends[0]..ends[1]).filter(|at| values.get(*at).norm() > tolerance).count();
            in_rows.set_real(row, count as f64);
            total += count;
        }
        Ok(total)
    })
}

fn compress(from: &Sparse, to: &Sparse, in_rows: usize, tolerance: f64) -> Done {
    let in_rows = Array::new(Type::I32, in_rows, from.rows)?;
    // A negative count becomes 0.
    let count = (0..from.rows).map(|row| in_rows.real(row) as usize).sum();
    let elements = from.load()?.into_iter().filter(|(_, _, value)| value.norm() > tolerance);
    Sparse { count, ..*to }.store(elements)
}

exported! {
    /// Counts the elements that stay, in each row and in all.
    pub extern "C" fn<Tolerance>(real, kind) [
        cusparseSnnz_compress<f32>(f64::from, Type::F32), cusparseDnnz_compress<f64>(|value: f64| value, Type::F64),
        cusparseCnnz_compress<C32>(|value: C32| f64::from(value.re), Type::C32),
        cusparseZnnz_compress<C64>(|value: C64| value.re, Type::C64),
    ]
    (
        handle: Handle, m: c_int, matrix: Handle, values: usize, offsets: usize, in_rows: usize, total: usize,
        tolerance: Tolerance,
    ) -> Status {
        let tolerance = real(tolerance);
        status(count(handle, matrix, kind, m, [offsets, values, in_rows, total], tolerance))
    }

    /// Copies the elements that stay, which have been counted.
    pub extern "C" fn<Tolerance>(real, kind) [
        cusparseScsr2csr_compress<f32>(f64::from, Type::F32), cusparseDcsr2csr_compress<f64>(|value: f64| value, Type::F64),
        cusparseCcsr2csr_compress<C32>(|value: C32| f64::from(value.re), Type::C32),
        cusparseZcsr2csr_compress<C64>(|value: C64| value.re, Type::C64),
    ]
    (
        handle: Handle, m: c_int, n: c_int, matrix: Handle, values: usize, columns: usize, offsets: usize, count: c_int,
        in_rows: usize, new_values: usize, new_columns: usize, new_offsets: usize, tolerance: Tolerance,
    ) -> Status {
        let queue = || {
            let (settings, base, tolerance) = (settings(handle)?, general(matrix)?, limit(real(tolerance))?);
            let open = |count, places| Sparse::legacy(Format::Rows, [m, n, count], places, base, kind);
            let from = open(count, [offsets, columns, values])?;
            let to = open(0, [new_offsets, new_columns, new_values])?;
            settings.queue(move || compress(&from, &to, in_rows, tolerance))
        };
        status(queue())
    }
}
