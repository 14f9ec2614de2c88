// SPDX-License-Identifier: Apache-2.0 OR MIT
//! wgmma.

use super::tensor::{list, size};
use crate::code::fragment::Element;
use crate::execute::control;
use crate::execute::warpgroup::{self, Product};
use crate::lower::draft::Width;
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::ptx::ast::{Immediate, Operand};
use crate::ptx::types::Type;
use crate::symbols::LoadError;

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let action = m.take_any(&["mma_async", "fence", "commit_group", "wait_group"]);
    let action = m.require(action)?;
    if !m.take("sync") || !m.take("aligned") {
        return Err(m.unsupported());
    }
    if action == "mma_async" {
        return multiply(f, inst);
    }
    m.finish()?;
    // A product is complete when its warp goes on.
    let handler = if action == "wait_group" {
        inst.expect(1)?;
        warpgroup::wait()
    } else {
        control::nothing()
    };
    f.emit(handler, &[]);
    Ok(())
}

/// The numbers of columns: multiples of 8, of integers those of 16 from 32 on, and 8 and 24.
fn has_columns(columns: usize, a: Element) -> bool {
    let step = if a.is_integer() && columns > 32 { 16 } else { 8 };
    (8..=256).contains(&columns) && columns.is_multiple_of(step)
}

/// Returns whether A and B may be multiplied, and the sums be of type `d`.
fn fits(d: Element, a: Element, b: Element) -> bool {
    use Element::*;
    match (a, b) {
        (F16, F16) | (E4m3 | E5m2, E4m3 | E5m2) => matches!(d, F16 | F32),
        (Bf16, Bf16) | (Tf32, Tf32) => d == F32,
        (S8 | U8, S8 | U8) | (B1, B1) => d == S32,
        _ => false,
    }
}

fn multiply<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let found = m.take_if(size);
    let [rows, columns, depth] = m.require(found)?;
    let saturate = m.take("satfinite");
    let counts_bits = m.take("and") && m.take("popc");
    let mut types = Vec::new();
    while let Some(element) = m.take_if(Element::from_name) {
        types.push(element);
    }
    m.finish()?;
    let [d, a, b] = types[..] else { return Err(m.unsupported()) };
    let known = rows == 64 && depth * a.bits() == 256 && has_columns(columns, a) && fits(d, a, b);
    let bytes = matches!(a, Element::S8 | Element::U8);
    if !known || (saturate && !bytes) || counts_bits != (a == Element::B1) {
        return Err(m.unsupported());
    }
    let held = matches!(inst.operand(1)?, Operand::Vector(_));
    // After D, A, B and the predicate: signs of floats, then the orders of 16-bit elements in memory.
    let signs = if a.is_integer() { 0 } else { 2 };
    let orders = if a.bits() == 16 { if held { 1 } else { 2 } } else { 0 };
    inst.expect(4 + signs + orders)?;
    let mut numbers = Vec::new();
    for index in 4..4 + signs + orders {
        let Operand::Immediate(Immediate::Int(bits)) = inst.operand(index)? else {
            return Err(f.error("a literal is expected"));
        };
        let value = bits.cast_signed();
        let allowed = if index < 4 + signs { [1, -1] } else { [0, 1] };
        if !allowed.contains(&value) {
            return Err(f.error(format!("{value} is not one of {allowed:?}")));
        }
        numbers.push(value);
    }
    let (signs, orders) = numbers.split_at(signs);
    let product = Product {
        columns,
        a,
        b,
        d,
        held,
        negated: signs.iter().product::<i64>() < 0,
        a_by_rows: !held && orders.first() == Some(&1),
        b_by_columns: orders.last() == Some(&1),
        saturate,
    };
    let [in_a, in_d] = product.registers();
    let registers = list(f, inst.operand(0)?, in_d)?;
    let mut more = Vec::new();
    for operand in registers {
        more.push(f.target(operand, Type::B32)?);
    }
    let mut memory = f.constant(Width::B64, 0);
    if held {
        for operand in list(f, inst.operand(1)?, in_a)? {
            more.push(f.source(operand, Type::B32)?);
        }
    } else {
        memory = f.source(inst.operand(1)?, Type::B64)?;
    }
    for operand in registers {
        more.push(f.source(operand, Type::B32)?);
    }
    let descriptor = f.source(inst.operand(2)?, Type::B64)?;
    let accumulates = f.source(inst.operand(3)?, Type::Pred)?;
    let draft = f.emit(warpgroup::multiply(product), &[memory, descriptor, accumulates]);
    draft.more = more;
    draft.aux = product.pack();
    Ok(())
}
