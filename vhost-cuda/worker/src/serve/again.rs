// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the objects of a session again ([`crate::recipe`]), in its own worker, after all of them have ended.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use log::{debug, error};
use virtio_cuda_protocol::cuda::table::MAX_RESULTS;
use virtio_cuda_protocol::cuda::{ContextId, LibraryId, ModuleId, Opcode, Reader, Writer};

use crate::call::{CallContext, ThreadState};
use crate::dispatch::dispatch;
use crate::gpu::{CuResult, CudaError, EVENT_DISABLE_TIMING};
use crate::handlers::graph;
use crate::handlers::module::image::Load;
use crate::memory::bulk::{BulkIn, BulkOut};
use crate::recipe::again::{MAX_NUMBER, restart};
use crate::recipe::generators::{filling, output};
use crate::recipe::kept::{Bulk, Call, Key};
use crate::recipe::steps::{Again, Step};
use crate::recipe::{Class, Rule, library, note, rule};
use crate::state::SessionState;
use crate::suspend::deep::Makers;

/// Makes all that a deep suspension has ended.
pub const MAKERS: Makers = Makers { calls: make_calls, graphs: graph::again::make };

/// The number of calls whose times are said, those that took longest.
const LONGEST: usize = 4;

/// The state of all calls together.
#[derive(Default)]
struct Making {
    fillers: Fillers,
    /// Objects of libraries with addresses of memory that has ended. The program could not use them either.
    unusable: HashSet<Key>,
    /// Memory for numbers of generators, which nobody reads, and its length.
    output: Option<u64>,
    output_bytes: u64,
}

/// Returns the parameter of the device memory that a call fills with random numbers, and its length.
fn output_of(call: &Call) -> Option<(usize, u64)> {
    match &call.bulk {
        Bulk::Bytes(block) if call.opcode == Opcode::vendor_call => output(&call.arguments, block),
        _ => None,
    }
}

impl Making {
    /// Returns the address of memory for numbers. A context is current.
    fn output(&mut self, session: &SessionState) -> CuResult<u64> {
        if self.output.is_none() {
            let bytes = usize::try_from(self.output_bytes.max(1)).map_err(|_| CudaError::INVALID_VALUE)?;
            self.output = Some(session.gpu.cuMemAlloc_v2(bytes)?.0);
        }
        self.output.ok_or(CudaError::OUT_OF_MEMORY)
    }
}

/// Makes the calls. The recipe begins anew with them.
///
/// Errors: the driver's, after the first call that fails; `CUDA_ERROR_INVALID_HANDLE` if one returns something else than it did before.
pub fn make_calls(calls: &Again, session: &'static SessionState) -> CuResult<()> {
    restart(&session.recipe);
    let mut thread = ThreadState::default();
    let mut times: HashMap<&str, (u32, Duration)> = HashMap::new();
    let mut making = Making::default();
    let outputs = calls.0.iter().filter_map(|step| output_of(&step.call));
    making.output_bytes = outputs.map(|(_, bytes)| bytes).max().unwrap_or(0);
    let outcome = calls.0.iter().try_for_each(|step| {
        let begun = Instant::now();
        let outcome = call_again(step, session, &mut thread, &mut making);
        let (count, time) = times.entry(step.call.opcode.name()).or_default();
        (*count, *time) = (*count + 1, *time + begun.elapsed());
        outcome
    });
    making.fillers.end(session, &mut thread);
    if let Some(output) = making.output {
        // SAFETY: memory of this function's own. The call waits for the generators that fill it.
        let freed = unsafe { session.gpu.cuMemFree_v2(output) };
        freed.unwrap_or_else(|error| debug!("memory for random numbers is not freed: {error}"));
    }
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_unstable_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    for step in calls.0.iter().filter(|step| step.call.ends && outcome.is_ok()) {
        if let Class::Handle { library, kind } = step.key.class {
            session.vendor.end(library, kind, step.key.id);
        }
    }
    for (name, (count, time)) in times.iter().take(LONGEST) {
        debug!("{count} times {name}: {:.3} s", time.as_secs_f64());
    }
    outcome
}

/// Textures and surfaces that hold the numbers of others that had ended, with their contexts.
#[derive(Default)]
struct Fillers(Vec<(Class, u64, ContextId)>);

