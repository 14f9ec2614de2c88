// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Factorisations of many small matrices (sections 2.8.3 and following): their addresses are in device memory.

use std::ffi::c_int;

use super::handle::{queue, settings};
use super::operation::Operation;
use super::{INVALID_VALUE, Status, size, status};
use crate::exported::exported;
use crate::handles::Handle;
use crate::lapack::{lu, qr};
use crate::memory::{Array, Dense, Matrix, address_at, moved, pointer, set_i32};
use crate::numbers::Type;
use crate::stream::Fault;

/// The exchanged rows of one matrix, from 1 in memory. With null no row is exchanged.
fn pivots(base: usize, index: usize, order: usize) -> Result<Vec<usize>, Fault> {
    if base == 0 {
        return Ok((0..order).collect());
    }
    let first = moved(base, (index * order) as i64, Type::I32);
    let numbers = pointer::<i32>(first, order)?;
    let read = |row: usize| {
        // SAFETY: `pointer` has checked that many.
        let number = unsafe { numbers.add(row).read() };
        usize::try_from(number - 1).ok().filter(|number| *number < order).ok_or(Fault)
    };
    (0..order).map(read).collect()
}

fn getrf(
    handle: Handle,
    kind: Type,
    [n, lda, count]: [c_int; 3],
    [a, p, info]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let [n, lda, count] = [size(n)?, size(lda)?, size(count)?];
    queue(settings.stream, move || {
        for index in 0..count {
            let matrix = Matrix::new(kind, address_at(a, index)?, n, n, lda)?;
            let mut factors = matrix.load();
            let (exchanged, zero) = lu::factor(&mut factors, p != 0);
            matrix.store(&factors);
            for (row, other) in exchanged.iter().enumerate().filter(|_| p != 0) {
                set_i32(p, index * n + row, *other as i32 + 1)?;
            }
            set_i32(info, index, zero as i32)?;
        }
        Ok(())
    })
}

fn getri(
    handle: Handle,
    kind: Type,
    [n, lda, ldc, count]: [c_int; 4],
    [a, p, c, info]: [usize; 4],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let [n, lda, ldc, count] = [size(n)?, size(lda)?, size(ldc)?, size(count)?];
    queue(settings.stream, move || {
        for index in 0..count {
            let factors = Matrix::new(kind, address_at(a, index)?, n, n, lda)?.load();
            let zero = (0..n).position(|at| factors[(at, at)].norm_sqr() == 0.0);
            if zero.is_none() {
                let mut inverse = Dense::identity(n, n);
                lu::solve_with(&factors, &pivots(p, index, n)?, Operation::None, &mut inverse);
                Matrix::new(kind, address_at(c, index)?, n, n, ldc)?.store(&inverse);
            }
            set_i32(info, index, zero.map_or(0, |at| at as i32 + 1))?;
        }
        Ok(())
    })
}

/// Inverts small matrices: a factorisation and a solution in one.
fn matinv(
    handle: Handle,
    kind: Type,
    [n, lda, ldc, count]: [c_int; 4],
    [a, c, info]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let [n, lda, ldc, count] = [size(n)?, size(lda)?, size(ldc)?, size(count)?];
    // As NVIDIA's.
    if n > 32 {
        return Err(INVALID_VALUE);
    }
    queue(settings.stream, move || {
        for index in 0..count {
            let mut factors = Matrix::new(kind, address_at(a, index)?, n, n, lda)?.load();
            let (exchanged, zero) = lu::factor(&mut factors, true);
            if zero == 0 {
                let mut inverse = Dense::identity(n, n);
                lu::solve_with(&factors, &exchanged, Operation::None, &mut inverse);
                Matrix::new(kind, address_at(c, index)?, n, n, ldc)?.store(&inverse);
            }
            set_i32(info, index, zero as i32)?;
        }
        Ok(())
    })
}

