// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logic, shifts, bit fields and bytes.

use crate::execute::{bits, compare, integer, moves};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::lower::shapes::simple;
use crate::ptx::ast::{Immediate, Operand};
use crate::ptx::types::Type;
use crate::symbols::LoadError;

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    match name {
        "and" | "or" | "xor" => {
            let kind = m.kind()?;
            simple(f, inst, bits::logic(name, kind), kind, &[kind, kind])
        }
        "not" => {
            let kind = m.kind()?;
            if kind != Type::Pred {
                return simple(f, inst, bits::negation(name, kind), kind, &[kind]);
            }
            m.finish()?;
            inst.expect(2)?;
            let handler = inst.modifiers.require(bits::negation(name, kind))?;
            let source = f.source(inst.operand(1)?, kind)?;
            let target = f.target(inst.operand(0)?, kind)?;
            f.emit(handler, &[target, source, source]);
            Ok(())
        }
        "cnot" => {
            let kind = m.kind()?;
            simple(f, inst, bits::negation(name, kind), kind, &[kind])
        }
        "shl" | "shr" => {
            let kind = m.kind()?;
            simple(f, inst, bits::shift(name, kind), kind, &[kind, Type::U32])
        }
        "shf" => {
            let left = m.take_any(&["l", "r"]);
            let left = m.require(left)? == "l";
            let wrap = m.take_any(&["wrap", "clamp"]);
            let wrap = m.require(wrap)? == "wrap";
            let kind = m.kind()?;
            let handler = (kind == Type::B32).then(|| bits::funnel_shift(left, wrap));
            simple(f, inst, handler, kind, &[kind, kind, Type::U32])
        }
        "lop3" => lop3(f, inst),
        "prmt" => {
            m.take("b32");
            let mode = m.take_any(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]);
            simple(f, inst, bits::permute(mode), Type::B32, &[Type::B32; 3])
        }
        "popc" | "clz" => {
            let kind = m.kind()?;
            simple(f, inst, bits::count(name, kind), Type::U32, &[kind])
        }
        "brev" => {
            let kind = m.kind()?;
            simple(f, inst, bits::count(name, kind), kind, &[kind])
        }
        "bfind" => {
            let shift_amount = m.take("shiftamt");
            let kind = m.kind()?;
            simple(f, inst, bits::find_highest(kind, shift_amount), Type::U32, &[kind])
        }
        "bfe" => {
            let kind = m.kind()?;
            simple(f, inst, bits::extract_field(kind), kind, &[kind, Type::U32, Type::U32])
        }
        "bfi" => insert_field(f, inst),
        "fns" => {
            m.take("b32");
            simple(f, inst, Some(bits::find_nth_set()), Type::B32, &[Type::B32, Type::B32, Type::S32])
        }
        "szext" => {
            let mode = m.take_any(&["wrap", "clamp"]);
            let wrap = m.require(mode)? == "wrap";
            let kind = m.kind()?;
            simple(f, inst, bits::extend(kind, wrap), kind, &[kind, Type::U32])
        }
        "bmsk" => {
            let mode = m.take_any(&["wrap", "clamp"]);
            let wrap = m.require(mode)? == "wrap";
            m.take("b32");
            simple(f, inst, Some(bits::bit_mask(wrap)), Type::B32, &[Type::U32, Type::U32])
        }
        _ => Err(m.unsupported()),
    }
}

fn lop3<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let combination = inst.modifiers.take_any(&["or", "and", "xor"]);
    inst.modifiers.take("b32");
    inst.modifiers.finish()?;
    inst.expect(if combination.is_some() { 6 } else { 5 })?;
    let Operand::Immediate(Immediate::Int(table @ 0..=255)) = inst.operand(4)? else {
        return Err(f.error("the truth table of lop3 must be a literal of 0 to 255"));
    };
    let a = f.source(inst.operand(1)?, Type::B32)?;
    let b = f.source(inst.operand(2)?, Type::B32)?;
    let c = f.source(inst.operand(3)?, Type::B32)?;
    let Some(combination) = combination else {
        let target = f.target(inst.operand(0)?, Type::B32)?;
        f.emit(integer::lop3(), &[target, a, b, c]).imm = *table;
        return Ok(());
    };
    // `d|p`: whether the result is not zero, combined with another predicate.
    let Operand::Pair(value, predicate) = inst.operand(0)? else {
        return Err(f.error("a register and a predicate are expected"));
    };
    let other = f.source(inst.operand(5)?, Type::Pred)?;
    let target = f.target(&Operand::Name(value), Type::B32)?;
    let predicate = f.target(&Operand::Name(predicate), Type::Pred)?;
    let result = f.temporary(Width::B32);
    f.emit(integer::lop3(), &[Arg::Def(result), a, b, c]).imm = *table;
    let compare = inst.modifiers.require(compare::compare("ne", Type::B32, false))?;
    let combine = inst.modifiers.require(compare::combine(combination))?;
    let copy = inst.modifiers.require(moves::copy(4))?;
    let zero = f.constant(Width::B32, 0);
    let any = f.temporary(Width::Predicate);
    f.emit(compare, &[Arg::Def(any), Arg::Use(result), zero, zero]);
    f.emit(combine, &[predicate, Arg::Use(any), other]);
    f.emit(copy, &[target, Arg::Use(result)]);
    Ok(())
}

fn insert_field<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let kind = inst.modifiers.kind()?;
    inst.modifiers.finish()?;
    inst.expect(5)?;
    let handler = inst.modifiers.require(bits::insert_field(kind))?;
    let a = f.source(inst.operand(1)?, kind)?;
    let b = f.source(inst.operand(2)?, kind)?;
    let start = f.source(inst.operand(3)?, Type::U32)?;
    let length = f.source(inst.operand(4)?, Type::U32)?;
    let field = f.temporary(Width::B32);
    f.emit(bits::pack_field(kind), &[Arg::Def(field), start, length]);
    let target = f.target(inst.operand(0)?, kind)?;
    f.emit(handler, &[target, a, b, Arg::Use(field)]);
    Ok(())
}
