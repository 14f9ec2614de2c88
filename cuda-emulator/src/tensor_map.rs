// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CUtensorMap: the description of a tensor in global memory from which `cp.async.bulk.tensor` computes addresses. CUDA
//! leaves its 128 bytes open. These are the emulated device's; kernels may hold any bytes, so every field is checked
//! when a map is read.

use crate::ptx::types::Type;

/// A map in memory.
pub(crate) type Words = [u64; 16];

pub(crate) const BYTES: u64 = size_of::<Words>() as u64;
/// The alignment of a map in bytes.
pub(crate) const ALIGNMENT: u64 = 64;
pub(crate) const MAX_RANK: usize = 5;
/// The maximum number of elements of a box along one side, and of pixels of a column.
pub(crate) const MAX_BOX: u32 = 256;
pub(crate) const MAX_PIXELS: u32 = 1024;
/// The maximum element stride.
pub(crate) const MAX_ELEMENT_STRIDE: u32 = 8;
/// The maximum width of an address and of a stride, in bits.
pub(crate) const ADDRESS_BITS: u32 = 57;
pub(crate) const STRIDE_BITS: u32 = 40;
/// The maximum number of elements of a tensor along one side.
pub(crate) const MAX_SIZE: u64 = 1 << 32;
/// Rows of a box, addresses and strides are multiples of this number of bytes.
pub(crate) const UNIT: u64 = 16;
/// The maximum size of a row of a box in bytes.
pub(crate) const MAX_ROW: usize = MAX_BOX as usize * 8;

/// In the last word, so that other bytes are not taken for a map.
const MARK: u64 = 0x7063_6d54_656e_736f;

/// The type of the elements, CUtensorMapDataType.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element(pub(crate) u32);

/// The NaN that stands for elements outside of a tensor, as an H200 writes it: two bytes for all types.
const NAN: [u8; 2] = [0xf7, 0x7f];

impl Element {
    /// The number of types without the packed ones, which later devices have.
    pub(crate) const COUNT: u32 = 13;

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> u64 {
        match self.0 {
            0 => 1,
            1 | 6 | 9 => 2,
            4 | 5 | 8 => 8,
            _ => 4,
        }
    }

    /// The type for arithmetic.
    pub(crate) fn kind(self) -> Type {
        match self.0 {
            0 => Type::U8,
            1 => Type::U16,
            2 => Type::U32,
            3 => Type::S32,
            4 => Type::U64,
            5 => Type::S64,
            6 => Type::F16,
            8 => Type::F64,
            9 => Type::Bf16,
            _ => Type::F32,
        }
    }

    /// Returns whether a load rounds elements to tf32. The types that flush subnormals are loaded as they are (seen on an H200).
    pub(crate) fn is_shortened(self) -> bool {
        matches!(self.0, 11 | 12)
    }

    /// The bytes of the NaN that stands for elements outside: the same in all types.
    pub(crate) fn nan() -> [u8; 8] {
        std::array::from_fn(|index| NAN[index % NAN.len()])
    }
}

/// The elements that one copy moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    /// A box: its size along each side.
    Tile([u32; MAX_RANK]),
    /// `channels` of each of `pixels` pixels, which follow each other in the box between the corners (`.im2col`).
    Columns { lower: [i16; 3], upper: [i16; 3], channels: u32, pixels: u32 },
}

/// A map's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorMap {
    pub(crate) element: Element,
    pub(crate) rank: usize,
    pub(crate) address: u64,
    /// Elements along each side.
    pub(crate) sizes: [u64; MAX_RANK],
    /// Bytes from one element to the next along each side but the first.
    pub(crate) strides: [u64; MAX_RANK - 1],
    /// Elements from one that is copied to the next, along each side.
    pub(crate) element_strides: [u32; MAX_RANK],
    /// CUtensorMapInterleave
    pub(crate) interleave: u32,
    /// CUtensorMapSwizzle
    pub(crate) swizzle: u32,
    /// CUtensorMapL2promotion
    pub(crate) promotion: u32,
    /// CUtensorMapFloatOOBfill
    pub(crate) fill: u32,
    pub(crate) region: Region,
}

/// The places of the fields in the words.
mod place {
    pub(super) const KINDS: usize = 0;
    pub(super) const ADDRESS: usize = 1;
    pub(super) const SIZES: usize = 2;
    pub(super) const STRIDES: usize = 7;
    pub(super) const BOX: usize = 11;
    pub(super) const ELEMENT_STRIDES: usize = 12;
    pub(super) const CORNERS: usize = 13;
    pub(super) const MARK: usize = 15;
    /// Bits of a side of a box.
    pub(super) const BOX_BITS: usize = 12;
    /// Bits of an element stride, and of each field of the first word.
    pub(super) const SMALL_BITS: usize = 8;
}

