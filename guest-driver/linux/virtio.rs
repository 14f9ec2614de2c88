// SPDX-License-Identifier: GPL-2.0-only

//! A safe interface to the C virtio driver API: registration, device, configuration space.

use crate::linux::{
    bindings as glue,
    virtqueue::VirtQueue, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    device,
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

/// A virtio driver. Its value is the state of one bound device.
pub(crate) trait Driver: Sized + Send + Sync + 'static {
    /// Name of the driver in sysfs.
    const NAME: &'static CStr;
    /// The virtio id of the supported devices, of any vendor.
    const DEVICE_ID: u32;

    /// Examines the device, finds its virtqueues and creates the state. If it fails, nothing of the device may be in
    /// use.
    fn probe(device: &VirtioDevice) -> Result<Arc<Self>>;

    /// Makes the device ready. If it fails, [`Self::remove`] is called.
    fn start(self: &Arc<Self>, device: &VirtioDevice) -> Result;

    /// Handles used buffers of a virtqueue. Called in an interrupt.
    fn queue_interrupt(self: &Arc<Self>, queue: usize);

    /// Handles a change of the configuration space. Called in an interrupt.
    fn config_interrupt(self: &Arc<Self>);

    /// Handles the removal of the device: the state must reset it and end all use of it ([`VirtioDevice::reset`],
    /// [`VirtioDevice::delete_queues`]).
    fn remove(self: &Arc<Self>, device: &VirtioDevice);
}

/// A virtio device that is bound to a driver.
///
/// # Invariants
///
/// Points to a `struct virtio_device` that is bound to this module's driver until
/// [`Driver::remove`] has returned (or [`Driver::probe`] has failed).
pub(crate) struct VirtioDevice(NonNull<glue::virtio_device>);

// SAFETY: The functions of virtio used here may be called from any task.
unsafe impl Send for VirtioDevice {}
// SAFETY: The functions of virtio used here may be called from several tasks at once: the
// transports lock their registers where they must.
unsafe impl Sync for VirtioDevice {}

/// Proof that a device was reset: it no longer uses memory of its virtqueues.
pub(crate) struct Stopped(());

impl VirtioDevice {
    /// Returns the device for log messages.
    pub(crate) fn dev(&self) -> &device::Device {
        // SAFETY: A bound virtio device, by the invariant, embeds a valid device.
        unsafe { device::Device::from_raw(glue::virtio_cuda_device(self.0.as_ptr())) }
    }

    /// Returns a second pointer to the device, for the driver's state.
    ///
    /// # Safety
    ///
    /// It must not be used after [`Driver::remove`] has returned.
    pub(crate) unsafe fn share(&self) -> Self {
        Self(self.0)
    }

    /// Reads configuration space. Sleeps.
    pub(crate) fn config_read(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: The device is bound; `into` is valid for writes of its length.
        unsafe {
            glue::virtio_cuda_config_read(
                self.0.as_ptr(),
                offset as c_uint,
                into.as_mut_ptr().cast(),
                into.len() as c_uint,
            );
        }
    }

    /// Writes a little-endian 32-bit number to configuration space.
    pub(crate) fn config_write(&self, offset: usize, value: u32) {
        // SAFETY: The device is bound.
        unsafe {
            glue::virtio_cuda_config_write_le32(self.0.as_ptr(), offset as c_uint, value);
        }
    }

    /// Finds virtqueues, all of which report to [`Driver::queue_interrupt`] of the registered driver. /proc/interrupts
    /// shows their names.
    pub(crate) fn find_queues(&self, names: &[&'static CStr]) -> Result<KVec<VirtQueue>> {
        let count = names.len();
        let mut found = KVec::from_elem(ptr::null_mut(), count, GFP_KERNEL)?;
        let mut list = KVec::with_capacity(count, GFP_KERNEL)?;
        for name in names {
            list.push(name.as_char_ptr(), GFP_KERNEL)?;
        }
        // Nothing may fail once the queues are found.
        let mut queues = KVec::with_capacity(count, GFP_KERNEL)?;
        // SAFETY: The device is bound, both arrays have `count` elements, and the names are static.
        kernel::error::to_result(unsafe {
            glue::virtio_cuda_find_vqs(
                self.0.as_ptr(),
                count as c_uint,
                found.as_mut_ptr(),
                list.as_ptr(),
            )
        })?;
        for raw in found.iter().copied().filter_map(NonNull::new) {
            // SAFETY: `find_vqs` has just made it; each is wrapped once.
            queues.push(unsafe { VirtQueue::from_raw(raw) }, GFP_KERNEL)?;
        }
        Ok(queues)
    }

    /// Makes the device live (`DRIVER_OK`).
    pub(crate) fn ready(&self) {
        // SAFETY: The device is bound.
        unsafe { glue::virtio_cuda_device_ready(self.0.as_ptr()) }
    }

    /// Resets the device and waits for its interrupts. After that no callback runs, and the device uses no memory.
    pub(crate) fn reset(&self) -> Stopped {
        // SAFETY: The device is bound.
        unsafe { glue::virtio_cuda_reset(self.0.as_ptr()) };
        Stopped(())
    }

    /// Deletes the virtqueues.
    ///
    /// # Safety
    ///
    /// No [`VirtQueue`] of the device exists any more.
    pub(crate) unsafe fn delete_queues(&self, _stopped: Stopped) {
        // SAFETY: The device is bound and reset; no queue exists, by the caller.
        unsafe { glue::virtio_cuda_del_vqs(self.0.as_ptr()) }
    }
}

/// The entry points for C. Their contract is that of `struct virtio_driver` and of virtqueue callbacks.
struct Callbacks<D>(core::marker::PhantomData<D>);

#[allow(clippy::missing_safety_doc)]
impl<D: Driver> Callbacks<D> {
    /// The functions that the C side calls.
    // A constant cannot call `as_char_ptr`; the cast is equivalent.
    #[allow(clippy::disallowed_methods)]
    const ENTRIES: glue::virtio_cuda_driver = glue::virtio_cuda_driver {
        name: D::NAME.as_ptr().cast(),
        device_id: D::DEVICE_ID,
        probe: Self::probe,
        remove: Self::remove,
        queue_interrupt: Self::queue_interrupt,
        config_interrupt: Self::config_interrupt,
    };

