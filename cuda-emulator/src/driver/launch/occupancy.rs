// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The number of blocks of a kernel that fit on a multiprocessor, by the rules of the device's compute capability.

use std::ffi::c_int;

use cuda_abi::CUlaunchConfig;

use super::config::Configuration as _;
use crate::driver::device;
use crate::driver::device::attributes::{REGISTERS, WARP};
use crate::driver::device::model::Limits;
use crate::driver::ffi::{In, Out};
use crate::driver::module::function::{self, CUfunction, Function};
use crate::driver::result::{CUresult, CuResult};
use crate::symbols::Kernel;

/// The allocation unit of registers to warps.
const REGISTER_UNIT: u32 = 256;
/// The allocation unit of shared memory to blocks, in bytes.
const SHARED_UNIT: u32 = 128;

/// Resident blocks of `threads` threads (1 to 1024) with `dynamic` bytes of dynamic shared memory.
pub(crate) fn blocks_per_multiprocessor(limits: &Limits, kernel: &Kernel, threads: u32, dynamic: u32) -> u32 {
    let warps = threads.div_ceil(WARP);
    let by_threads = limits.threads / WARP / warps;
    let registers = (kernel.registers.clamp(1, 255) * WARP).next_multiple_of(REGISTER_UNIT) * warps;
    let shared = kernel.static_shared.saturating_add(dynamic).saturating_add(limits.shared_reserved);
    let shared = shared.checked_next_multiple_of(SHARED_UNIT).unwrap_or(u32::MAX);
    let by_shared = limits.shared.checked_div(shared).unwrap_or(u32::MAX);
    limits.blocks.min(by_threads).min(REGISTERS / registers).min(by_shared)
}

fn max_active_blocks(out: Out<c_int>, handle: CUfunction, threads: c_int, dynamic: usize) -> CuResult<()> {
    out.check()?;
    let function = function::find(handle)?;
    let limits = device::current_or_first()?.model.limits();
    out.set_if_wanted(active_blocks(&limits, &function, threads, dynamic)?);
    Ok(())
}

/// Returns the number of resident blocks of `threads` threads with `dynamic` bytes of dynamic shared memory; 0 if not
/// even one fits.
pub(crate) fn active_blocks(
    limits: &Limits,
    function: &Function,
    threads: c_int,
    dynamic: usize,
) -> CuResult<c_int> {
    let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0);
    let threads = threads.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let dynamic = u32::try_from(dynamic).unwrap_or(u32::MAX);
    let fits = threads <= function.max_threads()? && dynamic <= function.dynamic_shared()?;
    let blocks = || Ok(blocks_per_multiprocessor(limits, function.kernel()?, threads, dynamic) as c_int);
    if fits { blocks() } else { Ok(0) }
}

fn max_active_blocks_with_flags(
    out: Out<c_int>,
    handle: CUfunction,
    threads: c_int,
    dynamic: usize,
    flags: u32,
) -> CuResult<()> {
    check_flags(flags)?;
    max_active_blocks(out, handle, threads, dynamic)
}

