// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on vectors (section 2.5).

use std::ffi::c_int;

use super::handle::{Place, Scalar, queue, queue_result, settings};
use super::{Status, status};
use crate::handles::Handle;
use crate::memory::Vector;
use crate::numbers::{C64, Type, TypedAddress};
use crate::stream::{Done, Fault};

/// A vector of an argument list: its address and its step.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    kind: Type,
    count: usize,
    base: usize,
    step: c_int,
}

impl Given {
    /// Nothing is done for a number below 1.
    pub fn new(kind: Type, n: c_int, base: usize, step: c_int) -> Self {
        Self { kind, count: usize::try_from(n).unwrap_or(0), base, step }
    }

    fn open(self) -> Result<Vector, Fault> {
        Vector::new(self.kind, self.base, self.count, i64::from(self.step))
    }
}

/// y = f(x, y) for each element.
pub fn each(
    handle: Handle,
    x: Given,
    y: Given,
    scalar: Option<TypedAddress>,
    function: fn(C64, C64, C64) -> C64,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let scalar = match scalar {
        Some(TypedAddress { kind, address }) => Scalar::new(&settings, kind, address)?,
        None => Scalar::Known(C64::default()),
    };
    queue(settings.stream, move || {
        let (scalar, x, y) = (scalar.get()?, x.open()?, y.open()?);
        (0..y.count()).for_each(|index| y.set(index, function(scalar, x.get(index), y.get(index))));
        Ok(())
    })
}

/// A result that depends on all elements.
pub fn reduce(
    handle: Handle,
    x: Given,
    result: TypedAddress,
    function: impl Fn(&[C64]) -> C64 + Send + Sync + 'static,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let place = Place::new(&settings, result.kind, result.address)?;
    queue_result(&settings, move || place.set(function(&x.open()?.load())))
}

/// The sum of products of elements.
pub fn dot(
    handle: Handle,
    x: Given,
    y: Given,
    result: TypedAddress,
    is_conjugate: bool,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let place = Place::new(&settings, result.kind, result.address)?;
    queue_result(&settings, move || {
        let (x, y) = (x.open()?.load(), y.open()?.load());
        let conjugate = |value: &C64| if is_conjugate { value.conj() } else { *value };
        place.set(x.iter().zip(&y).map(|(x, y)| conjugate(x) * y).sum())
    })
}

/// (x, y) = (c x + s y, c y - conj(s) x).
pub fn rotate(handle: Handle, x: Given, y: Given, c: TypedAddress, s: TypedAddress) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (c, s) = (Scalar::new(&settings, c.kind, c.address)?, Scalar::new(&settings, s.kind, s.address)?);
    queue(settings.stream, move || {
        let (c, s, x, y) = (c.get()?, s.get()?, x.open()?, y.open()?);
        for index in 0..x.count() {
            let (a, b) = (x.get(index), y.get(index));
            x.set(index, c * a + s * b);
            y.set(index, c * b - s.conj() * a);
        }
        Ok(())
    })
}

/// Exchanges two vectors.
pub fn swap(handle: Handle, x: Given, y: Given) -> Result<(), Status> {
    let settings = settings(handle)?;
    queue(settings.stream, move || -> Done {
        let (x, y) = (x.open()?, y.open()?);
        for index in 0..x.count() {
            let (a, b) = (x.get(index), y.get(index));
            x.set(index, b);
            y.set(index, a);
        }
        Ok(())
    })
}

/// The absolute value that `asum` and `amax` use.
fn sum_of_parts(value: C64) -> f64 {
    value.re.abs() + value.im.abs()
}

/// Returns the index of the extreme element, from 1, or 0 without elements.
fn extreme(values: &[C64], is_better: fn(f64, f64) -> bool) -> C64 {
    let mut best: Option<(usize, f64)> = None;
    for (index, size) in values.iter().map(|value| sum_of_parts(*value)).enumerate() {
        if best.is_none_or(|(_, known)| is_better(size, known)) {
            best = Some((index + 1, size));
        }
    }
    C64::new(best.map_or(0.0, |(index, _)| index as f64), 0.0)
}

/// The index of the largest element.
pub fn largest(values: &[C64]) -> C64 {
    extreme(values, |new, old| new > old)
}

/// The index of the smallest element.
pub fn smallest(values: &[C64]) -> C64 {
    extreme(values, |new, old| new < old)
}

/// The sum of absolute values.
pub fn sum(values: &[C64]) -> C64 {
    C64::new(values.iter().map(|value| sum_of_parts(*value)).sum(), 0.0)
}

/// The length of a vector.
pub fn norm(values: &[C64]) -> C64 {
    C64::new(values.iter().map(C64::norm_sqr).sum::<f64>().sqrt(), 0.0)
}

