// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Host memory that stays attached between its users ([`crate::state::parked`]).

use std::sync::Arc;

use cuda_abi::CUmemAllocationProp;
use cuda_environment::speed;
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::handles::{Kind, new_handle};
use crate::state::memory::ranges::HostKind;
use crate::state::moving::pages::{close, open};
use crate::state::parked::Parked;
use crate::state::reservations::{HostMap, State};

/// Returns the memory of a mapping.
pub fn pages_of(base: u64, map: &HostMap) -> UserMemory {
    UserMemory { address: base as usize, bytes: map.bytes as usize }
}

/// Keeps a mapping that the program has unmapped, on which the GPU's work has ended. Returns those that must be detached, which may
/// be the same one.
pub fn keep(api: Api, state: &mut State, base: u64, map: HostMap) -> Vec<Parked> {
    let is_whole = state.reserved.get(&base).is_some_and(|reserved| reserved.bytes == map.bytes);
    let is_attached = map.attached.as_ref().is_some_and(|attachment| attachment.context != 0);
    let stays = speed::is_on() && is_whole && is_attached && state.parked.takes(&map);
    if !stays || close(pages_of(base, &map)).is_err() {
        return vec![Parked { base, map, freed: None }];
    }
    api.driver.memory.ranges.take_host(base, HostKind::Mapped);
    state.parked.add(base, map)
}

/// Allocates memory that no program uses any more, filled with zeros. Returns its handle.
pub fn allocate(api: Api, bytes: u64, properties: CUmemAllocationProp) -> Option<u64> {
    let mut state = api.driver.vmm.lock();
    let parked = state.parked.unused(bytes)?;
    let pages = pages_of(parked.base, &parked.map);
    open(pages).ok()?;
    // SAFETY: a mapping of this library, which the program has unmapped, and whose allocation it has released.
    unsafe { std::ptr::write_bytes(pages.address as *mut u8, 0, pages.bytes) };
    if let Err(error) = close(pages) {
        log::debug!("Memory at {:#x} stays accessible: {error}", pages.address);
    }
    let allocation = Arc::get_mut(&mut parked.map.allocation)?;
    (allocation.handle, allocation.properties) = (new_handle(Kind::Other), properties);
    let allocation = parked.map.allocation.clone();
    Some(state.hold(allocation))
}

/// Ends the GPU's access to a mapping. The GPU's work on it must have ended.
pub fn detach(driver: &Driver, pages: UserMemory, map: &mut HostMap) {
    driver.memory.ranges.take_host(pages.address as u64, HostKind::Mapped);
    if let Some(attachment) = map.attached.take() {
        driver.unpin(&attachment.pinned);
        driver.session.transport().release(pages);
    }
}

/// Makes addresses of the address window available to the next reservation.
pub fn give_back_claim(api: Api, base: u64, slot_bytes: u64) -> Result<(), CudaError> {
    yield_claim(api, base, slot_bytes)?;
    api.driver.memory.places.give_back(base, slot_bytes);
    Ok(())
}

/// Ends the worker's use of addresses as a part of the address window.
pub fn yield_claim(api: Api, base: u64, bytes: u64) -> Result<(), CudaError> {
    calls::window_yield(&mut api.internal().call(), base, bytes)
}

/// Detaches memory that the program has unmapped.
pub fn end(api: Api, parked: Parked) {
    let Parked { base, mut map, freed } = parked;
    detach(api.driver, pages_of(base, &map), &mut map);
    // From now on, an access to these addresses is a segmentation fault, as on real hardware.
    if let Err(error) = map.allocation.store.unmap(base, map.bytes) {
        log::error!("Memory at {base:#x} stays mapped: {error}");
    }
    if let Some(reserved) = freed
        && let Err(error) = give_back_claim(api, base, reserved.slot_bytes)
    {
        log::debug!("The addresses at {base:#x} are not used again: {error}");
    }
}

/// Detaches all memory that is kept here. Returns whether there was any.
pub fn end_all(api: Api, state: &mut State) -> bool {
    let all = state.parked.take_all();
    let any = !all.is_empty();
    all.into_iter().for_each(|parked| end(api, parked));
    any
}
