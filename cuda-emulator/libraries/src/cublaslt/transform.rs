// SPDX-License-Identifier: Apache-2.0 OR MIT

//! C = alpha op(A) + beta op(B), from layout to layout.

use super::Attributes;
use super::layout::Layout;
use crate::cublas::handle::{Scalar, queue};
use crate::cublas::operation::Operation;
use crate::cublas::{INVALID_VALUE, NOT_SUPPORTED, Status, status};
use crate::handles::Handle;
use crate::numbers::{C64, Type};
use crate::stream::Stream;

/// One summand: its factor, matrix, layout and operation.
type Summand = (Scalar, usize, Layout, Operation);

fn prepare(
    description: usize,
    [alpha, beta]: [usize; 2],
    [a, b]: [usize; 2],
    layouts: [usize; 3],
) -> Result<(Vec<Summand>, Layout), Status> {
    // SAFETY: the caller gives a description and layouts.
    let (attributes, of_a, of_c) = unsafe {
        (Attributes::at("transform_desc", description)?, Layout::at(layouts[0])?, Layout::at(layouts[2])?)
    };
    let scale = Type::new(attributes.int(0)).ok_or(NOT_SUPPORTED)?;
    let is_device = attributes.int(1) == 1;
    let operation = |number| Operation::new(attributes.int(number));
    let mut summands = vec![(Scalar::at(is_device, scale, alpha)?, a, of_a, operation(2)?)];
    if b != 0 {
        // SAFETY: the caller gives three layouts, of which the second may be null.
        let of_b = unsafe { Layout::at(layouts[1])? };
        summands.push((Scalar::at(is_device, scale, beta)?, b, of_b, operation(3)?));
    }
    let fits = summands.iter().all(|(_, _, layout, operation)| {
        operation.stored(layout.rows, layout.columns) == (of_c.rows, of_c.columns)
            && layout.count == of_c.count
    });
    if fits { Ok((summands, of_c)) } else { Err(INVALID_VALUE) }
}

/// C = alpha op(A) + beta op(B).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixTransform(
    handle: Handle,
    description: usize,
    alpha: usize,
    a: usize,
    a_layout: usize,
    beta: usize,
    b: usize,
    b_layout: usize,
    c: usize,
    c_layout: usize,
    stream: Stream,
) -> Status {
    if handle == 0 {
        return INVALID_VALUE;
    }
    let (summands, of_c) = match prepare(description, [alpha, beta], [a, b], [a_layout, b_layout, c_layout]) {
        Ok(prepared) => prepared,
        Err(status) => return status,
    };
    status(queue(stream, move || {
        for index in 0..of_c.count {
            let mut parts = Vec::new();
            for (factor, base, layout, operation) in &summands {
                parts.push((factor.get()?, operation.of(&layout.open(*base, index)?.load())));
            }
            let target = of_c.open(c, index)?;
            for column in 0..of_c.columns {
                for row in 0..of_c.rows {
                    let sum: C64 = parts.iter().map(|(factor, matrix)| factor * matrix[(row, column)]).sum();
                    target.set(row, column, sum);
                }
            }
        }
        Ok(())
    }))
}
