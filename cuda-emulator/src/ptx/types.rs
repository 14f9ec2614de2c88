// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fundamental types and state spaces of PTX.

/// A fundamental type, `.pred` included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(crate) enum Type {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    B8,
    B16,
    B32,
    B64,
    B128,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    U16x2,
    S16x2,
    Pred,
}

impl Type {
    /// Parses the name without its dot.
    pub(crate) fn from_name(name: &str) -> Option<Type> {
        Some(match name {
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "b128" => Type::B128,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "u16x2" => Type::U16x2,
            "s16x2" => Type::S16x2,
            "pred" => Type::Pred,
            _ => return None,
        })
    }

    /// Size in bytes; 0 for predicates, which have no place in memory.
    pub(crate) fn bytes(self) -> u32 {
        use Type::*;
        match self {
            U8 | S8 | B8 => 1,
            U16 | S16 | B16 | F16 | Bf16 => 2,
            U32 | S32 | B32 | F32 | F16x2 | Bf16x2 | U16x2 | S16x2 => 4,
            U64 | S64 | B64 | F64 => 8,
            B128 => 16,
            Pred => 0,
        }
    }

    /// Two's complement.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }
}

/// A state space. `.reg` is not one here, because registers are not memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(crate) enum StateSpace {
    Generic,
    Global,
    Shared,
    Local,
    Const,
    Param,
}

impl StateSpace {
    /// Parses the name without its dot, including qualifiers after `::`.
    pub(crate) fn from_name(name: &str) -> Option<StateSpace> {
        Some(match name {
            "global" => StateSpace::Global,
            "shared" | "shared::cta" | "shared::cluster" => StateSpace::Shared,
            "local" => StateSpace::Local,
            "const" => StateSpace::Const,
            "param" | "param::entry" | "param::func" => StateSpace::Param,
            _ => return None,
        })
    }
}
