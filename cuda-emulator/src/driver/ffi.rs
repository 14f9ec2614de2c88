// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The boundary to C. Every exported function is a row of an `entries!` table that refers to its Rust function, and
//! pointers from C arrive as types that express their use.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_abi::prototypes::{Parameter, Shape};

use super::result::{CUresult, CuResult};

/// Defines exported functions. A row is `cuName => function(arguments);` or `cuName + cuName_ptsz => function(arguments);`
/// where the second name is the variant whose default stream is the per-thread one. Arguments are compared with the function's
/// prototype. The build script reads these rows.
macro_rules! entries {
    ($stage:ident $($name:ident $(+ $variant:ident)? => $function:ident $args:tt;)*) => { $(
        $crate::driver::ffi::entry! { $name $stage $function $args }
        $($crate::driver::ffi::entry! { $variant $stage per_thread $function $args })?
    )* };
}
pub(super) use entries;

/// One exported function.
macro_rules! entry {
    ($name:ident $stage:ident $function:ident ($($arg:ident: $type:ty),* $(,)?)) => {
        ::cuda_abi::check_prototype! { $name($($type),*) }
        $crate::driver::ffi::entry! { @ $name ($($arg: $type),*) $crate::driver::ffi::$stage(|| $function($($arg),*)) }
    };
    ($name:ident $stage:ident per_thread $function:ident ($($arg:ident: $type:ty),* $(,)?)) => {
        $crate::driver::ffi::entry! { @ $name ($($arg: $type),*)
            $crate::driver::ffi::$stage(|| $crate::driver::ffi::per_thread(|| $function($($arg),*))) }
    };
    (@ $name:ident ($($arg:ident: $type:ty),*) $body:expr) => {
        #[doc = concat!("`", stringify!($name), "` of the CUDA driver API.")]
        ///
        /// # Safety
        /// As the API requires: pointers are NULL or valid for their use.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "CUDA's names and arguments")]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::driver::result::CUresult {
            $crate::driver::trace::told(stringify!($name), || $body)
        }
    };
}
pub(super) use entry;

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

/// The place in which a call stores a result.
///
/// # Invariants
/// NULL, or valid for writing a `T` until the call returns. C callers guarantee that for an argument (`# Safety` of
/// the entry point). All others come from unsafe functions, whose callers guarantee it.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// A null pointer.
    pub(super) const NULL: Self = Self(std::ptr::null_mut());

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns CUDA_ERROR_INVALID_VALUE when it is NULL.
    pub(super) fn check(self) -> CuResult<()> {
        if self.0.is_null() { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    }

    /// Stores the result unless it is NULL.
    pub(super) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: valid for writing (invariant). C does not promise alignment in packed structs.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Returns whether it points to a multiple of `bytes`.
    pub(super) fn is_aligned(self, bytes: usize) -> bool {
        self.0.addr().is_multiple_of(bytes)
    }

    /// Returns the pointer to element `index` of an array of results.
    ///
    /// # Safety
    /// It must be NULL, or point to an array that has this element and is valid for writing until the call returns.
    pub(super) unsafe fn element(self, index: usize) -> Out<T> {
        Out(if self.0.is_null() { self.0 } else { self.0.wrapping_add(index) })
    }

    /// Creates a pointer that is not an argument: in a structure, or of a type that depends on another argument.
    ///
    /// # Safety
    /// The pointer must be NULL, or valid for writing a `T` until the call returns.
    pub(super) unsafe fn from_raw(pointer: *mut T) -> Out<T> {
        Out(pointer)
    }
}

/// A structure or array that a call reads.
///
/// # Invariants
/// NULL, or valid for reading as many `T` as the call's arguments state until the call returns. C callers guarantee
/// that for an argument (`# Safety` of the entry point). All others come from unsafe functions, whose callers
/// guarantee it.
#[repr(transparent)]
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// A null pointer.
    pub(super) const NULL: Self = Self(std::ptr::null());

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(super) fn get(self) -> CuResult<T> {
        self.at(0)
    }

    /// Returns element `index`, which exists according to the call's arguments.
    pub(super) fn at(self, index: usize) -> CuResult<T> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: valid for reading that many elements (invariant).
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// Creates a pointer that is not an argument: in a structure, or of a type that depends on another argument.
    ///
    /// # Safety
    /// The pointer must be NULL, or valid for reading as many `T` as are read, until the call returns. A [`Text`]'s
    /// ends with a NUL.
    pub(super) unsafe fn from_raw(pointer: *const T) -> In<T> {
        In(pointer)
    }
}

/// A pointer through which a call reads a value and stores a result.
///
/// # Invariants
/// Those of [`Out`], and it points to a `T` where the API makes the call read one.
#[repr(transparent)]
#[derive(Debug)]
pub struct InOut<T>(*mut T);

impl<T> Clone for InOut<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for InOut<T> {}

impl<T: Copy> InOut<T> {
    /// A null pointer.
    pub(super) const NULL: Self = Self(std::ptr::null_mut());

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the same pointer, only for storing.
    pub(super) fn out(self) -> Out<T> {
        Out(self.0)
    }

    /// Returns CUDA_ERROR_INVALID_VALUE when it is NULL.
    pub(super) fn check(self) -> CuResult<()> {
        self.out().check()
    }

    /// Returns the value that the caller has stored there.
    pub(super) fn get(self) -> CuResult<T> {
        self.check()?;
        // SAFETY: not NULL, so that a `T` is there (invariant). C does not promise alignment in packed structs.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Stores the result unless it is NULL.
    pub(super) fn set(self, value: T) {
        self.out().set(value);
    }

    /// Returns element `index` of an array.
    ///
    /// # Safety
    /// It must be NULL, or point to an array that has this element, which satisfies the invariants, too.
    pub(super) unsafe fn element(self, index: usize) -> InOut<T> {
        InOut(if self.0.is_null() { self.0 } else { self.0.wrapping_add(index) })
    }

    /// Returns the member that begins `offset` bytes after the start of the structure.
    ///
    /// # Safety
    /// The structure must have such a member there.
    pub(super) unsafe fn member<M: Copy>(self, offset: usize) -> InOut<M> {
        InOut(if self.0.is_null() { std::ptr::null_mut() } else { self.0.wrapping_byte_add(offset).cast() })
    }
}

impl<T> Parameter for Out<T> {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}
impl<T> Parameter for In<T> {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}
impl<T> Parameter for InOut<T> {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}

/// A C string that a call reads. The invariant applies to the bytes up to the NUL.
pub type Text = In<c_char>;

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
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Copies `text` and a NUL to a buffer of `capacity` bytes, cut to fit.
///
/// # Safety
/// `to` must be NULL, or valid for writing `capacity` bytes until the call returns.
pub(super) unsafe fn copy_text(to: Out<c_char>, capacity: usize, text: &str) {
    let room = capacity.saturating_sub(1).min(text.len());
    for (index, byte) in text.as_bytes()[..room].iter().enumerate() {
        // SAFETY: `index` is less than `room`, which is less than `capacity`.
        unsafe { to.element(index) }.set(*byte as c_char);
    }
    if capacity > 0 {
        // SAFETY: `room` is at most `capacity - 1`.
        unsafe { to.element(room) }.set(0);
    }
}
