// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on vectors and matrices that are stored as a band or packed (section 2.6).

use std::ffi::c_int;

use super::handle::{Scalar, queue, settings};
use super::level2::{Symmetric, add, as_column, symv, syr, triangular};
use super::operation::{Fill, Operation};
use super::storage::{Stored, Triangle};
use super::{INVALID_VALUE, Status, size, status};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::{Array, Dense, Matrix, Strided};
use crate::numbers::{C64, Type};
use crate::stream::Fault;

/// y = alpha op(A) x + beta y, with diagonals below and above the main one.
fn gbmv(
    handle: Handle,
    kind: Type,
    [operation, m, n, below, above, lda]: [c_int; 6],
    [alpha, beta]: [usize; 2],
    a: usize,
    [x, y]: [Strided; 2],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let operation = Operation::new(operation)?;
    let [m, n, below, above, lda] = [size(m)?, size(n)?, size(below)?, size(above)?, size(lda)?];
    if lda <= below + above {
        return Err(INVALID_VALUE);
    }
    let (alpha, beta) = (Scalar::new(&settings, kind, alpha)?, Scalar::new(&settings, kind, beta)?);
    let (outputs, inputs) = operation.stored(m, n);
    queue(settings.stream, move || {
        let a = band(kind, a, [m, n, below, above, lda])?;
        let x = x.open(kind, inputs)?.load();
        let y = y.open(kind, outputs)?;
        add(alpha.get()?, &operation.of(&a).times(&as_column(&x)), beta.get()?, y);
        Ok(())
    })
}

fn band(kind: Type, base: usize, [m, n, below, above, lda]: [usize; 5]) -> Result<Dense, Fault> {
    // The last element of the band: in the last column that has one.
    let columns = n.min(m.saturating_add(above));
    let span = match (m, columns.checked_sub(1)) {
        (0, _) | (_, None) => 0,
        (_, Some(last)) => {
            let row = m.min(last + below + 1) + above - last;
            last.checked_mul(lda).and_then(|start| start.checked_add(row)).ok_or(Fault)?
        }
    };
    let array = Array::new(kind, base, span)?;
    Ok(Dense::from(m, n, |row, column| {
        if row <= column + below && column <= row + above {
            array.get(column * lda + above + row - column)
        } else {
            C64::default()
        }
    }))
}

/// Copies a triangle between a full matrix and a packed one.
fn repack(
    handle: Handle,
    kind: Type,
    [fill, n, lda]: [c_int; 3],
    [a, packed]: [usize; 2],
    packs: bool,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (fill, n, lda) = (Fill::new(fill)?, size(n)?, size(lda)?);
    if lda < n.max(1) {
        return Err(INVALID_VALUE);
    }
    queue(settings.stream, move || {
        let (full, packed) =
            (Matrix::new(kind, a, n, n, lda)?, Triangle::new(kind, Stored::packed(packed), n, fill)?);
        for column in 0..n {
            for row in packed.rows(column) {
                if packs {
                    packed.set(row, column, full.get(row, column));
                } else {
                    full.set(row, column, packed.get(row, column));
                }
            }
        }
        Ok(())
    })
}

