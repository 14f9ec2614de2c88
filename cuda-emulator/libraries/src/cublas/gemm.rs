// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of matrices of one type (sections 2.7.1 and following).

use std::ffi::c_int;

use gemm::Parallelism;
use num_traits::{One, Zero};

use super::handle::{Scalar, queue, settings};
use super::operation::Operation;
use super::{INVALID_VALUE, Status, size, status};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::{Matrix, address_at, moved};
use crate::numbers::{C32, C64, Type};
use crate::stream::Done;

/// A type that the gemm crate computes with.
pub trait Element: Copy + Send + Sync + 'static + Zero + One + PartialEq {
    /// Its `cudaDataType`.
    const TYPE: Type;
    /// A number of this type.
    fn narrow(value: C64) -> Self;
}

impl Element for f32 {
    const TYPE: Type = Type::F32;

    fn narrow(value: C64) -> Self {
        value.re as f32
    }
}

impl Element for f64 {
    const TYPE: Type = Type::F64;

    fn narrow(value: C64) -> Self {
        value.re
    }
}

impl Element for C32 {
    const TYPE: Type = Type::C32;

    fn narrow(value: C64) -> Self {
        C32::new(value.re as f32, value.im as f32)
    }
}

impl Element for C64 {
    const TYPE: Type = Type::C64;

    fn narrow(value: C64) -> Self {
        value
    }
}

/// Sizes of a product: C (m x n) = A (m x k) B (k x n).
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows of the result.
    pub m: usize,
    /// Its columns.
    pub n: usize,
    /// Columns of A and rows of B: the products of their elements are added.
    pub k: usize,
    /// The operation on A.
    pub a: Operation,
    /// The operation on B.
    pub b: Operation,
    /// Elements from one column to the next.
    pub lda: usize,
    /// Elements from one column to the next.
    pub ldb: usize,
    /// Elements from one column to the next.
    pub ldc: usize,
}

impl Shape {
    /// Checked as cuBLAS does.
    pub fn new(
        [a, b]: [c_int; 2],
        [m, n, k]: [c_int; 3],
        [lda, ldb, ldc]: [c_int; 3],
    ) -> Result<Self, Status> {
        let (a, b) = (Operation::new(a)?, Operation::new(b)?);
        let shape = Self {
            m: size(m)?,
            n: size(n)?,
            k: size(k)?,
            a,
            b,
            lda: size(lda)?,
            ldb: size(ldb)?,
            ldc: size(ldc)?,
        };
        let rows_a = if a == Operation::None { shape.m } else { shape.k };
        let rows_b = if b == Operation::None { shape.k } else { shape.n };
        let fits = shape.lda >= rows_a.max(1) && shape.ldb >= rows_b.max(1) && shape.ldc >= shape.m.max(1);
        if fits { Ok(shape) } else { Err(INVALID_VALUE) }
    }

    /// Rows and columns of A and of B as they are stored.
    pub fn stored(&self) -> [(usize, usize); 2] {
        let turned = |operation: Operation, rows, columns| match operation {
            Operation::None => (rows, columns),
            _ => (columns, rows),
        };
        [turned(self.a, self.m, self.k), turned(self.b, self.k, self.n)]
    }

    /// C = alpha A B + beta C in device memory, which is checked.
    pub fn multiply_at<T: Element>(&self, alpha: T, [a, b]: [usize; 2], beta: T, c: usize) -> Done {
        let [(a_rows, a_columns), (b_rows, b_columns)] = self.stored();
        Matrix::new(T::TYPE, a, a_rows, a_columns, self.lda)?;
        Matrix::new(T::TYPE, b, b_rows, b_columns, self.ldb)?;
        Matrix::new(T::TYPE, c, self.m, self.n, self.ldc)?;
        // SAFETY: the matrices were checked just now.
        unsafe { self.multiply(alpha, a as *const T, b as *const T, beta, c as *mut T) };
        Ok(())
    }

    /// C = alpha A B + beta C.
    ///
    /// # Safety
    ///
    /// The addresses have matrices of this shape.
    pub unsafe fn multiply<T: Element>(&self, alpha: T, a: *const T, b: *const T, beta: T, c: *mut T) {
        let strides = |operation: Operation, ld: usize| match operation {
            Operation::None => (ld as isize, 1),
            _ => (1, ld as isize),
        };
        let ((a_columns, a_rows), (b_columns, b_rows)) =
            (strides(self.a, self.lda), strides(self.b, self.ldb));
        // SAFETY: the addresses have matrices of this shape by this function's contract; the strides are those of
        // matrices stored by columns.
        unsafe {
            gemm::gemm(
                self.m,
                self.n,
                self.k,
                c,
                self.ldc as isize,
                1,
                beta != T::zero(),
                a,
                a_columns,
                a_rows,
                b,
                b_columns,
                b_rows,
                beta,
                alpha,
                false,
                self.a == Operation::Conjugate,
                self.b == Operation::Conjugate,
                Parallelism::None,
            );
        }
    }
}