macro_rules! vectors {
    ($($kind:ident $real:ident: $axpy:ident $scal:ident $copy:ident $swap:ident $nrm2:ident $asum:ident $amax:ident $amin:ident
       [$($dot:ident $conjugate:literal)*] [$($rot:ident $sine:ident)*];)*) => { $(
        /// y = alpha x + y.
        #[unsafe(no_mangle)]
        pub extern "C" fn $axpy(
            handle: Handle, n: c_int, alpha: usize, x: usize, incx: c_int, y: usize, incy: c_int,
        ) -> Status {
            let (x, y) = (Given::new(Type::$kind, n, x, incx), Given::new(Type::$kind, n, y, incy));
            status(each(handle, x, y, Some(Type::$kind.at(alpha)), |alpha, x, y| alpha * x + y))
        }

        /// x = alpha x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $scal(handle: Handle, n: c_int, alpha: usize, x: usize, incx: c_int) -> Status {
            let x = Given::new(Type::$kind, n, x, incx);
            status(each(handle, x, x, Some(Type::$kind.at(alpha)), |alpha, x, _| alpha * x))
        }

        /// y = x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $copy(handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int) -> Status {
            let (x, y) = (Given::new(Type::$kind, n, x, incx), Given::new(Type::$kind, n, y, incy));
            status(each(handle, x, y, None, |_, x, _| x))
        }

        /// Exchanges x and y.
        #[unsafe(no_mangle)]
        pub extern "C" fn $swap(handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int) -> Status {
            let (x, y) = (Given::new(Type::$kind, n, x, incx), Given::new(Type::$kind, n, y, incy));
            status(swap(handle, x, y))
        }

        /// The length of x.
        #[unsafe(no_mangle)]
        pub extern "C" fn $nrm2(handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
            status(reduce(handle, Given::new(Type::$kind, n, x, incx), Type::$real.at(result), norm))
        }

        /// The sum of absolute values.
        #[unsafe(no_mangle)]
        pub extern "C" fn $asum(handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
            status(reduce(handle, Given::new(Type::$kind, n, x, incx), Type::$real.at(result), sum))
        }

        /// The index of the largest absolute value.
        #[unsafe(no_mangle)]
        pub extern "C" fn $amax(handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
            status(reduce(handle, Given::new(Type::$kind, n, x, incx), Type::I32.at(result), largest))
        }

        /// The index of the smallest absolute value.
        #[unsafe(no_mangle)]
        pub extern "C" fn $amin(handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
            status(reduce(handle, Given::new(Type::$kind, n, x, incx), Type::I32.at(result), smallest))
        }

        $(
            /// The sum of products of elements.
            #[unsafe(no_mangle)]
            pub extern "C" fn $dot(
                handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int, result: usize,
            ) -> Status {
                let (x, y) = (Given::new(Type::$kind, n, x, incx), Given::new(Type::$kind, n, y, incy));
                status(dot(handle, x, y, Type::$kind.at(result), $conjugate))
            }
        )*

        $(
            /// Rotates points in a plane.
            #[unsafe(no_mangle)]
            pub extern "C" fn $rot(
                handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int, c: usize, s: usize,
            ) -> Status {
                let (x, y) = (Given::new(Type::$kind, n, x, incx), Given::new(Type::$kind, n, y, incy));
                status(rotate(handle, x, y, Type::$real.at(c), Type::$sine.at(s)))
            }
        )*
    )* };
}

vectors! {
    F32 F32: cublasSaxpy_v2 cublasSscal_v2 cublasScopy_v2 cublasSswap_v2 cublasSnrm2_v2 cublasSasum_v2 cublasIsamax_v2
        cublasIsamin_v2 [cublasSdot_v2 false] [cublasSrot_v2 F32];
    F64 F64: cublasDaxpy_v2 cublasDscal_v2 cublasDcopy_v2 cublasDswap_v2 cublasDnrm2_v2 cublasDasum_v2 cublasIdamax_v2
        cublasIdamin_v2 [cublasDdot_v2 false] [cublasDrot_v2 F64];
    C32 F32: cublasCaxpy_v2 cublasCscal_v2 cublasCcopy_v2 cublasCswap_v2 cublasScnrm2_v2 cublasScasum_v2 cublasIcamax_v2
        cublasIcamin_v2 [cublasCdotu_v2 false cublasCdotc_v2 true] [cublasCrot_v2 C32 cublasCsrot_v2 F32];
    C64 F64: cublasZaxpy_v2 cublasZscal_v2 cublasZcopy_v2 cublasZswap_v2 cublasDznrm2_v2 cublasDzasum_v2 cublasIzamax_v2
        cublasIzamin_v2 [cublasZdotu_v2 false cublasZdotc_v2 true] [cublasZrot_v2 C64 cublasZdrot_v2 F64];
}

macro_rules! real_factors {
    ($($kind:ident $real:ident: $scal:ident;)*) => { $(
        /// x = alpha x, with a real alpha.
        #[unsafe(no_mangle)]
        pub extern "C" fn $scal(handle: Handle, n: c_int, alpha: usize, x: usize, incx: c_int) -> Status {
            let x = Given::new(Type::$kind, n, x, incx);
            status(each(handle, x, x, Some(Type::$real.at(alpha)), |alpha, x, _| alpha * x))
        }
    )* };
}
real_factors! {
    C32 F32: cublasCsscal_v2;
    C64 F64: cublasZdscal_v2;
}
