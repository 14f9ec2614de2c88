// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Integer, floating-point and half-precision arithmetic.

use crate::execute::carry::{SETS_CARRY, USES_CARRY};
use crate::execute::float::{self, Extremum};
use crate::execute::half::{self, HalfModifiers};
use crate::execute::round::Rounding;
use crate::execute::{carry, integer};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::lower::shapes::{simple, with_imm};
use crate::ptx::types::Type;
use crate::symbols::LoadError;

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    if matches!(name, "dp4a" | "dp2a") {
        return dot_product(f, inst, name);
    }
    let kind = inst.modifiers.kind()?;
    match kind {
        Type::F32 | Type::F64 => floating(f, inst, name, kind),
        Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 => half(f, inst, name, kind),
        Type::U16x2 | Type::S16x2 => {
            let relu = if inst.modifiers.take("relu") { ".relu" } else { "" };
            let handler = integer::binary_pair(&format!("{name}{relu}"), kind);
            simple(f, inst, handler, kind, &[kind, kind])
        }
        _ => whole(f, inst, name, kind),
    }
}

/// A register twice as wide.
fn wide(kind: Type) -> Option<Type> {
    Some(match kind {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}

fn whole<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
    kind: Type,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let sets_carry = m.take("cc");
    let with_carry = match name {
        "addc" => Some("add"),
        "subc" => Some("sub"),
        "madc" => Some("mad"),
        _ if sets_carry => Some(name),
        _ => None,
    };
    if let Some(base) = with_carry {
        return extended(f, inst, base, name != base, sets_carry, kind);
    }
    match name {
        "mul" | "mad" => {
            let part = m.take_any(&["lo", "hi", "wide"]);
            let part = m.require(part)?;
            let saturated = if m.take("sat") { ".sat" } else { "" };
            match (name, part) {
                ("mul", "wide") => {
                    let target = m.require(wide(kind))?;
                    simple(f, inst, integer::multiply_wide(kind), target, &[kind, kind])
                }
                (_, "wide") => {
                    let target = m.require(wide(kind))?;
                    simple(f, inst, integer::multiply_add_wide(kind), target, &[kind, kind, target])
                }
                ("mul", _) => {
                    let handler = integer::binary(&format!("mul.{part}{saturated}"), kind);
                    simple(f, inst, handler, kind, &[kind, kind])
                }
                _ => {
                    let handler = integer::ternary(&format!("mad.{part}{saturated}"), kind);
                    simple(f, inst, handler, kind, &[kind, kind, kind])
                }
            }
        }
        "mul24" | "mad24" => {
            let part = m.take_any(&["lo", "hi"]);
            let part = m.require(part)?;
            let saturated = if m.take("sat") { ".sat" } else { "" };
            let full = format!("{name}.{part}{saturated}");
            if name == "mul24" {
                simple(f, inst, integer::binary(&full, kind), kind, &[kind, kind])
            } else {
                simple(f, inst, integer::ternary(&full, kind), kind, &[kind, kind, kind])
            }
        }
        "sad" => simple(f, inst, integer::ternary(name, kind), kind, &[kind, kind, kind]),
        "abs" | "neg" => simple(f, inst, integer::unary(name, kind), kind, &[kind]),
        "min" | "max" if m.take("relu") => {
            let handler = (kind == Type::S32).then(|| integer::binary_relu(name)).flatten();
            simple(f, inst, handler, kind, &[kind, kind])
        }
        _ => {
            let saturated = if m.take("sat") { ".sat" } else { "" };
            let handler = integer::binary(&format!("{name}{saturated}"), kind);
            simple(f, inst, handler, kind, &[kind, kind])
        }
    }
}

fn extended<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    base: &str,
    uses: bool,
    sets: bool,
    kind: Type,
) -> Result<(), LoadError> {
    let mut full = base.to_owned();
    if base == "mad" {
        let part = inst.modifiers.take_any(&["lo", "hi"]);
        full = format!("mad.{}", inst.modifiers.require(part)?);
    }
    inst.modifiers.finish()?;
    let handler = inst.modifiers.require(carry::select(&full, kind))?;
    let count = if base == "mad" { 3 } else { 2 };
    inst.expect(count + 1)?;
    let a = f.source(inst.operand(1)?, kind)?;
    let b = f.source(inst.operand(2)?, kind)?;
    let c = if count == 3 { f.source(inst.operand(3)?, kind)? } else { b };
    let target = f.target(inst.operand(0)?, kind)?;
    let draft = f.emit(handler, &[target, a, b, c]);
    draft.aux = if uses { USES_CARRY } else { 0 } | if sets { SETS_CARRY } else { 0 };
    Ok(())
}

