// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The boundary to C. Every exported function is a row of an `entries!` table that refers to its Rust function, and
//! pointers from C arrive as types that express their use.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_abi::pointers::{self, NullPointer};
use cuda_abi::prototypes::{Parameter, Shape};

use super::result::{CUresult, CuResult};

/// Defines exported functions. A row is `cuName => function(arguments);` or `cuName + cuName_ptsz => function(arguments);`
/// where the second name is the variant whose default stream is the per-thread one. Behind `as` stand the values that the Rust
/// function gets in place of the arguments. Arguments are compared with the function's prototype. It is no function, because each name is a symbol with a type of its own.
macro_rules! entries {
    (@prototype $name:ident ($($arg:ident: $type:ty),* $(,)?)) => { ::cuda_abi::check_prototype! { $name($($type),*) } };
    (@call $function:ident ($($arg:ident),*)) => { $function($($arg),*) };
    (@call $function:ident ($($arg:ident),*) ($($given:tt)*)) => { $function($($given)*) };
    (@one $name:ident ($($arg:ident: $type:ty),* $(,)?) $function:ident [$($given:tt)?] $stage:ident $($around:ident)?) => {
        #[doc = concat!("`", stringify!($name), "` of the CUDA driver API.")]
        ///
        /// # Safety
        /// As the API requires: pointers are NULL or valid for their use.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "CUDA's names and arguments")]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::driver::result::CUresult {
            let body = || $crate::driver::ffi::entries! { @call $function ($($arg),*) $($given)? };
            $(let body = || $crate::driver::ffi::$around(body);)?
            $crate::driver::trace::told(
                stringify!($name),
                || ::cuda_abi::trace_arguments!($($arg),*),
                || $crate::driver::ffi::$stage(body),
            )
        }
    };
    (@row $name:ident [$($variant:ident)?] $args:tt $function:ident $given:tt $stage:ident) => {
        $crate::driver::ffi::entries! { @prototype $name $args }
        $crate::driver::ffi::entries! { @one $name $args $function $given $stage }
        $($crate::driver::ffi::entries! { @one $variant $args $function $given $stage per_thread })?
    };
    ($stage:ident $($name:ident $(+ $variant:ident)? => $function:ident $args:tt $(as $given:tt)?;)*) => { $(
        $crate::driver::ffi::entries! { @row $name [$($variant)?] $args $function [$($given)?] $stage }
    )* };
}
pub(super) use entries;

static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True if the running call is a `_ptsz` or `_ptds` one.
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
    /// True if this thread is inside a host function of a stream or graph.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// True if the host function that runs has reported an illegal address.
    static ILLEGAL_ADDRESS: Cell<bool> = const { Cell::new(false) };
}

/// Runs the body of an entry that works before cuInit.
pub(super) fn before_init(body: impl FnOnce() -> CuResult<()>) -> CUresult {
    // A panic must not cross into C. State stays consistent: locks ignore poisoning and each change is one step.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// Runs the body of an entry that needs cuInit in this process.
pub(super) fn after_init(body: impl FnOnce() -> CuResult<()>) -> CUresult {
    if !initialised() {
        return CUresult::CUDA_ERROR_NOT_INITIALIZED;
    }
    if IN_HOST_FUNCTION.get() {
        return CUresult::CUDA_ERROR_NOT_PERMITTED;
    }
    before_init(body)
}

/// Called once by cuInit. A child of fork() has no threads and finds [`forked`] true.
pub(super) fn mark_initialised() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    INITIALISED.store(true, Ordering::Release);
}

/// Returns whether cuInit has succeeded in this process.
pub(super) fn initialised() -> bool {
    INITIALISED.load(Ordering::Acquire) && !forked()
}

/// Returns whether this process is a fork()ed child of a process that called cuInit.
pub(super) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Runs one of the program's functions on a stream's thread. It must not call the API.
///
/// Errors: `CUDA_ERROR_ILLEGAL_ADDRESS`, if the function reports it ([`report_illegal_address`]).
pub(super) fn in_host_function(function: impl FnOnce()) -> CuResult<()> {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
    if ILLEGAL_ADDRESS.take() { Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS) } else { Ok(()) }
}

/// Makes the running host function fail like a kernel that accesses an illegal address.
pub(super) fn report_illegal_address() {
    ILLEGAL_ADDRESS.set(IN_HOST_FUNCTION.get());
}

/// Runs `body` with the per-thread default stream as stream 0.
pub(super) fn per_thread<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            PER_THREAD.set(self.0);
        }
    }
    let _restore = Restore(PER_THREAD.replace(true));
    body()
}

/// Returns whether stream 0 is the per-thread default stream in this call.
pub(super) fn default_stream_is_per_thread() -> bool {
    PER_THREAD.get()
}

/// The driver's answer to NULL.
#[derive(Clone, Copy, Debug)]
pub struct Emulated;

impl NullPointer for Emulated {
    type Error = CUresult;
    const ERROR: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
}

/// The place in which a call stores a result.
pub type Out<T> = pointers::Out<T, Emulated>;
/// A structure or array that a call reads.
pub type In<T> = pointers::In<T, Emulated>;
/// A pointer through which a call reads a value and stores a result.
pub type InOut<T> = Out<T>;

/// A C string that a call reads. The invariant applies to the bytes up to the NUL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(In<c_char>);

impl Text {
    /// As [`Self::text`], but an empty text is an error, too.
    pub(super) fn name(self) -> CuResult<String> {
        self.text()
            .and_then(|text| if text.is_empty() { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(text) })
    }

    /// Returns the text, or CUDA_ERROR_INVALID_VALUE for NULL. Bytes that are not UTF-8 are replaced.
    pub(super) fn text(self) -> CuResult<String> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: a C string that is valid until the call returns (invariant).
        Ok(unsafe { CStr::from_ptr(self.0.as_ptr()) }.to_string_lossy().into_owned())
    }
}

impl Parameter for Text {
    const SHAPE: Shape = Shape::Pointer(size_of::<c_char>());
}

/// Copies `text` and a NUL to a buffer of `capacity` bytes, cut to fit.
///
/// # Safety
/// `to` must be NULL, or valid for writing `capacity` bytes until the call returns.
pub(super) unsafe fn copy_text(to: Out<c_char>, capacity: usize, text: &str) {
    let room = capacity.saturating_sub(1).min(text.len());
    for (index, byte) in text.as_bytes()[..room].iter().enumerate() {
        // SAFETY: `index` is less than `room`, which is less than `capacity`.
        unsafe { to.element(index) }.set_if_wanted(*byte as c_char);
    }
    if capacity > 0 {
        // SAFETY: `room` is at most `capacity - 1`.
        unsafe { to.element(room) }.set_if_wanted(0);
    }
}
