// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that came before with the same arguments and settings: their recorded work is launched in place of the call.

use std::cell::Cell;

use cuda_library_rows::block::SLOT;
use cuda_library_rows::{Body, Call, Function, Kind, library};
use log::debug;
use virtio_cuda_protocol::cuda::StreamId;

use super::{Attempt, Refusal};
use crate::worker::gpu::{CUstream, CuResult, CudaError, OneCall, with_capture_relaxed};
use crate::worker::run::call::CallContext;
use crate::worker::run::prepared::{Repeat, Repeated, is_plain};
use crate::worker::vendor::handles::{Locked, LockedStates};
use crate::worker::vendor::load::Loaded;

/// The recording of a call's work.
pub(super) struct Recording {
    /// The stream in which the library queues it.
    pub(super) stream: CUstream,
    /// The number of the settings with which it must be recorded.
    settings: u64,
    /// The result.
    recorded: Cell<Option<OneCall>>,
}

/// Launches the work of a call, if it was recorded or is now. `false`: the call is to be made.
pub(super) fn repeat(
    cx: &mut CallContext<'_>,
    loaded: &Loaded,
    call: &Call,
    (function, address): ((u32, u32), usize),
    block: &[u8],
) -> bool {
    // A caller that waits gets the library's own status.
    if !call.roles.repeats || cx.bulk_out.room() > 0 || !cx.may_repeat() {
        return false;
    }
    let Some((locked, settings, stream)) = found(cx, loaded, call, block) else { return false };
    let Ok(raw) = cx.resolve(StreamId(stream)) else { return false };
    let (gpu, preparing) = (cx.gpu(), &cx.session.preparing);
    let repeat = Repeat { settings, function, block, stream: (stream, raw), late: cx.thread.late };
    let (_, prepared, Some(context)) = cx.thread.for_launch() else { return false };
    match prepared.repeat(gpu, preparing, context, &repeat) {
        Repeated::Launched => return true,
        Repeated::Not => return false,
        Repeated::Record => {}
    }
    // The recording locks them itself.
    drop(locked);
    let Some(recording) = preparing.recording() else {
        prepared.put_off_call();
        return false;
    };
    let recorded = match is_plain(gpu, context, raw) {
        Ok(true) => record(cx, loaded, call, (function.1, address), block, settings),
        Ok(false) => Err(CudaError::NOT_SUPPORTED),
        Err(error) => Err(error),
    };
    drop(recording);
    let (_, prepared, Some(context)) = cx.thread.for_launch() else { return false };
    prepared.keep_call(gpu, preparing, context, &repeat, recorded) == Repeated::Launched
}

/// Returns the locked state of the call's handle, the number of its settings, and the name of the stream.
fn found(
    cx: &CallContext<'_>,
    loaded: &Loaded,
    call: &Call,
    block: &[u8],
) -> Option<(LockedStates, u64, u64)> {
    let slot = |index: usize| {
        let bytes = block.get(index * SLOT..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let Kind::Handle { kind, .. } = call.parameters.first()?.kind else { return None };
    let id = slot(0)?;
    let mut locked = loaded.handles.lock(&[(kind, id)]);
    if let (true, Some(other)) = (locked.is_empty(), &loaded.rows.handles[kind].or) {
        let (number, _) = library(other)?;
        locked = cx.session.vendor.get(number).ok()?.handles.lock(&[(0, id)]);
    }
    let (_, state) = locked.first_mut()?;
    let settings = state.settings.number()?;
    let stream = match call.roles.stream {
        Some(at) => slot(at)?,
        None => state.settings.stream(),
    };
    Some((locked, settings, stream))
}

/// Makes the call in a stream that records.
///
/// Errors: the driver's errors, `CUDA_ERROR_NOT_SUPPORTED` if the library refuses the call or its work cannot be repeated.
fn record(
    cx: &CallContext<'_>,
    loaded: &Loaded,
    call: &Call,
    (function, address): (u32, usize),
    block: &[u8],
    settings: u64,
) -> CuResult<OneCall> {
    let gpu = cx.gpu();
    let stream = with_capture_relaxed(gpu, || gpu.recording_stream())?;
    let recording = Recording { stream, settings, recorded: Cell::new(None) };
    let attempt =
        Attempt { cx, loaded, call, function: function as usize, address, recording: Some(&recording) };
    let outcome = attempt.run(block);
    let _ = with_capture_relaxed(gpu, || gpu.cuStreamDestroy_v2(stream));
    match (outcome, recording.recorded.take()) {
        (Ok(_), Some(recorded)) => Ok(recorded),
        (Err(Refusal::Cuda(error)), _) => Err(error),
        _ => Err(CudaError::NOT_SUPPORTED),
    }
}

impl Attempt<'_> {
    /// Records the work that `call` queues.
    ///
    /// Errors: the driver's errors; `CUDA_ERROR_NOT_SUPPORTED` if the library refuses the call; the library's status for an internal
    /// error if the handle did not get its settings back.
    pub(super) fn record(
        &self,
        recording: &Recording,
        locked: &mut [((usize, u64), Locked)],
        handle: u64,
        call: impl Fn() -> u64,
    ) -> Result<(), Refusal> {
        let (gpu, good) = (self.cx.gpu(), self.loaded.rows.statuses.success);
        let make = || {
            gpu.one_call(recording.stream, self.cx.session.emulated, || match call() as i32 == good {
                true => Ok(()),
                false => Err(CudaError::NOT_SUPPORTED),
            })
        };
        // A function that takes a stream does not use the handle's.
        let set_stream = if self.call.roles.stream.is_none() { self.set_stream() } else { None };
        let made = with_capture_relaxed(gpu, || {
            let (Some(set_stream), Some((_, state))) = (set_stream, locked.first_mut()) else {
                return make().map_err(Refusal::Cuda);
            };
            if state.settings.number() != Some(recording.settings) {
                return Err(CudaError::NOT_SUPPORTED.into());
            }
            // SAFETY: the settings are those of this handle, which the caller has locked and keeps, as the stream.
            let is_set =
                unsafe { state.settings.make(handle, set_stream, Some(recording.stream as u64), good) };
            let made = if is_set { make() } else { Err(CudaError::NOT_SUPPORTED) };
            // SAFETY: as above; the handle keeps its own stream.
            if !unsafe { state.settings.make(handle, set_stream, None, good) } {
                debug!("the settings of a handle cannot be made again");
                state.settings.lose();
                return Err(Refusal::Status(self.loaded.rows.statuses.internal_error));
            }
            made.map_err(Refusal::Cuda)
        })?;
        recording.recorded.set(Some(made));
        Ok(())
    }

    /// Returns the address of the function that sets the stream of a handle.
    fn set_stream(&self) -> Option<usize> {
        let sets_stream =
            |function: &Function| matches!(&function.body, Body::Forward(call) if call.facts.stream_of);
        self.loaded.address(self.loaded.rows.functions.iter().position(sets_stream)?)
    }

    /// Notes a setting that the call has made, or has failed to make.
    pub(super) fn note_setting(
        &self,
        succeeded: bool,
        slots: &[u64],
        arguments: &[u64],
        locked: &mut [((usize, u64), Locked)],
    ) {
        let (true, Some((_, state))) = (self.call.roles.is_setting, locked.first_mut()) else { return };
        match (succeeded, arguments) {
            (true, [_, arguments @ ..]) => {
                let function = (self.function, self.address);
                state.settings.set(function, &slots[1..], arguments, self.call.facts.stream_of);
            }
            _ => state.settings.lose(),
        }
    }
}
