// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The location of managed memory: `cuMemGetLocationInfo` of CUDA 13.4.

use cuda_abi::CUmemLocation;
use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::Out;
use crate::memory::managed::{LOCATION_HOST, check_range};
use crate::state::devices::LOCATION_DEVICE;
use crate::state::moving::blocks::{BLOCK_BYTES, Owner};

/// Returns the location of the memory at an address of a validated range.
fn location(api: Api, address: u64) -> CUmemLocation {
    let moving = api.driver.memory.moving.at(address);
    let on_device = moving.filter(|moving| api.owner_of(moving, address - moving.address) == Owner::Gpu);
    let device = on_device.and_then(|moving| api.driver.contexts.device_of(moving.context).ok());
    match device {
        Some(device) => CUmemLocation { kind: LOCATION_DEVICE, id: device as i32 },
        None => CUmemLocation { kind: LOCATION_HOST, id: 0 },
    }
}

/// Returns the location that most of the samples in a region have. Of two with the same count, the first.
fn most_common(samples: impl Iterator<Item = CUmemLocation>) -> Option<CUmemLocation> {
    let mut counts: Vec<(CUmemLocation, usize)> = Vec::new();
    for sample in samples {
        match counts.iter_mut().find(|(known, _)| (known.kind, known.id) == (sample.kind, sample.id)) {
            Some((_, count)) => *count += 1,
            None => counts.push((sample, 1)),
        }
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(location, _)| location)
}

entry_points! {
    /// Stores the most common location of each region of `summaryGranularity` bytes. Memory moves in blocks, so that samples
    /// closer than a block would tell no more.
    call cuMemGetLocationInfo(api, ptr: u64, size: usize, summaryGranularity: usize, samplingGranularity: usize,
        location_out: Out<CUmemLocation>) {
        api.context()?;
        location_out.check()?;
        if summaryGranularity == 0 || summaryGranularity > size || samplingGranularity > summaryGranularity {
            return Err(CudaError::INVALID_VALUE);
        }
        check_range(api, ptr, size)?;
        let end = ptr + size as u64;
        let step = (samplingGranularity as u64).max(BLOCK_BYTES) as usize;
        for (index, start) in (ptr..end).step_by(summaryGranularity).enumerate() {
            let region = start..end.min(start.saturating_add(summaryGranularity as u64));
            let samples = region.step_by(step).map(|address| location(api, address));
            location_out.set_at(index, most_common(samples).ok_or(CudaError::UNKNOWN)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_common_location_wins() {
        let of = |ids: &[i32]| {
            let samples = ids.iter().map(|id| CUmemLocation { kind: LOCATION_DEVICE, id: *id });
            most_common(samples).map(|location| location.id)
        };
        assert_eq!(of(&[1, 2, 2, 3]), Some(2));
        assert_eq!(of(&[3, 1, 1, 3]), Some(3));
        assert_eq!(of(&[]), None);
    }
}
