// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Convolutions and their gradients.

use std::ffi::{c_int, c_void};

use super::super::convolution::{Direction, Geometry};
use super::super::layout::{Layout, spread, spreads};
use super::super::reduction::Reduction;
use super::super::{BAD_PARAM, Blend, NOT_SUPPORTED, Operand, Status, queue, status, stream_of};
use super::activation::activation;
use super::algorithms::check;
use super::convolution_descriptor::convolution;
use super::filter::filter;
use super::{blend, factor, operand};
use crate::handles::Handle;
use crate::numbers::Type;

/// The sizes of a convolution of these tensors, checked.
pub fn geometry(handle: Handle, [x, w, y]: [&Layout; 3]) -> Result<Geometry, Status> {
    let found = convolution(handle)?;
    let geometry = Geometry::new(found.parameters()?, &x.dims, &w.dims, &y.dims)?;
    if geometry.groups != found.groups {
        return Err(BAD_PARAM);
    }
    let is_real = matches!(x.kind, Type::F32 | Type::F64 | Type::F16 | Type::Bf16);
    if !is_real || x.kind != w.kind || x.kind != y.kind {
        return Err(NOT_SUPPORTED);
    }
    Ok(geometry)
}

/// Queues what computes one of the three tensors of a convolution from the other two.
fn run(
    handle: Handle,
    direction: Direction,
    geometry: Geometry,
    [first, second, result]: [Operand; 3],
    blend: Blend,
) -> Result<(), Status> {
    queue(stream_of(handle)?, move || {
        result.check()?;
        let kind = result.layout.kind;
        result.store(&geometry.compute(direction, kind, &first.load()?, &second.load()?), blend)
    })
}

/// y = alpha conv(x, w) + beta y.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnConvolutionForward(
    handle: Handle,
    alpha: *const c_void,
    x_descriptor: Handle,
    x: usize,
    w_descriptor: Handle,
    w: usize,
    convolution: Handle,
    algorithm: c_int,
    _workspace: usize,
    _workspace_bytes: usize,
    beta: *const c_void,
    y_descriptor: Handle,
    y: usize,
) -> Status {
    let body = || {
        check(Direction::Forward, algorithm)?;
        let (x, w, y) = (operand(x_descriptor, x)?, filter(w_descriptor, w)?, operand(y_descriptor, y)?);
        let geometry = geometry(convolution, [&x.layout, &w.layout, &y.layout])?;
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &y.layout)? };
        run(handle, Direction::Forward, geometry, [x, w, y], blend)
    };
    status(body())
}

/// dx = alpha times the gradient of the input, plus beta dx.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnConvolutionBackwardData(
    handle: Handle,
    alpha: *const c_void,
    w_descriptor: Handle,
    w: usize,
    dy_descriptor: Handle,
    dy: usize,
    convolution: Handle,
    algorithm: c_int,
    _workspace: usize,
    _workspace_bytes: usize,
    beta: *const c_void,
    dx_descriptor: Handle,
    dx: usize,
) -> Status {
    let body = || {
        check(Direction::Data, algorithm)?;
        let (w, dy, dx) =
            (filter(w_descriptor, w)?, operand(dy_descriptor, dy)?, operand(dx_descriptor, dx)?);
        let geometry = geometry(convolution, [&dx.layout, &w.layout, &dy.layout])?;
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &dx.layout)? };
        run(handle, Direction::Data, geometry, [w, dy, dx], blend)
    };
    status(body())
}

/// dw = alpha times the gradient of the filter, plus beta dw.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnConvolutionBackwardFilter(
    handle: Handle,
    alpha: *const c_void,
    x_descriptor: Handle,
    x: usize,
    dy_descriptor: Handle,
    dy: usize,
    convolution: Handle,
    algorithm: c_int,
    _workspace: usize,
    _workspace_bytes: usize,
    beta: *const c_void,
    dw_descriptor: Handle,
    dw: usize,
) -> Status {
    let body = || {
        check(Direction::Filter, algorithm)?;
        let (x, dy, dw) =
            (operand(x_descriptor, x)?, operand(dy_descriptor, dy)?, filter(dw_descriptor, dw)?);
        let geometry = geometry(convolution, [&x.layout, &dw.layout, &dy.layout])?;
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &dw.layout)? };
        run(handle, Direction::Filter, geometry, [x, dy, dw], blend)
    };
    status(body())
}

/// db = alpha times the sum of dy over all but the channels, plus beta db.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnConvolutionBackwardBias(
    handle: Handle,
    alpha: *const c_void,
    dy_descriptor: Handle,
    dy: usize,
    beta: *const c_void,
    db_descriptor: Handle,
    db: usize,
) -> Status {
    let body = || {
        let (dy, db) = (operand(dy_descriptor, dy)?, operand(db_descriptor, db)?);
        let is_bias = |(dim, size): (usize, &usize)| *size == if dim == 1 { dy.dims()[1] } else { 1 };
        if dy.dims().len() < 2
            || db.dims().len() != dy.dims().len()
            || !db.dims().iter().enumerate().all(is_bias)
        {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &db.layout)? };
        queue(stream_of(handle)?, move || {
            db.store(&Reduction::Add.reduce(&dy.load()?, dy.dims(), db.dims()), blend)
        })
    };
    status(body())
}

/// y = act(alpha1 conv(x, w) + alpha2 z + bias).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnConvolutionBiasActivationForward(
    handle: Handle,
    alpha1: *const c_void,
    x_descriptor: Handle,
    x: usize,
    w_descriptor: Handle,
    w: usize,
    convolution: Handle,
    algorithm: c_int,
    _workspace: usize,
    _workspace_bytes: usize,
    alpha2: *const c_void,
    z_descriptor: Handle,
    z: usize,
    bias_descriptor: Handle,
    bias: usize,
    activation_descriptor: Handle,
    y_descriptor: Handle,
    y: usize,
) -> Status {
    let body = || {
        check(Direction::Forward, algorithm)?;
        let (x, w, y) = (operand(x_descriptor, x)?, filter(w_descriptor, w)?, operand(y_descriptor, y)?);
        let geometry = geometry(convolution, [&x.layout, &w.layout, &y.layout])?;
        // SAFETY: the caller gives factors, or null.
        let (alpha1, alpha2) = unsafe { (factor(alpha1, &y.layout)?, factor(alpha2, &y.layout)?) };
        let z = if alpha2 == 0.0 { None } else { Some(operand(z_descriptor, z)?) };
        let bias = operand(bias_descriptor, bias)?;
        let activation = activation(activation_descriptor)?;
        let fits = z.as_ref().is_none_or(|z| z.dims() == y.dims());
        if !fits || !spreads(bias.dims(), y.dims()) {
            return Err(BAD_PARAM);
        }
        queue(stream_of(handle)?, move || {
            y.check()?;
            let mut values = geometry.compute(Direction::Forward, y.layout.kind, &x.load()?, &w.load()?);
            values.iter_mut().for_each(|value| *value *= alpha1);
            if let Some(z) = &z {
                values.iter_mut().zip(z.load()?).for_each(|(value, z)| *value += alpha2 * z);
            }
            let biases = spread(&bias.load()?, bias.dims(), y.dims());
            values.iter_mut().zip(biases).for_each(|(value, bias)| *value = activation.at(*value + bias));
            y.store(&values, Blend::REPLACE)
        })
    };
    status(body())
}
