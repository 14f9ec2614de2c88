// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cp.async.bulk.tensor, cp.async.bulk.prefetch.tensor, cp.reduce.async.bulk.tensor, tensormap.

use super::bulk::{COMPLETION, pointer};
use super::memory::place;
use crate::code::window;
use crate::execute::{bulk, control, tensor_copy};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::{Function, Name};
use crate::lower::operands::Inst;
use crate::ptx::ast::{Base, Immediate, Operand};
use crate::ptx::types::{StateSpace, Type};
use crate::symbols::LoadError;
use crate::tensor_map::{self, Field, MAX_RANK};

/// The instruction by the words before `.tensor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Copy,
    Prefetch,
    Reduction,
}

const RANKS: [&str; MAX_RANK] = ["1d", "2d", "3d", "4d", "5d"];

/// Lowers an instruction of which the words up to `.tensor` are taken.
pub(super) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    purpose: Purpose,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let rank = m.take_if(|part| RANKS.iter().position(|name| *name == part));
    let rank = m.require(rank)? + 1;
    let prefetches = purpose == Purpose::Prefetch;
    if prefetches && !m.take("L2") {
        return Err(m.unsupported());
    }
    let to = m.take_if(StateSpace::from_name);
    let to = m.require(to)?;
    let from = if prefetches { None } else { m.take_if(StateSpace::from_name) };
    let columns = m.take_any(&["im2col", "im2col_no_offs"]);
    if columns.is_none() {
        m.take("tile");
    }
    let signals = m.take(COMPLETION);
    let group = m.take("bulk_group");
    let multicast = m.take("multicast::cluster");
    m.take("L2::cache_hint");
    let operation = match purpose {
        Purpose::Reduction => m.take_if(|part| tensor_copy::OPERATIONS.iter().position(|name| *name == part)),
        _ => None,
    };
    m.finish()?;
    let stores = to == StateSpace::Global && from == Some(StateSpace::Shared);
    let known = match purpose {
        Purpose::Prefetch => to == StateSpace::Global && !(signals || group || multicast),
        Purpose::Reduction => stores && group && !signals && !multicast && operation.is_some(),
        Purpose::Copy if stores => group && !signals && !multicast,
        Purpose::Copy => (to, from) == (StateSpace::Shared, Some(StateSpace::Global)) && signals && !group,
    };
    // Loads have offsets, stores have none.
    let offset_count = match columns {
        Some("im2col") => Some(rank.saturating_sub(2)).filter(|_| !stores),
        Some(_) => Some(0).filter(|_| stores),
        None => Some(0),
    };
    let offset_count = m.require(offset_count.filter(|_| known && (columns.is_none() || rank >= 3)))?;

    let (map_index, mut next) = match (prefetches, stores) {
        (true, _) => (0, 1),
        (false, true) => (0, 2),
        (false, false) => (1, 3),
    };
    let Operand::Sampled { base, coordinates } = inst.operand(map_index)? else {
        return Err(inst.modifiers.unsupported());
    };
    let map = map_address(f, base)?;
    let mut list = match coordinates.as_slice() {
        [Operand::Vector(list)] => sources(f, list, rank, Type::S32)?,
        _ => return Err(f.error("coordinates in braces are expected")),
    };
    list.resize(MAX_RANK, f.constant(Width::B32, 0));
    if offset_count > 0 {
        let Operand::Vector(offsets) = inst.operand(next)? else {
            return Err(f.error("offsets in braces are expected"));
        };
        list.extend(sources(f, offsets, offset_count, Type::U16)?);
        next += 1;
    }
    list.resize(tensor_copy::LIST, f.constant(Width::B16, 0));
    if prefetches {
        f.emit(control::nothing(), &[]);
        return Ok(());
    }
    let shared = pointer(f, inst, if stores { 1 } else { 0 })?;
    let barrier = if signals { pointer(f, inst, 2)? } else { f.constant(Width::B64, 0) };
    let blocks =
        if multicast { f.source(inst.operand(next)?, Type::B16)? } else { f.constant(Width::B16, 0) };
    let draft = f.emit(tensor_copy::copy(), &[shared, map, barrier, blocks]);
    draft.more = list;
    draft.cached = true;
    draft.aux = rank as u32
        | if columns.is_some() { tensor_copy::COLUMNS } else { 0 }
        | if stores { tensor_copy::STORES } else { 0 }
        | if signals { bulk::SIGNALS } else { 0 }
        | if multicast { bulk::MULTICAST } else { 0 }
        | operation.map_or(0, |operation| operation as u32 + 1) << tensor_copy::OPERATION_SHIFT;
    Ok(())
}

