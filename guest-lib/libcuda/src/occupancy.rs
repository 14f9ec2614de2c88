// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Occupancy. The device computes it. Only block sizes whose shared memory depends on a callback of the program are
//! searched here.

use cuda_abi::CUlaunchConfig;
use virtio_cuda_client::protocol::{FunctionId, LaunchShape};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::launch;
use crate::module::function::get_attribute;
use crate::state::contexts::current;
use crate::state::modules::answers::Query;

/// `CUoccupancyB2DSize`: bytes of dynamic shared memory for a block size.
type BlockSizeToSharedBytes = Option<extern "C" fn(i32) -> usize>;

const MAX_THREADS_PER_BLOCK: i32 = 1;
const WARP_SIZE: i32 = 10;
const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 39;
/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
const FUNC_MAX_THREADS_PER_BLOCK: i32 = 0;

fn active_blocks(api: Api, function: u64, block: i32, shared: usize, flags: u32) -> Result<i32, CudaError> {
    let query = Query::ActiveBlocks { context: api.context()?.0, block, shared, flags };
    let ask = || {
        let call = &mut api.in_context()?;
        let (function, shared) = (FunctionId(function), shared as u64);
        calls::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(call, function, block, shared, flags)
    };
    api.driver.functions.answer(function, query, ask)
}

/// Implements the search of `cudaOccupancyMaxPotentialBlockSizeVariableSMem`: from the largest block down, in steps of
/// a warp. The first of the best block sizes wins.
fn search(
    api: Api,
    function: u64,
    shared_bytes: extern "C" fn(i32) -> usize,
    limit: i32,
    flags: u32,
) -> Result<(i32, i32), CudaError> {
    let device = api.driver.device(api.driver.contexts.device_of(current())? as i32)?;
    let warp = device.attribute(WARP_SIZE)?.max(1);
    let occupancy_limit = device.attribute(MAX_THREADS_PER_MULTIPROCESSOR)?;
    let function_limit = get_attribute(api, FUNC_MAX_THREADS_PER_BLOCK, function)?;
    let device_limit = device.attribute(MAX_THREADS_PER_BLOCK)?;
    let limit = if limit == 0 { device_limit } else { limit.min(device_limit) }.min(function_limit);

    let (mut best_block, mut best_blocks, mut best_threads) = (0, 0, 0);
    let mut aligned = limit.saturating_add(warp - 1) / warp * warp;
    while aligned > 0 {
        let block = aligned.min(limit);
        let blocks = active_blocks(api, function, block, shared_bytes(block), flags)?;
        let threads = block.saturating_mul(blocks);
        if threads > best_threads {
            (best_block, best_blocks, best_threads) = (block, blocks, threads);
        }
        if best_threads >= occupancy_limit {
            break;
        }
        aligned -= warp;
    }
    Ok((best_blocks.saturating_mul(device.multiprocessors()?), best_block))
}

/// The blocks from which a function's best one is chosen.
struct Candidates {
    function: u64,
    /// The dynamic shared memory of a block: `bytes`, unless a callback says how it depends on the block size.
    of_block: BlockSizeToSharedBytes,
    bytes: usize,
    /// The maximum size.
    limit: i32,
    flags: u32,
}

fn potential_block_size(
    api: Api,
    min_grid: Out<i32>,
    block_size: Out<i32>,
    candidates: Candidates,
) -> Result<(), CudaError> {
    let Candidates { function, of_block, bytes, limit, flags } = candidates;
    min_grid.check()?;
    block_size.check()?;
    if limit < 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let (grid, block) = match of_block {
        Some(to_shared) => search(api, function, to_shared, limit, flags)?,
        None => calls::cuOccupancyMaxPotentialBlockSizeWithFlags(
            &mut api.in_context()?,
            FunctionId(function),
            bytes as u64,
            limit,
            flags,
        )?,
    };
    min_grid.set(grid)?;
    block_size.set(block)
}

/// Queries the clusters of a launch with `row`.
fn of_clusters(
    api: Api,
    out: Out<i32>,
    function: u64,
    config: In<CUlaunchConfig>,
    row: impl FnOnce(&mut Call<'_>, FunctionId, LaunchShape, u32) -> Result<i32, CudaError>,
) -> Result<(), CudaError> {
    out.check()?;
    if function == 0 || config.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    api.driver.functions.get(function)?;
    let (shape, count, attributes) = launch::shape(&config.get()?, api)?;
    let mut call = api.in_context()?.input(&attributes);
    out.set(row(&mut call, FunctionId(function), shape, count)?)
}

entry_points! {
    /// Returns the number of blocks that fit a multiprocessor.
    call cuOccupancyMaxActiveBlocksPerMultiprocessor(api, numBlocks: Out<i32>, func: u64, blockSize: i32, dynamicSMemSize: usize) {
        numBlocks.check()?;
        numBlocks.set(active_blocks(api, func, blockSize, dynamicSMemSize, 0)?)
    }

    /// Returns the number of blocks that fit a multiprocessor.
    call cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(api, numBlocks: Out<i32>, func: u64, blockSize: i32, dynamicSMemSize: usize, flags: u32) {
        numBlocks.check()?;
        numBlocks.set(active_blocks(api, func, blockSize, dynamicSMemSize, flags)?)
    }

    /// Returns the block size with the best occupancy.
    call cuOccupancyMaxPotentialBlockSize(api, minGridSize: Out<i32>, blockSize: Out<i32>, func: u64,
        blockSizeToDynamicSMemSize: BlockSizeToSharedBytes, dynamicSMemSize: usize, blockSizeLimit: i32) {
        let (of_block, bytes) = (blockSizeToDynamicSMemSize, dynamicSMemSize);
        let candidates = Candidates { function: func, of_block, bytes, limit: blockSizeLimit, flags: 0 };
        potential_block_size(api, minGridSize, blockSize, candidates)
    }

    /// Returns the block size with the best occupancy.
    call cuOccupancyMaxPotentialBlockSizeWithFlags(api, minGridSize: Out<i32>, blockSize: Out<i32>, func: u64,
        blockSizeToDynamicSMemSize: BlockSizeToSharedBytes, dynamicSMemSize: usize, blockSizeLimit: i32, flags: u32) {
        let (of_block, bytes) = (blockSizeToDynamicSMemSize, dynamicSMemSize);
        let candidates = Candidates { function: func, of_block, bytes, limit: blockSizeLimit, flags };
        potential_block_size(api, minGridSize, blockSize, candidates)
    }

    /// Returns the number of clusters that fit the device.
    call cuOccupancyMaxActiveClusters(api, numClusters: Out<i32>, func: u64, config: In<CUlaunchConfig>) {
        of_clusters(api, numClusters, func, config, calls::cuOccupancyMaxActiveClusters)
    }

    /// Returns the largest cluster size that fits the device.
    call cuOccupancyMaxPotentialClusterSize(api, clusterSize: Out<i32>, func: u64, config: In<CUlaunchConfig>) {
        of_clusters(api, clusterSize, func, config, calls::cuOccupancyMaxPotentialClusterSize)
    }

    /// Returns the dynamic shared memory per block if `numBlocks` blocks share a multiprocessor.
    call cuOccupancyAvailableDynamicSMemPerBlock(api, dynamicSmemSize: Out<usize>, func: u64, numBlocks: i32, blockSize: i32) {
        dynamicSmemSize.check()?;
        if numBlocks <= 0 || blockSize <= 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let bytes = calls::cuOccupancyAvailableDynamicSMemPerBlock(&mut api.in_context()?, FunctionId(func), numBlocks, blockSize)?;
        dynamicSmemSize.set(bytes as usize)
    }
}
