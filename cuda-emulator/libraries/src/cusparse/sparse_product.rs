// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of two sparse matrices in compressed rows: C = alpha A B.
//!
//! The product is computed row by row when it is counted and again when it is written, so that the size of a row
//! bounds the memory.

use std::collections::BTreeMap;
use std::ffi::c_int;

use super::descriptors::{Format, Sparse, create, end, get, value_type};
use super::handle::{Settings, settings};
use super::{INSUFFICIENT_RESOURCES, INVALID_VALUE, NOT_SUPPORTED, Status, WORKSPACE, status};
use crate::cublas::handle::Scalar;
use crate::handles::{self, Handle};
use crate::numbers::{C64, Type};
use crate::stream::Fault;

/// A `cusparseSpGEMMDescr_t`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// The products of two elements, as the last estimation has counted them.
    products: usize,
}

/// The rows of a matrix: its elements, and where those of each row begin.
pub(super) struct Rows {
    elements: Vec<(usize, usize, C64)>,
    starts: Vec<usize>,
}

impl Rows {
    pub(super) fn load(matrix: &Sparse) -> Result<Self, Fault> {
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
    pub(super) fn times(&self, row: usize, other: &Self) -> BTreeMap<usize, C64> {
        let mut sums = BTreeMap::new();
        for (_, inner, value) in self.row(row) {
            for (_, column, factor) in other.row(*inner) {
                *sums.entry(*column).or_insert_with(C64::default) += value * factor;
            }
        }
        sums
    }
}

/// The matrices of a product, all in compressed rows with one type of values and one of indices.
#[derive(Clone, Copy)]
pub(super) struct Matrices {
    pub(super) a: Sparse,
    pub(super) b: Sparse,
    pub(super) c: Sparse,
    /// The type of their values.
    pub(super) kind: Type,
}

impl Matrices {
    pub(super) fn new(operations: [c_int; 2], [a, b, c]: [Handle; 3], state: Handle) -> Result<Self, Status> {
        get::<State>(state)?;
        let [a, b, c] = [get::<Sparse>(a)?, get::<Sparse>(b)?, get::<Sparse>(c)?];
        if (a.rows, a.columns, b.columns) != (c.rows, b.rows, c.columns) {
            return Err(INVALID_VALUE);
        }
        let kind = a.values.kind;
        let are_alike = [a, b, c].iter().all(|one| {
            (one.format, one.values.kind, one.indices.kind, one.offsets.kind)
                == (Format::Rows, kind, a.indices.kind, a.indices.kind)
        });
        if are_alike && operations == [0, 0] { Ok(Self { a, b, c, kind }) } else { Err(NOT_SUPPORTED) }
    }

    /// Counts the elements of C.
    pub(super) fn count(&self) -> Result<usize, Fault> {
        let (first, second) = (Rows::load(&self.a)?, Rows::load(&self.b)?);
        Ok((0..self.a.rows).map(|row| first.times(row, &second).len()).sum())
    }

    /// Counts the products of two elements.
    fn products(&self) -> Result<usize, Fault> {
        let starts = self.b.starts(self.b.count)?;
        Ok(self.a.positions()?.iter().map(|(_, inner, _)| starts[inner + 1] - starts[*inner]).sum())
    }
}

/// The arguments that all steps have.
#[derive(Clone, Copy)]
struct Product {
    settings: Settings,
    matrices: Matrices,
    alpha: Scalar,
    beta: Scalar,
}

impl Product {
    fn new(
        handle: Handle,
        operations: [c_int; 2],
        [alpha, beta]: [usize; 2],
        matrices: [Handle; 3],
        [compute, algorithm]: [c_int; 2],
        state: Handle,
    ) -> Result<Self, Status> {
        let (settings, matrices) = (settings(handle)?, Matrices::new(operations, matrices, state)?);
        // CUSPARSE_SPGEMM_DEFAULT, ALG1, ALG2 and ALG3.
        if value_type(compute)? != matrices.kind || ![0, 3, 4, 5].contains(&algorithm) {
            return Err(NOT_SUPPORTED);
        }
        let (alpha, beta) = (settings.scalar(matrices.kind, alpha)?, settings.scalar(matrices.kind, beta)?);
        Ok(Self { settings, matrices, alpha, beta })
    }

    /// Counts the elements of C.
    fn count(&self) -> Result<usize, Status> {
        let (matrices, beta) = (self.matrices, self.beta);
        let count = self.settings.wait(move || {
            if beta.get()? != C64::default() {
                return Ok(None);
            }
            matrices.count().map(Some)
        })?;
        count.ok_or(NOT_SUPPORTED)
    }

    fn compute(self) -> Result<(), Status> {
        self.settings.queue(move || {
            let Matrices { a, b, c, .. } = self.matrices;
            let (first, second, alpha) = (Rows::load(&a)?, Rows::load(&b)?, self.alpha.get()?);
            c.store((0..a.rows).flat_map(|row| {
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
pub(super) unsafe fn has_buffer(size: *mut usize, buffer: usize) -> Result<bool, Status> {
    // SAFETY: null or a number, by this function's contract.
    let size = unsafe { size.as_mut() }.ok_or(INVALID_VALUE)?;
    if buffer == 0 {
        *size = WORKSPACE;
        return Ok(false);
    }
    if *size < WORKSPACE { Err(INSUFFICIENT_RESOURCES) } else { Ok(true) }
}

/// Creates a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMM_createDescr(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    unsafe { create::<State>(place) }
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpGEMM_destroyDescr(state: Handle) -> Status {
    end::<State>(state)
}

/// Counts the products of two elements, for `cusparseSpGEMM_getNumProducts`.
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
    let estimate = || {
        let product =
            Product::new(handle, [op_a, op_b], [alpha, beta], [a, b, c], [compute, algorithm], state)?;
        // SAFETY: the caller gives the place of a number, or null.
        if unsafe { has_buffer(size, buffer) }? {
            let products = product.settings.wait(move || product.matrices.products())?;
            handles::with(state, |found: &mut State| found.products = products).ok_or(INVALID_VALUE)?;
        }
        Ok(())
    };
    status(estimate())
}

/// The products of two elements that the last estimation has counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMM_getNumProducts(state: Handle, products: *mut i64) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(products) = (unsafe { products.as_mut() }) else { return INVALID_VALUE };
    status(get::<State>(state).map(|state| *products = state.products as i64))
}

/// Returns the buffer size that `cusparseSpGEMM_compute` needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpGEMM_estimateMemory(
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
    fraction: f32,
    size: *mut usize,
    buffer: usize,
    compute_size: *mut usize,
) -> Status {
    let estimate = || {
        Product::new(handle, [op_a, op_b], [alpha, beta], [a, b, c], [compute, algorithm], state)?;
        // CUSPARSE_SPGEMM_ALG2 and ALG3.
        if ![4, 5].contains(&algorithm) {
            return Err(NOT_SUPPORTED);
        }
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller gives the place of a number, or null.
        if unsafe { has_buffer(size, buffer) }? {
            // SAFETY: as above.
            *unsafe { compute_size.as_mut() }.ok_or(INVALID_VALUE)? = WORKSPACE;
        }
        Ok(())
    };
    status(estimate())
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
