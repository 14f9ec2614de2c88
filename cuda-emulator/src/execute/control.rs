// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Branches, calls, returns and ends.

use super::state::{Flow, Machine};
use crate::code::{Call, FULL, Function, Handler, Instr, LANES, Piece, frame, lanes_of, window};
use crate::launch::FaultKind;

/// The minimum local memory per call in bytes. Bounds the recursion of functions without variables.
const CALL_BYTES: u32 = 16;
/// The minimum size of a thread's call stack in bytes, even if cudaLimitStackSize is lower: frames here differ from
/// the hardware's.
const MIN_STACK_BYTES: u32 = 64 << 10;

/// Continues at `imm`.
pub(crate) fn branch() -> Handler {
    unsafe fn run(_: &mut Machine<'_>, _: &Instr) -> Flow {
        Flow::Jump
    }
    run
}

/// Does nothing.
pub(crate) fn nothing() -> Handler {
    unsafe fn run(_: &mut Machine<'_>, _: &Instr) -> Flow {
        Flow::Next
    }
    run
}

/// Ends the thread.
pub(crate) fn exit() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, _: &Instr) -> Flow {
        machine.end_lanes()
    }
    run
}

/// Stops the kernel.
pub(crate) fn trap() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let lane = machine.mask.trailing_zeros() as usize % LANES;
        machine.fail(instr, lane, FaultKind::LaunchFailed, 0, "trap instruction")
    }
    run
}

/// multimem: there is no multicast memory that it could access.
pub(crate) fn no_multicast() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let lane = machine.mask.trailing_zeros() as usize % LANES;
        machine.fail(instr, lane, FaultKind::IllegalAddress, 0, "multimem without multicast memory")
    }
    run
}

/// membar and fence.
pub(crate) fn fence() -> Handler {
    unsafe fn run(_: &mut Machine<'_>, _: &Instr) -> Flow {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Flow::Next
    }
    run
}

/// nanosleep: lets the other warps run.
pub(crate) fn sleep() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, _: &Instr) -> Flow {
        machine.budget = 1;
        machine.warp().polled = true;
        Flow::Next
    }
    run
}

/// brx.idx: each lane continues at entry `ops[0]` (u32) of table `imm`. PTX does not define an index outside of the
/// table; here it is a fault.
pub(crate) fn branch_indexed() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        let indices = unsafe { machine.lanes::<u32>(instr.ops[0]) };
        let table = &machine.grid.code.tables[instr.imm as usize];
        let mask = machine.mask;
        let next = machine.pc + 1;
        machine.split(next);
        for lane in lanes_of(mask) {
            let Some(target) = table.get(indices[lane] as usize) else {
                let what = format!("branch to entry {} of {}", indices[lane], table.len());
                return machine.fail(instr, lane, FaultKind::InvalidPc, 0, &what);
            };
            if *target < next {
                machine.budget = machine.budget.saturating_sub(1);
            }
            machine.warp().lane_pc[lane] = *target;
        }
        Flow::Switch
    }
    run
}

/// Calls function `calls[imm]`.
pub(crate) fn call() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let code = machine.grid.code;
        let call = &code.calls[instr.imm as usize];
        let mask = machine.mask;
        let stay = machine.pc + 1;
        // Recursion can go on for ever without a jump.
        machine.budget = machine.budget.saturating_sub(1);
        let addresses = match call.callee {
            Some(_) => [0; LANES],
            // SAFETY: operand 0 is the address when the callee is not known.
            None => unsafe { machine.lanes::<u64>(instr.ops[0]) },
        };
        machine.split(stay);
        let mut left = mask;
        while left != 0 {
            let first = left.trailing_zeros() as usize % LANES;
            let (callee, group) = match call.callee {
                Some(callee) => (callee, left),
                None => {
                    let address = addresses[first];
                    let same = lanes_of(left).filter(|lane| addresses[*lane] == address);
                    let group = same.fold(0, |bits, lane| bits | 1 << lane);
                    let offset = address.wrapping_sub(window::FUNCTION);
                    let index = usize::try_from(offset / 16).unwrap_or(usize::MAX);
                    let callable = code.functions.get(index).is_some_and(|function| function.callable);
                    if offset % 16 != 0 || !callable {
                        let what = format!("call of {address:#x}, which is not a function");
                        return machine.fail(instr, first, FaultKind::InvalidPc, address, &what);
                    }
                    (index, group)
                }
            };
            left &= !group;
            // SAFETY: the caller is the running function; lowering made `calls` and `functions` fit each other.
            if let Err(what) = unsafe { enter(machine, call, &code.functions[callee], group) } {
                return machine.fail(instr, first, FaultKind::LaunchFailed, 0, &what);
            }
        }
        Flow::Switch
    }
    run
}