/// The fields of the first word, from its low bits on.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Element,
    Rank,
    Interleave,
    Swizzle,
    Promotion,
    Fill,
    Columns,
}

/// A part of a map that `tensormap.replace` changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Field {
    Address,
    Rank,
    Box,
    Size,
    Stride,
    ElementStride,
    Element,
    Interleave,
    Swizzle,
    Fill,
}

impl Field {
    pub(crate) const ALL: [(&'static str, Field); 10] = [
        ("global_address", Field::Address),
        ("rank", Field::Rank),
        ("box_dim", Field::Box),
        ("global_dim", Field::Size),
        ("global_stride", Field::Stride),
        ("element_stride", Field::ElementStride),
        ("elemtype", Field::Element),
        ("interleave_layout", Field::Interleave),
        ("swizzle_mode", Field::Swizzle),
        ("fill_mode", Field::Fill),
    ];

    /// The number of values of `tensormap.replace`'s ordinal, if the field has several.
    pub(crate) fn count(self) -> Option<usize> {
        match self {
            Field::Box | Field::Size | Field::ElementStride => Some(MAX_RANK),
            Field::Stride => Some(MAX_RANK - 1),
            _ => None,
        }
    }
}

fn part(word: u64, bits: usize, index: usize) -> u64 {
    word >> (bits * index) & ((1 << bits) - 1)
}

fn set_part(word: &mut u64, bits: usize, index: usize, value: u64) {
    let mask = (1 << bits) - 1;
    *word = *word & !(mask << (bits * index)) | (value & mask) << (bits * index);
}

/// Changes one field of a map by the rules of `tensormap.replace`. Zeros become a map so: kernels make theirs of them.
pub(crate) fn replace(words: &mut Words, field: Field, ordinal: usize, value: u64) {
    words[place::MARK] = MARK;
    let small = |kind: Kind| (place::KINDS, place::SMALL_BITS, kind as usize);
    let (word, bits, index) = match field {
        Field::Address => return words[place::ADDRESS] = value,
        Field::Size => return words[place::SIZES + ordinal] = value & u64::from(u32::MAX),
        Field::Stride => return words[place::STRIDES + ordinal] = value,
        Field::Box => (place::BOX, place::BOX_BITS, ordinal),
        Field::ElementStride => (place::ELEMENT_STRIDES, place::SMALL_BITS, ordinal),
        Field::Rank => small(Kind::Rank),
        Field::Element => small(Kind::Element),
        Field::Interleave => small(Kind::Interleave),
        Field::Swizzle => small(Kind::Swizzle),
        Field::Fill => small(Kind::Fill),
    };
    let value = match field {
        // The manual's rank starts at zero.
        Field::Rank => value.wrapping_add(1),
        // The manual numbers `.f32.ftz`, `.f64` and `.bf16` otherwise than cuda.h.
        Field::Element => match value {
            8 => 10,
            9 => 8,
            10 => 9,
            other => other,
        },
        _ => value,
    };
    // A value with more bits than the field is replaced by the largest one of these bits, which no valid map has.
    set_part(&mut words[word], bits, index, value.min((1 << bits) - 1));
}

/// Changes the address of a map.
pub(crate) fn replace_address(words: &mut Words, address: u64) {
    words[place::ADDRESS] = address;
}

impl TensorMap {
    pub(crate) fn to_words(&self) -> Words {
        let mut words = [0; 16];
        let columns = matches!(self.region, Region::Columns { .. });
        let kinds = [
            (Kind::Element, self.element.0),
            (Kind::Rank, self.rank as u32),
            (Kind::Interleave, self.interleave),
            (Kind::Swizzle, self.swizzle),
            (Kind::Promotion, self.promotion),
            (Kind::Fill, self.fill),
            (Kind::Columns, u32::from(columns)),
        ];
        for (kind, value) in kinds {
            set_part(&mut words[place::KINDS], place::SMALL_BITS, kind as usize, u64::from(value));
        }
        words[place::ADDRESS] = self.address;
        words[place::SIZES..][..MAX_RANK].copy_from_slice(&self.sizes);
        words[place::STRIDES..][..MAX_RANK - 1].copy_from_slice(&self.strides);
        for (index, stride) in self.element_strides.into_iter().enumerate() {
            set_part(&mut words[place::ELEMENT_STRIDES], place::SMALL_BITS, index, u64::from(stride));
        }
        match self.region {
            Region::Tile(sides) => {
                for (index, side) in sides.into_iter().enumerate() {
                    set_part(&mut words[place::BOX], place::BOX_BITS, index, u64::from(side));
                }
            }
            Region::Columns { lower, upper, channels, pixels } => {
                words[place::BOX] = u64::from(channels) | u64::from(pixels) << 32;
                for (index, corner) in lower.into_iter().chain(upper).enumerate() {
                    let word = &mut words[place::CORNERS + index / 3];
                    set_part(word, 16, index % 3, u64::from(corner as u16));
                }
            }
        }
        words[place::MARK] = MARK;
        words
    }

