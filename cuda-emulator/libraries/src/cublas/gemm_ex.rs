// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of matrices of mixed types (section 2.8.12 and following): computed in float or double.

use std::ffi::c_int;

use super::gemm::{Element, Shape};
use super::handle::{Scalar, queue, settings};
use super::operation::Operation;
use super::{NOT_SUPPORTED, Status, size, status};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::{Dense, Matrix, address_at, moved};
use crate::numbers::{C32, C64, Type};
use crate::stream::{Done, Fault};

/// The scalar type of a computation (`cublasComputeType_t`, or a `cudaDataType` of old programs) on elements of a type.
pub fn scalar_type(compute: c_int, elements: Type) -> Result<Type, Status> {
    let kind = match compute {
        64 | 65 => Type::F16,
        68 | 69 | 74..=78 => Type::F32,
        70 | 71 | 79 => Type::F64,
        72 | 73 => Type::I32,
        number => Type::new(number).ok_or(NOT_SUPPORTED)?,
    };
    Ok(match kind {
        Type::F32 if elements.is_complex() => Type::C32,
        Type::F64 if elements.is_complex() => Type::C64,
        kind => kind,
    })
}

/// The product of two matrices, computed in the type `scale` or one that has its digits.
pub fn dense_product(scale: Type, a: &Dense, b: &Dense) -> Dense {
    match scale {
        Type::F16 | Type::F32 | Type::Bf16 => packed_product::<f32>(a, b),
        Type::C32 => packed_product::<C32>(a, b),
        Type::C64 => packed_product::<C64>(a, b),
        _ => packed_product::<f64>(a, b),
    }
}

fn packed_product<T: Element + Into<Wide>>(a: &Dense, b: &Dense) -> Dense {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    let plain = Operation::None;
    let (lda, ldb, ldc) = (m.max(1), k.max(1), m.max(1));
    let shape = Shape { m, n, k, a: plain, b: plain, lda, ldb, ldc };
    let narrow = |matrix: &Dense| -> Vec<T> {
        (0..matrix.columns).flat_map(|column| matrix.column(column)).map(|value| T::narrow(*value)).collect()
    };
    let (a, b, mut sum) = (narrow(a), narrow(b), vec![T::zero(); shape.m * shape.n]);
    // SAFETY: the vectors have matrices of this shape.
    unsafe { shape.multiply(T::one(), a.as_ptr(), b.as_ptr(), T::zero(), sum.as_mut_ptr()) };
    Dense::from(shape.m, shape.n, |row, column| sum[column * shape.m + row].into().0)
}

/// A number in the widest type.
struct Wide(C64);

impl From<f32> for Wide {
    fn from(value: f32) -> Self {
        Self(C64::new(f64::from(value), 0.0))
    }
}

impl From<f64> for Wide {
    fn from(value: f64) -> Self {
        Self(C64::new(value, 0.0))
    }
}

impl From<C32> for Wide {
    fn from(value: C32) -> Self {
        Self(C64::new(f64::from(value.re), f64::from(value.im)))
    }
}

impl From<C64> for Wide {
    fn from(value: C64) -> Self {
        Self(value)
    }
}

struct Mixed {
    shape: Shape,
    kinds: [Type; 3],
    scale: Type,
    alpha: Scalar,
    beta: Scalar,
}

impl Mixed {
    fn multiply(&self, [a, b, c]: [usize; 3]) -> Done {
        let Shape { m, n, ldc, .. } = self.shape;
        let c = Matrix::new(self.kinds[2], c, m, n, ldc)?;
        let [(a_rows, a_columns), (b_rows, b_columns)] = self.shape.stored();
        let a = Matrix::new(self.kinds[0], a, a_rows, a_columns, self.shape.lda)?.load();
        let b = Matrix::new(self.kinds[1], b, b_rows, b_columns, self.shape.ldb)?.load();
        let product = dense_product(self.scale, &self.shape.a.of(&a), &self.shape.b.of(&b));
        let (alpha, beta) = (self.alpha.get()?, self.beta.get()?);
        for column in 0..n {
            for row in 0..m {
                let sum = alpha * product[(row, column)];
                // Where beta is 0 the old value is ignored, even a NaN.
                let old = if beta == C64::default() { beta } else { beta * c.get(row, column) };
                c.set(row, column, sum + old);
            }
        }
        Ok(())
    }
}

/// C = alpha op(A) op(B) + beta C.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGemmEx(
    handle: Handle,
    transa: c_int,
    transb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: usize,
    a: usize,
    a_type: c_int,
    lda: c_int,
    b: usize,
    b_type: c_int,
    ldb: c_int,
    beta: usize,
    c: usize,
    c_type: c_int,
    ldc: c_int,
    compute: c_int,
    algorithm: c_int,
) -> Status {
    cublasGemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc,
        0, 1, compute, algorithm,
    )
}

/// The same for matrices at equal distances.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGemmStridedBatchedEx(
    handle: Handle,
    transa: c_int,
    transb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: usize,
    a: usize,
    a_type: c_int,
    lda: c_int,
    stride_a: i64,
    b: usize,
    b_type: c_int,
    ldb: c_int,
    stride_b: i64,
    beta: usize,
    c: usize,
    c_type: c_int,
    ldc: c_int,
    stride_c: i64,
    count: c_int,
    compute: c_int,
    _algorithm: c_int,
) -> Status {
    let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
    let layout = Layout::Strided([stride_a, stride_b, stride_c]);
    status(products(
        handle,
        shape,
        [alpha, beta],
        [a, b, c],
        [a_type, b_type, c_type],
        layout,
        count,
        compute,
    ))
}

