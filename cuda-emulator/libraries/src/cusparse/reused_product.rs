// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of two sparse matrices in compressed rows, computed several times: C = alpha A B + beta C, where the elements of C
//! have their places from an earlier step.

use std::ffi::c_int;

use super::descriptors::{Sparse, value_type};
use super::handle::{Settings, settings};
use super::sparse_product::{Matrices, Rows, has_buffer};
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, scaled, status};
use crate::handles::{self, Handle};
use crate::numbers::C64;
use crate::stream::Done;

/// The arguments that all steps have.
fn open(
    handle: Handle,
    operations: [c_int; 2],
    matrices: [Handle; 3],
    algorithm: c_int,
    state: Handle,
) -> Result<(Settings, Matrices), Status> {
    let (settings, matrices) = (settings(handle)?, Matrices::new(operations, matrices, state)?);
    // CUSPARSE_SPGEMM_DEFAULT, CSR_ALG_DETERMINITIC and CSR_ALG_NONDETERMINISTIC.
    if (0..=2).contains(&algorithm) { Ok((settings, matrices)) } else { Err(NOT_SUPPORTED) }
}

/// Writes where C has elements.
fn place(Matrices { a, b, c, .. }: Matrices) -> Done {
    let (first, second) = (Rows::load(&a)?, Rows::load(&b)?);
    c.store_pattern(
        (0..a.rows).flat_map(|row| first.times(row, &second).into_keys().map(move |column| (row, column))),
    )
}

fn compute(Matrices { a, b, c, .. }: Matrices, [alpha, beta]: [C64; 2]) -> Done {
    let (first, second) = (Rows::load(&a)?, Rows::load(&b)?);
    let mut known = None;
    c.update(|row, column, old| {
        let (_, sums) = match known.take() {
            Some((at, sums)) if at == row => known.insert((row, sums)),
            _ => known.insert((row, first.times(row, &second))),
        };
        alpha * sums.get(&column).copied().unwrap_or_default() + scaled(beta, old)
    })
}

/// Checks the arguments: nothing has to be prepared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMMreuse_workEstimation(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    a: Handle,
    b: Handle,
    c: Handle,
    algorithm: c_int,
    state: Handle,
    size: *mut usize,
    buffer: usize,
) -> Status {
    let given = open(handle, [op_a, op_b], [a, b, c], algorithm, state);
    // SAFETY: the caller gives the place of a number, or null.
    status(given.and_then(|_| unsafe { has_buffer(size, buffer) }).map(drop))
}

/// Counts the elements of C, for its descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMMreuse_nnz(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    a: Handle,
    b: Handle,
    c: Handle,
    algorithm: c_int,
    state: Handle,
    first_size: *mut usize,
    first: usize,
    second_size: *mut usize,
    second: usize,
    third_size: *mut usize,
    third: usize,
) -> Status {
    let count = || {
        let (settings, matrices) = open(handle, [op_a, op_b], [a, b, c], algorithm, state)?;
        let mut has_all = true;
        for (size, buffer) in [(first_size, first), (second_size, second), (third_size, third)] {
            // SAFETY: the caller gives the place of a number, or null.
            has_all &= unsafe { has_buffer(size, buffer) }?;
        }
        if has_all {
            let count = settings.wait(move || matrices.count())?;
            handles::with(c, |found: &mut Sparse| found.count = count).ok_or(INVALID_VALUE)?;
        }
        Ok(())
    };
    status(count())
}

/// Writes where C has elements, in the arrays that the program has given it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMMreuse_copy(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    a: Handle,
    b: Handle,
    c: Handle,
    algorithm: c_int,
    state: Handle,
    size: *mut usize,
    buffer: usize,
) -> Status {
    let copy = || {
        let (settings, matrices) = open(handle, [op_a, op_b], [a, b, c], algorithm, state)?;
        // SAFETY: the caller gives the place of a number, or null.
        if unsafe { has_buffer(size, buffer) }? {
            settings.queue(move || place(matrices))?;
        }
        Ok(())
    };
    status(copy())
}

/// C = alpha A B + beta C, where C has elements.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpGEMMreuse_compute(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    alpha: usize,
    a: Handle,
    b: Handle,
    beta: usize,
    c: Handle,
    kind: c_int,
    algorithm: c_int,
    state: Handle,
) -> Status {
    let queue = || {
        let (settings, matrices) = open(handle, [op_a, op_b], [a, b, c], algorithm, state)?;
        if value_type(kind)? != matrices.kind {
            return Err(NOT_SUPPORTED);
        }
        let (alpha, beta) = (settings.scalar(matrices.kind, alpha)?, settings.scalar(matrices.kind, beta)?);
        settings.queue(move || compute(matrices, [alpha.get()?, beta.get()?]))
    };
    status(queue())
}
