// SPDX-License-Identifier: Apache-2.0 OR MIT
//! tex, tld4, txq, suld, sust, sured, suq, istypep.

use crate::execute::texture_ops::{self as ops, aux, list};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::{Function, Name};
use crate::lower::linker::SymbolRef;
use crate::lower::operands::Inst;
use crate::ptx::ast::{Base, Operand};
use crate::ptx::types::Type;
use crate::symbols::{LoadError, Reference};

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    match name {
        "tex" | "tld4" => fetch(f, inst, name == "tld4"),
        "suld" | "sust" => surface(f, inst, name == "suld"),
        "sured" => reduction(f, inst),
        "txq" | "suq" => query(f, inst, name == "suq"),
        _ => is_type(f, inst),
    }
}

/// Layers and coordinates of a geometry.
fn geometry(part: &str) -> Option<(bool, usize)> {
    Some(match part {
        "1d" => (false, 1),
        "2d" => (false, 2),
        "3d" | "cube" => (false, 3),
        "a1d" => (true, 1),
        "a2d" => (true, 2),
        "acube" => (true, 3),
        _ => return None,
    })
}

/// The object: a register, a kernel parameter that holds its number, or a reference, whose number is its address.
fn object<'a>(f: &mut Function<'_, 'a>, base: &Base<'a>, kind: Reference) -> Result<Arg, LoadError> {
    let Base::Name(name) = base else { return Err(f.error("a texture or surface is expected")) };
    if let Some((register, Width::B64)) = f.register(name) {
        return Ok(Arg::Use(register));
    }
    if let Some(SymbolRef::Global(index)) = f.symbol(name)
        && f.linker.globals[index].reference == Some(kind)
    {
        return f.address(name, 0, Width::B64);
    }
    let Some(Name::KernelParam(piece)) = f.look_up(name) else {
        return Err(f.error(format!("`{name}` is not a texture or surface object")));
    };
    let offset = u64::from(piece.offset);
    let (kind, bytes) = (crate::execute::load_store::Transfer::Param, 8);
    if piece.bytes < bytes {
        return Err(f.error(format!("`{name}` is too small for an object")));
    }
    let handler = crate::execute::load_store::select_load(kind, bytes, false, bytes)
        .ok_or_else(|| f.error("no load of 64 bits"))?;
    let register = f.temporary(Width::B64);
    f.emit(handler, &[Arg::Def(register)]).imm = offset;
    Ok(Arg::Use(register))
}

/// `count` 32-bit operands of type `kind`; further ones must be there as padding or not at all.
fn vector<'a>(
    f: &mut Function<'_, 'a>,
    operands: &[Operand<'a>],
    count: usize,
    kind: Type,
) -> Result<Vec<Arg>, LoadError> {
    // Vectors have one, two or four elements: three coordinates come with a fourth that does not count.
    if operands.len() != count && operands.len() != count.next_power_of_two() {
        return Err(f.error(format!("{count} coordinates are expected, found {}", operands.len())));
    }
    operands[..count].iter().map(|operand| f.source(operand, kind)).collect()
}

