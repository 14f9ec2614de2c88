// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The loss of connectionist temporal classification, with labels in host or in device memory.

use std::ffi::c_int;

use super::super::ctc::batch::{Labels, Sizes, Tensors};
use super::super::layout::Layout;
use super::super::{Operand, Status, give, queue, status, stream_of};
use super::ctc_descriptor::Described;
use super::{described, operand};
use crate::handles::Handle;

/// The sizes of a loss. The descriptor of gradients may be null.
fn sizes(probs: Handle, gradients: Handle, algorithm: c_int) -> Result<Sizes, Status> {
    let gradients = if gradients == 0 { None } else { Some(described::<Layout>(gradients)?) };
    Sizes::new(&described::<Layout>(probs)?, gradients.as_ref(), algorithm)
}

/// The tensor of gradients, if they are wanted.
fn gradient(descriptor: Handle, base: usize) -> Result<Option<Operand>, Status> {
    if descriptor == 0 || base == 0 { Ok(None) } else { operand(descriptor, base).map(Some) }
}

/// Bytes of the workspace of a loss, with labels in host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetCTCLossWorkspaceSize(
    handle: Handle,
    probs: Handle,
    gradients: Handle,
    symbols: *const c_int,
    lengths: *const c_int,
    steps: *const c_int,
    algorithm: c_int,
    loss: Handle,
    bytes: *mut usize,
) -> Status {
    let body = || {
        stream_of(handle)?;
        described::<Described>(loss)?;
        let sizes = sizes(probs, gradients, algorithm)?;
        // SAFETY: the caller gives the arrays of cuDNN's manual, or null.
        let labels = unsafe { Labels::of_host(sizes, symbols, lengths, steps)? };
        // SAFETY: the caller gives a place for a number, or null.
        unsafe { give(bytes, sizes.workspace(labels.longest())?) }
    };
    status(body())
}

/// Bytes of the workspace of a loss, with labels in device memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetCTCLossWorkspaceSize_v8(
    handle: Handle,
    algorithm: c_int,
    loss: Handle,
    probs: Handle,
    gradients: Handle,
    bytes: *mut usize,
) -> Status {
    let body = || {
        stream_of(handle)?;
        let what = described::<Described>(loss)?;
        let needed = sizes(probs, gradients, algorithm)?.workspace(what.longest as usize)?;
        // SAFETY: the caller gives a place for a number, or null.
        unsafe { give(bytes, needed) }
    };
    status(body())
}

/// The loss of a batch and its gradient, with labels in host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCTCLoss(
    handle: Handle,
    probs_descriptor: Handle,
    probs: usize,
    symbols: *const c_int,
    lengths: *const c_int,
    steps: *const c_int,
    costs: usize,
    gradients_descriptor: Handle,
    gradients: usize,
    algorithm: c_int,
    loss: Handle,
    workspace: usize,
    bytes: usize,
) -> Status {
    let body = || {
        let what = described::<Described>(loss)?;
        let sizes = sizes(probs_descriptor, gradients_descriptor, algorithm)?;
        // SAFETY: the caller gives the arrays of cuDNN's manual, or null.
        let labels = unsafe { Labels::of_host(sizes, symbols, lengths, steps)? };
        labels.check_steps(sizes)?;
        let gradients = gradient(gradients_descriptor, gradients)?;
        let tensors = Tensors::new(sizes, operand(probs_descriptor, probs)?, costs, gradients)?;
        let tensors = tensors.with_workspace(workspace, bytes, sizes.workspace(labels.longest())?)?;
        queue(stream_of(handle)?, move || tensors.compute(sizes, what.form(), &labels))
    };
    status(body())
}

/// The loss of a batch and its gradient, with labels in device memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnCTCLoss_v8(
    handle: Handle,
    algorithm: c_int,
    loss: Handle,
    probs_descriptor: Handle,
    probs: usize,
    symbols: usize,
    lengths: usize,
    steps: usize,
    costs: usize,
    gradients_descriptor: Handle,
    gradients: usize,
    bytes: usize,
    workspace: usize,
) -> Status {
    let body = || {
        let what = described::<Described>(loss)?;
        let sizes = sizes(probs_descriptor, gradients_descriptor, algorithm)?;
        let gradients = gradient(gradients_descriptor, gradients)?;
        let tensors = Tensors::new(sizes, operand(probs_descriptor, probs)?, costs, gradients)?;
        let tensors = tensors.with_workspace(workspace, bytes, sizes.workspace(what.longest as usize)?)?;
        queue(stream_of(handle)?, move || {
            let labels = Labels::of_device(sizes, what.longest, [symbols, lengths, steps])?;
            tensors.compute(sizes, what.form(), &labels)
        })
    };
    status(body())
}

#[cfg(test)]
#[path = "ctc_test.rs"]
mod tests;
