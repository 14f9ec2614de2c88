// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contexts, including primary ones, and each thread's stack of current contexts.

pub(super) mod api;
mod checkpoint;
mod core_dump;
mod core_dump_api;
pub(super) mod end;
mod events;
pub(super) mod green;
pub(super) mod limits;
mod profiler;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::device::{Device, device};
use super::handle::{Handle, Registry};
use super::launch::output;
use super::result::{CUresult, CuResult};
use super::stream::Stream;
use super::stream::queue::Mark;
use crate::execute::Printf;

/// A context's handle.
pub type CUcontext = Handle<Context>;

/// The default of `cudaLimitStackSize`, in bytes.
const DEFAULT_STACK: u64 = 1024;
/// The default of `cudaLimitDevRuntimePendingLaunchCount`.
const DEFAULT_PENDING_LAUNCHES: u64 = 2048;

static CONTEXTS: Registry<Context> = Registry::new();

impl crate::driver::handle::Object for Context {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Context);
}

thread_local! {
    /// The top of this thread's stack. It needs no destructor, so that it exists in exit handlers, where programs
    /// free memory after thread-local values with a destructor have ended.
    static TOP: Cell<Option<CUcontext>> = const { Cell::new(None) };
    /// The rest of the stack.
    static BELOW: RefCell<Vec<CUcontext>> = const { RefCell::new(Vec::new()) };
}

fn push_handle(handle: CUcontext) {
    if let Some(old) = TOP.replace(Some(handle)) {
        let _ = BELOW.try_with(|below| below.borrow_mut().push(old));
    }
}

fn pop_handle() -> Option<CUcontext> {
    let below = BELOW.try_with(|below| below.borrow_mut().pop()).unwrap_or(None);
    TOP.replace(below)
}

/// A context: streams, modules and allocations.
pub struct Context {
    pub(super) handle: CUcontext,
    /// cuCtxGetId. A primary context that was reset gets another id.
    pub(super) id: u64,
    pub(super) device: &'static Device,
    pub(super) flags: AtomicU32,
    primary: bool,
    /// The number of holders that cuCtxAttach added.
    attached: AtomicU32,
    pub(super) legacy: Arc<Stream>,
    pub(super) streams: Mutex<Vec<Weak<Stream>>>,
    /// The marks that all later work waits for (cuCtxWaitEvent).
    pub(super) awaited: Mutex<Vec<Mark>>,
    /// Held while work is ordered between the streams.
    pub(super) order: Mutex<()>,
    pub(super) printf: Printf,
    pub(super) stack_limit: AtomicU64,
    /// cudaLimitDevRuntimePendingLaunchCount
    pub(super) pending_launches: AtomicU64,
    pub(super) cache_config: AtomicU32,
    pub(super) shared_config: AtomicU32,
    /// The ids of the contexts whose memory this one can access (cuCtxEnablePeerAccess).
    pub(super) peers: Mutex<BTreeSet<u64>>,
}

impl Context {
    fn new(handle: CUcontext, device: &'static Device, flags: u32, primary: bool) -> Arc<Context> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let context = Arc::new_cyclic(|context| Context {
            handle,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device,
            flags: AtomicU32::new(flags),
            primary,
            attached: AtomicU32::new(0),
            legacy: Stream::legacy(context),
            streams: Mutex::default(),
            awaited: Mutex::default(),
            order: Mutex::default(),
            printf: Printf::default(),
            stack_limit: AtomicU64::new(DEFAULT_STACK),
            pending_launches: AtomicU64::new(DEFAULT_PENDING_LAUNCHES),
            cache_config: AtomicU32::new(0),
            shared_config: AtomicU32::new(1),
            peers: Mutex::default(),
        });
        core_dump::context_created(handle.0, flags);
        CONTEXTS.insert(handle, Arc::clone(&context));
        context
    }

    /// Returns the error of a kernel that failed.
    pub(super) fn sticky(&self) -> Option<CUresult> {
        self.device.fault.get()
    }

    /// Makes all later calls return an error. The first error stays.
    pub(super) fn poison(&self, error: CUresult) {
        self.device.fault.set(error);
    }

    /// Returns this context, unless it has a sticky error.
    pub(super) fn checked(self: Arc<Self>) -> CuResult<Arc<Context>> {
        match self.sticky() {
            None => Ok(self),
            Some(error) => Err(error),
        }
    }

    /// Writes the text that kernels have printed so far.
    pub(super) fn flush_printf(&self) {
        output::flush(&self.printf);
    }

    /// Removes all handles of the context.
    fn forget(&self) {
        CONTEXTS.remove_where(|context| std::ptr::eq(context, self));
        core_dump::context_destroyed(self.handle.0);
    }
}

/// Returns the current context of this thread, if it has no sticky error.
pub(super) fn current() -> CuResult<Arc<Context>> {
    find(current_handle().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?)?.checked()
}

/// Returns the current context of this thread even when it has a sticky error.
pub(super) fn current_unchecked() -> CuResult<Arc<Context>> {
    find(current_handle().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?)
}

