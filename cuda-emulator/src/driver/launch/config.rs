// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CUlaunchConfig: the size of a launch, and its attributes.

use cuda_abi::{CUlaunchAttribute, CUlaunchConfig};

use super::Shape;
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};

/// CUlaunchAttributeID
pub(crate) const ATTRIBUTE_COOPERATIVE: u32 = 2;
pub(crate) const ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;
const ATTRIBUTE_PROGRAMMATIC_EVENT: u32 = 7;
const ATTRIBUTE_LAUNCH_COMPLETION_EVENT: u32 = 12;
pub(crate) const ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: u32 = 13;
/// The offset of CUgraphDeviceNode in a CUlaunchAttribute.
const DEVICE_NODE_OFFSET: usize = 16;
/// CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE of an H200.
const MAX_WINDOW: u64 = 128 << 20;

/// The configuration of a launch.
pub(crate) trait Configuration {
    /// Returns whether kernels may change the node of the launch, and the place for its CUgraphDeviceNode; `None` if
    /// neither was specified.
    fn updatable(&self) -> CuResult<Option<(bool, Out<u64>)>>;
    /// Returns the size of the launch.
    fn shape(&self) -> CuResult<Shape>;
}

fn attributes(config: &CUlaunchConfig) -> In<CUlaunchAttribute> {
    // SAFETY: the program's configuration, which says that `attribute_count` attributes are there, or NULL.
    unsafe { In::new(config.attributes as *const _) }
}

impl Configuration for CUlaunchConfig {
    fn updatable(&self) -> CuResult<Option<(bool, Out<u64>)>> {
        for index in 0..self.attribute_count as usize {
            let CUlaunchAttribute { id, value, .. } = attributes(self).at(index)?;
            if id == ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
                if value[0] > 1 || value[2..4] != [0; 2] {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                let place = self.attributes + index * size_of::<CUlaunchAttribute>() + DEVICE_NODE_OFFSET;
                // SAFETY: in the attribute that has just been read, where cuda.h has the call store the node.
                let node = unsafe { Out::new(place as *mut u64) };
                return Ok(Some((value[0] == 1, node)));
            }
        }
        Ok(None)
    }

    fn shape(&self) -> CuResult<Shape> {
        let (grid, block, shared) = (self.grid, self.block, self.shared_bytes);
        let mut shape = Shape { grid, block, shared, cooperative: false, cluster: None };
        for index in 0..self.attribute_count as usize {
            let attribute = attributes(self).at(index)?;
            match attribute.id {
                ATTRIBUTE_COOPERATIVE => shape.cooperative = attribute.value[0] != 0,
                ATTRIBUTE_CLUSTER_DIMENSION => {
                    let cluster = [attribute.value[0], attribute.value[1], attribute.value[2]];
                    let divides = |(size, grid): (&u32, &u32)| *size != 0 && grid.is_multiple_of(*size);
                    if !cluster.iter().zip(&grid).all(divides) {
                        return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
                    }
                    shape.cluster = Some(cluster);
                }
                ATTRIBUTE_PROGRAMMATIC_EVENT | ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                    return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
                }
                // See `updatable`.
                ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {}
                // The others are hints: priority, cache windows, memory domains, overlap with the previous kernel.
                _ => check_hint(attribute.id, &attribute.value)?,
            }
        }
        Ok(shape)
    }
}

/// Refuses invalid values of such an attribute, and attributes that launches do not have.
pub(crate) fn check_hint(id: u32, value: &[u32; 16]) -> CuResult<()> {
    let good = match id {
        // IGNORE, PROGRAMMATIC_STREAM_SERIALIZATION, PRIORITY, PREFERRED_CLUSTER_DIMENSION.
        0 | 6 | 8 | 11 => true,
        // ACCESS_POLICY_WINDOW: an address, bytes, a ratio, and the properties of hits and misses. The only check is
        // that misses do not persist (2).
        1 => {
            let bytes = u64::from(value[2]) | u64::from(value[3]) << 32;
            let ratio = f32::from_bits(value[4]);
            bytes <= MAX_WINDOW && (0.0..=1.0).contains(&ratio) && value[6] != 2
        }
        // CLUSTER_SCHEDULING_POLICY_PREFERENCE: default, spread, load balancing.
        5 => value[0] <= 2,
        // MEM_SYNC_DOMAIN_MAP: of four domains.
        9 => value[0].to_le_bytes()[..2].iter().all(|domain| *domain < 4),
        // MEM_SYNC_DOMAIN: default, remote.
        10 => value[0] <= 1,
        // PREFERRED_SHARED_MEMORY_CARVEOUT, a percentage.
        14 => value[0] <= 100,
        _ => false,
    };
    if good { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}
