// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The positions of the lanes of a block, and the knowledge about the lanes of a register.

/// The positions of the lanes of a block's warps in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Parts of a warp in each of which threadIdx.x counts up and threadIdx.y and .z stay: 1, 2 or 4.
    pub(crate) groups: usize,
    /// threadIdx follows that rule.
    pub(crate) regular: bool,
}

impl Shape {
    /// The number of different shapes.
    pub(crate) const COUNT: usize = 4;

    /// Returns the shape of blocks of these dimensions.
    pub(crate) fn of(block: [u32; 3]) -> Shape {
        let [x, y, z] = block;
        match x {
            _ if (y == 1 && z == 1) || x % 32 == 0 => Shape { groups: 1, regular: true },
            _ if x % 16 == 0 => Shape { groups: 2, regular: true },
            _ if x % 8 == 0 => Shape { groups: 4, regular: true },
            _ => Shape { groups: 1, regular: false },
        }
    }

    /// A number below [`Self::COUNT`].
    pub(crate) fn index(self) -> usize {
        if self.regular { self.groups.ilog2() as usize } else { 3 }
    }
}

/// The known facts about the lanes of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing; they lie in the frame.
    Vector,
    /// All are equal.
    Uniform,
    /// In each group of lanes, each is so much more than the one before.
    Affine(i64),
}

impl Kind {
    /// The facts that hold for both.
    pub(crate) fn join(self, other: Kind) -> Kind {
        match (self, other) {
            (a, b) if a == b => a,
            (Kind::Uniform, Kind::Affine(0)) | (Kind::Affine(0), Kind::Uniform) => Kind::Affine(0),
            _ => Kind::Vector,
        }
    }

    /// The step from lane to lane.
    pub(crate) fn stride(self) -> Option<i64> {
        match self {
            Kind::Vector => None,
            Kind::Uniform => Some(0),
            Kind::Affine(stride) => Some(stride),
        }
    }
}