/// Gives the lanes in `group` a frame of `callee`, with their arguments copied.
///
/// # Safety
/// `call` belongs to the running function.
unsafe fn enter(machine: &mut Machine<'_>, call: &Call, callee: &Function, group: u32) -> Result<(), String> {
    let caller = &machine.grid.code.functions[call.caller];
    let base = machine.base;
    let new_base = base + caller.frame_bytes;
    let overflow = || format!("stack overflow in the call of `{}`", callee.name);
    let launch = machine.grid.launch;
    let limit = launch.kernel.local_bytes.saturating_add(launch.stack_bytes.max(MIN_STACK_BYTES));
    // SAFETY: the frame header of the running function.
    let tops = unsafe { machine.lanes::<u32>(frame::LOCAL_TOP) };
    let highest = lanes_of(group).map(|lane| tops[lane]).max().unwrap_or(0);
    let needed = highest.next_multiple_of(16).saturating_add(callee.local_bytes.max(CALL_BYTES));
    let warp = machine.warp();
    if !warp.ensure_registers((new_base + callee.frame_bytes) as usize) || !warp.ensure_local(needed, limit) {
        return Err(overflow());
    }
    machine.set_base(base);
    let return_pc = machine.pc + 1;
    // SAFETY: both frames lie inside the registers now; each header word has 32 lanes.
    unsafe {
        let bases = machine.lanes::<u32>(frame::LOCAL_BASE);
        let header = machine.frame.add(caller.frame_bytes as usize);
        let write = |register: u32, lane: usize, value: u32| {
            *header.add(register as usize).cast::<u32>().add(lane) = value;
        };
        for lane in lanes_of(group) {
            let local = tops[lane].next_multiple_of(16);
            write(frame::RETURN_PC, lane, return_pc);
            write(frame::RETURN_BASE, lane, base);
            write(frame::LOCAL_BASE, lane, local);
            write(frame::LOCAL_TOP, lane, local + callee.local_bytes.max(CALL_BYTES));
            copy_pieces(
                machine,
                lane,
                Pieces { base: bases[lane], list: &call.args },
                Pieces { base: local, list: &callee.params },
            );
            let warp = machine.warp();
            warp.lane_pc[lane] = callee.entry_pc;
            warp.lane_base[lane] = new_base;
        }
    }
    Ok(())
}

/// Pieces of a frame in a lane's local memory, which begins at byte `base` of it.
struct Pieces<'a> {
    base: u32,
    list: &'a [Piece],
}

/// Copies pieces inside the local memory of a lane.
///
/// # Safety
/// The pieces lie within the local memory that the frames at `from.base` and `to.base` own.
unsafe fn copy_pieces(machine: &mut Machine<'_>, lane: usize, from: Pieces<'_>, to: Pieces<'_>) {
    let warp = machine.warp();
    let stride = warp.local_stride as usize;
    let local = warp.local_ptr();
    for (source, target) in from.list.iter().zip(to.list) {
        let bytes = source.bytes.min(target.bytes) as usize;
        let start = lane * stride;
        // SAFETY: the pieces lie within the local memory of the two frames by this function's contract; frames of
        // caller and callee do not overlap.
        unsafe {
            let source = local.add(start + (from.base + source.offset) as usize);
            let target = local.add(start + (to.base + target.offset) as usize);
            std::ptr::copy(source, target, bytes);
        }
    }
}

