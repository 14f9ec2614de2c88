// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions in which the lanes of a warp work together.

use super::state::{Flow, Machine};
use crate::code::{Handler, Instr, LANES, Line, lanes_of};
use crate::ptx::types::Type;

/// Waits until the lanes in the member masks in `ops[operand]` have arrived. The forms without `.sync` (`aux` 0) have
/// no mask.
///
/// # Safety
/// `ops[operand]` is a u32 register or constant.
unsafe fn meet(machine: &mut Machine<'_>, instr: &Instr, operand: usize) -> Option<Flow> {
    if instr.aux == 0 {
        return None;
    }
    // SAFETY: `ops[operand]` is a u32 register or constant by this function's contract.
    let masks = unsafe { machine.lanes::<u32>(instr.ops[operand]) };
    let all = lanes_of(machine.mask).fold(0, |bits, lane| bits | masks[lane]);
    machine.gather(all)
}

/// Runs `operation` for each group of lanes that have the same members in `ops[operand]`, with the lanes of the group
/// in `machine.mask`. Groups of a warp may execute the same instruction at the same time. It gets the members that
/// have arrived: the group itself, unless a lane's mask differs from the masks of its members. PTX does not define
/// that case, but programs rely on the hardware's behaviour.
///
/// # Safety
/// `joint` has the operands of `instr`, with their widths.
#[inline(always)]
unsafe fn each_group(
    machine: &mut Machine<'_>,
    instr: &Instr,
    joint: &Joint,
    operation: impl Fn(&mut Machine<'_>, &Instr, u32),
) -> Flow {
    // SAFETY: this function's contract.
    unsafe {
        together(machine, instr, joint, |machine, instr| {
            let mask = machine.mask;
            if instr.aux == 0 {
                operation(machine, instr, mask);
                return;
            }
            let masks = machine.lanes::<u32>(instr.ops[joint.members]);
            let mut left = mask;
            while left != 0 {
                let members = masks[left.trailing_zeros() as usize % LANES];
                let same = lanes_of(left).filter(|lane| masks[*lane] == members);
                let group = same.fold(0, |bits, lane| bits | 1 << lane);
                left &= !group;
                machine.mask = group;
                operation(machine, instr, members & mask);
            }
            machine.mask = mask;
        })
    }
}

/// The operands of a joint operation of lanes, with the bytes of a lane, which are 0 for predicates. The members are
/// among the sources.
struct Joint {
    members: usize,
    sources: &'static [(usize, usize)],
    targets: &'static [(usize, usize)],
}

/// Runs `operation` when all members have arrived. Some may wait at another such instruction, because compilers give each
/// side of a branch its own: they take part with their own operands.
///
/// # Safety
/// As [`each_group`].
#[inline(always)]
unsafe fn together(
    machine: &mut Machine<'_>,
    instr: &Instr,
    joint: &Joint,
    operation: impl Fn(&mut Machine<'_>, &Instr),
) -> Flow {
    let apart = machine.force;
    // SAFETY: the members are a u32 register or constant by this function's contract.
    if let Some(flow) = unsafe { meet(machine, instr, joint.members) } {
        return flow;
    }
    if apart && instr.aux != 0 {
        // SAFETY: this function's contract.
        return unsafe { from_apart(machine, instr, joint, &operation) };
    }
    operation(machine, instr);
    Flow::Next
}

/// Runs `operation` in a frame of its own, with the operands of all lanes that wait at such an instruction.
///
/// # Safety
/// As [`together`].
#[cold]
unsafe fn from_apart(
    machine: &mut Machine<'_>,
    instr: &Instr,
    joint: &Joint,
    operation: &dyn Fn(&mut Machine<'_>, &Instr),
) -> Flow {
    const OPERAND: usize = LANES * 8;
    let (mask, base) = (machine.mask, machine.base);
    // SAFETY: the members are a u32 register or constant by this function's contract.
    let masks = unsafe { machine.lanes::<u32>(instr.ops[joint.members]) };
    let members = lanes_of(mask).fold(0, |bits, lane| bits | masks[lane]);
    let others = machine.waiting_at(instr, members & !mask);
    let groups = || std::iter::once(((*instr, base), mask)).chain(others.iter().copied());
    let mut frame = [Line([0; 64]); 8 * OPERAND / size_of::<Line>()];
    let start = frame.as_mut_ptr().cast::<u8>();
    let mut all = 0;
    for ((other, base), mask) in groups() {
        machine.set_base(base);
        for (operand, bytes) in joint.sources {
            // SAFETY: the lanes wait at `other` in this frame, and it is of the same kind as the current one.
            unsafe {
                let from = machine.source::<u8>(other.ops[*operand]);
                copy_lanes(from, start.add(operand * OPERAND), *bytes, mask);
            }
        }
        all |= mask;
    }
    let own = Instr { ops: std::array::from_fn(|operand| (operand * OPERAND) as u32), ..*instr };
    machine.frame = start;
    machine.mask = all;
    operation(machine, &own);
    for ((other, base), mask) in groups() {
        machine.set_base(base);
        for (operand, bytes) in joint.targets {
            // SAFETY: as above.
            unsafe {
                let to = machine.target::<u8>(other.ops[*operand]);
                copy_lanes(start.add(operand * OPERAND), to, *bytes, mask);
            }
        }
    }
    machine.set_base(base);
    machine.mask = mask;
    machine.go_on_apart(all & !mask)
}

/// Copies the lanes in `mask` of a register, `bytes` bytes each, or 0 for a predicate.
///
/// # Safety
/// Both are registers of that width, or constants at `from`.
unsafe fn copy_lanes(from: *const u8, to: *mut u8, bytes: usize, mask: u32) {
    // SAFETY: registers have 32 lanes, and predicates 4 bytes.
    unsafe {
        if bytes == 0 {
            let (from, to) = (from.cast::<u32>(), to.cast::<u32>());
            *to = *to & !mask | *from & mask;
            return;
        }
        for lane in lanes_of(mask) {
            to.add(lane * bytes).copy_from_nonoverlapping(from.add(lane * bytes), bytes);
        }
    }
}

/// bar.warp.sync: `ops[0]` is the member mask.
pub(crate) fn synchronize() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let joint = Joint { members: 0, sources: &[(0, 4)], targets: &[] };
            together(machine, instr, &joint, |_, _| {})
        }
    }
    run
}

