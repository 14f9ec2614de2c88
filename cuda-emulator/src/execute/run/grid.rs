// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One grid: its shape is checked before workers run it.

use super::workers;
use crate::launch::{Fault, Launch};
use crate::nested::Children;

/// The maximum number of bytes of dynamic shared memory: no device has more.
const MAX_SHARED_BYTES: u32 = 1 << 20;

/// The maximum number of blocks of a cluster on hardware.
const MAX_CLUSTER_BLOCKS: u32 = 16;

/// The maximum number of blocks in each dimension, the same for all compute capabilities.
const MAX_GRID: [u32; 3] = [(1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1];

/// Executes one grid. Its launches are added to `children`.
pub(super) fn run_grid(launch: &Launch<'_>, children: &Children<'_>) -> Result<(), Fault> {
    let code = &launch.program.code;
    let refuse = |message: String| Err(launch.failure(message));
    let Some(entry) = code.entries.get(&launch.kernel.name) else {
        return refuse(format!("kernel `{}` is not of this program", launch.kernel.name));
    };
    let threads = launch.block.iter().try_fold(1_u32, |n, size| n.checked_mul(*size)).unwrap_or(u32::MAX);
    let too_many = launch.grid.iter().zip(MAX_GRID).any(|(blocks, most)| *blocks == 0 || *blocks > most);
    if threads == 0 || threads > launch.kernel.max_threads || too_many {
        let (grid, block) = (launch.grid, launch.block);
        return refuse(format!("grid {grid:?} with blocks {block:?} is not possible"));
    }
    let cluster = launch.cluster.or(launch.kernel.cluster).unwrap_or([1; 3]);
    let divides = launch.grid.iter().zip(cluster).all(|(blocks, size)| size > 0 && blocks % size == 0);
    let blocks = cluster.iter().try_fold(1_u32, |n, size| n.checked_mul(*size));
    if !divides || blocks.is_none_or(|blocks| blocks > MAX_CLUSTER_BLOCKS) {
        return refuse(format!("clusters {cluster:?} in a grid {:?} are not possible", launch.grid));
    }
    if launch.global_addresses.len() < launch.program.globals.len() {
        return refuse("too few addresses of module variables".to_owned());
    }
    if launch.dynamic_shared > MAX_SHARED_BYTES {
        return refuse(format!("{} bytes of dynamic shared memory", launch.dynamic_shared));
    }
    workers::run(launch, code, entry, children)
}
