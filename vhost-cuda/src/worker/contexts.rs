// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contexts of a session, the primary ones among them.
//!
//! The worker makes the primary context of device 0 before a session gets it, because that is slow. The guest
//! must not notice: what counts is what it retained itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::cuda::{ContextId, FIRST_HANDLE};

use super::gpu::{CUcontext, CUgreenCtx, CuResult, CudaError};

/// Most contexts of a session that have names, parts of a device (green contexts) included.
const MAX_CONTEXTS: usize = 128;
/// Most of them that the guest has created besides the devices' primary ones: each takes half a gigabyte of a large GPU.
const MAX_CREATED: usize = 8;

/// A context that the guest has named.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    raw: usize,
    /// Its device.
    pub device: i32,
    /// Whether it is the device's primary context, or a part of it.
    pub primary: bool,
    /// The green context that it stands for; 0 for none.
    green: usize,
    /// Of such a one, the name of the primary context.
    home: u64,
    /// Its flags that the driver was not told.
    pub kept_flags: u32,
}

impl Context {
    /// A context of the driver.
    pub fn new(raw: CUcontext, device: i32, primary: bool) -> Self {
        Self { raw: raw as usize, device, primary, green: 0, home: 0, kept_flags: 0 }
    }
    /// A green context as one that can be current. What is made in it belongs to the primary context `home`.
    pub fn green(raw: CUcontext, device: i32, green: CUgreenCtx, home: u64) -> Self {
        Self { raw: raw as usize, device, primary: true, green: green as usize, home, kept_flags: 0 }
    }
    /// The green context that this one stands for.
    pub fn as_green(&self) -> Option<CUgreenCtx> {
        (self.green != 0).then_some(self.green as CUgreenCtx)
    }
    /// The name of the context that owns what is made in this one, whose name is `id`.
    pub fn owner(&self, id: ContextId) -> u64 {
        if self.green == 0 { id.0 } else { self.home }
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
    /// Flags that the guest wants and the driver was not told.
    pub kept_flags: u32,
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
    /// Whether there is at most one context.
    pub fn is_only_one(&self) -> bool {
        self.lock().named.len() <= 1
    }
    /// The name of the context that owns what is made in the one named `id`.
    pub fn home(&self, id: ContextId) -> u64 {
        self.get(id).map_or(id.0, |context| context.owner(id))
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
    /// A context of which only the guest knows some flags.
    pub fn keep_flags(&mut self, id: ContextId, flags: u32) {
        if let Some(context) = self.named.get_mut(&id.0) {
            context.kept_flags = flags;
        }
    }
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
    /// Refuses one more context than a session may create.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_created(&self) -> CuResult<()> {
        let created = self.named.values().filter(|context| !context.primary).count();
        if created >= MAX_CREATED { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
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
