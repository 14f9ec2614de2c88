// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Batch normalisation.

use std::ffi::{c_double, c_int, c_void};

use super::super::layout::Layout;
use super::super::normalisation::{Shape, Statistics, backward, forward};
use super::super::{BAD_PARAM, Blend, NOT_SUPPORTED, Operand, Status, give, queue, status, stream_of};
use super::{blend, described, operand, set};
use crate::handles::Handle;

/// The tensor of parameters of a `cudnnBatchNormMode_t`.
fn parameters(x: &Layout, mode: c_int) -> Result<Layout, Status> {
    let [_, channels, ..] = x.dims[..] else { return Err(BAD_PARAM) };
    let mut dims: Vec<i64> = vec![1; x.dims.len()];
    match mode {
        0 => dims[1..].iter_mut().zip(&x.dims[1..]).for_each(|(dim, size)| *dim = *size as i64),
        1 | 2 => dims[1] = channels as i64,
        _ => return Err(BAD_PARAM),
    }
    Layout::packed(x.scaling(), &dims, false)
}

/// Describes the tensor of parameters.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDeriveBNTensorDescriptor(derived: Handle, x: Handle, mode: c_int) -> Status {
    status(set(derived, described::<Layout>(x).and_then(|x| parameters(&x, mode))))
}

/// Checks the descriptor of parameters.
fn checked(descriptor: Handle, x: &Layout, mode: c_int) -> Result<Layout, Status> {
    let (found, derived) = (described::<Layout>(descriptor)?, parameters(x, mode)?);
    if found.dims == derived.dims { Ok(found) } else { Err(BAD_PARAM) }
}

/// An operand that may be left out.
fn optional(layout: &Layout, base: usize) -> Option<Operand> {
    Operand::new(layout.clone(), base).ok()
}

fn positive(epsilon: f64) -> Result<f64, Status> {
    if epsilon >= 0.0 { Ok(epsilon) } else { Err(BAD_PARAM) }
}

/// y = alpha bn(x) + beta y, by known statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBatchNormalizationForwardInference(
    handle: Handle,
    mode: c_int,
    alpha: *const c_void,
    beta: *const c_void,
    x_descriptor: Handle,
    x: usize,
    y_descriptor: Handle,
    y: usize,
    parameter_descriptor: Handle,
    scale: usize,
    bias: usize,
    mean: usize,
    variance: usize,
    epsilon: c_double,
) -> Status {
    let body = || {
        let (x, y, epsilon) = (operand(x_descriptor, x)?, operand(y_descriptor, y)?, positive(epsilon)?);
        let layout = checked(parameter_descriptor, &x.layout, mode)?;
        if x.dims() != y.dims() {
            return Err(BAD_PARAM);
        }
        let part = |base| Operand::new(layout.clone(), base);
        let (scale, bias, mean, variance) = (part(scale)?, part(bias)?, part(mean)?, part(variance)?);
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &y.layout)? };
        queue(stream_of(handle)?, move || {
            let known = Statistics { mean: mean.load()?, variance: variance.load()?, count: 1.0 };
            let statistics = [&known.mean[..], &known.inverse(epsilon)];
            let affine = [&scale.load()?[..], &bias.load()?];
            let shape = Shape::of_batch(x.dims(), mean.dims());
            y.store(&forward(&x.load()?, &shape, statistics, affine), blend)
        })
    };
    status(body())
}

