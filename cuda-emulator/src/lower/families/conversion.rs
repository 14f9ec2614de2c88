// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cvt and cvt.pack.

use crate::execute::convert::{self, Conversion};
use crate::execute::round::Rounding;
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::instruction::{simple, with_imm};
use crate::lower::operands::Inst;
use crate::program::LoadError;
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

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
    let named = m.take_if(|part| Rounding::from_name(part).map(|rounding| (rounding, part.ends_with('i'))));
    let flush = m.take("ftz");
    let saturate = m.take("sat");
    let relu = m.take("relu");
    let to = m.kind()?;
    let from = m.kind()?;
    m.finish()?;
    let (rounding, integral) = named.unwrap_or((Rounding::Nearest, false));
    let how = Conversion { rounding, integral, flush, saturate, relu };
    if matches!(to, Type::F16x2 | Type::Bf16x2) {
        let handler = convert::pack_halves(to).filter(|_| from == Type::F32 && !integral);
        return with_imm(f, inst, (handler, how.imm()), to, &[from, from]);
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
    let own = f.width(to)?;
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
    let own = f.width(kind)?;
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
            with_imm(f, inst, (handler, 0), Type::B32, &[Type::S32, Type::S32, Type::B32])
        }
        _ => Err(m.unsupported()),
    }
}
