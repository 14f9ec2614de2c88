// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the arguments of a call of a library's function from the transferred block.

use cuda_library_rows::block::{
    MAX_SCRATCH, PRESENT, SLOT, is_attribute_of_addresses, may_have_type, padded, scalars,
};
use cuda_library_rows::expression::Expression;
use cuda_library_rows::{Body, Direction, Element, Host, Kind, Number, Scratch, ScratchBytes};
use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::{GraphId, StreamId};

use super::attempt::Attempt;
use super::made::{Late, New, Place};
use super::memory::Memory;
use crate::gpu::{CuResult, CudaError};
use crate::vendor::handles::Locked;
use crate::vendor::invoke::Arguments;
use crate::vendor::refusal::Refusal;

impl<'a> Attempt<'a> {
    /// Adds the argument of the parameter with that index.
    #[expect(clippy::too_many_arguments, reason = "the parts of one call, which its caller uses one by one")]
    pub(super) fn argument(
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
            Kind::End(_) if slot == 0 => 0,
            Kind::End(kind) => self.raw(*kind, slot).map_err(|_| self.not_initialized())?,
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
            Kind::Noted(_) | Kind::Measured(_) => return Ok(()),
            Kind::Scratch(scratch) => self.scratch(index, scratch, slots, memory, locked)?,
            Kind::Table(_) | Kind::Allocated { .. } if slot == PRESENT => memory.address(index),
            Kind::Arrays { arrays, .. } if slot == PRESENT => self.arrays(index, arrays, slots, memory)?,
            Kind::Table(_) | Kind::Allocated { .. } | Kind::Arrays { .. } => {
                return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value));
            }
            Kind::Placed { place, .. } => match (slot, self.call.is_in_host_memory(*place, slots)) {
                (0, _) => 0,
                (PRESENT, true) => memory.address(index),
                // The library or the GPU would read host memory there.
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
                    // The library or the GPU would read host memory there.
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

    pub(super) fn handle(&self, kind: usize, id: u64, nullable: bool) -> Result<u64, Refusal> {
        if id == 0 && nullable {
            return Ok(0);
        }
        // A late handle that the library has not filled in yet is 0.
        self.raw(kind, id).ok().filter(|raw| *raw != 0).ok_or(self.not_initialized())
    }

    /// Returns the library's handle. That of a late kind may be 0.
    fn raw(&self, kind: usize, id: u64) -> CuResult<u64> {
        let rows = &self.loaded.rows.handles[kind];
        let mut kept = match &rows.of {
            Some((library, kind)) => self.foreign(library, Some(kind), id),
            None => self.cx.keep::<u8>(self.handles().kind(kind)?, id),
        };
        if let (Err(_), Some(other)) = (&kept, &rows.or) {
            kept = self.foreign(other, None, id);
        }
        kept.map(|raw| if rows.is_late { Late::read(raw) } else { raw as u64 })
    }

    pub(super) fn not_initialized(&self) -> Refusal {
        Refusal::Status(self.loaded.rows.statuses.not_initialized)
    }

    /// Returns the address of scratch memory for the library. It belongs to a handle of the call, because the library
    /// may use it until the work that the call has queued is done.
    fn scratch(
        &self,
        index: usize,
        scratch: &Scratch,
        slots: &[u64],
        memory: &mut Memory,
        locked: &mut [((usize, u64), Locked)],
    ) -> Result<u64, Refusal> {
        let given = self.call.scratch_bytes(index, slots)?;
        let bytes = match scratch.bytes {
            ScratchBytes::Checked(_, function) if given < self.asked(function, slots, memory, locked)? => {
                return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value));
            }
            _ if slots[index] == 0 => return Ok(0),
            ScratchBytes::Counted(_) | ScratchBytes::Checked(..) => given,
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

    /// Queries the library for the amount of memory that the call needs internally.
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
        let wrong = || Refusal::Cuda(CudaError::INVALID_VALUE);
        let mut answers: SmallVec<[u64; 4]> = SmallVec::from_elem(0, asked.parameters.len());
        let mut arguments = Arguments::new();
        for (parameter, place) in asked.parameters.iter().zip(&mut answers) {
            if parameter.kind.is_answer() {
                arguments.integer(&raw mut *place as u64).ok_or_else(wrong)?;
                continue;
            }
            let known = self.call.parameters.iter().position(|known| known.name == parameter.name);
            let index = known.ok_or_else(wrong)?;
            self.argument(index, slots, memory, locked, &mut arguments, &mut SmallVec::new())?;
        }
        // SAFETY: the row describes that function, whose parameters this call has by the same names, but for places of
        // numbers, for each of which there is a word.
        let status = unsafe { arguments.call(address) } as i32;
        if !self.loaded.rows.statuses.is_good(status) {
            return Err(Refusal::Status(status));
        }
        let size = |kind: &Kind| kind.is_answer() && kind.fixed_bytes() == Some(size_of::<u64>());
        let last = asked.parameters.iter().rposition(|parameter| size(&parameter.kind));
        let bytes = last.and_then(|last| usize::try_from(answers[last]).ok());
        let bytes = bytes.filter(|bytes| *bytes <= MAX_SCRATCH);
        bytes.ok_or(Refusal::Status(self.loaded.rows.statuses.alloc_failed))
    }

    /// Fills in the addresses of arrays, which lie one after the other at the start of the piece. The addresses
    /// follow the arrays. Returns the address of the addresses.
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
        if let Element::ByAttribute { name, kind } = host.element {
            let given = if host.direction == Direction::In { memory.contents(index) } else { &[] };
            self.check_attribute((name, kind), slots, given)?;
        }
        Ok(memory.address(index))
    }

    /// Checks the type of an attribute, and addresses in it. cuDNN follows them, that of a tensor by value in this process. They must
    /// be null or in the session's memory. The part of it that this process can access has addresses that nothing else ever gets
    /// (`worker/memory/window.rs`), so they are as good when cuDNN follows them, later.
    ///
    /// Errors: the library's status for a wrong argument.
    fn check_attribute(
        &self,
        (name, kind): (usize, usize),
        slots: &[u64],
        elements: &[u8],
    ) -> Result<(), Refusal> {
        let wrong = Refusal::Status(self.loaded.rows.statuses.invalid_value);
        let (name, kind) = (self.call.integer(name, slots), self.call.integer(kind, slots));
        let (Some(name), Some(kind)) = (name, kind) else { return Err(wrong) };
        let is_ours = |bytes: &[u8; SLOT]| {
            let address = u64::from_le_bytes(*bytes);
            address == 0 || self.cx.session.check(address, 1).is_ok()
        };
        let addresses = if is_attribute_of_addresses(kind) { elements.as_chunks().0 } else { &[] };
        if may_have_type(name, kind) && addresses.iter().all(is_ours) { Ok(()) } else { Err(wrong) }
    }
}

/// Makes a structure of the guest safe for a library to read. Limits the length at its start to that of the memory,
/// and replaces addresses in it by null.
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

#[cfg(test)]
#[path = "scratch_test.rs"]
mod scratch;

#[cfg(test)]
#[path = "pack_test.rs"]
mod pack;
