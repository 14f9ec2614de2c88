// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Variant packs: where the tensors of an execution are.

use std::collections::HashMap;

use super::super::{BAD_PARAM, NOT_SUPPORTED, Status};
use super::descriptor::Attributes;
use crate::numbers::Type;
use crate::stream::reaches;

/// Addresses by the numbers of tensors.
#[derive(Debug)]
pub struct Pack(HashMap<i64, usize>);

impl Pack {
    /// A pack of these attributes.
    pub fn new(attributes: &Attributes) -> Result<Self, Status> {
        let (uids, addresses) = (attributes.integers(1000)?, attributes.integers(1001)?);
        // Sizes that differ from those of the graph.
        for name in 1010..=1012 {
            if attributes.integers(name).is_ok_and(|values| !values.is_empty()) {
                return Err(NOT_SUPPORTED);
            }
        }
        let count = uids.len();
        let by_uid: HashMap<i64, usize> =
            uids.into_iter().zip(addresses.iter().map(|address| *address as usize)).collect();
        // A tensor that is named twice, or a missing address.
        if by_uid.len() != count || addresses.len() != count {
            return Err(BAD_PARAM);
        }
        Ok(Self(by_uid))
    }

    /// The address of a tensor.
    pub fn address(&self, uid: i64) -> Result<usize, Status> {
        self.0.get(&uid).copied().filter(|address| *address != 0).ok_or(BAD_PARAM)
    }
}

/// Reads a tensor by value: one number in host memory.
///
/// Only the program guarantees that the memory exists. So memory that does not belong to CUDA is copied by the
/// kernel, which refuses an unmapped address. In a worker of the daemon, whose system calls are limited, only memory
/// that the guest has pinned can be read.
pub fn by_value(kind: Type, address: usize) -> Result<f64, Status> {
    let mut bytes = [0_u8; size_of::<f64>()];
    let length = kind.bytes().min(bytes.len());
    if reaches(address, length) {
        // SAFETY: the emulator has found memory of this process at the address, as long.
        return Ok(unsafe { kind.read(address) }.re);
    }
    let to = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
    let from = libc::iovec { iov_base: address as *mut _, iov_len: length };
    // SAFETY: the target is a local as long; the kernel checks the source.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    if usize::try_from(copied) != Ok(length) {
        return Err(BAD_PARAM);
    }
    // SAFETY: the bytes are a local as long as any real number.
    Ok(unsafe { kind.read(bytes.as_ptr() as usize) }.re)
}
