// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The matrices of `mma` and `wmma` in the lanes of a warp, in the layouts that the PTX manual draws for `mma`. The
//! manual does not define those of `wmma`. Here they are the same, for larger matrices block after block.

use super::lanes::LANES;

/// The maximum number of rows or columns of a matrix.
pub(crate) const MAX_SIDE: usize = 32;
/// The maximum number of elements in the direction of K. One-bit matrices have more, and do not use [`Matrices`]'
/// tables.
pub(crate) const MAX_DEPTH: usize = 64;

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    F32,
    F64,
    S8,
    U8,
    S4,
    U4,
    B1,
    S32,
}

impl Element {
    const ALL: [Element; 13] = [
        Element::F16,
        Element::Bf16,
        Element::Tf32,
        Element::E4m3,
        Element::E5m2,
        Element::F32,
        Element::F64,
        Element::S8,
        Element::U8,
        Element::S4,
        Element::U4,
        Element::B1,
        Element::S32,
    ];

    /// Returns the element whose number, as an integer, is this.
    pub(crate) fn from_number(number: u32) -> Element {
        Element::ALL[number as usize % Element::ALL.len()]
    }

    /// Returns the element with this PTX type name.
    pub(crate) fn from_name(name: &str) -> Option<Element> {
        Some(match name {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            "f32" => Element::F32,
            "f64" => Element::F64,
            "s8" => Element::S8,
            "u8" => Element::U8,
            "s4" => Element::S4,
            "u4" => Element::U4,
            "b1" => Element::B1,
            "s32" => Element::S32,
            _ => return None,
        })
    }

    /// The number of bits in memory and in a register.
    pub(crate) fn bits(self) -> usize {
        match self {
            Element::F64 => 64,
            Element::Tf32 | Element::F32 | Element::S32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
            Element::S4 | Element::U4 => 4,
            Element::B1 => 1,
        }
    }

    /// The number of elements that one register holds.
    pub(crate) fn per_register(self) -> usize {
        if self == Element::F64 { 1 } else { 32 / self.bits() }
    }

    /// Returns whether it is multiplied and added as an integer.
    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Element::S8 | Element::U8 | Element::S4 | Element::U4 | Element::B1 | Element::S32)
    }
}

/// One of the matrices of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    A,
    B,
    /// The accumulators C and D.
    C,
}

/// The operation that multiplies bits (`.xor.popc`, `.and.popc`), if elements are bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BitOperation {
    None,
    Xor,
    And,
}

/// `D = A * B + C`; for `wmma.load` and `wmma.store`, the matrix that is loaded or stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Element,
    pub(crate) b: Element,
    pub(crate) c: Element,
    pub(crate) d: Element,
    pub(crate) saturate: bool,
    pub(crate) bits: BitOperation,
    /// Registers of A, B, C and D, including copies.
    pub(crate) registers: [usize; 4],
}

/// A shape with the computed positions of all elements: register by register, lane by lane, element by element.
#[derive(Debug, Clone)]
pub(crate) struct Matrices {
    pub(crate) shape: Shape,
    /// Row * [`MAX_DEPTH`] + column.
    pub(crate) a: Vec<u16>,
    /// Row * [`MAX_SIDE`] + column.
    pub(crate) b: Vec<u16>,
    /// Row * [`MAX_SIDE`] + column.
    pub(crate) c: Vec<u16>,
    /// The positions in D, whose elements may be smaller than those of C.
    pub(crate) d: Vec<u16>,
}

impl Matrices {
    pub(crate) fn new(shape: Shape) -> Matrices {
        let table = |role: Role, element: Element, registers: usize, stride: usize| {
            let fragment = shape.fragment(role, element);
            let mut places = Vec::new();
            if element == Element::B1 {
                return places;
            }
            for register in 0..registers {
                for lane in 0..LANES {
                    for index in 0..fragment.elements {
                        let (row, column) = fragment.place(lane, register, index);
                        places.push((row * stride + column) as u16);
                    }
                }
            }
            places
        };
        let [a, b, c, d] = shape.registers;
        Matrices {
            a: table(Role::A, shape.a, a.min(shape.fragment(Role::A, shape.a).registers), MAX_DEPTH),
            b: table(Role::B, shape.b, b.min(shape.fragment(Role::B, shape.b).registers), MAX_SIDE),
            c: table(Role::C, shape.c, c, MAX_SIDE),
            d: table(Role::C, shape.d, d, MAX_SIDE),
            shape,
        }
    }
}

