// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions for this project's `libcublas.so` and similar libraries (`guest-lib/vendor`), which find them with dlsym.
//! They make calls of NVIDIA's libraries, in order with all other calls of the process. Not part of CUDA.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_abi::TraceArguments;
use virtio_cuda_client::protocol::{LIBRARY_VARIABLES, MAX_VARIABLE_VALUE, is_variable_value};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{calls, changes};

use crate::api::Api;
use crate::entry::{self, CUresult, DefaultStream};
use crate::ffi::Out;
use crate::memory::host;
use crate::state::memory::ranges::HostKind;
use crate::state::moving::Uses;

/// `CU_MEMHOSTALLOC_PORTABLE`.
const PORTABLE: u32 = 1;

/// The arguments of [`virtio_cuda_vendor_call`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VendorCall {
    library: u32,
    function: u32,
    /// The stream on which the work runs.
    stream: u64,
    /// A block of arguments.
    input: usize,
    input_bytes: usize,
    /// Room for a block of results.
    output: usize,
    /// 0 if the call need not wait for results.
    output_bytes: usize,
    /// 1 for a question of the front, whose answer the program does not get; else 0.
    internal: u32,
    /// The graph that the call changes; 0 for none.
    graph: u64,
    /// If the call need not wait: the number of all on which the work depends that it queues, except the addresses.
    work: u64,
}

/// Set once environment variables were sent.
static SENT: AtomicBool = AtomicBool::new(false);

/// Returns the environment variables of this process that libraries in the worker read: a record of
/// `vendor_environment`. `None` if there never were any.
fn variables() -> Option<Vec<u8>> {
    let mut record = Vec::new();
    for name in LIBRARY_VARIABLES {
        let Some(value) = std::env::var_os(name) else { continue };
        if is_variable_value(value.as_bytes()) {
            record.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
        } else {
            log::error!(
                "{name} is ignored: its value is longer than {MAX_VARIABLE_VALUE} bytes, or not plain text"
            );
        }
    }
    if record.is_empty() && !SENT.load(Ordering::Relaxed) {
        return None;
    }
    SENT.store(true, Ordering::Relaxed);
    Some(record)
}

/// Makes the worker load a library of the host, with the current environment variables. `digests` has the digests of `count`
/// rows by the numbers of the functions. `same` gets a bit for each, `count / 8` bytes rounded up: 1 if the worker's row is the same.
///
/// Errors: `CUDA_ERROR_NOT_FOUND` if the host does not have it.
///
/// # Safety
///
/// Both addresses have the specified numbers of readable and writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn virtio_cuda_vendor_load(
    library: u32,
    major: u32,
    digests: *const u64,
    count: usize,
    same: *mut u8,
) -> CUresult {
    entry::call(
        const { &entry::Call::new("virtio_cuda_vendor_load") },
        DefaultStream::Legacy,
        TraceArguments::new,
        |api| {
            // Its caller keeps an error for ever.
            let api = api.internal();
            if let Some(variables) = variables() {
                calls::vendor_environment(&mut api.in_context()?.input(&variables))?;
            }
            let digests = UserMemory { address: digests.addr(), bytes: count * size_of::<u64>() };
            let same = UserMemory { address: same.addr(), bytes: count.div_ceil(8) };
            // SAFETY: the caller of this function promises that both are valid until it returns.
            let mut call = unsafe { api.in_context()?.input_at(digests).output_at(same) };
            calls::vendor_load(&mut call, library, major)
        },
    )
}

/// Allocates pinned memory for a front, which goes on without it after an error.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_vendor_pinned(address: Out<u64>, bytes: usize) -> CUresult {
    entry::call(
        const { &entry::Call::new("virtio_cuda_vendor_pinned") },
        DefaultStream::Legacy,
        TraceArguments::new,
        |api| {
            address.check()?;
            // The program may make the call of its library while a stream captures.
            let allocate = || host::allocate(api.internal(), bytes, HostKind::Allocated, PORTABLE);
            address.set(api.with_capture_relaxed(allocate)?)
        },
    )
}

