// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the addresses of a memory instruction to checked host addresses.

use crate::code::{FULL, Instr, LANES, frame, lanes_of, window};
use crate::execute::state::{Flow, Machine};
use crate::launch::FaultKind;

/// The state space of an access, as in [`Instr::aux`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Place {
    Generic,
    /// `.global` and `.const`
    Global,
    Shared,
    Local,
    /// `.param` of a kernel.
    Param,
}

/// The layout of [`Instr::aux`] of a memory instruction.
pub(crate) mod aux {
    use super::Place;

    /// The address register has 64 bits, not 32.
    pub(crate) const WIDE_ADDRESS: u32 = 1 << 8;
    /// Consecutive elements, 1 to 4 (minus 1, two bits).
    pub(crate) const COUNT_SHIFT: u32 = 9;
    /// Ordered before what follows (acquire).
    pub(crate) const ACQUIRE: u32 = 1 << 12;
    /// Ordered after earlier accesses (release).
    pub(crate) const RELEASE: u32 = 1 << 13;
    /// Reads or writes data that other threads may wait for: volatile, relaxed, acquire; vectors with `.cg` or `.cv`, too.
    pub(crate) const POLLS: u32 = 1 << 14;

    /// The number of consecutive elements that an access transfers.
    #[inline(always)]
    pub(crate) fn count(aux: u32) -> usize {
        (aux >> COUNT_SHIFT & 3) as usize + 1
    }

    /// The place of an access.
    #[inline(always)]
    pub(crate) fn place(aux: u32) -> Place {
        match aux & 7 {
            0 => Place::Generic,
            1 => Place::Global,
            2 => Place::Shared,
            3 => Place::Local,
            _ => Place::Param,
        }
    }
}

/// The operation at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Atomic,
}

/// Host addresses for the lanes in the mask; the other lanes hold anything.
pub(crate) type Places = [u64; LANES];