impl Fillers {
    /// Makes a call. The driver numbers textures and surfaces, the lowest free number first, and programs have stored the numbers. So
    /// those that get a lower one stay until [`Self::end`], and the call is made once more.
    fn make(&mut self, step: &Step, cx: &mut CallContext<'_>, writer: &mut Writer<'_>) -> CuResult<()> {
        let Call { opcode, arguments, context, .. } = &step.call;
        let Key { class, id: wanted, .. } = step.key;
        if !matches!(class, Class::Texture | Class::Surface) {
            let made = dispatch(*opcode, cx, Reader::new(arguments), writer);
            if (*opcode, made) != (Opcode::cuIpcOpenEventHandle, Err(CudaError::INVALID_VALUE)) {
                return made;
            }
            // Nobody offers the event any more, so nobody records it: to wait for it is to wait for nothing.
            let plain = [&wanted.to_le_bytes()[..], &EVENT_DISABLE_TIMING.to_le_bytes()].concat();
            return dispatch(Opcode::cuEventCreate, cx, Reader::new(&plain), writer);
        }
        loop {
            let mut number = [0; size_of::<u64>()];
            dispatch(*opcode, cx, Reader::new(arguments), &mut Writer::new(&mut number))?;
            let made = u64::from_le_bytes(number);
            if made == wanted {
                return writer.bytes(&number).map_err(|_| CudaError::INVALID_VALUE);
            }
            self.0.push((class, made, *context));
            // All lower ones are taken, or the driver numbers them in another way.
            if made > wanted || self.0.len() as u64 > 2 * MAX_NUMBER {
                return Err(CudaError::INVALID_HANDLE);
            }
        }
    }

    /// Ends them.
    fn end(self, session: &'static SessionState, thread: &mut ThreadState) {
        for (class, number, context) in self.0 {
            let ended = thread.make_current(session, context).and_then(|()| match class {
                Class::Texture => {
                    session.objects.textures.remove(number, context.0)?;
                    session.gpu.cuTexObjectDestroy(number)
                }
                _ => {
                    session.objects.surfaces.remove(number, context.0)?;
                    session.gpu.cuSurfObjectDestroy(number)
                }
            });
            thread.held.release();
            if let Err(error) = ended {
                debug!("a texture or surface of another number does not end: {error}");
            }
        }
    }
}

fn call_again(
    step: &Step,
    session: &'static SessionState,
    thread: &mut ThreadState,
    making: &mut Making,
) -> CuResult<()> {
    let Call { opcode, context, arguments, bulk, .. } = &step.call;
    let bulk_in: &[u8] = match bulk {
        Bulk::Bytes(bytes) => bytes,
        Bulk::Image(_) => &[],
    };
    (thread.number, thread.library_failed) = (step.call.thread, false);
    // Libraries, pools and descriptors outlive the context that was current when they were made. It may have ended, or have been made
    // later once more, by a reset: then none is current, as in a program that makes them first.
    let current = if session.contexts.get(*context).is_ok() { *context } else { ContextId(0) };
    // Also for calls that need none: the one that was current in this thread may have ended.
    thread.make_current(session, current)?;
    let elsewhere = match output_of(&step.call) {
        Some((place, _)) => Some(filling(bulk_in, place, making.output(session)?)),
        None => None,
    };
    let mut cx = CallContext {
        session,
        thread,
        context: *context,
        api_call: 0,
        bulk_in: BulkIn::Inline(elsewhere.as_deref().unwrap_or(bulk_in)),
        bulk_out: BulkOut::inline(0),
        kept: None,
    };
    let mut results = [0; MAX_RESULTS];
    let mut writer = Writer::new(&mut results);
    let outcome = match (&step.image, bulk) {
        (Some(image), Bulk::Image(known)) => match step.key.class {
            Class::Module => ModuleId(step.key.id).load(&cx, image),
            Class::Library => LibraryId(step.key.id).load(&cx, image),
            _ => Err(CudaError::INVALID_IMAGE),
        }
        .inspect(|()| *cx.thread.image.borrow_mut() = Some(known.clone())),
        _ => making.fillers.make(step, &mut cx, &mut writer),
    };
    cx.bulk_in = BulkIn::Inline(bulk_in);
    cx.thread.held.release();
    let rule = rule(*opcode);
    let has_failed = rule == Some(&Rule::OfLibrary) && cx.thread.library_failed;
    if has_failed && (library::may_fail(arguments, bulk_in) || making.unusable.contains(&step.key)) {
        making.unusable.insert(step.key);
        return Ok(());
    }
    let outcome = outcome.and_then(|()| match rule {
        // The program may have stored them.
        Some(Rule::Makes(_)) if step.image.is_none() && *writer.written() != *step.call.results => {
            Err(CudaError::INVALID_HANDLE)
        }
        // So may they what they know of a plan.
        Some(Rule::OfLibrary) if !step.call.results.is_empty() => match step.key.class {
            Class::Handle { library, kind } => {
                let plan = session.vendor.plan(library, kind, step.key.id)?;
                if plan[..] == step.call.results[..] { Ok(()) } else { Err(CudaError::INVALID_HANDLE) }
            }
            _ => Err(CudaError::INVALID_HANDLE),
        },
        _ => Ok(()),
    });
    match outcome {
        Ok(()) => {
            if let Some(rule) = rule {
                let results = if rule == &Rule::OfLibrary { &[][..] } else { &step.call.results };
                note(rule, *opcode, &cx, arguments, results);
            }
        }
        Err(CudaError::OUT_OF_MEMORY) => {}
        // Nothing that the guest can repeat: one for a resumption that fails.
        Err(error) => {
            let function = library::called(arguments).filter(|_| rule == Some(&Rule::OfLibrary));
            let name = function.map_or(opcode.name(), |(_, function)| function.name);
            error!("a session cannot be made again: {name}: {error}");
        }
    }
    outcome
}
