// SPDX-License-Identifier: Apache-2.0 OR MIT

//! D = activation(alpha op(A) op(B) + beta C + bias), where one factor has zeros in a pattern.

use std::ffi::c_int;

use cublaslt_descriptors::objects::Kind;

use super::matrix::Matrix;
use super::objects::{note_search, product_of};
use super::pattern::Pattern;
use crate::cublas::gemm_ex::dense_product;
use crate::cublas::handle::Scalar;
use crate::cublas::operation::Operation;
use crate::cublaslt::{Factor, gelu};
use crate::cusparse::{EXECUTION_FAILED, INVALID_VALUE, NOT_SUPPORTED, Status, WORKSPACE, status};
use crate::memory::{Array, Dense, moved};
use crate::numbers::{C64, Type};
use crate::stream::{self, Done, Fault, Stream};

/// `CUSPARSE_COMPUTE_32I`
const COMPUTE_32I: c_int = 0;
/// `CUSPARSE_COMPUTE_32F`
const COMPUTE_32F: c_int = 2;

/// The operations on a sum before it is stored.
#[derive(Clone, Copy, Debug)]
struct Epilogue {
    /// Threshold and upper bound.
    relu: Option<[f32; 2]>,
    /// A factor.
    gelu: Option<f32>,
    bias: usize,
    bias_kind: Type,
    bias_stride: i64,
}

impl Epilogue {
    fn of(&self, value: f64) -> f64 {
        let value = match self.relu {
            Some([threshold, _]) if value <= f64::from(threshold) => 0.0,
            Some([_, bound]) => value.min(f64::from(bound)),
            None => value,
        };
        self.gelu.map_or(value, |factor| gelu(value) * f64::from(factor))
    }

    /// The bias of each row.
    fn bias(&self, index: usize, rows: usize) -> Result<Vec<C64>, Fault> {
        if self.bias == 0 {
            return Ok(vec![C64::default(); rows]);
        }
        let base = moved(self.bias, self.bias_stride.wrapping_mul(index as i64), self.bias_kind);
        let array = Array::new(self.bias_kind, base, rows)?;
        Ok((0..rows).map(|row| array.get(row)).collect())
    }
}

/// alpha or beta: a number of the host's, or one for each row in device memory.
fn scaling(is_vector: bool, address: usize) -> Result<Factor, Status> {
    match (is_vector, address) {
        (_, 0) => Err(INVALID_VALUE),
        (true, address) => Ok(Factor::Rows(Type::F32, address)),
        (false, address) => Scalar::at(false, Type::F32, address).map(Factor::One).map_err(|_| INVALID_VALUE),
    }
}

/// A product, checked.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    operations: [Operation; 2],
    matrices: [Matrix; 4],
    pattern: Pattern,
    are_vectors: [bool; 2],
    epilogue: Epilogue,
}

impl Product {
    /// The product of these contents.
    ///
    /// Errors: NVIDIA's for sizes that do not fit and types that tensor cores do not have.
    pub fn new(of: Kind, contents: &[u8]) -> Result<Self, Status> {
        let mat = Kind::named("mat")?;
        let matrix = |index| Matrix::new(mat, &contents[of.descriptor.part(of.all, index)]);
        let matrices = [matrix(0)?, matrix(1)?, matrix(2)?, matrix(3)?];
        let [a, b, c, d] = &matrices;
        let int = |number| of.value(contents, number) as c_int;
        let operation = |number| Operation::new(int(number)).map_err(|_| INVALID_VALUE);
        let operations = [operation(100)?, operation(101)?];
        let (m, k) = operations[0].stored(a.rows, a.columns);
        let (inner, n) = operations[1].stored(b.rows, b.columns);
        let fits = k == inner && [c, d].iter().all(|matrix| (matrix.rows, matrix.columns) == (m, n));
        let same = [a, b, c].iter().all(|matrix| matrix.count == d.count);
        if !fits || !same || a.kind != b.kind || a.is_sparse == b.is_sparse || c.is_sparse || d.is_sparse {
            return Err(INVALID_VALUE);
        }
        let is_known = match (int(102), a.kind) {
            (COMPUTE_32F, Type::F16 | Type::Bf16 | Type::F32) => c.kind == a.kind && d.kind == a.kind,
            (COMPUTE_32I, Type::I8) => {
                c.kind == d.kind && matches!(d.kind, Type::I8 | Type::I32 | Type::F16 | Type::Bf16)
            }
            _ => false,
        };
        let are_vectors = [int(5) != 0, int(6) != 0];
        // Scales of 8-bit floats, which have no type here. Vectors of factors are for integers.
        let has_scales = (10..=19).any(|number| of.value(contents, number) != 0);
        if !is_known || has_scales || (are_vectors[0] || are_vectors[1]) && a.kind != Type::I8 {
            return Err(NOT_SUPPORTED);
        }
        let float = |number| f32::from_bits(of.value(contents, number) as u32);
        let epilogue = Epilogue {
            relu: (int(0) != 0).then(|| [float(2), float(1)]),
            gelu: (int(3) != 0).then(|| float(4)),
            bias: of.value(contents, 8) as usize,
            bias_kind: if a.kind == Type::I8 { Type::F32 } else { d.kind },
            bias_stride: of.value(contents, 7) as i64,
        };
        let pattern = if a.is_sparse {
            Pattern::new(*a, true, operations[0])?
        } else {
            Pattern::new(*b, false, operations[1])?
        };
        Ok(Self { operations, matrices, pattern, are_vectors, epilogue })
    }

