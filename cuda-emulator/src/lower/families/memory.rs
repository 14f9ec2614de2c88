// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ld, st, cp.async and the cache hints.

use crate::code::Piece;
use crate::execute::access::{Place, aux};
use crate::execute::load_store::{self, Transfer};
use crate::execute::{bits, compare, control, moves};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::{Function, Name};
use crate::lower::modifiers::Modifiers;
use crate::lower::operands::Inst;
use crate::ptx::ast::{Base, Immediate, Operand};
use crate::ptx::types::{StateSpace, Type};
use crate::symbols::LoadError;

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    match name {
        "ld" | "ldu" => load(f, inst),
        "st" => store(f, inst),
        "cp" => copy(f, inst),
        "createpolicy" => {
            if !inst.modifiers.take("b64") {
                return Err(inst.modifiers.unsupported());
            }
            let copy = inst.modifiers.require(moves::copy(8))?;
            let none = f.constant(Width::B64, 0);
            let target = f.target(inst.operand(0)?, Type::B64)?;
            f.emit(copy, &[target, none]);
            Ok(())
        }
        // Hints: no caches here.
        _ => {
            f.emit(control::nothing(), &[]);
            Ok(())
        }
    }
}

/// The meaning of an address operand.
pub(super) enum Address {
    /// A constant offset in the function's local memory or in the kernel's parameters.
    Constant(Transfer, u32),
    /// A register, whether it has 64 bits, and an offset.
    Register { register: Arg, wide: bool, offset: i64 },
}

/// Scope, cache and eviction modifiers, which change no result. Returns that of the cache.
pub(super) fn take_hints<'a>(m: &mut Modifiers<'a>) -> Option<&'a str> {
    m.take_any(&["cta", "cluster", "gpu", "sys"]);
    let cache = m.take_any(&["ca", "cg", "cs", "lu", "cv", "wb", "wt"]);
    m.take("nc");
    m.take("unified");
    while m.take_if(|part| (part.starts_with("L1::") || part.starts_with("L2::")).then_some(())).is_some() {}
    cache
}

/// An address operand for an access of `bytes` bytes.
pub(super) fn address<'a>(
    f: &mut Function<'_, 'a>,
    operand: &Operand<'a>,
    bytes: u32,
) -> Result<Address, LoadError> {
    let Operand::Address { base, offset } = operand else {
        return Err(f.error("an address in brackets is expected"));
    };
    let name = match base {
        Base::Name(name) => *name,
        Base::Absolute => {
            let register = f.constant(Width::B64, *offset as u64);
            return Ok(Address::Register { register, wide: true, offset: 0 });
        }
    };
    if let Some((register, width)) = f.register(name) {
        if !matches!(width, Width::B32 | Width::B64) {
            return Err(f.error(format!("`{name}` is too narrow for an address")));
        }
        let wide = width == Width::B64;
        return Ok(Address::Register { register: Arg::Use(register), wide, offset: *offset });
    }
    let inside = |piece: &Piece| {
        let at = u32::try_from(*offset)
            .ok()
            .filter(|at| at.checked_add(bytes).is_some_and(|end| end <= piece.bytes));
        at.map(|at| piece.offset + at)
            .ok_or_else(|| f.error(format!("access of {bytes} bytes at `{name}+{offset}` is outside")))
    };
    match f.look_up(name) {
        Some(Name::Frame(piece)) => return Ok(Address::Constant(Transfer::Frame, inside(piece)?)),
        Some(Name::KernelParam(piece)) => {
            return Ok(Address::Constant(Transfer::Param, inside(piece)?));
        }
        _ => {}
    }
    let register = f.address(name, *offset, Width::B64)?;
    Ok(Address::Register { register, wide: true, offset: 0 })
}

/// Returns the part of [`crate::code::Instr::aux`] with the state space of an access.
pub(super) fn place(f: &Function<'_, '_>, space: StateSpace) -> u32 {
    let place = match space {
        StateSpace::Generic => Place::Generic,
        StateSpace::Global | StateSpace::Const => Place::Global,
        StateSpace::Shared => Place::Shared,
        StateSpace::Local => Place::Local,
        StateSpace::Param if f.is_entry => Place::Param,
        StateSpace::Param => Place::Local,
    };
    place as u32
}

/// `.v2`, `.v4`, `.v8`, or 1.
pub(super) fn vector_count(m: &mut Modifiers<'_>) -> usize {
    match m.take_any(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    }
}

