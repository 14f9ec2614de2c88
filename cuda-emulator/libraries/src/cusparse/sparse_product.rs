// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of two sparse matrices in compressed rows: C = alpha A B.
//!
//! The product is computed row by row when it is counted and again when it is written, so that its size in our memory is bounded
//! by the size of a row.

use std::collections::BTreeMap;
use std::ffi::c_int;

use super::descriptors::{Format, Sparse, get, states};
use super::handle::{Settings, settings};
use super::{INSUFFICIENT_RESOURCES, INVALID_VALUE, NOT_SUPPORTED, Status, WORKSPACE, status};
use crate::cublas::handle::Scalar;
use crate::handles::{self, Handle};
use crate::numbers::{C64, Type};
use crate::stream::Fault;

/// A `cusparseSpGEMMDescr_t`.
#[derive(Clone, Copy, Debug, Default)]
struct State;

/// The rows of a matrix: its elements, and where those of each row begin.
struct Rows {
    elements: Vec<(usize, usize, C64)>,
    starts: Vec<usize>,
}

impl Rows {
    fn load(matrix: &Sparse) -> Result<Self, Fault> {
        let (elements, mut starts) = (matrix.load()?, matrix.starts(matrix.count)?);
        // Elements before the first row are not loaded.
        let first = starts[0];
        starts.iter_mut().for_each(|start| *start -= first);
        Ok(Self { elements, starts })
    }

    fn row(&self, row: usize) -> &[(usize, usize, C64)] {
        &self.elements[self.starts[row]..self.starts[row + 1]]
    }

    /// A row of the product, in the order of its columns.
    fn times(&self, row: usize, other: &Self) -> BTreeMap<usize, C64> {
        let mut sums = BTreeMap::new();
        for (_, inner, value) in self.row(row) {
            for (_, column, factor) in other.row(*inner) {
                *sums.entry(*column).or_insert_with(C64::default) += value * factor;
            }
        }
        sums
    }
}

/// The arguments that all steps have.
#[derive(Clone, Copy)]
struct Product {
    settings: Settings,
    a: Sparse,
    b: Sparse,
    c: Sparse,
    alpha: Scalar,
    beta: Scalar,
}

impl Product {
    fn new(
        handle: Handle,
        operations: [c_int; 2],
        [alpha, beta]: [usize; 2],
        [a, b, c]: [Handle; 3],
        [compute, algorithm]: [c_int; 2],
        state: Handle,
    ) -> Result<Self, Status> {
        let settings = settings(handle)?;
        get::<State>(state)?;
        let [a, b, c] = [get::<Sparse>(a)?, get::<Sparse>(b)?, get::<Sparse>(c)?];
        let kind = Type::new(compute).ok_or(NOT_SUPPORTED)?;
        if (a.rows, a.columns, b.columns) != (c.rows, b.rows, c.columns) {
            return Err(INVALID_VALUE);
        }
        let are_alike = [a, b, c].iter().all(|one| {
            (one.format, one.values.0, one.indices.0, one.offsets.0)
                == (Format::Rows, kind, a.indices.0, a.indices.0)
        });
        // CUSPARSE_SPGEMM_DEFAULT, ALG1 and ALG2.
        if !are_alike || operations != [0, 0] || ![0, 3, 4].contains(&algorithm) {
            return Err(NOT_SUPPORTED);
        }
        let (alpha, beta) = (settings.scalar(kind, alpha)?, settings.scalar(kind, beta)?);
        Ok(Self { settings, a, b, c, alpha, beta })
    }

    /// Counts the elements of C.
    fn count(&self) -> Result<usize, Status> {
        let (a, b, beta) = (self.a, self.b, self.beta);
        let count = self.settings.wait(move || {
            if beta.get()? != C64::default() {
                return Ok(None);
            }
            let (first, second) = (Rows::load(&a)?, Rows::load(&b)?);
            Ok(Some((0..a.rows).map(|row| first.times(row, &second).len()).sum()))
        })?;
        count.ok_or(NOT_SUPPORTED)
    }

    fn compute(self) -> Result<(), Status> {
        self.settings.queue(move || {
            let (first, second, alpha) = (Rows::load(&self.a)?, Rows::load(&self.b)?, self.alpha.get()?);
            self.c.store((0..self.a.rows).flat_map(|row| {
                let sums = first.times(row, &second).into_iter();
                sums.map(move |(column, sum)| (row, column, alpha * sum))
            }))
        })
    }
}

/// Returns whether the program has given a buffer. Without one, writes the size that it needs to `size`.
///
/// Errors: `CUSPARSE_STATUS_INSUFFICIENT_RESOURCES` for a buffer that is too short.
///
/// # Safety
///
/// `size` is null or points to a number.
unsafe fn has_buffer(size: *mut usize, buffer: usize) -> Result<bool, Status> {
    // SAFETY: null or a number, by this function's contract.
    let size = unsafe { size.as_mut() }.ok_or(INVALID_VALUE)?;
    if buffer == 0 {
        *size = WORKSPACE;
        return Ok(false);
    }
    if *size < WORKSPACE { Err(INSUFFICIENT_RESOURCES) } else { Ok(true) }
}

states! { cusparseSpGEMM_createDescr cusparseSpGEMM_destroyDescr State; }

/// Checks the arguments: nothing has to be prepared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMM_workEstimation(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    alpha: usize,
    a: Handle,
    b: Handle,
    beta: usize,
    c: Handle,
    compute: c_int,
    algorithm: c_int,
    state: Handle,
    size: *mut usize,
    buffer: usize,
) -> Status {
    let product = Product::new(handle, [op_a, op_b], [alpha, beta], [a, b, c], [compute, algorithm], state);
    // SAFETY: the caller gives the place of a number, or null.
    status(product.and_then(|_| unsafe { has_buffer(size, buffer) }).map(drop))
}

/// Counts the elements of C, for its descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMM_compute(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    alpha: usize,
    a: Handle,
    b: Handle,
    beta: usize,
    c: Handle,
    compute: c_int,
    algorithm: c_int,
    state: Handle,
    size: *mut usize,
    buffer: usize,
) -> Status {
    let count = || {
        let product =
            Product::new(handle, [op_a, op_b], [alpha, beta], [a, b, c], [compute, algorithm], state)?;
        // SAFETY: the caller gives the place of a number, or null.
        if unsafe { has_buffer(size, buffer) }? {
            let count = product.count()?;
            handles::with(c, |found: &mut Sparse| found.count = count).ok_or(INVALID_VALUE)?;
        }
        Ok(())
    };
    status(count())
}

/// C = alpha A B, in the arrays that the program has given C.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpGEMM_copy(
    handle: Handle,
    op_a: c_int,
    op_b: c_int,
    alpha: usize,
    a: Handle,
    b: Handle,
    beta: usize,
    c: Handle,
    compute: c_int,
    algorithm: c_int,
    state: Handle,
) -> Status {
    let product = Product::new(handle, [op_a, op_b], [alpha, beta], [a, b, c], [compute, algorithm], state);
    status(product.and_then(Product::compute))
}
