// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mma, wmma, ldmatrix, stmatrix, movmatrix.

use super::memory::{Address, address, place};
use crate::code::fragment::{BitOperation, Element, Matrices, Role, Shape};
use crate::execute::access::aux;
use crate::execute::{matrix_memory, quad_tensor, tensor};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::modifiers::Modifiers;
use crate::lower::operands::Inst;
use crate::lower::shapes::simple;
use crate::ptx::ast::Operand;
use crate::ptx::types::{StateSpace, Type};
use crate::symbols::LoadError;

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let moves = if name == "wmma" { m.take_any(&["load", "store"]) } else { None };
    // `wmma.mma.xor.popc.sync`: the order of the parts does not matter.
    m.take("mma");
    if !m.take("sync") || !m.take("aligned") {
        return Err(m.unsupported());
    }
    match (name, moves) {
        ("mma", _) => multiply(f, inst, false),
        ("wmma", None) => multiply(f, inst, true),
        ("wmma", Some(direction)) => tile(f, inst, direction == "load"),
        ("movmatrix", _) => {
            if !(m.take("m8n8") && m.take("trans") && m.take("b16")) {
                return Err(m.unsupported());
            }
            simple(f, inst, Some(matrix_memory::transpose()), Type::B32, &[Type::B32])
        }
        _ => rows(f, inst, name == "ldmatrix"),
    }
}

/// `m16n8k16` as three numbers.
pub(super) fn size(part: &str) -> Option<[usize; 3]> {
    let (m, rest) = part.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
}

/// The shapes of `mma` that are executed, by the type of A.
fn is_mma(size: [usize; 3], a: Element) -> bool {
    match a {
        Element::F16 | Element::Bf16 => matches!(size, [16, 8, 8 | 16]),
        Element::Tf32 => matches!(size, [16, 8, 4 | 8]),
        Element::F64 => matches!(size, [8, 8, 4] | [16, 8, 4 | 8 | 16]),
        Element::S8 | Element::U8 => matches!(size, [8, 8, 16] | [16, 8, 16 | 32]),
        Element::E4m3 | Element::E5m2 => matches!(size, [16, 8, 16 | 32]),
        Element::S4 | Element::U4 => matches!(size, [8, 8, 32] | [16, 8, 32 | 64]),
        Element::B1 => matches!(size, [8, 8, 128] | [16, 8, 128 | 256]),
        Element::F32 | Element::S32 => false,
    }
}

/// The shapes of `wmma`.
fn is_wmma(size: [usize; 3], a: Element) -> bool {
    match a {
        Element::F16 | Element::Bf16 | Element::S8 | Element::U8 => {
            matches!(size, [16, 16, 16] | [32, 8, 16] | [8, 32, 16])
        }
        Element::Tf32 => size == [16, 16, 8],
        Element::F64 => size == [8, 8, 4],
        Element::S4 | Element::U4 => size == [8, 8, 32],
        Element::B1 => size == [8, 8, 128],
        Element::E4m3 | Element::E5m2 | Element::F32 | Element::S32 => false,
    }
}

/// Returns whether A and B may be multiplied, and the accumulators take the result.
fn fits(shape: &Shape) -> bool {
    use Element::*;
    let pair = match (shape.a, shape.b) {
        (S8 | U8, S8 | U8) | (S4 | U4, S4 | U4) | (E4m3 | E5m2, E4m3 | E5m2) => true,
        (a, b) => a == b,
    };
    let sums = match shape.a {
        F16 | E4m3 | E5m2 => matches!((shape.c, shape.d), (F16 | F32, F16 | F32)),
        Bf16 | Tf32 => (shape.c, shape.d) == (F32, F32),
        F64 => (shape.c, shape.d) == (F64, F64),
        _ => (shape.c, shape.d) == (S32, S32),
    };
    pair && sums && (shape.bits != BitOperation::None) == (shape.a == B1)
}

fn bit_operation(m: &mut Modifiers<'_>) -> BitOperation {
    match m.take_any(&["xor", "and"]) {
        Some(operation) if m.take("popc") => {
            if operation == "xor" {
                BitOperation::Xor
            } else {
                BitOperation::And
            }
        }
        _ => BitOperation::None,
    }
}

/// The registers of a fragment in `wmma`: f16 has eight whatever the shape.
fn wmma_registers(shape: &Shape, role: Role, element: Element) -> usize {
    if element == Element::F16 && role != Role::C { 8 } else { shape.fragment(role, element).registers }
}

fn add(f: &mut Function<'_, '_>, shape: Shape) -> u32 {
    let known = f.linker.matrices.iter().position(|matrices| matrices.shape == shape);
    known.unwrap_or_else(|| {
        f.linker.matrices.push(Matrices::new(shape));
        f.linker.matrices.len() - 1
    }) as u32
}