    /// Reads a map. `None` if the words are no map, or if a field has a value that no map has.
    pub(crate) fn from_words(words: &Words) -> Option<TensorMap> {
        if words[place::MARK] != MARK {
            return None;
        }
        let kind = |kind: Kind| part(words[place::KINDS], place::SMALL_BITS, kind as usize) as u32;
        let region = if kind(Kind::Columns) == 0 {
            let side = |index| part(words[place::BOX], place::BOX_BITS, index) as u32;
            Region::Tile(std::array::from_fn(side))
        } else {
            let corner =
                |which: usize| move |index| part(words[place::CORNERS + which], 16, index) as u16 as i16;
            Region::Columns {
                lower: std::array::from_fn(corner(0)),
                upper: std::array::from_fn(corner(1)),
                channels: words[place::BOX] as u32,
                pixels: (words[place::BOX] >> 32) as u32,
            }
        };
        let stride = |index| part(words[place::ELEMENT_STRIDES], place::SMALL_BITS, index) as u32;
        let map = TensorMap {
            element: Element(kind(Kind::Element)),
            rank: kind(Kind::Rank) as usize,
            address: words[place::ADDRESS],
            sizes: std::array::from_fn(|index| words[place::SIZES + index]),
            strides: std::array::from_fn(|index| words[place::STRIDES + index]),
            element_strides: std::array::from_fn(stride),
            interleave: kind(Kind::Interleave),
            swizzle: kind(Kind::Swizzle),
            promotion: kind(Kind::Promotion),
            fill: kind(Kind::Fill),
            region,
        };
        map.is_valid().then_some(map)
    }

    /// Returns whether copies can rely on the fields. A packed type is not one that they know.
    fn is_valid(&self) -> bool {
        let TensorMap { rank, .. } = *self;
        if self.element.0 >= Element::COUNT || !(1..=MAX_RANK).contains(&rank) {
            return false;
        }
        let within = |address: u64, bits: u32| address.is_multiple_of(UNIT) && address >> bits == 0;
        let sides = match self.region {
            Region::Tile(sides) => sides[..rank].iter().all(|side| (1..=MAX_BOX).contains(side)),
            Region::Columns { channels, pixels, .. } => {
                rank >= 3 && (1..=MAX_BOX).contains(&channels) && (1..=MAX_PIXELS).contains(&pixels)
            }
        };
        let row = self.row_bytes();
        sides
            && within(self.address, ADDRESS_BITS)
            && self.sizes[..rank].iter().all(|size| (1..=MAX_SIZE).contains(size))
            && self.strides[..rank - 1].iter().all(|stride| within(*stride, STRIDE_BITS))
            && self.element_strides[..rank].iter().all(|step| (1..=MAX_ELEMENT_STRIDE).contains(step))
            && self.interleave < 3
            && self.swizzle < 4
            && self.fill < 2
            && (self.interleave != 0
                || row.is_multiple_of(UNIT) && (self.swizzle == 0 || row <= self.swizzle_bytes()))
    }

    /// The bytes within which a swizzled row stays.
    fn swizzle_bytes(&self) -> u64 {
        UNIT << self.swizzle
    }

    /// Elements of a row of the region.
    pub(crate) fn row_elements(&self) -> u64 {
        u64::from(match self.region {
            Region::Tile(sides) => sides[0],
            Region::Columns { channels, .. } => channels,
        })
    }

    /// Bytes of a row of the region, at most [`MAX_ROW`].
    pub(crate) fn row_bytes(&self) -> u64 {
        self.row_elements() * self.element.bytes()
    }

