// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The wrapper of every entry point. It refuses calls that are invalid in the current state, and never unwinds into C.

pub mod error_log;
pub mod result_texts;
pub mod states;

use std::panic::{AssertUnwindSafe, catch_unwind};

use virtio_cuda_client::caller::at_entry_point;
use virtio_cuda_client::{CudaError, broken, process};

pub use crate::api::{Api, DefaultStream};
use crate::driver::Driver;
pub use crate::ffi::CUresult;
use crate::state::contexts::current;
use crate::trace;

use self::states::State;

/// An exported function, for `cuGetProcAddress`.
#[derive(Clone, Copy, Debug)]
pub struct EntryPoint {
    /// The exported name, with its suffix.
    pub name: &'static str,
    /// Address of its code.
    pub address: *const (),
}

// SAFETY: both are constants: a name and the address of a function.
unsafe impl Sync for EntryPoint {}

/// The constant properties of a function that the wrapper needs.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    name: &'static str,
    state: State,
}

impl Call {
    /// Returns the properties of the function with this name; for constants only.
    pub const fn new(name: &'static str) -> Self {
        Self { name, state: State::of(name) }
    }
}

/// Runs the body of a call that needs `cuInit`.
pub fn call(
    call: &'static Call,
    default_stream: DefaultStream,
    body: impl FnOnce(Api) -> Result<(), CudaError>,
) -> CUresult {
    guard(call.name, || {
        process::check()?;
        let driver = Driver::get().ok_or_else(|| call.state.before_init())?;
        if crate::state::in_callback::in_callback() {
            return Err(CudaError::NOT_PERMITTED);
        }
        check_context(driver, call.state)?;
        let outcome = at_entry_point(|entry| body(Api::of_entry_point(driver, default_stream, entry)));
        outcome.map_err(|error| {
            let lacks = error == CudaError::INVALID_CONTEXT && !call.state.is_recorded;
            if lacks && driver.contexts.is_destroyed(current()) {
                CudaError::CONTEXT_IS_DESTROYED
            } else {
                error
            }
        })
    })
}

/// Refuses calls that NVIDIA's driver refuses because of the context's state before it checks anything else.
fn check_context(driver: &Driver, state: State) -> Result<(), CudaError> {
    let context = current();
    if context == 0 && state.needs_context {
        return Err(CudaError::INVALID_CONTEXT);
    }
    if driver.contexts.is_destroyed(context) && state.refuses_destroyed {
        return Err(CudaError::CONTEXT_IS_DESTROYED);
    }
    match broken::error_of(context) {
        Some(error) if !state.works_when_broken => Err(error),
        _ => Ok(()),
    }
}

/// Performs the checks of [`call`] for functions that this library lacks.
pub fn state_error(state: State) -> Result<(), CudaError> {
    process::check()?;
    check_context(Driver::get().ok_or_else(|| state.before_init())?, state)
}

/// Runs the body of a call that works before `cuInit`.
pub fn early(
    call: &'static Call,
    _default_stream: DefaultStream,
    body: impl FnOnce(()) -> Result<(), CudaError>,
) -> CUresult {
    guard(call.name, || {
        process::check()?;
        body(())
    })
}

/// Runs the body of a call that works at any time, because it uses no state.
pub fn always(
    call: &'static Call,
    _default_stream: DefaultStream,
    body: impl FnOnce(()) -> Result<(), CudaError>,
) -> CUresult {
    guard(call.name, || body(()))
}

fn guard(name: &'static str, body: impl FnOnce() -> Result<(), CudaError>) -> CUresult {
    match trace::hooks() {
        None => run(name, body),
        Some(hooks) => trace::told(hooks, name, || run(name, body)),
    }
}

fn run(name: &'static str, body: impl FnOnce() -> Result<(), CudaError>) -> CUresult {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            log::debug!("{name}: {error}");
            error_log::note(name, error);
            error.code()
        }
        Err(_) => {
            log::error!("{name}: internal error of this library");
            CudaError::UNKNOWN.code()
        }
    }
}

/// Defines exported functions and a table of them. A function is
///
/// ```text
/// /// What it does.
/// call cuMemcpyAsync / cuMemcpyAsync_ptsz (api, dst: u64, src: u64, bytes: usize, stream: u64) { … }
/// ```
///
/// `call` needs `cuInit` and gets an [`Api`]; `early` does not and gets `()`; `always` works even in a forked child and
/// at exit. The name after the slash is the variant with a per-thread default stream. The body returns
/// `Result<(), CudaError>`.
#[macro_export]
#[doc(hidden)]
macro_rules! entry_points {
    ($($(#[$doc:meta])* $kind:ident $name:ident $(/ $per_thread:ident)? ($($parameters:tt)*) $body:block)*) => {
        /// The entry points of this file.
        pub(crate) static ENTRY_POINTS: &[$crate::entry::EntryPoint] = &[$(
            $crate::entry::EntryPoint { name: stringify!($name), address: $name as *const () },
            $($crate::entry::EntryPoint { name: stringify!($per_thread), address: $per_thread as *const () },)?
        )*];
        $($crate::entry_points!(@one [$(#[$doc])*] $kind [$name $($per_thread)?] ($($parameters)*) $body);)*
    };
    (@one [$($doc:tt)*] $kind:ident [$name:ident] ($api:pat $(, $p:ident: $t:ty)*) $body:block) => {
        ::cuda_abi::check_prototype!($name($($t),*));
        $crate::entry_points!(@function [$($doc)*] $kind $name Legacy ($api $(, $p: $t)*) $body);
    };
    (@one [$($doc:tt)*] $kind:ident [$name:ident $per_thread:ident] ($api:pat $(, $p:ident: $t:ty)*) $body:block) => {
        ::cuda_abi::check_prototype!($name($($t),*));
        $crate::entry_points!(@function [$($doc)*] $kind $name Legacy ($api $(, $p: $t)*) $body);
        $crate::entry_points!(@function [$($doc)*] $kind $per_thread PerThread ($api $(, $p: $t)*) $body);
    };
    (@function [$($doc:tt)*] $kind:ident $name:ident $default:ident ($api:pat $(, $p:ident: $t:ty)*) $body:block) => {
        $($doc)*
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($p: $t),*) -> $crate::entry::CUresult {
            $crate::entry::$kind(
                const { &$crate::entry::Call::new(stringify!($name)) },
                $crate::entry::DefaultStream::$default,
                |$api| -> ::std::result::Result<(), ::virtio_cuda_client::CudaError> { $body },
            )
        }
    };
}