/// The same for matrices whose addresses are in device memory.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGemmBatchedEx(
    handle: Handle,
    transa: c_int,
    transb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: usize,
    a: usize,
    a_type: c_int,
    lda: c_int,
    b: usize,
    b_type: c_int,
    ldb: c_int,
    beta: usize,
    c: usize,
    c_type: c_int,
    ldc: c_int,
    count: c_int,
    compute: c_int,
    _algorithm: c_int,
) -> Status {
    let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
    let types = [a_type, b_type, c_type];
    status(products(handle, shape, [alpha, beta], [a, b, c], types, Layout::Addresses, count, compute))
}

exported! {
    /// C = alpha op(A) op(B) + beta C, computed in float, with complex numbers where C has them.
    pub extern "C" fn [cublasSgemmEx, cublasCgemmEx, cublasCgemm3mEx]
    (
        handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, alpha: usize, a: usize, a_type: c_int,
        lda: c_int, b: usize, b_type: c_int, ldb: c_int, beta: usize, c: usize, c_type: c_int, ldc: c_int,
    ) -> Status {
        // CUBLAS_COMPUTE_32F
        cublasGemmEx(
            handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, 68, -1,
        )
    }
}

/// `CUDA_R_16F`
const HALF: c_int = 2;
/// `CUBLAS_COMPUTE_16F`
const IN_HALF: c_int = 64;

/// C = alpha op(A) op(B) + beta C in half precision.
#[unsafe(no_mangle)]
pub extern "C" fn cublasHgemm(
    handle: Handle,
    transa: c_int,
    transb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: usize,
    a: usize,
    lda: c_int,
    b: usize,
    ldb: c_int,
    beta: usize,
    c: usize,
    ldc: c_int,
) -> Status {
    cublasHgemmStridedBatched(
        handle, transa, transb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1,
    )
}

/// The same for matrices at equal distances.
#[unsafe(no_mangle)]
pub extern "C" fn cublasHgemmStridedBatched(
    handle: Handle,
    transa: c_int,
    transb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: usize,
    a: usize,
    lda: c_int,
    stride_a: i64,
    b: usize,
    ldb: c_int,
    stride_b: i64,
    beta: usize,
    c: usize,
    ldc: c_int,
    stride_c: i64,
    count: c_int,
) -> Status {
    let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
    let layout = Layout::Strided([stride_a, stride_b, stride_c]);
    status(products(handle, shape, [alpha, beta], [a, b, c], [HALF; 3], layout, count, IN_HALF))
}

/// The same for matrices whose addresses are in device memory.
#[unsafe(no_mangle)]
pub extern "C" fn cublasHgemmBatched(
    handle: Handle,
    transa: c_int,
    transb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: usize,
    a: usize,
    lda: c_int,
    b: usize,
    ldb: c_int,
    beta: usize,
    c: usize,
    ldc: c_int,
    count: c_int,
) -> Status {
    let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc]);
    status(products(handle, shape, [alpha, beta], [a, b, c], [HALF; 3], Layout::Addresses, count, IN_HALF))
}

/// The addresses of the matrices of a batch.
#[derive(Clone, Copy)]
pub enum Layout {
    /// The n-th matrix of each lies n times this number of elements after the first.
    Strided([i64; 3]),
    /// Their addresses lie in device memory.
    Addresses,
}

impl Layout {
    /// Returns whether A and B lie as products of integers require: at multiples of 4 bytes, as their columns do. Addresses in
    /// device memory are not looked at.
    fn is_aligned(self, shape: &Shape, bases: [usize; 3]) -> bool {
        let bases = if let Self::Strided(_) = self { &bases[..2] } else { &[] };
        [shape.lda, shape.ldb].iter().chain(bases).all(|number| number % 4 == 0)
    }

    /// The addresses of the operands of that index.
    pub fn at(self, bases: [usize; 3], kinds: [Type; 3], index: usize) -> Result<[usize; 3], Fault> {
        let mut found = bases;
        for (which, place) in found.iter_mut().enumerate() {
            *place = match self {
                Self::Strided(strides) => {
                    moved(bases[which], strides[which].wrapping_mul(index as i64), kinds[which])
                }
                Self::Addresses => address_at(bases[which], index)?,
            };
        }
        Ok(found)
    }
}

/// `CUBLAS_COMPUTE_32I`, `CUBLAS_COMPUTE_32I_PEDANTIC`
const IN_INTEGERS: [c_int; 2] = [72, 73];

#[expect(clippy::too_many_arguments, reason = "the arguments of a C function, in groups")]
fn products(
    handle: Handle,
    shape: Result<Shape, Status>,
    [alpha, beta]: [usize; 2],
    addresses: [usize; 3],
    types: [c_int; 3],
    layout: Layout,
    count: c_int,
    compute: c_int,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (shape, count) = (shape?, size(count)?);
    let kind = |number| Type::new(number).ok_or(NOT_SUPPORTED);
    let kinds = [kind(types[0])?, kind(types[1])?, kind(types[2])?];
    let scale = scalar_type(compute, kinds[2])?;
    if IN_INTEGERS.contains(&compute) && !layout.is_aligned(&shape, addresses) {
        return Err(NOT_SUPPORTED);
    }
    let (alpha, beta) = (Scalar::new(&settings, scale, alpha)?, Scalar::new(&settings, scale, beta)?);
    let mixed = Mixed { shape, kinds, scale, alpha, beta };
    queue(settings.stream, move || {
        for index in 0..count {
            mixed.multiply(layout.at(addresses, mixed.kinds, index)?)?;
        }
        Ok(())
    })
}
