// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on a matrix and vectors (section 2.6).

use std::ffi::c_int;

use super::gemm_ex::Layout;
use super::handle::{Scalar, queue, settings};
use super::operation::{Fill, Operation, is_unit, solve};
use super::storage::{Stored, Triangle};
use super::{Status, size, status};
use crate::exported::exported;
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
    [operation, m, n, lda, step_x, step_y]: [c_int; 6],
    [alpha, beta]: [usize; 2],
    [a, x, y]: [usize; 3],
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
    [alpha, a]: [usize; 2],
    [x, y]: [Strided; 2],
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

/// A symmetric or Hermitian matrix, of which one triangle is stored.
pub struct Symmetric {
    pub fill: c_int,
    pub order: c_int,
    pub stored: Result<Stored, Status>,
    pub is_hermitian: bool,
}

/// y = alpha A x + beta y with a symmetric or Hermitian A.
pub fn symv(
    handle: Handle,
    kind: Type,
    [alpha, beta]: [usize; 2],
    Symmetric { fill, order, stored, is_hermitian }: Symmetric,
    [x, y]: [Strided; 2],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (fill, n, a) = (Fill::new(fill)?, size(order)?, stored?);
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
    alpha: usize,
    x: Strided,
    y: Option<Strided>,
    Symmetric { fill, order, stored, is_hermitian }: Symmetric,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (fill, n, a) = (Fill::new(fill)?, size(order)?, stored?);
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

exported! {
    /// y = alpha op(A) x + beta y.
    pub extern "C" fn(kind) [
        cublasSgemv_v2(Type::F32), cublasDgemv_v2(Type::F64), cublasCgemv_v2(Type::C32), cublasZgemv_v2(Type::C64),
    ]
    (
        handle: Handle, trans: c_int, m: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, x: usize, incx: c_int,
        beta: usize, y: usize, incy: c_int,
    ) -> Status {
        let (kinds, one) = ([kind; 3], Batch { layout: Layout::Strided([0; 3]), count: 1 });
        status(gemv(handle, kinds, [trans, m, n, lda, incx, incy], [alpha, beta], [a, x, y], one))
    }

    /// x = op(A) x.
    pub extern "C" fn(kind) [
        cublasStrmv_v2(Type::F32), cublasDtrmv_v2(Type::F64), cublasCtrmv_v2(Type::C32), cublasZtrmv_v2(Type::C64),
    ]
    (
        handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, a: usize, lda: c_int, x: usize, incx: c_int,
    ) -> Status {
        status(triangular(handle, kind, [uplo, trans, diag, n], Stored::full(a, lda), Strided::new(x, incx), false))
    }

    /// Solves op(A) x = b; b is in x.
    pub extern "C" fn(kind) [
        cublasStrsv_v2(Type::F32), cublasDtrsv_v2(Type::F64), cublasCtrsv_v2(Type::C32), cublasZtrsv_v2(Type::C64),
    ]
    (
        handle: Handle, uplo: c_int, trans: c_int, diag: c_int, n: c_int, a: usize, lda: c_int, x: usize, incx: c_int,
    ) -> Status {
        status(triangular(handle, kind, [uplo, trans, diag, n], Stored::full(a, lda), Strided::new(x, incx), true))
    }

    /// A = alpha x y + A.
    pub extern "C" fn(kind, conjugate) [
        cublasSger_v2(Type::F32, false), cublasDger_v2(Type::F64, false), cublasCgeru_v2(Type::C32, false),
        cublasCgerc_v2(Type::C32, true), cublasZgeru_v2(Type::C64, false), cublasZgerc_v2(Type::C64, true),
    ]
    (
        handle: Handle, m: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, y: usize, incy: c_int, a: usize, lda: c_int,
    ) -> Status {
        let vectors = [Strided::new(x, incx), Strided::new(y, incy)];
        status(ger(handle, kind, [m, n, lda], [alpha, a], vectors, conjugate))
    }

    /// y = alpha A x + beta y.
    pub extern "C" fn(kind, hermitian) [
        cublasSsymv_v2(Type::F32, false), cublasDsymv_v2(Type::F64, false), cublasCsymv_v2(Type::C32, false),
        cublasChemv_v2(Type::C32, true), cublasZsymv_v2(Type::C64, false), cublasZhemv_v2(Type::C64, true),
    ]
    (
        handle: Handle, uplo: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, x: usize, incx: c_int, beta: usize,
        y: usize, incy: c_int,
    ) -> Status {
        let vectors = [Strided::new(x, incx), Strided::new(y, incy)];
        let a = Symmetric { fill: uplo, order: n, stored: Stored::full(a, lda), is_hermitian: hermitian };
        status(symv(handle, kind, [alpha, beta], a, vectors))
    }

    /// A = alpha x x + A.
    pub extern "C" fn(kind, scalar, hermitian) [
        cublasSsyr_v2(Type::F32, Type::F32, false), cublasDsyr_v2(Type::F64, Type::F64, false),
        cublasCsyr_v2(Type::C32, Type::C32, false), cublasCher_v2(Type::C32, Type::F32, true),
        cublasZsyr_v2(Type::C64, Type::C64, false), cublasZher_v2(Type::C64, Type::F64, true),
    ]
    (handle: Handle, uplo: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, a: usize, lda: c_int) -> Status {
        let a = Symmetric { fill: uplo, order: n, stored: Stored::full(a, lda), is_hermitian: hermitian };
        status(syr(handle, [kind, scalar], alpha, Strided::new(x, incx), None, a))
    }

    /// A = alpha x y + alpha y x + A.
    pub extern "C" fn(kind, hermitian) [
        cublasSsyr2_v2(Type::F32, false), cublasDsyr2_v2(Type::F64, false), cublasCsyr2_v2(Type::C32, false),
        cublasCher2_v2(Type::C32, true), cublasZsyr2_v2(Type::C64, false), cublasZher2_v2(Type::C64, true),
    ]
    (
        handle: Handle, uplo: c_int, n: c_int, alpha: usize, x: usize, incx: c_int, y: usize, incy: c_int, a: usize,
        lda: c_int,
    ) -> Status {
        let a = Symmetric { fill: uplo, order: n, stored: Stored::full(a, lda), is_hermitian: hermitian };
        status(syr(handle, [kind; 2], alpha, Strided::new(x, incx), Some(Strided::new(y, incy)), a))
    }
}

exported! {
    /// y = alpha op(A) x + beta y for matrices and vectors at equal distances.
    pub extern "C" fn(kind, of_y, scalar) [
        cublasSgemvStridedBatched(Type::F32, Type::F32, Type::F32), cublasDgemvStridedBatched(Type::F64, Type::F64, Type::F64),
        cublasCgemvStridedBatched(Type::C32, Type::C32, Type::C32), cublasZgemvStridedBatched(Type::C64, Type::C64, Type::C64),
        cublasHSHgemvStridedBatched(Type::F16, Type::F16, Type::F32),
        cublasHSSgemvStridedBatched(Type::F16, Type::F32, Type::F32),
        cublasTSTgemvStridedBatched(Type::Bf16, Type::Bf16, Type::F32),
        cublasTSSgemvStridedBatched(Type::Bf16, Type::F32, Type::F32),
    ]
    (
        handle: Handle, trans: c_int, m: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, stride_a: i64, x: usize,
        incx: c_int, stride_x: i64, beta: usize, y: usize, incy: c_int, stride_y: i64, count: c_int,
    ) -> Status {
        let kinds = [kind, of_y, scalar];
        let batch = Batch { layout: Layout::Strided([stride_a, stride_x, stride_y]), count };
        status(gemv(handle, kinds, [trans, m, n, lda, incx, incy], [alpha, beta], [a, x, y], batch))
    }

    /// The same for those whose addresses are in device memory.
    pub extern "C" fn(kind, of_y, scalar) [
        cublasSgemvBatched(Type::F32, Type::F32, Type::F32), cublasDgemvBatched(Type::F64, Type::F64, Type::F64),
        cublasCgemvBatched(Type::C32, Type::C32, Type::C32), cublasZgemvBatched(Type::C64, Type::C64, Type::C64),
        cublasHSHgemvBatched(Type::F16, Type::F16, Type::F32), cublasHSSgemvBatched(Type::F16, Type::F32, Type::F32),
        cublasTSTgemvBatched(Type::Bf16, Type::Bf16, Type::F32), cublasTSSgemvBatched(Type::Bf16, Type::F32, Type::F32),
    ]
    (
        handle: Handle, trans: c_int, m: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, x: usize, incx: c_int,
        beta: usize, y: usize, incy: c_int, count: c_int,
    ) -> Status {
        let kinds = [kind, of_y, scalar];
        let batch = Batch { layout: Layout::Addresses, count };
        status(gemv(handle, kinds, [trans, m, n, lda, incx, incy], [alpha, beta], [a, x, y], batch))
    }
}
