// SPDX-License-Identifier: GPL-2.0-only

//! The state through which open(2), which has no context, and probe find the workqueue and the device.

use crate::{
    device::Device,
    linux::workqueue::WorkQueue, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

struct State {
    works: Option<Arc<WorkQueue>>,
    device: Option<Arc<Device>>,
}

kernel::sync::global_lock! {
    // SAFETY: `Hub::new` initialises it before anything else of the module runs.
    unsafe(uninit) static STATE: Mutex<State> = State { works: None, device: None };
}

/// Owns the module's workqueue.
pub(crate) struct Hub(());

impl Hub {
    /// Initialises the hub.
    ///
    /// # Safety
    ///
    /// Must be called once, before anything else.
    pub(crate) unsafe fn new() -> Result<Self> {
        // SAFETY: Called once, by the caller.
        unsafe { STATE.init() };
        STATE.lock().works = Some(Arc::new(WorkQueue::new(c"virtio_cuda")?, GFP_KERNEL)?);
        Ok(Self(()))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let works = STATE.lock().works.take();
        // This is the last reference, because no file is open and no device is bound. Dropping it waits for the work.
        drop(works);
    }
}

/// Returns the workqueue.
pub(crate) fn works() -> Result<Arc<WorkQueue>> {
    STATE.lock().works.clone().ok_or(ENODEV)
}

/// Returns the device that open(2) uses. Errors: `ENODEV` if there is no device.
pub(crate) fn device() -> Result<Arc<Device>> {
    STATE.lock().device.clone().ok_or(ENODEV)
}

/// Makes open(2) use `device`. `EBUSY`: it uses another one.
pub(crate) fn set_device(device: &Arc<Device>) -> Result {
    let mut state = STATE.lock();
    if state.device.is_some() {
        return Err(EBUSY);
    }
    state.device = Some(device.clone());
    Ok(())
}

/// Makes open(2) no longer use `device`.
pub(crate) fn clear_device(device: &Arc<Device>) {
    let mut state = STATE.lock();
    let old = match &state.device {
        Some(current) if Arc::ptr_eq(current, device) => state.device.take(),
        _ => None,
    };
    drop(state);
    drop(old);
}
