// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on a matrix and vectors (section 2.6).

use std::ffi::c_int;

use super::gemm_ex::Layout;
use super::handle::{Scalar, queue, settings};
use super::operation::{Fill, Operation, is_unit, solve};
use super::storage::{Stored, Triangle};
use super::{Status, size, status};
use crate::handles::Handle;
use crate::memory::{Dense, Matrix, Strided, Vector};
use crate::numbers::{C64, Type};

/// A vector as a matrix of one column.
pub fn as_column(values: &[C64]) -> Dense {
    Dense::from(values.len(), 1, |row, _| values[row])
}

/// y = alpha product + beta y; where beta is 0, y is not read.
pub fn add(alpha: C64, product: &Dense, beta: C64, y: Vector) {
    for row in 0..product.rows {
        let old = if beta == C64::default() { beta } else { beta * y.get(row) };
        y.set(row, alpha * product[(row, 0)] + old);
    }
}

/// Problems of the same sizes: the places of their operands, and their number.
struct Batch {
    layout: Layout,
    count: c_int,
}

/// Products of matrices and vectors, whose elements are of the first type. The second one is that of y, the third one that of
/// alpha and beta.
fn gemv(
    handle: Handle,
    [kind, of_y, scalar]: [Type; 3],
    operation: c_int,
    [m, n, lda]: [c_int; 3],
    [alpha, beta]: [usize; 2],
    [a, x, y]: [usize; 3],
    [step_x, step_y]: [c_int; 2],
    Batch { layout, count }: Batch,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let operation = Operation::new(operation)?;
    let (m, n, lda, count) = (size(m)?, size(n)?, size(lda)?, size(count)?);
    let (alpha, beta) = (Scalar::new(&settings, scalar, alpha)?, Scalar::new(&settings, scalar, beta)?);
    let (outputs, inputs) = operation.stored(m, n);
    queue(settings.stream, move || {
        for index in 0..count {
            let [a, x, y] = layout.at([a, x, y], [kind, kind, of_y], index)?;
            let a = Matrix::new(kind, a, m, n, lda)?.load();
            let x = Vector::new(kind, x, inputs, i64::from(step_x))?.load();
            let y = Vector::new(of_y, y, outputs, i64::from(step_y))?;
            add(alpha.get()?, &operation.of(&a).times(&as_column(&x)), beta.get()?, y);
        }
        Ok(())
    })
}

/// A = alpha x yᵀ + A, or with the conjugate of y.
fn ger(
    handle: Handle,
    kind: Type,
    [m, n, lda]: [c_int; 3],
    alpha: usize,
    x: Strided,
    y: Strided,
    a: usize,
    is_conjugate: bool,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (m, n, lda) = (size(m)?, size(n)?, size(lda)?);
    let alpha = Scalar::new(&settings, kind, alpha)?;
    queue(settings.stream, move || {
        let alpha = alpha.get()?;
        let x = x.open(kind, m)?.load();
        let y = y.open(kind, n)?.load();
        let a = Matrix::new(kind, a, m, n, lda)?;
        for (column, y) in y.iter().enumerate() {
            let factor = alpha * if is_conjugate { y.conj() } else { *y };
            for (row, x) in x.iter().enumerate() {
                a.set(row, column, a.get(row, column) + x * factor);
            }
        }
        Ok(())
    })
}

/// y = alpha A x + beta y with a symmetric or Hermitian A.
pub fn symv(
    handle: Handle,
    kind: Type,
    [fill, n]: [c_int; 2],
    [alpha, beta]: [usize; 2],
    a: Result<Stored, Status>,
    x: Strided,
    y: Strided,
    is_hermitian: bool,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (fill, n, a) = (Fill::new(fill)?, size(n)?, a?);
    let (alpha, beta) = (Scalar::new(&settings, kind, alpha)?, Scalar::new(&settings, kind, beta)?);
    queue(settings.stream, move || {
        let a = Triangle::new(kind, a, n, fill)?.symmetric(is_hermitian);
        let x = x.open(kind, n)?.load();
        let y = y.open(kind, n)?;
        add(alpha.get()?, &a.times(&as_column(&x)), beta.get()?, y);
        Ok(())
    })
}

