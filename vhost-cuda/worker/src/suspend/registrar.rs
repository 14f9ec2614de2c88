// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers the pool with the driver, in a context of the session.
//!
//! Kernels of the session can reach registered memory. The pool has nothing but zeros and the session's own contents.

use std::ffi::c_void;

use super::pages::Registrar;
use crate::gpu::{CuResult, CudaError, HOST_PORTABLE_MAPPED};
use crate::run::marks::may_look_while_others_capture;
use crate::state::SessionState;

/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
const NOT_REGISTERED: CudaError = CudaError(713);

/// The registrar of a session.
#[derive(Clone, Copy, Debug)]
pub struct InSession(pub &'static SessionState);

impl InSession {
    /// Calls the driver while a context is current.
    ///
    /// Errors: there is no context, and the driver's.
    fn call(self, body: impl FnOnce() -> CuResult<()>) -> CuResult<()> {
        let Self(session) = self;
        let contexts = session.contexts.all();
        // What one context registers, those of all devices can use.
        let whole = contexts.iter().find(|context| !context.is_green());
        let context = whole.ok_or(CudaError::INVALID_CONTEXT)?;
        session.gpu.cuCtxSetCurrent(context.object.raw::<c_void>().cast())?;
        may_look_while_others_capture(&session.gpu);
        body()
    }
}

impl Registrar for InSession {
    unsafe fn register(&self, address: usize, bytes: usize) -> bool {
        let gpu = &self.0.gpu;
        // SAFETY: the caller vouches for memory that stays mapped.
        let register = || unsafe { gpu.cuMemHostRegister_v2(address as *mut _, bytes, HOST_PORTABLE_MAPPED) };
        self.call(register).is_ok()
    }

    fn unregister(&self, address: usize) -> bool {
        let gpu = &self.0.gpu;
        // SAFETY: this type has registered it, and no copy is under way: nobody uses the block.
        let unregister = || unsafe { gpu.cuMemHostUnregister(address as *mut _) };
        matches!(self.call(unregister), Ok(()) | Err(NOT_REGISTERED))
    }
}
