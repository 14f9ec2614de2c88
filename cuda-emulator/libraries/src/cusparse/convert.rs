// SPDX-License-Identifier: Apache-2.0 OR MIT

//! From one form of a matrix to another.

use std::ffi::c_int;

use super::descriptors::{DenseMatrix, Sparse, get};
use super::handle::settings;
use super::{INVALID_VALUE, Status, status, workspace};
use crate::handles::Handle;
use crate::memory::{Array, Dense};
use crate::numbers::{C64, Type};
use crate::stream::Fault;

/// Sizes of an argument list, and the number of the first row.
fn sizes(count: c_int, rows: c_int, base: c_int) -> Result<(usize, usize, usize), Status> {
    let size = |value| usize::try_from(value).map_err(|_| INVALID_VALUE);
    let base = size(base)?;
    if base > 1 { Err(INVALID_VALUE) } else { Ok((size(count)?, size(rows)?, base)) }
}

fn to_offsets(
    handle: Handle,
    [numbers, offsets]: [usize; 2],
    given: Result<(usize, usize, usize), Status>,
) -> Result<(), Status> {
    let (settings, (count, rows, base)) = (settings(handle)?, given?);
    settings.queue(move || {
        let numbers = Array::new(Type::I32, numbers, count)?;
        let offsets = Array::new(Type::I32, offsets, rows + 1)?;
        let mut counts = vec![0_usize; rows];
        for at in 0..count {
            let row = (numbers.real(at) as usize).checked_sub(base).filter(|row| *row < rows).ok_or(Fault)?;
            counts[row] += 1;
        }
        let mut sum = base;
        for (row, count) in counts.iter().enumerate() {
            offsets.set_real(row, sum as f64);
            sum += count;
        }
        offsets.set_real(rows, sum as f64);
        Ok(())
    })
}

fn to_numbers(
    handle: Handle,
    [offsets, numbers]: [usize; 2],
    given: Result<(usize, usize, usize), Status>,
) -> Result<(), Status> {
    let (settings, (count, rows, base)) = (settings(handle)?, given?);
    settings.queue(move || {
        let offsets = Array::new(Type::I32, offsets, rows + 1)?;
        let numbers = Array::new(Type::I32, numbers, count)?;
        for row in 0..rows {
            let at = |row| (offsets.real(row) as usize).checked_sub(base).ok_or(Fault);
            let (start, end) = (at(row)?, at(row + 1)?);
            if end > count {
                return Err(Fault);
            }
            (start..end).for_each(|place| numbers.set_real(place, (row + base) as f64));
        }
        Ok(())
    })
}

fn to_dense(handle: Handle, a: Handle, b: Handle) -> Result<(), Status> {
    let (settings, a, b) = (settings(handle)?, get::<Sparse>(a)?, get::<DenseMatrix>(b)?);
    if (a.rows, a.columns) != (b.rows, b.columns) {
        return Err(INVALID_VALUE);
    }
    settings.queue(move || {
        // Reserves what it is allowed to write only.
        b.load()?;
        let mut values = Dense::from(b.rows, b.columns, |_, _| C64::default());
        for (row, column, value) in a.load()? {
            values[(row, column)] += value;
        }
        b.store(&values)
    })
}

/// Rows of elements, sorted, to offsets of rows.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseXcoo2csr(
    handle: Handle,
    numbers: usize,
    count: c_int,
    rows: c_int,
    offsets: usize,
    base: c_int,
) -> Status {
    status(to_offsets(handle, [numbers, offsets], sizes(count, rows, base)))
}

/// Offsets of rows to rows of elements.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseXcsr2coo(
    handle: Handle,
    offsets: usize,
    count: c_int,
    rows: c_int,
    numbers: usize,
    base: c_int,
) -> Status {
    status(to_numbers(handle, [offsets, numbers], sizes(count, rows, base)))
}

/// A sparse matrix to a dense one.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSparseToDense(
    handle: Handle,
    a: Handle,
    b: Handle,
    _algorithm: c_int,
    _buffer: usize,
) -> Status {
    status(to_dense(handle, a, b))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSparseToDense_bufferSize(
    handle: Handle,
    _a: Handle,
    _b: Handle,
    _algorithm: c_int,
    size: *mut usize,
) -> Status {
    workspace(handle, size)
}