/// y = alpha bn(x) + beta y, by the statistics of x.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBatchNormalizationForwardTraining(
    handle: Handle,
    mode: c_int,
    alpha: *const c_void,
    beta: *const c_void,
    x_descriptor: Handle,
    x: usize,
    y_descriptor: Handle,
    y: usize,
    parameter_descriptor: Handle,
    scale: usize,
    bias: usize,
    factor: c_double,
    running_mean: usize,
    running_variance: usize,
    epsilon: c_double,
    saved_mean: usize,
    saved_inverse: usize,
) -> Status {
    let body = || {
        let (x, y, epsilon) = (operand(x_descriptor, x)?, operand(y_descriptor, y)?, positive(epsilon)?);
        let layout = checked(parameter_descriptor, &x.layout, mode)?;
        let (scale, bias) = (Operand::new(layout.clone(), scale)?, Operand::new(layout.clone(), bias)?);
        let running = [optional(&layout, running_mean), optional(&layout, running_variance)];
        let saved = [optional(&layout, saved_mean), optional(&layout, saved_inverse)];
        // Both or neither.
        let is_half = |[first, second]: &[Option<Operand>; 2]| first.is_some() != second.is_some();
        if x.dims() != y.dims() || is_half(&running) || is_half(&saved) {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives factors, or null.
        let blend = unsafe { blend(alpha, beta, &y.layout)? };
        queue(stream_of(handle)?, move || {
            let values = x.load()?;
            let shape = Shape::of_batch(x.dims(), &layout.dims);
            let statistics = Statistics::new(&values, &shape);
            let inverse = statistics.inverse(epsilon);
            let affine = [&scale.load()?[..], &bias.load()?];
            let normalised = forward(&values, &shape, [&statistics.mean, &inverse], affine);
            let average = Blend { alpha: factor, beta: 1.0 - factor };
            for (place, value) in running.iter().zip([&statistics.mean, &statistics.unbiased()]) {
                place.as_ref().map_or(Ok(()), |place| place.store(value, average))?;
            }
            for (place, value) in saved.iter().zip([&statistics.mean, &inverse]) {
                place.as_ref().map_or(Ok(()), |place| place.store(value, Blend::REPLACE))?;
            }
            y.store(&normalised, blend)
        })
    };
    status(body())
}

/// The gradients of input, scale and bias. Statistics that were not saved are computed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBatchNormalizationBackward(
    handle: Handle,
    mode: c_int,
    data_alpha: *const c_void,
    data_beta: *const c_void,
    parameter_alpha: *const c_void,
    parameter_beta: *const c_void,
    x_descriptor: Handle,
    x: usize,
    dy_descriptor: Handle,
    dy: usize,
    dx_descriptor: Handle,
    dx: usize,
    parameter_descriptor: Handle,
    scale: usize,
    dscale: usize,
    dbias: usize,
    epsilon: c_double,
    saved_mean: usize,
    saved_inverse: usize,
) -> Status {
    let body = || {
        let (x, dy, dx) =
            (operand(x_descriptor, x)?, operand(dy_descriptor, dy)?, operand(dx_descriptor, dx)?);
        let (layout, epsilon) = (checked(parameter_descriptor, &x.layout, mode)?, positive(epsilon)?);
        if x.dims() != dy.dims() || x.dims() != dx.dims() || (saved_mean == 0) != (saved_inverse == 0) {
            return Err(BAD_PARAM);
        }
        let part = |base| Operand::new(layout.clone(), base);
        let (scale, dscale, dbias) = (part(scale)?, part(dscale)?, part(dbias)?);
        let saved = optional(&layout, saved_mean).zip(optional(&layout, saved_inverse));
        // SAFETY: the caller gives factors, or null.
        let (data, parameter) = unsafe {
            (blend(data_alpha, data_beta, &dx.layout)?, blend(parameter_alpha, parameter_beta, &layout)?)
        };
        queue(stream_of(handle)?, move || {
            let values = x.load()?;
            let shape = Shape::of_batch(x.dims(), &layout.dims);
            let (mean, inverse) = match &saved {
                Some((mean, inverse)) => (mean.load()?, inverse.load()?),
                None => {
                    let statistics = Statistics::new(&values, &shape);
                    let inverse = statistics.inverse(epsilon);
                    (statistics.mean, inverse)
                }
            };
            let [input, scales, biases] =
                backward([&values, &dy.load()?], &shape, [&mean, &inverse], &scale.load()?);
            dscale.store(&scales, parameter)?;
            dbias.store(&biases, parameter)?;
            dx.store(&input, data)
        })
    };
    status(body())
}

/// `CUDNN_BATCHNORM_OPS_BN`, the one that is supported: nothing but the normalisation.
fn plain(operations: c_int) -> Result<(), Status> {
    match operations {
        0 => Ok(()),
        1 | 2 => Err(NOT_SUPPORTED),
        _ => Err(BAD_PARAM),
    }
}