fn getrs(
    handle: Handle,
    kind: Type,
    operation: c_int,
    [n, columns, lda, ldb, count]: [c_int; 5],
    [a, p, b]: [usize; 3],
    info: *mut c_int,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let operation = Operation::new(operation)?;
    let [n, columns, lda, ldb, count] = [size(n)?, size(columns)?, size(lda)?, size(ldb)?, size(count)?];
    // SAFETY: the caller gives a place in host memory, or null.
    *unsafe { info.as_mut() }.ok_or(INVALID_VALUE)? = 0;
    queue(settings.stream, move || {
        for index in 0..count {
            let factors = Matrix::new(kind, address_at(a, index)?, n, n, lda)?.load();
            let right = Matrix::new(kind, address_at(b, index)?, n, columns, ldb)?;
            let mut values = right.load();
            lu::solve_with(&factors, &pivots(p, index, n)?, operation, &mut values);
            right.store(&values);
        }
        Ok(())
    })
}

fn geqrf(
    handle: Handle,
    kind: Type,
    [m, n, lda, count]: [c_int; 4],
    [a, tau]: [usize; 2],
    info: *mut c_int,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let [m, n, lda, count] = [size(m)?, size(n)?, size(lda)?, size(count)?];
    // SAFETY: the caller gives a place in host memory, or null.
    *unsafe { info.as_mut() }.ok_or(INVALID_VALUE)? = 0;
    queue(settings.stream, move || {
        for index in 0..count {
            let matrix = Matrix::new(kind, address_at(a, index)?, m, n, lda)?;
            let factors = Array::new(kind, address_at(tau, index)?, m.min(n))?;
            let mut values = matrix.load();
            qr::factor(&mut values).into_iter().enumerate().for_each(|(step, tau)| factors.set(step, tau));
            matrix.store(&values);
        }
        Ok(())
    })
}

exported! {
    /// P A = L U.
    pub extern "C" fn(kind) [
        cublasSgetrfBatched(Type::F32), cublasDgetrfBatched(Type::F64), cublasCgetrfBatched(Type::C32),
        cublasZgetrfBatched(Type::C64),
    ]
    (handle: Handle, n: c_int, a: usize, lda: c_int, p: usize, info: usize, count: c_int) -> Status {
        status(getrf(handle, kind, [n, lda, count], [a, p, info]))
    }

    /// The inverse, from the factors.
    pub extern "C" fn(kind) [
        cublasSgetriBatched(Type::F32), cublasDgetriBatched(Type::F64), cublasCgetriBatched(Type::C32),
        cublasZgetriBatched(Type::C64),
    ]
    (handle: Handle, n: c_int, a: usize, lda: c_int, p: usize, c: usize, ldc: c_int, info: usize, count: c_int) -> Status {
        status(getri(handle, kind, [n, lda, ldc, count], [a, p, c, info]))
    }

    /// Solves op(A) X = B with the factors.
    pub extern "C" fn(kind) [
        cublasSgetrsBatched(Type::F32), cublasDgetrsBatched(Type::F64), cublasCgetrsBatched(Type::C32),
        cublasZgetrsBatched(Type::C64),
    ]
    (
        handle: Handle, trans: c_int, n: c_int, columns: c_int, a: usize, lda: c_int, p: usize, b: usize, ldb: c_int,
        info: *mut c_int, count: c_int,
    ) -> Status {
        status(getrs(handle, kind, trans, [n, columns, lda, ldb, count], [a, p, b], info))
    }

    /// The inverse.
    pub extern "C" fn(kind) [
        cublasSmatinvBatched(Type::F32), cublasDmatinvBatched(Type::F64), cublasCmatinvBatched(Type::C32),
        cublasZmatinvBatched(Type::C64),
    ]
    (handle: Handle, n: c_int, a: usize, lda: c_int, c: usize, ldc: c_int, info: usize, count: c_int) -> Status {
        status(matinv(handle, kind, [n, lda, ldc, count], [a, c, info]))
    }

    /// A = Q R.
    pub extern "C" fn(kind) [
        cublasSgeqrfBatched(Type::F32), cublasDgeqrfBatched(Type::F64), cublasCgeqrfBatched(Type::C32),
        cublasZgeqrfBatched(Type::C64),
    ]
    (handle: Handle, m: c_int, n: c_int, a: usize, lda: c_int, tau: usize, info: *mut c_int, count: c_int) -> Status {
        status(geqrf(handle, kind, [m, n, lda, count], [a, tau], info))
    }
}
