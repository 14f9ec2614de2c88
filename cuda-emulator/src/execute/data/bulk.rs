// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cp.async.bulk and cp.reduce.async.bulk. The copy is executed immediately, and then its bytes are reported to the
//! barrier.

use super::access::{Access, Place, aux};
use super::atomic;
use crate::code::{Handler, Instr, lanes_of};
use crate::execute::cluster::with_rank;
use crate::execute::mbarrier::complete_bytes;
use crate::execute::state::{Flow, Machine};
use crate::launch::FaultKind;

/// In [`Instr::aux`], where the source's place starts; the destination's is in the lowest bits.
pub(crate) const SOURCE_SHIFT: u32 = 3;
/// In [`Instr::aux`]: `ops[3]` is a barrier.
pub(crate) const SIGNALS: u32 = 1 << 6;
/// In [`Instr::aux`]: `ops[4]` (u16) selects the blocks of the cluster.
pub(crate) const MULTICAST: u32 = 1 << 7;
/// In [`Instr::aux`], from here on: the number of an operation plus one, where elements are reduced instead of copied.
pub(crate) const REDUCTION_SHIFT: u32 = 8;
/// In [`Instr::aux`], from here on: bytes of such an element.
pub(crate) const ELEMENT_SHIFT: u32 = 16;
/// Addresses and sizes are multiples of this number of bytes.
const UNIT: u64 = 16;

/// Copies `ops[2]` (u32) bytes from `ops[1]` (u64) to `ops[0]` (u64) and signals the barrier at `ops[3]` (u64).
pub(crate) fn copy() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        for lane in lanes_of(machine.mask) {
            // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract
            // of `Handler`).
            let (to, from, bytes, barrier, blocks) = unsafe {
                (
                    *machine.source::<u64>(instr.ops[0]).add(lane),
                    *machine.source::<u64>(instr.ops[1]).add(lane),
                    u64::from(*machine.source::<u32>(instr.ops[2]).add(lane)),
                    *machine.source::<u64>(instr.ops[3]).add(lane),
                    *machine.source::<u16>(instr.ops[4]).add(lane),
                )
            };
            if (to | from | bytes) % UNIT != 0 {
                let what =
                    format!("bulk copy of {bytes} bytes from {from:#x} to {to:#x}: not multiples of {UNIT}");
                return machine.fail(instr, lane, FaultKind::Misaligned, to, &what);
            }
            for place in targets(instr, blocks) {
                let copied = copy_lane(machine, instr, lane, place(to), from, bytes);
                if let Err(flow) = copied.and_then(|()| signal(machine, instr, lane, place(barrier), bytes)) {
                    return flow;
                }
            }
        }
        Flow::Next
    }
    run
}

/// Returns, for each block whose shared memory a copy writes, the function from a lane's address to that block's. With
/// [`MULTICAST`] those are the blocks of the cluster that `blocks` selects; without it, there is one, and addresses stay.
pub(super) fn targets(instr: &Instr, blocks: u16) -> impl Iterator<Item = impl Fn(u64) -> u64> {
    let multicast = instr.aux & MULTICAST != 0;
    let ranks = lanes_of(if multicast { u32::from(blocks) } else { 1 });
    ranks.map(move |rank| move |address| if multicast { with_rank(address, rank as u32) } else { address })
}

fn copy_lane(
    machine: &mut Machine<'_>,
    instr: &Instr,
    lane: usize,
    to: u64,
    from: u64,
    bytes: u64,
) -> Result<(), Flow> {
    if bytes == 0 {
        return Ok(());
    }
    let space = aux::place(instr.aux >> SOURCE_SHIFT);
    let from = machine.resolve_lane(instr, lane, from, bytes, space, Access::Read)?;
    let operation = (instr.aux >> REDUCTION_SHIFT & 0xff).checked_sub(1).and_then(atomic::reduction);
    let access = if operation.is_some() { Access::Atomic } else { Access::Write };
    let to = machine.resolve_lane(instr, lane, to, bytes, aux::place(instr.aux), access)?;
    if let Some(operation) = operation {
        for offset in (0..bytes).step_by((instr.aux >> ELEMENT_SHIFT & 0xff).max(1) as usize) {
            // SAFETY: both were checked for all bytes, of which the size of an element is a divisor; the addresses are
            // multiples of 16.
            unsafe { operation((to + offset) as *mut u8, (from + offset) as *const u8) };
        }
        return Ok(());
    }
    // SAFETY: both were checked for all bytes.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
    Ok(())
}

/// The barrier at `barrier` learns that `bytes` bytes have come, if the instruction has one ([`SIGNALS`]).
pub(super) fn signal(
    machine: &mut Machine<'_>,
    instr: &Instr,
    lane: usize,
    barrier: u64,
    bytes: u64,
) -> Result<(), Flow> {
    if instr.aux & SIGNALS == 0 {
        return Ok(());
    }
    if !barrier.is_multiple_of(8) {
        let what = format!("misaligned barrier at {barrier:#x}");
        return Err(machine.fail(instr, lane, FaultKind::Misaligned, barrier, &what));
    }
    let place = machine.resolve_lane(instr, lane, barrier, 8, Place::Shared, Access::Atomic)? as *mut u64;
    // SAFETY: checked, and aligned; shared memory belongs to this worker while it runs the block.
    unsafe { *place = complete_bytes(*place, bytes) };
    Ok(())
}