fn fetch<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>, gathers: bool) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let mode = m.take_any(&["level", "grad", "base"]);
    let channel = if gathers { m.take_any(&["r", "g", "b", "a"]) } else { None };
    let geometry = m.take_if(geometry);
    let (layered, dimensions) = m.require(geometry)?;
    let vector_size = m.take_any(&["v4", "v2"]);
    let (result, coordinate) = (m.kind()?, m.kind()?);
    m.finish()?;
    let halves = vector_size == Some("v2") && result == Type::F16x2;
    let words = vector_size == Some("v4") && matches!(result, Type::F32 | Type::U32 | Type::S32);
    let integer = coordinate == Type::S32;
    let coordinates = integer || coordinate == Type::F32;
    if !(halves || words) || !coordinates || gathers != channel.is_some() || (gathers && mode.is_some()) {
        return Err(m.unsupported());
    }
    let (target, resident) = match inst.operand(0)? {
        Operand::VectorPair(list, predicate) => (list, f.target(&Operand::Name(predicate), Type::Pred)?),
        Operand::Vector(list) => (list, Arg::Def(f.temporary(Width::Predicate))),
        _ => return Err(f.error("results in braces are expected")),
    };
    let Operand::Sampled { base, coordinates } = inst.operand(1)? else {
        return Err(inst.modifiers.unsupported());
    };
    let handle = object(f, base, Reference::Texture)?;
    let zero = f.constant(Width::B32, 0);
    let mut more = vec![zero; list::LENGTH];
    let at = match coordinates.last() {
        Some(Operand::Vector(at)) => at.as_slice(),
        // One coordinate may stand without braces.
        Some(single) => std::slice::from_ref(single),
        None => return Err(f.error("coordinates are expected")),
    };
    if coordinates.len() != 1 {
        // A sampler of its own (`.texmode_independent`).
        return Err(inst.modifiers.unsupported());
    }
    let rest = match (layered, at.split_first()) {
        (true, Some((layer, rest))) => {
            more[list::LAYER] = f.source(layer, Type::U32)?;
            // `{layer, x, y, y}`: four in all.
            &rest[..rest.len().min(dimensions)]
        }
        _ => at,
    };
    for (place, arg) in more[list::POINT..].iter_mut().zip(vector(f, rest, dimensions, coordinate)?) {
        *place = arg;
    }
    let mut next = 2;
    match mode {
        Some("level") => {
            more[list::DETAIL] = f.source(inst.operand(2)?, coordinate)?;
            next = 3;
        }
        Some("grad") => {
            for (index, start) in [(2, list::DETAIL), (3, list::DETAIL + 3)] {
                let Operand::Vector(step) = inst.operand(index)? else {
                    return Err(f.error("a gradient in braces is expected"));
                };
                for (place, arg) in more[start..].iter_mut().zip(vector(f, step, dimensions, Type::F32)?) {
                    *place = arg;
                }
            }
            next = 4;
        }
        _ => {}
    }
    // Offsets and depth comparison are not here.
    inst.expect(next)?;
    let count = if halves { 2 } else { 4 };
    if target.len() != count {
        return Err(f.error(format!("{count} results are expected, found {}", target.len())));
    }
    for (index, place) in more.iter_mut().take(4).enumerate() {
        *place = match target.get(index) {
            Some(operand) => f.target(operand, Type::B32)?,
            None => Arg::Def(f.temporary(Width::B32)),
        };
    }
    let channel = ["r", "g", "b", "a"].iter().position(|name| Some(*name) == channel).unwrap_or(0);
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    let draft = f.emit(ops::fetch(), &[resident, handle]);
    draft.more = more;
    draft.aux = flag(integer, aux::INTEGER)
        | flag(mode == Some("level"), aux::LEVEL)
        | flag(mode == Some("grad"), aux::GRADIENT)
        | flag(halves, aux::HALVES)
        | flag(gathers, aux::GATHER)
        | (channel as u32) << aux::CHANNEL_SHIFT;
    Ok(())
}

fn surface<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>, loads: bool) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    // suld.p is not implemented by PTX itself.
    let formatted = !loads && m.take("p");
    if !formatted && !m.take("b") {
        return Err(m.unsupported());
    }
    let geometry = m.take_if(geometry);
    let (layered, dimensions) = m.require(geometry)?;
    m.take_any(&["ca", "cg", "cs", "cv", "wb", "wt"]);
    let count = match m.take_any(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    };
    let kind = m.kind()?;
    let outside = m.take_any(&["trap", "clamp", "zero"]).unwrap_or("trap");
    m.finish()?;
    let plain = matches!(kind, Type::B8 | Type::B16 | Type::B32 | Type::B64);
    let words = matches!(kind, Type::B32 | Type::U32 | Type::S32 | Type::F32);
    if !(if formatted { words } else { plain }) || (count == 4 && kind == Type::B64) {
        return Err(m.unsupported());
    }
    inst.expect(2)?;
    let (pointer, registers) = if loads { (1, 0) } else { (0, 1) };
    let (handle, place) = surface_place(f, inst, pointer, layered, dimensions)?;
    let list = match inst.operand(registers)? {
        Operand::Vector(list) => list.as_slice(),
        single => std::slice::from_ref(single),
    };
    if list.len() != count {
        return Err(f.error(format!("{count} registers are expected, found {}", list.len())));
    }
    let width = Width::of(kind);
    let mut more = Vec::new();
    for operand in list {
        more.push(if loads { f.target_of(operand, width)? } else { f.source(operand, kind)? });
    }
    let handler = match (loads, formatted) {
        (true, _) => ops::load(),
        (false, true) => ops::store_formatted(),
        (false, false) => ops::store(),
    };
    let outside = ["trap", "clamp", "zero"].iter().position(|name| *name == outside).unwrap_or(0);
    let draft = f.emit(handler, &[Arg::None, handle, place[0], place[1], place[2]]);
    draft.more = more;
    draft.aux = (outside as u32) << aux::OUTSIDE_SHIFT
        | kind.bytes().trailing_zeros() << aux::BYTES_SHIFT
        | (count as u32 - 1) << aux::COUNT_SHIFT
        | width.bytes().trailing_zeros() << aux::REGISTER_SHIFT
        | if formatted { aux::FORMATTED } else { 0 };
    Ok(())
}

