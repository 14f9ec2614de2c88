// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples of the last seconds, and utilisation by domain. Power and clock samples are the card's. For utilisation
//! there is one sample: this machine's share.

use std::time::{SystemTime, UNIX_EPOCH};

use virtio_cuda_client::calls;

use crate::error::{
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND, NVML_ERROR_NOT_SUPPORTED, Result, of_call,
};
use crate::getters::{Results, ask, copy};
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

/// The row of the table of getters, and the indices of its results.
const SAMPLES: u32 = 0x5b;
const VALUE_KIND: usize = 2;
const COUNT: usize = 3;
const LIST: usize = 4;
/// Maximum number of samples; more than the library keeps of any kind.
const MAX_SAMPLES: u32 = 256;

/// `nvmlSamplingType_t`: 0 is the power, 5 and 6 are clocks.
const GPU_USE: u32 = 1;
const MEMORY_USE: u32 = 2;
const DECODER_USE: u32 = 4;
const MODULE_POWER: u32 = 7;
const LAST_KIND: u32 = 9;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: u32 = 1;

/// Domains of `nvmlGpuDynamicPstatesInfo_t`. GPU, memory, video and bus exist.
const DOMAINS: usize = 8;
const KNOWN_DOMAINS: usize = 4;

#[repr(C)]
pub struct nvmlSample_t {
    timeStamp: u64,
    sampleValue: u64,
}
const _: () = assert!(size_of::<nvmlSample_t>() == 16);

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Domain {
    bIsPresent: u32,
    percentage: u32,
    incThreshold: u32,
    decThreshold: u32,
}

#[repr(C)]
pub struct nvmlGpuDynamicPstatesInfo_t {
    flags: u32,
    utilization: [Domain; DOMAINS],
}
const _: () = assert!(size_of::<nvmlGpuDynamicPstatesInfo_t>() == 132);

/// Returns this machine's share of the GPU's time and of its memory's time, in per cent.
fn shares(device: nvmlDevice_t) -> Result<(u32, u32)> {
    let device = state::device(device)?;
    calls::nvml_utilization(&mut state::call()?, device.ordinal()).map_err(of_call)
}

/// Returns the current sample.
fn share(device: nvmlDevice_t, kind: u32, since: u64) -> Result<Option<nvmlSample_t>> {
    let (gpu, memory) = shares(device)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros() as u64);
    let value = match kind {
        GPU_USE => gpu,
        MEMORY_USE => memory,
        // There are no video or JPEG engines.
        _ => 0,
    };
    Ok((now > since).then_some(nvmlSample_t { timeStamp: now, sampleValue: value.into() }))
}

/// Returns whether samples of this kind are the card's instead of this machine's.
fn of_card(kind: u32) -> bool {
    !matches!(kind, GPU_USE..=DECODER_USE) && kind <= MODULE_POWER
}

/// Returns the card's samples: type, number and bytes.
fn samples_in(results: &Results) -> (u32, u32, &[u8]) {
    let list = results.of(LIST);
    let count = results.number(COUNT).min((list.len() / size_of::<nvmlSample_t>()) as u32);
    (results.number(VALUE_KIND), count, &list[..count as usize * size_of::<nvmlSample_t>()])
}

api! {
    /// Returns the newest samples that fit; without a list, their maximum number.
    fn nvmlDeviceGetSamples(
        device: nvmlDevice_t, kind: u32, since: u64, value_kind: Out<u32>, count: Out<u32>, list: *mut u8,
    ) {
        state::device(device)?;
        if kind > LAST_KIND || value_kind.is_null() || count.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        let room = count.get()?;
        if list.is_null() {
            // The maximum number is also returned for kinds that have no samples now.
            if of_card(kind) && ask(SAMPLES, Some(device), [kind.into(), since, 0]).err() == Some(NVML_ERROR_NOT_SUPPORTED)
            {
                return Err(NVML_ERROR_NOT_SUPPORTED);
            }
            value_kind.set(UNSIGNED_INT)?;
            return count.set(if of_card(kind) { MAX_SAMPLES } else { 1 });
        }
        if room == 0 {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        let own;
        let results;
        let (value, found, bytes) = if !of_card(kind) {
            own = share(device, kind, since)?;
            let bytes = own.as_ref().map_or(&[][..], |sample| {
                let start = (&raw const *sample).cast::<u8>();
                // SAFETY: a local without padding, which lives as long as the bytes.
                unsafe { core::slice::from_raw_parts(start, size_of::<nvmlSample_t>()) }
            });
            (UNSIGNED_INT, u32::from(own.is_some()), bytes)
        } else {
            results = ask(SAMPLES, Some(device), [kind.into(), since, 0])?;
            samples_in(&results)
        };
        if found == 0 {
            return Err(NVML_ERROR_NOT_FOUND);
        }
        let given = found.min(room);
        // SAFETY: not null, so the program promises `room` samples, and no more are given.
        unsafe { copy(&bytes[..given as usize * size_of::<nvmlSample_t>()], list) };
        value_kind.set(value)?;
        count.set(given)
    }

    fn nvmlDeviceGetDynamicPstatesInfo(device: nvmlDevice_t, info: Out<nvmlGpuDynamicPstatesInfo_t>) {
        state::device(device)?;
        if info.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        let (gpu, memory) = shares(device)?;
        let mut utilization = [Domain::default(); DOMAINS];
        for (domain, percentage) in utilization.iter_mut().zip([gpu, memory, 0, 0]).take(KNOWN_DOMAINS) {
            *domain = Domain { bIsPresent: 1, percentage, ..Domain::default() };
        }
        info.set(nvmlGpuDynamicPstatesInfo_t { flags: 0, utilization })
    }
}
