// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The linker, and modules loaded with options for the compiler.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! link_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Bulk in: the image. Loads it as `module` with options. [`Opcode::jit_logs`] then returns the logs, also
            /// after an error.
            0x0b00 custom cuModuleLoadDataEx(module: ModuleId, options: JitOptions) -> () [other same code_prints];
            /// Bulk out: information log, then error log, of the calling thread's last call with [`JitOptions`].
            0x0b01 custom jit_logs() -> (info_bytes: u32, error_bytes: u32, wall_time: f32, threads_per_block: u32) [other same code];
            /// Begins a link named `link`.
            0x0b02 custom cuLinkCreate_v2(link: LinkId, options: JitOptions) -> () [other same code];
            /// Bulk in: a name of `name_bytes` bytes, then the input. [`Opcode::jit_logs`] then returns the logs.
            0x0b03 custom cuLinkAddData_v2(link: LinkId, kind: u32, name_bytes: u32, options: JitOptions) -> () [other same code];
            /// Links. [`Opcode::link_image`] then returns the image.
            0x0b04 custom cuLinkComplete(link: LinkId) -> (bytes: u64) [other same code];
            /// Bulk out: the linked image from `offset` on, as much as fits.
            0x0b05 custom link_image(link: LinkId, offset: u64) -> (bytes: u64) [other same code];
            /// Ends a link.
            0x0b06 destroy cuLinkDestroy(link: LinkId) -> () [other same code];
        } }
    };
}
