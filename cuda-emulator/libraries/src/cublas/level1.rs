// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on vectors (section 2.5).

use std::ffi::c_int;

use super::handle::{Place, Scalar, queue, queue_result, settings};
use super::{Status, status};
use crate::exported::exported;
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

exported! {
    /// y = alpha x + y.
    pub extern "C" fn(kind) [
        cublasSaxpy_v2(Type::F32), cublasDaxpy_v2(Type::F64), cublasCaxpy_v2(Type::C32), cublasZaxpy_v2(Type::C64),
    ]
    (handle: Handle, n: c_int, alpha: usize, x: usize, incx: c_int, y: usize, incy: c_int) -> Status {
        let (x, y) = (Given::new(kind, n, x, incx), Given::new(kind, n, y, incy));
        status(each(handle, x, y, Some(kind.at(alpha)), |alpha, x, y| alpha * x + y))
    }

    /// x = alpha x.
    pub extern "C" fn(kind) [
        cublasSscal_v2(Type::F32), cublasDscal_v2(Type::F64), cublasCscal_v2(Type::C32), cublasZscal_v2(Type::C64),
    ]
    (handle: Handle, n: c_int, alpha: usize, x: usize, incx: c_int) -> Status {
        let x = Given::new(kind, n, x, incx);
        status(each(handle, x, x, Some(kind.at(alpha)), |alpha, x, _| alpha * x))
    }

    /// y = x.
    pub extern "C" fn(kind) [
        cublasScopy_v2(Type::F32), cublasDcopy_v2(Type::F64), cublasCcopy_v2(Type::C32), cublasZcopy_v2(Type::C64),
    ]
    (handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int) -> Status {
        let (x, y) = (Given::new(kind, n, x, incx), Given::new(kind, n, y, incy));
        status(each(handle, x, y, None, |_, x, _| x))
    }

    /// Exchanges x and y.
    pub extern "C" fn(kind) [
        cublasSswap_v2(Type::F32), cublasDswap_v2(Type::F64), cublasCswap_v2(Type::C32), cublasZswap_v2(Type::C64),
    ]
    (handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int) -> Status {
        let (x, y) = (Given::new(kind, n, x, incx), Given::new(kind, n, y, incy));
        status(swap(handle, x, y))
    }

    /// The length of x.
    pub extern "C" fn(kind, real) [
        cublasSnrm2_v2(Type::F32, Type::F32), cublasDnrm2_v2(Type::F64, Type::F64), cublasScnrm2_v2(Type::C32, Type::F32),
        cublasDznrm2_v2(Type::C64, Type::F64),
    ]
    (handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
        status(reduce(handle, Given::new(kind, n, x, incx), real.at(result), norm))
    }

    /// The sum of absolute values.
    pub extern "C" fn(kind, real) [
        cublasSasum_v2(Type::F32, Type::F32), cublasDasum_v2(Type::F64, Type::F64), cublasScasum_v2(Type::C32, Type::F32),
        cublasDzasum_v2(Type::C64, Type::F64),
    ]
    (handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
        status(reduce(handle, Given::new(kind, n, x, incx), real.at(result), sum))
    }

    /// The index of the largest absolute value.
    pub extern "C" fn(kind) [
        cublasIsamax_v2(Type::F32), cublasIdamax_v2(Type::F64), cublasIcamax_v2(Type::C32), cublasIzamax_v2(Type::C64),
    ]
    (handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
        status(reduce(handle, Given::new(kind, n, x, incx), Type::I32.at(result), largest))
    }

    /// The index of the smallest absolute value.
    pub extern "C" fn(kind) [
        cublasIsamin_v2(Type::F32), cublasIdamin_v2(Type::F64), cublasIcamin_v2(Type::C32), cublasIzamin_v2(Type::C64),
    ]
    (handle: Handle, n: c_int, x: usize, incx: c_int, result: usize) -> Status {
        status(reduce(handle, Given::new(kind, n, x, incx), Type::I32.at(result), smallest))
    }

    /// The sum of products of elements.
    pub extern "C" fn(kind, conjugate) [
        cublasSdot_v2(Type::F32, false), cublasDdot_v2(Type::F64, false), cublasCdotu_v2(Type::C32, false),
        cublasCdotc_v2(Type::C32, true), cublasZdotu_v2(Type::C64, false), cublasZdotc_v2(Type::C64, true),
    ]
    (handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int, result: usize) -> Status {
        let (x, y) = (Given::new(kind, n, x, incx), Given::new(kind, n, y, incy));
        status(dot(handle, x, y, kind.at(result), conjugate))
    }

    /// Rotates points in a plane.
    pub extern "C" fn(kind, real, sine) [
        cublasSrot_v2(Type::F32, Type::F32, Type::F32), cublasDrot_v2(Type::F64, Type::F64, Type::F64),
        cublasCrot_v2(Type::C32, Type::F32, Type::C32), cublasCsrot_v2(Type::C32, Type::F32, Type::F32),
        cublasZrot_v2(Type::C64, Type::F64, Type::C64), cublasZdrot_v2(Type::C64, Type::F64, Type::F64),
    ]
    (handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int, c: usize, s: usize) -> Status {
        let (x, y) = (Given::new(kind, n, x, incx), Given::new(kind, n, y, incy));
        status(rotate(handle, x, y, real.at(c), sine.at(s)))
    }
}

exported! {
    /// x = alpha x, with a real alpha.
    pub extern "C" fn(kind, real) [cublasCsscal_v2(Type::C32, Type::F32), cublasZdscal_v2(Type::C64, Type::F64)]
    (handle: Handle, n: c_int, alpha: usize, x: usize, incx: c_int) -> Status {
        let x = Given::new(kind, n, x, incx);
        status(each(handle, x, x, Some(real.at(alpha)), |alpha, x, _| alpha * x))
    }
}
