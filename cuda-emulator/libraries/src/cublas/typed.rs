// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on vectors whose types of elements are arguments (section 2.8), and indices of 64 bits.

use std::ffi::c_int;

use super::level1::{Given, dot, each, largest, norm, reduce, rotate, smallest, sum, swap};
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, status};
use crate::exported::exported;
use crate::handles::Handle;
use crate::numbers::Type;

fn kind(number: c_int) -> Result<Type, Status> {
    Type::new(number).ok_or(NOT_SUPPORTED)
}

/// A vector of an argument list: address, type and step.
fn vector(n: c_int, base: usize, number: c_int, step: c_int) -> Result<Given, Status> {
    Ok(Given::new(kind(number)?, n, base, step))
}

exported! {
    /// The sum of products of elements.
    pub extern "C" fn(conjugate) [cublasDotEx(false), cublasDotcEx(true)]
    (
        handle: Handle, n: c_int, x: usize, x_type: c_int, incx: c_int, y: usize, y_type: c_int, incy: c_int, result: usize,
        result_type: c_int, _execution: c_int,
    ) -> Status {
        let compute = || {
            let (x, y) = (vector(n, x, x_type, incx)?, vector(n, y, y_type, incy)?);
            dot(handle, x, y, kind(result_type)?.at(result), conjugate)
        };
        status(compute())
    }
}

exported! {
    /// A number that depends on all elements.
    pub extern "C" fn(function) [cublasNrm2Ex(norm), cublasAsumEx(sum)]
    (
        handle: Handle, n: c_int, x: usize, x_type: c_int, incx: c_int, result: usize, result_type: c_int, _execution: c_int,
    ) -> Status {
        let compute = || reduce(handle, vector(n, x, x_type, incx)?, kind(result_type)?.at(result), function);
        status(compute())
    }
}

exported! {
    /// The index of an extreme element.
    pub extern "C" fn(function) [cublasIamaxEx(largest), cublasIaminEx(smallest)]
    (handle: Handle, n: c_int, x: usize, x_type: c_int, incx: c_int, result: usize) -> Status {
        let compute = || reduce(handle, vector(n, x, x_type, incx)?, Type::I32.at(result), function);
        status(compute())
    }

    /// The same with a result of 64 bits.
    pub extern "C" fn(function) [cublasIamaxEx_64(largest), cublasIaminEx_64(smallest)]
    (handle: Handle, n: i64, x: usize, x_type: c_int, incx: i64, result: usize) -> Status {
        let compute = || reduce(handle, long(kind(x_type)?, n, x, incx)?, Type::I64.at(result), function);
        status(compute())
    }
}

/// A vector whose length and step have 64 bits.
fn long(kind: Type, n: i64, base: usize, step: i64) -> Result<Given, Status> {
    let short = |value: i64| c_int::try_from(value).map_err(|_| INVALID_VALUE);
    Ok(Given::new(kind, short(n)?, base, short(step)?))
}

exported! {
    /// The index of the largest absolute value.
    pub extern "C" fn(kind) [
        cublasIsamax_v2_64(Type::F32), cublasIdamax_v2_64(Type::F64), cublasIcamax_v2_64(Type::C32),
        cublasIzamax_v2_64(Type::C64),
    ]
    (handle: Handle, n: i64, x: usize, incx: i64, result: usize) -> Status {
        let compute = || reduce(handle, long(kind, n, x, incx)?, Type::I64.at(result), largest);
        status(compute())
    }

    /// The index of the smallest absolute value.
    pub extern "C" fn(kind) [
        cublasIsamin_v2_64(Type::F32), cublasIdamin_v2_64(Type::F64), cublasIcamin_v2_64(Type::C32),
        cublasIzamin_v2_64(Type::C64),
    ]
    (handle: Handle, n: i64, x: usize, incx: i64, result: usize) -> Status {
        let compute = || reduce(handle, long(kind, n, x, incx)?, Type::I64.at(result), smallest);
        status(compute())
    }
}

/// x = alpha x.
#[unsafe(no_mangle)]
pub extern "C" fn cublasScalEx(
    handle: Handle,
    n: c_int,
    alpha: usize,
    alpha_type: c_int,
    x: usize,
    x_type: c_int,
    incx: c_int,
    _execution: c_int,
) -> Status {
    let compute = || {
        let x = vector(n, x, x_type, incx)?;
        each(handle, x, x, Some(kind(alpha_type)?.at(alpha)), |alpha, x, _| alpha * x)
    };
    status(compute())
}

/// y = alpha x + y.
#[unsafe(no_mangle)]
pub extern "C" fn cublasAxpyEx(
    handle: Handle,
    n: c_int,
    alpha: usize,
    alpha_type: c_int,
    x: usize,
    x_type: c_int,
    incx: c_int,
    y: usize,
    y_type: c_int,
    incy: c_int,
    _execution: c_int,
) -> Status {
    let compute = || {
        let (x, y) = (vector(n, x, x_type, incx)?, vector(n, y, y_type, incy)?);
        each(handle, x, y, Some(kind(alpha_type)?.at(alpha)), |alpha, x, y| alpha * x + y)
    };
    status(compute())
}

/// y = x.
#[unsafe(no_mangle)]
pub extern "C" fn cublasCopyEx(
    handle: Handle,
    n: c_int,
    x: usize,
    x_type: c_int,
    incx: c_int,
    y: usize,
    y_type: c_int,
    incy: c_int,
) -> Status {
    let compute =
        || each(handle, vector(n, x, x_type, incx)?, vector(n, y, y_type, incy)?, None, |_, x, _| x);
    status(compute())
}

/// Exchanges x and y.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSwapEx(
    handle: Handle,
    n: c_int,
    x: usize,
    x_type: c_int,
    incx: c_int,
    y: usize,
    y_type: c_int,
    incy: c_int,
) -> Status {
    let compute = || swap(handle, vector(n, x, x_type, incx)?, vector(n, y, y_type, incy)?);
    status(compute())
}

/// Rotates points in a plane.
#[unsafe(no_mangle)]
pub extern "C" fn cublasRotEx(
    handle: Handle,
    n: c_int,
    x: usize,
    x_type: c_int,
    incx: c_int,
    y: usize,
    y_type: c_int,
    incy: c_int,
    c: usize,
    s: usize,
    number_type: c_int,
    _execution: c_int,
) -> Status {
    let compute = || {
        let (x, y) = (vector(n, x, x_type, incx)?, vector(n, y, y_type, incy)?);
        let number = kind(number_type)?;
        rotate(handle, x, y, number.at(c), number.at(s))
    };
    status(compute())
}
