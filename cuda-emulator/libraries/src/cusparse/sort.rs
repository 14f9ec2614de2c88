// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sorting the indices of matrices. A permutation, if there is one, is sorted with them.

use std::ffi::c_int;

use super::descriptors::{Format, Sparse};
use super::handle::settings;
use super::matrix::general;
use super::{INVALID_VALUE, Status, status, workspace};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::pointer;
use crate::numbers::Type;
use crate::stream::{Done, Fault};

fn numbers(address: usize, count: usize) -> Result<Vec<i32>, Fault> {
    let start = pointer::<i32>(address, count)?;
    // SAFETY: `pointer` has checked so many numbers.
    Ok((0..count).map(|index| unsafe { start.add(index).read() }).collect())
}

/// Writes the numbers of an array, which has as many, in another order.
fn reorder(address: usize, numbers: &[i32], order: &[usize]) -> Done {
    let start = pointer::<i32>(address, order.len())?;
    for (to, from) in order.iter().enumerate() {
        // SAFETY: `pointer` has checked so many numbers.
        unsafe { start.add(to).write(numbers[*from]) };
    }
    Ok(())
}

/// Writes arrays in another order, and the permutation, if there is one.
fn reorder_all(order: &[usize], permutation: usize, arrays: &[(usize, Vec<i32>)]) -> Done {
    if permutation != 0 {
        reorder(permutation, &numbers(permutation, order.len())?, order)?;
    }
    arrays.iter().try_for_each(|(address, numbers)| reorder(*address, numbers, order))
}

/// Sorts pairs by the first index, and those of the same by the second.
fn sort_pairs(
    handle: Handle,
    sizes: [c_int; 3],
    [first, second, permutation]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let [_, _, count] = sizes;
    if sizes.iter().any(|size| *size < 0) {
        return Err(INVALID_VALUE);
    }
    let count = count as usize;
    settings.queue(move || {
        let (by, then) = (numbers(first, count)?, numbers(second, count)?);
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|at| (by[*at], then[*at]));
        reorder_all(&order, permutation, &[(first, by), (second, then)])
    })
}

/// Sorts the indices within each line.
fn sort_lines(
    handle: Handle,
    matrix: Handle,
    format: Format,
    sizes: [c_int; 3],
    [offsets, indices, permutation]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let matrix = Sparse::legacy(format, sizes, [offsets, indices, 0], general(matrix)?, Type::F32)?;
    settings.queue(move || {
        let found = numbers(indices, matrix.count)?;
        let mut order: Vec<usize> = (0..matrix.count).collect();
        for ends in matrix.starts(matrix.count)?.windows(2) {
            order[ends[0]..ends[1]].sort_by_key(|at| found[*at]);
        }
        reorder_all(&order, permutation, &[(indices, found)])
    })
}

/// Writes 0, 1, 2, …
#[unsafe(no_mangle)]
pub extern "C" fn cusparseCreateIdentityPermutation(
    handle: Handle,
    count: c_int,
    permutation: usize,
) -> Status {
    let write = || {
        let (settings, end) = (settings(handle)?, usize::try_from(count).map_err(|_| INVALID_VALUE)?);
        settings.queue(move || {
            let start = pointer::<i32>(permutation, end)?;
            // SAFETY: `pointer` has checked so many numbers.
            (0..count).for_each(|at| unsafe { start.add(at as usize).write(at) });
            Ok(())
        })
    };
    status(write())
}

/// Sorts pairs by rows.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseXcoosortByRow(
    handle: Handle,
    m: c_int,
    n: c_int,
    count: c_int,
    rows: usize,
    columns: usize,
    permutation: usize,
    _buffer: usize,
) -> Status {
    status(sort_pairs(handle, [m, n, count], [rows, columns, permutation]))
}

/// Sorts pairs by columns.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseXcoosortByColumn(
    handle: Handle,
    m: c_int,
    n: c_int,
    count: c_int,
    rows: usize,
    columns: usize,
    permutation: usize,
    _buffer: usize,
) -> Status {
    status(sort_pairs(handle, [m, n, count], [columns, rows, permutation]))
}

exported! {
    /// Sorts the indices within each line.
    pub extern "C" fn(format) [cusparseXcsrsort(Format::Rows), cusparseXcscsort(Format::Columns)]
    (
        handle: Handle, m: c_int, n: c_int, count: c_int, matrix: Handle, offsets: usize, indices: usize, permutation: usize,
        _buffer: usize,
    ) -> Status {
        status(sort_lines(handle, matrix, format, [m, n, count], [offsets, indices, permutation]))
    }
}

exported! {
    /// The workspace.
    pub unsafe extern "C" fn [cusparseXcoosort_bufferSizeExt, cusparseXcsrsort_bufferSizeExt, cusparseXcscsort_bufferSizeExt]
    (handle: Handle, _m: c_int, _n: c_int, _count: c_int, _first: usize, _second: usize, size: *mut usize) -> Status {
        // SAFETY: the caller gives a place for a number, or null.
        unsafe { workspace(handle, size) }
    }
}