/// CU_OCCUPANCY_DEFAULT, CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
fn check_flags(flags: u32) -> CuResult<()> {
    if flags > 1 { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// CUoccupancyB2DSize: dynamic shared memory by block size.
type BlockToDynamic = Option<unsafe extern "C" fn(c_int) -> usize>;

fn max_potential_block_size(
    min_grid: Out<c_int>,
    block: Out<c_int>,
    handle: CUfunction,
    dynamic_of: BlockToDynamic,
    dynamic: usize,
    limit: c_int,
) -> CuResult<()> {
    min_grid.check()?;
    block.check()?;
    if limit < 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let function = function::find(handle)?;
    let kernel = function.kernel()?;
    let most = function.max_threads()?;
    let most = if limit > 0 { most.min(limit as u32) } else { most };
    let model = &device::current_or_first()?.model;
    let limits = model.limits();
    let mut best = (0, 0);
    // From large to small, so that the largest block wins among equals.
    let sizes = (1..=most.div_ceil(WARP)).rev().map(|warps| (warps * WARP).min(most));
    for threads in sizes {
        let dynamic = match dynamic_of {
            // SAFETY: the caller passed a function that may be called with a block size during this call.
            Some(dynamic_of) => unsafe { dynamic_of(threads as c_int) },
            None => dynamic,
        };
        let blocks =
            blocks_per_multiprocessor(&limits, kernel, threads, u32::try_from(dynamic).unwrap_or(u32::MAX));
        if blocks * threads > best.0 * best.1 {
            best = (blocks, threads);
        }
    }
    min_grid.set_if_wanted((best.0 * model.multiprocessors) as c_int);
    block.set_if_wanted(best.1 as c_int);
    Ok(())
}

fn max_potential_block_size_with_flags(
    [min_grid, block]: [Out<c_int>; 2],
    handle: CUfunction,
    dynamic_of: BlockToDynamic,
    dynamic: usize,
    limit: c_int,
    flags: u32,
) -> CuResult<()> {
    check_flags(flags)?;
    max_potential_block_size(min_grid, block, handle, dynamic_of, dynamic, limit)
}

fn available_dynamic_smem(
    out: Out<usize>,
    handle: CUfunction,
    blocks: c_int,
    threads: c_int,
) -> CuResult<()> {
    out.check()?;
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks > 0).ok_or(invalid)?;
    let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(invalid)?;
    let function = function::find(handle)?;
    let limits = device::current_or_first()?.model.limits();
    if threads > function.max_threads()?
        || blocks_per_multiprocessor(&limits, function.kernel()?, threads, 0) < blocks
    {
        return Err(invalid);
    }
    let share = limits.shared / blocks / SHARED_UNIT * SHARED_UNIT;
    let own = function.kernel()?.static_shared + limits.shared_reserved;
    out.set_if_wanted(share.saturating_sub(own).min(function.dynamic_shared()?) as usize);
    Ok(())
}

/// The maximum number of blocks of a cluster that every device with clusters supports.
const PORTABLE_CLUSTER: u32 = 8;
const MAX_CLUSTER: u32 = 16;

/// Returns the maximum number of blocks of a function's clusters.
pub(super) fn largest_cluster(function: &Function) -> CuResult<u32> {
    Ok(if function.takes_large_clusters()? { MAX_CLUSTER } else { PORTABLE_CLUSTER })
}

/// Returns for a launch: the blocks that the device holds at once, the blocks of its cluster, and the maximum blocks
/// of a cluster.
fn of_clusters(handle: CUfunction, config: In<CUlaunchConfig>) -> CuResult<(u32, u32, u32)> {
    if handle == CUfunction::NULL || config.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let function = function::find(handle)?;
    let shape = config.get()?.shape()?;
    if shape.grid.contains(&0) || shape.block.contains(&0) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let kernel = function.kernel()?;
    let model = &device::current_or_first()?.model;
    // CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
    if model.architecture < 90 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let product = |sizes: [u32; 3]| sizes.into_iter().fold(1, u32::saturating_mul);
    let threads = product(shape.block);
    let fits =
        (1..=function.max_threads()?).contains(&threads) && shape.shared <= function.dynamic_shared()?;
    let blocks =
        if fits { blocks_per_multiprocessor(&model.limits(), kernel, threads, shape.shared) } else { 0 };
    let largest = largest_cluster(&function)?;
    let cluster = shape.cluster.or(kernel.cluster).map_or(1, product);
    Ok((blocks.saturating_mul(model.multiprocessors), cluster, largest))
}

/// Returns the number of clusters that the device holds at once. No device holds one of more than 16 blocks, for which
/// cuTENSOR asks a kernel that takes large ones: it expects 0, and counts the multiprocessors of a GPC this way.
fn resident_clusters(blocks: u32, cluster: u32, largest: u32) -> CuResult<u32> {
    match cluster {
        0 => Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE),
        _ if cluster <= largest => Ok(blocks / cluster),
        _ if largest == MAX_CLUSTER => Ok(0),
        _ => Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE),
    }
}

