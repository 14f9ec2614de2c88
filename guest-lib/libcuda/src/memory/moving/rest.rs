// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Managed memory that the program wants to stay in host memory (`CU_MEM_ADVISE_SET_PREFERRED_LOCATION`; CUDA driver API,
//! unified addressing). Its pages are registered with the GPU at the same address, where device memory was mapped
//! before, so both sides see each other's writes at all times. The pages of the program stay the same.

use virtio_cuda_client::protocol::ContextId;
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{Call, CudaError, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::attach::{attach_window, has_room};
use crate::memory::moving::attend;
use crate::state::memory::pinned::Pinned;
use crate::state::moving::faults::Faults;
use crate::state::moving::{Home, Moving, State};

impl Api {
    /// Follows advice on the preferred location of a whole allocation. It is a hint: if it cannot be followed, for example while
    /// a stream captures or the GPU's work goes on, the memory stays as it was.
    pub fn prefer(self, moving: &Moving, host: bool) {
        if moving.rests() == host {
            return;
        }
        let api = self.internal();
        let followed = if host { api.rest(moving) } else { api.move_again(moving) };
        if let Err(error) = followed {
            log::debug!("Managed memory at {:#x} stays where it is: {error}", moving.address);
        }
    }

    /// Fetches all blocks, and registers the pages in place of the device memory.
    fn rest(self, moving: &Moving) -> Result<(), CudaError> {
        let bytes = moving.bytes;
        if bytes > self.driver.session.limits().kept_bytes || !has_room(bytes) {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let faults = self.driver.memory.moving.faults().ok_or(CudaError::NOT_SUPPORTED)?;
        let _gate = attend::gate_when_idle(self).ok_or(CudaError::NOT_READY)?;
        let mut state = moving.state();
        let State { pages: Some(_), home: Home::Device(allocation), .. } = *state else { return Ok(()) };
        let all = state.blocks.holding(0, bytes);
        self.fetch_blocks(moving, &mut state, all)?;
        self.driver.unmap_device_memory(moving, allocation)?;
        state.home = Home::Nowhere;
        match self.register(moving, faults) {
            Ok(pinned) => {
                state.home = Home::Host(pinned);
                drop(state);
                self.driver.memory.set_rests(moving, true);
                Ok(())
            }
            Err(error) => {
                state.home = Home::Device(self.map_device_memory(moving.address, bytes, moving.context)?);
                Err(error)
            }
        }
    }

    /// Maps device memory in place of the registered pages. The program owns all blocks afterwards.
    fn move_again(self, moving: &Moving) -> Result<(), CudaError> {
        let movings = &self.driver.memory.moving;
        let faults = movings.faults().ok_or(CudaError::NOT_SUPPORTED)?;
        let _gate = attend::gate_when_idle(self).ok_or(CudaError::NOT_READY)?;
        let mut state = moving.state();
        let State { pages: Some(_), home, .. } = &mut *state else { return Ok(()) };
        let Home::Host(pinned) = home else { return Ok(()) };
        self.driver.unregister(moving, pinned)?;
        *home = Home::Nowhere;
        match self.map_device_memory(moving.address, moving.bytes, moving.context) {
            Ok(allocation) => *home = Home::Device(allocation),
            Err(error) => {
                *home = Home::Host(self.register(moving, faults)?);
                return Err(error);
            }
        }
        // Without it, touches of the program were not reported any more.
        let watched = faults.watch(moving.address..moving.address + moving.bytes);
        drop(state);
        movings.to_send.begin();
        self.driver.memory.set_rests(moving, false);
        watched.map_err(|_| CudaError::OPERATING_SYSTEM)
    }

    /// Registers all pages, which exist and are mapped, at the same address on the GPU.
    fn register(self, moving: &Moving, faults: &Faults) -> Result<Vec<Pinned>, CudaError> {
        let Moving { address, bytes, context, .. } = *moving;
        let pages = UserMemory { address: address as usize, bytes: bytes as usize };
        let transport = self.driver.session.transport();
        calls::window_claim(&mut self.call(), address, bytes)?;
        let kept = || {
            // Nothing is reported meanwhile: this thread, which pins the pages, holds the locks that a report takes.
            faults.unwatch(address..address + bytes).map_err(|_| CudaError::OPERATING_SYSTEM)?;
            transport.adopt(pages, false).map_err(|error| error.result())?;
            let attached = self.with_capture_relaxed(|| attach_window(self, ContextId(context), pages));
            let attached = attached.inspect_err(|_| transport.release(pages))?;
            if attached.device_address == address {
                return Ok(attached.pinned);
            }
            self.driver.unpin(&attached.pinned);
            transport.release(pages);
            Err(CudaError::NOT_SUPPORTED)
        };
        kept().inspect_err(|_| {
            let watched = faults.watch(address..address + bytes);
            let given_up = calls::window_yield(&mut self.call(), address, bytes);
            if watched.is_err() || given_up.is_err() {
                log::error!("Managed memory at {address:#x}: its addresses are not the GPU's any more");
            }
        })
    }
}

impl Driver {
    /// Ends the registration of pages. The GPU's work on them must have ended.
    ///
    /// Errors: those of a lost session.
    pub(super) fn unregister(&self, moving: &Moving, pinned: &[Pinned]) -> Result<(), CudaError> {
        let Moving { address, bytes, .. } = *moving;
        self.unpin(pinned);
        self.session.transport().release(UserMemory { address: address as usize, bytes: bytes as usize });
        calls::window_yield(&mut Call::internal(self.session), address, bytes)
    }
}
