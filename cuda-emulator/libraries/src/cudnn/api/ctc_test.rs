// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Mistakes of programs. What runs in a stream is tested by `tests/cuda/dnn_ctc.cu`.

use std::ptr::null;

use super::super::super::{BAD_PARAM, EXECUTION_FAILED, NOT_SUPPORTED, SUCCESS};
use super::super::ctc_descriptor::*;
use super::super::handle::*;
use super::super::tensor::*;
use super::*;

/// An address that is never read: there is no device here.
const MEMORY: usize = 0x1000;

fn made(create: unsafe extern "C" fn(*mut Handle) -> Status) -> Handle {
    let mut handle = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { create(&raw mut handle) }, SUCCESS);
    handle
}

fn tensor(dims: &[c_int], kind: c_int) -> Handle {
    let tensor = made(cudnnCreateTensorDescriptor);
    // SAFETY: there are as many numbers.
    let status = unsafe { cudnnSetTensorNdDescriptorEx(tensor, 0, kind, dims.len() as c_int, dims.as_ptr()) };
    assert_eq!(status, SUCCESS);
    tensor
}

#[test]
fn descriptors_are_those_that_were_set() {
    let loss = made(cudnnCreateCTCLossDescriptor);
    let mut found = [9; 4];
    let [a, b, c, d] = &mut found;
    // SAFETY: the places are locals.
    unsafe {
        assert_eq!(cudnnGetCTCLossDescriptor_v8(loss, a, b, c, d), BAD_PARAM, "nothing is set");
        assert_eq!(cudnnSetCTCLossDescriptor_v9(loss, 0, 1, 1, 255), SUCCESS);
        assert_eq!(cudnnGetCTCLossDescriptor_v9(loss, a, b, c, d), SUCCESS);
        assert_eq!([*a, *b, *c, *d], [0, 1, 1, 255]);
        assert_eq!(cudnnSetCTCLossDescriptor(loss, 0), SUCCESS);
        assert_eq!(cudnnGetCTCLossDescriptor_v8(loss, a, b, c, d), SUCCESS);
        assert_eq!([*a, *b, *c, *d], [0; 4]);
        assert_eq!(cudnnSetCTCLossDescriptorEx(loss, 0, 1, 0), SUCCESS);
        assert_eq!(cudnnGetCTCLossDescriptorEx(loss, a, b, c), SUCCESS);
        assert_eq!([*a, *b, *c], [0, 1, 0]);
    }
    assert_eq!(cudnnSetCTCLossDescriptor(loss, 1), NOT_SUPPORTED, "doubles");
    assert_eq!(cudnnSetCTCLossDescriptor(loss, 99), BAD_PARAM, "a type that is none");
    assert_eq!(cudnnSetCTCLossDescriptorEx(loss, 0, 2, 0), BAD_PARAM);
    assert_eq!(cudnnSetCTCLossDescriptor_v8(loss, 0, 0, 2, 1), BAD_PARAM);
    assert_eq!(cudnnSetCTCLossDescriptor_v8(loss, 0, 0, 0, 257), BAD_PARAM);
    assert_eq!(cudnnDestroyCTCLossDescriptor(loss), SUCCESS);
    assert_eq!(cudnnSetCTCLossDescriptor(loss, 0), BAD_PARAM, "it has ended");
}

#[test]
fn labels_and_sizes_are_checked() {
    let (handle, loss) = (made(cudnnCreate), made(cudnnCreateCTCLossDescriptor));
    assert_eq!(cudnnSetCTCLossDescriptorEx(loss, 0, 1, 0), SUCCESS);
    let probs = tensor(&[3, 2, 4], 0);
    let run =
        |probs, gradients, labels: &[c_int], lengths: [c_int; 2], steps: [c_int; 2], algorithm, bytes| {
            let (labels, lengths, steps) = (labels.as_ptr(), lengths.as_ptr(), steps.as_ptr());
            // SAFETY: as many lengths as the batch has, and labels for lengths that are good; no address of a tensor is read
            // before there is a stream.
            unsafe {
                cudnnCTCLoss(
                    handle, probs, MEMORY, labels, lengths, steps, MEMORY, gradients, MEMORY, algorithm,
                    loss, MEMORY, bytes,
                )
            }
        };
    let all = [3, 3];
    // 3 steps of 2 members with 2 * 2 + 1 states.
    let bytes = 3 * 2 * 5 * 8;
    assert_eq!(
        run(probs, probs, &[1, 2, 3], [2, 1], all, 0, bytes),
        EXECUTION_FAILED,
        "right, but no device"
    );
    assert_eq!(run(probs, 0, &[1, 2, 3], [2, 1], [0, 2], 1, bytes), EXECUTION_FAILED);
    assert_eq!(run(probs, probs, &[1, 2, 3], [2, 1], all, 0, bytes - 1), BAD_PARAM, "the workspace");
    assert_eq!(run(probs, probs, &[1, 2, 3], [2, 1], all, 2, bytes), NOT_SUPPORTED, "the algorithm");
    for labels in [[1, 0, 3], [1, 4, 3], [1, -1, 3]] {
        assert_eq!(run(probs, probs, &labels, [2, 1], all, 0, bytes), BAD_PARAM, "{labels:?}");
    }
    for (lengths, steps) in [([2, -1], all), ([257, 0], all), ([2, 1], [4, 3]), ([2, 1], [3, -1])] {
        assert_eq!(
            run(probs, probs, &[1, 2, 3], lengths, steps, 0, bytes),
            BAD_PARAM,
            "{lengths:?} {steps:?}"
        );
    }
    for other in [tensor(&[3, 2, 5], 0), tensor(&[3, 2, 4, 1], 0)] {
        assert_eq!(run(probs, other, &[1, 2, 3], [2, 1], all, 0, bytes), BAD_PARAM);
    }
    let (doubles, four) = (tensor(&[3, 2, 4], 1), tensor(&[3, 2, 4, 1], 0));
    assert_eq!(run(doubles, doubles, &[1, 2, 3], [2, 1], all, 0, bytes), NOT_SUPPORTED);
    assert_eq!(run(four, four, &[1, 2, 3], [2, 1], all, 0, bytes), BAD_PARAM);
    let mut found = 0;
    // SAFETY: null is allowed, and the place is a local.
    unsafe {
        let mut size = |labels| {
            let (lengths, steps) = ([1, 1], [3, 4]);
            let (lengths, steps) = (lengths.as_ptr(), steps.as_ptr());
            cudnnGetCTCLossWorkspaceSize(handle, probs, 0, labels, lengths, steps, 0, loss, &raw mut found)
        };
        assert_eq!(size(null()), BAD_PARAM);
        assert_eq!(size([1, 1].as_ptr()), SUCCESS, "the steps matter only for the loss");
    }
    // SAFETY: the place is a local.
    let status = unsafe { cudnnGetCTCLossWorkspaceSize_v8(handle, 0, loss, probs, probs, &raw mut found) };
    assert_eq!((status, found), (SUCCESS, 3 * 2 * 8));
}