/// Returns from function `imm`.
pub(crate) fn ret() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let code = machine.grid.code;
        let callee = &code.functions[instr.imm as usize];
        let mask = machine.mask;
        if mask != machine.active || mask != FULL {
            let next = machine.pc + 1;
            machine.split(next);
        }
        // SAFETY: the header of the running function; RETURN_BASE is the frame of its caller, and the call is the
        // instruction before RETURN_PC (`enter`).
        unsafe {
            let pcs = machine.lanes::<u32>(frame::RETURN_PC);
            let bases = machine.lanes::<u32>(frame::RETURN_BASE);
            let locals = machine.lanes::<u32>(frame::LOCAL_BASE);
            for lane in lanes_of(mask) {
                let call = &code.calls[code.instrs[pcs[lane] as usize - 1].imm as usize];
                let start = machine.frame.sub(machine.base as usize);
                let header = start.add(bases[lane] as usize + frame::LOCAL_BASE as usize).cast::<u32>();
                let local = *header.add(lane);
                copy_pieces(
                    machine,
                    lane,
                    Pieces { base: locals[lane], list: &callee.returns },
                    Pieces { base: local, list: &call.returns },
                );
                let warp = machine.warp();
                warp.lane_pc[lane] = pcs[lane];
                warp.lane_base[lane] = bases[lane];
            }
        }
        Flow::Switch
    }
    run
}

/// alloca: `ops[0]` (u64) = `ops[1]` (u64) bytes of local memory, aligned to `imm`.
pub(crate) fn allocate() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let launch = machine.grid.launch;
        let limit = launch.kernel.local_bytes.saturating_add(launch.stack_bytes.max(MIN_STACK_BYTES));
        for lane in lanes_of(machine.mask) {
            // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract
            // of `Handler`); the frame header has 32 lanes of LOCAL_TOP.
            unsafe {
                let bytes = *machine.source::<u64>(instr.ops[1]).add(lane);
                let top = machine.target::<u32>(frame::LOCAL_TOP).add(lane);
                let start = u64::from(*top).next_multiple_of(instr.imm.clamp(1, 4096));
                let end = start.saturating_add(bytes);
                let fits = u32::try_from(end).ok().filter(|end| machine.warp().ensure_local(*end, limit));
                let Some(end) = fits else {
                    let what = format!("stack overflow in an alloca of {bytes} bytes");
                    return machine.fail(instr, lane, FaultKind::LaunchFailed, 0, &what);
                };
                *top = end;
                machine.warp().prepared = false;
                *machine.target::<u64>(instr.ops[0]).add(lane) = start;
            }
        }
        Flow::Next
    }
    run
}

/// stacksave: `ops[0]` (u64) = the end of local memory.
pub(crate) fn stack_save() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let tops = machine.lanes::<u32>(frame::LOCAL_TOP).map(u64::from);
            machine.set_lanes(instr.ops[0], &tops);
        }
        Flow::Next
    }
    run
}

/// stackrestore: ends local memory at `ops[1]` (u64) again.
pub(crate) fn stack_restore() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let wanted = machine.lanes::<u64>(instr.ops[1]);
            let tops = machine.lanes::<u32>(frame::LOCAL_TOP);
            // Only downwards: whatever the value is, what lies below the top exists.
            let new =
                std::array::from_fn(|lane| tops[lane].min(u32::try_from(wanted[lane]).unwrap_or(u32::MAX)));
            machine.set_lanes::<u32>(frame::LOCAL_TOP, &new);
            machine.warp().prepared = false;
        }
        Flow::Next
    }
    run
}