exported! {
    /// y = alpha op(A) x + beta y, with a band.
    pub extern "C" fn(kind) [
        cublasSgbmv_v2(Type::F32), cublasDgbmv_v2(Type::F64), cublasCgbmv_v2(Type::C32), cublasZgbmv_v2(Type::C64),
    ]
    (
        handle: Handle, trans: c_int, m: c_int, n: c_int, kl: c_int, ku: c_int, alpha: usize, a: usize, lda: c_int, x: usize,
        incx: c_int, beta: usize, y: usize, incy: c_int,
    ) -> Status {
        let sizes = [trans, m, n, kl, ku, lda];
        let vectors = [Strided::new(x, incx), Strided::new(y, incy)];
        status(gbmv(handle, kind, sizes, [alpha, beta], a, vectors))
    }

    /// x = op(A) x, with a band of a triangle.
    pub extern "C" fn(kind) [
        cublasStbmv_v2(Type::F32), cublasDtbmv_v2(Type::F64), cublasCtbmv_v2(Type::C32), cublasZtbmv_v2(Type::C64),
    ]
    (
        handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, k: c_int, a: usize, lda: c_int, x: usize,
        incx: c_int,
    ) -> Status {
        let a = Stored::band(a, k, lda);
        status(triangular(handle, kind, [uplo, trans, diag, n], a, Strided::new(x, incx), false))
    }

    /// Solves op(A) x = b; b is in x.
    pub extern "C" fn(kind) [
        cublasStbsv_v2(Type::F32), cublasDtbsv_v2(Type::F64), cublasCtbsv_v2(Type::C32), cublasZtbsv_v2(Type::C64),
    ]
    (
        handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, k: c_int, a: usize, lda: c_int, x: usize,
        incx: c_int,
    ) -> Status {
        let a = Stored::band(a, k, lda);
        status(triangular(handle, kind, [uplo, trans, diag, n], a, Strided::new(x, incx), true))
    }

    /// x = op(A) x, with a packed triangle.
    pub extern "C" fn(kind) [
        cublasStpmv_v2(Type::F32), cublasDtpmv_v2(Type::F64), cublasCtpmv_v2(Type::C32), cublasZtpmv_v2(Type::C64),
    ]
    (handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, a: usize, x: usize, incx: c_int) -> Status {
        let a = Ok(Stored::packed(a));
        status(triangular(handle, kind, [uplo, trans, diag, n], a, Strided::new(x, incx), false))
    }

    /// Solves op(A) x = b; b is in x.
    pub extern "C" fn(kind) [
        cublasStpsv_v2(Type::F32), cublasDtpsv_v2(Type::F64), cublasCtpsv_v2(Type::C32), cublasZtpsv_v2(Type::C64),
    ]
    (handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, a: usize, x: usize, incx: c_int) -> Status {
        let a = Ok(Stored::packed(a));
        status(triangular(handle, kind, [uplo, trans, diag, n], a, Strided::new(x, incx), true))
    }

    /// y = alpha A x + beta y, with a band of a symmetric or Hermitian A.
    pub extern "C" fn(kind, hermitian) [
        cublasSsbmv_v2(Type::F32, false), cublasDsbmv_v2(Type::F64, false), cublasChbmv_v2(Type::C32, true),
        cublasZhbmv_v2(Type::C64, true),
    ]
    (
        handle: Handle, uplo: c_int, n: c_int, k: c_int, alpha: usize, a: usize, lda: c_int, x: usize, incx: c_int,
        beta: usize, y: usize, incy: c_int,
    ) -> Status {
        let vectors = [Strided::new(x, incx), Strided::new(y, incy)];
        let a = Symmetric { fill: uplo, order: n, stored: Stored::band(a, k, lda), is_hermitian: hermitian };
        status(symv(handle, kind, [alpha, beta], a, vectors))
    }

    /// The same with a packed A.
    pub extern "C" fn(kind, hermitian) [
        cublasSspmv_v2(Type::F32, false), cublasDspmv_v2(Type::F64, false), cublasChpmv_v2(Type::C32, true),
        cublasZhpmv_v2(Type::C64, true),
    ]
    (
        handle: Handle, uplo: c_int, n: c_int, alpha: usize, a: usize, x: usize, incx: c_int, beta: usize, y: usize,
        incy: c_int,
    ) -> Status {
        let vectors = [Strided::new(x, incx), Strided::new(y, incy)];
        let a = Symmetric { fill: uplo, order: n, stored: Ok(Stored::packed(a)), is_hermitian: hermitian };
        status(symv(handle, kind, [alpha, beta], a, vectors))
    }

    /// A = alpha x x + A.
    pub extern "C" fn(kind, scalar, hermitian) [
        cublasSspr_v2(Type::F32, Type::F32, false), cublasDspr_v2(Type::F64, Type::F64, false),
        cublasChpr_v2(Type::C32, Type::F32, true), cublasZhpr_v2(Type::C64, Type::F64, true),
    ]
    (handle: Handle, uplo: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, a: usize) -> Status {
        let a = Symmetric { fill: uplo, order: n, stored: Ok(Stored::packed(a)), is_hermitian: hermitian };
        status(syr(handle, [kind, scalar], alpha, Strided::new(x, incx), None, a))
    }

    /// A = alpha x y + alpha y x + A.
    pub extern "C" fn(kind, hermitian) [
        cublasSspr2_v2(Type::F32, false), cublasDspr2_v2(Type::F64, false), cublasChpr2_v2(Type::C32, true),
        cublasZhpr2_v2(Type::C64, true),
    ]
    (handle: Handle, uplo: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, y: usize, incy: c_int, a: usize) -> Status {
        let a = Symmetric { fill: uplo, order: n, stored: Ok(Stored::packed(a)), is_hermitian: hermitian };
        status(syr(handle, [kind; 2], alpha, Strided::new(x, incx), Some(Strided::new(y, incy)), a))
    }

    /// Copies a packed triangle into a full matrix.
    pub extern "C" fn(kind) [
        cublasStpttr(Type::F32), cublasDtpttr(Type::F64), cublasCtpttr(Type::C32), cublasZtpttr(Type::C64),
    ]
    (handle: Handle, uplo: c_int, n: c_int, packed: usize, a: usize, lda: c_int) -> Status {
        status(repack(handle, kind, [uplo, n, lda], [a, packed], false))
    }

    /// Packs a triangle of a full matrix.
    pub extern "C" fn(kind) [
        cublasStrttp(Type::F32), cublasDtrttp(Type::F64), cublasCtrttp(Type::C32), cublasZtrttp(Type::C64),
    ]
    (handle: Handle, uplo: c_int, n: c_int, a: usize, lda: c_int, packed: usize) -> Status {
        status(repack(handle, kind, [uplo, n, lda], [a, packed], true))
    }
}
