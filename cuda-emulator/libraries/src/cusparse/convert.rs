// SPDX-License-Identifier: Apache-2.0 OR MIT

//! From one form of a matrix to another.

use std::ffi::c_int;

use super::descriptors::{DenseMatrix, Format, Sparse, get, value_type};
use super::handle::settings;
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, status, workspace};
use crate::handles::{self, Handle};
use crate::memory::{Array, Dense};
use crate::numbers::{C64, Type};
use crate::stream::Fault;

/// The sizes of an argument list.
struct Sizes {
    /// Elements.
    count: usize,
    rows: usize,
    /// The number of the first row.
    base: usize,
}

fn sizes(count: c_int, rows: c_int, base: c_int) -> Result<Sizes, Status> {
    let size = |value| usize::try_from(value).map_err(|_| INVALID_VALUE);
    let base = size(base)?;
    if base > 1 { Err(INVALID_VALUE) } else { Ok(Sizes { count: size(count)?, rows: size(rows)?, base }) }
}

fn to_offsets(
    handle: Handle,
    [numbers, offsets]: [usize; 2],
    given: Result<Sizes, Status>,
) -> Result<(), Status> {
    let (settings, Sizes { count, rows, base }) = (settings(handle)?, given?);
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
    given: Result<Sizes, Status>,
) -> Result<(), Status> {
    let (settings, Sizes { count, rows, base }) = (settings(handle)?, given?);
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
    if a.format == Format::Blocks {
        return Err(NOT_SUPPORTED);
    }
    settings.queue(move || {
        // Reserves only memory that it is allowed to write.
        b.load()?;
        let mut values = Dense::from(b.rows, b.columns, |_, _| C64::default());
        for (row, column, value) in a.load()? {
            values[(row, column)] += value;
        }
        b.store(&values)
    })
}

/// The elements of a dense matrix that are not zero, in the order of that form.
fn not_zero(dense: &Dense, format: Format) -> Vec<(usize, usize, C64)> {
    let mut elements = Vec::new();
    let mut add = |row, column| {
        if dense[(row, column)] != C64::default() {
            elements.push((row, column, dense[(row, column)]));
        }
    };
    if format == Format::Columns {
        (0..dense.columns).for_each(|column| (0..dense.rows).for_each(|row| add(row, column)));
    } else {
        (0..dense.rows).for_each(|row| (0..dense.columns).for_each(|column| add(row, column)));
    }
    elements
}

fn from_dense(a: Handle, b: Handle) -> Result<(DenseMatrix, Sparse), Status> {
    let (dense, sparse) = (get::<DenseMatrix>(a)?, get::<Sparse>(b)?);
    if sparse.format == Format::Blocks {
        return Err(NOT_SUPPORTED);
    }
    let fits = (dense.rows, dense.columns, dense.kind) == (sparse.rows, sparse.columns, sparse.values.kind);
    if fits { Ok((dense, sparse)) } else { Err(INVALID_VALUE) }
}

fn analyse(handle: Handle, a: Handle, b: Handle) -> Result<(), Status> {
    let (settings, (dense, sparse)) = (settings(handle)?, from_dense(a, b)?);
    let count = settings.wait(move || Ok(not_zero(&dense.load()?, sparse.format).len()))?;
    handles::with(b, |found: &mut Sparse| found.count = count).ok_or(INVALID_VALUE)
}

fn to_sparse(handle: Handle, a: Handle, b: Handle) -> Result<(), Status> {
    let (settings, (dense, sparse)) = (settings(handle)?, from_dense(a, b)?);
    settings.queue(move || sparse.store(not_zero(&dense.load()?, sparse.format)))
}

/// `csr` and `csc`: offsets, indices and values.
fn turn(
    handle: Handle,
    sizes: [c_int; 3],
    [csr, csc]: [[usize; 3]; 2],
    [kind, numeric, base]: [c_int; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let base = usize::try_from(base).ok().filter(|base| *base <= 1).ok_or(INVALID_VALUE)?;
    let is_numeric = match numeric {
        0 => false,
        1 => true,
        _ => return Err(INVALID_VALUE),
    };
    // Without values their type does not matter.
    let kind = if is_numeric { value_type(kind)? } else { Type::F32 };
    let from = Sparse::legacy(Format::Rows, sizes, csr, base, kind)?;
    let to = Sparse::legacy(Format::Columns, sizes, csc, base, kind)?;
    settings.queue(move || {
        let mut positions = from.positions()?;
        // Stable: the rows of a column stay in order.
        positions.sort_by_key(|(_, column, _)| *column);
        if !is_numeric {
            return to.store_pattern(positions.into_iter().map(|(row, column, _)| (row, column)));
        }
        let values = Array::new(kind, from.values.address, from.count)?;
        let elements: Vec<_> =
            positions.into_iter().map(|(row, column, at)| (row, column, values.get(at))).collect();
        to.store(elements)
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
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { workspace(handle, size) }
}

/// A dense matrix to a sparse one, whose elements have been counted.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDenseToSparse_convert(
    handle: Handle,
    a: Handle,
    b: Handle,
    _algorithm: c_int,
    _buffer: usize,
) -> Status {
    status(to_sparse(handle, a, b))
}

/// Counts the elements for the sparse matrix.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDenseToSparse_analysis(
    handle: Handle,
    a: Handle,
    b: Handle,
    _algorithm: c_int,
    _buffer: usize,
) -> Status {
    status(analyse(handle, a, b))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDenseToSparse_bufferSize(
    handle: Handle,
    _a: Handle,
    _b: Handle,
    _algorithm: c_int,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { workspace(handle, size) }
}

/// Compressed rows to compressed columns.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseCsr2cscEx2(
    handle: Handle,
    m: c_int,
    n: c_int,
    count: c_int,
    values: usize,
    offsets: usize,
    columns: usize,
    new_values: usize,
    new_offsets: usize,
    rows: usize,
    kind: c_int,
    numeric: c_int,
    base: c_int,
    _algorithm: c_int,
    _buffer: usize,
) -> Status {
    let arrays = [[offsets, columns, values], [new_offsets, rows, new_values]];
    status(turn(handle, [m, n, count], arrays, [kind, numeric, base]))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseCsr2cscEx2_bufferSize(
    handle: Handle,
    _m: c_int,
    _n: c_int,
    _count: c_int,
    _values: usize,
    _offsets: usize,
    _columns: usize,
    _new_values: usize,
    _new_offsets: usize,
    _rows: usize,
    _kind: c_int,
    _numeric: c_int,
    _base: c_int,
    _algorithm: c_int,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { workspace(handle, size) }
}
