// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sizes of C numbers, and of the types that a `cudaDataType` or `cublasComputeType_t` value stands for.

use crate::Number;

impl Number {
    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }

    /// Returns whether it is passed in a vector register (System V ABI for x86-64, 3.2.3).
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::C32 | Self::C64)
    }

    /// Returns the value in a slot, if it is an integer. Bits above its size are ignored.
    pub const fn integer(self, slot: u64) -> Option<i128> {
        Some(match self {
            Self::I8 => slot as i8 as i128,
            Self::U8 => slot as u8 as i128,
            Self::I16 => slot as i16 as i128,
            Self::U16 => slot as u16 as i128,
            Self::I32 => slot as i32 as i128,
            Self::U32 => slot as u32 as i128,
            Self::I64 => slot as i64 as i128,
            Self::U64 => slot as i128,
            Self::F32 | Self::F64 | Self::C32 | Self::C64 => return None,
        })
    }
}

/// Returns the bytes per element of a `cudaDataType` (`library_types.h`); `None` if an element is not a whole number of
/// bytes or the type is unknown.
pub fn data_type_bytes(data_type: i128) -> Option<usize> {
    Some(match data_type {
        // CUDA_R_8I, R_8U, R_8F_E4M3, R_8F_E5M2, R_8F_UE8M0
        3 | 8 | 28..=30 => 1,
        // R_16F, C_8I, C_8U, R_16BF, R_16I, R_16U
        2 | 7 | 9 | 14 | 20 | 22 => 2,
        // R_32F, C_16F, R_32I, R_32U, C_16BF, C_16I, C_16U
        0 | 6 | 10 | 12 | 15 | 21 | 23 => 4,
        // R_64F, C_32F, C_32I, C_32U, R_64I, R_64U
        1 | 4 | 11 | 13 | 24 | 26 => 8,
        // C_64F, C_64I, C_64U
        5 | 25 | 27 => 16,
        _ => return None,
    })
}

/// Returns whether a `cudaDataType` is complex.
pub fn is_complex(data_type: i128) -> bool {
    matches!(data_type, 4 | 5 | 6 | 7 | 9 | 11 | 13 | 15 | 17 | 19 | 21 | 23 | 25 | 27)
}

/// Returns the bytes per scalar of a computation. `compute` is a `cublasComputeType_t` (`cublas_api.h`), or a
/// `cudaDataType` from old programs.
pub fn compute_type_bytes(compute: i128, complex: bool) -> Option<usize> {
    let real = match compute {
        // CUBLAS_COMPUTE_16F and _PEDANTIC
        64 | 65 => 2,
        // 32F, 32F_PEDANTIC, 32I, 32I_PEDANTIC, 32F_FAST_16F, _16BF, _TF32, 32F_EMULATED_16BFX9
        68 | 69 | 72..=78 => 4,
        // 64F, 64F_PEDANTIC, 64F_EMULATED_FIXEDPOINT
        70 | 71 | 79 => 8,
        _ => return data_type_bytes(compute),
    };
    Some(if complex { 2 * real } else { real })
}
