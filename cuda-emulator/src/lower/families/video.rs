// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The video instructions. Their operands may be parts of registers: `%r1.b2`, `%r1.h10`.

use crate::execute::compare::operator_imm;
use crate::execute::scalar_video::{self, PARTS};
use crate::execute::video;
use crate::lower::draft::Arg;
use crate::lower::function::Function;
use crate::lower::modifiers::Modifiers;
use crate::lower::operands::Inst;
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;
use crate::symbols::LoadError;

const COMPARISONS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];
/// The whole register, after the [`PARTS`].
const WHOLE: u64 = PARTS.len() as u64;

/// Returns a register and the suffix after the dot.
fn split<'a>(f: &Function<'_, 'a>, operand: &Operand<'a>) -> (Operand<'a>, Option<&'a str>) {
    let Operand::Name(name) = operand else { return (operand.clone(), None) };
    match name.rsplit_once('.') {
        Some((register, part)) if f.register(name).is_none() && f.register(register).is_some() => {
            (Operand::Name(register), Some(part))
        }
        _ => (operand.clone(), None),
    }
}

/// `bit` if the next type is signed.
fn sign(m: &mut Modifiers<'_>, bit: u64) -> Result<u64, LoadError> {
    match m.kind()? {
        Type::S32 => Ok(bit),
        Type::U32 => Ok(0),
        _ => Err(m.unsupported()),
    }
}

fn comparison(m: &mut Modifiers<'_>) -> Result<u64, LoadError> {
    let name = m.take_any(&COMPARISONS);
    m.require(name.and_then(operator_imm))
}

/// Returns the digits after the first letter, the last one first.
fn digits(text: &str, letter: char, limit: u32) -> Option<Vec<u64>> {
    let digits = text.strip_prefix(letter)?.chars().rev();
    digits.map(|c| c.to_digit(10).filter(|digit| *digit < limit).map(u64::from)).collect()
}

/// The SIMD video instructions.
pub(in crate::lower) fn several<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    use video::imm;
    let m = &mut inst.modifiers;
    let (base, count) = name.split_at(name.len() - 1);
    let four = count == "4";
    let (letter, count) = if four { ('b', 4) } else { ('h', 2) };
    let mut flags = if four { imm::FOUR } else { 0 };
    if base != "vset" {
        flags |= sign(m, imm::SIGNED)?;
    }
    flags |= sign(m, imm::A_SIGNED)? | sign(m, imm::B_SIGNED)?;
    if base == "vset" {
        flags |= comparison(m)? << imm::TEST_SHIFT;
    }
    flags |= if m.take("sat") { imm::SATURATE } else { 0 };
    flags |= if m.take("add") { imm::ADD } else { 0 };
    m.finish()?;
    let handler = inst.modifiers.require(video::select(base))?;
    inst.expect(4)?;
    let (target, mask) = split(f, inst.operand(0)?);
    let written = match mask {
        None => (1 << count) - 1,
        Some(mask) => {
            let digits = digits(mask, letter, count);
            let bits = digits.map(|digits| digits.into_iter().fold(0, |bits, digit| bits | 1 << digit));
            inst.modifiers.require(bits.filter(|bits| *bits != 0))?
        }
    };
    flags |= written << imm::MASK_SHIFT;
    let mut args = [Arg::None; 4];
    for (index, shift) in [(1, imm::FIRST_SHIFT), (2, imm::SECOND_SHIFT)] {
        let (operand, picks) = split(f, inst.operand(index)?);
        let picks = match picks {
            None => (0..u64::from(count)).map(|pick| pick + (index as u64 - 1) * u64::from(count)).collect(),
            Some(picks) => {
                let picks = digits(picks, letter, 2 * count).filter(|picks| picks.len() == count as usize);
                inst.modifiers.require(picks)?
            }
        };
        flags |= picks.into_iter().rev().fold(0, |bits, pick| bits << 4 | pick) << shift;
        args[index] = f.source(&operand, Type::B32)?;
    }
    args[3] = f.source(inst.operand(3)?, Type::B32)?;
    args[0] = f.target(&target, Type::B32)?;
    f.emit(handler, &args).imm = flags;
    Ok(())
}

