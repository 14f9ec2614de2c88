// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deep suspensions: the objects and contexts of the driver end, too, so that the card keeps nothing of a suspended session. A resumption
//! makes them again from the session's recipe ([`crate::recipe`]), in the same worker.
//!
//! The guest's names of objects are the worker's own, so it does not notice. Device memory comes back to its addresses as after
//! any suspension. Meanwhile the gate is sealed: all calls wait that use an object of the driver, also those that only ask.
//!
//! A session that could lose contents stays suspended as it is ([`Deep::begin`]). Until all objects are there again the list
//! of calls stays: a resumption that fails ends what it has made, and can be repeated.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use log::{debug, error};
use vhost_cuda_common::recipes::Description;
use virtio_cuda_protocol::cuda::ContextId;

use super::steps::{Steps, Unmoved};
use super::suspended::{Deep, Suspended};
use super::times;
use crate::gpu::{CuResult, CudaError, HOST_PORTABLE_MAPPED, HOST_READ_ONLY};
use crate::memory::allocations::Origin;
use crate::memory::footprint::Target;
use crate::memory::window::Registration;
use crate::objects::contexts::Retains;
use crate::recipe::Class;
use crate::recipe::steps::Again;
use crate::recipe::variables::{Finder, Variables};
use crate::run::callbacks::cut_ties;
use crate::state::SessionState;

/// The time for calls without memory to end. They wait for nothing, because the session has no work.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks at contexts that others use still: pages that the guest takes back.
const LOOK: Duration = Duration::from_millis(1);
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const COMPUTE_CAPABILITY: [i32; 2] = [75, 76];

