// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The calls that copy contiguous memory.

use crate::entry_points;
use crate::ffi::HostPtr;
use crate::memory::copy::between;
use crate::memory::copy::plan::Timing;

entry_points! {
    /// Copies between any two kinds of memory.
    call cuMemcpy / cuMemcpy_ptds (api, dst: u64, src: u64, ByteCount: usize) {
        api.copy(api.unified_place(dst), api.unified_place(src), ByteCount, Timing::Wait)
    }

    /// Copies between any two kinds of memory in stream order.
    call cuMemcpyAsync / cuMemcpyAsync_ptsz (api, dst: u64, src: u64, ByteCount: usize, hStream: u64) {
        api.copy(api.unified_place(dst), api.unified_place(src), ByteCount, Timing::Stream(api.stream(hStream)?))
    }

    /// Copies from the host to the device.
    call cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds (api, dstDevice: u64, srcHost: HostPtr, ByteCount: usize) {
        let src = api.host_place(srcHost.address() as u64, ByteCount as u64);
        api.copy(api.place_of_device(dstDevice), src, ByteCount, Timing::Wait)
    }

    /// Copies from the host to the device in stream order.
    call cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz (api, dstDevice: u64, srcHost: HostPtr, ByteCount: usize, hStream: u64) {
        let src = api.host_place(srcHost.address() as u64, ByteCount as u64);
        api.copy(api.place_of_device(dstDevice), src, ByteCount, Timing::Stream(api.stream(hStream)?))
    }

    /// Copies from the device to the host.
    call cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds (api, dstHost: HostPtr, srcDevice: u64, ByteCount: usize) {
        let dst = api.host_place(dstHost.address() as u64, ByteCount as u64);
        api.copy(dst, api.place_of_device(srcDevice), ByteCount, Timing::Wait)
    }

    /// Copies from the device to the host in stream order.
    call cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz (api, dstHost: HostPtr, srcDevice: u64, ByteCount: usize, hStream: u64) {
        let dst = api.host_place(dstHost.address() as u64, ByteCount as u64);
        api.copy(dst, api.place_of_device(srcDevice), ByteCount, Timing::Stream(api.stream(hStream)?))
    }

    /// Copies within the device.
    call cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds (api, dstDevice: u64, srcDevice: u64, ByteCount: usize) {
        api.copy(api.place_of_device(dstDevice), api.place_of_device(srcDevice), ByteCount, Timing::Wait)
    }

    /// Copies within the device in stream order.
    call cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz (api, dstDevice: u64, srcDevice: u64, ByteCount: usize, hStream: u64) {
        let timing = Timing::Stream(api.stream(hStream)?);
        api.copy(api.place_of_device(dstDevice), api.place_of_device(srcDevice), ByteCount, timing)
    }

    /// Copies between contexts.
    call cuMemcpyPeer / cuMemcpyPeer_ptds (api, dstDevice: u64, dstContext: u64, srcDevice: u64, srcContext: u64, ByteCount: usize) {
        let timing = between::timing(api, [dstContext, srcContext])?;
        api.copy(api.place_of_device(dstDevice), api.place_of_device(srcDevice), ByteCount, timing)
    }

    /// Copies between contexts in stream order.
    call cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz (api, dstDevice: u64, dstContext: u64, srcDevice: u64, srcContext: u64, ByteCount: usize, hStream: u64) {
        between::check(api, [dstContext, srcContext])?;
        let timing = Timing::Stream(api.stream(hStream)?);
        api.copy(api.place_of_device(dstDevice), api.place_of_device(srcDevice), ByteCount, timing)
    }
}
