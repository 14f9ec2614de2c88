// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on single elements, and reductions.

use std::ffi::{c_int, c_void};

use super::super::arithmetic::Operation;
use super::super::layout::{Layout, data_type, spread, spreads};
use super::super::reduction::Reduction;
use super::super::{BAD_PARAM, Blend, NOT_SUPPORTED, Status, give, queue, status, stream_of};
use super::{blend, create, described, destroy, factor, operand, set};
use crate::exported::exported;
use crate::handles::Handle;

/// A `cudnnOpTensorDescriptor_t`: the operation's number, the type that it is computed in, and whether NaN is propagated.
#[derive(Clone, Copy, Debug)]
struct OpTensor([c_int; 3]);

/// A `cudnnReduceTensorDescriptor_t`: the same, whether places are wanted, and their type.
#[derive(Clone, Copy, Debug)]
struct ReduceTensor([c_int; 5]);

exported! {
    /// Creates a descriptor.
    pub unsafe extern "C" fn(create) [
        cudnnCreateOpTensorDescriptor(create::<OpTensor>), cudnnCreateReduceTensorDescriptor(create::<ReduceTensor>),
    ]
    (place: *mut Handle) -> Status {
        // SAFETY: the caller gives a place for a handle, or null.
        unsafe { create(place) }
    }

    /// Ends a descriptor.
    pub extern "C" fn(destroy) [
        cudnnDestroyOpTensorDescriptor(destroy::<OpTensor>), cudnnDestroyReduceTensorDescriptor(destroy::<ReduceTensor>),
    ]
    (descriptor: Handle) -> Status {
        destroy(descriptor)
    }
}

/// y = alpha x + beta y, in the layout of y.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnTransformTensor(
    handle: Handle,
    alpha: *const c_void,
    x_descriptor: Handle,
    x: usize,
    beta: *const c_void,
    y_descriptor: Handle,
    y: usize,
) -> Status {
    let body = || {
        let (x, y) = (operand(x_descriptor, x)?, operand(y_descriptor, y)?);
        if x.dims() != y.dims() {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &y.layout)? };
        queue(stream_of(handle)?, move || y.store(&x.load()?, blend))
    };
    status(body())
}

/// C = alpha A + beta C, where dimensions of A that are 1 repeat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnAddTensor(
    handle: Handle,
    alpha: *const c_void,
    a_descriptor: Handle,
    a: usize,
    beta: *const c_void,
    c_descriptor: Handle,
    c: usize,
) -> Status {
    let body = || {
        let (a, c) = (operand(a_descriptor, a)?, operand(c_descriptor, c)?);
        if !spreads(a.dims(), c.dims()) {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &c.layout)? };
        queue(stream_of(handle)?, move || {
            c.check()?;
            c.store(&spread(&a.load()?, a.dims(), c.dims()), blend)
        })
    };
    status(body())
}

/// Describes an operation on pairs.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetOpTensorDescriptor(
    descriptor: Handle,
    operation: c_int,
    kind: c_int,
    nan: c_int,
) -> Status {
    let checked = || {
        Operation::new(operation)?;
        data_type(kind)?;
        if (0..=1).contains(&nan) { Ok(OpTensor([operation, kind, nan])) } else { Err(BAD_PARAM) }
    };
    status(set(descriptor, checked()))
}

/// Returns the description of an operation on pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetOpTensorDescriptor(
    descriptor: Handle,
    operation: *mut c_int,
    kind: *mut c_int,
    nan: *mut c_int,
) -> Status {
    let answer = described::<OpTensor>(descriptor).and_then(|OpTensor(values)| {
        // SAFETY: the caller gives places for numbers, or null.
        [operation, kind, nan]
            .into_iter()
            .zip(values)
            .try_for_each(|(place, value)| unsafe { give(place, value) })
    });
    status(answer)
}

