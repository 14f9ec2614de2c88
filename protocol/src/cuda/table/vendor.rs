// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! NVIDIA's libraries (cuBLAS, cuDNN, …). Their functions are rows of their own, in `protocol/libraries`; these
//! calls carry them.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! vendor_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Loads the host's library of that number, of the major version `major` if possible. `digest` is the digest of the
            /// guest's rows of it.
            0x0f00 custom vendor_open(library: u32, major: u32, digest: u64) -> () [other same code_prints];
            /// Bulk in: a block of arguments; bulk out: a block of answers, if a thread waits for it. Calls the function of
            /// that number.
            0x0f01 custom vendor_call(library: u32, function: u32) -> () [kernels same code_prints may_post];
            /// Bulk in: the variables of NVIDIA's libraries that the process has set ([`crate::cuda::variable`]), in place of
            /// those of the last such call.
            0x0f02 custom vendor_environment() -> () [other same code no_context];
        } }
    };
}
