// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of matrices of mixed types (section 2.8.12 and following): computed in float or double.

use std::ffi::{c_int, c_void};

use half::{bf16, f16};

use super::gemm::{Operation, Shape};
use super::handle::{Handle, Scalar, queue, settings};
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, status};

/// A type of elements (`cudaDataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
}

impl Type {
    fn new(number: c_int) -> Result<Self, Status> {
        Ok(match number {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            3 => Self::I8,
            10 => Self::I32,
            14 => Self::Bf16,
            _ => return Err(NOT_SUPPORTED),
        })
    }

    const fn bytes(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 => 8,
        }
    }

    /// # Safety
    ///
    /// `address` has an element of this type.
    unsafe fn read(self, address: usize) -> f64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::F32 => f64::from((address as *const f32).read_unaligned()),
                Self::F64 => (address as *const f64).read_unaligned(),
                Self::F16 => (address as *const f16).read_unaligned().to_f64(),
                Self::Bf16 => (address as *const bf16).read_unaligned().to_f64(),
                Self::I8 => f64::from((address as *const i8).read()),
                Self::I32 => f64::from((address as *const i32).read_unaligned()),
            }
        }
    }

    /// # Safety
    ///
    /// `address` has room for an element of this type.
    unsafe fn write(self, address: usize, value: f64) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::F32 => (address as *mut f32).write_unaligned(value as f32),
                Self::F64 => (address as *mut f64).write_unaligned(value),
                Self::F16 => (address as *mut f16).write_unaligned(f16::from_f64(value)),
                Self::Bf16 => (address as *mut bf16).write_unaligned(bf16::from_f64(value)),
                Self::I8 => (address as *mut i8).write(value as i8),
                Self::I32 => (address as *mut i32).write_unaligned(value as i32),
            }
        }
    }
}

/// What a computation is done in, and its scalars' type (`cublasComputeType_t`, or a `cudaDataType` of old programs).
#[derive(Clone, Copy, Debug)]
enum Scale {
    F16(Scalar<f16>, Scalar<f16>),
    F32(Scalar<f32>, Scalar<f32>),
    F64(Scalar<f64>, Scalar<f64>),
    I32(Scalar<i32>, Scalar<i32>),
}

impl Scale {
    fn new(handle: Handle, compute: c_int, [alpha, beta]: [*const c_void; 2]) -> Result<Self, Status> {
        let settings = settings(handle)?;
        macro_rules! scalars {
            ($kind:ident) => {
                Self::$kind(Scalar::new(&settings, alpha.cast())?, Scalar::new(&settings, beta.cast())?)
            };
        }
        Ok(match compute {
            2 | 64 | 65 => scalars!(F16),
            0 | 68 | 69 | 74..=78 => scalars!(F32),
            1 | 70 | 71 | 79 => scalars!(F64),
            10 | 72 | 73 => scalars!(I32),
            _ => return Err(NOT_SUPPORTED),
        })
    }

    fn get(self) -> (f64, f64) {
        match self {
            Self::F16(alpha, beta) => (alpha.get().to_f64(), beta.get().to_f64()),
            Self::F32(alpha, beta) => (f64::from(alpha.get()), f64::from(beta.get())),
            Self::F64(alpha, beta) => (alpha.get(), beta.get()),
            Self::I32(alpha, beta) => (f64::from(alpha.get()), f64::from(beta.get())),
        }
    }

    fn is_double(self) -> bool {
        matches!(self, Self::F64(..) | Self::I32(..))
    }
}

/// A matrix of rows x columns at an address, in another type.
///
/// # Safety
///
/// The address has such a matrix.
unsafe fn read(kind: Type, address: usize, [rows, columns, ld]: [usize; 3]) -> Vec<f64> {
    let element = |index: usize| {
        let (column, row) = (index / rows.max(1), index % rows.max(1));
        // SAFETY: the caller's promise.
        unsafe { kind.read(address + (column * ld + row) * kind.bytes()) }
    };
    (0..rows * columns).map(element).collect()
}

