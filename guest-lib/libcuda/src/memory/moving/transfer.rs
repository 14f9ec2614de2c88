// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sends blocks to the GPU before work that may use them, and fetches them when the program touches them.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::memory::copy::plan::Timing;
use crate::memory::moving::attend;
use crate::memory::place::Place;
use crate::state::moving::blocks::{BLOCK_BYTES, Owner};
use crate::state::moving::pages::Pages;
use crate::state::moving::{Moving, Sent, State, Uses};

/// Interval between checks of the gate.
const LOOK: Duration = Duration::from_micros(20);

pub(super) fn bytes_of(blocks: &Range<usize>) -> Range<u64> {
    blocks.start as u64 * BLOCK_BYTES..blocks.end as u64 * BLOCK_BYTES
}

impl Api {
    /// Sends the program's blocks of the memory that work may use.
    ///
    /// Errors: those of copies to the device.
    pub fn send_managed(self, uses: Uses) -> Result<Sent, CudaError> {
        let movings = &self.driver.memory.moving;
        if !movings.any() {
            return Ok(Sent::default());
        }
        while movings.gate_is_wanted.load(Ordering::Acquire) {
            thread::sleep(LOOK);
        }
        let gate = movings.gate.read().unwrap_or_else(PoisonError::into_inner);
        if movings.to_send.is_none() {
            return Ok(Sent(Some(gate)));
        }
        let sending = movings.sending.lock().unwrap_or_else(PoisonError::into_inner);
        match uses {
            Uses::Anything => {
                let so_far = movings.to_send.so_far();
                for moving in movings.all() {
                    self.send_blocks(&moving, 0, moving.bytes)?;
                }
                movings.to_send.end(so_far);
            }
            Uses::Memory(places) => {
                for (address, bytes) in places {
                    if let Some(moving) = movings.at(address) {
                        self.send_blocks(&moving, address - moving.address, bytes)?;
                    }
                }
            }
        }
        drop(sending);
        Ok(Sent(Some(gate)))
    }

    fn send_blocks(self, moving: &Moving, offset: u64, bytes: u64) -> Result<(), CudaError> {
        if moving.rests() {
            return Ok(());
        }
        let mut state = moving.state();
        let range = state.blocks.holding(offset, bytes);
        self.end_sharing(moving, &mut state, range.clone())?;
        let State { blocks, pages: Some(pages), .. } = &mut *state else { return Ok(()) };
        let mut runs = blocks.not_on_the_gpu(range);
        for (owner, run) in &runs {
            if *owner == Owner::Program {
                pages.unmap(bytes_of(run)).map_err(|_| CudaError::OPERATING_SYSTEM)?;
            }
        }
        runs.iter()
            .filter(|(owner, _)| *owner == Owner::Nobody)
            .for_each(|(_, run)| blocks.set(run.clone(), Owner::Gpu));
        runs.retain(|(owner, _)| *owner == Owner::Program);
        self.copy_runs(moving, pages, runs.iter().map(|(_, run)| run), Owner::Gpu)?;
        runs.into_iter().for_each(|(_, run)| blocks.set(run, Owner::Gpu));
        Ok(())
    }

    /// Fetches the blocks that contain bytes of the allocation, and maps them, for a prefetch to the host. It is a hint: if
    /// the GPU's work goes on, nothing is done.
    ///
    /// Errors: those of copies from the device.
    pub fn fetch_managed(self, moving: &Moving, offset: u64, bytes: u64) -> Result<(), CudaError> {
        let Some(_gate) = attend::gate_when_idle(self) else { return Ok(()) };
        let mut state = moving.state();
        let range = state.blocks.holding(offset, bytes);
        self.fetch_blocks(moving, &mut state, range)
    }

