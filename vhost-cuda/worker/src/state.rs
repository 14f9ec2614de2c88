// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a session in its worker, shared by the executors of its threads.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::call::time_limit::TimeLimit;
use super::call::turns::Turns;
use super::copy::Engine;
use super::devices::DeviceFacts;
use super::gpu::{CuResult, CudaError, Driver};
use super::memory::allocations::{Allocations, Origin};
use super::memory::holds::{Held, Holds};
use super::memory::host_memory::HostMemory;
use super::memory::mapper::Mapper;
use super::memory::pages::GuestPages;
use super::memory::placed::Placed;
use super::memory::pools::{Charged, Pools};
use super::memory::prints::{Abilities, LoadedCode};
use super::memory::reservations::Reservations;
use super::memory::window::Window;
use super::objects::Objects;
use super::objects::contexts::Contexts;
use super::objects::graphs::Graphs;
use super::objects::images::Images;
use super::objects::linker::Links;
use super::objects::named::NamedVariables;
use super::objects::resources::DevResources;
use super::outstanding::OutstandingCalls;
use super::profile::Profile;
use super::recipe::kept::Recipe;
use super::run::exec_callbacks::ExecCallbacks;
use super::run::gate::Gate;
use super::run::order::Order;
use super::run::output::Output;
use super::run::prepared::Preparing;
use super::run::signal;
use super::sharing::Sharing;
use super::suspend::suspended::Suspension;
use super::trace::Trace;
use super::vendor::Vendor;

/// The state of a session.
///
/// Several locks are taken in this order: contexts, window, reservations, placed, pools, allocations. None of them is held
/// where the last reference to an object may be released, because destroying the object takes them, too.
#[derive(Debug)]
pub struct SessionState {
    /// The driver.
    pub gpu: Driver,
    /// The daemon's cache of images that any session has loaded before.
    pub images: Arc<Images>,
    /// The objects that are shared with other processes.
    pub sharing: Sharing,
    /// The output of device code.
    pub output: Output,
    /// Contexts.
    pub contexts: Contexts,
    /// All other objects with handles.
    pub objects: Objects,
    /// Variables that the guest copies by their names.
    pub variables: NamedVariables,
    /// Resources of devices that were reported to the guest.
    pub resources: DevResources,
    /// Copies of guest pages.
    pub copies: Engine,
    /// The time that copies take.
    pub copy_time: CopyTime,
    /// See [`SessionLimits::emulated`].
    pub emulated: bool,
    /// False without all that makes calls faster ([`SessionLimits::plain`]).
    pub fast: bool,
    /// Signals that no thread uses at the moment.
    pub spare_signals: signal::Spares,
    /// True if memory was freed in stream order, and the driver has not been asked to wait since, when it returns
    /// pools' memory.
    pub freed_in_order: AtomicBool,
    /// See [`super::run::prepared`].
    pub preparing: Preparing,
    /// Calls that prevent copies from being waited for in that way ([`signal::runs`]).
    pub unwaited: OutstandingCalls,
    /// The properties of the loaded code.
    pub code: LoadedCode,
    /// Windows that calls use.
    pub holds: Holds,
    /// Graphs and their nodes.
    pub graphs: Graphs,
    /// The further callbacks of executable graphs.
    pub exec_callbacks: ExecCallbacks,
    /// True while the guest library has not sent a version of the call table that is known here: every call but
    /// `session_hello` is refused.
    pub refused: AtomicBool,
    /// The version of the call table that both use, or 0 before `session_hello`.
    pub call_table: AtomicU32,
    /// The order of records across lanes.
    pub order: Order,
    /// The gate of calls that need the device's memory.
    pub gate: Gate,
    /// Constant properties, by device.
    pub devices: Vec<OnceLock<DeviceFacts>>,
    /// Links that have begun.
    pub links: Links,
    /// The memory that the driver retains.
    pub pools: Pools,
    /// Host memory.
    pub host_memory: HostMemory,
    /// NVIDIA's libraries.
    pub vendor: Vendor,
    /// Measurements for profilers.
    pub trace: Trace,
    /// What the session does, for the operator.
    pub profile: Profile,
    /// The calls that would make its objects again.
    pub recipe: Recipe,
    /// Release thresholds of pools that the driver does not get because of the quota.
    pub thresholds: Mutex<HashMap<u64, u64>>,
    /// Memory of `cuMemAlloc` that may move.
    pub placed: Placed,
    /// The state of moves.
    pub suspension: Suspension,
    reservations: Mutex<Reservations>,
    allocations: Mutex<Allocations>,
    window: Mutex<Window>,
    memory: RwLock<Arc<GuestPages>>,
    /// The gates that GPU work passes, where virtual machines share GPU time.
    pub turns: Option<Turns>,
    /// The maximum time that work on a GPU may take.
    pub time_limit: Option<TimeLimit>,
    /// The mapper of guest memory, if the worker may map named pages only.
    pub mapper: Option<Arc<Mapper>>,
}

