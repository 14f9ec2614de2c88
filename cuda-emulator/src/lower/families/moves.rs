// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mov, cvta, isspacep, mapa, getctarank.

use crate::code::window;
use crate::execute::{cluster, moves, special};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::lower::shapes::{simple, with_imm};
use crate::ptx::ast::Operand;
use crate::ptx::types::{StateSpace, Type};
use crate::symbols::LoadError;

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    match name {
        "mov" => mov(f, inst),
        "cvta" => convert_address(f, inst),
        "isspacep" => is_space(f, inst),
        "mapa" => {
            let _ = inst.modifiers.take("shared::cluster");
            let kind = inst.modifiers.kind()?;
            simple(f, inst, cluster::map_address(kind.bytes()), kind, &[kind, Type::U32])
        }
        "getctarank" => rank(f, inst),
        _ => Err(inst.modifiers.unsupported()),
    }
}

fn mov<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let vector = inst.modifiers.take("v4");
    let kind = inst.modifiers.kind()?;
    inst.modifiers.finish()?;
    inst.expect(2)?;
    if vector {
        inst.modifiers.require((kind.bytes() == 4).then_some(()))?;
        return special_vector(f, inst);
    }
    match (inst.operand(0)?, inst.operand(1)?) {
        (Operand::Vector(parts), source) => unpack(f, inst, kind, parts, source),
        (target, Operand::Vector(parts)) => pack(f, inst, kind, target, parts),
        (target, source) => {
            let source = f.source(source, kind)?;
            let target = f.target(target, kind)?;
            if kind == Type::Pred {
                f.emit(moves::copy_predicate(), &[target, source, source]);
            } else {
                let copy = inst.modifiers.require(moves::copy(Width::of(kind).bytes()))?;
                f.emit(copy, &[target, source]);
            }
            Ok(())
        }
    }
}

/// The bytes of one of `count` parts of a type.
fn part<'a>(f: &Function<'_, 'a>, inst: &Inst<'_, 'a>, kind: Type, count: usize) -> Result<u32, LoadError> {
    match (kind.bytes(), count) {
        (2, 2) | (4, 4) => Ok(1),
        (4, 2) | (8, 4) => Ok(2),
        (8, 2) => Ok(4),
        (16, 2) => Ok(8),
        _ => Err(f.error(format!("`{}` with {count} parts is not supported", inst.ast.opcode))),
    }
}

/// The untyped type of that many bytes.
fn untyped(bytes: u32) -> Type {
    match bytes {
        1 => Type::B8,
        2 => Type::B16,
        4 => Type::B32,
        _ => Type::B64,
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
    let bytes = part(f, inst, kind, parts.len())?;
    let source = f.source(source, kind)?;
    for (index, operand) in parts.iter().enumerate() {
        if *operand == Operand::Name("_") {
            continue;
        }
        let handler = inst.modifiers.require(moves::extract(kind.bytes(), bytes, index))?;
        let target = f.target(operand, untyped(bytes))?;
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
    let bytes = part(f, inst, kind, parts.len())?;
    let mut sources = Vec::new();
    for operand in parts {
        sources.push(f.source(operand, untyped(bytes))?);
    }
    if let [a, b, c, d] = sources[..] {
        let join = inst.modifiers.require(moves::join(bytes))?;
        let width = Width::of(untyped(2 * bytes));
        let halves = [f.temporary(width), f.temporary(width)];
        f.emit(join, &[Arg::Def(halves[0]), a, b]);
        f.emit(join, &[Arg::Def(halves[1]), c, d]);
        sources = halves.map(Arg::Use).to_vec();
    }
    let join = inst.modifiers.require(moves::join(kind.bytes() / 2))?;
    let target = f.target(target, kind)?;
    f.emit(join, &[target, sources[0], sources[1]]);
    Ok(())
}

/// `mov.v4.u32 {x, y, z, w}, %tid`
fn special_vector<'a>(f: &mut Function<'_, 'a>, inst: &Inst<'_, 'a>) -> Result<(), LoadError> {
    let (Operand::Vector(targets), Operand::Name(name)) = (inst.operand(0)?, inst.operand(1)?) else {
        return Err(inst.modifiers.unsupported());
    };
    let copy = inst.modifiers.require(moves::copy(4))?;
    for (target, letter) in targets.iter().zip(["x", "y", "z", "w"]) {
        let name = format!("{name}.{letter}");
        let read = name.strip_prefix('%').and_then(special::read).filter(|(_, bytes)| *bytes == 4);
        let Some((handler, _)) = read else {
            return Err(f.error(format!("`{name}` is not defined")));
        };
        let value = f.temporary(Width::B32);
        f.emit(handler, &[Arg::Def(value)]);
        let target = f.target(target, Type::B32)?;
        f.emit(copy, &[target, Arg::Use(value)]);
    }
    Ok(())
}

fn rank<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let _ = inst.modifiers.take("shared::cluster");
    let kind = inst.modifiers.kind()?;
    inst.modifiers.finish()?;
    inst.expect(2)?;
    if !matches!(kind.bytes(), 4 | 8) {
        return Err(inst.modifiers.unsupported());
    }
    let mut address = f.source(inst.operand(1)?, kind)?;
    if let Arg::Use(register) = address {
        address = f.resized(register, Width::of(kind), Width::B64, false)?;
    }
    let own = f.source(&Operand::Name("%cluster_ctarank"), Type::U32)?;
    let target = f.target(inst.operand(0)?, Type::U32)?;
    f.emit(cluster::rank_of(), &[target, address, own, own]);
    Ok(())
}

/// Returns the start of a space among generic addresses.
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
    with_imm(f, inst, Some(moves::shift_window()), offset, kind, &[kind])
}

fn is_space<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let own = m.take_any(&["shared", "shared::cta"]).is_some();
    let space = if own { Some(StateSpace::Shared) } else { m.take_if(StateSpace::from_name) };
    let space = m.require(space)?;
    let handler = match space {
        _ if own => cluster::in_own_window(),
        StateSpace::Global | StateSpace::Const => moves::in_no_window(),
        _ => moves::in_window(),
    };
    let imm = start(f, space);
    with_imm(f, inst, Some(handler), imm, Type::Pred, &[Type::B64])
}