/// The modifiers that ld and st share.
pub(super) struct Form {
    pub(super) space: StateSpace,
    pub(super) kind: Type,
    pub(super) count: usize,
    pub(super) flags: u32,
}

fn form(inst: &mut Inst<'_, '_>) -> Result<Form, LoadError> {
    let m = &mut inst.modifiers;
    let order = m.take_any(&["weak", "relaxed", "acquire", "release", "volatile", "mmio"]);
    if order == Some("mmio") {
        m.take("relaxed");
    }
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    let cache = take_hints(m);
    let count = vector_count(m);
    let kind = m.kind()?;
    m.finish()?;
    let flags = match order {
        Some("acquire") => aux::ACQUIRE | aux::POLLS,
        Some("release") => aux::RELEASE,
        Some("volatile" | "relaxed" | "mmio") => aux::POLLS,
        // Code for GPUs before sm_70, which have no `.relaxed`, exchanges vectors in the cache that the GPU shares.
        _ if count > 1 && matches!(cache, Some("cg" | "cv")) => aux::POLLS,
        _ => 0,
    };
    Ok(Form { space, kind, count, flags })
}

/// The registers of an operand: of a vector in braces, or one.
pub(super) fn elements<'i, 'a>(
    f: &Function<'_, 'a>,
    operand: &'i Operand<'a>,
    count: usize,
) -> Result<&'i [Operand<'a>], LoadError> {
    let list = match operand {
        Operand::Vector(list) => list,
        single => std::slice::from_ref(single),
    };
    if list.len() != count {
        return Err(f.error(format!("{count} registers are expected, found {}", list.len())));
    }
    Ok(list)
}

/// The address operand `bytes` further on.
pub(super) fn further<'a>(operand: &Operand<'a>, bytes: usize) -> Operand<'a> {
    match operand {
        Operand::Address { base, offset } => {
            Operand::Address { base: *base, offset: offset.wrapping_add(bytes as i64) }
        }
        other => other.clone(),
    }
}

/// The address operand that `name[2]` means.
fn of_element<'a>(f: &Function<'_, 'a>, operand: &Operand<'a>) -> Result<Operand<'a>, LoadError> {
    Ok(match operand {
        Operand::Element(name, index) => {
            Operand::Address { base: Base::Name(name), offset: f.element(name, *index)? }
        }
        other => other.clone(),
    })
}

/// Registers of one transfer; vectors of eight take two.
const PART: usize = 4;

fn load<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let form = form(inst)?;
    let bytes = form.kind.bytes() as usize;
    let pointer = of_element(f, inst.operand(1)?)?;
    for (index, part) in elements(f, inst.operand(0)?, form.count)?.chunks(PART).enumerate() {
        let operand = further(&pointer, index * PART * bytes);
        load_part(f, inst, &form, part, &operand)?;
    }
    Ok(())
}

fn load_part<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    form: &Form,
    targets: &[Operand<'a>],
    pointer: &Operand<'a>,
) -> Result<(), LoadError> {
    let bytes = form.kind.bytes();
    let address = address(f, pointer, bytes * targets.len() as u32)?;
    let mut ops = [Arg::None; 5];
    let mut width = None;
    for (index, operand) in targets.iter().enumerate() {
        let found = match operand {
            Operand::Name("_") => None,
            operand => Some(f.any_register(operand)?),
        };
        let (register, own) = match found {
            Some(found) => found,
            None => {
                let own = width.unwrap_or_else(|| Width::of(form.kind));
                (f.temporary(own), own)
            }
        };
        if width.is_some_and(|width| width != own) {
            return Err(f.error("the registers of a vector differ in width"));
        }
        width = Some(own);
        ops[index] = Arg::Def(register);
    }
    let register_bytes = width.map_or(0, Width::bytes);
    let (transfer, imm, place) = destination(f, &address, form.space, &mut ops);
    let handler = load_store::select_load(transfer, bytes, form.kind.is_signed(), register_bytes);
    let handler = inst.modifiers.require(handler)?;
    finish(f, handler, &ops, imm, place | form.flags, targets.len());
    Ok(())
}

fn store<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    if inst.modifiers.take("async") {
        return super::bulk::store_async(f, inst);
    }
    let form = form(inst)?;
    let bytes = form.kind.bytes() as usize;
    let pointer = of_element(f, inst.operand(0)?)?;
    for (index, part) in elements(f, inst.operand(1)?, form.count)?.chunks(PART).enumerate() {
        let operand = further(&pointer, index * PART * bytes);
        store_part(f, inst, &form, &operand, part)?;
    }
    Ok(())
}

