// SPDX-License-Identifier: Apache-2.0 OR MIT
//! tex, tld4, txq, suld, sust, suq: from registers to [`crate::texture`] and back.

use std::sync::Arc;

use super::atomic::Word;
use crate::code::{Handler, Instr, LANES, lanes_of};
use crate::execute::arithmetic::tiny_float::to_f16;
use crate::execute::state::{Flow, Machine};
use crate::launch::FaultKind;
use crate::texture::{self, Channel, Coordinates, Detail, Dimension, Point, Surface, Texture};

/// The layout of [`Instr::aux`] of these instructions.
pub(crate) mod aux {
    /// `.s32` coordinates instead of `.f32`.
    pub(crate) const INTEGER: u32 = 1 << 0;
    /// `.level`
    pub(crate) const LEVEL: u32 = 1 << 1;
    /// `.grad`
    pub(crate) const GRADIENT: u32 = 1 << 2;
    /// `.f16x2` results: two registers of two halves.
    pub(crate) const HALVES: u32 = 1 << 3;
    /// `tld4`; the channel is in the bits from [`CHANNEL_SHIFT`] on.
    pub(crate) const GATHER: u32 = 1 << 4;
    pub(crate) const CHANNEL_SHIFT: u32 = 5;
    /// Surfaces: what happens outside: 0 trap, 1 clamp, 2 zero.
    pub(crate) const OUTSIDE_SHIFT: u32 = 8;
    /// Surfaces: bytes of an element as a power of two.
    pub(crate) const BYTES_SHIFT: u32 = 10;
    /// Surfaces: elements, minus 1.
    pub(crate) const COUNT_SHIFT: u32 = 12;
    /// Surfaces: bytes of a register as a power of two.
    pub(crate) const REGISTER_SHIFT: u32 = 14;
    /// Surfaces: x counts texels, which are converted (`.p`).
    pub(crate) const FORMATTED: u32 = 1 << 16;
    /// sured: the operation, and whether integers are signed.
    pub(crate) const REDUCTION_SHIFT: u32 = 17;
    pub(crate) const SIGNED: u32 = 1 << 20;
}

/// The positions of operands in the list of a `tex`: results, layer, coordinates, level or gradients.
pub(crate) mod list {
    pub(crate) const LAYER: usize = 4;
    pub(crate) const POINT: usize = 5;
    pub(crate) const DETAIL: usize = 8;
    pub(crate) const LENGTH: usize = 14;
}

/// tex and tld4: the predicate `ops[0]` (whether texels are resident: always true) and `operands[ops[7]..]`, in the
/// layout of [`list`], from the texture in `ops[1]` (u64).
pub(crate) fn fetch() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let operands = &machine.grid.code.operands[instr.ops[7] as usize..][..list::LENGTH];
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        if unsafe { fetch_together(machine, instr, operands) } {
            return Flow::Next;
        }
        let mut last: Option<(u64, Arc<Texture>)> = None;
        for lane in lanes_of(machine.mask) {
            // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract
            // of `Handler`).
            let (handle, at) = unsafe {
                let handle = *machine.source::<u64>(instr.ops[1]).add(lane);
                (handle, coordinates(machine, instr, operands, lane))
            };
            let texture = match last.take() {
                Some((known, texture)) if known == handle => Some(texture),
                _ => texture::texture(handle),
            };
            let Some(texture) = texture else {
                let what = format!("{handle:#x} is no texture object");
                return machine.fail(instr, lane, FaultKind::IllegalAddress, handle, &what);
            };
            let result = if instr.aux & aux::GATHER != 0 {
                texture.gather(&at, (instr.aux >> aux::CHANNEL_SHIFT & 3) as usize)
            } else {
                texture.fetch(&at)
            };
            let Ok(values) = result else {
                let what = format!("the memory of texture object {handle:#x} was freed");
                return machine.fail(instr, lane, FaultKind::IllegalAddress, handle, &what);
            };
            let values = if instr.aux & aux::HALVES != 0 {
                let half = |bits: u32| u32::from(to_f16(f64::from(f32::from_bits(bits))));
                let pair = |low: usize| half(values[low]) | half(values[low + 1]) << 16;
                [pair(0), pair(2), 0, 0]
            } else {
                values
            };
            last = Some((handle, texture));
            for (op, value) in operands.iter().zip(values) {
                // SAFETY: 32-bit registers (lowering).
                unsafe { *machine.target::<u32>(*op).add(lane) = value };
            }
        }
        // SAFETY: a predicate (lowering).
        unsafe { machine.set_predicate(instr.ops[0], u32::MAX) };
        Flow::Next
    }
    run
}