    /// Runs `work` with the state that probe has stored, if there is one.
    ///
    /// # Safety
    ///
    /// `state` is that of a device bound to the driver `D`, and is not taken back while this runs.
    unsafe fn with_state(state: *mut c_void, work: impl FnOnce(&Arc<D>)) {
        if state.is_null() {
            return;
        }
        // SAFETY: `probe` made it with `Arc::into_foreign`. It is wrapped so that the reference that the
        // device holds is not dropped here.
        let state = core::mem::ManuallyDrop::new(unsafe { Arc::<D>::from_foreign(state.cast()) });
        work(&state);
    }

    unsafe extern "C" fn probe(vdev: *mut glue::virtio_device) -> c_int {
        kernel::error::from_result(|| {
            // INVARIANT: The core binds `vdev` to this driver.
            let device = VirtioDevice(NonNull::new(vdev).ok_or(ENODEV)?);
            let state = D::probe(&device)?;
            // SAFETY: `vdev` is valid. Callbacks, which read this, come after `start` only.
            unsafe { glue::virtio_cuda_set_state(vdev, state.clone().into_foreign().cast()) };
            let started = state.start(&device);
            if started.is_err() {
                state.remove(&device);
                // SAFETY: `remove` has reset the device, so no callback runs.
                unsafe { Self::take_state(vdev) };
            }
            started.map(|()| 0)
        })
    }

    unsafe extern "C" fn remove(vdev: *mut glue::virtio_device) {
        // INVARIANT: The core unbinds `vdev` after this function.
        let Some(device) = NonNull::new(vdev).map(VirtioDevice) else {
            return;
        };
        // SAFETY: `vdev` is bound to `D`; only this function and a failing probe take the state back.
        unsafe {
            let state = glue::virtio_cuda_state(vdev);
            Self::with_state(state, |state| state.remove(&device));
        }
        // SAFETY: `remove` has reset the device, so no callback runs.
        unsafe { Self::take_state(vdev) };
    }

    /// # Safety
    ///
    /// `vdev` is bound to `D` and no callback runs or will run.
    unsafe fn take_state(vdev: *mut glue::virtio_device) {
        // SAFETY: `vdev` is valid, by the caller.
        let state = unsafe { glue::virtio_cuda_state(vdev) };
        // SAFETY: `vdev` is valid, by the caller, and no callback uses its state any more.
        unsafe { glue::virtio_cuda_set_state(vdev, ptr::null_mut()) };
        if !state.is_null() {
            // SAFETY: `probe` created it with `Arc::into_foreign`, and it is no longer used.
            drop(unsafe { Arc::<D>::from_foreign(state.cast()) });
        }
    }

    unsafe extern "C" fn queue_interrupt(state: *mut c_void, queue: c_uint) {
        // SAFETY: The core calls with a queue of a device that is bound to `D`. Resetting the device waits
        // for this callback, and the state is taken back after that.
        unsafe { Self::with_state(state, |state| state.queue_interrupt(queue as usize)) }
    }

    unsafe extern "C" fn config_interrupt(state: *mut c_void) {
        // SAFETY: The core calls for a device that is bound to `D`. It holds `config_lock` and
        // disables the callback before `remove` takes the state back.
        unsafe { Self::with_state(state, |state| state.config_interrupt()) }
    }
}

/// The registration of a virtio driver, which exists as long as the value. There is at most one.
pub(crate) struct Registration(());

impl Registration {
    /// Registers `D`.
    ///
    /// # Safety
    ///
    /// No other value exists.
    pub(crate) unsafe fn new<D: Driver>(module: &'static ThisModule) -> Result<Self> {
        // SAFETY: The entries are static, and the C side has no other driver, by the caller.
        kernel::error::to_result(unsafe {
            glue::virtio_cuda_register_driver(&Callbacks::<D>::ENTRIES, module.as_ptr())
        })?;
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: `new` has registered it.
        unsafe { glue::virtio_cuda_unregister_driver() }
    }
}
