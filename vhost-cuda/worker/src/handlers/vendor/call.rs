// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call of a library's function: checks the block of arguments against the row, and builds the answers.

mod answers;
mod arguments;
mod attempt;
pub mod captured;
mod foreign;
mod made;
mod measured;
mod memory;
mod notes;
mod rules;

use std::sync::Arc;

use cuda_library_rows::block::{MAX_BYTES, PRESENT, SLOT, described, padded};
use cuda_library_rows::{Answer, Body, Function, Kind};
use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::StreamId;

use crate::call::CallContext;
use crate::gpu::{CUstream, CuResult, CudaError, STREAM_LEGACY};
use crate::objects::Object;
use crate::outstanding::Runs;
use crate::trace::Caller;
use crate::vendor::describe::describe;
use crate::vendor::handles::Locked;
use crate::vendor::invoke::Arguments;
use crate::vendor::objects::Objects;
use crate::vendor::refusal::Refusal;
use attempt::{Answers, Attempt, Named, Originals, Slots};
use memory::Memory;

/// `CU_STREAM_CAPTURE_STATUS_NONE`
const NOT_CAPTURING: i32 = 0;

/// The functions of NCCL that make a rank on the current device begin with this, or with a `p` before it.
const INIT_RANK: &str = "ncclCommInitRank";

/// Executes `vendor_call`.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE` for a block that does not fit the row, `CUDA_ERROR_NOT_FOUND` for a function
/// that the host's library does not have, `CUDA_ERROR_UNKNOWN` if a posted call has failed.
pub fn call(cx: &mut CallContext<'_>, number: u32, function: u32) -> CuResult<()> {
    if cx.bulk_in.bytes() > MAX_BYTES as u64 {
        return Err(CudaError::INVALID_VALUE);
    }
    let session = cx.session;
    let loaded = session.vendor.get(number)?;
    let number = function;
    let function = loaded.rows.numbered(function).ok_or(CudaError::INVALID_VALUE)?;
    let Function { name, body, .. } = &loaded.rows.functions[function];
    if session.profile.is_on() {
        cx.thread.function = Some(name);
    }
    let Body::Forward(call) = body else { return Err(CudaError::NOT_SUPPORTED) };
    let address = loaded.address(function).ok_or(CudaError::NOT_FOUND)?;
    if call.facts.links_code {
        session.vendor.will_print();
    }
    // Without a context the library fails.
    if name.trim_start_matches('p').starts_with(INIT_RANK)
        && let Ok(home) = cx.owner()
    {
        session.placed.add_rank(cx.gpu(), home.device)?;
    }
    let block = cx.bulk_in.contents()?;
    let attempt = Attempt { cx, loaded, number, call, address };
    let answers = match attempt.run(&block) {
        Ok(answers) => answers,
        Err(Refusal::Cuda(error)) => return Err(error),
        Err(Refusal::Status(status)) => Answers::from_slice(&u64::from(status as u32).to_le_bytes()),
    };
    drop(block);
    let status = answers.first_chunk::<4>().map(|bytes| i32::from_le_bytes(*bytes));
    let has_failed =
        call.answer == Answer::Status && !status.is_some_and(|status| loaded.rows.statuses.is_good(status));
    cx.thread.library_failed = has_failed;
    if has_failed {
        // The library may have printed the reason.
        session.output.count(Runs::Other);
    }
    if cx.bulk_out.room() > 0 {
        return cx.bulk_out.put(&answers);
    }
    if has_failed {
        log::debug!("{name} answered {status:?}, for which nobody waited");
        return Err(CudaError::UNKNOWN);
    }
    Ok(())
}

/// Parameters that are objects: index, kind and contents.
type Contents<'a> = SmallVec<[(usize, usize, &'a [u8]); 1]>;

