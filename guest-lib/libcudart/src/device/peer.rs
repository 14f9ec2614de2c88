// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access from one device to another's memory.

use core::ffi::{c_int, c_uint};

use crate::pointers::not_null;
use crate::{driver, state};

api! {
    fn cudaDeviceCanAccessPeer(can_access: *mut c_int, device: c_int, peer: c_int) {
        not_null(can_access)?;
        let runtime = state::runtime()?;
    } => driver::cuDeviceCanAccessPeer(can_access, runtime.device(device)?.handle, runtime.device(peer)?.handle);

    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        let peer = state::context()?.device(peer)?.primary_context()?;
    } => driver::cuCtxEnablePeerAccess(peer, flags);

    fn cudaDeviceDisablePeerAccess(peer: c_int) {
        let peer = state::context()?.device(peer)?.primary_context()?;
    } => driver::cuCtxDisablePeerAccess(peer);

    fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, source: c_int, target: c_int) {
        not_null(value)?;
        let runtime = state::runtime()?;
    } => driver::cuDeviceGetP2PAttribute(value, attribute, runtime.device(source)?.handle, runtime.device(target)?.handle);

    #[cfg(cuda_major = "13")]
    fn cudaDeviceGetP2PAtomicCapabilities(
        capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, source: c_int, target: c_int,
    ) {
        let runtime = state::runtime()?;
        let (source, target) = (runtime.device(source)?.handle, runtime.device(target)?.handle);
    } => driver::cuDeviceGetP2PAtomicCapabilities(capabilities, operations, count, source, target);
}