/// A = alpha x xᵀ + A, or alpha x yᵀ + (alpha x yᵀ)ᵀ + A, in one triangle; conjugated where A is Hermitian.
pub fn syr(
    handle: Handle,
    [kind, scalar]: [Type; 2],
    [fill, n]: [c_int; 2],
    alpha: usize,
    x: Strided,
    y: Option<Strided>,
    a: Result<Stored, Status>,
    is_hermitian: bool,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (fill, n, a) = (Fill::new(fill)?, size(n)?, a?);
    let alpha = Scalar::new(&settings, scalar, alpha)?;
    queue(settings.stream, move || {
        let alpha = alpha.get()?;
        let a = Triangle::new(kind, a, n, fill)?;
        let x = x.open(kind, n)?.load();
        let y = y.map(|y| Ok(y.open(kind, n)?.load())).transpose()?;
        let turned = |value: C64| if is_hermitian { value.conj() } else { value };
        for column in 0..n {
            for row in a.rows(column) {
                let sum = match &y {
                    None => alpha * x[row] * turned(x[column]),
                    Some(y) => {
                        alpha * x[row] * turned(y[column]) + turned(alpha) * y[row] * turned(x[column])
                    }
                };
                let value = a.get(row, column) + sum;
                // The diagonal of a Hermitian matrix is real.
                let is_real = is_hermitian && row == column;
                a.set(row, column, if is_real { C64::new(value.re, 0.0) } else { value });
            }
        }
        Ok(())
    })
}

/// x = op(A) x, or x = op(A)⁻¹ x, with a triangular A.
pub fn triangular(
    handle: Handle,
    kind: Type,
    [fill, operation, diagonal, n]: [c_int; 4],
    a: Result<Stored, Status>,
    x: Strided,
    solves: bool,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (fill, operation, unit) = (Fill::new(fill)?, Operation::new(operation)?, is_unit(diagonal)?);
    let (n, a) = (size(n)?, a?);
    queue(settings.stream, move || {
        let a = operation.of(&Triangle::new(kind, a, n, fill)?.triangular(unit));
        let x = x.open(kind, n)?;
        let mut values = as_column(&x.load());
        if solves {
            solve(&a, (fill == Fill::Lower) == (operation == Operation::None), &mut values);
        } else {
            values = a.times(&values);
        }
        x.store(values.column(0));
        Ok(())
    })
}

macro_rules! level2 {
    ($($kind:ident: $gemv:ident $trmv:ident $trsv:ident [$($ger:ident $conjugate:literal)*]
       [$($symv:ident $syr:ident $scalar:ident $syr2:ident $hermitian:literal)*];)*) => { $(
        /// y = alpha op(A) x + beta y.
        #[unsafe(no_mangle)]
        pub extern "C" fn $gemv(
            handle: Handle, trans: c_int, m: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, x: usize, incx: c_int,
            beta: usize, y: usize, incy: c_int,
        ) -> Status {
            let (kinds, one) = ([Type::$kind; 3], Batch { layout: Layout::Strided([0; 3]), count: 1 });
            status(gemv(handle, kinds, trans, [m, n, lda], [alpha, beta], [a, x, y], [incx, incy], one))
        }

        /// x = op(A) x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $trmv(
            handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, a: usize, lda: c_int, x: usize, incx: c_int,
        ) -> Status {
            status(triangular(handle, Type::$kind, [uplo, trans, diag, n], Stored::full(a, lda), Strided::new(x, incx), false))
        }

        /// Solves op(A) x = b; b is in x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $trsv(
            handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, a: usize, lda: c_int, x: usize, incx: c_int,
        ) -> Status {
            status(triangular(handle, Type::$kind, [uplo, trans, diag, n], Stored::full(a, lda), Strided::new(x, incx), true))
        }

        $(
            /// A = alpha x y + A.
            #[unsafe(no_mangle)]
            pub extern "C" fn $ger(
                handle: Handle, m: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, y: usize, incy: c_int, a: usize,
                lda: c_int,
            ) -> Status {
                status(ger(handle, Type::$kind, [m, n, lda], alpha, Strided::new(x, incx), Strided::new(y, incy), a, $conjugate))
            }
        )*

        $(
            /// y = alpha A x + beta y.
            #[unsafe(no_mangle)]
            pub extern "C" fn $symv(
                handle: Handle, uplo: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, x: usize, incx: c_int,
                beta: usize, y: usize, incy: c_int,
            ) -> Status {
                let (x, y) = (Strided::new(x, incx), Strided::new(y, incy));
                status(symv(handle, Type::$kind, [uplo, n], [alpha, beta], Stored::full(a, lda), x, y, $hermitian))
            }

            /// A = alpha x x + A.
            #[unsafe(no_mangle)]
            pub extern "C" fn $syr(
                handle: Handle, uplo: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, a: usize, lda: c_int,
            ) -> Status {
                let kinds = [Type::$kind, Type::$scalar];
                status(syr(handle, kinds, [uplo, n], alpha, Strided::new(x, incx), None, Stored::full(a, lda), $hermitian))
            }

            /// A = alpha x y + alpha y x + A.
            #[unsafe(no_mangle)]
            pub extern "C" fn $syr2(
                handle: Handle, uplo: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, y: usize, incy: c_int,
                a: usize, lda: c_int,
            ) -> Status {
                let kinds = [Type::$kind; 2];
                let a = Stored::full(a, lda);
                status(syr(handle, kinds, [uplo, n], alpha, Strided::new(x, incx), Some(Strided::new(y, incy)), a, $hermitian))
            }
        )*
    )* };
}

