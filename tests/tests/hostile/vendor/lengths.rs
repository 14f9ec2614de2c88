// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuDNN's arrays in host memory whose lengths follow from a descriptor and from another array. The library reads as many elements
//! as these say, whatever the guest has sent.

use anyhow::{Result, ensure};
use cuda_library_rows::block::PRESENT;

use super::notes::ints;
use super::{FIRST, ROOM, call, expect_status, open};
use crate::Target;
use crate::calls::{INVALID_VALUE, Session};

/// `CUDNN_STATUS_BAD_PARAM`, `CUDNN_STATUS_NOT_INITIALIZED`
const WRONG: u64 = 2000;
const NO_HANDLE: u64 = 1001;
const HANDLE: u64 = FIRST;
const TENSOR: u64 = FIRST + 16;
const LOSS: u64 = FIRST + 32;

/// Labels of a batch whose number of members, lengths or sum of lengths the guest's library has made up.
pub fn measured_lengths(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    session.expect(&open("cudnn"), &[0])?;
    let of = |function: &str, slots: &[u64], data: &[u64]| call("cudnn", function, slots, data);
    expect_status(&mut session, of("cudnnCreate", &[HANDLE], &[]), 0)?;
    expect_status(&mut session, of("cudnnCreateTensorDescriptor", &[TENSOR], &[]), 0)?;
    expect_status(&mut session, of("cudnnCreateCTCLossDescriptor", &[LOSS], &[]), 0)?;
    expect_status(&mut session, of("cudnnSetCTCLossDescriptor", &[LOSS, 0], &[]), 0)?;
    let size = |tensor: u64, lengths: u64, batch: i64, sum: i64, data: &[&[i32]]| {
        let data: Vec<u64> = data.iter().flat_map(|array| ints(array)).collect();
        let mut slots = vec![HANDLE, tensor, 0, PRESENT, lengths, PRESENT, 0, LOSS, PRESENT];
        slots.extend([batch as u64, sum as u64]);
        of("cudnnGetCTCLossWorkspaceSize", &slots, &data)
    };
    let good: [&[i32]; 3] = [&[1, 2, 3], &[2, 1], &[4, 4]];
    let dims = |steps: i32, batch: i32| {
        let data = ints(&[steps, batch, 5, 0]);
        of("cudnnSetTensorNdDescriptorEx", &[TENSOR, 0, 0, 3, PRESENT], &data)
    };
    expect_status(&mut session, size(TENSOR, PRESENT, 2, 3, &good), WRONG)?;
    expect_status(&mut session, dims(4, 2), 0)?;
    expect_status(&mut session, size(TENSOR, PRESENT, 2, 3, &good), 0)?;
    let forged: [(i64, i64, &[&[i32]]); 8] = [
        (1, 3, &[&[1, 2, 3], &[3], &[4]]),
        (3, 3, &[&[1, 2, 3], &[1, 1, 1], &[4, 4, 4]]),
        (0, 3, &[&[1, 2, 3]]),
        (-1, 0, &[]),
        (2, 2, &[&[1, 2], &[2, 1], &[4, 4]]),
        (2, 4, &[&[1, 2, 3, 4], &[2, 1], &[4, 4]]),
        (2, 0, &[&[i32::MAX, i32::MAX], &[4, 4]]),
        (2, -1, &[&[i32::MAX, i32::MAX], &[4, 4]]),
    ];
    for (batch, sum, data) in forged {
        let answer = session.expect(&size(TENSOR, PRESENT, batch, sum, data).wants(ROOM), &[INVALID_VALUE]);
        ensure!(answer.is_ok(), "{batch} members, {sum} labels: {answer:?}");
    }
    for lengths in [[4, -1], [-1, 4], [i32::MIN, i32::MIN]] {
        expect_status(&mut session, size(TENSOR, PRESENT, 2, 3, &[&[1, 2, 3], &lengths, &[4, 4]]), WRONG)?;
    }
    expect_status(&mut session, size(TENSOR, 0, 2, 0, &[&[4, 4]]), WRONG)?;
    expect_status(&mut session, size(LOSS, PRESENT, 2, 3, &good), NO_HANDLE)?;
    // The lengths are those of the descriptor as it is now.
    expect_status(&mut session, dims(4, 1), 0)?;
    session.expect(&size(TENSOR, PRESENT, 2, 3, &good).wants(ROOM), &[INVALID_VALUE])?;
    expect_status(&mut session, size(TENSOR, PRESENT, 1, 2, &[&[1, 2], &[2], &[4]]), 0)?;
    session.greet()
}

/// Addresses in a variant pack that are not the session's, but could be the worker's: cuDNN reads a tensor by value there.
pub fn addresses_of_packs(target: &mut Target) -> Result<()> {
    const DATA_POINTERS: u64 = 1001;
    const INT64: u64 = 3;
    const ADDRESSES: u64 = 6;
    let mut session = Session::open(target)?;
    session.expect(&open("cudnn"), &[0])?;
    let of = |function: &str, slots: &[u64], data: &[u64]| call("cudnn", function, slots, data);
    expect_status(&mut session, of("cudnnBackendCreateDescriptor", &[16, HANDLE], &[]), 0)?;
    let set = |kind: u64, elements: &[u64]| {
        let slots = [HANDLE, DATA_POINTERS, kind, elements.len() as u64, PRESENT];
        of("cudnnBackendSetAttribute", &slots, elements)
    };
    let memory = session.memory;
    expect_status(&mut session, set(ADDRESSES, &[0, memory, memory + 4095]), 0)?;
    for forged in [8, memory - 1, memory + 4096, 0x4000_0000, 0x5555_5555_4000, 0x7fff_ffff_e000, u64::MAX] {
        expect_status(&mut session, set(ADDRESSES, &[memory, forged]), WRONG)?;
        expect_status(&mut session, set(INT64, &[forged]), WRONG)?;
    }
    session.greet()
}