/// The emulator places the blocks of a cluster on any multiprocessors.
fn max_active_clusters(out: Out<c_int>, handle: CUfunction, config: In<CUlaunchConfig>) -> CuResult<()> {
    out.check()?;
    let (blocks, cluster, largest) = of_clusters(handle, config)?;
    out.set_if_wanted(resident_clusters(blocks, cluster, largest)? as c_int);
    Ok(())
}

fn max_potential_cluster_size(
    out: Out<c_int>,
    handle: CUfunction,
    config: In<CUlaunchConfig>,
) -> CuResult<()> {
    out.check()?;
    let (blocks, _, largest) = of_clusters(handle, config)?;
    out.set_if_wanted(blocks.min(largest) as c_int);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuOccupancyMaxActiveClusters => max_active_clusters(
        out: Out<c_int>, function: CUfunction, config: In<CUlaunchConfig>);
    cuOccupancyMaxPotentialClusterSize => max_potential_cluster_size(
        out: Out<c_int>, function: CUfunction, config: In<CUlaunchConfig>);
    cuOccupancyMaxActiveBlocksPerMultiprocessor => max_active_blocks(
        out: Out<c_int>, function: CUfunction, threads: c_int, dynamic: usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags => max_active_blocks_with_flags(
        out: Out<c_int>, function: CUfunction, threads: c_int, dynamic: usize, flags: u32);
    cuOccupancyMaxPotentialBlockSize => max_potential_block_size(
        min_grid: Out<c_int>, block: Out<c_int>, function: CUfunction, dynamic_of: BlockToDynamic, dynamic: usize,
        limit: c_int);
    cuOccupancyMaxPotentialBlockSizeWithFlags => max_potential_block_size_with_flags(
        min_grid: Out<c_int>, block: Out<c_int>, function: CUfunction, dynamic_of: BlockToDynamic, dynamic: usize,
        limit: c_int, flags: u32) as ([min_grid, block], function, dynamic_of, dynamic, limit, flags);
    cuOccupancyAvailableDynamicSMemPerBlock => available_dynamic_smem(
        out: Out<usize>, function: CUfunction, blocks: c_int, threads: c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_holds_clusters_of_more_than_16_blocks() {
        assert_eq!(resident_clusters(132, 8, PORTABLE_CLUSTER), Ok(16));
        assert_eq!(resident_clusters(132, 16, MAX_CLUSTER), Ok(8));
        assert_eq!(resident_clusters(132, 32, MAX_CLUSTER), Ok(0));
        let refused = Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        assert_eq!(resident_clusters(132, 16, PORTABLE_CLUSTER), refused);
        assert_eq!(resident_clusters(132, 0, MAX_CLUSTER), refused);
    }

    #[test]
    fn each_resource_limits_the_blocks() {
        let kernel = |registers, static_shared| Kernel { registers, static_shared, ..Kernel::default() };
        let limits = Limits::of(90).unwrap();
        assert_eq!(blocks_per_multiprocessor(&limits, &kernel(16, 0), 32, 0), 32);
        assert_eq!(blocks_per_multiprocessor(&limits, &kernel(16, 0), 1024, 0), 2);
        assert_eq!(blocks_per_multiprocessor(&limits, &kernel(16, 0), 1000, 0), 2);
        assert_eq!(blocks_per_multiprocessor(&limits, &kernel(128, 0), 256, 0), 2);
        assert_eq!(blocks_per_multiprocessor(&limits, &kernel(16, 47 << 10), 256, 0), 4);
        assert_eq!(blocks_per_multiprocessor(&limits, &kernel(16, 0), 256, 227 << 10), 1);
        assert_eq!(blocks_per_multiprocessor(&limits, &kernel(16, 0), 256, 228 << 10), 0);
    }
}