    /// The factor with the pattern.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    fn factor(&self, which: usize, address: usize, index: usize) -> Result<Dense, Fault> {
        let matrix = self.matrices[which];
        if matrix.is_sparse {
            return self.pattern.expand(address, index);
        }
        Ok(self.operations[which].of(&matrix.open(address, index)?.load()))
    }

    fn run(&self, factors: [Factor; 2], [a, b, c, d]: [usize; 4]) -> Done {
        let [.., of_c, of_d] = self.matrices;
        let (alpha, beta) = (factors[0].get(of_d.rows)?, factors[1].get(of_d.rows)?);
        let has_old = beta.iter().any(|beta| *beta != C64::default());
        // Sums of integers are exact in doubles.
        let kind = if self.matrices[0].kind == Type::I8 { Type::F64 } else { Type::F32 };
        for index in 0..of_d.count {
            let product = dense_product(kind, &self.factor(0, a, index)?, &self.factor(1, b, index)?);
            let old = if has_old { Some(of_c.open(c, index)?) } else { None };
            let bias = self.epilogue.bias(index, of_d.rows)?;
            let target = of_d.open(d, index)?;
            for column in 0..of_d.columns {
                for row in 0..of_d.rows {
                    let old = match old {
                        Some(old) if beta[row] != C64::default() => beta[row] * old.get(row, column),
                        _ => C64::default(),
                    };
                    let sum = alpha[row] * product[(row, column)] + old + bias[row];
                    target.set(row, column, C64::new(self.epilogue.of(sum.re), 0.0));
                }
            }
        }
        Ok(())
    }
}

/// Queues the product of a plan.
///
/// # Safety
///
/// `handle` must be null or a handle, `plan` null or a plan, `streams` null or the address of one, and `factors` null
/// or valid for the plan's product.
unsafe fn queue(
    handle: *const usize,
    plan: u64,
    factors: [usize; 2],
    matrices: [usize; 4],
    streams: *const Stream,
    count: c_int,
) -> Result<(), Status> {
    // SAFETY: `# Safety` promises that `handle`, `plan` and `streams` are null or what their names say; there is a stream if
    // `count` says so.
    let (product, stream) = unsafe {
        let stream = if count > 0 { streams.as_ref() } else { None };
        (product_of(handle, plan)?, stream.copied().unwrap_or(0))
    };
    if matrices.contains(&0) || count < 0 {
        return Err(INVALID_VALUE);
    }
    let [alpha, beta] = product.are_vectors;
    let factors = [scaling(alpha, factors[0])?, scaling(beta, factors[1])?];
    stream::queue(stream, move || product.run(factors, matrices)).map_err(|_| EXECUTION_FAILED)
}

/// The workspace of a product.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulGetWorkspace(
    handle: *const usize,
    plan: u64,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a handle, a plan and a place for a number, or nulls.
    match unsafe { (product_of(handle, plan), size.as_mut()) } {
        (Ok(_), Some(size)) => {
            *size = WORKSPACE;
            status(Ok(()))
        }
        (Err(error), _) => error,
        _ => INVALID_VALUE,
    }
}

/// D = activation(alpha op(A) op(B) + beta C + bias).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmul(
    handle: *const usize,
    plan: u64,
    alpha: usize,
    a: usize,
    b: usize,
    beta: usize,
    c: usize,
    d: usize,
    _workspace: usize,
    streams: *const Stream,
    count: c_int,
) -> Status {
    // SAFETY: the caller gives a handle, a plan, a stream and factors, or nulls.
    status(unsafe { queue(handle, plan, [alpha, beta], [a, b, c, d], streams, count) })
}

/// The same, with all algorithms. The last one is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulSearch(
    handle: *const usize,
    plan: u64,
    alpha: usize,
    a: usize,
    b: usize,
    beta: usize,
    c: usize,
    d: usize,
    _workspace: usize,
    streams: *const Stream,
    count: c_int,
) -> Status {
    // SAFETY: the caller gives a handle, a plan, a stream and factors, or nulls.
    let result = unsafe { queue(handle, plan, [alpha, beta], [a, b, c, d], streams, count) };
    // SAFETY: it is a plan, since the product was queued; a program keeps the selection until the search is done.
    status(result.and_then(|()| unsafe { note_search(plan) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_those_of_the_manual() {
        let plain = Epilogue { relu: None, gelu: None, bias: 0, bias_kind: Type::F32, bias_stride: 0 };
        let relu = Epilogue { relu: Some([1.0, 4.0]), ..plain };
        assert_eq!([-2.0, 1.0, 2.5, 9.0].map(|value| relu.of(value)), [0.0, 0.0, 2.5, 4.0]);
        let gelu = Epilogue { gelu: Some(2.0), ..plain };
        assert!((gelu.of(1.0) - 2.0 * 0.841_192).abs() < 1e-5 && gelu.of(0.0) == 0.0);
        assert_eq!(plain.of(-3.0), -3.0);
    }
}
