// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The driver state of the process: the session, and all state that needs no call to the device.

use std::sync::OnceLock;

use cuda_environment::Environment;
use virtio_cuda_client::{CudaError, Session, open};

use crate::state::arrays::Arrays;
use crate::state::buffers::Buffers;
use crate::state::callbacks::Callbacks;
use crate::state::captures::Captures;
use crate::state::contexts::Contexts;
use crate::state::devices::Devices;
use crate::state::dumps;
use crate::state::externals::Externals;
use crate::state::greens::Greens;
use crate::state::kept::Kept;
use crate::state::local_pools::table::LocalPools;
use crate::state::memory::Memory;
use crate::state::modules::Modules;
use crate::state::modules::functions::Functions;
use crate::state::modules::links::Links;
use crate::state::pools::Pools;
use crate::state::reservations::Vmm;
use crate::state::retraced::Retraced;
use crate::state::streams::{Events, Streams};
use crate::state::tensor_maps::TensorMaps;
use crate::state::textures::Textures;

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// All state of the library after `cuInit`.
#[derive(Debug)]
pub struct Driver {
    /// The session with the device, through which all calls are sent.
    pub session: &'static Session,
    /// CUDA's environment variables at the time of `cuInit`.
    pub environment: Environment,
    /// The GPUs that the program sees.
    pub devices: Devices,
    /// Contexts and the devices they belong to.
    pub contexts: Contexts,
    /// Green contexts.
    pub greens: Greens,
    /// Modules and libraries.
    pub modules: Modules,
    /// Functions, kernels and their parameters.
    pub functions: Functions,
    /// Streams that the program created.
    pub streams: Streams,
    /// Events of the program.
    pub events: Events,
    /// Arrays.
    pub arrays: Arrays,
    /// External memory.
    pub externals: Externals,
    /// Texture and surface objects.
    pub textures: Textures,
    pub tensor_maps: TensorMaps,
    /// Memory pools of devices.
    pub pools: Pools,
    /// Memory pools of the host, and of managed memory.
    pub local_pools: LocalPools,
    /// Unfinished cuLink* links.
    pub links: Links,
    /// Classifies addresses of the program as device memory, pinned memory or managed memory.
    pub memory: Memory,
    /// Address reservations, and host memory that is mapped there.
    pub vmm: Vmm,
    /// The program's functions that the device may ask this process to call.
    pub callbacks: Callbacks,
    /// Streams in capture mode.
    pub captures: Captures,
    /// Captures of the same calls of libraries.
    pub retraced: Retraced,
    /// Memory of this library that graph nodes expose to programs.
    pub kept: Kept,
    /// Buffers between graphs and pageable memory.
    pub buffers: Buffers,
}

impl Driver {
    /// Returns the driver, once `cuInit` has succeeded.
    pub fn get() -> Option<&'static Self> {
        DRIVER.get()
    }

    /// Implements `cuInit`.
    pub fn init() -> Result<(), CudaError> {
        dumps::initialise();
        let session = open::session()?;
        if DRIVER.get().is_some() {
            return Ok(());
        }
        let environment = Environment::of_this_process();
        let devices = Devices::new(session, &environment)?;
        let count = devices.count() as u32;
        if count == 0 {
            return Err(CudaError::NO_DEVICE);
        }
        DRIVER.get_or_init(|| Self {
            session,
            environment,
            devices,
            contexts: Contexts::new(count),
            greens: Greens::default(),
            modules: Modules::default(),
            functions: Functions::default(),
            streams: Streams::default(),
            events: Events::default(),
            arrays: Arrays::default(),
            externals: Externals::default(),
            textures: Textures::default(),
            tensor_maps: TensorMaps::default(),
            pools: Pools::default(),
            local_pools: LocalPools::default(),
            links: Links::default(),
            memory: Memory::default(),
            vmm: Vmm::default(),
            callbacks: Callbacks::default(),
            captures: Captures::default(),
            retraced: Retraced::default(),
            kept: Kept::default(),
            buffers: Buffers::default(),
        });
        Ok(())
    }
}
