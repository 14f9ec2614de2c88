// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the arguments of a call of a library's function from the transferred block.

use cuda_library_rows::block::{MAX_SCRATCH, PRESENT, SLOT, padded, scalars};
use cuda_library_rows::expression::Expression;
use cuda_library_rows::{Body, Element, Host, Kind, Number, ScratchBytes};
use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::{GraphId, StreamId};

use super::made::{Late, New, Place};
use super::{Attempt, Memory};
use crate::worker::gpu::CudaError;
use crate::worker::vendor::handles::Locked;
use crate::worker::vendor::invoke::Arguments;
use crate::worker::vendor::refusal::Refusal;

impl<'a> Attempt<'a> {
    /// Adds the argument of the parameter with that index.
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
            Kind::Noted(_) | Kind::Measured(_) => return Ok(()),
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
        let rows = &self.loaded.rows.handles[kind];
        let mut kept = match &rows.of {
            Some((library, kind)) => self.foreign(library, Some(kind), id),
            None => self.cx.keep::<u8>(self.handles().kind(kind)?, id),
        };
        if let (Err(_), Some(other)) = (&kept, &rows.or) {
            kept = self.foreign(other, None, id);
        }
        let raw = kept.ok().map(|raw| if rows.is_late { Late::read(raw) } else { raw as u64 });
        // A late handle that the library has not filled in yet is 0.
        raw.filter(|raw| *raw != 0).ok_or(Refusal::Status(self.loaded.rows.statuses.not_initialized))
    }

    /// Returns the address of scratch memory for the library. It belongs to a handle of the call, because the library
    /// may use it until the work that the call has queued is done.
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
        // SAFETY: the row describes that function, whose parameters this call has by the same names; the parser has
        // checked that the only other one is a place for the answer.
        let status = unsafe { arguments.call(address) } as i32;
        if !self.loaded.rows.statuses.is_good(status) {
            return Err(Refusal::Status(status));
        }
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_SCRATCH);
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
        Ok(memory.address(index))
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
