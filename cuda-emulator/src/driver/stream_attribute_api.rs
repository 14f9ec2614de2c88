// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream attributes: kept for who asks, without effect.

use std::sync::PoisonError;

use super::ffi::{In, Out};
use super::result::{CUresult, CuResult};
use super::stream::{self, CUstream, PRIORITIES};

/// CU_LAUNCH_ATTRIBUTE_PRIORITY
const PRIORITY: u32 = 8;
/// CU_ACCESS_PROPERTY_PERSISTING
const PERSISTING: u32 = 2;

/// The launch attributes that streams have: access policy window, synchronisation policy, priority, and the two of memory
/// synchronisation domains.
fn check(attribute: u32) -> CuResult<()> {
    if matches!(attribute, 1 | 3 | 8 | 9 | 10) { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// The domains of memory synchronisation that there are.
const DOMAINS: u8 = 4;

/// Whether an attribute can have this value: a window whose misses do not persist, a known policy, domains that are there.
fn is_valid(attribute: u32, value: &[u32; 16]) -> bool {
    match attribute {
        // CUaccessPolicyWindow: address, bytes, ratio, properties of hits and of misses.
        1 => (0.0..=1.0).contains(&f32::from_bits(value[4])) && value[6] != PERSISTING,
        3 => (1..=4).contains(&value[0]),
        // Of the default kind and of remote access.
        9 => value[0].to_ne_bytes()[..2].iter().all(|&domain| domain < DOMAINS),
        10 => value[0] <= 1,
        _ => true,
    }
}

fn get_attribute(handle: CUstream, attribute: u32, value: Out<[u32; 16]>) -> CuResult<()> {
    value.check()?;
    let (_, stream) = stream::with_stream(handle)?;
    check(attribute)?;
    let attributes = stream.attributes.lock().unwrap_or_else(PoisonError::into_inner);
    let mut default = [0; 16];
    if attribute == PRIORITY {
        default[0] = stream.priority as u32;
    }
    // CU_SYNC_POLICY_AUTO
    if attribute == 3 {
        default[0] = 1;
    }
    value.set(attributes.get(&attribute).copied().unwrap_or(default));
    Ok(())
}

fn set_attribute(handle: CUstream, attribute: u32, value: In<[u32; 16]>) -> CuResult<()> {
    check(attribute)?;
    let mut value = value.get()?;
    if !is_valid(attribute, &value) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (_, stream) = stream::with_stream(handle)?;
    if attribute == PRIORITY {
        value[0] = (value[0] as i32).clamp(PRIORITIES.1, PRIORITIES.0) as u32;
    }
    stream.attributes.lock().unwrap_or_else(PoisonError::into_inner).insert(attribute, value);
    Ok(())
}

fn copy_attributes(to: CUstream, from: CUstream) -> CuResult<()> {
    let (_, to) = stream::with_stream(to)?;
    let (_, from) = stream::with_stream(from)?;
    let attributes = from.attributes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    to.attributes.lock().unwrap_or_else(PoisonError::into_inner).extend(attributes);
    Ok(())
}

super::ffi::entries! { after_init
    cuStreamGetAttribute + cuStreamGetAttribute_ptsz => get_attribute(
        stream: CUstream, attribute: u32, value: Out<[u32; 16]>);
    cuStreamSetAttribute + cuStreamSetAttribute_ptsz => set_attribute(
        stream: CUstream, attribute: u32, value: In<[u32; 16]>);
    cuStreamCopyAttributes + cuStreamCopyAttributes_ptsz => copy_attributes(to: CUstream, from: CUstream);
}
