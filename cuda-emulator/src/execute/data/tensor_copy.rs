// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and tensormap.replace. As other bulk copies, those of tensors are
//! executed immediately.

use super::access::{Access, Place, aux};
use super::{atomic, bulk};
use crate::code::{Handler, Instr, lanes_of};
use crate::execute::arithmetic::tiny_float;
use crate::execute::state::{Flow, Machine};
use crate::launch::FaultKind;
use crate::ptx::types::Type;
use crate::tensor_map::{self, Element, Field, MAX_RANK, Region, TensorMap};

/// In [`Instr::aux`], the lowest bits: the number of coordinates.
const RANK: u32 = 7;
/// In [`Instr::aux`]: the region is one of columns (`.im2col`).
pub(crate) const COLUMNS: u32 = 1 << 3;
/// In [`Instr::aux`]: from shared to global memory.
pub(crate) const STORES: u32 = 1 << 4;
/// In [`Instr::aux`], from here on: the index in [`OPERATIONS`] plus one, where elements are reduced. The bits below are
/// those of other bulk copies: [`bulk::SIGNALS`] and [`bulk::MULTICAST`], for which `ops[3]` (u16) selects blocks.
pub(crate) const OPERATION_SHIFT: u32 = bulk::REDUCTION_SHIFT;
/// The reductions.
pub(crate) const OPERATIONS: [&str; 8] = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];
/// The number of operands in the list: the coordinates (i32), then the offsets (u16).
pub(crate) const LIST: usize = MAX_RANK + 3;
/// The alignment of a box in shared memory.
const BOX_ALIGNMENT: u64 = 128;

/// One lane's operands.
struct Operands {
    shared: u64,
    barrier: u64,
    start: [i32; MAX_RANK],
    offsets: [u16; 3],
}

/// Copies a region of the tensor whose map is at `ops[1]` (u64, generic) to or from `ops[0]` (u64, shared), and signals the
/// barrier at `ops[2]` (u64, shared). The list at `ops[7]` has the coordinates and offsets.
pub(crate) fn copy() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        for lane in lanes_of(machine.mask) {
            let list = &machine.grid.code.operands[instr.ops[7] as usize..][..LIST];
            // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract
            // of `Handler`); those of the list, too.
            let (operands, map, blocks) = unsafe {
                let operands = Operands {
                    shared: *machine.source::<u64>(instr.ops[0]).add(lane),
                    barrier: *machine.source::<u64>(instr.ops[2]).add(lane),
                    start: std::array::from_fn(|index| *machine.source::<i32>(list[index]).add(lane)),
                    offsets: std::array::from_fn(|index| {
                        *machine.source::<u16>(list[MAX_RANK + index]).add(lane)
                    }),
                };
                let blocks = *machine.source::<u16>(instr.ops[3]).add(lane);
                (operands, *machine.source::<u64>(instr.ops[1]).add(lane), blocks)
            };
            if let Err(flow) = copy_lane(machine, instr, lane, &operands, map, blocks) {
                return flow;
            }
        }
        Flow::Next
    }
    run
}

fn copy_lane(
    machine: &mut Machine<'_>,
    instr: &Instr,
    lane: usize,
    operands: &Operands,
    map: u64,
    blocks: u16,
) -> Result<(), Flow> {
    let map = read_map(machine, instr, lane, map)?;
    if !operands.shared.is_multiple_of(BOX_ALIGNMENT) {
        let what = format!(
            "tensor copy with shared memory at {:#x}: no multiple of {BOX_ALIGNMENT}",
            operands.shared
        );
        return Err(machine.fail(instr, lane, FaultKind::Misaligned, operands.shared, &what));
    }
    check_start(machine, instr, lane, operands, &map)?;
    if instr.aux & STORES != 0 {
        return store(machine, instr, lane, operands, &map);
    }
    for place in bulk::targets(instr, blocks) {
        load(machine, instr, lane, operands, &map, place(operands.shared))?;
        // The whole region counts, with the elements outside of the tensor.
        let bytes = map.row_bytes() * map.row_count();
        bulk::signal(machine, instr, lane, place(operands.barrier), bytes)?;
    }
    Ok(())
}

/// Checks the coordinates as an H200 does: rows start at multiples of 16 bytes, and what is stored starts inside or behind the
/// tensor.
fn check_start(
    machine: &mut Machine<'_>,
    instr: &Instr,
    lane: usize,
    operands: &Operands,
    map: &TensorMap,
) -> Result<(), Flow> {
    let start = &operands.start[..map.rank];
    let first = i64::from(start[0]) * map.element.bytes() as i64;
    let what = if first % tensor_map::UNIT as i64 != 0 {
        format!("tensor copy of a row from byte {first} on: no multiple of {}", tensor_map::UNIT)
    } else if instr.aux & STORES != 0 && start.iter().any(|coordinate| *coordinate < 0) {
        format!("tensor copy to the coordinates {start:?}, in front of the tensor")
    } else {
        return Ok(());
    };
    Err(machine.fail(instr, lane, FaultKind::IllegalInstruction, operands.shared, &what))
}