impl<'a> Attempt<'a> {
    fn run(&self, block: &[u8]) -> Result<Answers, Refusal> {
        let count = self.call.parameters.len();
        let (heads, data) = block.split_at_checked(count * SLOT).ok_or(CudaError::INVALID_VALUE)?;
        let slots: Slots =
            heads.as_chunks::<SLOT>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let rows = self.loaded.rows;
        let mut memory = Memory::default();
        memory.lay_out(rows, self.call, &slots)?;
        // Bounds the memory of the answers before any code runs.
        self.call.answer_bytes(rows, &slots)?;
        let described_objects = self.fill(data, &slots, &mut memory)?;
        if let [parameter] = self.call.parameters
            && let Kind::End(kind) = parameter.kind
        {
            return self.end(kind, slots[0]);
        }
        // Copied before `argument` replaces the guest's numbers in that memory by the library's handles.
        let original = self.originals(&slots, &mut memory);
        let named = self.named(&slots);
        let mut locked = self.handles().lock(&named);
        let foreign = self.lock_foreign(&named);
        let maker = self.maker(&slots);
        self.check_maker(&slots, &locked, maker.as_ref())?;
        self.check_notes(&slots, &mut locked)?;
        self.check_measured(&slots, &memory)?;
        self.check_rules(&slots, &memory)?;
        let pattern = self.check_pattern(&slots, &memory, &mut locked)?;
        self.check_capture(&slots, named.first(), &locked)?;
        self.note_stream(&slots, named.first(), &locked);
        let capture = self.capture(&slots, named.first(), &locked);
        for &(index, kind, contents) in &described_objects {
            let (handle, objects) = self.objects(&named, &mut locked)?;
            let address = objects.of(self.loaded, handle, kind, contents)?;
            memory.piece(index).copy_from_slice(&address.to_le_bytes());
        }
        let charge = self.call.facts.lends.map(|_| memory.charge()).transpose()?;
        let mut arguments = Arguments::new();
        let mut made = SmallVec::new();
        for index in 0..count {
            self.argument(index, &slots, &mut memory, &mut locked, &mut arguments, &mut made)?;
        }
        // Another thread may have destroyed a handle and given its number to a new one since the states were locked.
        // The checks above do not hold for the new one.
        let others = foreign.iter().all(|(owner, named, locked)| owner.have(named, locked));
        if !others || !self.handles().have(&named, &locked) {
            return Err(self.not_initialized());
        }
        self.take_ends(&slots)?;
        self.forget_notes(&slots, &mut locked);
        let value = if self.call.facts.makes {
            self.loaded.rows.statuses.success as u64
        } else {
            // SAFETY: the row describes this function, and the arguments follow it: handles are the library's own and
            // stay until the call is done, memory is as long as the row says, stays until then or, where the row lends
            // it, as long as the handle, and the row is checked against NVIDIA's headers. Device addresses are followed
            // by the GPU only, which has only this session's memory mapped.
            let call = || unsafe { arguments.call(self.address) };
            self.cx.session.trace.during(self.cx.api_call, Caller::Library, call)
        };
        if let (Some(handle), Some(charge)) = (self.call.facts.lends, charge)
            && let Some(state) = self.state_of(handle, &slots, &mut locked)
        {
            state.lent.push(memory.lend(charge));
        }
        let succeeded = self.call.answer != Answer::Status || self.loaded.rows.statuses.is_good(value as i32);
        if succeeded {
            self.keep_made(made, &slots, &mut memory, maker.as_ref())?;
            self.note(named.first(), &slots, &mut locked)?;
            self.take_notes(&slots, &mut memory, &mut locked);
            self.set_pattern(pattern, &slots, &mut locked);
            if let Some(capture) = capture {
                self.note_captured(&capture, block);
            }
        }
        if let Some(place) = self.call.facts.finds {
            for &(_, kind, contents) in &described_objects {
                let (handle, objects) = self.objects(&named, &mut locked)?;
                let found = objects.found(self.loaded, handle, kind, contents, succeeded);
                let piece = memory.piece(place);
                let bytes = found.len().min(piece.len());
                piece[..bytes].copy_from_slice(&found[..bytes]);
            }
        }
        drop((locked, foreign));
        let answers = self.answers(value, &slots, &mut memory, &original);
        if succeeded {
            self.free_allocated(&memory);
        }
        answers
    }

