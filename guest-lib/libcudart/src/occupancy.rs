// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Occupancy. The driver's functions take a kernel for a function.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::shared::cudaLaunchConfig_t;
use crate::api::load;
use crate::launch::driver_config;
use crate::module::kernel_of;
use crate::{driver, state};

api! {
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: *const c_void, block_size: c_int, dynamic: usize,
    ) {
        state::context()?;
        let function = kernel_of(function)?.cast();
        driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic, 0)
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, function: *const c_void, block_size: c_int, dynamic: usize, flags: c_uint,
    ) {
        state::context()?;
        let function = kernel_of(function)?.cast();
        driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic, flags)
    }

    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        dynamic: *mut usize, function: *const c_void, blocks: c_int, block_size: c_int,
    ) {
        state::context()?;
        driver::cuOccupancyAvailableDynamicSMemPerBlock(dynamic, kernel_of(function)?.cast(), blocks, block_size)
    }

    fn cudaOccupancyMaxPotentialClusterSize(
        size: *mut c_int, function: *const c_void, config: *const cudaLaunchConfig_t,
    ) {
        state::context()?;
        let config = driver_config(&load(config)?)?;
        driver::cuOccupancyMaxPotentialClusterSize(size, kernel_of(function)?.cast(), &config)
    }

    fn cudaOccupancyMaxActiveClusters(
        clusters: *mut c_int, function: *const c_void, config: *const cudaLaunchConfig_t,
    ) {
        state::context()?;
        let config = driver_config(&load(config)?)?;
        driver::cuOccupancyMaxActiveClusters(clusters, kernel_of(function)?.cast(), &config)
    }
}
