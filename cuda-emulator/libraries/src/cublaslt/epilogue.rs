// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Epilogues (`cublasLtEpilogue_t`): the operations on a product before it is stored, such as adding a bias, an activation
//! function, or computing their gradients.

use super::Attributes;
use crate::cublas::{INVALID_VALUE, NOT_SUPPORTED, Status};
use crate::memory::{Array, Dense, Matrix, moved, pointer};
use crate::numbers::{C64, Type};
use crate::stream::{Done, Fault};

const RELU: u64 = 2;
const BIAS: u64 = 4;
const DRELU: u64 = 8;
const BIAS_GRADIENT: u64 = 16;
const GELU: u64 = 32;
const DGELU: u64 = 64;
const AUX: u64 = 128;
const BIAS_GRADIENT_A: u64 = 256;
const BIAS_GRADIENT_B: u64 = 512;

/// An epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue {
    flags: u64,
    bias: usize,
    bias_stride: i64,
    bias_kind: Type,
    aux: usize,
    aux_leading: usize,
    aux_stride: i64,
    aux_kind: Type,
}

impl Epilogue {
    /// The epilogue of a product with results of that type.
    pub fn new(attributes: &Attributes<'_>, result: Type, rows: usize) -> Result<Self, Status> {
        let flags = match attributes.get(7) {
            1 => 0,
            flags => flags,
        };
        let known =
            RELU | BIAS | DRELU | BIAS_GRADIENT | GELU | DGELU | AUX | BIAS_GRADIENT_A | BIAS_GRADIENT_B;
        let kind = |number: u32| match attributes.int(number) {
            -1 => Some(result),
            number => Type::new(number),
        };
        let epilogue = Self {
            flags,
            bias: attributes.get(8) as usize,
            bias_stride: attributes.get(10) as i64,
            bias_kind: kind(26).ok_or(NOT_SUPPORTED)?,
            aux: attributes.get(11) as usize,
            aux_leading: usize::try_from(attributes.get(12)).map_err(|_| INVALID_VALUE)?,
            aux_stride: attributes.get(13) as i64,
            aux_kind: kind(22).ok_or(NOT_SUPPORTED)?,
        };
        if flags & !known != 0 {
            return Err(NOT_SUPPORTED);
        }
        let lacks_bias =
            epilogue.bias == 0 && epilogue.has(BIAS | BIAS_GRADIENT | BIAS_GRADIENT_A | BIAS_GRADIENT_B);
        let lacks_aux = epilogue.has(AUX) && (epilogue.aux == 0 || epilogue.aux_leading < rows);
        if lacks_bias || lacks_aux { Err(INVALID_VALUE) } else { Ok(epilogue) }
    }

    fn has(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }

    fn bias(&self, index: usize, count: usize) -> Result<Array, Fault> {
        let base = moved(self.bias, self.bias_stride.wrapping_mul(index as i64), self.bias_kind);
        Array::new(self.bias_kind, base, count)
    }

    /// The bits of a ReLU: one for each element, in columns of `aux_leading` bits.
    fn mask(&self, index: usize, columns: usize) -> Result<*mut u8, Fault> {
        let stride = self.aux_stride.wrapping_mul(index as i64) / 8;
        let base = self.aux.wrapping_add_signed(stride as isize);
        pointer(base, (self.aux_leading / 8).checked_mul(columns).ok_or(Fault)?)
    }

    fn inputs(&self, index: usize, rows: usize, columns: usize) -> Result<Matrix, Fault> {
        let base = moved(self.aux, self.aux_stride.wrapping_mul(index as i64), self.aux_kind);
        Matrix::new(self.aux_kind, base, rows, columns, self.aux_leading)
    }

    /// Applies it to the result of that index in a batch.
    pub fn apply(&self, values: &mut Dense, index: usize, operands: [&Dense; 2]) -> Done {
        let (rows, columns) = (values.rows, values.columns);
        if self.has(BIAS) {
            let bias = self.bias(index, rows)?;
            for column in 0..columns {
                (0..rows).for_each(|row| values[(row, column)] += bias.get(row));
            }
        }
        if self.has(RELU | DRELU) {
            let mask = if self.has(AUX) { Some(self.mask(index, columns)?) } else { None };
            for column in 0..columns {
                for row in 0..rows {
                    let bit = column * self.aux_leading + row;
                    let positive = match mask {
                        // SAFETY: `mask` has checked bits of all columns, which are as long as the rows.
                        Some(mask) if self.has(DRELU) => unsafe {
                            mask.add(bit / 8).read() >> (bit % 8) & 1 == 1
                        },
                        _ => values[(row, column)].re > 0.0,
                    };
                    if let (Some(mask), true) = (mask, self.has(RELU)) {
                        // SAFETY: `mask` has checked bits of all columns, which are as long as the rows.
                        unsafe {
                            let byte = mask.add(bit / 8);
                            byte.write(byte.read() & !(1 << (bit % 8)) | u8::from(positive) << (bit % 8));
                        }
                    }
                    if !positive {
                        values[(row, column)] = C64::default();
                    }
                }
            }
        }
        if self.has(GELU | DGELU) {
            let inputs = if self.has(AUX) { Some(self.inputs(index, rows, columns)?) } else { None };
            for column in 0..columns {
                for row in 0..rows {
                    let value = values[(row, column)].re;
                    let new = match inputs {
                        Some(inputs) if self.has(DGELU) => value * gelu_slope(inputs.get(row, column).re),
                        Some(inputs) => {
                            inputs.set(row, column, C64::new(value, 0.0));
                            gelu(value)
                        }
                        None => gelu(value),
                    };
                    values[(row, column)] = C64::new(new, 0.0);
                }
            }
        }
        let sum = |matrix: &Dense, row: usize| (0..matrix.columns).map(|column| matrix[(row, column)]).sum();
        if self.has(BIAS_GRADIENT) {
            let bias = self.bias(index, rows)?;
            (0..rows).for_each(|row| bias.set(row, sum(values, row)));
        }
        if self.has(BIAS_GRADIENT_A) {
            let bias = self.bias(index, rows)?;
            (0..rows).for_each(|row| bias.set(row, sum(operands[0], row)));
        }
        if self.has(BIAS_GRADIENT_B) {
            let bias = self.bias(index, columns)?;
            (0..columns).for_each(|column| bias.set(column, operands[1].column(column).iter().sum()));
        }
        Ok(())
    }
}

/// √(2/π) (x + 0.044715 x³), and its slope.
fn inner(x: f64) -> (f64, f64) {
    let root = (2.0 / std::f64::consts::PI).sqrt();
    (root * (x + 0.044_715 * x * x * x), root * (1.0 + 3.0 * 0.044_715 * x * x))
}

/// GELU by its approximation with tanh, as cuBLASLt has it.
pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + inner(x).0.tanh())
}

fn gelu_slope(x: f64) -> f64 {
    let (inner, slope) = inner(x);
    let tanh = inner.tanh();
    0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_gelu_is_its_derivative() {
        for x in [-3.0, -0.5, 0.0, 0.7, 2.0] {
            let step = 1e-6;
            let difference = (gelu(x + step) - gelu(x - step)) / (2.0 * step);
            assert!((gelu_slope(x) - difference).abs() < 1e-8, "{x}");
        }
    }
}
