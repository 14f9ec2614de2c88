// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cp.async.bulk, cp.reduce.async.bulk, st.async, red.async: copies that a barrier in shared memory learns of.

use super::memory::{Address, Form, address, elements, place, store_part, vector_count};
use super::tensor_copies::{self, Purpose};
use super::{atomics, mbarriers};
use crate::execute::{atomic, bulk, control, moves};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::ptx::types::{StateSpace, Type};
use crate::symbols::LoadError;

pub(super) const COMPLETION: &str = "mbarrier::complete_tx::bytes";

/// Lowers `cp.async.bulk`.
pub(super) fn lower<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    // All is done when it is asked for, so that nothing is left to wait for.
    let waits = m.take_any(&["commit_group", "wait_group"]);
    if waits.is_some() {
        m.take("read");
        m.finish()?;
        f.emit(control::nothing(), &[]);
        return Ok(());
    }
    let prefetches = m.take("prefetch");
    if m.take("tensor") {
        return tensor_copies::lower(f, inst, if prefetches { Purpose::Prefetch } else { Purpose::Copy });
    }
    if prefetches {
        if !(m.take("L2") && m.take("global")) {
            return Err(m.unsupported());
        }
        m.take("L2::cache_hint");
        m.finish()?;
        f.emit(control::nothing(), &[]);
        return Ok(());
    }
    let to = m.take_if(StateSpace::from_name);
    let to = m.require(to)?;
    let from = m.take_if(StateSpace::from_name);
    let from = m.require(from)?;
    let signals = m.take(COMPLETION);
    let group = m.take("bulk_group");
    let multicast = m.take("multicast::cluster");
    m.take("L2::cache_hint");
    m.finish()?;
    let known = match (to, from) {
        (StateSpace::Shared, StateSpace::Global) => signals && !group,
        (StateSpace::Shared, StateSpace::Shared) => signals && !group && !multicast,
        (StateSpace::Global, StateSpace::Shared) => group && !signals && !multicast,
        _ => false,
    };
    if !known {
        return Err(m.unsupported());
    }
    let to_address = pointer(f, inst, 0)?;
    let from_address = pointer(f, inst, 1)?;
    let size = f.source(inst.operand(2)?, Type::U32)?;
    let barrier = if signals { pointer(f, inst, 3)? } else { f.constant(Width::B64, 0) };
    let blocks = if multicast { f.source(inst.operand(4)?, Type::B16)? } else { f.constant(Width::B16, 0) };
    let (to, from) = (place(f, to), place(f, from));
    let draft = f.emit(bulk::copy(), &[to_address, from_address, size, barrier, blocks]);
    draft.cached = true;
    draft.aux = to
        | from << bulk::SOURCE_SHIFT
        | if signals { bulk::SIGNALS } else { 0 }
        | if multicast { bulk::MULTICAST } else { 0 };
    Ok(())
}

/// Lowers `cp.reduce.async.bulk`: elements of the destination are combined with those of the source.
pub(super) fn reduce<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    if m.take("tensor") {
        return tensor_copies::lower(f, inst, Purpose::Reduction);
    }
    let to = m.take_if(StateSpace::from_name);
    let to = m.require(to)?;
    let from = m.take_if(StateSpace::from_name).filter(|from| *from == StateSpace::Shared);
    m.require(from)?;
    let signals = m.take(COMPLETION);
    let group = m.take("bulk_group");
    m.take("L2::cache_hint");
    let operation = m.take_any(&["and", "or", "xor", "add", "inc", "dec", "min", "max"]);
    let operation = m.require(operation)?;
    let noftz = if m.take("noftz") { ".noftz" } else { "" };
    let kind = m.kind()?;
    m.finish()?;
    let number = atomic::reduction_number(&format!("{operation}{noftz}"), kind);
    // In shared memory there are fewer operations.
    let known = match to {
        StateSpace::Shared => {
            signals && !group && kind.bytes() == 4 && kind != Type::F32
                || (operation, kind) == ("add", Type::U64)
        }
        StateSpace::Global => group && !signals,
        _ => false,
    };
    let number = m.require(number.filter(|_| known))?;
    let (to_address, from_address) = (pointer(f, inst, 0)?, pointer(f, inst, 1)?);
    let size = f.source(inst.operand(2)?, Type::U32)?;
    let barrier = if signals { pointer(f, inst, 3)? } else { f.constant(Width::B64, 0) };
    let blocks = f.constant(Width::B16, 0);
    let (to, from) = (place(f, to), place(f, StateSpace::Shared));
    let draft = f.emit(bulk::copy(), &[to_address, from_address, size, barrier, blocks]);
    draft.cached = true;
    draft.aux = to
        | from << bulk::SOURCE_SHIFT
        | if signals { bulk::SIGNALS } else { 0 }
        | (number + 1) << bulk::REDUCTION_SHIFT
        | kind.bytes() << bulk::ELEMENT_SHIFT;
    Ok(())
}

/// The address in operand `index` in a register of 64 bits.
pub(super) fn pointer<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    index: usize,
) -> Result<Arg, LoadError> {
    let Address::Register { register, wide, offset } = address(f, inst.operand(index)?, 1)? else {
        return Err(inst.modifiers.unsupported());
    };
    let base = match register {
        Arg::Use(register) if !wide => f.resized(register, Width::B32, Width::B64, false)?,
        other => other,
    };
    if offset == 0 {
        return Ok(base);
    }
    let sum = f.temporary(Width::B64);
    f.emit(moves::shift_window(), &[Arg::Def(sum), base, base, base]).imm = offset as u64;
    Ok(Arg::Use(sum))
}

/// Lowers `st.async`.
pub(super) fn store_async<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    m.take("weak");
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    let completes = m.take(COMPLETION);
    let count = vector_count(m);
    let kind = m.kind()?;
    m.finish()?;
    if !completes || count > 4 || !matches!(kind.bytes(), 4 | 8) {
        return Err(m.unsupported());
    }
    inst.expect(3)?;
    let form = Form { space, kind, count, flags: 0 };
    let values = elements(f, inst.operand(1)?, count)?;
    store_part(f, inst, &form, inst.operand(0)?, values)?;
    mbarriers::complete(f, inst, 2, kind.bytes() * count as u32)
}

/// Lowers `red.async`.
pub(super) fn reduce_async<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    m.take("relaxed");
    m.take("cluster");
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    let completes = m.take(COMPLETION);
    let operation = m.take_any(&["inc", "dec", "min", "max", "add", "and", "or", "xor"]);
    let operation = m.require(operation)?;
    let kind = m.kind()?;
    m.finish()?;
    if !completes {
        return Err(m.unsupported());
    }
    inst.expect(3)?;
    let value = f.source(inst.operand(1)?, kind)?;
    let target = Arg::Def(f.temporary(Width::of(kind)));
    atomics::update(f, inst, operation, kind, inst.operand(0)?, space, [target, value, value])?;
    mbarriers::complete(f, inst, 2, kind.bytes())
}
