// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of two dense matrices, of which only the elements that a sparse matrix has are computed.

use std::ffi::c_int;

use super::batch::batches;
use super::descriptors::{DenseMatrix, Format, Sparse, get};
use super::handle::settings;
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, nothing, operation, scaled, status, workspace};
use crate::cublas::operation::Operation;
use crate::handles::Handle;
use crate::numbers::{C64, Type};

fn sddmm(
    handle: Handle,
    numbers: [c_int; 2],
    [alpha, beta]: [usize; 2],
    [a, b, c]: [Handle; 3],
    compute: c_int,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (of_a, of_b) = (operation(numbers[0])?, operation(numbers[1])?);
    let (a, b, c) = (get::<DenseMatrix>(a)?, get::<DenseMatrix>(b)?, get::<Sparse>(c)?);
    let kind = Type::new(compute).ok_or(NOT_SUPPORTED)?;
    let (alpha, beta) = (settings.scalar(kind, alpha)?, settings.scalar(kind, beta)?);
    let ((m, k), (inner, n)) = (of_a.stored(a.rows, a.columns), of_b.stored(b.rows, b.columns));
    if k != inner || (c.rows, c.columns) != (m, n) {
        return Err(INVALID_VALUE);
    }
    if ![Format::Rows, Format::Blocks].contains(&c.format)
        || a.kind != b.kind
        || [of_a, of_b].contains(&Operation::Conjugate)
    {
        return Err(NOT_SUPPORTED);
    }
    let count = batches(&a.batch, &b.batch, &c.batch)?;
    settings.queue(move || {
        let (alpha, beta) = (alpha.get()?, beta.get()?);
        for index in 0..count {
            let a = of_a.of(&a.member(index).load()?);
            let b = of_b.of(&b.member(index).load()?);
            c.member(index).update(|row, column, old| {
                let sum: C64 = (0..k).map(|inner| a[(row, inner)] * b[(inner, column)]).sum();
                alpha * sum + scaled(beta, old)
            })?;
        }
        Ok(())
    })
}

/// C = alpha op(A) op(B) + beta C, where C has an element.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSDDMM(
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
    status(sddmm(handle, [op_a, op_b], [alpha, beta], [a, b, c], compute))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSDDMM_bufferSize(
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
pub extern "C" fn cusparseSDDMM_preprocess(
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
