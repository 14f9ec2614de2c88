// SPDX-License-Identifier: Apache-2.0 OR MIT
//! setp, set, selp, slct, testp.

use crate::execute::{bits, compare, moves};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::lower::shapes::{simple, with_imm};
use crate::ptx::ast::{Immediate, Operand};
use crate::ptx::types::Type;
use crate::symbols::LoadError;

const OPERATORS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    match name {
        "setp" => set_predicate(f, inst),
        "set" => set(f, inst),
        "selp" => {
            let kind = m.kind()?;
            let handler = compare::select(kind.bytes()).filter(|_| kind != Type::Pred);
            simple(f, inst, handler, kind, &[kind, kind, Type::Pred])
        }
        "slct" => {
            let flush = m.take("ftz");
            let kind = m.kind()?;
            let condition = m.kind()?;
            let handler = compare::select_by_sign(kind.bytes(), condition, flush);
            simple(f, inst, handler, kind, &[kind, kind, condition])
        }
        _ => {
            let classes = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
            let class = m.take_any(&classes);
            let class = m.require(class)?;
            let kind = m.kind()?;
            simple(f, inst, compare::test_class(class, kind), Type::Pred, &[kind])
        }
    }
}

/// Returns a predicate: the comparison of its operands `first` and `first + 1`, combined with the predicate after
/// them. The second result is the same with the comparison negated.
fn test<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    kind: Type,
    operator: &str,
    flush: bool,
    combination: Option<&str>,
) -> Result<(Arg, Option<Arg>), LoadError> {
    let handler = inst.modifiers.require(compare::compare(operator, kind, flush))?;
    inst.expect(if combination.is_some() { 4 } else { 3 })?;
    let a = f.source(inst.operand(1)?, kind)?;
    let b = f.source(inst.operand(2)?, kind)?;
    let result = f.temporary(Width::Predicate);
    f.emit(handler, &[Arg::Def(result), a, b]).imm = compare::operator_imm(operator).unwrap_or(0);
    let negated = f.temporary(Width::Predicate);
    let wants_both = matches!(inst.operand(0)?, Operand::Pair(..));
    if wants_both {
        let not = inst.modifiers.require(bits::negation("not", Type::Pred))?;
        f.emit(not, &[Arg::Def(negated), Arg::Use(result), Arg::Use(result)]);
    }
    if let Some(combination) = combination {
        let combine = inst.modifiers.require(compare::combine(combination))?;
        let other = f.source(inst.operand(3)?, Type::Pred)?;
        f.emit(combine, &[Arg::Def(result), Arg::Use(result), other]);
        if wants_both {
            f.emit(combine, &[Arg::Def(negated), Arg::Use(negated), other]);
        }
    }
    Ok((Arg::Use(result), wants_both.then_some(Arg::Use(negated))))
}

fn set_predicate<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let operator = m.take_any(&OPERATORS);
    let operator = m.require(operator)?;
    let combination = m.take_any(&["and", "or", "xor"]);
    let flush = m.take("ftz");
    let kind = m.kind()?;
    m.finish()?;
    if matches!(kind, Type::F16x2 | Type::Bf16x2) {
        return set_predicate_pair(f, inst, kind, operator, combination);
    }
    // The shape of nearly all: no combination, one destination.
    if combination.is_none() && matches!(inst.operand(0)?, Operand::Name(_)) {
        let handler = compare::compare(operator, kind, flush);
        let imm = compare::operator_imm(operator).unwrap_or(0);
        return with_imm(f, inst, handler, imm, Type::Pred, &[kind, kind]);
    }
    let (result, negated) = test(f, inst, kind, operator, flush, combination)?;
    match (inst.operand(0)?, negated) {
        (Operand::Pair(first, second), Some(negated)) => {
            let first = f.target(&Operand::Name(first), Type::Pred)?;
            let second = f.target(&Operand::Name(second), Type::Pred)?;
            f.emit(moves::copy_predicate(), &[first, result, result]);
            f.emit(moves::copy_predicate(), &[second, negated, negated]);
        }
        (operand, _) => {
            let target = f.target(operand, Type::Pred)?;
            f.emit(moves::copy_predicate(), &[target, result, result]);
        }
    }
    Ok(())
}