impl Machine<'_> {
    /// Stores the addresses `ops[4] + imm` of the lanes in the mask in `at`, checked for `bytes` each (a power of
    /// two, to which they must be aligned). Returns true when all lanes are in the mask and adjacent.
    ///
    /// # Safety
    /// `ops[4]` is an address register as `aux` says.
    #[inline(always)]
    pub(crate) unsafe fn resolve(
        &mut self,
        instr: &Instr,
        at: &mut Places,
        bytes: u64,
        access: Access,
    ) -> Result<bool, Flow> {
        // SAFETY: `ops[4]` is an address register as `aux` says, by this function's contract.
        unsafe { self.addresses(instr, at) };
        let local = match aux::place(instr.aux) {
            Place::Local => Some(0),
            Place::Generic if at[0].wrapping_sub(window::LOCAL) < window::BYTES => Some(window::LOCAL),
            _ => None,
        };
        if let Some(start) = local
            && !self.checks
            && self.resolve_local(at, bytes, start)
        {
            return Ok(false);
        }
        // All lanes are checked together against the most likely range, and moved to the host address of its start.
        let (start, valid, host) = match aux::place(instr.aux) {
            Place::Shared => (0, u64::from(self.block.shared_bytes), self.block.shared.as_mut_ptr() as u64),
            Place::Generic if at[0].wrapping_sub(window::SHARED) < window::BYTES => {
                let host = self.block.shared.as_mut_ptr() as u64;
                (window::SHARED, u64::from(self.block.shared_bytes), host)
            }
            Place::Global | Place::Generic => {
                let (start, valid) = self.ranges.known(self.grid.launch.memory, instr.slot);
                (start, valid, start)
            }
            Place::Local | Place::Param => (0, 0, 0),
        };
        let last = (valid as i64).wrapping_sub(bytes as i64);
        let first = at[0];
        let (mut outside, mut misaligned, mut scattered) = (last, 0, 0);
        for (lane, address) in at.iter().enumerate() {
            let offset = address.wrapping_sub(start) as i64;
            // Negative when the offset is, or when it is beyond `last`: no range is larger than 2^63.
            outside |= offset | last.wrapping_sub(offset);
            misaligned |= address;
            scattered |= address ^ first.wrapping_add(lane as u64 * bytes);
        }
        if misaligned & (bytes - 1) != 0 {
            return Err(self.misaligned(instr, at, bytes, access));
        }
        if outside < 0 || self.checks {
            return self.resolve_slowly(instr, at, bytes, access);
        }
        if host != start {
            let distance = host.wrapping_sub(start);
            at.iter_mut().for_each(|address| *address = address.wrapping_add(distance));
        }
        Ok(self.mask == FULL && scattered == 0)
    }

    /// The address operand of all lanes; those that are not in the mask get the address of one that is.
    ///
    /// # Safety
    /// As [`Self::resolve`].
    #[inline(always)]
    unsafe fn addresses(&self, instr: &Instr, at: &mut Places) {
        let offset = instr.imm;
        // SAFETY: the address register has the width that `aux` says.
        unsafe {
            if instr.aux & aux::WIDE_ADDRESS != 0 {
                let base = self.source::<u64>(instr.ops[4]);
                for (lane, address) in at.iter_mut().enumerate() {
                    *address = (*base.add(lane)).wrapping_add(offset);
                }
            } else {
                let base = self.source::<u32>(instr.ops[4]);
                for (lane, address) in at.iter_mut().enumerate() {
                    *address = u64::from((*base.add(lane)).wrapping_add(offset as u32));
                }
            }
        }
        if self.mask != FULL {
            let some = at[self.mask.trailing_zeros() as usize % LANES];
            for (lane, address) in at.iter_mut().enumerate() {
                if self.mask & (1 << lane) == 0 {
                    *address = some;
                }
            }
        }
    }

    /// Resolves addresses that all are in local memory, which starts at `start`. Returns false, and does nothing, if
    /// one is not.
    #[inline(always)]
    fn resolve_local(&mut self, at: &mut Places, bytes: u64, start: u64) -> bool {
        // SAFETY: the frame header has 32 lanes of LOCAL_TOP.
        let tops = unsafe { self.lanes::<u32>(frame::LOCAL_TOP) };
        let warp = &mut self.block.warps[self.current];
        let stride = u64::from(warp.local_stride);
        let (mut outside, mut misaligned) = (0, 0);
        for (lane, address) in at.iter().enumerate() {
            let offset = address.wrapping_sub(start);
            let last = (u64::from(tops[lane]).min(stride) as i64).wrapping_sub(bytes as i64);
            // Where `last` is negative, the difference may wrap around.
            outside |= last | offset as i64 | last.wrapping_sub(offset as i64);
            misaligned |= address;
        }
        if outside < 0 || misaligned & (bytes - 1) != 0 {
            return false;
        }
        let host = warp.local_ptr() as u64;
        for (lane, address) in at.iter_mut().enumerate() {
            *address = host + lane as u64 * stride + address.wrapping_sub(start);
        }
        true
    }

    /// Lane by lane.
    #[inline(never)]
    fn resolve_slowly(
        &mut self,
        instr: &Instr,
        at: &mut Places,
        bytes: u64,
        access: Access,
    ) -> Result<bool, Flow> {
        let place = aux::place(instr.aux);
        let first = at[self.mask.trailing_zeros() as usize % LANES];
        for lane in lanes_of(self.mask) {
            at[lane] = self.resolve_lane(instr, lane, at[lane], bytes, place, access)?;
        }
        let contiguous = self.mask == FULL && is_sequence(at, bytes);
        // The most likely range for the next access is that of the first lane rather than of the last.
        if let Place::Global | Place::Generic = place {
            self.ranges.holds(self.grid.launch.memory, instr.slot, first, first.saturating_add(bytes));
        }
        Ok(contiguous)
    }

    /// One lane, in whatever space it is.
    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "one access of one lane; a structure would be filled on the hot path"
    )]
    pub(crate) fn resolve_lane(
        &mut self,
        instr: &Instr,
        lane: usize,
        address: u64,
        bytes: u64,
        place: Place,
        access: Access,
    ) -> Result<u64, Flow> {
        let within = |start: u64| (address.wrapping_sub(start) < window::BYTES).then(|| address - start);
        let (place, offset) = match place {
            Place::Generic => {
                if let Some(offset) = within(window::SHARED) {
                    (Place::Shared, offset)
                } else if let Some(offset) = within(window::LOCAL) {
                    (Place::Local, offset)
                } else if let Some(offset) = within(window::PARAM) {
                    (Place::Param, offset)
                } else {
                    (Place::Global, address)
                }
            }
            place => (place, address),
        };
        let end = offset.checked_add(bytes);
        let found = match (place, end) {
            (Place::Global | Place::Generic, Some(end)) => {
                let memory = self.grid.launch.memory;
                self.ranges.holds(memory, instr.slot, offset, end).then_some(offset)
            }
            (Place::Shared, Some(end)) if end <= u64::from(self.block.shared_bytes) => {
                Some(self.block.shared.as_mut_ptr() as u64 + offset)
            }
            (Place::Shared, Some(_)) => self.block.peer(offset, bytes),
            (Place::Local, Some(end)) => {
                // SAFETY: the frame header has 32 lanes of LOCAL_TOP.
                let top = unsafe { *self.source::<u32>(frame::LOCAL_TOP).add(lane) };
                let warp = self.warp();
                let stride = u64::from(warp.local_stride);
                let valid = end <= u64::from(top).min(stride);
                valid.then(|| warp.local_ptr() as u64 + lane as u64 * stride + offset)
            }
            (Place::Param, Some(end)) if access == Access::Read && end <= self.grid.params.len() as u64 => {
                Some(self.grid.params.as_ptr() as u64 + offset)
            }
            _ => None,
        };
        if self.checks
            && let Some(host) = found
        {
            self.inspect(instr, lane, host, bytes, access);
        }
        found.ok_or_else(|| self.illegal(instr, lane, address, bytes, place, access))
    }

    #[cold]
    #[expect(clippy::too_many_arguments, reason = "the arguments of `resolve_lane`")]
    fn illegal(
        &mut self,
        instr: &Instr,
        lane: usize,
        address: u64,
        bytes: u64,
        place: Place,
        access: Access,
    ) -> Flow {
        let place = match place {
            Place::Generic | Place::Global => "global",
            Place::Shared => "shared",
            Place::Local => "local",
            Place::Param => "parameter",
        };
        let near = if place == "global" { self.grid.launch.memory.describe(address) } else { String::new() };
        let what = format!("illegal {place} memory {} of {bytes} bytes at {address:#x}{near}", verb(access));
        self.fail(instr, lane, FaultKind::IllegalAddress, address, &what)
    }

    #[cold]
    fn misaligned(&mut self, instr: &Instr, at: &[u64; LANES], bytes: u64, access: Access) -> Flow {
        let lane = lanes_of(self.mask).find(|lane| at[*lane] & (bytes - 1) != 0).unwrap_or(0);
        let what = format!("misaligned {} of {bytes} bytes at {:#x}", verb(access), at[lane]);
        self.fail(instr, lane, FaultKind::Misaligned, at[lane], &what)
    }

    /// Checks one lane's generic address for `bytes` bytes without alignment: what builtins read.
    pub(crate) fn generic(
        &mut self,
        instr: &Instr,
        lane: usize,
        address: u64,
        bytes: u64,
    ) -> Result<*const u8, Flow> {
        self.resolve_lane(instr, lane, address, bytes, Place::Generic, Access::Read)
            .map(|address| address as *const u8)
    }

    /// As [`Self::generic`], for what builtins write.
    pub(crate) fn generic_target(
        &mut self,
        instr: &Instr,
        lane: usize,
        address: u64,
        bytes: u64,
    ) -> Result<*mut u8, Flow> {
        self.resolve_lane(instr, lane, address, bytes, Place::Generic, Access::Write)
            .map(|address| address as *mut u8)
    }
}

fn verb(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Atomic => "atomic operation",
    }
}

fn is_sequence(at: &[u64; LANES], bytes: u64) -> bool {
    let first = at[0];
    let mut different = 0;
    for (lane, address) in at.iter().enumerate() {
        different |= address ^ first.wrapping_add(lane as u64 * bytes);
    }
    different == 0
}
