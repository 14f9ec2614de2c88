// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cvt and cvt.pack.

use crate::execute::convert::{self, Conversion};
use crate::execute::round::Rounding;
use crate::execute::tiny_float;
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::lower::shapes::{simple, with_imm};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;
use crate::symbols::LoadError;

fn is_floating(kind: Type) -> bool {
    matches!(kind, Type::F16 | Type::Bf16 | Type::F32 | Type::F64)
}

fn is_integer(kind: Type) -> bool {
    kind.is_signed() || matches!(kind, Type::U8 | Type::U16 | Type::U32 | Type::U64)
}

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    if m.take("pack") {
        return pack(f, inst);
    }
    if m.take("tf32") {
        return to_tf32(f, inst);
    }
    if let Some(tiny) = m.take_any(&["e4m3x2", "e5m2x2"]) {
        return tiny_floats(f, inst, tiny);
    }
    let named = m.take_if(|part| Rounding::from_name(part).map(|rounding| (rounding, part.ends_with('i'))));
    let flush = m.take("ftz");
    let saturate = m.take("sat");
    let relu = m.take("relu");
    let limit = m.take("satfinite");
    let to = m.kind()?;
    let from = m.kind()?;
    m.finish()?;
    if limit {
        let halves = matches!(to, Type::F16x2 | Type::Bf16x2);
        let rounding = named.map(|(rounding, _)| rounding).unwrap_or(Rounding::Nearest);
        let how = Conversion { rounding, integral: false, flush, saturate, relu };
        let handler = if from != Type::F32 || saturate {
            None
        } else if halves {
            convert::pack_halves(to)
        } else {
            convert::float(to, from, how)
        };
        let handler = inst.modifiers.require(handler)?;
        let finish = inst.modifiers.require(tiny_float::limit_halves(to))?;
        inst.expect(if halves { 3 } else { 2 })?;
        let a = f.source(inst.operand(1)?, from)?;
        let b = if halves { f.source(inst.operand(2)?, from)? } else { a };
        let target = f.target(inst.operand(0)?, to)?;
        let value = f.temporary(Width::of(to));
        f.emit(handler, &[Arg::Def(value), a, b, b]).imm = how.imm();
        f.emit(finish, &[target, Arg::Use(value)]);
        return Ok(());
    }
    let (rounding, integral) = named.unwrap_or((Rounding::Nearest, false));
    let how = Conversion { rounding, integral, flush, saturate, relu };
    if matches!(to, Type::F16x2 | Type::Bf16x2) {
        let handler = convert::pack_halves(to).filter(|_| from == Type::F32 && !integral);
        return with_imm(f, inst, handler, how.imm(), to, &[from, from]);
    }
    let handler = match (is_floating(to), is_floating(from)) {
        (true, true) => convert::float(to, from, how),
        (true, false) => convert::from_integer(to, from, how),
        // Out of range values are clamped with or without `.sat`.
        (false, true) => convert::to_integer(to, from, Conversion { saturate: false, ..how }),
        (false, false) => convert::integer(to, from, saturate),
    };
    let handler = inst.modifiers.require(handler)?;
    inst.expect(2)?;
    let source = source(f, inst.operand(1)?, from)?;
    let imm = how.imm() & !if is_integer(to) { SATURATE } else { 0 };
    let own = Width::of(to);
    if *inst.operand(0)? == Operand::Name("_") {
        return Ok(());
    }
    let (register, found) = f.any_register(inst.operand(0)?)?;
    if found == own {
        f.emit(handler, &[Arg::Def(register), source, source, source]).imm = imm;
        return Ok(());
    }
    // A destination that is wider than the type takes the value extended.
    if found.bytes() < own.bytes() || found == Width::Predicate || !is_integer(to) {
        return Err(f.error(format!("the destination of `{}` is a {found:?} register", inst.ast.opcode)));
    }
    let value = f.temporary(own);
    f.emit(handler, &[Arg::Def(value), source, source, source]).imm = imm;
    let wide = f.resized(value, own, found, to.is_signed())?;
    let copy = inst.modifiers.require(crate::execute::moves::copy(found.bytes()))?;
    f.emit(copy, &[Arg::Def(register), wide]);
    Ok(())
}

