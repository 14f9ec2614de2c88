// SPDX-License-Identifier: GPL-2.0-only

//! Where open(2), which knows nothing, and probe find what they work with.

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

/// The module's part of the hub: the workqueue, as long as the value.
pub(crate) struct Hub(());

impl Hub {
    /// Fills the hub.
    ///
    /// # Safety
    ///
    /// To be called once, at first.
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
        // The last reference, as no file is open and no device bound: this waits for the work.
        drop(works);
    }
}

/// The workqueue.
pub(crate) fn works() -> Result<Arc<WorkQueue>> {
    STATE.lock().works.clone().ok_or(ENODEV)
}

/// The device that open(2) uses. `ENODEV`: none is plugged.
pub(crate) fn device() -> Result<Arc<Device>> {
    STATE.lock().device.clone().ok_or(ENODEV)
}

/// Makes `device` the one. `EBUSY`: there is another.
pub(crate) fn set_device(device: &Arc<Device>) -> Result {
    let mut state = STATE.lock();
    if state.device.is_some() {
        return Err(EBUSY);
    }
    state.device = Some(device.clone());
    Ok(())
}

/// Forgets `device` if it is the one.
pub(crate) fn clear_device(device: &Arc<Device>) {
    let mut state = STATE.lock();
    let old = match &state.device {
        Some(current) if Arc::ptr_eq(current, device) => state.device.take(),
        _ => None,
    };
    drop(state);
    drop(old);
}