pub(super) fn store_part<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    form: &Form,
    pointer: &Operand<'a>,
    list: &[Operand<'a>],
) -> Result<(), LoadError> {
    let bytes = form.kind.bytes();
    let address = address(f, pointer, bytes * list.len() as u32)?;
    let mut ops = [Arg::None; 5];
    // Literals take the width of the registers beside them, which may be wider than the type.
    let registers = list.iter().filter_map(|operand| f.any_register(operand).ok());
    let width = match registers.map(|(_, width)| width).next() {
        Some(width) => width,
        None => Width::of(form.kind),
    };
    for (index, operand) in list.iter().enumerate() {
        ops[index] = match f.any_register(operand) {
            Ok((register, own)) if own == width => Arg::Use(register),
            Ok(_) => return Err(f.error("the registers of a vector differ in width")),
            Err(_) => f.source(operand, form.kind)?,
        };
        let is_literal = matches!(operand, Operand::Immediate(_));
        if is_literal && Width::of(form.kind) != width {
            return Err(f.error("literal beside wider registers"));
        }
    }
    let (transfer, imm, place) = destination(f, &address, form.space, &mut ops);
    if transfer == Transfer::Param {
        return Err(f.error("the parameters of a kernel cannot be written"));
    }
    let handler = inst.modifiers.require(load_store::select_store(transfer, bytes, width.bytes()))?;
    finish(f, handler, &ops, imm, place | form.flags, list.len());
    Ok(())
}

/// Stores the address in its operand. Returns the kind of transfer, its offset, and its place.
fn destination(
    f: &Function<'_, '_>,
    address: &Address,
    space: StateSpace,
    ops: &mut [Arg; 5],
) -> (Transfer, u64, u32) {
    match *address {
        Address::Constant(transfer, offset) => (transfer, u64::from(offset), 0),
        Address::Register { register, wide, offset } => {
            ops[4] = register;
            let wide = if wide { aux::WIDE_ADDRESS } else { 0 };
            (Transfer::Memory, offset as u64, place(f, space) | wide)
        }
    }
}

fn finish(
    f: &mut Function<'_, '_>,
    handler: crate::code::Handler,
    ops: &[Arg; 5],
    imm: u64,
    aux: u32,
    count: usize,
) {
    let draft = f.emit(handler, ops);
    draft.imm = imm;
    draft.aux = aux | (count as u32 - 1) << self::aux::COUNT_SHIFT;
    draft.cached = true;
}

/// Loads a register from a piece of the function's local memory.
pub(in crate::lower) fn load_piece(
    f: &mut Function<'_, '_>,
    register: crate::lower::draft::Register,
    piece: Piece,
) -> Result<(), LoadError> {
    let width = f.widths[register.0 as usize];
    let handler = load_store::select_load(Transfer::Frame, piece.bytes, false, width.bytes());
    let handler = handler.ok_or_else(|| f.error("a parameter of this type cannot be in a register"))?;
    finish(
        f,
        handler,
        &[Arg::Def(register), Arg::None, Arg::None, Arg::None, Arg::None],
        u64::from(piece.offset),
        0,
        1,
    );
    Ok(())
}

/// Stores a register to a piece of the function's local memory.
pub(in crate::lower) fn store_piece(
    f: &mut Function<'_, '_>,
    value: Arg,
    width: Width,
    piece: Piece,
) -> Result<(), LoadError> {
    let handler = load_store::select_store(Transfer::Frame, piece.bytes, width.bytes());
    let handler = handler.ok_or_else(|| f.error("a parameter of this type cannot be in a register"))?;
    let ops = [value, Arg::None, Arg::None, Arg::None, Arg::None];
    finish(f, handler, &ops, u64::from(piece.offset), 0, 1);
    Ok(())
}