/// The number of a part, or of all.
fn part(inst: &Inst<'_, '_>, name: Option<&str>) -> Result<u64, LoadError> {
    let Some(name) = name else { return Ok(WHOLE) };
    let found = PARTS.iter().position(|part| *part == name);
    inst.modifiers.require(found.map(|part| part as u64))
}

/// The scalar video instructions.
pub(in crate::lower) fn one<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    use scalar_video::imm;
    let m = &mut inst.modifiers;
    let multiplies = name == "vmad";
    let mut flags = 0;
    if name != "vset" {
        flags |= sign(m, imm::SIGNED)?;
    }
    flags |= sign(m, imm::A_SIGNED)? | sign(m, imm::B_SIGNED)?;
    match name {
        "vset" => flags |= comparison(m)? << imm::TEST_SHIFT,
        "vshl" | "vshr" => {
            let mode = m.take_any(&["clamp", "wrap"]);
            flags |= if m.require(mode)? == "wrap" { imm::WRAP } else { 0 };
        }
        "vmad" => {
            flags |= if m.take("po") { imm::PLUS_ONE } else { 0 };
            flags |= match m.take_any(&["shr7", "shr15"]) {
                Some("shr7") => 7 << imm::SCALE_SHIFT,
                Some(_) => 15 << imm::SCALE_SHIFT,
                None => 0,
            };
        }
        _ => {}
    }
    flags |= if m.take("sat") { imm::SATURATE } else { 0 };
    let second = if multiplies { None } else { m.take_any(&["add", "min", "max"]) };
    flags |= match second {
        None => 0,
        Some("add") => 1 << imm::SECOND_SHIFT,
        Some("min") => 2 << imm::SECOND_SHIFT,
        Some(_) => 3 << imm::SECOND_SHIFT,
    };
    m.finish()?;
    let handler = inst.modifiers.require(scalar_video::select(name))?;
    let (target, in_target) = split(f, inst.operand(0)?);
    let takes_third = multiplies || second.is_some() || in_target.is_some();
    if second.is_some() && in_target.is_some() || multiplies && in_target.is_some() {
        return Err(inst.modifiers.unsupported());
    }
    flags |= part(inst, in_target)? << imm::D_SHIFT;
    inst.expect(if takes_third { 4 } else { 3 })?;
    let mut args = [Arg::None; 4];
    let mut negated = [false; 4];
    for index in 1..inst.count() {
        let (mut operand, name) = split(f, inst.operand(index)?);
        if let (Operand::Minus(register), true) = (&operand, multiplies) {
            negated[index] = true;
            operand = Operand::Name(register);
        }
        if index == 3 && name.is_some() {
            return Err(inst.modifiers.unsupported());
        }
        // A negated register may have a part, too.
        let (operand, inner) = split(f, &operand);
        let number = part(inst, name.or(inner))?;
        flags |= match index {
            1 => number << imm::A_SHIFT,
            2 => number << imm::B_SHIFT,
            _ => 0,
        };
        args[index] = f.source(&operand, Type::B32)?;
    }
    flags |= if negated[1] != negated[2] { imm::NEGATE_PRODUCT } else { 0 };
    flags |= if negated[3] { imm::NEGATE_ADDEND } else { 0 };
    let negations = flags & (imm::NEGATE_PRODUCT | imm::NEGATE_ADDEND | imm::PLUS_ONE);
    if negations.count_ones() > 1 {
        return Err(inst.modifiers.unsupported());
    }
    if !takes_third {
        args[3] = args[2];
    }
    args[0] = f.target(&target, Type::B32)?;
    f.emit(handler, &args).imm = flags;
    Ok(())
}
