// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Occupancy questions.

use virtio_cuda_protocol::cuda::{FunctionId, LaunchShape};

use super::launch::with_attributes;
use crate::worker::call::CallContext;
use crate::worker::gpu::CuResult;

/// Block size of best occupancy.
pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    cx: &mut CallContext<'_>,
    function: FunctionId,
    dynamic_shared: u64,
    block_limit: i32,
    flags: u32,
) -> CuResult<(i32, i32)> {
    let function = cx.resolve(function)?;
    cx.gpu().cuOccupancyMaxPotentialBlockSizeWithFlags(
        function,
        None,
        dynamic_shared as usize,
        block_limit,
        flags,
    )
}

/// Clusters that can be resident at once.
pub fn cuOccupancyMaxActiveClusters(
    cx: &mut CallContext<'_>,
    function: FunctionId,
    shape: LaunchShape,
    attributes: u32,
) -> CuResult<(i32,)> {
    let (more, _) = with_attributes(cx, &shape, attributes)?;
    cx.gpu().active_clusters(cx.resolve(function)?, &shape, &more)
}

/// The largest cluster.
pub fn cuOccupancyMaxPotentialClusterSize(
    cx: &mut CallContext<'_>,
    function: FunctionId,
    shape: LaunchShape,
    attributes: u32,
) -> CuResult<(i32,)> {
    let (more, _) = with_attributes(cx, &shape, attributes)?;
    cx.gpu().potential_cluster_size(cx.resolve(function)?, &shape, &more)
}
