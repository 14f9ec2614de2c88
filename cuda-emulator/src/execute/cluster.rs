// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clusters: blocks that see each other's shared memory. All blocks of a cluster run on one worker, in turns.
//!
//! An address in `shared::cluster` has the rank of its block plus one in the bits from [`RANK_SHIFT`] on; without them it
//! means the block's own shared memory.

use super::lanes::{map2, map3_imm};
use super::state::{Block, Flow, Machine};
use crate::code::{Handler, Instr, lanes_of, window};

/// Shared memory is smaller than this.
pub(super) const RANK_SHIFT: u32 = 24;
const OFFSET: u64 = (1 << RANK_SHIFT) - 1;
const RANKS: u64 = 0xff;

impl Block {
    /// The host address of `bytes` bytes at an offset that has a rank in it.
    pub(super) fn peer(&mut self, offset: u64, bytes: u64) -> Option<u64> {
        let rank = (offset >> RANK_SHIFT).checked_sub(1)?;
        let inner = offset & OFFSET;
        if inner.checked_add(bytes)? > u64::from(self.shared_bytes) {
            return None;
        }
        let start = match &self.cluster {
            Some(cluster) => *cluster.shared.borrow().get(usize::try_from(rank).ok()?)?,
            None if rank == 0 => self.shared.as_mut_ptr() as u64,
            None => return None,
        };
        Some(start + inner)
    }
}

/// mapa: `ops[0] = ops[1]`, a shared address of `bytes` bytes, in the block whose rank is `ops[2]` (u32).
pub(crate) fn map_address(bytes: u32) -> Option<Handler> {
    fn place(address: u64, rank: u32) -> u64 {
        address & !(RANKS << RANK_SHIFT) | ((u64::from(rank) + 1) & RANKS) << RANK_SHIFT
    }
    Some(match bytes {
        4 => map2(|address: u32, rank: u32| place(u64::from(address), rank) as u32),
        8 => map2(place),
        _ => return None,
    })
}

/// getctarank: `ops[0]` (u32) of the address in `ops[1]` (u64); `ops[2]` and `ops[3]` (u32) are the block's own rank.
pub(crate) fn rank_of() -> Handler {
    map3_imm(|address: u64, own: u32, _: u32, _| match address >> RANK_SHIFT & RANKS {
        0 => own,
        rank => rank as u32 - 1,
    })
}

/// isspacep.shared::cta: the predicate `ops[0]`, whether the address in `ops[1]` (u64) is in the block's own shared memory.
pub(crate) fn in_own_window() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let addresses = machine.lanes::<u64>(instr.ops[1]);
            let own = |address: u64| {
                let offset = address.wrapping_sub(window::SHARED);
                let rank = offset >> RANK_SHIFT;
                offset < window::BYTES && (rank == 0 || rank == u64::from(machine.rank()) + 1)
            };
            let bits = super::lanes::pack(addresses.map(own));
            machine.set_predicate(instr.ops[0], bits);
        }
        Flow::Next
    }
    run
}

impl Machine<'_> {
    /// The running block's rank in its cluster.
    pub(super) fn rank(&self) -> u32 {
        let size = self.grid.cluster;
        let [x, y, z] = std::array::from_fn(|axis| self.block.index[axis] % size[axis]);
        x + size[0] * (y + size[1] * z)
    }
}

/// An address with its rank replaced: what multicast copies to.
pub(super) fn with_rank(address: u64, rank: u32) -> u64 {
    address & !(RANKS << RANK_SHIFT) | (u64::from(rank) + 1) << RANK_SHIFT
}

/// barrier.cluster.arrive.
pub(crate) fn arrive() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, _: &Instr) -> Flow {
        let mask = machine.mask;
        let block = &mut machine.block;
        let Some(cluster) = &block.cluster else { return Flow::Next };
        let phase = cluster.phase.get();
        cluster.arrived.set(cluster.arrived.get() + mask.count_ones());
        cluster.check();
        for lane in lanes_of(mask) {
            block.warps[machine.current].arrived_phase[lane] = phase;
        }
        Flow::Next
    }
    run
}

/// barrier.cluster.wait: stays until the phase is over in which the lane arrived.
pub(crate) fn wait() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, _: &Instr) -> Flow {
        let mask = machine.mask;
        let Some(cluster) = &machine.block.cluster else { return Flow::Next };
        let phase = cluster.phase.get();
        let arrived = machine.block.warps[machine.current].arrived_phase;
        let waiting =
            lanes_of(mask).filter(|lane| arrived[*lane] == phase).fold(0, |bits, lane| bits | 1 << lane);
        if waiting == 0 {
            return Flow::Next;
        }
        let pc = machine.pc;
        machine.mask = waiting;
        machine.split(pc);
        let warp = machine.warp();
        warp.at_barrier |= waiting;
        warp.at_cluster |= waiting;
        Flow::Switch
    }
    run
}