fn element_type(element: Element) -> Type {
    if element == Element::F64 { Type::F64 } else { Type::B32 }
}

/// The `count` registers in braces.
pub(super) fn list<'i, 'a>(
    f: &Function<'_, 'a>,
    operand: &'i Operand<'a>,
    count: usize,
) -> Result<&'i [Operand<'a>], LoadError> {
    let list = match operand {
        Operand::Vector(list) => list.as_slice(),
        single => std::slice::from_ref(single),
    };
    if list.len() != count {
        return Err(f.error(format!("{count} registers are expected, found {}", list.len())));
    }
    Ok(list)
}

fn multiply<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>, wmma: bool) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let bits = bit_operation(m);
    let layouts = [m.take_any(&["row", "col"]), m.take_any(&["row", "col"])];
    let [rows, columns, depth] = {
        let size = m.take_if(size);
        m.require(size)?
    };
    let saturate = m.take("satfinite");
    m.take("rn");
    let mut types = Vec::new();
    while let Some(element) = m.take_if(Element::from_name) {
        types.push(element);
    }
    m.finish()?;
    if let ([8, 8, 4], false, [d, Element::F16, Element::F16, c], false) =
        ([rows, columns, depth], wmma, &types[..], saturate)
    {
        return quads(f, inst, layouts, *d, *c);
    }
    let (d, a, b, c) = match types[..] {
        [d, a, b, c] => (d, a, b, c),
        // f16 leaves out the types of A and B.
        [d, c] if wmma => (d, Element::F16, Element::F16, c),
        _ => return Err(m.unsupported()),
    };
    let mut shape = Shape { m: rows, n: columns, k: depth, a, b, c, d, saturate, bits, registers: [0; 4] };
    let size = [rows, columns, depth];
    let known =
        if wmma { is_wmma(size, a) } else { is_mma(size, a) && layouts == [Some("row"), Some("col")] };
    let saturates = !saturate || (a.is_integer() && a != Element::B1);
    if !known || !fits(&shape) || layouts.contains(&None) || !saturates {
        return Err(m.unsupported());
    }
    let count = |role: Role, element: Element| {
        if wmma { wmma_registers(&shape, role, element) } else { shape.fragment(role, element).registers }
    };
    shape.registers = [count(Role::A, a), count(Role::B, b), count(Role::C, c), count(Role::C, d)];
    inst.expect(4)?;
    let mut sources = Vec::new();
    for (index, (element, count)) in [(a, 0), (b, 1), (c, 2)].into_iter().enumerate() {
        for operand in list(f, inst.operand(index + 1)?, shape.registers[count])? {
            sources.push(f.source(operand, element_type(element))?);
        }
    }
    let mut more = Vec::new();
    for operand in list(f, inst.operand(0)?, shape.registers[3])? {
        more.push(f.target(operand, element_type(d))?);
    }
    more.extend(sources);
    let index = add(f, shape);
    let draft = f.emit(tensor::multiply(&shape), &[]);
    draft.aux = index;
    draft.more = more;
    Ok(())
}

/// mma.m8n8k4 of f16: four concurrent products, each of eight lanes.
fn quads<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    layouts: [Option<&str>; 2],
    d: Element,
    c: Element,
) -> Result<(), LoadError> {
    let registers = |element: Element| match element {
        Element::F16 => Some(4),
        Element::F32 => Some(8),
        _ => None,
    };
    let counts = registers(d).zip(registers(c)).filter(|_| !layouts.contains(&None));
    let (in_d, in_c) = inst.modifiers.require(counts)?;
    inst.expect(4)?;
    let mut sources = Vec::new();
    for (index, count) in [(1, 2), (2, 2), (3, in_c)] {
        for operand in list(f, inst.operand(index)?, count)? {
            sources.push(f.source(operand, Type::B32)?);
        }
    }
    let mut more = Vec::new();
    for operand in list(f, inst.operand(0)?, in_d)? {
        more.push(f.target(operand, Type::B32)?);
    }
    more.extend(sources);
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    let draft = f.emit(quad_tensor::multiply(), &[]);
    draft.more = more;
    draft.aux = flag(layouts[0] == Some("col"), quad_tensor::A_BY_COLUMN)
        | flag(layouts[1] == Some("col"), quad_tensor::B_BY_COLUMN)
        | flag(c == Element::F32, quad_tensor::C_WIDE)
        | flag(d == Element::F32, quad_tensor::D_WIDE);
    Ok(())
}

