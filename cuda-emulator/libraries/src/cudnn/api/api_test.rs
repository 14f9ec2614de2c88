// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Mistakes of programs. What runs in a stream is tested by `tests/cuda/dnn.cu`.

use std::ptr::{null, null_mut};

use super::super::{BAD_PARAM, EXECUTION_FAILED, NOT_SUPPORTED, SUCCESS};
use super::arithmetic::*;
use super::convolution::*;
use super::convolution_descriptor::*;
use super::filter::*;
use super::handle::*;
use super::tensor::*;
use super::*;

const ONE: *const c_void = (&raw const ONE_VALUE).cast();
static ONE_VALUE: f32 = 1.0;
/// An address that is never read: there is no device here.
const MEMORY: usize = 0x1000;

fn made(create: unsafe extern "C" fn(*mut Handle) -> Status) -> Handle {
    let mut handle = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { create(&raw mut handle) }, SUCCESS);
    handle
}

fn tensor(n: i32, c: i32, h: i32, w: i32) -> Handle {
    let tensor = made(cudnnCreateTensorDescriptor);
    assert_eq!(cudnnSetTensor4dDescriptor(tensor, 0, 0, n, c, h, w), SUCCESS);
    tensor
}

#[test]
fn descriptors_are_checked() {
    // SAFETY: null is allowed.
    unsafe {
        assert_eq!(cudnnCreate(null_mut()), BAD_PARAM);
        assert_eq!(cudnnCreateTensorDescriptor(null_mut()), BAD_PARAM);
        assert_eq!(cudnnCreateConvolutionDescriptor(null_mut()), BAD_PARAM);
    }
    let tensor = made(cudnnCreateTensorDescriptor);
    let mut bytes = 0;
    // SAFETY: the place is a local, or null.
    unsafe {
        assert_eq!(cudnnGetTensorSizeInBytes(tensor, &raw mut bytes), BAD_PARAM, "nothing is set");
        assert_eq!(cudnnSetTensor4dDescriptor(tensor, 1, 2, 2, 3, 4, 5), SUCCESS);
        assert_eq!((cudnnGetTensorSizeInBytes(tensor, &raw mut bytes), bytes), (SUCCESS, 240));
        assert_eq!(cudnnGetTensorSizeInBytes(tensor, null_mut()), BAD_PARAM);
        assert_eq!(cudnnSetTensorNdDescriptor(tensor, 0, 3, null(), null()), BAD_PARAM);
        for count in [-1, 0, 9, i32::MAX] {
            let dims = [1; 9];
            let status = cudnnSetTensorNdDescriptor(tensor, 0, count, dims.as_ptr(), dims.as_ptr());
            assert_eq!(status, NOT_SUPPORTED, "{count}");
        }
    }
    assert_eq!(cudnnSetTensor4dDescriptor(tensor, 2, 3, 1, 4, 1, 1), NOT_SUPPORTED, "vectors of channels");
    assert_eq!(cudnnSetTensor4dDescriptor(tensor, 0, 22, 1, 4, 1, 1), BAD_PARAM, "a type that is none");
    assert_eq!(cudnnSetTensor4dDescriptor(tensor, 0, 0, i32::MAX, i32::MAX, i32::MAX, i32::MAX), BAD_PARAM);
    assert_eq!(cudnnSetTensor4dDescriptorEx(tensor, 0, 1, 1, 1, 9, 1, 1, 1, -1), BAD_PARAM);
    let convolution = made(cudnnCreateConvolutionDescriptor);
    assert_eq!(cudnnSetConvolutionGroupCount(convolution, 0), BAD_PARAM);
    assert_eq!(cudnnSetConvolution2dDescriptor(convolution, 0, 0, 0, 1, 1, 1, 1, 0), BAD_PARAM, "no stride");
    assert_eq!(cudnnSetConvolution2dDescriptor(convolution, 0, 0, 1, 1, 1, 1, 2, 0), BAD_PARAM, "the mode");
    assert_eq!(cudnnDestroyFilterDescriptor(tensor), BAD_PARAM, "another kind");
    assert_eq!(cudnnDestroyTensorDescriptor(tensor), SUCCESS);
    assert_eq!(cudnnDestroyTensorDescriptor(tensor), BAD_PARAM, "it has ended");
}

