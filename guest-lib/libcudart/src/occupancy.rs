// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Occupancy. The driver's functions accept a kernel as a function.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::shared::cudaLaunchConfig_t;
use crate::function::named_kernel;
use crate::launch::driver_config;
use crate::pointers::{In, not_null};
use crate::{driver, state};

api! {
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: *const c_void, block_size: c_int, dynamic: usize,
    ) {
        state::context()?;
        let function = named_kernel(function)?.cast();
    } => driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic, 0);

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, function: *const c_void, block_size: c_int, dynamic: usize, flags: c_uint,
    ) {
        state::context()?;
        let function = named_kernel(function)?.cast();
    } => driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic, flags);

    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        dynamic: *mut usize, function: *const c_void, blocks: c_int, block_size: c_int,
    ) {
        state::context()?;
    } => driver::cuOccupancyAvailableDynamicSMemPerBlock(dynamic, named_kernel(function)?.cast(), blocks, block_size);

    fn cudaOccupancyMaxPotentialClusterSize(
        size: *mut c_int, function: *const c_void, config: In<cudaLaunchConfig_t>,
    ) {
        state::context()?;
        not_null(size)?;
        let (kernel, config) = (named_kernel(function)?, driver_config(&config.get()?)?);
    } => driver::cuOccupancyMaxPotentialClusterSize(size, kernel.cast(), &config);

    fn cudaOccupancyMaxActiveClusters(
        clusters: *mut c_int, function: *const c_void, config: In<cudaLaunchConfig_t>,
    ) {
        state::context()?;
        not_null(clusters)?;
        let (kernel, config) = (named_kernel(function)?, driver_config(&config.get()?)?);
    } => driver::cuOccupancyMaxActiveClusters(clusters, kernel.cast(), &config);
}
