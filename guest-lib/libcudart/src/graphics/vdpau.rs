// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VDPAU surfaces.

use core::ffi::{c_int, c_uint, c_void};

use super::choose_device;
use crate::abi::cudaGraphicsResource_t;
use crate::{driver, state};

api! {
    fn cudaVDPAUGetDevice(device: *mut c_int, vdp_device: c_uint, get_proc_address: *mut c_void) {
        state::runtime()?;
    } => driver::cuVDPAUGetDevice(device, vdp_device, get_proc_address);

    fn cudaVDPAUSetVDPAUDevice(device: c_int, _vdp_device: c_uint, _get_proc_address: *mut c_void) {
        choose_device(device)
    }

    fn cudaGraphicsVDPAURegisterVideoSurface(
        resource: *mut cudaGraphicsResource_t, surface: c_uint, flags: c_uint,
    ) {
        state::context()?;
    } => driver::cuGraphicsVDPAURegisterVideoSurface(resource, surface, flags);

    fn cudaGraphicsVDPAURegisterOutputSurface(
        resource: *mut cudaGraphicsResource_t, surface: c_uint, flags: c_uint,
    ) {
        state::context()?;
    } => driver::cuGraphicsVDPAURegisterOutputSurface(resource, surface, flags);
}