/// C = op(alpha1 A, alpha2 B) + beta C, where dimensions of B that are 1 repeat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnOpTensor(
    handle: Handle,
    descriptor: Handle,
    alpha1: *const c_void,
    a_descriptor: Handle,
    a: usize,
    alpha2: *const c_void,
    b_descriptor: Handle,
    b: usize,
    beta: *const c_void,
    c_descriptor: Handle,
    c: usize,
) -> Status {
    let body = || {
        let OpTensor([number, _, nan]) = described(descriptor)?;
        let operation = Operation::new(number)?;
        let (a, c) = (operand(a_descriptor, a)?, operand(c_descriptor, c)?);
        let b = if operation.is_unary() { a.clone() } else { operand(b_descriptor, b)? };
        if a.dims() != c.dims() || !spreads(b.dims(), c.dims()) {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let (factors, beta) = unsafe {
            let second = if operation.is_unary() { alpha1 } else { alpha2 };
            ((factor(alpha1, &c.layout)?, factor(second, &c.layout)?), factor(beta, &c.layout)?)
        };
        queue(stream_of(handle)?, move || {
            let mut values = a.load()?;
            let others = spread(&b.load()?, b.dims(), c.dims());
            values.iter_mut().zip(others).for_each(|(value, other)| {
                *value = operation.of(factors.0 * *value, factors.1 * other, nan == 1);
            });
            c.store(&values, Blend { alpha: 1.0, beta })
        })
    };
    status(body())
}

/// Sets all elements to a value of the tensor's type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetTensor(
    handle: Handle,
    y_descriptor: Handle,
    y: usize,
    value: *const c_void,
) -> Status {
    let body = || {
        let y = operand(y_descriptor, y)?;
        if value.is_null() {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives a value of the tensor's type.
        let value = unsafe { y.layout.kind.read(value as usize) }.re;
        queue(stream_of(handle)?, move || {
            y.check()?;
            y.store(&vec![value; y.layout.count()], Blend::REPLACE)
        })
    };
    status(body())
}

/// y = alpha y.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnScaleTensor(
    handle: Handle,
    y_descriptor: Handle,
    y: usize,
    alpha: *const c_void,
) -> Status {
    let body = || {
        let y = operand(y_descriptor, y)?;
        // SAFETY: the caller gives a factor, or null.
        let alpha = unsafe { factor(alpha, &y.layout)? };
        queue(stream_of(handle)?, move || y.store(&y.load()?, Blend { alpha, beta: 0.0 }))
    };
    status(body())
}

/// Describes a reduction.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetReduceTensorDescriptor(
    descriptor: Handle,
    operation: c_int,
    kind: c_int,
    nan: c_int,
    indices: c_int,
    index_type: c_int,
) -> Status {
    let checked = || {
        Reduction::new(operation)?;
        data_type(kind)?;
        let is_known = (0..=1).contains(&nan) && (0..=1).contains(&indices) && (0..=3).contains(&index_type);
        if is_known { Ok(ReduceTensor([operation, kind, nan, indices, index_type])) } else { Err(BAD_PARAM) }
    };
    status(set(descriptor, checked()))
}

/// Returns the description of a reduction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetReduceTensorDescriptor(
    descriptor: Handle,
    operation: *mut c_int,
    kind: *mut c_int,
    nan: *mut c_int,
    indices: *mut c_int,
    index_type: *mut c_int,
) -> Status {
    let answer = described::<ReduceTensor>(descriptor).and_then(|ReduceTensor(values)| {
        let places = [operation, kind, nan, indices, index_type];
        // SAFETY: the caller gives places for numbers, or null.
        places.into_iter().zip(values).try_for_each(|(place, value)| unsafe { give(place, value) })
    });
    status(answer)
}

/// Returns the reduction of a descriptor, for tensors that fit. The positions of minima and maxima are not returned.
fn reduction(descriptor: Handle, a: &Layout, c: &Layout) -> Result<Reduction, Status> {
    let ReduceTensor([number, _, _, indices, _]) = described(descriptor)?;
    if !spreads(&c.dims, &a.dims) {
        return Err(BAD_PARAM);
    }
    if indices == 0 { Reduction::new(number) } else { Err(NOT_SUPPORTED) }
}

exported! {
    /// Bytes that a reduction needs: none.
    pub unsafe extern "C" fn [cudnnGetReductionIndicesSize, cudnnGetReductionWorkspaceSize]
    (handle: Handle, descriptor: Handle, a: Handle, c: Handle, size: *mut usize) -> Status {
        let body = || {
            stream_of(handle)?;
            reduction(descriptor, &described(a)?, &described(c)?)?;
            // SAFETY: the caller gives a place for a number, or null.
            unsafe { give(size, 0) }
        };
        status(body())
    }
}

/// C = alpha reduce(A) + beta C, over the dimensions in which C has one element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnReduceTensor(
    handle: Handle,
    descriptor: Handle,
    _indices: usize,
    _indices_bytes: usize,
    _workspace: usize,
    _workspace_bytes: usize,
    alpha: *const c_void,
    a_descriptor: Handle,
    a: usize,
    beta: *const c_void,
    c_descriptor: Handle,
    c: usize,
) -> Status {
    let body = || {
        let (a, c) = (operand(a_descriptor, a)?, operand(c_descriptor, c)?);
        let reduction = reduction(descriptor, &a.layout, &c.layout)?;
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &c.layout)? };
        queue(stream_of(handle)?, move || c.store(&reduction.reduce(&a.load()?, a.dims(), c.dims()), blend))
    };
    status(body())
}
