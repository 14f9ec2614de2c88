// SPDX-License-Identifier: Apache-2.0 OR MIT
//! atom and red.

use super::memory::{Address, address, elements, further, place, take_hints, vector_count};
use crate::execute::access::aux;
use crate::execute::{atomic, moves};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::ptx::ast::Operand;
use crate::ptx::types::{StateSpace, Type};
use crate::symbols::LoadError;

const OPERATIONS: [&str; 10] = ["and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max"];

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    if name == "red" && m.take("async") {
        return super::bulk::reduce_async(f, inst);
    }
    // All atomics are sequentially consistent here.
    m.take_any(&["relaxed", "acquire", "release", "acq_rel"]);
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    take_hints(m);
    let operation = m.take_any(&OPERATIONS);
    let operation = m.require(operation)?;
    let noftz = if m.take("noftz") { ".noftz" } else { "" };
    let count = vector_count(m);
    let kind = m.kind()?;
    m.finish()?;
    // Generic addresses are most likely global.
    let flushes = operation == "add" && matches!(kind, Type::F32 | Type::F64) && space != StateSpace::Shared;
    let full = format!("{operation}{noftz}{}", if flushes { ".ftz" } else { "" });
    // Vectors are of floating-point elements, each atomic by itself.
    let is_half = matches!(kind, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2);
    if count > 1 && !(is_half || (kind == Type::F32 && operation == "add")) {
        return Err(m.unsupported());
    }
    let first = usize::from(name == "atom");
    let compares = operation == "cas";
    let pointer = inst.operand(first)?;
    let mut values = Vec::new();
    for operand in elements(f, inst.operand(first + 1)?, count)? {
        values.push(f.source(operand, kind)?);
    }
    let other = if compares { Some(f.source(inst.operand(first + 2)?, kind)?) } else { None };
    let width = Width::of(kind);
    let mut results = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let operand = further(pointer, index * kind.bytes() as usize);
        let result = f.temporary(width);
        let ops = [Arg::Def(result), value, other.unwrap_or(value)];
        update(f, inst, &full, kind, &operand, space, ops)?;
        results.push(result);
    }
    if name == "atom" {
        let copy = inst.modifiers.require(moves::copy(width.bytes()))?;
        let targets = elements(f, inst.operand(0)?, count)?;
        for (operand, result) in targets.iter().zip(results) {
            if *operand != Operand::Name("_") {
                let target = f.target(operand, kind)?;
                f.emit(copy, &[target, Arg::Use(result)]);
            }
        }
    }
    Ok(())
}

/// One atomic operation: result, value and second value of `cas`.
#[expect(clippy::too_many_arguments, reason = "the parts of one instruction")]
pub(super) fn update<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    operation: &str,
    kind: Type,
    pointer: &Operand<'a>,
    space: StateSpace,
    [target, value, other]: [Arg; 3],
) -> Result<(), LoadError> {
    let handler = inst.modifiers.require(atomic::select(operation, kind))?;
    let (register, wide, offset) = match address(f, pointer, kind.bytes())? {
        Address::Register { register, wide, offset } => (register, wide, offset),
        Address::Constant(..) => return Err(inst.modifiers.unsupported()),
    };
    let place = place(f, space);
    let draft = f.emit(handler, &[target, value, other, Arg::None, register]);
    draft.imm = offset as u64;
    draft.aux = place | aux::POLLS | if wide { aux::WIDE_ADDRESS } else { 0 };
    draft.cached = true;
    Ok(())
}
