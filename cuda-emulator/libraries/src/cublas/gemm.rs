// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of matrices of one type (sections 2.7.1 and following).

use std::ffi::c_int;

use gemm::Parallelism;

use super::element::{C32, C64, Element};
use super::handle::{Handle, Scalar, queue, settings};
use super::{INVALID_VALUE, Status, status};

/// How a matrix is read (`cublasOperation_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// As it is.
    None,
    /// Transposed.
    Transpose,
    /// Transposed and conjugated.
    Conjugate,
}

impl Operation {
    /// The operation of that number.
    pub fn new(number: c_int) -> Result<Self, Status> {
        match number {
            0 => Ok(Self::None),
            1 => Ok(Self::Transpose),
            2 => Ok(Self::Conjugate),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// Sizes of a product: C (m x n) = A (m x k) B (k x n).
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows of the result.
    pub m: usize,
    /// Its columns.
    pub n: usize,
    /// What is summed over.
    pub k: usize,
    /// How A is read.
    pub a: Operation,
    /// How B is read.
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
        let size = |value: c_int| usize::try_from(value).map_err(|_| INVALID_VALUE);
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
        // SAFETY: the caller's promise; the strides are those of matrices stored by columns.
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

/// The matrices of a batch: the n-th of each lies so many elements behind the first.
#[derive(Clone, Copy, Debug)]
struct Batch {
    count: usize,
    strides: [isize; 3],
}

const ONE: Batch = Batch { count: 1, strides: [0; 3] };

fn product<T: Element>(
    handle: Handle,
    shape: Result<Shape, Status>,
    batch: Batch,
    [alpha, beta]: [*const T; 2],
    [a, b, c]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let shape = shape?;
    let (alpha, beta) = (Scalar::new(&settings, alpha)?, Scalar::new(&settings, beta)?);
    queue(settings.stream, move || {
        for index in 0..batch.count as isize {
            let at = |base: usize, stride: isize| {
                base.wrapping_add_signed(index * stride * size_of::<T>() as isize)
            };
            let (a, b, c) = (at(a, batch.strides[0]), at(b, batch.strides[1]), at(c, batch.strides[2]));
            // SAFETY: the caller of cuBLAS gives matrices of this shape in device memory, which is this process's.
            unsafe { shape.multiply(alpha.get(), a as *const T, b as *const T, beta.get(), c as *mut T) };
        }
    })
}

fn products<T: Element>(
    handle: Handle,
    shape: Result<Shape, Status>,
    count: c_int,
    [alpha, beta]: [*const T; 2],
    [a, b, c]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (shape, count) = (shape?, usize::try_from(count).map_err(|_| INVALID_VALUE)?);
    let (alpha, beta) = (Scalar::new(&settings, alpha)?, Scalar::new(&settings, beta)?);
    queue(settings.stream, move || {
        for index in 0..count {
            // SAFETY: the caller of cuBLAS gives arrays of that many addresses in device memory, of matrices of this shape.
            unsafe {
                let at = |array: usize| (array as *const usize).add(index).read();
                shape.multiply(
                    alpha.get(),
                    at(a) as *const T,
                    at(b) as *const T,
                    beta.get(),
                    at(c) as *mut T,
                );
            }
        }
    })
}

macro_rules! gemm {
    ($($t:ty: $one:ident $strided:ident $batched:ident;)*) => { $(
        /// C = alpha op(A) op(B) + beta C.
        #[unsafe(no_mangle)]
        pub extern "C" fn $one(
            handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const $t,
            a: usize, lda: c_int, b: usize, ldb: c_int, beta: *const $t, c: usize, ldc: c_int,
        ) -> Status {
            let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
            status(product(handle, shape, ONE, [alpha, beta], [a, b, c]))
        }

        /// The same for matrices at equal distances.
        #[unsafe(no_mangle)]
        pub extern "C" fn $strided(
            handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const $t,
            a: usize, lda: c_int, stride_a: i64, b: usize, ldb: c_int, stride_b: i64, beta: *const $t,
            c: usize, ldc: c_int, stride_c: i64, count: c_int,
        ) -> Status {
            let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
            let strides = [stride_a as isize, stride_b as isize, stride_c as isize];
            let Ok(count) = usize::try_from(count) else { return INVALID_VALUE };
            status(product(handle, shape, Batch { count, strides }, [alpha, beta], [a, b, c]))
        }

        /// The same for matrices whose addresses are in device memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $batched(
            handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const $t,
            a: usize, lda: c_int, b: usize, ldb: c_int, beta: *const $t, c: usize, ldc: c_int, count: c_int,
        ) -> Status {
            let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
            status(products(handle, shape, count, [alpha, beta], [a, b, c]))
        }
    )* };
}

gemm! {
    f32: cublasSgemm_v2 cublasSgemmStridedBatched cublasSgemmBatched;
    f64: cublasDgemm_v2 cublasDgemmStridedBatched cublasDgemmBatched;
    C32: cublasCgemm_v2 cublasCgemmStridedBatched cublasCgemmBatched;
    C64: cublasZgemm_v2 cublasZgemmStridedBatched cublasZgemmBatched;
}