#[test]
fn operands_are_checked() {
    let (handle, x, small) = (made(cudnnCreate), tensor(1, 2, 3, 3), tensor(1, 2, 3, 1));
    // SAFETY: factors are a static's or null, and no address of a tensor is read before there is a stream.
    let add = |handle, alpha, a_tensor, a, c_tensor, c| unsafe {
        cudnnAddTensor(handle, alpha, a_tensor, a, ONE, c_tensor, c)
    };
    assert_eq!(add(handle, ONE, x, MEMORY, x, MEMORY), EXECUTION_FAILED, "right, but there is no device");
    assert_eq!(add(x, ONE, x, MEMORY, x, MEMORY), BAD_PARAM, "no handle");
    assert_eq!(add(handle, null(), x, MEMORY, x, MEMORY), BAD_PARAM);
    assert_eq!(add(handle, ONE, 0, MEMORY, x, MEMORY), BAD_PARAM);
    assert_eq!(add(handle, ONE, x, 0, x, MEMORY), BAD_PARAM);
    assert_eq!(add(handle, ONE, x, MEMORY, x, 0), BAD_PARAM);
    assert_eq!(add(handle, ONE, x, MEMORY, small, MEMORY), BAD_PARAM, "sizes");
    assert_eq!(add(handle, ONE, small, MEMORY, x, MEMORY), EXECUTION_FAILED, "sizes of one repeat");
}

#[test]
fn convolutions_are_checked() {
    let (handle, x, y) = (made(cudnnCreate), tensor(1, 2, 3, 3), tensor(1, 4, 2, 2));
    let (filter, convolution) = (made(cudnnCreateFilterDescriptor), made(cudnnCreateConvolutionDescriptor));
    assert_eq!(cudnnSetFilter4dDescriptor(filter, 0, 0, 4, 2, 2, 2), SUCCESS);
    // SAFETY: factors are a static's, and no address of a tensor is read before there is a stream.
    let run = |x, filter, algorithm, y| unsafe {
        cudnnConvolutionForward(
            handle,
            ONE,
            x,
            MEMORY,
            filter,
            MEMORY,
            convolution,
            algorithm,
            0,
            0,
            ONE,
            y,
            MEMORY,
        )
    };
    assert_eq!(run(x, filter, 0, y), BAD_PARAM, "the convolution is not set");
    assert_eq!(cudnnSetConvolution2dDescriptor(convolution, 0, 0, 1, 1, 1, 1, 1, 0), SUCCESS);
    assert_eq!(run(x, filter, 0, y), EXECUTION_FAILED, "right, but there is no device");
    assert_eq!((run(x, filter, -1, y), run(x, filter, 8, y)), (BAD_PARAM, BAD_PARAM), "algorithms");
    assert_eq!(
        (run(y, filter, 0, y), run(x, filter, 0, x), run(x, x, 0, y)),
        (BAD_PARAM, BAD_PARAM, BAD_PARAM)
    );
    assert_eq!(cudnnSetConvolutionGroupCount(convolution, 2), SUCCESS);
    assert_eq!(run(x, filter, 0, y), BAD_PARAM, "groups");
    assert_eq!(cudnnSetConvolutionGroupCount(convolution, 1), SUCCESS);
    assert_eq!(cudnnSetTensor4dDescriptor(y, 0, 1, 1, 4, 2, 2), SUCCESS);
    assert_eq!(run(x, filter, 0, y), NOT_SUPPORTED, "tensors of several types");
}