/// The bit of [`Conversion::imm`] for saturation.
const SATURATE: u64 = 8;

/// The source in a register of its type's own width, 8-bit integers extended to 16.
fn source<'a>(f: &mut Function<'_, 'a>, operand: &Operand<'a>, kind: Type) -> Result<Arg, LoadError> {
    let own = Width::of(kind);
    let name = match operand {
        Operand::Name(name) => f.register(name),
        _ => None,
    };
    let Some((register, found)) = name else { return f.source(operand, kind) };
    if found == own && kind.bytes() != 1 {
        return Ok(Arg::Use(register));
    }
    if found == Width::Predicate || found.bytes() < own.bytes() {
        return Err(f.error(format!("the source is a {found:?} register, {kind:?} is needed")));
    }
    let handler = convert::extend(found.bytes(), kind.bytes() * 8, kind.is_signed(), own.bytes())
        .ok_or_else(|| f.error(format!("a {found:?} register cannot be read as {kind:?}")))?;
    let value = f.temporary(own);
    f.emit(handler, &[Arg::Def(value), Arg::Use(register)]);
    Ok(Arg::Use(value))
}

/// `cvt.pack.sat.u16.s32 d, a, b` and `cvt.pack.sat.u8.s32.b32 d, a, b, c`.
fn pack<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    if !m.take("sat") {
        return Err(m.unsupported());
    }
    if let Some(name) = m.take_any(&["u2", "s2", "u4", "s4"]) {
        let (from, rest) = (m.kind()?, m.kind()?);
        let bits = if name.ends_with('2') { 2 } else { 4 };
        let fits = from == Type::S32 && rest == Type::B32;
        let handler = tiny_float::pack_fields(bits, name.starts_with('s')).filter(|_| fits);
        return with_imm(f, inst, handler, 0, Type::B32, &[Type::S32, Type::S32, Type::B32]);
    }
    let to = m.kind()?;
    let from = m.kind()?;
    if from != Type::S32 {
        return Err(m.unsupported());
    }
    match to {
        Type::U16 | Type::S16 => {
            let handler = convert::pack_shorts(to == Type::S16);
            simple(f, inst, Some(handler), Type::B32, &[Type::S32, Type::S32])
        }
        Type::U8 | Type::S8 => {
            let third = m.kind()?;
            let handler = (third == Type::B32).then(|| convert::pack_bytes(to == Type::S8));
            with_imm(f, inst, handler, 0, Type::B32, &[Type::S32, Type::S32, Type::B32])
        }
        _ => Err(m.unsupported()),
    }
}

/// cvt.tf32.f32.
fn to_tf32<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let mode = m.take_any(&["rna", "rn", "rz"]);
    let mode = m.require(mode)?;
    let (finite, relu) = (m.take("satfinite"), m.take("relu"));
    let from = m.kind()?;
    let handler = tiny_float::to_tf32(mode, relu, finite).filter(|_| from == Type::F32);
    simple(f, inst, handler, Type::B32, &[from])
}

/// cvt to and from pairs of 8-bit floats.
fn tiny_floats<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>, tiny: &str) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let nearest = m.take("rn");
    let finite = m.take("satfinite");
    let relu = m.take("relu");
    let other = m.kind()?;
    m.finish()?;
    if !nearest {
        return Err(m.unsupported());
    }
    let imm = if relu { tiny_float::RELU } else { 0 };
    match (other, finite) {
        (Type::F32, true) => {
            with_imm(f, inst, tiny_float::pack(tiny), imm, Type::B16, &[Type::F32, Type::F32])
        }
        (Type::F16x2, true) => with_imm(f, inst, tiny_float::pack_halves(tiny), imm, Type::B16, &[other]),
        (Type::F16x2, false) => simple(f, inst, tiny_float::unpack(tiny, relu), other, &[Type::B16]),
        _ => Err(m.unsupported()),
    }
}