/// The whole instruction, if it is one that can be done for all lanes together; false when nothing was done.
///
/// # Safety
/// As [`fetch`]; `operands` is its list.
unsafe fn fetch_together(machine: &mut Machine<'_>, instr: &Instr, operands: &[u32]) -> bool {
    let special = aux::GATHER | aux::HALVES | aux::GRADIENT | aux::LEVEL;
    // For few lanes it is not worth it.
    if instr.aux & special != 0 || machine.mask.count_ones() < LANES as u32 / 4 {
        return false;
    }
    // SAFETY: `operands` is the list of this fetch by this function's contract.
    unsafe {
        let handles = machine.lanes::<u64>(instr.ops[1]);
        let handle = handles[machine.mask.trailing_zeros() as usize % LANES];
        if lanes_of(machine.mask).any(|lane| handles[lane] != handle) {
            return false;
        }
        let places = texture::Places {
            points: [0, 1].map(|axis| machine.lanes::<u32>(operands[list::POINT + axis])),
            layers: machine.lanes::<u32>(operands[list::LAYER]),
            integer: instr.aux & aux::INTEGER != 0,
        };
        let Some(values) = texture::texture(handle).and_then(|texture| texture.fetch_warp(&places)) else {
            return false;
        };
        for (op, words) in operands.iter().zip(&values) {
            machine.set_lanes(*op, words);
        }
        machine.set_predicate(instr.ops[0], u32::MAX);
    }
    true
}

/// # Safety
/// `operands` are laid out as [`list`] says, 32 bits each.
unsafe fn coordinates(machine: &Machine<'_>, instr: &Instr, operands: &[u32], lane: usize) -> Coordinates {
    // SAFETY: `operands` are laid out as `list` says, 32 bits each, by this function's contract.
    let word = |index: usize| unsafe { *machine.source::<u32>(operands[index]).add(lane) };
    let floats = |start: usize| std::array::from_fn(|index| f32::from_bits(word(start + index)));
    let point = if instr.aux & aux::INTEGER != 0 {
        Point::Integer(std::array::from_fn(|index| word(list::POINT + index).cast_signed()))
    } else {
        Point::Float(floats(list::POINT))
    };
    let detail = if instr.aux & aux::GRADIENT != 0 {
        Detail::Gradient(floats(list::DETAIL), floats(list::DETAIL + 3))
    } else if instr.aux & aux::LEVEL == 0 {
        Detail::Base
    } else if instr.aux & aux::INTEGER != 0 {
        Detail::Level(word(list::DETAIL).cast_signed() as f32)
    } else {
        Detail::Level(f32::from_bits(word(list::DETAIL)))
    };
    Coordinates { layer: word(list::LAYER), point, detail }
}