/// The matrices of a batch.
#[derive(Clone, Copy, Debug)]
enum Batch {
    /// The n-th matrix of each lies n times this number of elements after the first.
    Strided(usize, [i64; 3]),
    /// Their addresses lie in device memory.
    Addresses(usize),
}

fn product<T: Element>(
    handle: Handle,
    shape: Result<Shape, Status>,
    batch: Batch,
    [alpha, beta]: [*const T; 2],
    [a, b, c]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let shape = shape?;
    let alpha = Scalar::new(&settings, T::TYPE, alpha as usize)?;
    let beta = Scalar::new(&settings, T::TYPE, beta as usize)?;
    queue(settings.stream, move || {
        if shape.m == 0 || shape.n == 0 {
            return Ok(());
        }
        let (alpha, beta) = (T::narrow(alpha.get()?), T::narrow(beta.get()?));
        let (Batch::Strided(count, _) | Batch::Addresses(count)) = batch;
        for index in 0..count {
            let [a, b, c] = match batch {
                Batch::Strided(_, strides) => {
                    let at = |base, stride: i64| moved(base, stride.wrapping_mul(index as i64), T::TYPE);
                    [at(a, strides[0]), at(b, strides[1]), at(c, strides[2])]
                }
                Batch::Addresses(_) => [address_at(a, index)?, address_at(b, index)?, address_at(c, index)?],
            };
            shape.multiply_at(alpha, [a, b], beta, c)?;
        }
        Ok(())
    })
}

exported! {
    /// C = alpha op(A) op(B) + beta C.
    pub extern "C" fn<T> [
        cublasSgemm_v2<f32>, cublasDgemm_v2<f64>, cublasCgemm_v2<C32>, cublasZgemm_v2<C64>, cublasCgemm3m<C32>,
    ]
    (
        handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const T, a: usize, lda: c_int,
        b: usize, ldb: c_int, beta: *const T, c: usize, ldc: c_int,
    ) -> Status {
        let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
        status(product(handle, shape, Batch::Strided(1, [0; 3]), [alpha, beta], [a, b, c]))
    }

    /// The same for matrices at equal distances.
    pub extern "C" fn<T> [
        cublasSgemmStridedBatched<f32>, cublasDgemmStridedBatched<f64>, cublasCgemmStridedBatched<C32>,
        cublasZgemmStridedBatched<C64>, cublasCgemm3mStridedBatched<C32>,
    ]
    (
        handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const T, a: usize, lda: c_int,
        stride_a: i64, b: usize, ldb: c_int, stride_b: i64, beta: *const T, c: usize, ldc: c_int, stride_c: i64, count: c_int,
    ) -> Status {
        let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
        let Ok(count) = usize::try_from(count) else { return INVALID_VALUE };
        let batch = Batch::Strided(count, [stride_a, stride_b, stride_c]);
        status(product(handle, shape, batch, [alpha, beta], [a, b, c]))
    }

    /// The same for matrices whose addresses are in device memory.
    pub extern "C" fn<T> [
        cublasSgemmBatched<f32>, cublasDgemmBatched<f64>, cublasCgemmBatched<C32>, cublasZgemmBatched<C64>,
        cublasCgemm3mBatched<C32>,
    ]
    (
        handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const T, a: usize, lda: c_int,
        b: usize, ldb: c_int, beta: *const T, c: usize, ldc: c_int, count: c_int,
    ) -> Status {
        let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
        let Ok(count) = usize::try_from(count) else { return INVALID_VALUE };
        status(product(handle, shape, Batch::Addresses(count), [alpha, beta], [a, b, c]))
    }
}

/// [`cublasZgemm_v2`]: the order of the multiplications differs on a GPU only.
#[unsafe(no_mangle)]
pub extern "C" fn cublasZgemm3m(
    handle: Handle,
    transa: c_int,
    transb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const C64,
    a: usize,
    lda: c_int,
    b: usize,
    ldb: c_int,
    beta: *const C64,
    c: usize,
    ldc: c_int,
) -> Status {
    cublasZgemm_v2(handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}
