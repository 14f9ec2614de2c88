// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Blocks that the program uses while the GPU's work goes on. CUDA allows that in functions that the program has queued
//! between work, and in the threads that they wait for: the work before has ended, and that behind has not begun, but
//! work of other streams may run. Waiting for it could last for ever, because it may wait for the function.
//!
//! Such a block stays the GPU's. The program gets a copy, of which this library keeps another one. What the program has
//! changed in it is sent later, and nothing else: what the GPU has written meanwhile stays. The copy ends with the
//! function, with a wait of the program for work, before work is queued, and after [`super::attend`]'s interval.

use std::ops::Range;
use std::sync::atomic::Ordering;

use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::memory::moving::transfer::bytes_of;
use crate::state::moving::blocks::{BLOCK_BYTES, Owner};
use crate::state::moving::{Moving, State};

/// Maximum number of blocks that are compared at once.
const AT_ONCE: usize = 64;

impl Api {
    /// Gives the program a copy of the block that contains `offset` and belongs to the GPU. With `ahead`, also of as many
    /// blocks after it as are worth it.
    ///
    /// Errors: those of copies from the device.
    pub(super) fn share_touched(self, moving: &Moving, offset: u64, ahead: bool) -> Result<(), CudaError> {
        let mut state = moving.state();
        let State { blocks, pages: Some(pages), twins, .. } = &mut *state else { return Ok(()) };
        let block = (offset / BLOCK_BYTES) as usize;
        if blocks.owner(block) != Owner::Gpu {
            return Ok(());
        }
        let run = if ahead { blocks.touched(block) } else { block..block + 1 };
        let fetched = self.fetch(moving, pages, Owner::Gpu, run.clone());
        for block in run.clone() {
            // SAFETY: the GPU owns the block, so it is not mapped in the program; this thread has the lock without which
            // nothing copies it.
            let bytes = unsafe { pages.bytes(bytes_of(&(block..block + 1))) };
            twins.insert(block, bytes.into());
        }
        // Before the program can change it.
        self.driver.memory.moving.shared.fetch_add(run.len(), Ordering::AcqRel);
        let mapped = self.map(moving, run.clone());
        blocks.set(run, Owner::Shared);
        fetched.and(mapped)
    }

    /// Ends the program's copies of blocks, and sends what it has changed in them. They belong to the GPU alone
    /// afterwards.
    ///
    /// Errors: those of copies to the device. The blocks stay shared then.
    pub(super) fn end_sharing(
        self,
        moving: &Moving,
        state: &mut State,
        range: Range<usize>,
    ) -> Result<(), CudaError> {
        let State { blocks, pages: Some(pages), twins, .. } = state else { return Ok(()) };
        for run in blocks.shared(range) {
            pages.unmap(bytes_of(&run)).map_err(|_| CudaError::OPERATING_SYSTEM)?;
            for start in run.clone().step_by(AT_ONCE) {
                let part = start..run.end.min(start + AT_ONCE);
                let bytes = bytes_of(&part);
                let address = moving.address + bytes.start;
                // SAFETY: the blocks were unmapped just above, and the caller has the lock without which nothing maps or
                // copies them.
                let now = unsafe { pages.bytes(bytes) };
                let before: Vec<u8> =
                    twins.range(part.clone()).flat_map(|(_, twin)| twin.iter().copied()).collect();
                self.send_difference(moving.context, address, now, &before)?;
                twins.retain(|block, _| !part.contains(block));
                self.driver.memory.moving.shared.fetch_sub(part.len(), Ordering::AcqRel);
                blocks.set(part, Owner::Gpu);
            }
        }
        Ok(())
    }

    /// Like [`Self::end_sharing`], for all blocks of all allocations. Also waits for other threads that do it.
    pub fn end_all_sharing(self) {
        let movings = &self.driver.memory.moving;
        if !movings.any_shared() {
            return;
        }
        for moving in movings.all() {
            let mut state = moving.state();
            let all = state.blocks.holding(0, moving.bytes);
            if let Err(error) = self.end_sharing(&moving, &mut state, all) {
                // The context is broken, or the session lost: the program gets the error from its next call.
                log::warn!(
                    "Changes of managed memory at {:#x} do not reach the GPU: {error}",
                    moving.address
                );
            }
        }
    }
}