/// Object and coordinates of a surface operand.
fn surface_place<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    index: usize,
    layered: bool,
    dimensions: usize,
) -> Result<(Arg, [Arg; 3]), LoadError> {
    let Operand::Sampled { base, coordinates } = inst.operand(index)? else {
        return Err(inst.modifiers.unsupported());
    };
    let [Operand::Vector(at)] = coordinates.as_slice() else {
        return Err(f.error("coordinates in braces are expected"));
    };
    let handle = object(f, base, Reference::Surface)?;
    let zero = f.constant(Width::B32, 0);
    let mut place = [zero; 3];
    let rest = match (layered, at.split_first()) {
        (true, Some((layer, rest))) => {
            place[2] = f.source(layer, Type::B32)?;
            &rest[..rest.len().min(dimensions)]
        }
        _ => at.as_slice(),
    };
    for (slot, arg) in place.iter_mut().zip(vector(f, rest, dimensions, Type::B32)?) {
        *slot = arg;
    }
    Ok((handle, place))
}

fn reduction<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let formatted = m.take("p");
    if !formatted && !m.take("b") {
        return Err(m.unsupported());
    }
    let operation = m.take_any(&ops::REDUCTIONS);
    let operation = m.require(operation)?;
    let geometry = m.take_if(geometry).filter(|(layered, _)| !layered);
    let (layered, dimensions) = m.require(geometry)?;
    let kind = m.kind()?;
    let outside = m.take_any(&["trap", "clamp", "zero"]).unwrap_or("trap");
    m.finish()?;
    let bitwise = matches!(operation, "and" | "or");
    let fits = match kind {
        Type::B32 => formatted || bitwise,
        Type::U32 | Type::S32 | Type::U64 | Type::S64 => !formatted && !bitwise,
        _ => false,
    };
    if !fits {
        return Err(m.unsupported());
    }
    inst.expect(2)?;
    let (handle, place) = surface_place(f, inst, 0, layered, dimensions)?;
    let value = f.source(inst.operand(1)?, kind)?;
    let at = |list: &[&str], name: &str| list.iter().position(|known| *known == name).unwrap_or(0) as u32;
    let draft = f.emit(ops::reduce(), &[Arg::None, handle, place[0], place[1], place[2]]);
    draft.more = vec![value];
    draft.aux = at(&["trap", "clamp", "zero"], outside) << aux::OUTSIDE_SHIFT
        | kind.bytes().trailing_zeros() << aux::BYTES_SHIFT
        | kind.bytes().trailing_zeros() << aux::REGISTER_SHIFT
        | at(&ops::REDUCTIONS, operation) << aux::REDUCTION_SHIFT
        | if kind.is_signed() { aux::SIGNED } else { 0 }
        | if formatted { aux::FORMATTED } else { 0 };
    Ok(())
}

fn query<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>, of_surface: bool) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let question = m.take_if(ops::question);
    let question = m.require(question)?;
    if !m.take("b32") {
        return Err(m.unsupported());
    }
    m.finish()?;
    inst.expect(2)?;
    let Operand::Address { base, offset: 0 } = inst.operand(1)? else {
        return Err(inst.modifiers.unsupported());
    };
    let handle = object(f, base, if of_surface { Reference::Surface } else { Reference::Texture })?;
    let target = f.target(inst.operand(0)?, Type::B32)?;
    let of_surface = if of_surface { ops::OF_SURFACE } else { 0 };
    f.emit(ops::query(), &[target, handle]).aux = question | of_surface;
    Ok(())
}

fn is_type<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let names = ["texref", "surfref", "samplerref"];
    let name = m.take_any(&names);
    let name = m.require(name)?;
    m.finish()?;
    inst.expect(2)?;
    let handle = f.source(inst.operand(1)?, Type::B64)?;
    let target = f.target(inst.operand(0)?, Type::Pred)?;
    f.emit(ops::is_type(), &[target, handle]).aux =
        names.iter().position(|known| *known == name).unwrap_or(0) as u32;
    Ok(())
}
