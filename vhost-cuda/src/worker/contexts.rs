// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contexts of a session, the primary ones among them.
//!
//! The worker makes the primary context of device 0 before a session gets it, because that is slow. The guest
//! must not notice: what counts is what it retained itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::cuda::{ContextId, FIRST_HANDLE};

use super::gpu::{CUcontext, CuResult, CudaError};

/// Most contexts of a session.
const MAX_CONTEXTS: usize = 1024;

/// A context that the guest has named.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    raw: usize,
    /// Its device.
    pub device: i32,
    /// Whether it is the device's primary context.
    pub primary: bool,
}

impl Context {
    /// A context of the driver.
    pub fn new(raw: CUcontext, device: i32, primary: bool) -> Self {
        Self { raw: raw as usize, device, primary }
    }
    /// The driver's handle.
    pub fn raw(&self) -> CUcontext {
        self.raw as CUcontext
    }
}

/// The primary context of one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Primary {
    /// The driver's handle while this process retains the context (once, whatever the guest does).
    raw: Option<usize>,
    /// The guest's name for it, while it retains it.
    pub name: u64,
    /// How often the guest retained it.
    pub retains: u32,
}

impl Primary {
    /// The driver's handle, if this process holds the context.
    pub fn held(&self) -> Option<CUcontext> {
        self.raw.map(|raw| raw as CUcontext)
    }
    /// Notes that this process holds the context, or no longer.
    pub fn hold(&mut self, raw: Option<CUcontext>) {
        self.raw = raw.map(|raw| raw as usize);
    }
}

/// All contexts of a session.
#[derive(Debug, Default)]
pub struct Contexts {
    state: Mutex<ContextState>,
    /// Counts changes, so that executors notice that a name may mean another context.
    epoch: AtomicU64,
}

/// What [`Contexts::lock`] protects.
#[derive(Debug, Default)]
pub struct ContextState {
    named: HashMap<u64, Context>,
    primaries: HashMap<i32, Primary>,
}

impl Contexts {
    /// Exclusive access, also across driver calls that make and destroy contexts.
    pub fn lock(&self) -> MutexGuard<'_, ContextState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The context named `id`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT`.
    pub fn get(&self, id: ContextId) -> CuResult<Context> {
        self.lock().named.get(&id.0).copied().ok_or(CudaError::INVALID_CONTEXT)
    }
    /// Number of changes so far.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }
    /// Notes a change; to be called with the lock held.
    pub fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }
}

impl ContextState {
    /// The primary context of `device`.
    pub fn primary(&mut self, device: i32) -> &mut Primary {
        self.primaries.entry(device).or_default()
    }
    /// Checks a name that the guest minted.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_new(&self, id: ContextId) -> CuResult<()> {
        if id.0 < FIRST_HANDLE || self.named.contains_key(&id.0) {
            return Err(CudaError::INVALID_VALUE);
        }
        if self.named.len() >= MAX_CONTEXTS { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }
    /// Names a context.
    pub fn insert(&mut self, id: ContextId, context: Context) {
        self.named.insert(id.0, context);
    }
    /// The context named `id`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT`.
    pub fn get(&self, id: ContextId) -> CuResult<Context> {
        self.named.get(&id.0).copied().ok_or(CudaError::INVALID_CONTEXT)
    }
    /// Frees a name.
    pub fn remove(&mut self, id: u64) {
        self.named.remove(&id);
    }
}
