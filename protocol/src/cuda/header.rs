// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Heads of a call's payload and of its reply.

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Head of the payload of a call.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CallHeader {
    /// A number of the call table ([`crate::cuda::Opcode`]).
    pub opcode: u32,
    /// The guest thread that calls, numbered by the process from 1. Calls of one thread run in order, on
    /// one thread of the worker: the per-thread default stream and capture modes depend on it.
    pub thread: u32,
    /// [`crate::cuda::ContextId`] current in that thread; 0 for none.
    pub context: u64,
    /// Bytes of arguments that follow.
    pub args_bytes: u32,
    /// `CALL_*` bits.
    pub flags: u32,
    /// Bytes of bulk input, inline or in the request's in entries.
    pub bulk_in_bytes: u64,
    /// Bytes of bulk output, inline in the reply or in the request's out entries.
    pub bulk_out_bytes: u64,
}
const _: () = assert!(core::mem::size_of::<CallHeader>() == 40);

/// The bulk input follows the arguments; else it lies in the in entries.
pub const CALL_IN_INLINE: u32 = 1 << 0;
/// The bulk output follows the results in the reply; else it goes to the out entries.
pub const CALL_OUT_INLINE: u32 = 1 << 1;
/// No entry point of CUDA makes this call: it is executed even if the error of an earlier posted call is outstanding, which
/// it leaves to the program's next call. If it is posted itself, its own error is not reported.
pub const CALL_INTERNAL: u32 = 1 << 2;
/// The first bit of a field of the flags: the low bits of the number of the program's API call, while a profiler measures.
/// 0: not known.
pub const CALL_CORRELATION_SHIFT: u32 = 8;
/// The number of bits of that field.
pub const CALL_CORRELATION_BITS: u32 = 24;

/// Head of the payload of a call's reply.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ResultHeader {
    /// The `CUresult`. With an error, no results and no bulk output follow.
    pub result: i32,
    /// Bytes of results that follow.
    pub results_bytes: u32,
    /// `RESULT_*` bits.
    pub flags: u32,
    /// Bytes of inline bulk output after the results.
    pub bulk_out_bytes: u32,
}
const _: () = assert!(core::mem::size_of::<ResultHeader>() == 16);

/// Returns whether a context in which a call has this result is lost: all later calls in it fail, too (CUDA Driver API,
/// `CUresult`: "leaves the process in an inconsistent state").
#[must_use]
pub const fn breaks_context(result: i32) -> bool {
    matches!(result, 700 | 702 | 710 | 714..=719)
}

/// Device code has printed to stdout: fetch it with `session_output(1)`.
pub const RESULT_STDOUT: u32 = 1 << 0;
/// Device code or the host's driver has printed to stderr: fetch it with `session_output(2)`.
pub const RESULT_STDERR: u32 = 1 << 1;
/// The result is the error of an earlier posted call; this call was not executed.
pub const RESULT_EARLIER: u32 = 1 << 2;
