// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call of a library's function: the block of arguments is checked against the row, and the answers put together.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use cuda_library_rows::block::{
    BadSize, MAX_BYTES, MAX_TEXT, PRESENT, SLOT, attribute_type_handle, described, padded, scalars,
};
use cuda_library_rows::{Answer, Body, Call, Direction, Element, Host, Kind, Library, Number, library};
use virtio_cuda_protocol::cuda::StreamId;

use super::handles::{Handles, Locked};
use super::invoke::Arguments;
use super::load::Loaded;
use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError};
use crate::worker::objects::{Object, Reserved};

/// Host memory of a call is aligned to this, and at least as much lies between two pieces.
const ALIGNMENT: usize = size_of::<u128>();

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
        Err(Refusal::Status(status)) => u64::from(status as u32).to_le_bytes().to_vec(),
    };
    drop(block);
    if cx.bulk_out.room() > 0 {
        return cx.bulk_out.put(&answers);
    }
    let status = answers.first_chunk::<4>().map(|bytes| i32::from_le_bytes(*bytes));
    if call.answer == Answer::Status && status != Some(loaded.rows.statuses.success) {
        log::debug!("{} answered {status:?}, for which nobody waited", row.name);
        return Err(CudaError::UNKNOWN);
    }
    Ok(())
}

/// Why a function is not called.
enum Refusal {
    /// The call is malformed.
    Cuda(CudaError),
    /// The library's own status says it.
    Status(i32),
}

impl From<CudaError> for Refusal {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

impl From<BadSize> for Refusal {
    fn from(_: BadSize) -> Self {
        Self::Cuda(CudaError::INVALID_VALUE)
    }
}

/// A call that is about to be made.
struct Attempt<'a> {
    cx: &'a CallContext<'a>,
    loaded: &'a Loaded,
    call: &'a Call,
    address: usize,
}

/// Host memory that a call uses: the pieces of its parameters, one behind the other.
#[derive(Default)]
struct Memory {
    words: Vec<u128>,
    /// Offset and length of each parameter's piece, in bytes.
    pieces: Vec<(usize, usize)>,
}

impl Memory {
    /// Room for the pieces of all parameters, zeroed.
    fn of(library: &Library, call: &Call, slots: &[u64]) -> Result<Self, BadSize> {
        let (mut end, mut pieces) = (0, Vec::with_capacity(slots.len()));
        for (index, parameter) in call.parameters.iter().enumerate() {
            let bytes = match parameter.kind {
                Kind::New(_) => SLOT,
                // Its NUL.
                Kind::Text => call.memory_bytes(library, index, slots)? + 1,
                // The library's own structure, made of what has crossed.
                Kind::Described { kind, .. } => library.descriptors[kind].public_bytes,
                _ => call.memory_bytes(library, index, slots)?,
            };
            pieces.push((end, bytes));
            end = (end + bytes).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        }
        if end > 2 * MAX_BYTES {
            return Err(BadSize);
        }
        Ok(Self { words: vec![0; end / ALIGNMENT], pieces })
    }

    fn bytes(&mut self) -> &mut [u8] {
        let bytes = self.words.len() * ALIGNMENT;
        // SAFETY: the words are plain bytes, as many, and borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), bytes) }
    }

    fn piece(&mut self, index: usize) -> &mut [u8] {
        let (start, bytes) = self.pieces[index];
        &mut self.bytes()[start..start + bytes]
    }

    fn address(&mut self, index: usize) -> u64 {
        let (start, _) = self.pieces[index];
        self.bytes()[start..].as_mut_ptr() as u64
    }
}