    /// Fills the memory that the library reads from `data`, which contains the pieces one after the other. Returns
    /// the contents of the parameters that are objects, which only the library can create.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if the pieces do not take exactly all of `data`, or differ from their
    /// slots.
    fn fill<'d>(&self, data: &'d [u8], slots: &[u64], memory: &mut Memory) -> Result<Contents<'d>, Refusal> {
        let (mut rest, mut described_objects) = (data, Contents::new());
        for &index in self.call.roles.reads {
            let bytes = self.call.memory_bytes(self.loaded.rows, index, slots)?;
            let (piece, later) = rest.split_at_checked(padded(bytes)).ok_or(CudaError::INVALID_VALUE)?;
            match self.call.parameters[index].kind {
                Kind::Described { .. } if bytes == 0 => {}
                Kind::Described { kind, .. } => {
                    let contents = &piece[..bytes];
                    if slots[index] != described(self.loaded.rows, kind, contents) {
                        return Err(CudaError::INVALID_VALUE.into());
                    }
                    if self.loaded.rows.descriptors[kind].is_object {
                        described_objects.push((index, kind, contents));
                    } else {
                        describe(self.loaded, kind, contents, memory.piece(index))?;
                    }
                }
                _ => memory.piece(index)[..bytes].copy_from_slice(&piece[..bytes]),
            }
            rest = later;
        }
        if !rest.is_empty() {
            return Err(CudaError::INVALID_VALUE.into());
        }
        Ok(described_objects)
    }

    /// Returns the stream in which the call queues its work: the function's own, or that of its first handle.
    fn stream(
        &self,
        slots: &[u64],
        first: Option<&(usize, u64)>,
        locked: &[((usize, u64), Locked)],
    ) -> Option<CUstream> {
        match self.call.roles.stream {
            Some(at) if !self.call.facts.stream_of => self.cx.resolve(StreamId(slots[at])).ok(),
            Some(_) => None,
            None => first.and_then(|first| locked.iter().find(|(key, _)| key == first)).map(|(_, state)| {
                state.stream.as_ref().map_or(STREAM_LEGACY, |stream| self.cx.held().keep(stream.clone()))
            }),
        }
    }

    /// Notes the stream in which the call queues its work.
    fn note_stream(&self, slots: &[u64], first: Option<&(usize, u64)>, locked: &[((usize, u64), Locked)]) {
        if !self.cx.session.watches_work() {
            return;
        }
        let stream = self.stream(slots, first, locked);
        self.cx.thread.library_stream.set(stream);
        if let (Some(limit), Some(stream)) = (&self.cx.session.time_limit, stream) {
            limit.begin_library(self.cx, stream);
        }
    }

    /// Refuses a call while the stream captures if the graph would read or write the memory of this call, which has
    /// ended, on each launch.
    ///
    /// Errors: the library's status for an unsupported operation.
    fn check_capture(
        &self,
        slots: &[u64],
        first: Option<&(usize, u64)>,
        locked: &[((usize, u64), Locked)],
    ) -> Result<(), Refusal> {
        let is_result = |&index: &usize| {
            slots[index] == PRESENT && matches!(self.call.parameters[index].kind, Kind::Scalar { .. })
        };
        let roles = &self.call.roles;
        let outlives = self.call.facts.uncaptured || roles.writes.iter().chain(roles.changes).any(is_result);
        if !self.cx.session.graphs.is_capturing() || !outlives {
            return Ok(());
        }
        // The legacy default stream cannot capture.
        let stream = self.stream(slots, first, locked).filter(|stream| *stream != STREAM_LEGACY);
        match stream.map(|stream| self.cx.session.gpu.cuStreamIsCapturing(stream)).transpose()? {
            None | Some((NOT_CAPTURING,)) => Ok(()),
            Some(_) => Err(Refusal::Status(self.loaded.rows.statuses.not_supported)),
        }
    }

    /// Returns the handles that the call uses.
    fn named(&self, slots: &[u64]) -> Named {
        let name = |&index: &usize| match self.call.parameters[index].kind {
            Kind::Handle { kind, .. } => Some((kind, slots[index])),
            _ => None,
        };
        let mut named: Named = self.call.roles.handles.iter().filter_map(name).collect();
        named.extend(self.ends(slots));
        named
    }

    /// Returns the contents of host memory that holds handles, by parameter.
    fn originals(&self, slots: &[u64], memory: &mut Memory) -> Originals {
        let mut originals = Originals::new();
        for &index in self.call.roles.changes {
            if let Kind::Host(host) = &self.call.parameters[index].kind
                && self.handles_in(host, slots).is_some()
            {
                originals.push((index, memory.piece(index).to_vec()));
            }
        }
        originals
    }

    /// Returns the library's handle and the objects that were created with it.
    fn objects<'l>(
        &self,
        named: &Named,
        locked: &'l mut [((usize, u64), Locked)],
    ) -> Result<(u64, &'l mut Objects), Refusal> {
        let not_initialized = Refusal::Status(self.loaded.rows.statuses.not_initialized);
        let Some(&(kind, id)) = named.first() else { return Err(not_initialized) };
        let handle = self.handle(kind, id, false)?;
        let state = locked.iter_mut().find(|(key, _)| *key == (kind, id));
        state.map(|(_, state)| (handle, &mut state.objects)).ok_or(not_initialized)
    }

    /// Records changes of the first handle by a call that has succeeded.
    fn note(
        &self,
        first: Option<&(usize, u64)>,
        slots: &[u64],
        locked: &mut [((usize, u64), Locked)],
    ) -> CuResult<()> {
        let facts = &self.call.facts;
        let (Some(first), Some(&second)) = (first, slots.get(1)) else { return Ok(()) };
        let Some((_, state)) = locked.iter_mut().find(|(key, _)| key == first) else { return Ok(()) };
        if facts.pointer_mode {
            state.device_scalars = second as u32 != 0;
        }
        if facts.stream_of {
            // CUDA's own streams are in no table.
            let stream: Option<Arc<Object>> = self.cx.session.objects.streams.get(second).ok();
            // The old stream may be destroyed with its last reference. That happens after the call, without these locks.
            if let Some(old) = std::mem::replace(&mut state.stream, stream) {
                self.cx.held().keep::<u8>(old);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "call/calls_test.rs"]
mod calls;