    /// Bytes from one row to the next in shared memory: a swizzled row takes the whole width of the pattern.
    pub(crate) fn row_pitch(&self) -> u64 {
        if self.swizzle == 0 { self.row_bytes() } else { self.swizzle_bytes() }
    }

    /// Rows of the region.
    pub(crate) fn row_count(&self) -> u64 {
        match self.region {
            Region::Tile(_) => (1..self.rank).map(|side| u64::from(self.steps(side))).product(),
            Region::Columns { pixels, .. } => u64::from(pixels),
        }
    }

    /// The elements that a box has along a side: every n-th with an element stride of n.
    fn steps(&self, side: usize) -> u32 {
        match self.region {
            Region::Tile(sides) => sides[side].div_ceil(self.element_strides[side]),
            Region::Columns { .. } => 1,
        }
    }

    /// The shared address at which a byte at `address` lies: the row's number within the pattern is added, without
    /// carry, to the number of the 16 bytes within the row.
    pub(crate) fn swizzled(&self, address: u64) -> u64 {
        address ^ (address >> 7 & ((1 << self.swizzle) - 1)) << 4
    }

    /// The rows of the region that starts at the coordinates `start`, in the order in which they lie in shared memory.
    /// `offsets` are those of `.im2col`.
    pub(crate) fn rows(&self, start: [i32; MAX_RANK], offsets: [u16; 3]) -> Rows<'_> {
        Rows {
            map: self,
            start: start.map(i64::from),
            at: start.map(i64::from),
            offsets,
            left: self.row_count(),
        }
    }
}

/// See [`TensorMap::rows`]. An item is the global address of the row's element with the first coordinate 0, or `None`
/// when the row is outside of the tensor.
pub(crate) struct Rows<'m> {
    map: &'m TensorMap,
    start: [i64; MAX_RANK],
    at: [i64; MAX_RANK],
    offsets: [u16; 3],
    left: u64,
}