/// Runs `operation` for every lane with its surface (`ops[1]`, u64), its place (`ops[2..5]`, u32: x in bytes, y, z) and the
/// registers `operands[ops[7]..]`.
///
/// # Safety
/// Contract of `Handler`.
unsafe fn each_surface(
    machine: &mut Machine<'_>,
    instr: &Instr,
    operation: impl Fn(&mut Machine<'_>, usize, &Surface, [i32; 3], bool),
) -> Flow {
    let bytes = 1_usize << (instr.aux >> aux::BYTES_SHIFT & 3);
    let unformatted = bytes * ((instr.aux >> aux::COUNT_SHIFT & 3) as usize + 1);
    let formatted = instr.aux & aux::FORMATTED != 0;
    let mut last: Option<(u64, Arc<Surface>)> = None;
    for lane in lanes_of(machine.mask) {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        let (handle, mut at) = unsafe {
            let handle = *machine.source::<u64>(instr.ops[1]).add(lane);
            let place = |op: u32| (*machine.source::<u32>(op).add(lane)).cast_signed();
            (handle, [place(instr.ops[2]), place(instr.ops[3]), place(instr.ops[4])])
        };
        let surface = match last.take() {
            Some((known, surface)) if known == handle => Some(surface),
            _ => texture::surface(handle),
        };
        let Some(surface) = surface else {
            let what = format!("{handle:#x} is no surface object");
            return machine.fail(instr, lane, FaultKind::IllegalAddress, handle, &what);
        };
        let all = if formatted { surface.array().format.bytes() as usize } else { unformatted };
        if formatted {
            // Far outside stays outside.
            at[0] = at[0].saturating_mul(all as i32);
        }
        let outside = surface.place(at, all).is_none();
        match (outside, instr.aux >> aux::OUTSIDE_SHIFT & 3) {
            (false, _) => operation(machine, lane, &surface, at, true),
            (true, 1) => operation(machine, lane, &surface, surface.clamp(at, all), true),
            (true, 2) => operation(machine, lane, &surface, at, false),
            (true, _) => {
                let what = format!("access of {all} bytes at {at:?} outside surface object {handle:#x}");
                return machine.fail(instr, lane, FaultKind::IllegalAddress, handle, &what);
            }
        }
        last = Some((handle, surface));
    }
    Flow::Next
}

/// Returns the number of elements, the bytes of each, and the bytes of the registers.
fn shape(instr: &Instr) -> (usize, usize, usize) {
    (
        (instr.aux >> aux::COUNT_SHIFT & 3) as usize + 1,
        1 << (instr.aux >> aux::BYTES_SHIFT & 3),
        1 << (instr.aux >> aux::REGISTER_SHIFT & 3),
    )
}

/// suld.b: see [`each_surface`].
pub(crate) fn load() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let operands = &machine.grid.code.operands[instr.ops[7] as usize..];
        let (count, bytes, register) = shape(instr);
        let read = |machine: &mut Machine<'_>, lane: usize, surface: &Surface, at: [i32; 3], inside: bool| {
            let mut texels = [0_u8; 32];
            let all = &mut texels[..count * bytes];
            // Outside, zeros stay.
            let _ = inside && surface.read(at, all);
            for (op, element) in operands.iter().zip(all.chunks(bytes)) {
                let mut word = [0; 8];
                word[..bytes].copy_from_slice(element);
                // SAFETY: lowering checked the width of the registers.
                unsafe {
                    let place = machine.target::<u8>(*op).add(lane * register);
                    std::ptr::copy_nonoverlapping(word.as_ptr(), place, register);
                }
            }
        };
        // SAFETY: contract of `Handler`.
        unsafe { each_surface(machine, instr, read) }
    }
    run
}

/// sust.b: see [`each_surface`].
pub(crate) fn store() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let operands = &machine.grid.code.operands[instr.ops[7] as usize..];
        let (count, bytes, register) = shape(instr);
        let write =
            |machine: &mut Machine<'_>, lane: usize, surface: &Surface, at: [i32; 3], inside: bool| {
                let mut texels = [0_u8; 32];
                for (op, element) in operands.iter().zip(texels.chunks_mut(bytes)).take(count) {
                    // SAFETY: lowering checked that registers are at least as wide as elements.
                    unsafe {
                        let place = machine.source::<u8>(*op).add(lane * register);
                        std::ptr::copy_nonoverlapping(place, element.as_mut_ptr(), bytes);
                    }
                }
                if inside {
                    surface.write(at, &texels[..count * bytes]);
                }
            };
        // SAFETY: contract of `Handler`.
        unsafe { each_surface(machine, instr, write) }
    }
    run
}