/// The time that waiting calls have spent in copying host memory.
#[derive(Debug, Default)]
pub struct CopyTime {
    copies: AtomicU64,
    ns: AtomicU64,
}

impl CopyTime {
    /// Goes on behind the copies of another worker.
    pub fn begin_behind(&self, copies: u64, ns: u64) {
        self.copies.store(copies, Ordering::Relaxed);
        self.ns.store(ns, Ordering::Relaxed);
    }

    /// Counts a copy.
    pub fn add(&self, time: Duration) {
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the number of copies, and nanoseconds.
    pub fn so_far(&self) -> (u64, u64) {
        (self.copies.load(Ordering::Relaxed), self.ns.load(Ordering::Relaxed))
    }
}

/// The limits of a session.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    /// The maximum device memory, in bytes.
    pub memory: Option<u64>,
    /// The number of threads that copy guest pages.
    pub copy_threads: usize,
    /// The folders that are searched first for NVIDIA's libraries.
    pub libraries: Vec<PathBuf>,
    /// True if the library is the emulator: it takes PTX only, and reads no files.
    pub emulated: bool,
    /// True without all that makes calls faster.
    pub plain: bool,
}

/// The locked reservations. Dropping it also ends the offers of allocations that have ended meanwhile.
#[derive(Debug)]
pub struct LockedReservations<'a> {
    reservations: MutexGuard<'a, Reservations>,
    sharing: &'a Sharing,
}

impl Deref for LockedReservations<'_> {
    type Target = Reservations;

    fn deref(&self) -> &Reservations {
        &self.reservations
    }
}

impl DerefMut for LockedReservations<'_> {
    fn deref_mut(&mut self) -> &mut Reservations {
        &mut self.reservations
    }
}

impl Drop for LockedReservations<'_> {
    fn drop(&mut self) {
        for token in self.reservations.take_ended() {
            self.sharing.withdraw(token);
        }
    }
}

/// The daemon's services for a session.
#[derive(Debug)]
pub struct Services {
    /// Stores the program's device code.
    pub images: Arc<Images>,
    /// Hands memory to other sessions.
    pub sharing: Sharing,
}

impl SessionState {
    /// Creates a session without objects.
    pub fn new(
        gpu: Driver,
        services: Services,
        output: Output,
        window: Window,
        devices: u32,
        limits: SessionLimits,
    ) -> Self {
        let Services { images, sharing } = services;
        let fast = !limits.plain;
        let preparing = Preparing::new(fast, limits.emulated);
        let placed = Placed::new(&gpu, devices, limits.emulated);
        Self {
            gpu,
            images,
            sharing,
            output,
            contexts: Contexts::default(),
            objects: Objects::default(),
            variables: NamedVariables::default(),
            resources: DevResources::default(),
            copies: Engine::new(limits.copy_threads),
            copy_time: CopyTime::default(),
            emulated: limits.emulated,
            fast,
            spare_signals: signal::Spares::default(),
            freed_in_order: AtomicBool::new(false),
            preparing,
            unwaited: OutstandingCalls::default(),
            code: LoadedCode::new(Abilities { prints: !fast, launches: !fast }),
            holds: Holds::default(),
            graphs: Graphs::default(),
            exec_callbacks: ExecCallbacks::default(),
            refused: AtomicBool::new(false),
            call_table: AtomicU32::new(0),
            order: Order::default(),
            gate: Gate::default(),
            devices: (0..devices).map(|_| OnceLock::new()).collect(),
            links: Links::default(),
            pools: Pools::default(),
            host_memory: HostMemory::default(),
            trace: Trace::new(limits.libraries.clone()),
            profile: Profile::default(),
            recipe: Recipe::default(),
            vendor: Vendor::new(limits.libraries),
            thresholds: Mutex::default(),
            reservations: Mutex::new(Reservations::new(placed.has_files())),
            placed,
            suspension: Suspension::default(),
            allocations: Mutex::new(Allocations::new(limits.memory)),
            window: Mutex::new(window),
            memory: RwLock::default(),
            turns: None,
            time_limit: None,
            mapper: None,
        }
    }

