// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls a library whose descriptors have 2 in each dimension and sequences of at most 100 steps. It reads as many
//! elements of host arrays as follow from that.

use std::cell::Cell;

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::super::PRESENT;
use super::super::calls::Calls;
use super::*;

/// `CUDNN_STATUS_BAD_PARAM`
const WRONG: u64 = 2000;
/// `CUDNN_STATUS_NOT_INITIALIZED`
const NO_HANDLE: u64 = 1001;
const HANDLE: u64 = FIRST_HANDLE;
const TENSOR: u64 = FIRST_HANDLE + 16;
const LOSS: u64 = FIRST_HANDLE + 32;
const ATTENTION: u64 = FIRST_HANDLE + 48;
const SEQUENCES: u64 = FIRST_HANDLE + 64;

thread_local! {
    /// The elements of the host arrays of each call that has reached the library.
    static SEEN: Cell<Vec<Vec<i32>>> = const { Cell::new(Vec::new()) };
    /// The status with which the library answers questions.
    static ANSWER: Cell<i32> = const { Cell::new(0) };
}

/// Returns the address of the function of that name in the library of these tests.
fn function(name: &str) -> Option<usize> {
    Some(match name {
        "cudnnGetTensorNdDescriptor" | "cudnnGetSeqDataDescriptor" => dimensions as *const () as usize,
        "cudnnGetAttnDescriptor" => attention as *const () as usize,
        "cudnnCTCLoss" => loss as *const () as usize,
        "cudnnMultiHeadAttnForward" => attend as *const () as usize,
        _ => return None,
    })
}

/// Both functions have the place of the dimensions as their fifth parameter.
extern "C" fn dimensions(_: u64, _: u64, _: u64, _: u64, dims: *mut [i32; 8]) -> i32 {
    // SAFETY: the worker gives a place for 8 numbers.
    unsafe { dims.write([2; 8]) };
    ANSWER.get()
}

#[allow(clippy::too_many_arguments)]
extern "C" fn attention(
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    steps: *mut i32,
) -> i32 {
    // SAFETY: the worker gives a place for a number.
    unsafe { steps.write(100) };
    0
}

fn see(arrays: [(*const i32, usize); 2]) {
    let mut seen = SEEN.take();
    for (start, count) in arrays {
        // SAFETY: the worker gives arrays that are as long as the descriptors say.
        seen.push((0..count).map(|index| unsafe { start.add(index).read() }).collect());
    }
    SEEN.set(seen);
}

extern "C" fn loss(_: u64, _: u64, _: u64, labels: *const i32, lengths: *const i32) -> i32 {
    // SAFETY: the worker gives two lengths.
    let count = unsafe { lengths.read() + lengths.add(1).read() };
    see([(labels, count as usize), (lengths, 2)]);
    0
}

extern "C" fn attend(_: u64, _: u64, _: i32, low: *const i32, high: *const i32) -> i32 {
    see([(low, 100), (high, 100)]);
    0
}

fn pair(first: i32, second: i32) -> u64 {
    u64::from(first as u32) | u64::from(second as u32) << 32
}

/// Returns the arguments of a loss.
fn of_loss(batch: i64, labels: i64) -> [u64; 15] {
    let arrays = [PRESENT; 3];
    let [a, b, c] = arrays;
    [HANDLE, TENSOR, 0x7000, a, b, c, 0x7000, 0, 0, 0, LOSS, 0, 0, batch as u64, labels as u64]
}

fn with_handles() -> Calls {
    let mut calls = Calls::of(&["cudnn"], function);
    for (function, handle) in [
        ("cudnnCreate", HANDLE),
        ("cudnnCreateTensorDescriptor", TENSOR),
        ("cudnnCreateCTCLossDescriptor", LOSS),
        ("cudnnCreateAttnDescriptor", ATTENTION),
        ("cudnnCreateSeqDataDescriptor", SEQUENCES),
    ] {
        assert_eq!(calls.call(function, &[handle], &[]), Ok((0, vec![])), "{function}");
    }
    calls
}

#[test]
fn arrays_are_as_long_as_descriptors_and_lengths_say() {
    let mut calls = with_handles();
    let mut lose = |slots: &[u64], data: &[u64]| calls.call("cudnnCTCLoss", slots, data);
    let data = [pair(7, 8), pair(9, 0), pair(1, 2), pair(2, 2)];
    assert_eq!(lose(&of_loss(2, 3), &data), Ok((0, vec![])));
    assert_eq!(SEEN.take(), [vec![7, 8, 9], vec![1, 2]]);
    // Numbers of the guest's library that are not those of the descriptor and of the lengths.
    for (batch, labels, data) in [
        (1, 3, &[pair(7, 8), pair(9, 0), pair(1, 0), pair(2, 0)][..]),
        (3, 3, &[pair(7, 8), pair(9, 0), pair(1, 2), 0, pair(2, 2), 0]),
        (2, 2, &[pair(7, 8), pair(1, 2), pair(2, 2)]),
        (2, 4, &data),
        (2, -1, &data[2..]),
        (-1, 0, &[]),
    ] {
        assert_eq!(lose(&of_loss(batch, labels), data), Err(CudaError::INVALID_VALUE), "{batch} {labels}");
    }
    let negative = [pair(7, 0), pair(-1, 2), pair(2, 2)];
    assert_eq!(lose(&of_loss(2, 1), &negative), Ok((WRONG, vec![])), "a negative length");
    let mut other = of_loss(2, 3);
    other[1] = SEQUENCES;
    assert_eq!(lose(&other, &data), Ok((NO_HANDLE, vec![])), "no tensor");
    let mut null = of_loss(2, 0);
    null[4] = 0;
    assert_eq!(lose(&null, &data[3..]), Ok((WRONG, vec![])), "no lengths");
    ANSWER.set(WRONG as i32);
    assert_eq!(lose(&of_loss(2, 3), &data), Ok((WRONG, vec![])), "a descriptor that is not set");
    assert!(SEEN.take().is_empty());
    calls.thread.held.release();
}

#[test]
fn windows_have_room_for_all_steps() {
    let mut calls = with_handles();
    let mut slots = vec![HANDLE, ATTENTION, 0, PRESENT, PRESENT, 0, 0, SEQUENCES, 0, 0, SEQUENCES, 0];
    slots.extend([SEQUENCES, 0, SEQUENCES, 0, 0, 0, 0, 0, 0, 0, 2, 100]);
    let data = [pair(1, 2), pair(3, 4)];
    assert_eq!(calls.call("cudnnMultiHeadAttnForward", &slots, &data), Ok((0, vec![])));
    let seen = SEEN.take();
    assert_eq!([&seen[0][..3], &seen[1][..3]], [&[1, 2, 0], &[3, 4, 0]]);
    assert!(seen.iter().all(|window| window[2..] == [0; 98]));
    for (at, forged) in [(22, 1), (22, 3), (23, 2), (23, 1 << 40)] {
        let mut slots = slots.clone();
        slots[at] = forged;
        let data = vec![0; if at == 22 { 2 * forged.div_ceil(2) as usize } else { 2 }];
        let answer = calls.call("cudnnMultiHeadAttnForward", &slots, &data);
        assert_eq!(answer, Err(CudaError::INVALID_VALUE), "{at}: {forged}");
    }
    assert!(SEEN.take().is_empty());
    calls.thread.held.release();
}
