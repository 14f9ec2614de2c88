// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Memory of the device, of the host, and copies between them.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! memory_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Allocates device memory.
            0x0301 custom cuMemAlloc_v2(bytesize: u64) -> (dptr: DevicePtr) [idle same prints];
            /// Frees device memory.
            0x0302 custom cuMemFree_v2(dptr: DevicePtr) -> () [idle same prints];
            /// Free and total device memory that this session may use.
            0x0303 custom cuMemGetInfo_v2() -> (free: u64, total: u64) [idle same silent];
            /// Allocates rows padded to the device's pitch.
            0x0304 custom cuMemAllocPitch_v2(width: u64, height: u64, element_bytes: u32) -> (dptr: DevicePtr, pitch: u64) [other same prints];
            /// The allocation that holds `dptr`.
            0x0305 custom cuMemGetAddressRange_v2(dptr: DevicePtr) -> (base: DevicePtr, bytes: u64) [other same silent];
            /// Allocates in stream order.
            0x0306 custom cuMemAllocAsync(bytesize: u64, stream: StreamId) -> (dptr: DevicePtr) [other same silent];
            /// Frees in stream order.
            0x0307 custom cuMemFreeAsync(dptr: DevicePtr, stream: StreamId) -> () [other same silent];
            /// Maps the request's kept pages side by side and registers them with the GPU. `address` is their address in
            /// the guest process: the worker uses the same address if it can, always inside the address window.
            /// `OP_UNPIN` undoes it.
            0x0308 custom cuMemHostRegister_v2(address: u64, bytesize: u64, flags: u32) -> (dptr: DevicePtr) [other same prints];
            /// Describes `ptr`: `memory_type` as `CU_POINTER_ATTRIBUTE_MEMORY_TYPE` (0 for not known here), its
            /// allocation, context, device ordinal and buffer id.
            0x0309 custom cuPointerGetAttributes(ptr: DevicePtr) -> (memory_type: u32, base: DevicePtr, bytes: u64, context: ContextId, device: i32, buffer_id: u64) [other same silent];
            /// Bulk in: the source. `stream` is a default stream. Returns when the driver's `cuMemcpyHtoD` does: later work of
            /// any stream sees the bytes.
            0x0310 upload cuMemcpyHtoD_v2(dst: DevicePtr, stream: StreamId) -> () [other same prints may_post];
            /// Bulk out: the destination.
            0x0311 download cuMemcpyDtoH_v2(src: DevicePtr) -> () [idle same prints];
            /// Copies inside the device.
            0x0312 forward cuMemcpyDtoD_v2(dst: DevicePtr, src: DevicePtr, bytes: u64) -> () [fills same prints may_post] where dst: Some(bytes), src: Some(bytes);
            /// Bulk in: the source, in stream order. Returns once the source may be reused.
            0x0313 upload cuMemcpyHtoDAsync_v2(dst: DevicePtr, stream: StreamId) -> () [queues_copy same prints may_post];
            /// Bulk out: the destination, in stream order. Returns once the bytes have arrived.
            0x0314 download cuMemcpyDtoHAsync_v2(src: DevicePtr, stream: StreamId) -> () [other same prints];
            /// Copies between any two addresses the device can reach (device or registered host memory).
            0x0315 forward cuMemcpyAsync(dst: DevicePtr, src: DevicePtr, bytes: u64, stream: StreamId) -> () [queues_copy same prints may_post] where dst: Some(bytes), src: Some(bytes);
            /// Copies as `cuMemcpyAsync`. If one end is registered host memory, it returns once the copy is complete.
            0x0319 custom memcpy_wait(dst: DevicePtr, src: DevicePtr, bytes: u64, stream: StreamId) -> () [idle same prints];
            /// Makes allocations of `bytesize` bytes each, as many as addresses (64 bits each) fit the bulk output, at
            /// most 64. Bulk out: the addresses. Fewer if memory runs out; an error if not even one is possible.
            0x031a custom memory_alloc_many(bytesize: u64) -> (count: u32) [idle same prints];
            /// Frees memory of `cuMemAlloc`; if `kept` is not 0, leaves it to the guest library instead, which will use it soon.
            /// Must only be called if `cuMemFree` would have nothing to wait for.
            0x031b custom memory_free_or_keep(dptr: DevicePtr) -> (kept: u32) [idle same prints];
            /// Maps the request's kept pages as `cuMemHostRegister_v2` does, and leaves registering them to
            /// `window_register`, because the room of a request limits its pages. `base` is their address in the worker.
            0x031c custom window_map(address: u64, bytesize: u64) -> (base: u64) [other same prints];
            /// Registers `bytesize` contiguous bytes of the window from `base` on, which whole requests have mapped, as one
            /// range. The registration ends with the first of its parts that `OP_UNPIN` takes away.
            0x031d custom window_register(base: u64, bytesize: u64, flags: u32) -> (dptr: DevicePtr) [other same prints];
            /// Copies a box in stream order. Bulk in or bulk out: the packed rows of an end of kind [`COPY_BULK`], of which
            /// there is at most one.
            0x031e custom memcpy_box(dst: CopyEnd, src: CopyEnd, size: Box3, stream: StreamId) -> () [other same prints];
            /// Copies between device memory of two contexts. All work that was queued in both and in the current one comes
            /// before, all later work after it.
            0x031f forward cuMemcpyPeer(dst: DevicePtr, dst_context: ContextId, src: DevicePtr, src_context: ContextId, bytes: u64) -> () [fills same prints may_post] where dst: Some(bytes), src: Some(bytes);
            /// Sets `n` bytes, in stream order.
            0x0320 forward cuMemsetD8Async(dst: DevicePtr, uc: u8, n: u64, stream: StreamId) -> () [queues_fill same prints may_post] where dst: elements(n, 1);
            /// Sets `n` 16-bit values, in stream order.
            0x0321 forward cuMemsetD16Async(dst: DevicePtr, us: u16, n: u64, stream: StreamId) -> () [queues_fill same prints may_post] where dst: elements(n, 2);
            /// Sets `n` 32-bit values, in stream order.
            0x0322 forward cuMemsetD32Async(dst: DevicePtr, ui: u32, n: u64, stream: StreamId) -> () [queues_fill same prints may_post] where dst: elements(n, 4);
            /// Sets a pitched rectangle of bytes, in stream order.
            0x0323 forward cuMemsetD2D8Async(dst: DevicePtr, pitch: u64, uc: u8, width: u64, height: u64, stream: StreamId) -> () [fills same prints may_post] where dst: rows(width, 1, pitch, height);
            /// Sets a pitched rectangle of 16-bit values, in stream order.
            0x0324 forward cuMemsetD2D16Async(dst: DevicePtr, pitch: u64, us: u16, width: u64, height: u64, stream: StreamId) -> () [fills same prints may_post] where dst: rows(width, 2, pitch, height);
            /// Sets a pitched rectangle of 32-bit values, in stream order.
            0x0325 forward cuMemsetD2D32Async(dst: DevicePtr, pitch: u64, ui: u32, width: u64, height: u64, stream: StreamId) -> () [fills same prints may_post] where dst: rows(width, 4, pitch, height);
        } }
    };
}
