// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream attributes, stored for queries without effect.

use std::sync::PoisonError;

use crate::driver::ffi::{In, Out};
use crate::driver::launch::config::check_hint;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::{self, CU_STREAM_PER_THREAD, CUstream, PRIORITIES};

/// CU_LAUNCH_ATTRIBUTE_PRIORITY
const PRIORITY: u32 = 8;
/// CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, which launches do not have.
const SYNCHRONIZATION_POLICY: u32 = 3;

/// The launch attributes of streams: access policy window, synchronisation policy, priority, and the two of memory
/// synchronisation domains.
fn check(attribute: u32) -> CuResult<()> {
    if matches!(attribute, 1 | 3 | 8 | 9 | 10) { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
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
    if attribute == SYNCHRONIZATION_POLICY {
        default[0] = 1;
    }
    value.set_if_wanted(attributes.get(&attribute).copied().unwrap_or(default));
    Ok(())
}

fn set_attribute(handle: CUstream, attribute: u32, value: In<[u32; 16]>) -> CuResult<()> {
    check(attribute)?;
    if handle.0 > CU_STREAM_PER_THREAD {
        // NVIDIA's library looks at a stream of the program before the value.
        stream::with_stream(handle)?;
    }
    let mut value = value.get()?;
    match attribute {
        SYNCHRONIZATION_POLICY if (1..=4).contains(&value[0]) => {}
        SYNCHRONIZATION_POLICY => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        _ => check_hint(attribute, &value)?,
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

crate::driver::ffi::entries! { after_init
    cuStreamGetAttribute + cuStreamGetAttribute_ptsz => get_attribute(
        stream: CUstream, attribute: u32, value: Out<[u32; 16]>);
    cuStreamSetAttribute + cuStreamSetAttribute_ptsz => set_attribute(
        stream: CUstream, attribute: u32, value: In<[u32; 16]>);
    cuStreamCopyAttributes + cuStreamCopyAttributes_ptsz => copy_attributes(to: CUstream, from: CUstream);
}