/// `count` operands of type `kind`.
fn sources<'a>(
    f: &mut Function<'_, 'a>,
    list: &[Operand<'a>],
    count: usize,
    kind: Type,
) -> Result<Vec<Arg>, LoadError> {
    if list.len() != count {
        return Err(f.error(format!("{count} coordinates or offsets are expected, found {}", list.len())));
    }
    list.iter().map(|operand| f.source(operand, kind)).collect()
}

/// The generic address of a map.
fn map_address<'a>(f: &mut Function<'_, 'a>, base: &Base<'a>) -> Result<Arg, LoadError> {
    let Base::Name(name) = base else { return Err(f.error("a tensor map is expected")) };
    match f.register(name) {
        Some((register, Width::B64)) => return Ok(Arg::Use(register)),
        Some(_) => return Err(f.error(format!("`{name}` is too narrow for a generic address"))),
        None => {}
    }
    if let Some(Name::KernelParam(piece)) = f.look_up(name) {
        let address = window::PARAM + u64::from(piece.offset);
        return Ok(f.constant(Width::B64, address));
    }
    f.address(name, 0, Width::B64)
}

/// Lowers `tensormap.replace` and `tensormap.cp_fenceproxy`.
pub(in crate::lower) fn change_map<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    if m.take("cp_fenceproxy") {
        return copy_map(f, inst);
    }
    if !(m.take("replace") && m.take("tile")) {
        return Err(m.unsupported());
    }
    let found = m.take_if(|part| Field::ALL.iter().position(|known| known.0 == part));
    let number = m.require(found)?;
    let field = Field::ALL[number].1;
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    let whole = m.take("b1024");
    let kind = m.kind()?;
    m.finish()?;
    let wide = matches!(field, Field::Address | Field::Stride);
    if !whole || kind != if wide { Type::B64 } else { Type::B32 } {
        return Err(inst.modifiers.unsupported());
    }
    let ordinal = match field.count() {
        None => 0,
        Some(count) => match inst.operand(1)? {
            Operand::Immediate(Immediate::Int(ordinal)) if *ordinal < count as u64 => *ordinal as u32,
            _ => return Err(f.error("the number of a side is expected")),
        },
    };
    let last = if field.count().is_some() { 2 } else { 1 };
    inst.expect(last + 1)?;
    let value = match f.source(inst.operand(last)?, kind)? {
        Arg::Use(register) if !wide => f.resized(register, Width::B32, Width::B64, false)?,
        Arg::Use(register) => Arg::Use(register),
        // A constant of the other width.
        _ => f.source(inst.operand(last)?, Type::U64)?,
    };
    let address = pointer(f, inst, 0)?;
    let place = place(f, space);
    let draft = f.emit(tensor_copy::replace(), &[address, value]);
    draft.cached = true;
    draft.aux = place | (number as u32) << tensor_copy::FIELD_SHIFT | ordinal << tensor_copy::ORDINAL_SHIFT;
    Ok(())
}

/// `tensormap.cp_fenceproxy`: a map from shared to global memory.
fn copy_map<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let words = ["global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"];
    let complete = words.iter().all(|word| m.take(word));
    m.take_any(&["cta", "cluster", "gpu", "sys"]);
    m.finish()?;
    inst.expect(3)?;
    match inst.operand(2)? {
        Operand::Immediate(Immediate::Int(tensor_map::BYTES)) if complete => {}
        _ => return Err(inst.modifiers.unsupported()),
    }
    let (to, from) = (pointer(f, inst, 0)?, pointer(f, inst, 1)?);
    let size = f.constant(Width::B32, tensor_map::BYTES);
    let (barrier, blocks) = (f.constant(Width::B64, 0), f.constant(Width::B16, 0));
    let (to_place, from_place) = (place(f, StateSpace::Global), place(f, StateSpace::Shared));
    let draft = f.emit(bulk::copy(), &[to, from, size, barrier, blocks]);
    draft.cached = true;
    draft.aux = to_place | from_place << bulk::SOURCE_SHIFT;
    Ok(())
}
