// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call of a library's function: the block of arguments is checked against the row, and the answers put together.

mod memory;
mod notes;
mod rules;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_library_rows::block::{
    MAX_BYTES, MAX_SCRATCH, MAX_TEXT, PRESENT, SLOT, attribute_type_handle, described, padded, scalars,
};
use cuda_library_rows::expression::Expression;
use cuda_library_rows::{
    Answer, Body, Call, Direction, Element, HandleKind, Host, Kind, Number, Parameter, ScratchBytes, library,
};
use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::{GraphId, StreamId};

use super::describe::describe;
use super::handles::{Handles, Locked, LockedStates};
use super::invoke::Arguments;
use super::load::Loaded;
use super::objects::{Block, Objects, Refusal};
use crate::worker::gpu::{CuResult, CudaError, STREAM_LEGACY};
use crate::worker::objects::{Object, Reserved};
use crate::worker::run::call::CallContext;
use memory::Memory;

/// Most calls need no allocation: these hold what they have.
type Slots = SmallVec<[u64; 24]>;
type Answers = SmallVec<[u8; 128]>;
/// The handles that a call uses, by kind and name.
type Named = SmallVec<[(usize, u64); 4]>;

/// Executes `vendor_call`.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE` for a block that does not fit the row, `CUDA_ERROR_NOT_FOUND` for a function that the
/// host's library does not have, `CUDA_ERROR_UNKNOWN` if a call that nobody waits for has failed.
pub fn call(cx: &mut CallContext<'_>, number: u32, function: u32) -> CuResult<()> {
    if cx.bulk_in.bytes() > MAX_BYTES as u64 {
        return Err(CudaError::INVALID_VALUE);
    }
    let session = cx.session;
    let loaded = session.vendor.get(number)?;
    let row = loaded.rows.functions.get(function as usize).ok_or(CudaError::INVALID_VALUE)?;
    let Body::Forward(call) = &row.body else { return Err(CudaError::NOT_SUPPORTED) };
    let address = loaded.address(function as usize).ok_or(CudaError::NOT_FOUND)?;
    let block = cx.bulk_in.contents()?;
    let attempt = Attempt { cx, loaded, call, address };
    let answers = match attempt.run(&block) {
        Ok(answers) => answers,
        Err(Refusal::Cuda(error)) => return Err(error),
        Err(Refusal::Status(status)) => Answers::from_slice(&u64::from(status as u32).to_le_bytes()),
    };
    drop(block);
    if cx.bulk_out.room() > 0 {
        return cx.bulk_out.put(&answers);
    }
    let status = answers.first_chunk::<4>().map(|bytes| i32::from_le_bytes(*bytes));
    if call.answer == Answer::Status && !status.is_some_and(|status| loaded.rows.statuses.is_good(status)) {
        log::debug!("{} answered {status:?}, for which nobody waited", row.name);
        return Err(CudaError::UNKNOWN);
    }
    Ok(())
}

/// A call that is about to be made.
struct Attempt<'a> {
    cx: &'a CallContext<'a>,
    loaded: &'a Loaded,
    call: &'a Call,
    address: usize,
}

/// Parameters that are objects, their kinds and contents.
type Contents<'a> = SmallVec<[(usize, usize, &'a [u8]); 1]>;

/// Host memory with handles that a call may change, as it was, by parameter.
type Originals = SmallVec<[(usize, Vec<u8>); 1]>;

/// A handle that a call makes.
struct New<'a> {
    /// Its parameter.
    index: usize,
    kind: usize,
    reserved: Reserved<'a>,
    place: Place,
}

/// The place into which the library writes a new handle.
enum Place {
    /// Memory of the call.
    Call,
    /// It stays as long as the handle.
    Late(Late),
    /// The handle is this structure.
    Structure(Block),
}

impl Place {
    fn of(kind: &HandleKind) -> CuResult<Self> {
        Ok(match kind.structure {
            0 if kind.is_late => Self::Late(Late::default()),
            0 => Self::Call,
            bytes => Self::Structure(Block::of(bytes)?),
        })
    }
}

