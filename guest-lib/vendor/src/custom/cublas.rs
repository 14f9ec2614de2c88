// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuBLAS: strided copies between host and device memory, and functions that do not involve the worker.

use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bridge;
use cuda_abi::{CUDA_MEMCPY2D, CopyEnd2D};

/// `cublasStatus_t`
type Status = i32;

const SUCCESS: Status = 0;
const NOT_INITIALIZED: Status = 1;
const INVALID_VALUE: Status = 7;
const MAPPING_ERROR: Status = 11;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Device,
    Host,
}

/// Lines of `elements` elements each. The strides between lines are in elements.
#[derive(Clone, Copy, Debug)]
struct Shape {
    elements: i64,
    lines: i64,
    element_bytes: i64,
    source_step: i64,
    destination_step: i64,
}

impl Shape {
    /// Returns the shape of a vector: each element is a line.
    fn vector(n: i64, element_bytes: i64, source_step: i64, destination_step: i64) -> Self {
        Self { elements: 1, lines: n, element_bytes, source_step, destination_step }
    }

    /// Returns the copy between two addresses; `None` if there is nothing to copy.
    ///
    /// Errors: a negative size, a stride below 1, or more bytes than the address space has.
    fn copy(self, to: To, source: u64, destination: u64) -> Result<Option<CUDA_MEMCPY2D>, Status> {
        let Self { elements, lines, element_bytes, source_step, destination_step } = self;
        if elements < 0 || lines < 0 || element_bytes < 1 || source_step < 1 || destination_step < 1 {
            return Err(INVALID_VALUE);
        }
        if elements == 0 || lines == 0 {
            return Ok(None);
        }
        let bytes = |count: i64| {
            let bytes = count.checked_mul(element_bytes).ok_or(INVALID_VALUE)?;
            usize::try_from(bytes).map_err(|_| INVALID_VALUE)
        };
        let is_dense = source_step == elements && destination_step == elements;
        let (elements, lines) =
            if is_dense { (elements.checked_mul(lines).ok_or(INVALID_VALUE)?, 1) } else { (elements, lines) };
        let (source_pitch, destination_pitch) = match is_dense {
            true => (bytes(elements)?, bytes(elements)?),
            false => (bytes(source_step)?, bytes(destination_step)?),
        };
        let (src, dst) = match to {
            To::Device => {
                (CopyEnd2D::host(source, source_pitch), CopyEnd2D::device(destination, destination_pitch))
            }
            To::Host => {
                (CopyEnd2D::device(source, source_pitch), CopyEnd2D::host(destination, destination_pitch))
            }
        };
        Ok(Some(CUDA_MEMCPY2D { src, dst, width: bytes(elements)?, height: lines as usize }))
    }

    /// Runs the copy.
    ///
    /// # Safety
    ///
    /// The host memory has the size of this shape until the copy is done.
    unsafe fn run(self, to: To, source: u64, destination: u64, stream: Option<u64>) -> Status {
        let copy = match self.copy(to, source, destination) {
            Ok(Some(copy)) => copy,
            Ok(None) => return SUCCESS,
            Err(status) => return status,
        };
        // SAFETY: the host memory is as long as the copy by this function's contract.
        match unsafe { bridge::copy(&copy, stream) } {
            Ok(()) => SUCCESS,
            Err(bridge::NOT_FOUND) => NOT_INITIALIZED,
            Err(_) => MAPPING_ERROR,
        }
    }
}

/// Defines copies of vectors and matrices, with integers of 32 and 64 bits.
macro_rules! copies {
    ($($integer:ident: $set_vector:ident $get_vector:ident $set_matrix:ident $get_matrix:ident
        $set_vector_async:ident $get_vector_async:ident $set_matrix_async:ident $get_matrix_async:ident;)*) => { $(
        copies!(@vector $integer $set_vector Device, (), None);
        copies!(@vector $integer $get_vector Host, (), None);
        copies!(@matrix $integer $set_matrix Device, (), None);
        copies!(@matrix $integer $get_matrix Host, (), None);
        copies!(@vector $integer $set_vector_async Device, (stream), Some(stream));
        copies!(@vector $integer $get_vector_async Host, (stream), Some(stream));
        copies!(@matrix $integer $set_matrix_async Device, (stream), Some(stream));
        copies!(@matrix $integer $get_matrix_async Host, (stream), Some(stream));
    )* };
    (@vector $integer:ident $name:ident $to:ident, ($($stream:ident)?), $value:expr) => {
        /// Copies a vector.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            n: $integer, element_bytes: $integer, x: u64, incx: $integer, y: u64, incy: $integer $(, $stream: u64)?
        ) -> Status {
            let shape = Shape::vector(i64::from(n), i64::from(element_bytes), i64::from(incx), i64::from(incy));
            // SAFETY: NVIDIA's function demands of its caller memory for a vector of this shape, until the copy is
            // done.
            unsafe { shape.run(To::$to, x, y, $value) }
        }
    };
    (@matrix $integer:ident $name:ident $to:ident, ($($stream:ident)?), $value:expr) => {
        /// Copies a matrix.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            rows: $integer, columns: $integer, element_bytes: $integer, a: u64, lda: $integer, b: u64, ldb: $integer
            $(, $stream: u64)?
        ) -> Status {
            let shape = Shape {
                elements: i64::from(rows),
                lines: i64::from(columns),
                element_bytes: i64::from(element_bytes),
                source_step: i64::from(lda),
                destination_step: i64::from(ldb),
            };
            // SAFETY: NVIDIA's function demands of its caller memory for a matrix of this shape, until the copy is
            // done.
            unsafe { shape.run(To::$to, a, b, $value) }
        }
    };
}