/// Bytes of workspace or reserve space: none are needed.
///
/// # Safety
///
/// `size` is null or has room for a number.
unsafe fn no_bytes(handle: Handle, operations: c_int, size: *mut usize) -> Status {
    // SAFETY: `# Safety` promises that `size` is null or has room for a number.
    status(stream_of(handle).and_then(|_| plain(operations)).and_then(|()| unsafe { give(size, 0) }))
}

/// Bytes of workspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    handle: Handle,
    _mode: c_int,
    operations: c_int,
    _x: Handle,
    _z: Handle,
    _y: Handle,
    _parameters: Handle,
    _activation: Handle,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { no_bytes(handle, operations, size) }
}

/// Bytes of workspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    handle: Handle,
    _mode: c_int,
    operations: c_int,
    _x: Handle,
    _y: Handle,
    _dy: Handle,
    _dz: Handle,
    _dx: Handle,
    _parameters: Handle,
    _activation: Handle,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { no_bytes(handle, operations, size) }
}

/// Bytes that the forward pass leaves for the backward pass.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    handle: Handle,
    _mode: c_int,
    operations: c_int,
    _activation: Handle,
    _x: Handle,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { no_bytes(handle, operations, size) }
}

/// As [`cudnnBatchNormalizationForwardTraining`], for the plain operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBatchNormalizationForwardTrainingEx(
    handle: Handle,
    mode: c_int,
    operations: c_int,
    alpha: *const c_void,
    beta: *const c_void,
    x_descriptor: Handle,
    x: usize,
    _z_descriptor: Handle,
    _z: usize,
    y_descriptor: Handle,
    y: usize,
    parameters: Handle,
    scale: usize,
    bias: usize,
    factor: c_double,
    running_mean: usize,
    running_variance: usize,
    epsilon: c_double,
    saved_mean: usize,
    saved_inverse: usize,
    _activation: Handle,
    _workspace: usize,
    _workspace_bytes: usize,
    _reserve: usize,
    _reserve_bytes: usize,
) -> Status {
    if let Err(refused) = plain(operations) {
        return refused;
    }
    // SAFETY: this function's contract is that function's.
    unsafe {
        cudnnBatchNormalizationForwardTraining(
            handle,
            mode,
            alpha,
            beta,
            x_descriptor,
            x,
            y_descriptor,
            y,
            parameters,
            scale,
            bias,
            factor,
            running_mean,
            running_variance,
            epsilon,
            saved_mean,
            saved_inverse,
        )
    }
}

/// As [`cudnnBatchNormalizationBackward`], for the plain operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBatchNormalizationBackwardEx(
    handle: Handle,
    mode: c_int,
    operations: c_int,
    data_alpha: *const c_void,
    data_beta: *const c_void,
    parameter_alpha: *const c_void,
    parameter_beta: *const c_void,
    x_descriptor: Handle,
    x: usize,
    _y_descriptor: Handle,
    _y: usize,
    dy_descriptor: Handle,
    dy: usize,
    _dz_descriptor: Handle,
    _dz: usize,
    dx_descriptor: Handle,
    dx: usize,
    parameters: Handle,
    scale: usize,
    _bias: usize,
    dscale: usize,
    dbias: usize,
    epsilon: c_double,
    saved_mean: usize,
    saved_inverse: usize,
    _activation: Handle,
    _workspace: usize,
    _workspace_bytes: usize,
    _reserve: usize,
    _reserve_bytes: usize,
) -> Status {
    if let Err(refused) = plain(operations) {
        return refused;
    }
    // SAFETY: this function's contract is that function's.
    unsafe {
        cudnnBatchNormalizationBackward(
            handle,
            mode,
            data_alpha,
            data_beta,
            parameter_alpha,
            parameter_beta,
            x_descriptor,
            x,
            dy_descriptor,
            dy,
            dx_descriptor,
            dx,
            parameters,
            scale,
            dscale,
            dbias,
            epsilon,
            saved_mean,
            saved_inverse,
        )
    }
}