/// vote: `ops[0]` from the predicate `ops[1]` of the members `ops[2]`. ballot writes a u32, the others a predicate.
pub(crate) fn vote(mode: &str) -> Option<Handler> {
    unsafe fn run<const MODE: u8>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let targets: &[(usize, usize)] = if MODE == b'b' { &[(0, 4)] } else { &[(0, 0)] };
            let joint = Joint { members: 2, sources: &[(1, 0), (2, 4)], targets };
            each_group(machine, instr, &joint, |machine, instr, members| {
                let bits = machine.predicate(instr.ops[1]) & members;
                if MODE == b'b' {
                    machine.set_lanes(instr.ops[0], &[bits; LANES]);
                    return;
                }
                let holds = match MODE {
                    b'a' => bits == members,
                    b'y' => bits != 0,
                    _ => bits == members || bits == 0,
                };
                machine.set_predicate(instr.ops[0], if holds { u32::MAX } else { 0 });
            })
        }
    }
    Some(match mode {
        "all" => run::<b'a'>,
        "any" => run::<b'y'>,
        "uni" => run::<b'u'>,
        "ballot" => run::<b'b'>,
        _ => return None,
    })
}

/// activemask: `ops[0]` (u32).
pub(crate) fn active_mask() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let bits = machine.mask;
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe { machine.set_lanes(instr.ops[0], &[bits; LANES]) };
        Flow::Next
    }
    run
}

/// elect.sync: `ops[0]` (u32) is the lowest member of `ops[2]`, and `ops[1]` the predicate that is true for it.
pub(crate) fn elect() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let joint = Joint { members: 2, sources: &[(2, 4)], targets: &[(0, 4), (1, 0)] };
            each_group(machine, instr, &joint, |machine, instr, members| {
                let leader = members.trailing_zeros();
                machine.set_lanes(instr.ops[0], &[leader; LANES]);
                machine.set_predicate(instr.ops[1], 1_u32.checked_shl(leader).unwrap_or(0));
            })
        }
    }
    run
}

