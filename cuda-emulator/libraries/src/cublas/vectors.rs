// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on vectors (section 2.5).

use std::ffi::c_int;

use super::element::{C32, C64, Element};
use super::handle::{Handle, Scalar, queue, queue_result, settings};
use super::{INVALID_VALUE, Status, status};

/// A vector in device memory.
#[derive(Clone, Copy, Debug)]
struct Vector {
    base: usize,
    count: usize,
    step: isize,
}

impl Vector {
    /// `n` elements, `step` elements apart. A negative step begins at the end (as in BLAS).
    fn new<T>(n: c_int, base: usize, step: c_int) -> Self {
        let count = usize::try_from(n).unwrap_or(0);
        let step = step as isize;
        let back = if step < 0 { count.saturating_sub(1) * step.unsigned_abs() * size_of::<T>() } else { 0 };
        Self { base: base + back, count, step: step * size_of::<T>() as isize }
    }

    /// The element of that index.
    fn at<T>(self, index: usize) -> *mut T {
        self.base.wrapping_add_signed(index as isize * self.step) as *mut T
    }

    /// # Safety
    ///
    /// The vector has elements of this type.
    unsafe fn read<T>(self, index: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.at::<T>(index).read_unaligned() }
    }
}

fn axpy<T: Element>(
    handle: Handle,
    n: c_int,
    alpha: *const T,
    x: (usize, c_int),
    y: (usize, c_int),
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let alpha = Scalar::new(&settings, alpha)?;
    let (x, y) = (Vector::new::<T>(n, x.0, x.1), Vector::new::<T>(n, y.0, y.1));
    queue(settings.stream, move || {
        let alpha = alpha.get();
        for index in 0..x.count {
            // SAFETY: the caller of cuBLAS gives vectors of these sizes in device memory, which is this process's.
            unsafe { y.at::<T>(index).write_unaligned(alpha * x.read::<T>(index) + y.read::<T>(index)) };
        }
    })
}

fn scal<T: Element>(handle: Handle, n: c_int, alpha: *const T, x: (usize, c_int)) -> Result<(), Status> {
    let settings = settings(handle)?;
    let alpha = Scalar::new(&settings, alpha)?;
    let x = Vector::new::<T>(n, x.0, x.1);
    queue(settings.stream, move || {
        let alpha = alpha.get();
        for index in 0..x.count {
            // SAFETY: as in `axpy`.
            unsafe { x.at::<T>(index).write_unaligned(alpha * x.read::<T>(index)) };
        }
    })
}

fn dot<T: Element>(
    handle: Handle,
    n: c_int,
    x: (usize, c_int),
    y: (usize, c_int),
    result: usize,
    conjugates: bool,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    if result == 0 {
        return Err(INVALID_VALUE);
    }
    let (x, y) = (Vector::new::<T>(n, x.0, x.1), Vector::new::<T>(n, y.0, y.1));
    queue_result(&settings, move || {
        let sum = (0..x.count).fold(T::zero(), |sum, index| {
            // SAFETY: as in `axpy`.
            let (x, y) = unsafe { (x.read::<T>(index), y.read::<T>(index)) };
            sum + if conjugates { x.conjugate() } else { x } * y
        });
        // SAFETY: the caller gives a place for the result, which it does not touch until then.
        unsafe { (result as *mut T).write_unaligned(sum) };
    })
}

fn norm<T: Element>(
    handle: Handle,
    n: c_int,
    x: (usize, c_int),
    put: impl Fn(f64) + Send + Sync + 'static,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let x = Vector::new::<T>(n, x.0, x.1);
    queue_result(&settings, move || {
        // SAFETY: as in `axpy`.
        let sum: f64 = (0..x.count).map(|index| unsafe { x.read::<T>(index) }.square()).sum();
        put(sum.sqrt());
    })
}

macro_rules! vectors {
    ($($t:ty, $real:ty: $axpy:ident $scal:ident $nrm2:ident [$($dot:ident $conjugates:literal)*];)*) => { $(
        /// y = alpha x + y.
        #[unsafe(no_mangle)]
        pub extern "C" fn $axpy(
            handle: Handle, n: c_int, alpha: *const $t, x: usize, incx: c_int, y: usize, incy: c_int,
        ) -> Status {
            status(axpy(handle, n, alpha, (x, incx), (y, incy)))
        }

        /// x = alpha x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $scal(handle: Handle, n: c_int, alpha: *const $t, x: usize, incx: c_int) -> Status {
            status(scal(handle, n, alpha, (x, incx)))
        }

        /// The length of x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $nrm2(handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
            if result == 0 {
                return INVALID_VALUE;
            }
            // SAFETY: the caller gives a place for the result, which it does not touch until then.
            let put = move |value: f64| unsafe { (result as *mut $real).write_unaligned(value as $real) };
            status(norm::<$t>(handle, n, (x, incx), put))
        }

        $(
            /// The sum of products of elements.
            #[unsafe(no_mangle)]
            pub extern "C" fn $dot(
                handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int, result: usize,
            ) -> Status {
                status(dot::<$t>(handle, n, (x, incx), (y, incy), result, $conjugates))
            }
        )*
    )* };
}

vectors! {
    f32, f32: cublasSaxpy_v2 cublasSscal_v2 cublasSnrm2_v2 [cublasSdot_v2 false];
    f64, f64: cublasDaxpy_v2 cublasDscal_v2 cublasDnrm2_v2 [cublasDdot_v2 false];
    C32, f32: cublasCaxpy_v2 cublasCscal_v2 cublasScnrm2_v2 [cublasCdotu_v2 false cublasCdotc_v2 true];
    C64, f64: cublasZaxpy_v2 cublasZscal_v2 cublasDznrm2_v2 [cublasZdotu_v2 false cublasZdotc_v2 true];
}
