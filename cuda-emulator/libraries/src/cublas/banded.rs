// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on vectors and matrices that are stored as a band or packed (section 2.6).

use std::ffi::c_int;

use super::handle::{Scalar, queue, settings};
use super::level2::{add, as_column, symv, syr, triangular};
use super::operation::{Fill, Operation};
use super::storage::{Stored, Triangle};
use super::{INVALID_VALUE, Status, size, status};
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
    x: Strided,
    y: Strided,
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

macro_rules! banded {
    ($($kind:ident $scalar:ident $hermitian:literal: $gbmv:ident $tbmv:ident $tbsv:ident $tpmv:ident $tpsv:ident $sbmv:ident
       $spmv:ident $spr:ident $spr2:ident $tpttr:ident $trttp:ident;)*) => { $(
        /// y = alpha op(A) x + beta y, with a band.
        #[unsafe(no_mangle)]
        pub extern "C" fn $gbmv(
            handle: Handle, trans: c_int, m: c_int, n: c_int, kl: c_int, ku: c_int, alpha: usize, a: usize, lda: c_int,
            x: usize, incx: c_int, beta: usize, y: usize, incy: c_int,
        ) -> Status {
            let sizes = [trans, m, n, kl, ku, lda];
            let (x, y) = (Strided::new(x, incx), Strided::new(y, incy));
            status(gbmv(handle, Type::$kind, sizes, [alpha, beta], a, x, y))
        }

        /// x = op(A) x, with a band of a triangle.
        #[unsafe(no_mangle)]
        pub extern "C" fn $tbmv(
            handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, k: c_int, a: usize, lda: c_int, x: usize,
            incx: c_int,
        ) -> Status {
            let a = Stored::band(a, k, lda);
            status(triangular(handle, Type::$kind, [uplo, trans, diag, n], a, Strided::new(x, incx), false))
        }

        /// Solves op(A) x = b; b is in x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $tbsv(
            handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, k: c_int, a: usize, lda: c_int, x: usize,
            incx: c_int,
        ) -> Status {
            let a = Stored::band(a, k, lda);
            status(triangular(handle, Type::$kind, [uplo, trans, diag, n], a, Strided::new(x, incx), true))
        }

        /// x = op(A) x, with a packed triangle.
        #[unsafe(no_mangle)]
        pub extern "C" fn $tpmv(
            handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, a: usize, x: usize, incx: c_int,
        ) -> Status {
            let a = Ok(Stored::packed(a));
            status(triangular(handle, Type::$kind, [uplo, trans, diag, n], a, Strided::new(x, incx), false))
        }

        /// Solves op(A) x = b; b is in x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $tpsv(
            handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, a: usize, x: usize, incx: c_int,
        ) -> Status {
            let a = Ok(Stored::packed(a));
            status(triangular(handle, Type::$kind, [uplo, trans, diag, n], a, Strided::new(x, incx), true))
        }

        /// y = alpha A x + beta y, with a band of a symmetric or Hermitian A.
        #[unsafe(no_mangle)]
        pub extern "C" fn $sbmv(
            handle: Handle, uplo: c_int, n: c_int, k: c_int, alpha: usize, a: usize, lda: c_int, x: usize, incx: c_int,
            beta: usize, y: usize, incy: c_int,
        ) -> Status {
            let (x, y) = (Strided::new(x, incx), Strided::new(y, incy));
            let a = Stored::band(a, k, lda);
            status(symv(handle, Type::$kind, [uplo, n], [alpha, beta], a, x, y, $hermitian))
        }

        /// The same with a packed A.
        #[unsafe(no_mangle)]
        pub extern "C" fn $spmv(
            handle: Handle, uplo: c_int, n: c_int, alpha: usize, a: usize, x: usize, incx: c_int, beta: usize, y: usize,
            incy: c_int,
        ) -> Status {
            let (x, y) = (Strided::new(x, incx), Strided::new(y, incy));
            let a = Ok(Stored::packed(a));
            status(symv(handle, Type::$kind, [uplo, n], [alpha, beta], a, x, y, $hermitian))
        }

        /// A = alpha x x + A.
        #[unsafe(no_mangle)]
        pub extern "C" fn $spr(
            handle: Handle, uplo: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, a: usize,
        ) -> Status {
            let (kinds, a) = ([Type::$kind, Type::$scalar], Ok(Stored::packed(a)));
            status(syr(handle, kinds, [uplo, n], alpha, Strided::new(x, incx), None, a, $hermitian))
        }

        /// A = alpha x y + alpha y x + A.
        #[unsafe(no_mangle)]
        pub extern "C" fn $spr2(
            handle: Handle, uplo: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, y: usize, incy: c_int, a: usize,
        ) -> Status {
            let (kinds, a) = ([Type::$kind; 2], Ok(Stored::packed(a)));
            status(syr(handle, kinds, [uplo, n], alpha, Strided::new(x, incx), Some(Strided::new(y, incy)), a, $hermitian))
        }

        /// Copies a packed triangle into a full matrix.
        #[unsafe(no_mangle)]
        pub extern "C" fn $tpttr(handle: Handle, uplo: c_int, n: c_int, packed: usize, a: usize, lda: c_int) -> Status {
            status(repack(handle, Type::$kind, [uplo, n, lda], [a, packed], false))
        }

        /// Packs a triangle of a full matrix.
        #[unsafe(no_mangle)]
        pub extern "C" fn $trttp(handle: Handle, uplo: c_int, n: c_int, a: usize, lda: c_int, packed: usize) -> Status {
            status(repack(handle, Type::$kind, [uplo, n, lda], [a, packed], true))
        }
    )* };
}

banded! {
    F32 F32 false: cublasSgbmv_v2 cublasStbmv_v2 cublasStbsv_v2 cublasStpmv_v2 cublasStpsv_v2 cublasSsbmv_v2 cublasSspmv_v2
        cublasSspr_v2 cublasSspr2_v2 cublasStpttr cublasStrttp;
    F64 F64 false: cublasDgbmv_v2 cublasDtbmv_v2 cublasDtbsv_v2 cublasDtpmv_v2 cublasDtpsv_v2 cublasDsbmv_v2 cublasDspmv_v2
        cublasDspr_v2 cublasDspr2_v2 cublasDtpttr cublasDtrttp;
    C32 F32 true: cublasCgbmv_v2 cublasCtbmv_v2 cublasCtbsv_v2 cublasCtpmv_v2 cublasCtpsv_v2 cublasChbmv_v2 cublasChpmv_v2
        cublasChpr_v2 cublasChpr2_v2 cublasCtpttr cublasCtrttp;
    C64 F64 true: cublasZgbmv_v2 cublasZtbmv_v2 cublasZtbsv_v2 cublasZtpmv_v2 cublasZtpsv_v2 cublasZhbmv_v2 cublasZhpmv_v2
        cublasZhpr_v2 cublasZhpr2_v2 cublasZtpttr cublasZtrttp;
}