/// cp.async: the copy is executed immediately, so a wait for it does nothing.
fn copy<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let reduces = m.take("reduce");
    if !m.take("async") || (reduces && !m.take("bulk")) {
        return Err(m.unsupported());
    }
    if reduces {
        return super::bulk::reduce(f, inst);
    }
    if m.take("bulk") {
        return super::bulk::lower(f, inst);
    }
    if m.take_any(&["commit_group", "wait_group", "wait_all"]).is_some() {
        m.finish()?;
        f.emit(control::nothing(), &[]);
        return Ok(());
    }
    if m.take("mbarrier") && m.take("arrive") {
        return super::mbarriers::arrive_for_copies(f, inst);
    }
    take_hints(m);
    if !(m.take("shared") || m.take("shared::cta")) || !m.take("global") {
        return Err(m.unsupported());
    }
    m.finish()?;
    let Operand::Immediate(Immediate::Int(bytes @ (4 | 8 | 16))) = inst.operand(2)? else {
        return Err(inst.modifiers.unsupported());
    };
    let words = *bytes as usize / 4;
    let target = address(f, inst.operand(0)?, *bytes as u32)?;
    let source = address(f, inst.operand(1)?, *bytes as u32)?;
    if let (Address::Constant(..), _) | (_, Address::Constant(..)) = (&target, &source) {
        return Err(f.error("an address in shared and one in global memory are expected"));
    }
    let mut ops = [Arg::None; 5];
    let zero = f.constant(Width::B32, 0);
    let copy = inst.modifiers.require(moves::copy(4))?;
    let mut values = Vec::new();
    for op in ops.iter_mut().take(words) {
        let word = f.temporary(Width::B32);
        values.push(word);
        *op = Arg::Def(word);
    }
    let count = if let Some(size) = source_size(f, inst, *bytes)? {
        // Only the first bytes are read, the rest is zero.
        for word in &values {
            f.emit(copy, &[Arg::Def(*word), zero]);
        }
        load_words(f, inst, &values, &source, size)?;
        None
    } else {
        Some(words)
    };
    let load = inst.modifiers.require(load_store::select_load(Transfer::Memory, 4, false, 4))?;
    if let Some(count) = count {
        let (_, imm, place) = destination(f, &source, StateSpace::Global, &mut ops);
        finish(f, load, &ops, imm, place, count);
    }
    let mut ops = [Arg::None; 5];
    for (op, word) in ops.iter_mut().zip(&values) {
        *op = Arg::Use(*word);
    }
    let store = inst.modifiers.require(load_store::select_store(Transfer::Memory, 4, 4))?;
    let (_, imm, place) = destination(f, &target, StateSpace::Shared, &mut ops);
    finish(f, store, &ops, imm, place, words);
    Ok(())
}

/// Returns the number of bytes that a cp.async reads, when that is not all of them: a size, or a predicate that
/// disables the read. A cache policy (64 bits) may follow.
fn source_size<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    bytes: u64,
) -> Result<Option<Arg>, LoadError> {
    let Some(operand) = inst.ast.operands.get(3) else { return Ok(None) };
    match f.any_register(operand) {
        Ok((_, Width::B64)) => Ok(None),
        Ok((ignore, Width::Predicate)) => {
            let select = inst.modifiers.require(compare::select(4))?;
            let size = f.temporary(Width::B32);
            let (none, all) = (f.constant(Width::B32, 0), f.constant(Width::B32, bytes));
            f.emit(select, &[Arg::Def(size), none, all, Arg::Use(ignore)]);
            Ok(Some(Arg::Use(size)))
        }
        _ => f.source(operand, Type::U32).map(Some),
    }
}

/// Loads those words that begin before `size` bytes.
fn load_words<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    values: &[crate::lower::draft::Register],
    source: &Address,
    size: Arg,
) -> Result<(), LoadError> {
    let load = inst.modifiers.require(load_store::select_load(Transfer::Memory, 4, false, 4))?;
    let above = inst.modifiers.require(compare::compare("gt", Type::U32, false))?;
    let and = inst.modifiers.require(bits::logic("and", Type::Pred))?;
    let not = inst.modifiers.require(bits::negation("not", Type::Pred))?;
    let outer = f.guard;
    for (index, word) in values.iter().enumerate() {
        let start = f.constant(Width::B32, index as u64 * 4);
        let wanted = f.temporary(Width::Predicate);
        f.emit(above, &[Arg::Def(wanted), size, start]);
        // Where the outer guard is false, `wanted` was not written, so both must hold.
        if let Some((guard, negated)) = outer {
            f.guard = None;
            let mut guard = Arg::Use(guard);
            if negated {
                let flipped = f.temporary(Width::Predicate);
                f.emit(not, &[Arg::Def(flipped), guard, guard]);
                guard = Arg::Use(flipped);
            }
            f.emit(and, &[Arg::Def(wanted), Arg::Use(wanted), guard]);
        }
        f.guard = Some((wanted, false));
        let mut ops = [Arg::Def(*word), Arg::None, Arg::None, Arg::None, Arg::None];
        let (_, imm, place) = destination(f, source, StateSpace::Global, &mut ops);
        finish(f, load, &ops, imm.wrapping_add(index as u64 * 4), place, 1);
        f.guard = outer;
    }
    Ok(())
}
