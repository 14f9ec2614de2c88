// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products with a sparse matrix.

use std::ffi::c_int;

use super::batch::batches;
use super::descriptors::{DenseMatrix, DenseVector, Sparse, get};
use super::handle::settings;
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, nothing, operation, scaled, status, workspace};
use crate::handles::Handle;
use crate::memory::Dense;
use crate::numbers::{C64, Type};

fn spmv(
    handle: Handle,
    number: c_int,
    [alpha, beta]: [usize; 2],
    [a, x, y]: [Handle; 3],
    compute: c_int,
) -> Result<(), Status> {
    let (settings, operation) = (settings(handle)?, operation(number)?);
    let (a, x, y) = (get::<Sparse>(a)?, get::<DenseVector>(x)?, get::<DenseVector>(y)?);
    let kind = Type::new(compute).ok_or(NOT_SUPPORTED)?;
    let (alpha, beta) = (settings.scalar(kind, alpha)?, settings.scalar(kind, beta)?);
    if operation.stored(a.rows, a.columns) != (y.count, x.count) {
        return Err(INVALID_VALUE);
    }
    settings.queue(move || {
        let (alpha, beta, input, output) = (alpha.get()?, beta.get()?, x.open()?, y.open()?);
        let mut sums = vec![C64::default(); y.count];
        for (row, column, value) in a.load_as(operation)? {
            sums[row] += value * input.get(column);
        }
        sums.iter()
            .enumerate()
            .for_each(|(row, sum)| output.set(row, alpha * sum + scaled(beta, output.get(row))));
        Ok(())
    })
}

fn spmm(
    handle: Handle,
    numbers: [c_int; 2],
    [alpha, beta]: [usize; 2],
    [a, b, c]: [Handle; 3],
    compute: c_int,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (of_a, of_b) = (operation(numbers[0])?, operation(numbers[1])?);
    let (a, b, c) = (get::<Sparse>(a)?, get::<DenseMatrix>(b)?, get::<DenseMatrix>(c)?);
    let kind = Type::new(compute).ok_or(NOT_SUPPORTED)?;
    let (alpha, beta) = (settings.scalar(kind, alpha)?, settings.scalar(kind, beta)?);
    let ((m, k), (inner, n)) = (of_a.stored(a.rows, a.columns), of_b.stored(b.rows, b.columns));
    if k != inner || (c.rows, c.columns) != (m, n) {
        return Err(INVALID_VALUE);
    }
    let count = batches(&a.batch, &b.batch, &c.batch)?;
    settings.queue(move || {
        let (alpha, beta) = (alpha.get()?, beta.get()?);
        for index in 0..count {
            let (a, b, c) = (a.member(index), b.member(index), c.member(index));
            let (b, old) = (of_b.of(&b.load()?), c.load()?);
            let mut sums = Dense::from(m, n, |_, _| C64::default());
            for (row, inner, value) in a.load_as(of_a)? {
                (0..n).for_each(|column| sums[(row, column)] += value * b[(inner, column)]);
            }
            c.store(&Dense::from(m, n, |row, column| {
                alpha * sums[(row, column)] + scaled(beta, old[(row, column)])
            }))?;
        }
        Ok(())
    })
}

/// y = alpha op(A) x + beta y.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMV(
    handle: Handle,
    op: c_int,
    alpha: usize,
    a: Handle,
    x: Handle,
    beta: usize,
    y: Handle,
    compute: c_int,
    _algorithm: c_int,
    _buffer: usize,
) -> Status {
    status(spmv(handle, op, [alpha, beta], [a, x, y], compute))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMV_bufferSize(
    handle: Handle,
    _op: c_int,
    _alpha: usize,
    _a: Handle,
    _x: Handle,
    _beta: usize,
    _y: Handle,
    _compute: c_int,
    _algorithm: c_int,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { workspace(handle, size) }
}

/// Prepares nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMV_preprocess(
    handle: Handle,
    _op: c_int,
    _alpha: usize,
    _a: Handle,
    _x: Handle,
    _beta: usize,
    _y: Handle,
    _compute: c_int,
    _algorithm: c_int,
    _buffer: usize,
) -> Status {
    nothing(handle)
}

/// C = alpha op(A) op(B) + beta C, for each matrix of a batch.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMM(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    alpha: usize,
    a: Handle,
    b: Handle,
    beta: usize,
    c: Handle,
    compute: c_int,
    _algorithm: c_int,
    _buffer: usize,
) -> Status {
    status(spmm(handle, [op_a, op_b], [alpha, beta], [a, b, c], compute))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMM_bufferSize(
    handle: Handle,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: usize,
    _a: Handle,
    _b: Handle,
    _beta: usize,
    _c: Handle,
    _compute: c_int,
    _algorithm: c_int,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { workspace(handle, size) }
}

/// Prepares nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMM_preprocess(
    handle: Handle,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: usize,
    _a: Handle,
    _b: Handle,
    _beta: usize,
    _c: Handle,
    _compute: c_int,
    _algorithm: c_int,
    _buffer: usize,
) -> Status {
    nothing(handle)
}