impl<'a> Attempt<'a> {
    fn run(&self, block: &[u8]) -> Result<Vec<u8>, Refusal> {
        let count = self.call.parameters.len();
        let (heads, data) = block.split_at_checked(count * SLOT).ok_or(CudaError::INVALID_VALUE)?;
        let slots: Vec<u64> =
            heads.as_chunks::<SLOT>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let rows = self.loaded.rows;
        let mut memory = Memory::of(rows, self.call, &slots)?;
        // Bounds what the answers take, before anything runs.
        self.call.answer_bytes(rows, &slots)?;
        let mut rest = data;
        for index in 0..count {
            if self.call.direction(index).is_some_and(Direction::reads) {
                let bytes = self.call.memory_bytes(rows, index, &slots)?;
                let (piece, later) = rest.split_at_checked(padded(bytes)).ok_or(CudaError::INVALID_VALUE)?;
                match self.call.parameters[index].kind {
                    Kind::Described { .. } if bytes == 0 => {}
                    Kind::Described { kind, .. } => {
                        self.describe(kind, slots[index], &piece[..bytes], memory.piece(index))?;
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
        let mut locked = self.handles().lock(&self.named(&slots));
        let mut arguments = Arguments::new();
        let mut made = Vec::new();
        for index in 0..count {
            self.argument(index, &slots, &mut memory, &locked, &mut arguments, &mut made)?;
        }
        // SAFETY: the row describes this function, and the arguments were made by it: handles are the library's own and stay
        // until the call is done, memory is as long as the row says, and what the row says is checked against NVIDIA's
        // headers. Device addresses are followed by the GPU only, which has this session's memory mapped and no other.
        let value = unsafe { arguments.call(self.address) };
        let succeeded =
            self.call.answer != Answer::Status || value as i32 == self.loaded.rows.statuses.success;
        if succeeded {
            for (index, kind, reserved) in made {
                let raw = u64::from_le_bytes(memory.piece(index).try_into().unwrap_or_default());
                self.keep(kind, slots[index], reserved, raw as *mut u8)?;
            }
            self.note(&slots, &mut locked)?;
        }
        drop(locked);
        self.answers(value, &slots, &mut memory, &original)
    }

    fn handles(&self) -> &'a Handles {
        &self.loaded.handles
    }

    /// The handles that the call uses.
    fn named(&self, slots: &[u64]) -> Vec<(usize, u64)> {
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
        locked: &[((usize, u64), Locked)],
        arguments: &mut Arguments,
        made: &mut Vec<(usize, usize, Reserved<'a>)>,
    ) -> Result<(), Refusal> {
        let slot = slots[index];
        let value = match &self.call.parameters[index].kind {
            Kind::Value(number) if number.is_float() => {
                return arguments.float(slot).ok_or(Refusal::Cuda(CudaError::INVALID_VALUE));
            }
            Kind::Value(Number::I32 | Number::U32) => u64::from(slot as u32),
            Kind::Value(_) | Kind::Pointer => slot,
            Kind::Stream => self.cx.resolve(StreamId(slot))? as u64,
            Kind::OutStream => return Err(CudaError::INVALID_VALUE.into()),
            Kind::Handle { kind, nullable } => self.handle(*kind, slot, *nullable)?,
            Kind::End(_) => return Err(CudaError::INVALID_VALUE.into()),
            Kind::New(kind) => {
                made.push((index, *kind, self.handles().kind(*kind)?.reserve(slot)?));
                memory.address(index)
            }
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
            Kind::Described { .. } => memory.address(index),
            Kind::Text | Kind::Scaling => memory.address(index),
        };
        arguments.integer(value).ok_or(Refusal::Cuda(CudaError::INVALID_VALUE))
    }

    fn handle(&self, kind: usize, id: u64, nullable: bool) -> Result<u64, Refusal> {
        if id == 0 && nullable {
            return Ok(0);
        }
        let mut kept = self.cx.keep::<u8>(self.handles().kind(kind)?, id);
        if let (Err(_), Some(other)) = (&kept, &self.loaded.rows.handles[kind].or) {
            let (number, _) = library(other).ok_or(CudaError::NOT_FOUND)?;
            if let Ok(other) = self.cx.session.vendor.get(number) {
                kept = self.cx.keep(other.handles.kind(0)?, id);
            }
        }
        kept.map(|raw| raw as u64).map_err(|_| Refusal::Status(self.loaded.rows.statuses.not_initialized))
    }

    fn host(&self, index: usize, host: &Host, slots: &[u64], memory: &mut Memory) -> Result<u64, Refusal> {
        match slots[index] {
            0 if host.nullable => return Ok(0),
            0 => return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value)),
            PRESENT => {}
            _ => return Err(CudaError::INVALID_VALUE.into()),
        }
        if let Some(kind) = self.handles_in(host, slots) {
            for place in memory.piece(index).as_chunks_mut::<SLOT>().0 {
                *place = self.handle(kind, u64::from_le_bytes(*place), true)?.to_le_bytes();
            }
        }
        Ok(memory.address(index))
    }

    /// The contents of host memory that holds handles, by parameter.
    fn originals(&self, slots: &[u64], memory: &mut Memory) -> HashMap<usize, Vec<u8>> {
        let mut originals = HashMap::new();
        for (index, parameter) in self.call.parameters.iter().enumerate() {
            if let Kind::Host(host) = &parameter.kind
                && host.direction.writes()
                && self.handles_in(host, slots).is_some()
            {
                originals.insert(index, memory.piece(index).to_vec());
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

    /// Has the library make a descriptor in `place` of the contents that have crossed. `slot` must tell the truth about them.
    fn describe(&self, kind: usize, slot: u64, contents: &[u8], place: &mut [u8]) -> Result<(), Refusal> {
        let descriptor = &self.loaded.rows.descriptors[kind];
        if slot != described(descriptor, contents) {
            return Err(CudaError::INVALID_VALUE.into());
        }
        let call = |name: &str, values: &[u64]| -> Result<(), Refusal> {
            let function = self.loaded.named(name).ok_or(CudaError::NOT_FOUND)?;
            let mut arguments = Arguments::new();
            for value in values {
                arguments.integer(*value).ok_or(CudaError::INVALID_VALUE)?;
            }
            // SAFETY: functions that make and change descriptors take these (see `cuda_library_rows::attributes`); the addresses
            // are of memory as long as they are told.
            match unsafe { arguments.call(function) } as i32 {
                status if status == self.loaded.rows.statuses.success => Ok(()),
                status => Err(Refusal::Status(status)),
            }
        };
        let address = place.as_mut_ptr() as u64;
        let values = descriptor.attributes.iter().enumerate();
        let values = values.map(|(index, attribute)| (attribute, descriptor.value(index, contents)));
        let mut given = vec![address, place.len() as u64];
        for (attribute, value) in values.clone().filter(|(attribute, _)| attribute.is_given) {
            given.push(value.unwrap_or(attribute.default));
        }
        call(&descriptor.init, &given)?;
        for (attribute, value) in values.filter(|(attribute, _)| !attribute.is_given) {
            let Some(value) = value else { continue };
            if attribute.is_descriptor && value != 0 {
                return Err(Refusal::Status(self.loaded.rows.statuses.not_supported));
            }
            let value = value.to_le_bytes();
            call(
                &descriptor.set,
                &[address, u64::from(attribute.number), value.as_ptr() as u64, attribute.bytes as u64],
            )?;
        }
        Ok(())
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

    fn end(&self, kind: usize, id: u64) -> Result<Vec<u8>, Refusal> {
        let statuses = &self.loaded.rows.statuses;
        let object = self.handles().kind(kind)?.remove(id);
        let object = object.map_err(|_| Refusal::Status(statuses.not_initialized))?;
        self.handles().ended(kind, id);
        let status = match Object::destroy(object) {
            Ok(()) => statuses.success,
            Err(_) => statuses.internal_error,
        };
        Ok(u64::from(status as u32).to_le_bytes().to_vec())
    }

    /// Notes what a call that has succeeded changed of its first handle.
    fn note(&self, slots: &[u64], locked: &mut [((usize, u64), Locked)]) -> CuResult<()> {
        let facts = &self.call.facts;
        let (Some(first), Some(&second)) = (self.named(slots).first().copied(), slots.get(1)) else {
            return Ok(());
        };
        let Some((_, state)) = locked.iter_mut().find(|(key, _)| *key == first) else { return Ok(()) };
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
        original: &HashMap<usize, Vec<u8>>,
    ) -> Result<Vec<u8>, Refusal> {
        let mut answers = Vec::with_capacity(SLOT);
        if self.call.answer == Answer::Text {
            // SAFETY: the library returns null or a C string that lives as long as the library.
            let text = (value != 0).then(|| unsafe { CStr::from_ptr(value as *const _) }.to_bytes());
            let text = text.map(|text| &text[..text.len().min(MAX_TEXT)]);
            answers.extend((text.map_or(0, |text| text.len() as u64 + 1)).to_le_bytes());
            answers.extend(text.unwrap_or_default());
            return Ok(answers);
        }
        answers.extend(value.to_le_bytes());
        for index in 0..slots.len() {
            if self.call.direction(index).is_some_and(Direction::writes) {
                let bytes = self.call.memory_bytes(self.loaded.rows, index, slots)?;
                let start = answers.len();
                answers.resize(start + padded(bytes), 0);
                let kinds = &self.call.parameters[index].kind;
                if let Kind::Host(host) = kinds
                    && self.handles_in(host, slots).is_some()
                {
                    // The library fills in what these handles stand for; the program has its own numbers of them.
                    let original = original.get(&index).map_or(&[][..], Vec::as_slice);
                    answers[start..start + original.len()].copy_from_slice(original);
                } else {
                    answers[start..start + bytes].copy_from_slice(&memory.piece(index)[..bytes]);
                }
            }
        }
        Ok(answers)
    }
}