struct Mixed {
    shape: Shape,
    kinds: [Type; 3],
    scale: Scale,
}

impl Mixed {
    /// # Safety
    ///
    /// The addresses have matrices of the shape and the kinds.
    unsafe fn multiply(&self, [a, b, c]: [usize; 3]) {
        let Shape { m, n, k, lda, ldb, ldc, .. } = self.shape;
        let plain = |operation: Operation| operation == Operation::None;
        let (a_size, b_size) = (
            if plain(self.shape.a) { [m, k, lda] } else { [k, m, lda] },
            if plain(self.shape.b) { [k, n, ldb] } else { [n, k, ldb] },
        );
        // SAFETY: the caller's promise.
        let (a, b) = unsafe { (read(self.kinds[0], a, a_size), read(self.kinds[1], b, b_size)) };
        let (alpha, beta) = self.scale.get();
        let shape = Shape { lda: a_size[0].max(1), ldb: b_size[0].max(1), ldc: m.max(1), ..self.shape };
        let mut product = vec![0.0; m * n];
        if self.scale.is_double() {
            // SAFETY: the vectors have matrices of this shape.
            unsafe { shape.multiply(alpha, a.as_ptr(), b.as_ptr(), 0.0, product.as_mut_ptr()) };
        } else {
            let narrow =
                |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect::<Vec<f32>>();
            let (a, b, mut sum) = (narrow(a), narrow(b), vec![0.0_f32; m * n]);
            // SAFETY: as above.
            unsafe { shape.multiply(alpha as f32, a.as_ptr(), b.as_ptr(), 0.0, sum.as_mut_ptr()) };
            product = sum.into_iter().map(f64::from).collect();
        }
        let kind = self.kinds[2];
        for (index, product) in product.into_iter().enumerate() {
            let (column, row) = (index / m, index % m);
            let place = c + (column * ldc + row) * kind.bytes();
            // SAFETY: the caller's promise. Where beta is 0 what was there does not count, not even a NaN.
            unsafe { kind.write(place, product + if beta == 0.0 { 0.0 } else { beta * kind.read(place) }) };
        }
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
    alpha: *const c_void,
    a: usize,
    a_type: c_int,
    lda: c_int,
    b: usize,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
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
    alpha: *const c_void,
    a: usize,
    a_type: c_int,
    lda: c_int,
    stride_a: i64,
    b: usize,
    b_type: c_int,
    ldb: c_int,
    stride_b: i64,
    beta: *const c_void,
    c: usize,
    c_type: c_int,
    ldc: c_int,
    stride_c: i64,
    count: c_int,
    compute: c_int,
    _algorithm: c_int,
) -> Status {
    let prepare = || {
        let shape = Shape::new([transa, transb], [m, n, k], [lda, ldb, ldc])?;
        let kinds = [Type::new(a_type)?, Type::new(b_type)?, Type::new(c_type)?];
        let scale = Scale::new(handle, compute, [alpha, beta])?;
        let count = usize::try_from(count).map_err(|_| INVALID_VALUE)?;
        Ok((settings(handle)?, Mixed { shape, kinds, scale }, count))
    };
    let (settings, mixed, count) = match prepare() {
        Ok(prepared) => prepared,
        Err(status) => return status,
    };
    status(queue(settings.stream, move || {
        for index in 0..count as i64 {
            let at = |base: usize, stride: i64, kind: Type| {
                base.wrapping_add_signed((index * stride) as isize * kind.bytes() as isize)
            };
            let [a_kind, b_kind, c_kind] = mixed.kinds;
            // SAFETY: the caller of cuBLAS gives matrices of this shape in device memory, which is this process's.
            unsafe {
                mixed.multiply([at(a, stride_a, a_kind), at(b, stride_b, b_kind), at(c, stride_c, c_kind)])
            };
        }
    }))
}
