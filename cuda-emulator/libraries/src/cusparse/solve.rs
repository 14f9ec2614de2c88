// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Systems with a triangular sparse matrix.

use std::ffi::c_int;

use super::descriptors::{DenseMatrix, DenseVector, Format, Sparse, create, end, get};
use super::handle::settings;
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, operation, status, workspace};
use crate::cublas::operation::Operation;
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::Dense;
use crate::numbers::{C64, Type};
use crate::stream::Fault;

/// A `cusparseSpSVDescr_t`.
#[derive(Clone, Copy, Debug, Default)]
struct VectorState;

/// A `cusparseSpSMDescr_t`.
#[derive(Clone, Copy, Debug, Default)]
struct MatrixState;

/// Solves op(A) X = B in place. A has as many rows as B.
fn solve(a: &Sparse, operation: Operation, b: &mut Dense) -> Result<(), Fault> {
    if b.columns == 0 {
        return Ok(());
    }
    let elements = a.load_as(operation)?;
    let is_upper = a.is_upper != (operation != Operation::None);
    let mut diagonal = vec![if a.has_ones { C64::new(1.0, 0.0) } else { C64::default() }; b.rows];
    let mut rows = vec![Vec::new(); b.rows];
    for (row, column, value) in elements {
        if row == column && !a.has_ones {
            diagonal[row] += value;
        } else if row != column && (row < column) == is_upper {
            rows[row].push((column, value));
        }
    }
    for step in 0..b.rows {
        let row = if is_upper { b.rows - 1 - step } else { step };
        for column in 0..b.columns {
            let known: C64 = rows[row].iter().map(|(inner, value)| value * b[(*inner, column)]).sum();
            let rest = b[(row, column)] - known;
            // A real number divides without the square of its size, which may overflow.
            let pivot = diagonal[row];
            b[(row, column)] = if pivot.im == 0.0 { rest / pivot.re } else { rest / pivot };
        }
    }
    Ok(())
}

/// The matrix and the type of scalars; the matrix has to be a square of `rows`.
fn check(a: Handle, rows: usize, kinds: [Type; 2], compute: c_int) -> Result<(Sparse, Type), Status> {
    let (a, kind) = (get::<Sparse>(a)?, Type::new(compute).ok_or(NOT_SUPPORTED)?);
    if (a.rows, a.columns) != (rows, rows) {
        return Err(INVALID_VALUE);
    }
    let are_alike = a.values.kind == kind && kinds == [kind, kind];
    if are_alike && a.format != Format::Blocks { Ok((a, kind)) } else { Err(NOT_SUPPORTED) }
}

fn solve_vector(
    handle: Handle,
    number: c_int,
    alpha: usize,
    [a, x, y, state]: [Handle; 4],
    compute: c_int,
) -> Result<(), Status> {
    let (settings, operation) = (settings(handle)?, operation(number)?);
    get::<VectorState>(state)?;
    let (x, y) = (get::<DenseVector>(x)?, get::<DenseVector>(y)?);
    let (a, kind) = check(a, x.count, [x.kind, y.kind], compute)?;
    if x.count != y.count {
        return Err(INVALID_VALUE);
    }
    let alpha = settings.scalar(kind, alpha)?;
    settings.queue(move || {
        let (alpha, from, to) = (alpha.get()?, x.open()?, y.open()?);
        let mut values = Dense::from(x.count, 1, |row, _| alpha * from.get(row));
        solve(&a, operation, &mut values)?;
        (0..x.count).for_each(|row| to.set(row, values[(row, 0)]));
        Ok(())
    })
}

fn solve_matrix(
    handle: Handle,
    numbers: [c_int; 2],
    alpha: usize,
    [a, b, c, state]: [Handle; 4],
    compute: c_int,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (of_a, of_b) = (operation(numbers[0])?, operation(numbers[1])?);
    get::<MatrixState>(state)?;
    let (b, c) = (get::<DenseMatrix>(b)?, get::<DenseMatrix>(c)?);
    let (a, kind) = check(a, c.rows, [b.kind, c.kind], compute)?;
    if of_b.stored(b.rows, b.columns) != (c.rows, c.columns) {
        return Err(INVALID_VALUE);
    }
    if of_b == Operation::Conjugate {
        return Err(NOT_SUPPORTED);
    }
    let alpha = settings.scalar(kind, alpha)?;
    settings.queue(move || {
        let (alpha, given) = (alpha.get()?, of_b.of(&b.load()?));
        let mut values = Dense::from(given.rows, given.columns, |row, column| alpha * given[(row, column)]);
        solve(&a, of_a, &mut values)?;
        c.store(&values)
    })
}

exported! {
    /// Creates a descriptor.
    pub unsafe extern "C" fn(create) [
        cusparseSpSV_createDescr(create::<VectorState>), cusparseSpSM_createDescr(create::<MatrixState>),
    ]
    (place: *mut Handle) -> Status {
        // SAFETY: the caller gives a place for a handle, or null.
        unsafe { create(place) }
    }

    /// Ends a descriptor.
    pub extern "C" fn(end) [cusparseSpSV_destroyDescr(end::<VectorState>), cusparseSpSM_destroyDescr(end::<MatrixState>)]
    (state: Handle) -> Status {
        end(state)
    }
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpSV_bufferSize(
    handle: Handle,
    _op: c_int,
    _alpha: usize,
    _a: Handle,
    _x: Handle,
    _y: Handle,
    _compute: c_int,
    _algorithm: c_int,
    _state: Handle,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { workspace(handle, size) }
}

/// Prepares nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpSV_analysis(
    handle: Handle,
    _op: c_int,
    _alpha: usize,
    _a: Handle,
    _x: Handle,
    _y: Handle,
    _compute: c_int,
    _algorithm: c_int,
    state: Handle,
    _buffer: usize,
) -> Status {
    status(settings(handle).and_then(|_| get::<VectorState>(state)).map(drop))
}

/// Solves op(A) y = alpha x.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpSV_solve(
    handle: Handle,
    op: c_int,
    alpha: usize,
    a: Handle,
    x: Handle,
    y: Handle,
    compute: c_int,
    _algorithm: c_int,
    state: Handle,
) -> Status {
    status(solve_vector(handle, op, alpha, [a, x, y, state], compute))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpSM_bufferSize(
    handle: Handle,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: usize,
    _a: Handle,
    _b: Handle,
    _c: Handle,
    _compute: c_int,
    _algorithm: c_int,
    _state: Handle,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { workspace(handle, size) }
}

/// Prepares nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpSM_analysis(
    handle: Handle,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: usize,
    _a: Handle,
    _b: Handle,
    _c: Handle,
    _compute: c_int,
    _algorithm: c_int,
    state: Handle,
    _buffer: usize,
) -> Status {
    status(settings(handle).and_then(|_| get::<MatrixState>(state)).map(drop))
}

/// Solves op(A) C = alpha op(B).
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpSM_solve(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    alpha: usize,
    a: Handle,
    b: Handle,
    c: Handle,
    compute: c_int,
    _algorithm: c_int,
    state: Handle,
) -> Status {
    status(solve_matrix(handle, [op_a, op_b], alpha, [a, b, c, state], compute))
}