impl Rows<'_> {
    /// Goes on to the next row.
    fn step(&mut self) {
        let map = self.map;
        for side in 1..map.rank {
            let step = i64::from(map.element_strides[side]);
            self.at[side] += step;
            let (first, end) = match map.region {
                Region::Tile(_) => (self.start[side], self.start[side] + i64::from(map.steps(side)) * step),
                // The last side counts images and has no end.
                Region::Columns { .. } if side == map.rank - 1 => return,
                Region::Columns { lower, upper, .. } => {
                    (i64::from(lower[side - 1]), map.sizes[side] as i64 + i64::from(upper[side - 1]))
                }
            };
            if self.at[side] < end {
                return;
            }
            self.at[side] = first;
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Option<u64>;

    fn next(&mut self) -> Option<Option<u64>> {
        self.left = self.left.checked_sub(1)?;
        let map = self.map;
        let columns = matches!(map.region, Region::Columns { .. });
        let mut address = Some(map.address);
        for side in 1..map.rank {
            let moved = columns && side < map.rank - 1;
            let coordinate = self.at[side] + if moved { i64::from(self.offsets[side - 1]) } else { 0 };
            let inside = u64::try_from(coordinate).ok().filter(|at| *at < map.sizes[side]);
            address = address.zip(inside).map(|(address, coordinate)| {
                address.wrapping_add(coordinate.wrapping_mul(map.strides[side - 1]))
            });
        }
        self.step();
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile() -> TensorMap {
        TensorMap {
            element: Element(1),
            rank: 3,
            address: 0x1000,
            sizes: [10, 4, 3, 0, 0],
            strides: [32, 128, 0, 0],
            element_strides: [1, 2, 1, 0, 0],
            interleave: 0,
            swizzle: 0,
            promotion: 3,
            fill: 1,
            region: Region::Tile([8, 3, 2, 0, 0]),
        }
    }

    fn columns() -> TensorMap {
        TensorMap {
            rank: 4,
            sizes: [8, 3, 2, 2, 0],
            strides: [16, 64, 128, 0],
            element_strides: [1, 1, 1, 1, 0],
            region: Region::Columns { lower: [-1, 0, 7], upper: [-1, 0, -7], channels: 8, pixels: 7 },
            ..tile()
        }
    }

    #[test]
    fn a_map_is_read_as_it_was_written() {
        for map in [tile(), columns()] {
            assert_eq!(TensorMap::from_words(&map.to_words()), Some(map));
        }
    }

    #[test]
    fn other_bytes_are_no_map() {
        assert_eq!(TensorMap::from_words(&[0; 16]), None);
        let wrong = |change: &dyn Fn(&mut TensorMap)| {
            let mut map = tile();
            change(&mut map);
            assert_eq!(TensorMap::from_words(&map.to_words()), None, "{map:?}");
        };
        wrong(&|map| map.element = Element(13));
        wrong(&|map| map.rank = 6);
        wrong(&|map| map.address = 8);
        wrong(&|map| map.sizes[2] = 0);
        wrong(&|map| map.strides[1] = 1 << STRIDE_BITS);
        wrong(&|map| map.element_strides[1] = 0);
        wrong(&|map| map.region = Region::Tile([7, 1, 1, 0, 0]));
        wrong(&|map| map.region = Region::Tile([8, 257, 1, 0, 0]));
        wrong(&|map| (map.swizzle, map.region) = (1, Region::Tile([32, 1, 1, 0, 0])));
    }

    #[test]
    fn the_rows_of_a_box_step_by_their_strides() {
        let rows: Vec<_> = tile().rows([0, 3, 1, 0, 0], [0; 3]).collect();
        let address = 0x1000 + 3 * 32 + 128;
        assert_eq!(rows, [Some(address), None, Some(address + 128), None]);
        let rows: Vec<_> = tile().rows([0, -2, 2, 0, 0], [0; 3]).collect();
        assert_eq!(rows, [None, Some(0x1000 + 256), None, None]);
    }

    #[test]
    fn pixels_follow_each_other_in_their_box() {
        // The box is from -1 to 1 along the first side, from 0 to 1 along the second; the filter's offset is (1, 1).
        let rows: Vec<_> = columns().rows([0, 0, 0, 0, 0], [1, 1, 0]).collect();
        let at = |x: u64, y: u64, n: u64| Some(0x1000 + x * 16 + y * 64 + n * 128);
        assert_eq!(rows, [at(1, 1, 0), at(2, 1, 0), None, None, None, at(0, 1, 1), at(1, 1, 1)]);
    }

    #[test]
    fn swizzling_permutes_sixteen_bytes_within_a_row() {
        let places = |swizzle, row: u64| -> Vec<u64> {
            let map = TensorMap { swizzle, ..tile() };
            (0..16 << swizzle).step_by(16).map(|at| map.swizzled(128 * row + at) - 128 * row).collect()
        };
        assert_eq!(places(1, 3), [16, 0]);
        assert_eq!(places(2, 2), [32, 48, 0, 16]);
        assert_eq!(places(3, 5), [80, 64, 112, 96, 16, 0, 48, 32]);
    }

    #[test]
    fn fields_are_replaced_by_the_manuals_numbers() {
        let mut words = tile().to_words();
        let changes = [
            (Field::Rank, 0, 1),
            (Field::Element, 0, 10),
            (Field::Box, 1, 7),
            (Field::Size, 0, 77),
            (Field::Stride, 0, 48),
            (Field::ElementStride, 1, 3),
            (Field::Swizzle, 0, 3),
            (Field::Fill, 0, 0),
            (Field::Address, 0, 0x2000),
        ];
        for (field, ordinal, value) in changes {
            replace(&mut words, field, ordinal, value);
        }
        let map = TensorMap::from_words(&words).unwrap();
        assert_eq!((map.rank, map.element, map.sizes[0], map.strides[0]), (2, Element(9), 77, 48));
        assert_eq!((map.address, map.swizzle, map.fill, map.element_strides[1]), (0x2000, 3, 0, 3));
        assert_eq!(map.region, Region::Tile([8, 7, 2, 0, 0]));
        replace(&mut words, Field::Box, 1, 1 << 20);
        assert_eq!(TensorMap::from_words(&words), None);
    }

    #[test]
    fn kernels_make_maps_of_zeros() {
        let mut words = [0; 16];
        let fields = [
            (Field::Address, 0, 0x1000),
            (Field::Rank, 0, 1),
            (Field::Box, 0, 8),
            (Field::Box, 1, 4),
            (Field::Size, 0, 100),
            (Field::Size, 1, 50),
            (Field::Stride, 0, 208),
            (Field::ElementStride, 0, 1),
            (Field::ElementStride, 1, 1),
            (Field::Element, 0, 6),
        ];
        for (field, ordinal, value) in fields {
            assert_eq!(TensorMap::from_words(&words), None);
            replace(&mut words, field, ordinal, value);
        }
        let map = TensorMap::from_words(&words).unwrap();
        assert_eq!((map.rank, map.element, map.row_bytes(), map.row_count()), (2, Element(6), 16, 4));
    }
}