/// Makes the calls of a recipe. The caller of a resumption gives it, because suspensions stand below the handlers.
///
/// Errors: the driver's.
pub type MakeCalls = fn(&Again, &'static SessionState) -> CuResult<()>;

/// Returns the graphs of a session as bytes.
///
/// Errors: the reason for which they cannot be made again.
pub type DescribeGraphs = fn(&'static SessionState) -> Result<Vec<u8>, String>;

/// Makes graphs again from such bytes. The memory that is in them is there.
///
/// Errors: the driver's. A part of them may be there.
pub type MakeGraphs = fn(&'static SessionState, &[u8]) -> CuResult<()>;

/// Makes what has ended, in this order: the calls of the recipe, then graphs.
#[derive(Clone, Copy, Debug)]
pub struct Makers {
    pub calls: MakeCalls,
    pub graphs: MakeGraphs,
}

/// Ends the objects of a suspended session. Returns the number of calls that make them again, and the reason if they have not ended: then
/// it is suspended as before.
pub fn deepen(session: &'static SessionState, describe: DescribeGraphs) -> Description {
    // Moves wait meanwhile.
    let mut suspended = session.suspension.suspended.lock();
    let begun = match &mut *suspended {
        None => Err("it is not suspended".to_owned()),
        Some(now) if now.deep.is_some() => {
            // A session that has come from another worker does not go on at once.
            end_warm(session);
            Ok(())
        }
        Some(now) => Deep::begin(session, now, describe).map(|deep| now.deep = Some(deep)),
    };
    let calls = suspended.as_ref().and_then(|now| now.deep.as_ref()).map_or(0, |deep| deep.again.calls());
    Description { calls: calls as u64, bytes: 0, obstacle: begun.err() }
}

impl Deep {
    /// Ends the objects of the session, which is suspended with `now`.
    ///
    /// Errors: the reason, for people; nothing has ended.
    fn begin(
        session: &'static SessionState,
        now: &mut Suspended,
        describe: DescribeGraphs,
    ) -> Result<Self, String> {
        if !session.gate.seal(Instant::now() + PATIENCE) {
            return Err("calls of the program do not end".to_owned());
        }
        let taken = check(session, now).map_or(Ok(()), |reason| Err(reason.to_owned())).and_then(|()| {
            let devices = devices(session, now).map_err(|error| error.to_string())?;
            let target = target(session, &devices)?;
            let mut steps = Steps::begin();
            let again = Again::take(session, target)?;
            if again.opens_events() && !is_on_card(session) {
                return Err("it has events of other processes".to_owned());
            }
            steps.end("the recipe is taken");
            let variables = Variables::take(finder(session), &again.0)
                .map_err(|error| format!("arrays or variables of device code cannot be copied: {error}"))?;
            let times = times::take(session, &again.0);
            times.map_err(|error| format!("times of events are not known: {error}"))?;
            steps.end("variables and times are taken");
            // Those that have not come back since the last time are not there.
            let is_first = now.graphs.is_empty();
            let graphs = if is_first { describe(session)? } else { Vec::new() };
            // Last: other processes wait for them from now on.
            if session.sharing.offers_events() || again.opens_events() {
                let leave = session.sharing.events_leave().map_err(|error| error.to_string())?;
                if !leave {
                    return Err("other processes have its events open".to_owned());
                }
            }
            if is_first {
                now.graphs = graphs;
            }
            Ok(Self { devices, again, variables, retains: Retains::default(), registrations: Vec::new() })
        });
        let mut deep = taken.inspect_err(|_| {
            if now.graphs.is_empty() {
                session.gate.unseal();
            }
        })?;
        deep.retains = deep.end_objects(session);
        Ok(deep)
    }

    /// Ends all objects and contexts. Returns the retains of primary contexts.
    fn end_objects(&mut self, session: &'static SessionState) -> Retains {
        let gpu = &session.gpu;
        // Memory stays in its tables while contexts end.
        session.suspension.makes_again.store(true, Ordering::Relaxed);
        // Their addresses may be others when the library is loaded again.
        session.allocations().forget(|range| matches!(range.origin, Origin::Named(_)));
        session.suspension.kernels.lock().clear();
        drop(session.preparing.end_graphs(gpu));
        let mut steps = Steps::begin();
        end_graphs(session);
        self.registrations.extend(session.window().take_registrations());
        session.vendor.end_all();
        steps.end("handles of libraries have ended");
        let mut contexts = session.contexts.lock();
        let (closed, retains) = contexts.close_all();
        session.contexts.changed();
        drop(contexts);
        for (name, context) in &closed {
            context.close();
            session.close_context(*name);
        }
        let has_pools = self.again.0.iter().any(|step| step.key.class == Class::Pool);
        for &device in self.devices.iter().filter(|_| has_pools) {
            if let Ok((pool,)) = gpu.cuDeviceGetDefaultMemPool(device) {
                // The default pool outlives all contexts, and may keep memory that the program has freed.
                let _ = gpu.cuMemPoolTrimTo(pool, 0);
            }
        }
        session.objects.take_all();
        drop(closed);
        end_warm(session);
        // A thread that takes pages back may use a context still. A resumption finds those that it does not release in time.
        let until = Instant::now() + PATIENCE;
        while !session.contexts.lock().is_empty() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        steps.end("contexts have ended");
        self.devices.iter().for_each(|device| reset(session, *device));
        steps.end("the contexts of libraries have ended");
        retains
    }

    /// Makes the objects again. The gate stays sealed.
    ///
    /// Errors: the driver's; nothing is there, and it can be repeated.
    pub fn make_again(
        &mut self,
        session: &'static SessionState,
        make_calls: MakeCalls,
    ) -> Result<(), Unmoved> {
        match self.try_to_make(session, make_calls) {
            Ok(()) => {
                session.suspension.makes_again.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                // The retains of the beginning stay.
                self.end_objects(session);
                Err(if error == CudaError::OUT_OF_MEMORY {
                    Unmoved::DeviceMemory(self.devices[0])
                } else {
                    error.into()
                })
            }
        }
    }

    fn try_to_make(&mut self, session: &'static SessionState, make_calls: MakeCalls) -> CuResult<()> {
        let gpu = &session.gpu;
        let mut steps = Steps::begin();
        make_calls(&self.again, session)?;
        steps.end("objects are made again");
        self.variables.bring_back(finder(session))?;
        steps.end("variables are back");
        times::begin(session, &self.again.0)?;
        steps.end("times are back");
        session.contexts.lock().put_retains(&self.retains);
        let enter = |context| gpu.cuCtxSetCurrent(session.contexts.get(ContextId(context))?.object.raw());
        let peers = session.placed.lock().peers();
        for (owner, reader) in peers {
            enter(reader)?;
            let owner = session.contexts.get(ContextId(owner))?;
            // The table has the access to memory already.
            gpu.cuCtxEnablePeerAccess(owner.object.raw(), 0)?;
        }
        let with_memory = session.placed.lock().contexts();
        for context in with_memory {
            enter(context)?;
            session.placed.lock().renew_shadows(gpu, context)?;
        }
        while let Some(registration) = self.registrations.last() {
            enter(registration.context)?;
            register(session, registration)?;
            self.registrations.pop();
        }
        steps.end("shadows and registrations are back");
        Ok(())
    }
}

fn finder(session: &SessionState) -> Finder<'_> {
    Finder { gpu: &session.gpu, objects: &session.objects, contexts: &session.contexts }
}

/// Makes the graphs of a session again whose memory has come back, and opens the gate for calls that need no memory.
///
/// Errors: the driver's; none is there, and it can be repeated.
pub fn make_graphs(
    session: &'static SessionState,
    graphs: &mut Vec<u8>,
    make: MakeGraphs,
) -> Result<(), Unmoved> {
    if !graphs.is_empty() {
        make(session, graphs).map_err(|failure| {
            error!("graphs cannot be made again: {failure}");
            end_graphs(session);
            let context = session.contexts.all().pop();
            match (failure, context) {
                (CudaError::OUT_OF_MEMORY, Some(context)) => Unmoved::DeviceMemory(context.device),
                _ => failure.into(),
            }
        })?;
        *graphs = Vec::new();
    }
    session.gate.unseal();
    Ok(())
}

/// Ends all graphs, executable graphs and user objects, without a word to the guest.
fn end_graphs(session: &SessionState) {
    let gpu = &session.gpu;
    cut_ties();
    session.exec_callbacks.clear();
    let (execs, graphs) = session.graphs.take_all();
    drop(execs);
    for graph in graphs {
        if let Err(error) = gpu.cuGraphDestroy(graph) {
            debug!("a graph does not end: {error}");
        }
    }
    for (object, own) in session.objects.user_objects.take_all() {
        let _ = gpu.cuUserObjectRelease(object, own.try_into().unwrap_or(u32::MAX));
    }
}

/// Releases the primary context that this process holds without the guest's knowledge.
fn end_warm(session: &SessionState) {
    let warm = session
        .device(0)
        .ok()
        .filter(|device| session.contexts.lock().primary(*device).take_warm().is_some());
    if let Some(device) = warm
        && let Err(error) = session.gpu.cuDevicePrimaryCtxRelease_v2(device)
    {
        debug!("the warm context does not end: {error}");
    }
}

/// Resets the primary context of a device if it is there still: NVIDIA's libraries retain it until the process ends. What a call uses stays.
fn reset(session: &SessionState, device: i32) {
    let reset = session.gpu.cuDevicePrimaryCtxGetState(device).and_then(|(_, is_active)| {
        let is_used = !session.contexts.lock().is_empty();
        if is_active == 0 || is_used { Ok(()) } else { session.gpu.cuDevicePrimaryCtxReset_v2(device) }
    });
    if let Err(error) = reset {
        debug!("the context that libraries retain does not end: {error}");
    }
}

/// Registers pages again, unless the guest has taken a part of them back. The context is current.
///
/// Errors: the driver's; `CUDA_ERROR_INVALID_HANDLE` if they have another address on the GPU.
fn register(session: &SessionState, registration: &Registration) -> CuResult<()> {
    let Registration { base, bytes, dptr, .. } = *registration;
    let (gpu, mut window) = (&session.gpu, session.window());
    if window.check_unregistered(base, bytes).is_err() {
        session.allocations().remove(dptr);
        return Ok(());
    }
    let origin = session.allocations().find(dptr).map(|range| range.origin);
    let read_only = if origin == Some(Origin::ReadOnlyWindow) { HOST_READ_ONLY } else { 0 };
    let address = base as *mut std::ffi::c_void;
    // SAFETY: the areas are mapped, and stay so until they are unregistered (`control::unpin`) or their context ends.
    let (now,) = unsafe {
        gpu.cuMemHostRegister_v2(address, bytes as usize, HOST_PORTABLE_MAPPED | read_only)?;
        gpu.cuMemHostGetDevicePointer_v2(address, 0)
    }?;
    if now != dptr {
        // It ends with its context.
        return Err(CudaError::INVALID_HANDLE);
    }
    window.set_registered(*registration);
    Ok(())
}

/// Returns whether files keep memory of the session on the card. Then it goes to another worker at once, and other processes, which may use that
/// memory, find it as it was.
fn is_on_card(session: &SessionState) -> bool {
    session.placed.lock().movable().any(|part| part.held().is_some())
}

/// Returns the reason if the session has something that ends with its contexts and that no recipe makes again. The gate is sealed.
fn check(session: &SessionState, now: &Suspended) -> Option<&'static str> {
    let is_on_card = is_on_card(session);
    let placed = session.placed.lock();
    if placed.shares() || !session.sharing.is_unused() && !is_on_card {
        return Some("it shares memory or events with other processes");
    }
    let is_away = placed.is_away() && now.created.iter().all(|(_, part)| !part.exists());
    if !is_away || session.reservations().has_others(&now.created) {
        return Some("a part of its memory stays on the card");
    }
    if session.trace.is_active() {
        return Some("a profiler measures it");
    }
    let allocations = session.allocations();
    let mut reasons = allocations.ranges().filter_map(|range| match range.origin {
        Origin::HostWindow | Origin::ReadOnlyWindow | Origin::Mapped | Origin::Named(_) => None,
        Origin::Allocated | Origin::Opened if placed.has(range.base) => None,
        Origin::Allocated => Some("memory that cannot move is not kept"),
        Origin::AllocatedAsync(_) => Some("memory of pools is not kept"),
        Origin::GraphNode => Some("memory of graphs is not kept"),
        Origin::ModuleGlobal(_) | Origin::LibraryGlobal(_) => Some("variables of device code are not kept"),
        Origin::Opened | Origin::Imported | Origin::External => {
            Some("memory of other processes is not opened again")
        }
    });
    reasons.next()
}

/// Returns the devices that the session uses: the first one if it uses none.
///
/// Errors: the driver's.
fn devices(session: &SessionState, now: &Suspended) -> CuResult<Vec<i32>> {
    let mut devices: BTreeSet<i32> = session.contexts.all().iter().map(|context| context.device).collect();
    devices.extend(now.created.iter().map(|(_, part)| part.device()));
    if devices.is_empty() {
        devices.insert(session.device(0)?);
    }
    Ok(devices.into_iter().collect())
}

/// Returns what code the devices of a session run, of which there is one at least.
///
/// Errors: the reason, for people; that of devices that run different code.
pub fn target(session: &SessionState, devices: &[i32]) -> Result<Target, String> {
    let [major, minor] = COMPUTE_CAPABILITY;
    let number = |attribute, device| {
        let number = session.gpu.cuDeviceGetAttribute(attribute, device);
        number.map(|(number,)| number.unsigned_abs()).map_err(|error| error.to_string())
    };
    let mut found = None;
    for &device in devices {
        let architecture = number(major, device)? * 10 + number(minor, device)?;
        if found.replace(architecture).is_some_and(|other| other != architecture) {
            return Err("it uses devices of several kinds".to_owned());
        }
    }
    let architecture = found.ok_or("there is no device")?;
    Ok(Target { architecture, ptx_only: session.emulated })
}
