// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Reservations. This library chooses their addresses, in a separate window. In the worker they become a part of the
//! address window, where pages of this process can be mapped. Device memory needs a reservation by the driver instead,
//! which is made when device memory is first mapped there. A reservation as a whole is for one kind of memory at a
//! time. All calls are internal: what they find out about addresses must not depend on earlier errors.

use virtio_cuda_client::protocol::{DevicePtr, RESERVATIONS_BASE, WINDOW_BYTES};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::state::reservations::{Bound, GRANULARITY, Reserved, State};
use crate::vmm::parked::{self, yield_claim};

/// Sizes of reservations are multiples of this many bytes. NVIDIA's driver 580 places shorter ones at other addresses
/// than the requested ones: always below 32 MiB, and above where it has a free range, such as 64 MiB that a program has
/// freed.
const SLOT_BYTES: u64 = 1 << 30;
/// Longer reservations are left to the driver.
const MAX_BYTES: u64 = WINDOW_BYTES / 4;
/// From this size on, the driver reserves the addresses at once: few programs need so much host memory, and a later
/// reservation is more likely to fail.
const EARLY_BYTES: u64 = 4 << 30;

/// Reserves addresses that this library chooses. `None`: the driver has to choose, or to refuse.
pub fn reserve(api: Api, bytes: u64, alignment: u64, wanted: u64, flags: u64) -> Option<u64> {
    let wanted_here = wanted == 0 || (RESERVATIONS_BASE..RESERVATIONS_BASE + WINDOW_BYTES).contains(&wanted);
    let aligned = alignment == 0 || alignment.is_power_of_two() && alignment <= SLOT_BYTES;
    let plain = bytes > 0 && bytes.is_multiple_of(GRANULARITY) && bytes <= MAX_BYTES && flags == 0;
    if !(wanted_here && aligned && plain && chooses(api)) {
        return None;
    }
    {
        let mut state = api.driver.vmm.lock();
        if let Some((base, reserved)) = state.parked.reserve(bytes) {
            state.reserved.insert(base, reserved);
            return Some(base);
        }
    }
    let slot_bytes = bytes.next_multiple_of(SLOT_BYTES);
    let window = &api.driver.memory.places;
    let base = match window.take(slot_bytes) {
        Err(_) if parked::end_all(api, &mut api.driver.vmm.lock()) => window.take(slot_bytes).ok()?,
        taken => taken.ok()?,
    };
    let (bound, had) = match slot_bytes {
        EARLY_BYTES.. => (Bound::Device, reserve_in_driver(api, base, slot_bytes)),
        _ => (Bound::Host, claim(api, base, slot_bytes)),
    };
    if let Err(error) = had {
        // The addresses may stay in use in the worker, so the slot is not tried again. The worker's limit of claims
        // cannot be the cause: the window has fewer slots.
        log::debug!("{slot_bytes} bytes of addresses at {base:#x} cannot be had: {error}");
        return None;
    }
    api.driver.vmm.lock().reserved.insert(base, Reserved { bytes, slot_bytes, bound });
    Some(base)
}

/// Returns whether the worker supports addresses that this library chooses. The first call tries both uses of them.
fn chooses(api: Api) -> bool {
    *api.driver.vmm.chooses.get_or_init(|| {
        let window = &api.driver.memory.places;
        let Ok(base) = window.take(SLOT_BYTES) else { return false };
        let tried = claim(api, base, SLOT_BYTES)
            .and_then(|()| yield_claim(api, base, SLOT_BYTES))
            .and_then(|()| reserve_in_driver(api, base, SLOT_BYTES))
            .and_then(|()| calls::cuMemAddressFree(&mut api.internal().call(), DevicePtr(base), SLOT_BYTES));
        if let Err(error) = tried {
            log::info!("The driver chooses the addresses of reservations, for device memory only: {error}");
            return false;
        }
        give_back(api, base, SLOT_BYTES);
        true
    })
}

fn claim(api: Api, base: u64, bytes: u64) -> Result<(), CudaError> {
    calls::window_claim(&mut api.internal().call(), base, bytes)
}