fn dot_product<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>, name: &str) -> Result<(), LoadError> {
    let part = inst.modifiers.take_any(&["lo", "hi"]);
    let full = part.map_or(name.to_owned(), |part| format!("{name}.{part}"));
    let first = inst.modifiers.kind()?;
    let second = inst.modifiers.kind()?;
    let sum = if first == Type::S32 || second == Type::S32 { Type::S32 } else { Type::U32 };
    let handler = integer::dot_product(&full, first, second);
    simple(f, inst, handler, sum, &[Type::B32, Type::B32, sum])
}

fn floating<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
    kind: Type,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let approximate = m.take_any(&["approx", "full"]);
    let rounding = m.take_if(|part| Rounding::from_name(part).filter(|_| !part.ends_with('i')));
    let flush = m.take("ftz");
    let saturate = m.take("sat");
    let modifiers = float::Modifiers { rounding: rounding.unwrap_or(Rounding::Nearest), flush, saturate };
    let imm = modifiers.imm();
    if approximate.is_some() && (rounding.is_some() || saturate) {
        return Err(m.unsupported());
    }
    match name {
        "add" | "sub" | "mul" => {
            let handler = float::binary(name, kind, modifiers);
            with_imm(f, inst, handler, imm, kind, &[kind, kind])
        }
        "div" if approximate.is_some() => {
            simple(f, inst, float::divide_approximately(kind, flush), kind, &[kind, kind])
        }
        "div" => with_imm(f, inst, float::binary(name, kind, modifiers), imm, kind, &[kind, kind]),
        "fma" | "mad" => {
            let handler = float::multiply_add(kind, modifiers);
            with_imm(f, inst, handler, imm, kind, &[kind, kind, kind])
        }
        "sqrt" | "rcp" if approximate.is_none() => {
            with_imm(f, inst, float::root(name, kind, modifiers), imm, kind, &[kind])
        }
        "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => {
            if approximate != Some("approx") {
                return Err(m.unsupported());
            }
            simple(f, inst, float::approximate(name, kind, flush), kind, &[kind])
        }
        "abs" | "neg" => simple(f, inst, float::sign(name, kind, flush), kind, &[kind]),
        "copysign" => simple(f, inst, float::copy_sign(kind), kind, &[kind, kind]),
        "min" | "max" => {
            let propagate = m.take("NaN");
            let xor_sign = m.take("xorsign");
            if xor_sign && !m.take("abs") {
                return Err(m.unsupported());
            }
            let how = Extremum { max: name == "max", flush, propagate, xor_sign };
            let handler = float::extremum(kind, how).filter(|_| !saturate && rounding.is_none());
            with_imm(f, inst, handler, how.imm(), kind, &[kind, kind])
        }
        _ => Err(m.unsupported()),
    }
}

fn half<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
    kind: Type,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    // The only rounding there is; `.approx` comes with ex2 and tanh.
    m.take("rn");
    let approximate = m.take("approx");
    let modifiers = HalfModifiers {
        flush: m.take("ftz"),
        saturate: m.take("sat"),
        relu: m.take("relu"),
        propagate: m.take("NaN"),
        xor_sign: m.take("xorsign"),
    };
    if modifiers.xor_sign != m.take("abs") {
        return Err(m.unsupported());
    }
    if approximate != matches!(name, "ex2" | "tanh") {
        return Err(m.unsupported());
    }
    match name {
        "fma" => {
            let handler = half::multiply_add(kind, modifiers).filter(|_| !modifiers.xor_sign);
            with_imm(f, inst, handler, modifiers.imm(), kind, &[kind, kind, kind])
        }
        "abs" | "neg" | "ex2" | "tanh" => {
            simple(f, inst, half::unary(name, kind, modifiers.flush), kind, &[kind])
        }
        _ => {
            let handler = half::binary(name, kind, modifiers);
            with_imm(f, inst, handler, modifiers.imm(), kind, &[kind, kind])
        }
    }
}
