// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Texture and surface objects. Kernels take their values, so the driver names them, not the guest.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! texture_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates a texture object.
            0x0940 custom cuTexObjectCreate(resource: ResourceDescriptor, texture: TextureDescriptor, view: ViewDescriptor) -> (object: u64);
            /// Destroys a texture object.
            0x0941 custom cuTexObjectDestroy(object: u64) -> ();
            /// Creates a surface object.
            0x0942 custom cuSurfObjectCreate(resource: ResourceDescriptor) -> (object: u64);
            /// Destroys a surface object.
            0x0943 custom cuSurfObjectDestroy(object: u64) -> ();
            /// Elements of the longest 1D texture in linear memory.
            0x0944 custom cuDeviceGetTexture1DLinearMaxWidth(format: u32, channels: u32, device: u32) -> (elements: u64);
        } }
    };
}
