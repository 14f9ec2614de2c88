// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pooling.

use std::ffi::{c_int, c_void};

use super::super::layout::Layout;
use super::super::pooling::{Mode, Pooling};
use super::super::{BAD_PARAM, MAX_RANK, NOT_SUPPORTED, Status, give, queue, rank, status, stream_of, taken};
use super::tensor::give_all;
use super::{blend, create, described, destroy, operand, set};
use crate::handles::Handle;
use crate::stream::Fault;

/// Creates a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreatePoolingDescriptor(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    unsafe { create::<Described>(place) }
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroyPoolingDescriptor(descriptor: Handle) -> Status {
    destroy::<Described>(descriptor)
}

/// A descriptor, and its mode's own number.
#[derive(Clone, Debug)]
struct Described {
    pooling: Pooling,
    mode: c_int,
}

fn new(mode: c_int, nan: c_int, [window, pads, strides]: [&[c_int]; 3]) -> Result<Described, Status> {
    if !(0..=1).contains(&nan) {
        return Err(BAD_PARAM);
    }
    Ok(Described { pooling: Pooling::new(Mode::new(mode)?, nan == 1, window, pads, strides)?, mode })
}

/// Describes the pooling of images.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetPooling2dDescriptor(
    pooling: Handle,
    mode: c_int,
    nan: c_int,
    height: c_int,
    width: c_int,
    pad_h: c_int,
    pad_w: c_int,
    stride_h: c_int,
    stride_w: c_int,
) -> Status {
    status(set(pooling, new(mode, nan, [&[height, width], &[pad_h, pad_w], &[stride_h, stride_w]])))
}

/// Describes pooling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetPoolingNdDescriptor(
    pooling: Handle,
    mode: c_int,
    nan: c_int,
    count: c_int,
    window: *const c_int,
    pads: *const c_int,
    strides: *const c_int,
) -> Status {
    let made = rank(count, 1, MAX_RANK - 2).map_err(|_| NOT_SUPPORTED).and_then(|count| {
        // SAFETY: the caller gives as many numbers, or null.
        let [window, pads, strides] =
            unsafe { [taken(window, count)?, taken(pads, count)?, taken(strides, count)?] };
        new(mode, nan, [&window, &pads, &strides])
    });
    status(set(pooling, made))
}

/// Returns the description of the pooling of images.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetPooling2dDescriptor(
    handle: Handle,
    mode: *mut c_int,
    nan: *mut c_int,
    height: *mut c_int,
    width: *mut c_int,
    pad_h: *mut c_int,
    pad_w: *mut c_int,
    stride_h: *mut c_int,
    stride_w: *mut c_int,
) -> Status {
    let answer = described::<Described>(handle).and_then(|found| {
        let Pooling { propagates_nan, window, pads, strides, .. } = &found.pooling;
        if window.len() != 2 {
            return Err(BAD_PARAM);
        }
        let values = window.iter().chain(pads).chain(strides);
        let places = [height, width, pad_h, pad_w, stride_h, stride_w];
        for (place, value) in places.into_iter().zip(values) {
            // SAFETY: the caller gives places for numbers, or null.
            unsafe { give(place, *value as c_int)? };
        }
        // SAFETY: the caller gives places for numbers, or null.
        unsafe {
            give(mode, found.mode)?;
            give(nan, c_int::from(*propagates_nan))
        }
    });
    status(answer)
}

/// Returns the description of pooling, as many dimensions as the caller has room for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetPoolingNdDescriptor(
    handle: Handle,
    room: c_int,
    mode: *mut c_int,
    nan: *mut c_int,
    count: *mut c_int,
    window: *mut c_int,
    pads: *mut c_int,
    strides: *mut c_int,
) -> Status {
    let answer = described::<Described>(handle).and_then(|found| {
        let room = rank(room, 0, c_int::MAX as usize)?;
        let pooling = &found.pooling;
        for (place, values) in [(window, &pooling.window), (pads, &pooling.pads), (strides, &pooling.strides)]
        {
            // SAFETY: the caller gives room for as many numbers, or null.
            unsafe { give_all(place, values.iter().take(room).map(|value| *value as c_int))? };
        }
        // SAFETY: the caller gives places for numbers, or null.
        unsafe {
            give(mode, found.mode)?;
            give(nan, c_int::from(pooling.propagates_nan))?;
            give(count, pooling.window.len() as c_int)
        }
    });
    status(answer)
}

fn output(pooling: Handle, input: Handle) -> Result<Vec<c_int>, Status> {
    let dims = described::<Described>(pooling)?.pooling.output(&described::<Layout>(input)?.dims)?;
    dims.into_iter().map(|dim| c_int::try_from(dim).map_err(|_| NOT_SUPPORTED)).collect()
}

/// The dimensions of the output of the pooling of images.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetPooling2dForwardOutputDim(
    pooling: Handle,
    input: Handle,
    n: *mut c_int,
    c: *mut c_int,
    h: *mut c_int,
    w: *mut c_int,
) -> Status {
    let answer = output(pooling, input).and_then(|dims| {
        let [_, _, _, _] = dims[..] else { return Err(BAD_PARAM) };
        // SAFETY: the caller gives places for numbers, or null.
        [n, c, h, w].into_iter().zip(dims).try_for_each(|(place, dim)| unsafe { give(place, dim) })
    });
    status(answer)
}

/// The dimensions of the output of pooling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetPoolingNdForwardOutputDim(
    pooling: Handle,
    input: Handle,
    count: c_int,
    dims: *mut c_int,
) -> Status {
    let answer = output(pooling, input).and_then(|found| {
        if usize::try_from(count) != Ok(found.len()) {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives room for as many numbers, or null.
        unsafe { give_all(dims, found.into_iter()) }
    });
    status(answer)
}

/// y = alpha pool(x) + beta y.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnPoolingForward(
    handle: Handle,
    pooling: Handle,
    alpha: *const c_void,
    x_descriptor: Handle,
    x: usize,
    beta: *const c_void,
    y_descriptor: Handle,
    y: usize,
) -> Status {
    let body = || {
        let pooling = described::<Described>(pooling)?.pooling;
        let (x, y) = (operand(x_descriptor, x)?, operand(y_descriptor, y)?);
        if pooling.output(x.dims())? != y.dims() {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &y.layout)? };
        queue(stream_of(handle)?, move || {
            y.check()?;
            y.store(&pooling.forward(&x.load()?, x.dims()).map_err(|_| Fault)?, blend)
        })
    };
    status(body())
}

/// dx = alpha times the gradient of the input, plus beta dx.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnPoolingBackward(
    handle: Handle,
    pooling: Handle,
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
        let pooling = described::<Described>(pooling)?.pooling;
        let y = described::<Layout>(y_descriptor)?;
        let (dy, dx) = (operand(dy_descriptor, dy)?, operand(dx_descriptor, dx)?);
        // Averages do not need the input.
        let x = if pooling.mode == Mode::Max { operand(x_descriptor, x)? } else { dx.clone() };
        if pooling.output(dx.dims())? != dy.dims() || y.dims != dy.dims() || x.dims() != dx.dims() {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &dx.layout)? };
        queue(stream_of(handle)?, move || {
            let gradient = pooling.backward(&x.load()?, &dy.load()?, dx.dims());
            dx.store(&gradient.map_err(|_| Fault)?, blend)
        })
    };
    status(body())
}
