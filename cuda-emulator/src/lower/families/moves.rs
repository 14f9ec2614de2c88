// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mov, cvta, isspacep.

use crate::execute::moves;
use crate::lower::code::window;
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::instruction::with_imm;
use crate::lower::operands::Inst;
use crate::program::LoadError;
use crate::ptx::ast::Operand;
use crate::ptx::types::{StateSpace, Type};

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    match name {
        "mov" => mov(f, inst),
        "cvta" => convert_address(f, inst),
        "isspacep" => is_space(f, inst),
        _ => Err(inst.modifiers.unsupported()),
    }
}

fn mov<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let kind = inst.modifiers.kind()?;
    inst.modifiers.finish()?;
    inst.expect(2)?;
    match (inst.operand(0)?, inst.operand(1)?) {
        (Operand::Vector(parts), source) => unpack(f, inst, kind, parts, source),
        (target, Operand::Vector(parts)) => pack(f, inst, kind, target, parts),
        (target, source) => {
            let source = f.source(source, kind)?;
            let target = f.target(target, kind)?;
            if kind == Type::Pred {
                f.emit(moves::copy_predicate(), &[target, source, source]);
            } else {
                let copy = inst.modifiers.require(moves::copy(f.width(kind)?.bytes()))?;
                f.emit(copy, &[target, source]);
            }
            Ok(())
        }
    }
}

/// The width of one of `count` parts of a type.
fn part<'a>(f: &Function<'_, 'a>, inst: &Inst<'_, 'a>, kind: Type, count: usize) -> Result<Width, LoadError> {
    match (kind.bytes(), count) {
        (4, 2) | (8, 4) => Ok(Width::B16),
        (8, 2) => Ok(Width::B32),
        _ => Err(f.error(format!("`{}` with {count} parts is not supported", inst.ast.opcode))),
    }
}

/// `mov.b64 {a, b}, c`
fn unpack<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    kind: Type,
    parts: &[Operand<'a>],
    source: &Operand<'a>,
) -> Result<(), LoadError> {
    let width = part(f, inst, kind, parts.len())?;
    let source = f.source(source, kind)?;
    for (index, operand) in parts.iter().enumerate() {
        if *operand == Operand::Name("_") {
            continue;
        }
        let handler = inst.modifiers.require(moves::extract(kind.bytes(), width.bytes(), index))?;
        let target = f.target_of(operand, width)?;
        f.emit(handler, &[target, source]);
    }
    Ok(())
}

/// `mov.b64 c, {a, b}`
fn pack<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    kind: Type,
    target: &Operand<'a>,
    parts: &[Operand<'a>],
) -> Result<(), LoadError> {
    let width = part(f, inst, kind, parts.len())?;
    let part_kind = if width == Width::B16 { Type::B16 } else { Type::B32 };
    let mut sources = Vec::new();
    for operand in parts {
        sources.push(f.source(operand, part_kind)?);
    }
    if let [a, b, c, d] = sources[..] {
        let join = inst.modifiers.require(moves::join(2))?;
        let halves = [f.temporary(Width::B32), f.temporary(Width::B32)];
        f.emit(join, &[Arg::Def(halves[0]), a, b]);
        f.emit(join, &[Arg::Def(halves[1]), c, d]);
        sources = halves.map(Arg::Use).to_vec();
    }
    let join = inst.modifiers.require(moves::join(kind.bytes() / 2))?;
    let target = f.target(target, kind)?;
    f.emit(join, &[target, sources[0], sources[1]]);
    Ok(())
}

/// Where a space starts among generic addresses.
fn start(f: &Function<'_, '_>, space: StateSpace) -> u64 {
    match space {
        StateSpace::Shared => window::SHARED,
        StateSpace::Local => window::LOCAL,
        // The parameters of a function lie on its stack.
        StateSpace::Param if f.is_entry => window::PARAM,
        StateSpace::Param => window::LOCAL,
        StateSpace::Generic | StateSpace::Global | StateSpace::Const => 0,
    }
}

fn convert_address<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let to = m.take("to");
    let space = m.take_if(StateSpace::from_name);
    let space = m.require(space)?;
    let kind = m.kind()?;
    if kind.bytes() != 8 {
        return Err(m.unsupported());
    }
    let start = start(f, space);
    let offset = if to { start.wrapping_neg() } else { start };
    with_imm(f, inst, (Some(moves::shift_window()), offset), kind, &[kind])
}

fn is_space<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let space = m.take_if(StateSpace::from_name);
    let space = m.require(space)?;
    let handler = match space {
        StateSpace::Global | StateSpace::Const => moves::in_no_window(),
        _ => moves::in_window(),
    };
    let imm = start(f, space);
    with_imm(f, inst, (Some(handler), imm), Type::Pred, &[Type::B64])
}
