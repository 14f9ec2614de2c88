// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Macros that instantiate an expression for the Rust type of a PTX type. They are no functions: a closure cannot be generic over
//! the type of its operands.

/// The unsigned integer as wide as a 16, 32 or 64-bit integer type.
macro_rules! by_width {
    ($kind:expr, $t:ident => $handler:expr) => {{
        use $crate::ptx::types::Type;
        match $kind {
            Type::U16 | Type::S16 | Type::B16 => Some({
                type $t = u16;
                $handler
            }),
            Type::U32 | Type::S32 | Type::B32 => Some({
                type $t = u32;
                $handler
            }),
            Type::U64 | Type::S64 | Type::B64 => Some({
                type $t = u64;
                $handler
            }),
            _ => None,
        }
    }};
}
pub(super) use by_width;

/// The signed or unsigned integer of a 16, 32 or 64-bit integer type; untyped bits are unsigned.
macro_rules! by_sign {
    ($kind:expr, $t:ident => $handler:expr) => {{
        use $crate::ptx::types::Type;
        match $kind {
            Type::S16 => Some({
                type $t = i16;
                $handler
            }),
            Type::S32 => Some({
                type $t = i32;
                $handler
            }),
            Type::S64 => Some({
                type $t = i64;
                $handler
            }),
            kind => $crate::execute::by_type::by_width!(kind, $t => $handler),
        }
    }};
}
pub(super) use by_sign;