/// Copies of the data that a call reads and writes in managed memory that moves.
#[derive(Default)]
struct Bounce {
    input: Option<Vec<u8>>,
    output: Option<Vec<u8>>,
}

impl Bounce {
    fn of(api: Api, call: &VendorCall) -> Self {
        let moving = &api.driver.memory.moving;
        if !moving.any() {
            return Self::default();
        }
        let copy = |address: usize, bytes: usize| {
            let moves = bytes > 0 && moving.at(address as u64).is_some();
            // SAFETY: the caller of the library's function promises that many bytes there.
            moves.then(|| unsafe { UserMemory { address, bytes }.to_vec() })
        };
        Self { input: copy(call.input, call.input_bytes), output: copy(call.output, call.output_bytes) }
    }

    /// Returns the memory that the call reads and writes.
    fn ends(&mut self, call: &VendorCall) -> (UserMemory, UserMemory) {
        let input = UserMemory { address: call.input, bytes: call.input_bytes };
        let output = UserMemory { address: call.output, bytes: call.output_bytes };
        (
            self.input.as_deref().map_or(input, UserMemory::of),
            self.output.as_deref_mut().map_or(output, UserMemory::of_mut),
        )
    }

    /// Stores the results of the call.
    fn give_out(self, call: &VendorCall) {
        if let Some(output) = self.output {
            // SAFETY: the caller of the library's function promises that many bytes there, which nothing else uses.
            unsafe { std::ptr::copy_nonoverlapping(output.as_ptr(), call.output as *mut u8, output.len()) };
        }
    }
}

/// Returns the number of the work in the calling thread's capture once the call has added its own, if nothing else is in it.
fn captured(api: Api, call: &VendorCall) -> Option<u64> {
    if call.output_bytes > 0 || !api.driver.captures.any() {
        return None;
    }
    let stream = api.capturing(call.stream).ok()?;
    let work = u64::from(call.library) << 32 | u64::from(call.function);
    api.driver.retraced.next(stream, call.work.wrapping_add(work), changes::in_captures())
}

/// Makes the worker call a function of a library that it has loaded.
///
/// Errors: those of launches, and `CUDA_ERROR_INVALID_VALUE` for a block that does not fit the function's row.
///
/// # Safety
///
/// `call` points to a [`VendorCall`] whose addresses have the specified numbers of readable and writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn virtio_cuda_vendor_call(call: *const VendorCall) -> CUresult {
    // SAFETY: `call` points to a `VendorCall` by this function's contract.
    let call = &unsafe { call.read() };
    entry::call(
        const { &entry::Call::new("virtio_cuda_vendor_call") },
        DefaultStream::Legacy,
        TraceArguments::new,
        |api| {
            let api = if call.internal == 0 { api } else { api.internal() };
            // Managed memory belongs to the GPU while work is being queued, so the data is copied.
            let mut own = Bounce::of(api, call);
            let (input, output) = own.ends(call);
            let sent = api.before_work(Uses::Anything, api.stream(call.stream)?)?;
            // SAFETY: both ends are buffers of `own`, which outlive the call, or the memory that the caller of this
            // function promises to be readable and writable.
            let mut row = unsafe { api.in_context()?.input_at(input).output_at(output) };
            // Captured before, behind the same calls.
            let retraced = captured(api, call);
            let again = retraced.is_some_and(|work| api.driver.retraced.was_captured(work));
            if call.output_bytes == 0
                && (api.may_post(call.stream) || again && api.may_post_captured(call.stream))
            {
                row = row.posted();
            }
            if call.graph != 0 {
                api.driver.retraced.forget(call.graph);
            }
            let called = calls::vendor_call(&mut row, call.library, call.function);
            api.driver.retraced.captured(retraced.filter(|_| called.is_ok()));
            called?;
            api.work_queued();
            drop(sent);
            own.give_out(call);
            api.end_asynchronous(api.stream(call.stream)?)
        },
    )
}