/// Returns the lane from which lane `number` gets its value, and whether that source is valid (a lane without one gets
/// its own value): `mode` is `u`, `d`, `b` or `i`, `b` and `c` are the operands.
#[inline(always)]
pub(crate) fn shuffle_source(mode: u8, number: u32, b: u32, c: u32) -> (usize, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let least = number & segment;
    let most = least | (clamp & !segment);
    // As the manual's pseudo-code: signed, so that `up` may go below zero.
    let (from, inside) = match mode {
        b'u' => {
            let from = number as i32 - b as i32;
            (from, from >= most as i32)
        }
        b'd' => (number as i32 + b as i32, number + b <= most),
        b'b' => ((number ^ b) as i32, number ^ b <= most),
        _ => {
            let from = least | (b & !segment);
            (from as i32, from <= most)
        }
    };
    (if inside { from as usize % LANES } else { number as usize }, inside)
}

/// Returns what the lanes in `mask` get of values, lanes and controls, and for which of them the source is valid.
#[inline(always)]
fn shuffled<const MODE: u8>(mask: u32, operands: &[[u32; LANES]; 3]) -> ([u32; LANES], u32) {
    let [values, arguments, controls] = operands;
    let (mut results, mut valid) = (*values, 0);
    for lane in lanes_of(mask) {
        let (source, inside) = shuffle_source(MODE, lane as u32, arguments[lane], controls[lane]);
        results[lane] = values[source % LANES];
        valid |= u32::from(inside) << lane;
    }
    (results, valid)
}

/// shfl of 32-bit values: `ops[0]` and the predicate `ops[5]` from the value `ops[1]`, lane `ops[2]`, clamp and segment
/// `ops[3]`, members `ops[4]`.
pub(crate) fn shuffle(mode: &str) -> Option<Handler> {
    unsafe fn run<const MODE: u8>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let sources = &[(1, 4), (2, 4), (3, 4), (4, 4)];
            let joint = Joint { members: 4, sources, targets: &[(0, 4), (5, 0)] };
            together(machine, instr, &joint, |machine, instr| {
                let operands = [1, 2, 3].map(|operand| machine.lanes::<u32>(instr.ops[operand]));
                let (results, valid) = shuffled::<MODE>(machine.mask, &operands);
                machine.set_lanes(instr.ops[0], &results);
                machine.set_predicate(instr.ops[5], valid);
            })
        }
    }
    Some(match mode {
        "up" => run::<b'u'>,
        "down" => run::<b'd'>,
        "bfly" => run::<b'b'>,
        "idx" => run::<b'i'>,
        _ => return None,
    })
}

/// match: `ops[0]` (u32) from the value `ops[1]` and the members `ops[2]`; match.all also sets the predicate `ops[3]`.
pub(crate) fn matching(all: bool, bytes: u32) -> Option<Handler> {
    unsafe fn run<T: Copy + PartialEq, const ALL: bool>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let sources: &[(usize, usize)] =
                if size_of::<T>() == 8 { &[(1, 8), (2, 4)] } else { &[(1, 4), (2, 4)] };
            let targets: &[(usize, usize)] = if ALL { &[(0, 4), (3, 0)] } else { &[(0, 4)] };
            each_group(machine, instr, &Joint { members: 2, sources, targets }, |machine, instr, members| {
                let values = machine.lanes::<T>(instr.ops[1]);
                let same = |lane: usize| {
                    lanes_of(members)
                        .filter(|other| values[*other] == values[lane])
                        .fold(0_u32, |bits, other| bits | 1 << other)
                };
                if ALL {
                    let holds = same(members.trailing_zeros() as usize % LANES) == members;
                    machine.set_lanes(instr.ops[0], &[if holds { members } else { 0 }; LANES]);
                    machine.set_predicate(instr.ops[3], if holds { u32::MAX } else { 0 });
                } else {
                    let groups: [u32; LANES] = std::array::from_fn(same);
                    machine.set_lanes(instr.ops[0], &groups);
                }
            })
        }
    }
    Some(match (bytes, all) {
        (4, false) => run::<u32, false>,
        (4, true) => run::<u32, true>,
        (8, false) => run::<u64, false>,
        (8, true) => run::<u64, true>,
        _ => return None,
    })
}

