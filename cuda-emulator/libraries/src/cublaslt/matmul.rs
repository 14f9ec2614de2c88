// SPDX-License-Identifier: Apache-2.0 OR MIT

//! D = epilogue(alpha op(A) op(B) + beta C).

use std::ffi::c_int;

use super::Attributes;
use super::epilogue::Epilogue;
use super::layout::Layout;
use crate::cublas::gemm_ex::dense_product;
use crate::cublas::handle::{Scalar, queue};
use crate::cublas::operation::Operation;
use crate::cublas::{INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status, status};
use crate::handles::Handle;
use crate::memory::{Array, Dense, set_i32};
use crate::numbers::{C64, Type};
use crate::stream::{Done, Fault, Stream};

/// The mantissa bits that a product with emulated precision reports. It is computed in double precision here.
const MANTISSA_BITS: i32 = 53;

/// alpha or beta: one number, or one for each row.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// One number.
    One(Scalar),
    /// The type and the device address of the numbers of all rows.
    Rows(Type, usize),
    /// 0
    Zero,
}

impl Factor {
    /// The number of each row when the operation runs.
    pub fn get(self, rows: usize) -> Result<Vec<C64>, Fault> {
        Ok(match self {
            Self::One(scalar) => vec![scalar.get()?; rows],
            Self::Rows(kind, address) => {
                let array = Array::new(kind, address, rows)?;
                (0..rows).map(|row| array.get(row)).collect()
            }
            Self::Zero => vec![C64::default(); rows],
        })
    }
}

/// A product, checked.
#[derive(Debug)]
pub struct Product {
    operations: [Operation; 2],
    scale: Type,
    layouts: [Layout; 4],
    factors: [Factor; 2],
    epilogue: Epilogue,
    /// The device address for the number of mantissa bits; 0 for none.
    bits: usize,
}

impl Product {
    /// # Safety
    ///
    /// `description` must be null or a description of a product whose address attributes are valid, and the others
    /// must be null or layouts.
    pub unsafe fn new(
        description: usize,
        [alpha, beta]: [usize; 2],
        layouts: [usize; 4],
    ) -> Result<Self, Status> {
        // SAFETY: each address is null or of the kind that is read by this function's contract.
        let (attributes, layouts) = unsafe {
            let [a, b, c, d] = layouts;
            (
                Attributes::at("matmul_desc", description)?,
                [Layout::at(a)?, Layout::at(b)?, Layout::at(c)?, Layout::at(d)?],
            )
        };
        let [a, b, c, d] = layouts;
        let operations = [Operation::new(attributes.int(3))?, Operation::new(attributes.int(4))?];
        // Scales of 8-bit floats, which have no type here, and a transposed C.
        if (17..=20).any(|number| attributes.get(number) != 0) || attributes.int(5) != 0 {
            return Err(NOT_SUPPORTED);
        }
        let (m, k) = operations[0].stored(a.rows, a.columns);
        let (inner, n) = operations[1].stored(b.rows, b.columns);
        let fits = k == inner && [c, d].iter().all(|layout| (layout.rows, layout.columns) == (m, n));
        let same = [a, b, c].iter().all(|layout| layout.count == d.count);
        if !fits || !same {
            return Err(INVALID_VALUE);
        }
        let scale = Type::new(attributes.int(1)).ok_or(NOT_SUPPORTED)?;
        let device = |address| match address {
            0 => Err(INVALID_VALUE),
            address => Ok(Factor::Rows(scale, address)),
        };
        let one = |is_device, address| Scalar::at(is_device, scale, address).map(Factor::One);
        let factors = match attributes.int(2) {
            0 => [one(false, alpha)?, one(false, beta)?],
            1 => [one(true, alpha)?, one(true, beta)?],
            2 => [device(alpha)?, device(beta)?],
            3 => [device(alpha)?, Factor::Zero],
            4 => [device(alpha)?, one(false, beta)?],
            _ => return Err(INVALID_VALUE),
        };
        let epilogue = Epilogue::new(&attributes, d.kind, m)?;
        let bits = match attributes.get(38) {
            0 => 0,
            // SAFETY: the attribute is the address of such a descriptor by this function's contract.
            emulation => unsafe { Attributes::at("emulation_desc", emulation as usize)? }.get(5) as usize,
        };
        Ok(Self { operations, scale: wider(scale, a.kind), layouts, factors, epilogue, bits })
    }

    fn run(&self, [a, b, c, d]: [usize; 4]) -> Done {
        let [of_a, of_b, of_c, of_d] = self.layouts;
        if self.bits != 0 {
            set_i32(self.bits, 0, MANTISSA_BITS)?;
        }
        let (alpha, beta) = (self.factors[0].get(of_d.rows)?, self.factors[1].get(of_d.rows)?);
        for index in 0..of_d.count {
            let a = self.operations[0].of(&of_a.open(a, index)?.load());
            let b = self.operations[1].of(&of_b.open(b, index)?.load());
            let target = of_d.open(d, index)?;
            let product = dense_product(self.scale, &a, &b);
            let old = if beta.iter().any(|beta| *beta != C64::default()) {
                Some(of_c.open(c, index)?)
            } else {
                None
            };
            let mut values = Dense::from(of_d.rows, of_d.columns, |row, column| {
                let old = match old {
                    Some(old) if beta[row] != C64::default() => beta[row] * old.get(row, column),
                    _ => C64::default(),
                };
                alpha[row] * product[(row, column)] + old
            });
            self.epilogue.apply(&mut values, index, [&a, &b])?;
            for column in 0..values.columns {
                (0..values.rows).for_each(|row| target.set(row, column, values[(row, column)]));
            }
        }
        Ok(())
    }
}

/// The type that a product is computed in.
fn wider(scale: Type, elements: Type) -> Type {
    match elements {
        Type::I8 | Type::I32 => Type::F64,
        _ => scale,
    }
}

/// D = epilogue(alpha op(A) op(B) + beta C).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmul(
    handle: Handle,
    description: usize,
    alpha: usize,
    a: usize,
    a_layout: usize,
    b: usize,
    b_layout: usize,
    beta: usize,
    c: usize,
    c_layout: usize,
    d: usize,
    d_layout: usize,
    _algorithm: usize,
    _workspace: usize,
    _workspace_bytes: usize,
    stream: Stream,
) -> Status {
    if handle == 0 {
        return INVALID_VALUE;
    }
    // SAFETY: the caller gives descriptors.
    let product =
        unsafe { Product::new(description, [alpha, beta], [a_layout, b_layout, c_layout, d_layout]) };
    match product {
        Ok(product) => status(queue(stream, move || product.run([a, b, c, d]))),
        Err(status) => status,
    }
}

/// Checks that a product of these descriptors can be computed. The values of its scalars are not needed.
pub fn check(description: usize, layouts: [usize; 4]) -> c_int {
    let one = C64::new(1.0, 0.0);
    let scalar = (&raw const one) as usize;
    // SAFETY: the caller gives descriptors, and a scalar is as long as any type.
    match unsafe { Product::new(description, [scalar, scalar], layouts) } {
        Ok(_) => SUCCESS,
        Err(status) => status,
    }
}
