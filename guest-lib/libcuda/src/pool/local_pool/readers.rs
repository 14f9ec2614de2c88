// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pools of a device that other devices may access.

use virtio_cuda_client::protocol::{ContextId, DevicePtr};
use virtio_cuda_client::touched::memory_has_peers;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::state::local_pools::{LocalPool, State};

/// Returns whether the worker sets the devices that may access memory of these pools. It cannot if the GPUs lack virtual memory
/// management, or cannot reach each other's memory, and in a release that lacks the call.
pub fn has_readers(api: Api) -> bool {
    let ask = || calls::pool_memory_readers(&mut api.internal().call(), DevicePtr(0), 0).is_ok();
    *api.driver.local_pools.has_readers.get_or_init(ask)
}

impl LocalPool {
    /// Lets a device access the pool's memory, now and later, or no longer.
    ///
    /// Errors: `CUDA_ERROR_INVALID_DEVICE` if the pool's own device shall not; the driver's. All access is as before.
    pub fn set_reader(&self, api: Api, device: i32, is_allowed: bool) -> Result<(), CudaError> {
        if device == self.home.id {
            return if is_allowed { Ok(()) } else { Err(CudaError::INVALID_DEVICE) };
        }
        if is_allowed {
            memory_has_peers();
        } else if self.is_reached_by(device) {
            // Work of that device may use the memory. The pool is not locked meanwhile: the work may wait for other threads.
            api.wait_for_contexts(|context| api.driver.contexts.device_of(context) == Ok(device as u32))?;
        }
        let mut state = self.lock();
        let before = state.devices.clone();
        let is_new = if is_allowed { state.devices.insert(device) } else { state.devices.remove(&device) };
        if !is_new {
            return Ok(());
        }
        self.set_readers_of_all(api, &state).inspect_err(|_| {
            state.devices = before;
            let _ = self.set_readers_of_all(api, &state);
        })
    }

    fn set_readers_of_all(&self, api: Api, state: &State) -> Result<(), CudaError> {
        let readers = self.readers(api, state);
        let mut chunks = state.chunks.iter();
        chunks.try_for_each(|(&start, chunk)| readers.set(api, start, chunk.context))
    }

    /// Returns the devices that may access the pool's memory besides its own.
    pub fn readers(&self, api: Api, state: &State) -> Readers {
        let devices = &api.driver.devices;
        let others = state.devices.iter().filter(|device| **device != self.home.id);
        let numbers = others.filter_map(|device| devices.check(*device).ok());
        let bits = numbers.filter_map(|number| 1_u64.checked_shl(number.on_wire().0));
        Readers((devices.count() > 1).then(|| bits.fold(0, |all, bit| all | bit)))
    }
}

/// The devices that may access memory of a pool besides its own: their bits, if the program sees several.
#[derive(Clone, Copy, Debug)]
pub struct Readers(Option<u64>);

impl Readers {
    /// Lets them access a chunk that begins at `start`.
    ///
    /// Errors: those of the worker.
    pub fn set(self, api: Api, start: u64, context: u64) -> Result<(), CudaError> {
        let Some(others) = self.0 else { return Ok(()) };
        let call = &mut api.call_in(ContextId(context));
        match calls::pool_memory_readers(call, DevicePtr(start), others) {
            // Memory of the driver's own, where there was no room for other: it follows peer access.
            Err(CudaError::NOT_SUPPORTED) if others == 0 => Ok(()),
            set => set,
        }
    }
}

impl Api {
    /// Waits for the work of all contexts but the current one, which may use memory of a pool, too. Returns false if waiting would end a
    /// capture.
    ///
    /// Errors: those of the work.
    pub fn wait_for_others(self) -> Result<bool, CudaError> {
        self.wait_for_contexts(|context| context != self.current())
    }

    /// The same for the contexts that `wanted` chooses.
    ///
    /// Errors: those of the work.
    pub fn wait_for_contexts(self, wanted: impl Fn(u64) -> bool) -> Result<bool, CudaError> {
        for context in self.driver.contexts.existing().into_iter().filter(|context| wanted(*context)) {
            if !self.wait_unless_capturing(&mut self.call_in(ContextId(context)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