/// sust.p: see [`each_surface`]; 32-bit registers, converted to the surface's format. Missing vector elements are 0.
pub(crate) fn store_formatted() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let operands = &machine.grid.code.operands[instr.ops[7] as usize..];
        let (count, ..) = shape(instr);
        let write =
            |machine: &mut Machine<'_>, lane: usize, surface: &Surface, at: [i32; 3], inside: bool| {
                let format = surface.array().format;
                let (size, mut texel) = (format.channel.bytes() as usize, [0_u8; 16]);
                for (op, element) in operands.iter().zip(texel.chunks_mut(size)).take(count) {
                    // SAFETY: 32-bit registers (lowering).
                    let value = unsafe { *machine.source::<u32>(*op).add(lane) };
                    element.copy_from_slice(&format.channel.encode(value)[..size]);
                }
                if inside {
                    surface.write(at, &texel[..format.bytes() as usize]);
                }
            };
        // SAFETY: contract of `Handler`.
        unsafe { each_surface(machine, instr, write) }
    }
    run
}

/// The operations of sured; their places are in `aux`.
pub(crate) const REDUCTIONS: [&str; 5] = ["add", "min", "max", "and", "or"];

/// sured: see [`each_surface`]. One 32-bit or 64-bit word is changed atomically.
pub(crate) fn reduce() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let operand = machine.grid.code.operands[instr.ops[7] as usize];
        let formatted = instr.aux & aux::FORMATTED != 0;
        let (_, bytes, _) = shape(instr);
        let update =
            |machine: &mut Machine<'_>, lane: usize, surface: &Surface, at: [i32; 3], inside: bool| {
                let channel = surface.array().format.channel;
                if !inside || formatted && !matches!(channel, Channel::U32 | Channel::S32) {
                    return;
                }
                let signed = if formatted { channel == Channel::S32 } else { instr.aux & aux::SIGNED != 0 };
                let Some(place) = surface.place(at, bytes).filter(|place| place.addr().is_multiple_of(bytes))
                else {
                    return;
                };
                let operation = instr.aux >> aux::REDUCTION_SHIFT & 7;
                // SAFETY: `place` found all bytes inside the array, which the surface keeps, and they are aligned; the register is
                // as wide as `bytes` says (lowering).
                unsafe {
                    if bytes == 4 {
                        let value = *machine.source::<u32>(operand).add(lane);
                        let wide = |word: u32| {
                            if signed { i64::from(word.cast_signed()).cast_unsigned() } else { word.into() }
                        };
                        u32::replace(place.cast(), |old| {
                            reduced(wide(old), wide(value), operation, signed) as u32
                        });
                    } else {
                        let value = *machine.source::<u64>(operand).add(lane);
                        u64::replace(place.cast(), |old| reduced(old, value, operation, signed));
                    }
                }
            };
        // SAFETY: contract of `Handler`.
        unsafe { each_surface(machine, instr, update) }
    }
    run
}

/// Returns a word that was reduced with a value. The low bits of the result do not depend on those above them, if both are extended
/// by their sign.
fn reduced(old: u64, value: u64, operation: u32, signed: bool) -> u64 {
    match (operation, signed) {
        (0, _) => old.wrapping_add(value),
        (1, true) => old.cast_signed().min(value.cast_signed()).cast_unsigned(),
        (1, false) => old.min(value),
        (2, true) => old.cast_signed().max(value.cast_signed()).cast_unsigned(),
        (2, false) => old.max(value),
        (3, _) => old & value,
        _ => old | value,
    }
}

/// Returns the query of txq and suq with a name; `aux` of [`query`].
pub(crate) fn question(name: &str) -> Option<u32> {
    let names = [
        "width",
        "height",
        "depth",
        "channel_data_type",
        "channel_order",
        "normalized_coords",
        "array_size",
        "num_mipmap_levels",
        "num_samples",
        "filter_mode",
    ];
    names.iter().position(|known| *known == name).map(|index| index as u32)
}