/// Lowers a comparison of f16x2 or bf16x2: one predicate for each half.
fn set_predicate_pair<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    kind: Type,
    operator: &str,
    combination: Option<&str>,
) -> Result<(), LoadError> {
    inst.expect(if combination.is_some() { 4 } else { 3 })?;
    let Operand::Pair(low, high) = inst.operand(0)? else {
        return Err(inst.modifiers.unsupported());
    };
    let a = f.source(inst.operand(1)?, kind)?;
    let b = f.source(inst.operand(2)?, kind)?;
    let other = match combination {
        Some(_) => Some(f.source(inst.operand(3)?, Type::Pred)?),
        None => None,
    };
    for (name, upper) in [(low, false), (high, true)] {
        let handler = inst.modifiers.require(compare::compare_pair(kind, upper))?;
        let imm = inst.modifiers.require(compare::operator_imm(operator))?;
        let result = f.temporary(Width::Predicate);
        f.emit(handler, &[Arg::Def(result), a, b]).imm = imm;
        let target = f.target(&Operand::Name(name), Type::Pred)?;
        match combination.zip(other) {
            Some((combination, other)) => {
                let combine = inst.modifiers.require(compare::combine(combination))?;
                f.emit(combine, &[target, Arg::Use(result), other]);
            }
            None => {
                f.emit(moves::copy_predicate(), &[target, Arg::Use(result), Arg::Use(result)]);
            }
        }
    }
    Ok(())
}

/// set of pairs: 1.0 or all ones in each half.
fn set_pair<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    target: Type,
    kind: Type,
    operator: &str,
    combination: Option<&str>,
) -> Result<(), LoadError> {
    let one = match target {
        Type::F16x2 => 0x3c00,
        Type::Bf16x2 => 0x3f80,
        Type::U32 | Type::S32 => 0xffff,
        _ => return Err(inst.modifiers.unsupported()),
    };
    inst.expect(if combination.is_some() { 4 } else { 3 })?;
    let a = f.source(inst.operand(1)?, kind)?;
    let b = f.source(inst.operand(2)?, kind)?;
    let select = inst.modifiers.require(compare::select(4))?;
    let imm = inst.modifiers.require(compare::operator_imm(operator))?;
    let zero = f.constant(Width::B32, 0);
    let mut parts = [zero; 2];
    for (part, upper) in parts.iter_mut().zip([false, true]) {
        let handler = inst.modifiers.require(compare::compare_pair(kind, upper))?;
        let result = f.temporary(Width::Predicate);
        f.emit(handler, &[Arg::Def(result), a, b]).imm = imm;
        if let Some(combination) = combination {
            let combine = inst.modifiers.require(compare::combine(combination))?;
            let other = f.source(inst.operand(3)?, Type::Pred)?;
            f.emit(combine, &[Arg::Def(result), Arg::Use(result), other]);
        }
        let value = f.temporary(Width::B32);
        let yes = f.constant(Width::B32, if upper { one << 16 } else { one });
        f.emit(select, &[Arg::Def(value), yes, zero, Arg::Use(result)]);
        *part = Arg::Use(value);
    }
    let or = inst.modifiers.require(bits::logic("or", Type::B32))?;
    let place = f.target(inst.operand(0)?, Type::B32)?;
    f.emit(or, &[place, parts[0], parts[1]]);
    Ok(())
}

/// set: all ones or 1.0 for true.
fn set<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let operator = m.take_any(&OPERATORS);
    let operator = m.require(operator)?;
    let combination = m.take_any(&["and", "or", "xor"]);
    let flush = m.take("ftz");
    let target = m.kind()?;
    let kind = m.kind()?;
    m.finish()?;
    if matches!(kind, Type::F16x2 | Type::Bf16x2) {
        return set_pair(f, inst, target, kind, operator, combination);
    }
    let truth = match target {
        Type::U32 | Type::S32 => Operand::Immediate(Immediate::Int(u64::from(u32::MAX))),
        Type::U16 | Type::S16 => Operand::Immediate(Immediate::Int(u64::from(u16::MAX))),
        Type::F32 => Operand::Immediate(Immediate::F32(1.0_f32.to_bits())),
        Type::F16 => Operand::Immediate(Immediate::Int(0x3c00)),
        Type::Bf16 => Operand::Immediate(Immediate::Int(0x3f80)),
        _ => return Err(m.unsupported()),
    };
    let (result, _) = test(f, inst, kind, operator, flush, combination)?;
    let yes = f.source(&truth, target)?;
    let no = f.source(&Operand::Immediate(Immediate::Int(0)), target)?;
    let handler = inst.modifiers.require(compare::select(target.bytes()))?;
    let place = f.target(inst.operand(0)?, target)?;
    f.emit(handler, &[place, yes, no, result]);
    Ok(())
}