/// The map at an address, if a copy of this form can use it.
fn read_map(machine: &mut Machine<'_>, instr: &Instr, lane: usize, address: u64) -> Result<TensorMap, Flow> {
    let words = map_at(machine, instr, lane, address, Access::Read)?;
    // SAFETY: checked for all bytes; every bit pattern is valid.
    let words = unsafe { words.read_unaligned() };
    let Some(map) = TensorMap::from_words(&words) else {
        let what = format!("no valid tensor map at {address:#x}");
        return Err(machine.fail(instr, lane, FaultKind::IllegalInstruction, address, &what));
    };
    let columns = matches!(map.region, Region::Columns { .. });
    let rank = instr.aux & RANK;
    let mut illegal =
        |what: &str| Err(machine.fail(instr, lane, FaultKind::IllegalInstruction, address, what));
    if map.rank as u32 != rank || columns != (instr.aux & COLUMNS != 0) {
        let of = |columns| if columns { "columns" } else { "tiles" };
        let asked = of(instr.aux & COLUMNS != 0);
        return illegal(&format!(
            "copy of {asked} of a tensor of rank {rank} with a map for {} of rank {}",
            of(columns),
            map.rank
        ));
    }
    if map.interleave != 0 {
        return illegal("copy of an interleaved tensor, which the emulator does not support");
    }
    Ok(map)
}

/// The host address of the map at `address`.
fn map_at(
    machine: &mut Machine<'_>,
    instr: &Instr,
    lane: usize,
    address: u64,
    access: Access,
) -> Result<*mut tensor_map::Words, Flow> {
    if !address.is_multiple_of(tensor_map::ALIGNMENT) {
        let what = format!("misaligned tensor map at {address:#x}");
        return Err(machine.fail(instr, lane, FaultKind::Misaligned, address, &what));
    }
    // A map whose space is known was replaced in it (tensormap.replace); copies take generic addresses.
    let place = if access == Access::Read { Place::Generic } else { aux::place(instr.aux) };
    let host = machine.resolve_lane(instr, lane, address, tensor_map::BYTES, place, access)?;
    Ok(host as *mut tensor_map::Words)
}

/// The part of a row that is inside of the tensor.
struct Inside {
    /// The first element, from the start of the row.
    first: u64,
    /// Elements.
    count: u64,
    /// The global address of the first.
    address: u64,
}

impl Inside {
    /// `address` is that of the row's element with coordinate 0.
    fn new(map: &TensorMap, start: i32, address: Option<u64>) -> Option<Inside> {
        let (start, count) = (i64::from(start), map.row_elements() as i64);
        let first = (-start).clamp(0, count);
        let end = (map.sizes[0] as i64 - start).clamp(first, count);
        let address = address.filter(|_| first < end)?;
        let offset = (start + first) as u64 * map.element.bytes();
        Some(Inside {
            first: first as u64,
            count: (end - first) as u64,
            address: address.wrapping_add(offset),
        })
    }
}

/// A region's place in shared memory, checked for all rows.
struct Shared {
    address: u64,
    host: u64,
}

impl Shared {
    fn resolve(
        machine: &mut Machine<'_>,
        instr: &Instr,
        lane: usize,
        map: &TensorMap,
        address: u64,
        access: Access,
    ) -> Result<Shared, Flow> {
        let bytes = map.row_pitch() * map.row_count();
        let host = machine.resolve_lane(instr, lane, address, bytes, Place::Shared, access)?;
        Ok(Shared { address, host })
    }

    /// The host addresses of the units of row `row`. The address of the region is a multiple of 128 and a pattern does not
    /// leave a row, so that these are inside of what was checked.
    fn units(&self, map: &TensorMap, row: u64) -> impl Iterator<Item = u64> {
        let start = self.address + row * map.row_pitch();
        (start..start + map.row_bytes())
            .step_by(tensor_map::UNIT as usize)
            .map(|address| self.host + (map.swizzled(address) - self.address))
    }
}

fn load(
    machine: &mut Machine<'_>,
    instr: &Instr,
    lane: usize,
    operands: &Operands,
    map: &TensorMap,
    address: u64,
) -> Result<(), Flow> {
    let shared = Shared::resolve(machine, instr, lane, map, address, Access::Write)?;
    let (bytes, element) = (map.row_bytes() as usize, map.element.bytes());
    let mut outside = [0; tensor_map::MAX_ROW];
    if map.fill != 0 {
        outside.chunks_mut(8).for_each(|to| to.copy_from_slice(&Element::nan()));
    }
    for (index, row) in map.rows(operands.start, operands.offsets).enumerate() {
        let mut values = outside;
        if let Some(inside) = Inside::new(map, operands.start[0], row) {
            let length = inside.count * element;
            let from =
                machine.resolve_lane(instr, lane, inside.address, length, Place::Global, Access::Read)?;
            let to = &mut values[(inside.first * element) as usize..][..length as usize];
            // SAFETY: checked for all bytes, and the slice has as many.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
            if map.element.is_shortened() {
                shorten(to);
            }
        }
        for (unit, to) in
            values[..bytes].chunks_exact(tensor_map::UNIT as usize).zip(shared.units(map, index as u64))
        {
            // SAFETY: `units` stays inside of what was checked.
            unsafe { std::ptr::copy_nonoverlapping(unit.as_ptr(), to as *mut u8, unit.len()) };
        }
    }
    Ok(())
}