    /// Returns whether GPU work is tracked, for shares or a time limit.
    pub fn watches_work(&self) -> bool {
        self.turns.is_some() || self.time_limit.is_some()
    }

    /// Locks the ranges that a GPU address may lie in.
    pub fn allocations(&self) -> MutexGuard<'_, Allocations> {
        self.allocations.lock()
    }

    /// Returns whether device memory is counted because there is a limit.
    pub fn is_limited(&self) -> bool {
        self.allocations().quota.is_limited()
    }

    /// Locks reserved addresses and their mappings.
    pub fn reservations(&self) -> LockedReservations<'_> {
        let reservations = self.reservations.lock();
        LockedReservations { reservations, sharing: &self.sharing }
    }

    /// Locks the pages of the guest process.
    pub fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock()
    }

    /// Returns the present guest memory.
    pub fn memory(&self) -> Arc<GuestPages> {
        self.memory.read().clone()
    }

    /// Replaces guest memory. Running calls keep the memory that they began with.
    pub fn set_memory(&self, memory: GuestPages) {
        *self.memory.write() = Arc::new(memory);
    }

    /// Checks that the session owns `bytes` bytes at `address`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check(&self, address: u64, bytes: u64) -> CuResult<()> {
        self.allocations().check(address, bytes).map(drop)
    }

    /// As [`Self::check`], for memory that is written.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, also for memory that the guest's process may only read.
    pub fn check_written(&self, address: u64, bytes: u64) -> CuResult<()> {
        match self.allocations().check(address, bytes)?.origin {
            Origin::ReadOnlyWindow => Err(CudaError::INVALID_VALUE),
            _ => Ok(()),
        }
    }

    /// Checks both ends of a copy of `bytes` bytes, the destination first, and keeps what windows they lie in until it is done.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn hold(&self, ends: [u64; 2], bytes: u64) -> CuResult<Held<'_>> {
        self.holds.hold(&self.allocations(), ends, bytes)
    }

    /// Returns the driver's number of device `ordinal`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_DEVICE`.
    pub fn device(&self, ordinal: u32) -> CuResult<i32> {
        if ordinal as usize >= self.devices.len() {
            return Err(CudaError::INVALID_DEVICE);
        }
        Ok(self.gpu.cuDeviceGet(ordinal as i32)?.0)
    }

    /// Removes the names of all objects in a context that has lost its own. A capturing stream must be destroyed
    /// individually, because its graph ends with it.
    pub fn close_context(&self, context: u64) {
        // The driver must destroy these one by one: the memory of their nodes is charged until then.
        drop(self.graphs.take_execs(context));
        for graph in self.graphs.take_unused() {
            let _ = self.gpu.cuGraphDestroy(graph);
        }
        self.graphs.default_captures_ended(context);
        self.vendor.close_context(context);
        self.objects.close_context(context, !self.graphs.is_capturing());
    }

    /// Forgets the objects that ended with a context that the driver has destroyed. Its name is free from now on.
    pub fn context_ended(&self, context: u64) {
        if self.suspension.makes_again.load(Ordering::Relaxed) {
            // Its memory is in the store. Tables of memory and of pages stay as they are until the context is made again.
            self.copies.forget_context(context);
            self.host_memory.forget_context(context);
            self.allocations().quota.forget_context(context);
            return self.contexts.ended(context);
        }
        self.objects.textures.forget_context(context);
        self.objects.surfaces.forget_context(context);
        self.copies.forget_context(context);
        self.window().forget_context(context);
        self.sharing.forget_context(context);
        self.host_memory.forget_context(context);
        self.placed.forget_context(&self.gpu, context);
        let free = self.reservations().forget_context(context);
        let mut allocations = self.allocations();
        allocations.discharge(free);
        allocations.forget_context(context);
        drop(allocations);
        self.contexts.ended(context);
    }
}

impl<'s> From<&'s SessionState> for Charged<'s> {
    fn from(session: &'s SessionState) -> Self {
        let SessionState { gpu, pools, allocations, devices, .. } = session;
        Self { gpu, pools, allocations, devices: devices.len() as u32 }
    }
}

#[cfg(any(test, fuzzing))]
impl SessionState {
    /// Destroys all objects, so that no reference to the session remains. No call may run.
    pub fn end_everything(&self) {
        let contexts = self.contexts.lock().take_all();
        self.contexts.changed();
        for (name, context) in &contexts {
            context.close();
            self.close_context(*name);
        }
        self.objects.take_all();
        drop(contexts);
    }
}