/// In `aux` of [`query`]: of a surface.
pub(crate) const OF_SURFACE: u32 = 1 << 8;

/// txq and suq: `ops[0]` (u32) of the object in `ops[1]` (u64).
pub(crate) fn query() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        for lane in lanes_of(machine.mask) {
            // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract
            // of `Handler`).
            let handle = unsafe { *machine.source::<u64>(instr.ops[1]).add(lane) };
            let value = if instr.aux & OF_SURFACE != 0 {
                texture::surface(handle).map(|surface| {
                    let array = surface.array();
                    answer(instr.aux & 0xff, array.dimension, array.level.extent, array.format, None)
                })
            } else {
                texture::texture(handle).map(|texture| {
                    let extent = texture.level(0).extent;
                    answer(instr.aux & 0xff, texture.dimension(), extent, texture.format(), Some(&texture))
                })
            };
            let Some(value) = value else {
                let what = format!("{handle:#x} is no texture or surface object");
                return machine.fail(instr, lane, FaultKind::IllegalAddress, handle, &what);
            };
            // SAFETY: `ops[0]` is a register of 32 bits (contract of `Handler`).
            unsafe { *machine.target::<u32>(instr.ops[0]).add(lane) = value };
        }
        Flow::Next
    }
    run
}

/// The numbers of data types and orders are those of OpenCL, according to the manual.
fn answer(
    question: u32,
    dimension: Dimension,
    extent: texture::Extent,
    format: texture::Format,
    texture: Option<&Texture>,
) -> u32 {
    let layers = match dimension {
        Dimension::D1Layered | Dimension::D2Layered => extent.depth,
        Dimension::CubeLayered => extent.depth / 6,
        _ => 0,
    };
    match question {
        0 => extent.width,
        1 => match dimension {
            Dimension::D1 | Dimension::D1Layered => 0,
            _ => extent.height,
        },
        2 => {
            if dimension == Dimension::D3 {
                extent.depth
            } else {
                0
            }
        }
        3 => match format.channel {
            Channel::Snorm8 => 0x10d0,
            Channel::Snorm16 => 0x10d1,
            Channel::Unorm8 => 0x10d2,
            Channel::Unorm16 => 0x10d3,
            Channel::S8 => 0x10d7,
            Channel::S16 => 0x10d8,
            Channel::S32 => 0x10d9,
            Channel::U8 => 0x10da,
            Channel::U16 => 0x10db,
            Channel::U32 => 0x10dc,
            Channel::F16 => 0x10dd,
            Channel::F32 => 0x10de,
        },
        4 => match format.channels {
            1 => 0x10b0,
            2 => 0x10b2,
            3 => 0x10b4,
            _ => 0x10b5,
        },
        5 => u32::from(texture.is_some_and(|texture| texture.sampler().normalized_coordinates)),
        6 => layers,
        7 => texture.map_or(1, |texture| texture.levels() as u32),
        8 => 1,
        _ => u32::from(texture.is_some_and(|texture| texture.sampler().linear)),
    }
}

/// istypep: the predicate `ops[0]`, whether `ops[1]` (u64) is a texture (`aux` 0), a surface (1), or a sampler (2: never).
pub(crate) fn is_type() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let mut bits = 0;
        for lane in lanes_of(machine.mask) {
            // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract
            // of `Handler`).
            let handle = unsafe { *machine.source::<u64>(instr.ops[1]).add(lane) };
            let found = match instr.aux {
                0 => texture::texture(handle).is_some(),
                1 => texture::surface(handle).is_some(),
                _ => false,
            };
            bits |= u32::from(found) << lane;
        }
        // SAFETY: a predicate (lowering).
        unsafe { machine.set_predicate(instr.ops[0], bits) };
        Flow::Next
    }
    run
}