/// Returns the context of a handle, or the current one for NULL.
pub(super) fn find_or_current(handle: CUcontext) -> CuResult<Arc<Context>> {
    if handle == Handle::NULL { current_unchecked() } else { find(handle) }
}

/// As [`find_or_current`], if it has no sticky error.
pub(super) fn usable(handle: CUcontext) -> CuResult<Arc<Context>> {
    find_or_current(handle)?.checked()
}

/// Returns the context with this handle, which must not be NULL, even when it has a sticky error.
pub(super) fn find_given(handle: CUcontext) -> CuResult<Arc<Context>> {
    find(handle)
}

/// Gives a context another handle.
pub(super) fn add_alias(alias: CUcontext, handle: CUcontext) -> CuResult<()> {
    CONTEXTS.insert(alias, find(handle)?);
    Ok(())
}

/// Removes such a handle.
pub(super) fn remove_alias(alias: CUcontext) {
    CONTEXTS.remove(alias);
}

/// Returns all contexts of a device.
pub(super) fn all_of(device: &Device) -> Vec<Arc<Context>> {
    CONTEXTS.all().into_iter().filter(|context| std::ptr::eq(context.device, device)).collect()
}

/// Waits for the work of all contexts, because memory that any of them may use is about to be freed.
pub(super) fn wait_all_idle() {
    CONTEXTS.all().iter().for_each(|context| context.wait_idle());
}

fn find(handle: CUcontext) -> CuResult<Arc<Context>> {
    CONTEXTS.get(handle).ok_or_else(|| {
        if primary_device(handle).is_some() || current_handle() == Some(handle) {
            CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
        } else {
            handle.refusal()
        }
    })
}

/// Returns the device of this primary context.
fn primary_device(handle: CUcontext) -> Option<&'static Device> {
    super::device::all().iter().find(|device| device.primary.handle == handle)
}

/// Returns the device of a context, or of the current one for NULL, even of a primary context that was reset.
pub(super) fn device_of(handle: CUcontext) -> CuResult<&'static Device> {
    let handle = if handle == Handle::NULL { current_handle().unwrap_or(handle) } else { handle };
    primary_device(handle).map_or_else(|| find_or_current(handle).map(|context| context.device), Ok)
}

/// Returns the top of this thread's stack.
pub(super) fn current_handle() -> Option<CUcontext> {
    TOP.get()
}

/// cuCtxPushCurrent
pub(super) fn push(handle: CUcontext) -> CuResult<()> {
    if handle == Handle::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    find(handle)?;
    push_handle(handle);
    Ok(())
}

/// cuCtxPopCurrent
pub(super) fn pop() -> CuResult<CUcontext> {
    pop_handle().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

/// cuCtxSetCurrent: NULL removes the current context.
pub(super) fn set_current(handle: CUcontext) -> CuResult<()> {
    // A primary context can be current even while it does not exist.
    if handle != Handle::NULL && primary_device(handle).is_none() {
        find(handle)?;
    }
    pop_handle();
    if handle != Handle::NULL {
        push_handle(handle);
    }
    Ok(())
}

/// cuCtxCreate: the new context becomes current.
pub(super) fn create(device: &'static Device, flags: u32) -> CuResult<CUcontext> {
    device.fault.check()?;
    let context = Context::new(Handle::unique(), device, flags, false);
    push_handle(context.handle);
    Ok(context.handle)
}

/// cuCtxAttach: adds a holder of the current context.
pub(super) fn attach() -> CuResult<CUcontext> {
    let context = current_unchecked()?;
    context.attached.fetch_add(1, Ordering::Relaxed);
    Ok(context.handle)
}

/// A device's primary context: created at the first retain, ended by the last release or by a reset. Its handle
/// stays.
pub(super) struct PrimaryContext {
    handle: CUcontext,
    state: Mutex<Primary>,
}

#[derive(Default)]
struct Primary {
    retained: u64,
    flags: u32,
    context: Option<Arc<Context>>,
}

impl PrimaryContext {
    pub(super) fn new() -> PrimaryContext {
        PrimaryContext { handle: Handle::unique(), state: Mutex::default() }
    }

    pub(super) fn retain(&self, ordinal: i32) -> CuResult<CUcontext> {
        device(ordinal)?.fault.check()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.context.is_none() {
            state.context = Some(Context::new(self.handle, device(ordinal)?, state.flags, true));
        }
        state.retained += 1;
        Ok(self.handle)
    }

    /// Releases one retain. `end` ends the context after the last one.
    fn release(&self, end: impl FnOnce(&Context)) -> CuResult<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.retained = state.retained.checked_sub(1).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        if state.retained == 0
            && let Some(context) = state.context.take()
        {
            end(&context);
        }
        Ok(())
    }

    /// Ends the context by `end` even if it is retained. The count stays, and the next retain creates a new context.
    fn reset(&self, end: impl FnOnce(&Context)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = state.context.take() {
            end(&context);
        }
        state.flags = 0;
    }

    pub(super) fn set_flags(&self, flags: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.flags = flags;
        if let Some(context) = &state.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
    }

    /// Returns the flags, and whether the context exists.
    pub(super) fn state(&self) -> (u32, bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.flags, state.context.is_some())
    }
}