level2! {
    F32: cublasSgemv_v2 cublasStrmv_v2 cublasStrsv_v2 [cublasSger_v2 false]
        [cublasSsymv_v2 cublasSsyr_v2 F32 cublasSsyr2_v2 false];
    F64: cublasDgemv_v2 cublasDtrmv_v2 cublasDtrsv_v2 [cublasDger_v2 false]
        [cublasDsymv_v2 cublasDsyr_v2 F64 cublasDsyr2_v2 false];
    C32: cublasCgemv_v2 cublasCtrmv_v2 cublasCtrsv_v2 [cublasCgeru_v2 false cublasCgerc_v2 true]
        [cublasCsymv_v2 cublasCsyr_v2 C32 cublasCsyr2_v2 false cublasChemv_v2 cublasCher_v2 F32 cublasCher2_v2 true];
    C64: cublasZgemv_v2 cublasZtrmv_v2 cublasZtrsv_v2 [cublasZgeru_v2 false cublasZgerc_v2 true]
        [cublasZsymv_v2 cublasZsyr_v2 C64 cublasZsyr2_v2 false cublasZhemv_v2 cublasZher_v2 F64 cublasZher2_v2 true];
}

macro_rules! many {
    ($($kind:ident $of_y:ident $scalar:ident: $strided:ident $batched:ident;)*) => { $(
        /// y = alpha op(A) x + beta y for matrices and vectors at equal distances.
        #[unsafe(no_mangle)]
        pub extern "C" fn $strided(
            handle: Handle, trans: c_int, m: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, stride_a: i64, x: usize,
            incx: c_int, stride_x: i64, beta: usize, y: usize, incy: c_int, stride_y: i64, count: c_int,
        ) -> Status {
            let kinds = [Type::$kind, Type::$of_y, Type::$scalar];
            let batch = Batch { layout: Layout::Strided([stride_a, stride_x, stride_y]), count };
            status(gemv(handle, kinds, trans, [m, n, lda], [alpha, beta], [a, x, y], [incx, incy], batch))
        }

        /// The same for those whose addresses are in device memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $batched(
            handle: Handle, trans: c_int, m: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, x: usize, incx: c_int,
            beta: usize, y: usize, incy: c_int, count: c_int,
        ) -> Status {
            let kinds = [Type::$kind, Type::$of_y, Type::$scalar];
            let batch = Batch { layout: Layout::Addresses, count };
            status(gemv(handle, kinds, trans, [m, n, lda], [alpha, beta], [a, x, y], [incx, incy], batch))
        }
    )* };
}

many! {
    F32 F32 F32: cublasSgemvStridedBatched cublasSgemvBatched;
    F64 F64 F64: cublasDgemvStridedBatched cublasDgemvBatched;
    C32 C32 C32: cublasCgemvStridedBatched cublasCgemvBatched;
    C64 C64 C64: cublasZgemvStridedBatched cublasZgemvBatched;
    F16 F16 F32: cublasHSHgemvStridedBatched cublasHSHgemvBatched;
    F16 F32 F32: cublasHSSgemvStridedBatched cublasHSSgemvBatched;
    Bf16 Bf16 F32: cublasTSTgemvStridedBatched cublasTSTgemvBatched;
    Bf16 F32 F32: cublasTSSgemvStridedBatched cublasTSSgemvBatched;
}