copies! {
    i32: cublasSetVector cublasGetVector cublasSetMatrix cublasGetMatrix
        cublasSetVectorAsync cublasGetVectorAsync cublasSetMatrixAsync cublasGetMatrixAsync;
    i64: cublasSetVector_64 cublasGetVector_64 cublasSetMatrix_64 cublasGetMatrix_64
        cublasSetVectorAsync_64 cublasGetVectorAsync_64 cublasSetMatrixAsync_64 cublasGetMatrixAsync_64;
}

/// The BLAS error handler: prints the invalid parameter.
///
/// # Safety
///
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasXerbla(name: *const c_char, info: i32) {
    // SAFETY: not null, so a C string by this function's contract.
    let name = if name.is_null() { None } else { unsafe { cuda_program::text(name) } };
    let name = name.as_ref().map(|name| name.to_string_lossy());
    eprintln!(
        " ** On entry to {} parameter number {info} had an illegal value",
        name.as_deref().unwrap_or("a function")
    );
}

/// Accepted, without an effect: this library writes no log.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLoggerConfigure(
    _is_on: i32,
    _to_stdout: i32,
    _to_stderr: i32,
    _file: usize,
) -> Status {
    SUCCESS
}

/// The program's log callback, which is never called.
static CALLBACK: AtomicUsize = AtomicUsize::new(0);

/// Stores the program's callback, which is never called: this library writes no log.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetLoggerCallback(callback: usize) -> Status {
    CALLBACK.store(callback, Ordering::Relaxed);
    SUCCESS
}

/// Returns the program's callback.
///
/// # Safety
///
/// `place` is null or has room for an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetLoggerCallback(place: *mut usize) -> Status {
    // SAFETY: null, or room for an address by this function's contract.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    *place = CALLBACK.load(Ordering::Relaxed);
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_copied_line_by_line() {
        let copy =
            Shape::vector(5, 8, 3, 2).copy(To::Device, 0x1000, 0x7000).expect("valid").expect("not empty");
        assert_eq!((copy.width, copy.height), (8, 5));
        assert_eq!((copy.src, copy.dst), (CopyEnd2D::host(0x1000, 24), CopyEnd2D::device(0x7000, 16)));
        let copy =
            Shape::vector(5, 8, 1, 1).copy(To::Host, 0x7000, 0x1000).expect("valid").expect("not empty");
        assert_eq!((copy.width, copy.height), (40, 1), "without gaps it is one line");
        assert_eq!((copy.src, copy.dst), (CopyEnd2D::device(0x7000, 40), CopyEnd2D::host(0x1000, 40)));
    }

    #[test]
    fn a_matrix_has_leading_dimensions() {
        let shape = Shape { elements: 3, lines: 4, element_bytes: 4, source_step: 3, destination_step: 10 };
        let copy = shape.copy(To::Device, 1, 2).expect("valid").expect("not empty");
        assert_eq!((copy.width, copy.height, copy.src.pitch, copy.dst.pitch), (12, 4, 12, 40));
    }

    #[test]
    fn sizes_are_checked_as_by_nvidia() {
        for (shape, expected) in [
            (Shape::vector(-1, 4, 1, 1), Err(INVALID_VALUE)),
            (Shape::vector(1, 0, 1, 1), Err(INVALID_VALUE)),
            (Shape::vector(1, 4, 0, 1), Err(INVALID_VALUE)),
            (Shape::vector(1, 4, 1, 0), Err(INVALID_VALUE)),
            (Shape::vector(i64::MAX, 4, 1, 1), Err(INVALID_VALUE)),
            (Shape::vector(0, 4, 1, 1), Ok(None)),
        ] {
            assert_eq!(shape.copy(To::Device, 1, 2), expected, "{shape:?}");
        }
    }

    #[test]
    fn the_callback_is_kept() {
        let mut place = 1_usize;
        cublasSetLoggerCallback(0x1234);
        // SAFETY: `place` is a local.
        assert_eq!(unsafe { cublasGetLoggerCallback(&raw mut place) }, SUCCESS);
        assert_eq!(place, 0x1234);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { cublasGetLoggerCallback(std::ptr::null_mut()) }, INVALID_VALUE);
    }
}
