// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Launches.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! launch_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Bulk in: the packed parameter block. Covers `cuLaunchKernelEx` and `cuLaunchCooperativeKernel` too.
            0x0501 custom cuLaunchKernel(function: FunctionId, stream: StreamId, shape: LaunchShape) -> () [queues_kernel same code_prints may_post];
            /// Bulk in: `attributes` times [`LaunchAttribute`], then the packed parameter block. For launches with
            /// attributes that [`LaunchShape`] does not have.
            0x0502 forward cuLaunchKernelEx(function: FunctionId, stream: StreamId, shape: LaunchShape, attributes: u32) -> () [queues_kernel same code_prints]
                as launch(function, stream, launch_with(shape, attributes));
            /// As `cuLaunchKernelEx`, for a captured launch that becomes a node that device code can change: `node` is the
            /// `CUgraphDeviceNode`, which has a meaning on the device only; 0 for none.
            0x0503 forward launch_updatable(function: FunctionId, stream: StreamId, shape: LaunchShape, attributes: u32) -> (node: u64) [kernels same code_prints]
                as launch_updatable(function, stream, launch_with(shape, attributes));
        } }
    };
}