/// The layout of one matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment {
    role: Role,
    /// The number of elements in a register.
    pub(crate) elements: usize,
    /// The number of registers that hold different elements; further ones repeat them.
    pub(crate) registers: usize,
    /// Blocks of 8 rows of A and C.
    row_blocks: usize,
    /// Registers in the direction of K.
    depth: usize,
    /// True if the layout is the transposed one of the transposed shape.
    transposed: bool,
}

impl Shape {
    /// Returns the layout of a matrix of this shape with elements of type `element`.
    pub(crate) fn fragment(&self, role: Role, element: Element) -> Fragment {
        let elements = element.per_register();
        let size = match role {
            Role::A => self.m * self.k,
            Role::B => self.k * self.n,
            Role::C => self.m * self.n,
        };
        // As on an H200: m8n32 is computed as the transposed m32n8.
        let transposed = role == Role::C && self.m == 8 && self.n == 32;
        Fragment {
            role,
            elements,
            registers: (size / LANES / elements).max(1),
            row_blocks: if transposed { self.n } else { self.m } / 8,
            transposed,
            depth: self.k / (4 * elements),
        }
    }
}

impl Fragment {
    /// Returns row and column of element `element` of register `register` of a lane.
    #[inline(always)]
    pub(crate) fn place(&self, lane: usize, register: usize, element: usize) -> (usize, usize) {
        let (group, member) = (lane / 4, lane % 4);
        let register = register % self.registers;
        match self.role {
            Role::A => {
                let depth = register / self.row_blocks;
                let row = group + 8 * (register % self.row_blocks);
                (row, (4 * depth + member) * self.elements + element)
            }
            Role::B => {
                let (depth, block) = (register % self.depth, register / self.depth);
                ((4 * depth + member) * self.elements + element, group + 8 * block)
            }
            Role::C => {
                let index = register * self.elements + element;
                let (block, inside) = (index / (2 * self.row_blocks), index % (2 * self.row_blocks));
                let (row, column) = (group + 8 * (inside / 2), 8 * block + 2 * member + inside % 2);
                if self.transposed { (column, row) } else { (row, column) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element of every matrix is held exactly once by the registers without the copies.
    #[test]
    fn fragments_cover_their_matrices() {
        let shapes = [
            (16, 8, 4, Element::Tf32),
            (16, 8, 8, Element::Tf32),
            (16, 8, 8, Element::F16),
            (16, 8, 16, Element::F16),
            (16, 16, 16, Element::F16),
            (32, 8, 16, Element::Bf16),
            (8, 32, 16, Element::U8),
            (8, 8, 4, Element::F64),
            (16, 8, 16, Element::F64),
            (16, 8, 64, Element::S4),
            (16, 8, 256, Element::B1),
        ];
        for (m, n, k, element) in shapes {
            let shape = Shape {
                m,
                n,
                k,
                a: element,
                b: element,
                c: Element::F32,
                d: Element::F32,
                saturate: false,
                bits: BitOperation::None,
                registers: [0; 4],
            };
            for (role, rows, columns) in [(Role::A, m, k), (Role::B, k, n), (Role::C, m, n)] {
                let element = if role == Role::C { Element::F32 } else { element };
                let fragment = shape.fragment(role, element);
                let mut seen = vec![0; rows * columns];
                for lane in 0..LANES {
                    for register in 0..fragment.registers {
                        for index in 0..fragment.elements {
                            let (row, column) = fragment.place(lane, register, index);
                            assert!(row < rows && column < columns, "{shape:?} {role:?}");
                            seen[row * columns + column] += 1;
                        }
                    }
                }
                assert!(seen.iter().all(|count| *count == 1), "{shape:?} {role:?}");
            }
        }
    }
}