/// A place for a handle that the library may fill in after the call that makes it, from a thread of its own.
#[derive(Default)]
struct Late(Box<AtomicU64>);

impl Late {
    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Returns the value that the library has filled in at the address of one; 0 for nothing.
    fn read(place: *mut u8) -> u64 {
        // SAFETY: `keep_late` makes the objects of late kinds, and each has the address of a place that lives until the object
        // is destroyed, which it is not while the caller uses it.
        unsafe { AtomicU64::from_ptr(place.cast()) }.load(Ordering::Acquire)
    }
}

impl<'a> Attempt<'a> {
    fn run(&self, block: &[u8]) -> Result<Answers, Refusal> {
        let count = self.call.parameters.len();
        let (heads, data) = block.split_at_checked(count * SLOT).ok_or(CudaError::INVALID_VALUE)?;
        let slots: Slots =
            heads.as_chunks::<SLOT>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let rows = self.loaded.rows;
        let mut memory = Memory::of(rows, self.call, &slots)?;
        // Bounds what the answers take, before anything runs.
        self.call.answer_bytes(rows, &slots)?;
        let (mut rest, mut described_objects) = (data, Contents::new());
        for index in 0..count {
            if self.call.direction(index).is_some_and(Direction::reads) {
                let bytes = self.call.memory_bytes(rows, index, &slots)?;
                let (piece, later) = rest.split_at_checked(padded(bytes)).ok_or(CudaError::INVALID_VALUE)?;
                match self.call.parameters[index].kind {
                    Kind::Described { .. } if bytes == 0 => {}
                    Kind::Described { kind, .. } => {
                        let contents = &piece[..bytes];
                        if slots[index] != described(rows, kind, contents) {
                            return Err(CudaError::INVALID_VALUE.into());
                        }
                        if rows.descriptors[kind].is_object {
                            described_objects.push((index, kind, contents));
                        } else {
                            describe(self.loaded, kind, contents, memory.piece(index))?;
                        }
                    }
                    _ => memory.piece(index)[..bytes].copy_from_slice(&piece[..bytes]),
                }
                rest = later;
            }
        }
        if !rest.is_empty() {
            return Err(CudaError::INVALID_VALUE.into());
        }
        if let [parameter] = &self.call.parameters[..]
            && let Kind::End(kind) = parameter.kind
        {
            return self.end(kind, slots[0]);
        }
        // What the program has of memory that holds handles, before the library's own stand there.
        let original = self.originals(&slots, &mut memory);
        let named = self.named(&slots);
        let mut locked = self.handles().lock(&named);
        let foreign = self.lock_foreign(&named);
        self.check_notes(&slots, &mut locked)?;
        self.check_rules(&slots, &memory)?;
        let pattern = self.check_pattern(&slots, &memory, &mut locked)?;
        self.note_stream(&slots, named.first(), &locked);
        for &(index, kind, contents) in &described_objects {
            let (handle, objects) = self.objects(&named, &mut locked)?;
            let address = objects.of(self.loaded, handle, kind, contents)?;
            memory.piece(index).copy_from_slice(&address.to_le_bytes());
        }
        let mut arguments = Arguments::new();
        let mut made = SmallVec::new();
        for index in 0..count {
            self.argument(index, &slots, &mut memory, &mut locked, &mut arguments, &mut made)?;
        }
        // A name may have got another handle since its state was locked, of which nothing has been checked.
        let others = foreign.iter().all(|(owner, named, locked)| owner.have(named, locked));
        if !others || !self.handles().have(&named, &locked) {
            return Err(Refusal::Status(self.loaded.rows.statuses.not_initialized));
        }
        self.forget_notes(&slots, &mut locked);
        let value = if self.call.facts.makes {
            self.loaded.rows.statuses.success as u64
        } else {
            // SAFETY: the row describes this function, and the arguments were made by it: handles are the library's own and stay
            // until the call is done, memory is as long as the row says, and what the row says is checked against NVIDIA's
            // headers. Device addresses are followed by the GPU only, which has this session's memory mapped and no other.
            unsafe { arguments.call(self.address) }
        };
        let succeeded = self.call.answer != Answer::Status || self.loaded.rows.statuses.is_good(value as i32);
        if succeeded {
            for New { index, kind, reserved, place } in made {
                match place {
                    Place::Late(late) => self.keep_late(kind, slots[index], reserved, late)?,
                    Place::Structure(block) => self.keep_structure(kind, slots[index], reserved, block)?,
                    Place::Call => {
                        let raw = u64::from_le_bytes(memory.piece(index).try_into().unwrap_or_default());
                        self.keep(kind, slots[index], reserved, raw as *mut u8)?;
                    }
                }
            }
            self.note(named.first(), &slots, &mut locked)?;
            self.take_notes(&slots, &mut memory, &mut locked);
            self.set_pattern(pattern, &slots, &mut locked);
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

    /// Frees the arrays that the library has allocated for the program, whether they could be copied or not.
    fn free_allocated(&self, memory: &Memory) {
        for (index, parameter) in self.call.parameters.iter().enumerate() {
            if let Kind::Allocated { .. } = parameter.kind {
                let start = u64::from_le_bytes(memory.contents(index).try_into().unwrap_or_default());
                // SAFETY: the call has succeeded and gave null or the address of memory of malloc's, which nobody else frees.
                unsafe { libc::free(start as *mut _) };
            }
        }
    }

    /// Locks the states of other libraries' handles, so that no call changes them between the checks and the use. All calls lock
    /// their own library's first. A library whose handles others use has none of others, so calls do not wait in a circle.
    fn lock_foreign(&self, named: &Named) -> SmallVec<[(&'a Handles, Named, LockedStates); 1]> {
        let mut owners = BTreeMap::<u32, Named>::new();
        for &(kind, id) in named {
            let Some((name, kind)) = &self.loaded.rows.handles[kind].of else { continue };
            let Some((number, rows)) = library(name) else { continue };
            let kind = rows.handles.iter().position(|known| known.name == *kind);
            owners.entry(number).or_default().extend(kind.map(|kind| (kind, id)));
        }
        let session = self.cx.session;
        // Without the library there are no such handles, which the call finds out.
        let owners = owners.into_iter().filter_map(|(number, named)| {
            let owner = &session.vendor.get(number).ok()?.handles;
            let locked = owner.lock(&named);
            Some((owner, named, locked))
        });
        owners.collect()
    }

    /// Notes the stream in which the call puts its work: the function's own, or that of its first handle.
    fn note_stream(&self, slots: &[u64], first: Option<&(usize, u64)>, locked: &[((usize, u64), Locked)]) {
        if !self.cx.session.watches_work() {
            return;
        }
        let is_stream = |parameter: &Parameter| matches!(parameter.kind, Kind::Stream | Kind::InStream);
        let stream = match self.call.parameters.iter().position(is_stream) {
            Some(at) if !self.call.facts.stream_of => self.cx.resolve(StreamId(slots[at])).ok(),
            Some(_) => None,
            None => first.and_then(|first| locked.iter().find(|(key, _)| key == first)).map(|(_, state)| {
                state.stream.as_ref().map_or(STREAM_LEGACY, |stream| self.cx.held().keep(stream.clone()))
            }),
        };
        self.cx.thread.library_stream.set(stream);
        if let (Some(limit), Some(stream)) = (&self.cx.session.time_limit, stream) {
            limit.begin_library(self.cx, stream);
        }
    }

    fn handles(&self) -> &'a Handles {
        &self.loaded.handles
    }

    /// The handles that the call uses.
    fn named(&self, slots: &[u64]) -> Named {
        let kinds = self.call.parameters.iter().zip(slots);
        kinds
            .filter_map(|(parameter, &slot)| match parameter.kind {
                Kind::Handle { kind, .. } => Some((kind, slot)),
                _ => None,
            })
            .collect()
    }

    /// Adds the argument of the parameter of that index.
    fn argument(
        &self,
        index: usize,
        slots: &[u64],
        memory: &mut Memory,
        locked: &mut [((usize, u64), Locked)],
        arguments: &mut Arguments,
        made: &mut SmallVec<[New<'a>; 1]>,
    ) -> Result<(), Refusal> {
        let slot = slots[index];
        let value = match &self.call.parameters[index].kind {
            Kind::Value(number) if number.is_float() => {
                return arguments.float(slot).ok_or(Refusal::Cuda(CudaError::INVALID_VALUE));
            }
            Kind::Value(Number::I32 | Number::U32) => u64::from(slot as u32),
            Kind::Value(_) | Kind::Pointer => slot,
            Kind::Stream => self.cx.resolve(StreamId(slot))? as u64,
            Kind::InStream => {
                let raw = self.cx.resolve(StreamId(slot))? as u64;
                memory.piece(index).copy_from_slice(&raw.to_le_bytes());
                memory.address(index)
            }
            Kind::OutStream => return Err(CudaError::INVALID_VALUE.into()),
            Kind::Handle { kind, nullable } => self.handle(*kind, slot, *nullable)?,
            Kind::End(_) => return Err(CudaError::INVALID_VALUE.into()),
            Kind::New(kind) => {
                let reserved = self.handles().kind(*kind)?.reserve(slot)?;
                let statuses = &self.loaded.rows.statuses;
                let place = Place::of(&self.loaded.rows.handles[*kind]);
                let mut place = place.map_err(|_| Refusal::Status(statuses.alloc_failed))?;
                let address = match &mut place {
                    Place::Call => memory.address(index),
                    Place::Late(late) => late.address(),
                    Place::Structure(block) => block.address(),
                };
                made.push(New { index, kind: *kind, reserved, place });
                address
            }
            Kind::Graph => self.cx.graph(GraphId(slot))? as u64,
            Kind::Structure(_) if slot == PRESENT => {
                let words = memory.piece(index).as_chunks::<SLOT>().0;
                return arguments.structure(words).ok_or(Refusal::Cuda(CudaError::INVALID_VALUE));
            }
            Kind::Structure(_) => return Err(CudaError::INVALID_VALUE.into()),
            Kind::Noted(_) => return Ok(()),
            Kind::Scratch(_) if slot == 0 => 0,
            Kind::Scratch(_) => self.scratch(index, slots, memory, locked)?,
            Kind::Table(_) | Kind::Allocated { .. } if slot == PRESENT => memory.address(index),
            Kind::Arrays { arrays, .. } if slot == PRESENT => self.arrays(index, arrays, slots, memory)?,
            Kind::Table(_) | Kind::Allocated { .. } | Kind::Arrays { .. } => {
                return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value));
            }
            Kind::Placed { place, .. } => match (slot, self.call.is_in_host_memory(*place, slots)) {
                (0, _) => 0,
                (PRESENT, true) => memory.address(index),
                // The library would read host memory there, or the GPU would.
                (PRESENT, false) | (_, true) => return Err(CudaError::INVALID_VALUE.into()),
                (address, false) => address,
            },
            Kind::Host(host) => self.host(index, host, slots, memory)?,
            Kind::Scalar { .. } => {
                let device = locked.iter().any(|(_, state)| state.device_scalars);
                match slot {
                    0 => 0,
                    PRESENT if !device => memory.address(index),
                    PRESENT => return Err(CudaError::INVALID_VALUE.into()),
                    address if device => address,
                    // The library would read it as host memory.
                    _ => return Err(CudaError::INVALID_VALUE.into()),
                }
            }
            Kind::DescribedScalar { descriptor, is_beta } => {
                let scalars = slots.get(*descriptor).and_then(|slot| scalars(*slot));
                let host = scalars
                    .is_none_or(|scalars| if *is_beta { scalars.host_beta } else { scalars.host_alpha });
                match slot {
                    0 => 0,
                    PRESENT if host => memory.address(index),
                    // The library would read host memory there, or the GPU would.
                    address if !host && address != PRESENT => address,
                    _ => return Err(CudaError::INVALID_VALUE.into()),
                }
            }
            Kind::Described { nullable: true, .. } | Kind::Text | Kind::Scaling if slot == 0 => 0,
            Kind::Described { .. } if slot == 0 => {
                return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value));
            }
            Kind::Described { kind, .. } if self.loaded.rows.descriptors[*kind].is_object => {
                u64::from_le_bytes(memory.piece(index).try_into().unwrap_or_default())
            }
            Kind::Described { .. } => memory.address(index),
            Kind::Text | Kind::Scaling => memory.address(index),
        };
        arguments.integer(value).ok_or(Refusal::Cuda(CudaError::INVALID_VALUE))
    }

    fn handle(&self, kind: usize, id: u64, nullable: bool) -> Result<u64, Refusal> {
        if id == 0 && nullable {
            return Ok(0);
        }
        let rows = &self.loaded.rows.handles[kind];
        let mut kept = match &rows.of {
            Some((library, kind)) => self.foreign(library, Some(kind), id),
            None => self.cx.keep::<u8>(self.handles().kind(kind)?, id),
        };
        if let (Err(_), Some(other)) = (&kept, &rows.or) {
            kept = self.foreign(other, None, id);
        }
        let raw = kept.ok().map(|raw| if rows.is_late { Late::read(raw) } else { raw as u64 });
        // A late one that is not there yet is 0.
        raw.filter(|raw| *raw != 0).ok_or(Refusal::Status(self.loaded.rows.statuses.not_initialized))
    }

    /// A handle of another library, of its first kind if none is named.
    fn foreign(&self, name: &str, kind: Option<&str>, id: u64) -> CuResult<*mut u8> {
        let (number, rows) = library(name).ok_or(CudaError::NOT_FOUND)?;
        let kind = match kind {
            Some(kind) => {
                rows.handles.iter().position(|known| known.name == kind).ok_or(CudaError::NOT_FOUND)?
            }
            None => 0,
        };
        self.cx.keep(self.cx.session.vendor.get(number)?.handles.kind(kind)?, id)
    }

    /// Memory that the library uses for itself. It stays with a handle of the call, because the library may use it until the
    /// work that the call has queued is done.
    fn scratch(
        &self,
        index: usize,
        slots: &[u64],
        memory: &mut Memory,
        locked: &mut [((usize, u64), Locked)],
    ) -> Result<u64, Refusal> {
        let Kind::Scratch(scratch) = &self.call.parameters[index].kind else {
            return Err(CudaError::INVALID_VALUE.into());
        };
        let bytes = match scratch.bytes {
            ScratchBytes::Counted(_) => self.call.scratch_bytes(index, slots)?,
            ScratchBytes::Asked(function) => self.asked(function, slots, memory, locked)?,
        };
        let state = match scratch.owner {
            Some(owner) => self.state_of(owner, slots, locked),
            None => locked.first_mut().map(|(_, state)| state),
        };
        let state = state.ok_or(CudaError::INVALID_VALUE)?;
        let alloc_failed = self.loaded.rows.statuses.alloc_failed;
        state.scratch.of(bytes).map_err(|_| Refusal::Status(alloc_failed))
    }

    /// Asks the library how much memory the call needs for itself.
    fn asked(
        &self,
        function: usize,
        slots: &[u64],
        memory: &mut Memory,
        locked: &mut [((usize, u64), Locked)],
    ) -> Result<usize, Refusal> {
        let Body::Forward(asked) = &self.loaded.rows.functions[function].body else {
            return Err(CudaError::NOT_SUPPORTED.into());
        };
        let address = self.loaded.address(function).ok_or(CudaError::NOT_FOUND)?;
        let (mut arguments, mut bytes) = (Arguments::new(), 0_u64);
        for parameter in &asked.parameters {
            let known = self.call.parameters.iter().position(|known| known.name == parameter.name);
            match known {
                Some(index) => {
                    self.argument(index, slots, memory, locked, &mut arguments, &mut SmallVec::new())?;
                }
                None => {
                    arguments.integer(&raw mut bytes as u64).ok_or(Refusal::Cuda(CudaError::INVALID_VALUE))?
                }
            }
        }
        // SAFETY: the row describes that function, whose parameters this call has by the same names; the parser has checked that the
        // only other one is a place for the answer.
        let status = unsafe { arguments.call(address) } as i32;
        if !self.loaded.rows.statuses.is_good(status) {
            return Err(Refusal::Status(status));
        }
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_SCRATCH);
        bytes.ok_or(Refusal::Status(self.loaded.rows.statuses.alloc_failed))
    }

    /// The address of the addresses of arrays, behind which these are.
    fn arrays(
        &self,
        index: usize,
        arrays: &Expression,
        slots: &[u64],
        memory: &mut Memory,
    ) -> Result<u64, Refusal> {
        let bytes = self.call.memory_bytes(self.loaded.rows, index, slots)?;
        let each = bytes.checked_div(self.call.count(arrays, slots)?).unwrap_or(0);
        let (first, start) = (memory.address(index), padded(bytes));
        let places = memory.piece(index)[start..].as_chunks_mut::<SLOT>().0;
        for (number, place) in places.iter_mut().enumerate() {
            *place = (first + (number * each) as u64).to_le_bytes();
        }
        Ok(first + start as u64)
    }

    fn host(&self, index: usize, host: &Host, slots: &[u64], memory: &mut Memory) -> Result<u64, Refusal> {
        match slots[index] {
            0 if host.nullable => return Ok(0),
            0 => return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value)),
            PRESENT => {}
            _ => return Err(CudaError::INVALID_VALUE.into()),
        }
        if let Element::Sized { bytes, nulls } = host.element {
            sanitize(memory.piece(index), bytes, nulls);
        }
        if let Some(kind) = self.handles_in(host, slots).filter(|_| host.direction.reads()) {
            for place in memory.piece(index).as_chunks_mut::<SLOT>().0 {
                *place = self.handle(kind, u64::from_le_bytes(*place), true)?.to_le_bytes();
            }
        }
        Ok(memory.address(index))
    }

    /// The contents of host memory that holds handles, by parameter.
    fn originals(&self, slots: &[u64], memory: &mut Memory) -> Originals {
        let mut originals = Originals::new();
        for (index, parameter) in self.call.parameters.iter().enumerate() {
            if let Kind::Host(host) = &parameter.kind
                && host.direction == Direction::InOut
                && self.handles_in(host, slots).is_some()
            {
                originals.push((index, memory.piece(index).to_vec()));
            }
        }
        originals
    }

    /// The kind of handles that lie in host memory.
    fn handles_in(&self, host: &Host, slots: &[u64]) -> Option<usize> {
        match host.element {
            Element::Handle(kind) => Some(kind),
            Element::ByAttribute(index) => {
                let name = attribute_type_handle(self.call.integer(index, slots)?)?;
                self.loaded.rows.handles.iter().position(|kind| kind.name == name)
            }
            _ => None,
        }
    }

    /// The library's handle and the objects that were made with it.
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

    /// Gives a new handle its name.
    fn keep(&self, kind: usize, id: u64, reserved: Reserved<'_>, raw: *mut u8) -> CuResult<()> {
        let object = match self.handles().end(kind) {
            Some(end) => self.cx.made_in(self.cx.home_of(), raw, move |_, raw| {
                let mut arguments = Arguments::new();
                arguments.integer(raw as u64);
                // SAFETY: the library's function that destroys a handle of this kind, which nothing uses any more.
                let status = unsafe { arguments.call(end) };
                if status as u32 == 0 { Ok(()) } else { Err(CudaError::UNKNOWN) }
            }),
            None => Object::new(raw).in_context(self.cx.home_of()),
        };
        self.handles().made(kind, id);
        self.cx.fill(reserved, object)
    }

    /// Registers a handle that is a structure in the worker's memory.
    fn keep_structure(&self, kind: usize, id: u64, reserved: Reserved<'_>, mut block: Block) -> CuResult<()> {
        let place = block.address() as *mut u8;
        let end = self.handles().end(kind);
        let statuses = self.loaded.rows.statuses;
        // Without the call below the library may still use it, so it stays then.
        let block = ManuallyDrop::new(block);
        let object = self.cx.made_in(self.cx.home_of(), place, move |_, place| {
            let status = end.map_or(statuses.success, |end| {
                let mut arguments = Arguments::new();
                arguments.integer(place as u64);
                // SAFETY: the library's function that destroys a handle of this kind, which nothing uses any more.
                unsafe { arguments.call(end) as i32 }
            });
            drop(ManuallyDrop::into_inner(block));
            if statuses.is_good(status) { Ok(()) } else { Err(CudaError::UNKNOWN) }
        });
        self.handles().made(kind, id);
        self.cx.fill(reserved, object)
    }

    /// Gives a handle its name that the library may fill in later.
    fn keep_late(&self, kind: usize, id: u64, reserved: Reserved<'_>, late: Late) -> CuResult<()> {
        let by = self.handles().made(kind, id);
        let default = self.handles().end(kind).unwrap_or(0);
        let statuses = self.loaded.rows.statuses;
        let place = late.address() as *mut u8;
        // Without the call below the library may fill it in at any time, so it stays then.
        let late = ManuallyDrop::new(late);
        let object = self.cx.made_in(self.cx.home_of(), place, move |_, place| {
            let raw = Late::read(place);
            let end = match by.load(Ordering::Relaxed) {
                0 => default,
                chosen => chosen,
            };
            let status = match (raw, end) {
                (0, _) | (_, 0) => statuses.success,
                _ => {
                    let mut arguments = Arguments::new();
                    arguments.integer(raw);
                    // SAFETY: a function of the library that destroys a handle of this kind, which nothing uses any more.
                    unsafe { arguments.call(end) as i32 }
                }
            };
            // Nobody fills it in after that.
            drop(ManuallyDrop::into_inner(late));
            if statuses.is_good(status) { Ok(()) } else { Err(CudaError::UNKNOWN) }
        });
        self.cx.fill(reserved, object)
    }

    fn end(&self, kind: usize, id: u64) -> Result<Answers, Refusal> {
        let statuses = &self.loaded.rows.statuses;
        let object = self.handles().kind(kind)?.remove(id);
        let object = object.map_err(|_| Refusal::Status(statuses.not_initialized))?;
        // Of several functions that destroy handles of the kind, this one does.
        self.handles().ended(kind, id, self.address);
        let status = match Object::destroy(object) {
            Ok(()) => statuses.success,
            Err(_) => statuses.internal_error,
        };
        Ok(Answers::from_slice(&u64::from(status as u32).to_le_bytes()))
    }

    /// Notes what a call that has succeeded changed of its first handle.
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
            // The last reference goes where the call's own are given back.
            if let Some(old) = std::mem::replace(&mut state.stream, stream) {
                self.cx.held().keep::<u8>(old);
            }
        }
        Ok(())
    }

    fn answers(
        &self,
        value: u64,
        slots: &[u64],
        memory: &mut Memory,
        original: &Originals,
    ) -> Result<Answers, Refusal> {
        let mut answers = Answers::new();
        if self.call.answer == Answer::Text {
            // SAFETY: the library returns null or a C string that lives as long as the library.
            let text = (value != 0).then(|| unsafe { CStr::from_ptr(value as *const _) }.to_bytes());
            let text = text.map(|text| &text[..text.len().min(MAX_TEXT)]);
            answers.extend((text.map_or(0, |text| text.len() as u64 + 1)).to_le_bytes());
            answers.extend_from_slice(text.unwrap_or_default());
            return Ok(answers);
        }
        answers.extend(value.to_le_bytes());
        for index in 0..slots.len() {
            if self.call.direction(index).is_some_and(Direction::writes) {
                let bytes = self.call.memory_bytes(self.loaded.rows, index, slots)?;
                let start = answers.len();
                append_zeros(&mut answers, padded(bytes));
                let place = &mut answers[start..start + bytes];
                match &self.call.parameters[index].kind {
                    Kind::Allocated { element, count, .. } => {
                        let start = u64::from_le_bytes(memory.piece(index).try_into().unwrap_or_default());
                        if start != 0 && self.loaded.rows.statuses.is_good(value as i32) {
                            let count = count.map(|count| self.written(count, memory));
                            let count = count.map(|count| Number::I32.integer(count.unwrap_or_default()));
                            let has = |count: i128| usize::try_from(count).ok()?.checked_mul(element.bytes());
                            let wanted = count.map_or(Some(bytes), |count| count.and_then(has));
                            let place = wanted.and_then(|wanted| place.get_mut(..wanted));
                            let place =
                                place.ok_or(Refusal::Status(self.loaded.rows.statuses.internal_error))?;
                            // SAFETY: a call that has succeeded gave the address of memory of malloc's, which has as many elements
                            // as it says, and which is not freed before the answers are put together.
                            place.copy_from_slice(unsafe {
                                std::slice::from_raw_parts(start as *const u8, place.len())
                            });
                        }
                    }
                    Kind::Table(_) => {
                        let table = u64::from_le_bytes(memory.piece(index).try_into().unwrap_or_default());
                        if table != 0 && self.loaded.rows.statuses.is_good(value as i32) {
                            // SAFETY: a call that has succeeded gave the address of a table of this length, which belongs to
                            // the library and never changes.
                            place.copy_from_slice(unsafe {
                                std::slice::from_raw_parts(table as *const u8, bytes)
                            });
                        }
                    }
                    Kind::Host(host) => match self.handles_in(host, slots) {
                        // The library says which of the handles that it has given out.
                        Some(kind) if host.direction == Direction::Out => {
                            for (place, raw) in place
                                .as_chunks_mut::<SLOT>()
                                .0
                                .iter_mut()
                                .zip(memory.piece(index).as_chunks::<SLOT>().0)
                            {
                                *place = self.name_of(kind, u64::from_le_bytes(*raw)).to_le_bytes();
                            }
                        }
                        // The library fills in what these handles stand for; the program has its own numbers of them.
                        Some(_) => {
                            let original = original.iter().find(|(of, _)| *of == index);
                            let original = original.map_or(&[][..], |(_, bytes)| bytes);
                            place[..original.len()].copy_from_slice(original);
                        }
                        None => place.copy_from_slice(&memory.piece(index)[..bytes]),
                    },
                    _ => place.copy_from_slice(&memory.piece(index)[..bytes]),
                }
            }
        }
        Ok(answers)
    }

    /// The guest's number of a handle that the library names; 0 for null and for one that is not the guest's.
    fn name_of(&self, kind: usize, raw: u64) -> u64 {
        let table = self.handles().kind(kind).ok().filter(|_| raw != 0);
        table.and_then(|table| table.find(|object| object.is(raw as *mut u8))).unwrap_or(0)
    }
}

