// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The process's driver: the session and what this library knows without asking the device.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_environment::Environment;
use virtio_cuda_client::protocol::{ContextId, FIRST_HANDLE, StreamId};
use virtio_cuda_client::{Call, CudaError, Session, session};

use crate::array::table::Arrays;
use crate::context::core_dump;
use crate::context::green::Greens;
use crate::context::table::{Contexts, current};
use crate::device::Devices;
use crate::entry::{Api, DefaultStream};
use crate::external::Externals;
use crate::graph::kept::Kept;
use crate::graph::pageable::Buffers;
use crate::memory::Memory;
use crate::module::function_table::Functions;
use crate::module::link::Links;
use crate::module::table::Modules;
use crate::pool::Pools;
use crate::pool::host_pool::HostPools;
use crate::stream::callback::Callbacks;
use crate::stream::capture::Captures;
use crate::stream::table::{Events, Streams};
use crate::texture::Textures;

static DRIVER: OnceLock<Driver> = OnceLock::new();
static NEXT_HANDLE: AtomicU64 = AtomicU64::new(FIRST_HANDLE);

/// Names a new object of any kind: the handle that the program sees is the name that the worker knows.
pub fn mint() -> u64 {
    // Steps of 16 look like pointers to programs that check alignment.
    NEXT_HANDLE.fetch_add(16, Ordering::Relaxed)
}

/// All state of the library after `cuInit`.
#[derive(Debug)]
pub struct Driver {
    /// The tie to the device.
    pub session: &'static Session,
    /// CUDA's environment variables, as they were at `cuInit`.
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
    /// Streams and events that the program made.
    pub streams: Streams,
    /// What is known of events.
    pub events: Events,
    /// Arrays.
    pub arrays: Arrays,
    /// External memory.
    pub externals: Externals,
    /// Texture and surface objects.
    pub textures: Textures,
    /// Memory pools of devices.
    pub pools: Pools,
    /// Memory pools of the host, and of managed memory.
    pub host_pools: HostPools,
    /// Links that have begun.
    pub links: Links,
    /// What addresses mean.
    pub memory: Memory,
    /// Functions that the device may want run here.
    pub callbacks: Callbacks,
    /// Whether streams capture.
    pub captures: Captures,
    /// What nodes of graphs point programs to.
    pub kept: Kept,
    /// Memory between graphs and what the GPU does not reach.
    pub buffers: Buffers,
}

impl Driver {
    /// The driver, once `cuInit` has succeeded.
    pub fn get() -> Option<&'static Self> {
        DRIVER.get()
    }

    /// `cuInit`.
    pub fn init() -> Result<(), CudaError> {
        core_dump::initialise();
        let session = session::open()?;
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
            pools: Pools::default(),
            host_pools: HostPools::default(),
            links: Links::default(),
            memory: Memory::default(),
            callbacks: Callbacks::default(),
            captures: Captures::default(),
            kept: Kept::default(),
            buffers: Buffers::default(),
        });
        Ok(())
    }
}

impl Api {
    /// The calling thread's current context; 0 if there is none, or it is destroyed.
    pub fn current(&self) -> u64 {
        let context = current();
        if self.driver.contexts.is_destroyed(context) { 0 } else { context }
    }

    /// Starts a call in the calling thread's current context, or in the only one, if there is one.
    pub fn call(&self) -> Call<'static> {
        let context = match self.current() {
            0 => self.driver.contexts.only_one().unwrap_or(0),
            context => context,
        };
        self.driver.session.call().context(ContextId(context))
    }

    /// Starts a call in the current context; without one it is `CUDA_ERROR_INVALID_CONTEXT`.
    pub fn in_context(&self) -> Result<Call<'static>, CudaError> {
        Ok(self.driver.session.call().context(self.context()?))
    }

    /// Starts a call on a stream or event: in the current context or, without one, in the object's own.
    pub fn in_context_of(&self, handle: u64) -> Result<Call<'static>, CudaError> {
        let context = match self.current() {
            0 => self.driver.streams.get(handle).map_err(|_| CudaError::INVALID_CONTEXT)?.context,
            context => context,
        };
        Ok(self.driver.session.call().context(ContextId(context)))
    }

    /// The current context. Without one, or if it is destroyed, it is that of the objects that the call names: where there
    /// is only one context, they have no other (functions that need a current one are refused before, by `states`).
    pub fn context(&self) -> Result<ContextId, CudaError> {
        match self.current() {
            0 => self.driver.contexts.only_one().map(ContextId).ok_or(CudaError::INVALID_CONTEXT),
            context => Ok(ContextId(context)),
        }
    }

    /// The stream that a handle of the program means.
    pub fn stream(&self, handle: u64) -> StreamId {
        match (handle, self.default_stream) {
            (0, DefaultStream::PerThread) => StreamId(2),
            _ => StreamId(handle),
        }
    }

    /// What the program calls an address of the GPU's: host memory may have one of its own there.
    pub fn program_address(&self, address: u64) -> u64 {
        let alias = self.driver.memory.ranges.alias(address);
        alias.map_or(address, |range| range.start + (address - range.device_address))
    }

    /// The stream of calls that have no stream parameter.
    pub fn default_stream(&self) -> StreamId {
        self.stream(0)
    }
}
