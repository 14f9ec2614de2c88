// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Activation functions and softmax.

use std::ffi::{c_double, c_int, c_void};

use super::super::activation::Activation;
use super::super::softmax::Softmax;
use super::super::{BAD_PARAM, NOT_SUPPORTED, Status, give, queue, status, stream_of};
use super::{Descriptor, blend, create, described, destroy, operand, set};
use crate::handles::{self, Handle};

/// A `cudnnActivationDescriptor_t`.
#[derive(Clone, Copy, Debug)]
struct Described {
    mode: c_int,
    nan: c_int,
    coefficient: f64,
    beta: f64,
}

/// Creates a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateActivationDescriptor(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    unsafe { create::<Described>(place) }
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroyActivationDescriptor(descriptor: Handle) -> Status {
    destroy::<Described>(descriptor)
}

/// The function of a descriptor.
pub fn activation(handle: Handle) -> Result<Activation, Status> {
    let found = described::<Described>(handle)?;
    Activation::new(found.mode, found.coefficient, found.beta).ok_or(BAD_PARAM)
}

/// Describes an activation function.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetActivationDescriptor(
    activation: Handle,
    mode: c_int,
    nan: c_int,
    coefficient: c_double,
) -> Status {
    if Activation::new(mode, coefficient, 1.0).is_none() || !(0..=1).contains(&nan) {
        return BAD_PARAM;
    }
    status(set(activation, Ok(Described { mode, nan, coefficient, beta: 1.0 })))
}

/// Returns the description of an activation function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetActivationDescriptor(
    activation: Handle,
    mode: *mut c_int,
    nan: *mut c_int,
    coefficient: *mut c_double,
) -> Status {
    let answer = described::<Described>(activation).and_then(|found| {
        // SAFETY: the caller gives places for numbers, or null.
        unsafe {
            give(mode, found.mode)?;
            give(nan, found.nan)?;
            give(coefficient, found.coefficient)
        }
    });
    status(answer)
}

/// Sets the factor inside of swish.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetActivationDescriptorSwishBeta(activation: Handle, beta: c_double) -> Status {
    let set = handles::with(activation, |found: &mut Descriptor<Described>| {
        found.0.as_mut().map(|found| found.beta = beta)
    });
    status(set.flatten().ok_or(BAD_PARAM))
}

/// Returns the factor inside of swish.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetActivationDescriptorSwishBeta(
    activation: Handle,
    beta: *mut c_double,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    status(described::<Described>(activation).and_then(|found| unsafe { give(beta, found.beta) }))
}

/// y = alpha act(x) + beta y.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnActivationForward(
    handle: Handle,
    descriptor: Handle,
    alpha: *const c_void,
    x_descriptor: Handle,
    x: usize,
    beta: *const c_void,
    y_descriptor: Handle,
    y: usize,
) -> Status {
    let body = || {
        let activation = activation(descriptor)?;
        let (x, y) = (operand(x_descriptor, x)?, operand(y_descriptor, y)?);
        if x.dims() != y.dims() {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &y.layout)? };
        queue(stream_of(handle)?, move || {
            let mut values = x.load()?;
            values.iter_mut().for_each(|value| *value = activation.at(*value));
            y.store(&values, blend)
        })
    };
    status(body())
}

/// dx = alpha act'(x) dy + beta dx.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnActivationBackward(
    handle: Handle,
    descriptor: Handle,
    alpha: *const c_void,
    y_descriptor: Handle,
    _y: usize,
    dy_descriptor: Handle,
    dy: usize,
    x_descriptor: Handle,
    x: usize,
    beta: *const c_void,
    dx_descriptor: Handle,
    dx: usize,
) -> Status {
    let body = || {
        let activation = activation(descriptor)?;
        let (dy, x, dx) =
            (operand(dy_descriptor, dy)?, operand(x_descriptor, x)?, operand(dx_descriptor, dx)?);
        let y = described::<super::Layout>(y_descriptor)?;
        if [&y.dims[..], dy.dims(), x.dims()].iter().any(|dims| *dims != dx.dims()) {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &dx.layout)? };
        queue(stream_of(handle)?, move || {
            let mut values = x.load()?;
            values.iter_mut().zip(dy.load()?).for_each(|(value, dy)| *value = activation.slope(*value) * dy);
            dx.store(&values, blend)
        })
    };
    status(body())
}

/// y = alpha softmax(x) + beta y.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSoftmaxForward(
    handle: Handle,
    algorithm: c_int,
    mode: c_int,
    alpha: *const c_void,
    x_descriptor: Handle,
    x: usize,
    beta: *const c_void,
    y_descriptor: Handle,
    y: usize,
) -> Status {
    let body = || {
        let softmax = Softmax::new(algorithm, mode)?;
        let (x, y) = (operand(x_descriptor, x)?, operand(y_descriptor, y)?);
        if x.dims() != y.dims() {
            return Err(BAD_PARAM);
        }
        if x.dims().len() < 2 {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &y.layout)? };
        queue(stream_of(handle)?, move || y.store(&softmax.forward(&x.load()?, x.dims()), blend))
    };
    status(body())
}

/// dx = alpha times the gradient of softmax's input, plus beta dx.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSoftmaxBackward(
    handle: Handle,
    algorithm: c_int,
    mode: c_int,
    alpha: *const c_void,
    y_descriptor: Handle,
    y: usize,
    dy_descriptor: Handle,
    dy: usize,
    beta: *const c_void,
    dx_descriptor: Handle,
    dx: usize,
) -> Status {
    let body = || {
        let softmax = Softmax::new(algorithm, mode)?;
        let (y, dy, dx) =
            (operand(y_descriptor, y)?, operand(dy_descriptor, dy)?, operand(dx_descriptor, dx)?);
        if y.dims() != dx.dims() || dy.dims() != dx.dims() {
            return Err(BAD_PARAM);
        }
        if dx.dims().len() < 2 {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &dx.layout)? };
        queue(stream_of(handle)?, move || {
            dx.store(&softmax.backward(&y.load()?, &dy.load()?, dx.dims()), blend)
        })
    };
    status(body())
}