fn reserve_in_driver(api: Api, base: u64, bytes: u64) -> Result<(), CudaError> {
    let at = calls::cuMemAddressReserve(&mut api.internal().call(), bytes, 0, DevicePtr(base), 0)?;
    if at.0 == base {
        return Ok(());
    }
    calls::cuMemAddressFree(&mut api.internal().call(), at, bytes)?;
    Err(CudaError::OUT_OF_MEMORY)
}

/// Makes addresses that the driver had reserved available to the next reservation, if both uses are possible again.
fn give_back(api: Api, base: u64, slot_bytes: u64) {
    match claim(api, base, slot_bytes).and_then(|()| yield_claim(api, base, slot_bytes)) {
        Ok(()) => api.driver.memory.places.give_back(base, slot_bytes),
        Err(error) => log::debug!("The addresses at {base:#x} are not used again: {error}"),
    }
}

/// Frees a reservation. Returns false if it is not one of this library's.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE` if the size does not match, or something is mapped there.
pub fn free(api: Api, base: u64, bytes: u64) -> Result<bool, CudaError> {
    let mut state = api.driver.vmm.lock();
    let Some((found, reserved)) = state.around(base) else { return Ok(false) };
    if found != base || reserved.bytes != bytes || state.is_mapped(base..base + bytes) {
        return Err(CudaError::INVALID_VALUE);
    }
    let slot_bytes = reserved.slot_bytes;
    match reserved.bound {
        Bound::Nothing => api.driver.memory.places.give_back(base, slot_bytes),
        Bound::Host if state.parked.free(base, reserved) => {}
        Bound::Host => parked::give_back_claim(api, base, slot_bytes)?,
        Bound::Device => {
            // The worker knows whether something is mapped there.
            calls::cuMemAddressFree(&mut api.internal().call(), DevicePtr(base), slot_bytes)?;
            give_back(api, base, slot_bytes);
        }
    }
    state.reserved.remove(&base);
    Ok(true)
}

/// Prepares the whole reservation at `base` for one kind of memory.
///
/// Errors: `CUDA_ERROR_NOT_SUPPORTED` if memory of the other kind is mapped there, or the driver does not free
/// addresses that it had reserved; and the worker's.
pub fn bind(api: Api, state: &mut State, base: u64, wanted: Bound) -> Result<(), CudaError> {
    let Some(reserved) = state.reserved.get(&base).copied() else { return Err(CudaError::INVALID_VALUE) };
    let Reserved { slot_bytes, bound, .. } = reserved;
    if bound == wanted {
        return Ok(());
    }
    if bound == Bound::Host && state.is_mapped(base..base + slot_bytes) {
        return Err(CudaError::NOT_SUPPORTED);
    }
    state.parked.take(base).into_iter().for_each(|parked| parked::end(api, parked));
    let take = |owner| match owner {
        Bound::Nothing => Ok(()),
        Bound::Host => claim(api, base, slot_bytes),
        Bound::Device => reserve_in_driver(api, base, slot_bytes),
    };
    match bound {
        Bound::Nothing => {}
        Bound::Host => yield_claim(api, base, slot_bytes)?,
        // The worker refuses this if something is mapped there.
        Bound::Device => calls::cuMemAddressFree(&mut api.internal().call(), DevicePtr(base), slot_bytes)
            .map_err(
                |error| {
                    if error == CudaError::INVALID_VALUE { CudaError::NOT_SUPPORTED } else { error }
                },
            )?,
    }
    let taken = take(wanted).inspect_err(|error| {
        log::debug!("{slot_bytes} bytes of addresses at {base:#x} do not change their owner: {error}");
    });
    let now = match &taken {
        Ok(()) => wanted,
        Err(_) if take(bound).is_ok() => bound,
        Err(_) => Bound::Nothing,
    };
    if let Some(reserved) = state.reserved.get_mut(&base) {
        reserved.bound = now;
    }
    taken.map_err(|error| if bound == Bound::Device { CudaError::NOT_SUPPORTED } else { error })
}