const REDUCTION: Joint = Joint { members: 2, sources: &[(1, 4), (2, 4)], targets: &[(0, 4)] };

/// redux.sync: `ops[0]` reduces `ops[1]` over the members `ops[2]`.
pub(crate) fn reduce(operation: &str, kind: Type) -> Option<Handler> {
    unsafe fn run<const OPERATION: u8>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            each_group(machine, instr, &REDUCTION, |machine, instr, members| {
                let values = machine.lanes::<u32>(instr.ops[1]);
                let values = lanes_of(members).map(|lane| values[lane]);
                let signed = |value: u32| value.cast_signed();
                let result = match OPERATION {
                    b'+' => values.fold(0, u32::wrapping_add),
                    b'&' => values.fold(u32::MAX, |a, b| a & b),
                    b'|' => values.fold(0, |a, b| a | b),
                    b'^' => values.fold(0, |a, b| a ^ b),
                    b'l' => values.min().unwrap_or(0),
                    b'g' => values.max().unwrap_or(0),
                    b'm' => values.map(signed).min().unwrap_or(0) as u32,
                    _ => values.map(signed).max().unwrap_or(0) as u32,
                };
                machine.set_lanes(instr.ops[0], &[result; LANES]);
            })
        }
    }
    Some(match (operation, kind) {
        ("add", Type::U32 | Type::S32) => run::<b'+'>,
        ("and", Type::B32) => run::<b'&'>,
        ("or", Type::B32) => run::<b'|'>,
        ("xor", Type::B32) => run::<b'^'>,
        ("min", Type::U32) => run::<b'l'>,
        ("max", Type::U32) => run::<b'g'>,
        ("min", Type::S32) => run::<b'm'>,
        ("max", Type::S32) => run::<b'M'>,
        _ => return None,
    })
}

/// redux.sync of f32: min and max of the members' values (or magnitudes); NaN counts only with `.NaN`.
pub(crate) fn reduce_floats(operation: &str, absolute: bool, propagate: bool) -> Option<Handler> {
    unsafe fn run<const MAX: bool, const ABSOLUTE: bool, const PROPAGATE: bool>(
        machine: &mut Machine<'_>,
        instr: &Instr,
    ) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            each_group(machine, instr, &REDUCTION, |machine, instr, members| {
                let values = machine.lanes::<f32>(instr.ops[1]);
                let values =
                    lanes_of(members).map(|lane| if ABSOLUTE { values[lane].abs() } else { values[lane] });
                let better =
                    |a: f32, b: f32| if MAX { a.total_cmp(&b).is_gt() } else { a.total_cmp(&b).is_lt() };
                let best = values.reduce(|a, b| match (a.is_nan(), b.is_nan()) {
                    (true, _) => {
                        if PROPAGATE {
                            a
                        } else {
                            b
                        }
                    }
                    (_, true) => {
                        if PROPAGATE {
                            b
                        } else {
                            a
                        }
                    }
                    _ => {
                        if better(b, a) {
                            b
                        } else {
                            a
                        }
                    }
                });
                let best = super::arithmetic::float::canonical(best.unwrap_or(0.0));
                machine.set_lanes(instr.ops[0], &[best; LANES]);
            })
        }
    }
    Some(match (operation, absolute, propagate) {
        ("min", false, false) => run::<false, false, false>,
        ("min", false, true) => run::<false, false, true>,
        ("min", true, false) => run::<false, true, false>,
        ("min", true, true) => run::<false, true, true>,
        ("max", false, false) => run::<true, false, false>,
        ("max", false, true) => run::<true, false, true>,
        ("max", true, false) => run::<true, true, false>,
        ("max", true, true) => run::<true, true, true>,
        _ => return None,
    })
}