/// Rounds elements of f32 to tf32.
fn shorten(values: &mut [u8]) {
    for element in values.as_chunks_mut::<4>().0 {
        *element = tiny_float::nearest_tf32(u32::from_ne_bytes(*element)).to_ne_bytes();
    }
}

/// Stores or reduces a region; what is outside of the tensor is left out.
fn store(
    machine: &mut Machine<'_>,
    instr: &Instr,
    lane: usize,
    operands: &Operands,
    map: &TensorMap,
) -> Result<(), Flow> {
    let reduction = match (instr.aux >> OPERATION_SHIFT & 0xff).checked_sub(1) {
        Some(operation) => Some(reduction(machine, instr, lane, OPERATIONS[operation as usize], map)?),
        None => None,
    };
    let access = if reduction.is_some() { Access::Atomic } else { Access::Write };
    let shared = Shared::resolve(machine, instr, lane, map, operands.shared, Access::Read)?;
    let (bytes, element) = (map.row_bytes() as usize, map.element.bytes());
    let mut values = [0_u8; tensor_map::MAX_ROW];
    for (index, row) in map.rows(operands.start, operands.offsets).enumerate() {
        let Some(inside) = Inside::new(map, operands.start[0], row) else { continue };
        for (unit, from) in
            values[..bytes].chunks_exact_mut(tensor_map::UNIT as usize).zip(shared.units(map, index as u64))
        {
            // SAFETY: `units` stays inside of what was checked.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, unit.as_mut_ptr(), unit.len()) };
        }
        let length = inside.count * element;
        let to = machine.resolve_lane(instr, lane, inside.address, length, Place::Global, access)?;
        let from = &values[(inside.first * element) as usize..][..length as usize];
        match reduction {
            // SAFETY: checked for all bytes, and the slice has as many.
            None => unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) },
            Some(reduction) => {
                for (at, value) in from.chunks_exact(element as usize).enumerate() {
                    // SAFETY: both were checked for all bytes. Addresses and strides of valid maps are multiples of 16,
                    // so that each element is aligned.
                    unsafe { reduction((to + at as u64 * element) as *mut u8, value.as_ptr()) };
                }
            }
        }
    }
    Ok(())
}

/// The reduction `operation` of the map's elements.
fn reduction(
    machine: &mut Machine<'_>,
    instr: &Instr,
    lane: usize,
    operation: &str,
    map: &TensorMap,
) -> Result<atomic::Reduction, Flow> {
    let kind = map.element.kind();
    let number = match (operation, kind) {
        ("add", Type::F16 | Type::Bf16) => atomic::reduction_number("add.noftz", kind),
        ("and" | "or" | "xor", Type::U32 | Type::S32) => atomic::reduction_number(operation, Type::B32),
        (_, Type::S64) if !matches!(operation, "min" | "max") => None,
        ("and" | "or" | "xor", Type::U64) => atomic::reduction_number(operation, Type::B64),
        _ => atomic::reduction_number(operation, kind),
    };
    number.and_then(atomic::reduction).ok_or_else(|| {
        let what = format!("reduction `{operation}` of a tensor of {kind:?}");
        machine.fail(instr, lane, FaultKind::IllegalInstruction, 0, &what)
    })
}

/// In [`Instr::aux`], from here on: the [`Field`] that [`replace`] changes, and its ordinal.
pub(crate) const FIELD_SHIFT: u32 = 16;
pub(crate) const ORDINAL_SHIFT: u32 = 24;

/// tensormap.replace: a field of the map at `ops[0]` (u64) becomes `ops[1]` (u64).
pub(crate) fn replace() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let field = Field::ALL[(instr.aux >> FIELD_SHIFT & 0xff) as usize].1;
        let ordinal = (instr.aux >> ORDINAL_SHIFT) as usize;
        for lane in lanes_of(machine.mask) {
            // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract
            // of `Handler`).
            let (address, value) = unsafe {
                (
                    *machine.source::<u64>(instr.ops[0]).add(lane),
                    *machine.source::<u64>(instr.ops[1]).add(lane),
                )
            };
            let map = match map_at(machine, instr, lane, address, Access::Write) {
                Ok(map) => map,
                Err(flow) => return flow,
            };
            // SAFETY: checked for all bytes; every bit pattern is valid.
            unsafe {
                let mut words = map.read_unaligned();
                tensor_map::replace(&mut words, field, ordinal, value);
                map.write_unaligned(words);
            }
        }
        Flow::Next
    }
    run
}
