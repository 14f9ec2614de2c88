// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mbarrier.

use super::memory::{Address, address, place};
use crate::code::Handler;
use crate::execute::access::aux;
use crate::execute::{control, mbarrier};
use crate::lower::draft::{Arg, Draft, Width};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::lower::shapes::simple;
use crate::ptx::ast::Operand;
use crate::ptx::types::{StateSpace, Type};
use crate::symbols::LoadError;

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let names = [
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "test_wait",
        "try_wait",
        "pending_count",
        "expect_tx",
        "complete_tx",
    ];
    let name = m.take_any(&names);
    let name = m.require(name)?;
    let with_bytes = matches!(name, "arrive" | "arrive_drop") && m.take("expect_tx");
    // All implementations are at least as strong as required.
    m.take_any(&["relaxed", "acquire", "release"]);
    m.take_any(&["cta", "cluster"]);
    m.take("noComplete");
    let parity = m.take("parity");
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    m.take("b64");
    m.finish()?;
    match name {
        "pending_count" => simple(f, inst, Some(mbarrier::pending_count()), Type::U32, &[Type::B64]),
        "test_wait" | "try_wait" => {
            let operand =
                if parity { number(f, inst.operand(2)?)? } else { f.source(inst.operand(2)?, Type::B64)? };
            let target = f.target(inst.operand(0)?, Type::Pred)?;
            let by_parity = if parity { mbarrier::BY_PARITY } else { 0 };
            let draft = emit(f, inst, mbarrier::test_wait(), [target, operand], 1, space)?;
            draft.aux |= by_parity | aux::POLLS;
            Ok(())
        }
        "arrive" | "arrive_drop" => {
            let count = match inst.ast.operands.get(2) {
                Some(operand) => number(f, operand)?,
                None => f.constant(Width::B64, 1),
            };
            let target = f.target(inst.operand(0)?, Type::B64)?;
            let full = if with_bytes { format!("{name}.expect_tx") } else { name.to_owned() };
            let handler = inst.modifiers.require(mbarrier::update(&full))?;
            emit(f, inst, handler, [target, count], 1, space)?;
            Ok(())
        }
        _ => {
            let operand = match inst.ast.operands.get(1) {
                Some(operand) => number(f, operand)?,
                None => f.constant(Width::B64, 0),
            };
            let target = Arg::Def(f.temporary(Width::B64));
            let handler = inst.modifiers.require(mbarrier::update(name))?;
            emit(f, inst, handler, [target, operand], 0, space)?;
            Ok(())
        }
    }
}

/// cp.async.mbarrier.arrive: the copies are done, so this is an arrival that `.noinc` announced, or none at all.
pub(in crate::lower) fn arrive_for_copies<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let counted = m.take("noinc");
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    m.take("b64");
    m.finish()?;
    if !counted {
        f.emit(control::nothing(), &[]);
        return Ok(());
    }
    let handler = inst.modifiers.require(mbarrier::update("arrive"))?;
    let one = f.constant(Width::B64, 1);
    let target = Arg::Def(f.temporary(Width::B64));
    emit(f, inst, handler, [target, one], 0, space)?;
    Ok(())
}

/// The barrier at operand `index` learns that `bytes` bytes have come.
pub(super) fn complete<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    index: usize,
    bytes: u32,
) -> Result<(), LoadError> {
    let handler = inst.modifiers.require(mbarrier::update("complete_tx"))?;
    let count = f.constant(Width::B64, u64::from(bytes));
    let target = Arg::Def(f.temporary(Width::B64));
    emit(f, inst, handler, [target, count], index, StateSpace::Shared)?;
    Ok(())
}

/// A u32 operand as 64 bits.
fn number<'a>(f: &mut Function<'_, 'a>, operand: &Operand<'a>) -> Result<Arg, LoadError> {
    match f.source(operand, Type::U32)? {
        Arg::Use(register) => f.resized(register, Width::B32, Width::B64, false),
        _ => f.source(operand, Type::U64),
    }
}

/// Emits a handler for the barrier at the address operand `index`.
fn emit<'f, 'a>(
    f: &'f mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    handler: Handler,
    [target, operand]: [Arg; 2],
    index: usize,
    space: StateSpace,
) -> Result<&'f mut Draft, LoadError> {
    let Address::Register { register, wide, offset } = address(f, inst.operand(index)?, 8)? else {
        return Err(inst.modifiers.unsupported());
    };
    let place = place(f, space);
    let draft = f.emit(handler, &[target, operand, Arg::None, Arg::None, register]);
    draft.imm = offset as u64;
    draft.aux = place | if wide { aux::WIDE_ADDRESS } else { 0 };
    draft.cached = true;
    Ok(draft)
}