/// Appends zeros by the page: `resize` goes byte by byte, and a table has millions.
fn append_zeros(answers: &mut Answers, bytes: usize) {
    static ZEROS: [u8; 4096] = [0; 4096];
    answers.reserve(bytes);
    let mut left = bytes;
    while left > 0 {
        let some = left.min(ZEROS.len());
        answers.extend_from_slice(&ZEROS[..some]);
        left -= some;
    }
}

/// Makes a structure that has its length at its start good for a library: the length is at most that of the memory, and what
/// would be addresses is null.
fn sanitize(structure: &mut [u8], bytes: u32, nulls: [u32; 2]) {
    if let Some(length) = structure.first_chunk_mut::<SLOT>() {
        *length = u64::from_le_bytes(*length).min(u64::from(bytes)).to_le_bytes();
    }
    for offset in nulls.map(|offset| offset as usize) {
        if let Some(address) = structure.get_mut(offset..offset + SLOT) {
            address.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_no_addresses() {
        let mut structure = [0xff_u8; 32];
        sanitize(&mut structure, 32, [8, 24]);
        assert_eq!(structure[..8], 32_u64.to_le_bytes());
        assert_eq!((&structure[8..16], structure[16], &structure[24..]), (&[0; 8][..], 0xff, &[0; 8][..]));
        structure[..8].copy_from_slice(&24_u64.to_le_bytes());
        sanitize(&mut structure, 32, [8, 28]);
        assert_eq!(structure[..8], 24_u64.to_le_bytes(), "a shorter one stays as it is");
    }
}