/// wmma.load and wmma.store.
fn tile<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>, loads: bool) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let role = m.take_any(&["a", "b", "c", "d"]);
    let role = m.require(role)?;
    let layout = m.take_any(&["row", "col"]);
    let by_column = m.require(layout)? == "col";
    let [rows, columns, depth] = {
        let size = m.take_if(size);
        m.require(size)?
    };
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    let element = m.take_if(Element::from_name);
    let element = m.require(element)?;
    m.finish()?;
    let (role, number) = match (role, loads) {
        ("a", true) => (Role::A, 0),
        ("b", true) => (Role::B, 1),
        ("c", true) | ("d", false) => (Role::C, 2),
        _ => return Err(m.unsupported()),
    };
    // The other types are ignored: those of accumulators do not determine A and B.
    let (a, c) = if role == Role::C { (Element::F16, element) } else { (element, Element::F32) };
    let mut shape = Shape {
        m: rows,
        n: columns,
        k: depth,
        a,
        b: a,
        c,
        d: c,
        saturate: false,
        bits: BitOperation::None,
        registers: [0; 4],
    };
    let size = [rows, columns, depth];
    let known = if role == Role::C {
        let any = [Element::F16, Element::Tf32, Element::F64, Element::S4, Element::B1];
        let accumulates = matches!(element, Element::F16 | Element::F32 | Element::F64 | Element::S32);
        accumulates && any.iter().any(|a| is_wmma(size, *a))
    } else {
        is_wmma(size, element)
    };
    // Smaller elements lie in the order of K.
    let ordered = element.bits() >= 8 || by_column == (role == Role::B);
    if !known || !ordered {
        return Err(m.unsupported());
    }
    if role == Role::C {
        // The layout of the accumulators does not depend on K; the tables of A and B are not wanted.
        shape.k = 4 * Element::F16.per_register();
    }
    let count = wmma_registers(&shape, role, element);
    shape.registers[number] = count;
    let has_stride = inst.count() == 3;
    inst.expect(if has_stride { 3 } else { 2 })?;
    let (pointer, registers) = if loads { (1, 0) } else { (0, 1) };
    let Address::Register { register, wide, offset } = address(f, inst.operand(pointer)?, 4)? else {
        return Err(inst.modifiers.unsupported());
    };
    let stride = if has_stride {
        f.source(inst.operand(2)?, Type::U32)?
    } else {
        let (rows, columns) = match role {
            Role::A => (rows, depth),
            Role::B => (depth, columns),
            Role::C => (rows, columns),
        };
        f.constant(Width::B32, if by_column { rows } else { columns } as u64)
    };
    let mut more = Vec::new();
    for operand in list(f, inst.operand(registers)?, count)? {
        let kind = element_type(element);
        more.push(if loads { f.target(operand, kind)? } else { f.source(operand, kind)? });
    }
    let place = place(f, space);
    let index = add(f, shape);
    let handler = if loads { matrix_memory::load() } else { matrix_memory::store() };
    let none = Arg::None;
    let draft = f.emit(handler, &[none, none, none, none, register, stride]);
    draft.more = more;
    draft.imm = offset as u64;
    draft.cached = true;
    draft.aux = place
        | if wide { aux::WIDE_ADDRESS } else { 0 }
        | if by_column { matrix_memory::BY_COLUMN } else { 0 }
        | (number as u32) << matrix_memory::ROLE_SHIFT
        | index << matrix_memory::INDEX_SHIFT;
    Ok(())
}

/// ldmatrix and stmatrix.
fn rows<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>, loads: bool) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    if !m.take("m8n8") {
        return Err(m.unsupported());
    }
    let count = match m.take_any(&["x1", "x2", "x4"]) {
        Some("x1") => 1,
        Some("x2") => 2,
        Some(_) => 4,
        None => return Err(m.unsupported()),
    };
    let transposed = m.take("trans");
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    if !m.take("b16") {
        return Err(m.unsupported());
    }
    m.finish()?;
    inst.expect(2)?;
    let (pointer, registers) = if loads { (1, 0) } else { (0, 1) };
    let Address::Register { register, wide, offset } = address(f, inst.operand(pointer)?, 16)? else {
        return Err(inst.modifiers.unsupported());
    };
    let mut ops = [Arg::None, Arg::None, Arg::None, Arg::None, register];
    let operands = list(f, inst.operand(registers)?, count)?;
    for (op, operand) in ops.iter_mut().zip(operands) {
        *op = if loads { f.target(operand, Type::B32)? } else { f.source(operand, Type::B32)? };
    }
    let place = place(f, space);
    let handler = if loads { matrix_memory::load_rows() } else { matrix_memory::store_rows() };
    let draft = f.emit(handler, &ops);
    draft.imm = offset as u64;
    draft.cached = true;
    draft.aux = place
        | if wide { aux::WIDE_ADDRESS } else { 0 }
        | if transposed { matrix_memory::TRANSPOSED } else { 0 }
        | (count as u32 - 1) << aux::COUNT_SHIFT;
    Ok(())
}