    /// Fetches and maps all blocks of a range. No work may use them.
    ///
    /// Errors: those of copies from the device.
    pub(super) fn fetch_blocks(
        self,
        moving: &Moving,
        state: &mut State,
        range: Range<usize>,
    ) -> Result<(), CudaError> {
        self.end_sharing(moving, state, range.clone())?;
        let State { blocks, pages: Some(pages), .. } = state else { return Ok(()) };
        for (owner, run) in blocks.not_in_the_program(range) {
            self.bring(moving, pages, owner, run.clone())?;
            blocks.set(run, Owner::Program);
        }
        Ok(())
    }

    /// Fetches the block that contains `offset`, and as many blocks after it as are worth it. If the block is the GPU's, no
    /// work may use it.
    ///
    /// Errors: those of copies from the device.
    pub(super) fn bring_touched(self, moving: &Moving, offset: u64) -> Result<(), CudaError> {
        let mut state = moving.state();
        let State { blocks, pages: Some(pages), .. } = &mut *state else { return Ok(()) };
        let block = (offset / BLOCK_BYTES) as usize;
        let owner = blocks.owner(block);
        if owner == Owner::Shared {
            // Its pages are mapped, or were unmapped in vain ([`super::shared`]).
            return self.map(moving, block..block + 1);
        }
        let run = blocks.touched(block);
        // Done even if it fails: the GPU's contents are lost then, and the program must get the error instead of
        // waiting.
        let brought = self.bring(moving, pages, owner, run.clone());
        blocks.set(run, Owner::Program);
        brought
    }

    /// Returns the owner of the block that contains `offset`.
    pub fn owner_of(self, moving: &Moving, offset: u64) -> Owner {
        moving.state().blocks.owner((offset / BLOCK_BYTES) as usize)
    }

    /// Fills the pages of a run and maps them.
    fn bring(self, moving: &Moving, pages: &Pages, owner: Owner, run: Range<usize>) -> Result<(), CudaError> {
        let fetched = self.fetch(moving, pages, owner, run.clone());
        let mapped = self.map(moving, run);
        fetched.and(mapped)
    }

    /// Fills the pages of a run.
    pub(super) fn fetch(
        self,
        moving: &Moving,
        pages: &Pages,
        owner: Owner,
        run: Range<usize>,
    ) -> Result<(), CudaError> {
        let bytes = bytes_of(&run);
        if let Err(error) = pages.make(bytes.clone()) {
            log::error!("No memory for {} bytes of managed memory: {error}", bytes.end - bytes.start);
            return Err(CudaError::OUT_OF_MEMORY);
        }
        if owner == Owner::Gpu { self.copy_runs(moving, pages, [&run], Owner::Program) } else { Ok(()) }
    }

    /// Maps the pages of a run in the program.
    pub(super) fn map(self, moving: &Moving, run: Range<usize>) -> Result<(), CudaError> {
        let bytes = bytes_of(&run);
        let movings = &self.driver.memory.moving;
        // Counted before the program can write.
        movings.to_send.begin();
        let Some(faults) = movings.faults() else { return Ok(()) };
        let mapped = faults.map(moving.address + bytes.start..moving.address + bytes.end);
        mapped.map_err(|error| {
            log::error!("Mapping managed memory at {:#x}: {error}", moving.address + bytes.start);
            CudaError::OPERATING_SYSTEM
        })
    }

    /// Copies runs of blocks to the pages or the device memory of their new owner.
    fn copy_runs<'a>(
        self,
        moving: &Moving,
        pages: &Pages,
        runs: impl IntoIterator<Item = &'a Range<usize>>,
        new_owner: Owner,
    ) -> Result<(), CudaError> {
        let mut runs = runs.into_iter().peekable();
        if runs.peek().is_none() {
            return Ok(());
        }
        self.with_copy_stream(moving.context, |stream| {
            for run in runs {
                let bytes = bytes_of(run);
                let alias = pages.alias(bytes.clone());
                let (device, host) =
                    (Place::Device(moving.address + bytes.start), Place::Pageable(alias.address as u64));
                let (dst, src) = if new_owner == Owner::Gpu { (device, host) } else { (host, device) };
                self.copy_at_once(dst, src, alias.bytes, Timing::Stream(stream))?;
            }
            self.wait_for_stream(stream)
        })
    }
}
