// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call of a library's function: the block of arguments is checked against the row, and the answers put together.

use std::ffi::CStr;
use std::sync::Arc;

use cuda_library_rows::block::{BadSize, MAX_BYTES, MAX_TEXT, PRESENT, SLOT, padded};
use cuda_library_rows::{Answer, Body, Call, Direction, Element, Host, Kind, Number};
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
pub fn call(cx: &mut CallContext<'_>, library: u32, function: u32) -> CuResult<()> {
    if cx.bulk_in.bytes() > MAX_BYTES as u64 {
        return Err(CudaError::INVALID_VALUE);
    }
    let session = cx.session;
    let loaded = session.vendor.get(library)?;
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
    fn of(call: &Call, slots: &[u64]) -> Result<Self, BadSize> {
        let (mut end, mut pieces) = (0, Vec::with_capacity(slots.len()));
        for (index, parameter) in call.parameters.iter().enumerate() {
            let bytes = match parameter.kind {
                Kind::New(_) => SLOT,
                // Its NUL.
                Kind::Text => call.memory_bytes(index, slots)? + 1,
                _ => call.memory_bytes(index, slots)?,
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
        let mut memory = Memory::of(self.call, &slots)?;
        // Bounds what the answers take, before anything runs.
        self.call.answer_bytes(&slots)?;
        let mut rest = data;
        for index in 0..count {
            if self.call.direction(index).is_some_and(Direction::reads) {
                let bytes = self.call.memory_bytes(index, &slots)?;
                let (piece, later) = rest.split_at_checked(padded(bytes)).ok_or(CudaError::INVALID_VALUE)?;
                memory.piece(index)[..bytes].copy_from_slice(&piece[..bytes]);
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
        self.answers(value, &slots, &mut memory)
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
            Kind::Host(host) => self.host(index, host, slot, memory)?,
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
            Kind::Text | Kind::Scaling if slot == 0 => 0,
            Kind::Text | Kind::Scaling => memory.address(index),
        };
        arguments.integer(value).ok_or(Refusal::Cuda(CudaError::INVALID_VALUE))
    }

    fn handle(&self, kind: usize, id: u64, nullable: bool) -> Result<u64, Refusal> {
        if id == 0 && nullable {
            return Ok(0);
        }
        let kept = self.cx.keep::<u8>(self.handles().kind(kind)?, id);
        kept.map(|raw| raw as u64).map_err(|_| Refusal::Status(self.loaded.rows.statuses.not_initialized))
    }

    fn host(&self, index: usize, host: &Host, slot: u64, memory: &mut Memory) -> Result<u64, Refusal> {
        match slot {
            0 if host.nullable => return Ok(0),
            0 => return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value)),
            PRESENT => {}
            _ => return Err(CudaError::INVALID_VALUE.into()),
        }
        if let Element::Handle(kind) = host.element {
            for place in memory.piece(index).as_chunks_mut::<SLOT>().0 {
                *place = self.handle(kind, u64::from_le_bytes(*place), true)?.to_le_bytes();
            }
        }
        Ok(memory.address(index))
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

    fn answers(&self, value: u64, slots: &[u64], memory: &mut Memory) -> Result<Vec<u8>, Refusal> {
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
                let bytes = self.call.memory_bytes(index, slots)?;
                let start = answers.len();
                answers.resize(start + padded(bytes), 0);
                answers[start..start + bytes].copy_from_slice(&memory.piece(index)[..bytes]);
            }
        }
        Ok(answers)
    }
}
