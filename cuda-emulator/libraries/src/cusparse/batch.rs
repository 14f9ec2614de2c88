// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Batches: matrices of one shape, whose arrays follow each other at equal distances.

use std::ffi::c_int;

use super::descriptors::{DenseMatrix, Format, Sparse};
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, status};
use crate::handles::{self, Handle};
use crate::memory::moved;
use crate::numbers::TypedAddress;

/// The documented maximum number of matrices of a product.
const MAX_COUNT: c_int = 65_535;

/// The number of matrices of a descriptor, and for each of its arrays the number of elements from one matrix to the next.
#[derive(Clone, Copy, Debug)]
pub struct Batch<const ARRAYS: usize> {
    count: c_int,
    steps: [i64; ARRAYS],
}

impl<const ARRAYS: usize> Batch<ARRAYS> {
    /// A single matrix.
    pub const ONE: Self = Self { count: 1, steps: [0; ARRAYS] };

    fn new(count: c_int, steps: [i64; ARRAYS]) -> Result<Self, Status> {
        let is_right = count > 0 && steps.iter().all(|step| *step >= 0);
        if is_right { Ok(Self { count, steps }) } else { Err(INVALID_VALUE) }
    }

    /// Returns the distances of a matrix's arrays from those of the first. A single matrix is used for each element
    /// of a batch.
    fn distances(&self, index: c_int) -> [i64; ARRAYS] {
        self.steps.map(|step| if self.count == 1 { 0 } else { step.wrapping_mul(index.into()) })
    }
}

/// The number of products, given the batches of two factors and of the result.
pub fn batches<const A: usize, const B: usize, const C: usize>(
    a: &Batch<A>,
    b: &Batch<B>,
    c: &Batch<C>,
) -> Result<c_int, Status> {
    if ![a.count, b.count].iter().all(|count| [1, c.count].contains(count)) {
        return Err(INVALID_VALUE);
    }
    if c.count > MAX_COUNT { Err(NOT_SUPPORTED) } else { Ok(c.count) }
}

impl Sparse {
    /// A matrix of the batch.
    pub fn member(&self, index: c_int) -> Self {
        let [offsets, indices, values] = self.batch.distances(index);
        let at = |array: TypedAddress, distance| array.kind.at(moved(array.address, distance, array.kind));
        Self {
            offsets: at(self.offsets, offsets),
            indices: at(self.indices, indices),
            values: at(self.values, values),
            ..*self
        }
    }

    fn set_batch(&mut self, format: Format, batch: Result<Batch<3>, Status>) -> Result<(), Status> {
        if self.format != format {
            return Err(INVALID_VALUE);
        }
        self.batch = batch?;
        Ok(())
    }
}

impl DenseMatrix {
    /// A matrix of the batch.
    pub fn member(&self, index: c_int) -> Self {
        let [distance] = self.batch.distances(index);
        Self { values: moved(self.values, distance, self.kind), ..*self }
    }
}

/// Calls `body` with a descriptor.
fn with<T: Send + 'static>(
    handle: Handle,
    body: impl FnOnce(&mut T) -> Result<(), Status>,
) -> Result<(), Status> {
    handles::with(handle, body).unwrap_or(Err(INVALID_VALUE))
}

/// Describes matrices in compressed rows.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseCsrSetStridedBatch(
    handle: Handle,
    count: c_int,
    offsets: i64,
    elements: i64,
) -> Status {
    let batch = Batch::new(count, [offsets, elements, elements]);
    status(with(handle, |found: &mut Sparse| found.set_batch(Format::Rows, batch)))
}

/// Describes matrices by row and column of each element.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseCooSetStridedBatch(handle: Handle, count: c_int, step: i64) -> Status {
    let batch = Batch::new(count, [step; 3]);
    status(with(handle, |found: &mut Sparse| found.set_batch(Format::Pairs, batch)))
}

/// Describes matrices in compressed rows of blocks.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseBsrSetStridedBatch(
    handle: Handle,
    count: c_int,
    offsets: i64,
    columns: i64,
    values: i64,
) -> Status {
    let batch = Batch::new(count, [offsets, columns, values]);
    status(with(handle, |found: &mut Sparse| found.set_batch(Format::Blocks, batch)))
}

/// Describes dense matrices.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDnMatSetStridedBatch(handle: Handle, count: c_int, step: i64) -> Status {
    let set = |found: &mut DenseMatrix| {
        found.batch = Batch::new(count, [step])?;
        Ok(())
    };
    status(with(handle, set))
}

/// The number of matrices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpMatGetStridedBatch(handle: Handle, count: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(count) = (unsafe { count.as_mut() }) else { return INVALID_VALUE };
    let write = |found: &mut Sparse| {
        *count = found.batch.count;
        Ok(())
    };
    status(with(handle, write))
}

/// The number of matrices, and the elements from one to the next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseDnMatGetStridedBatch(
    handle: Handle,
    count: *mut c_int,
    step: *mut i64,
) -> Status {
    // SAFETY: the caller gives places for numbers, or null.
    let (Some(count), Some(step)) = (unsafe { (count.as_mut(), step.as_mut()) }) else {
        return INVALID_VALUE;
    };
    let write = |found: &mut DenseMatrix| {
        *count = found.batch.count;
        [*step] = found.batch.steps;
        Ok(())
    };
    status(with(handle, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_matrix_serves_as_each_of_a_batch() {
        let five = Batch::new(5, [7, 0]).expect("is right");
        assert_eq!((five.distances(0), five.distances(3)), ([0, 0], [21, 0]));
        assert_eq!(Batch::new(1, [7]).expect("is right").distances(3), [0]);
        assert_eq!(batches(&Batch::<1>::ONE, &five, &five), Ok(5));
        let too_many = Batch::new(MAX_COUNT + 1, [1]).expect("is right");
        assert_eq!(batches(&Batch::<1>::ONE, &too_many, &too_many), Err(NOT_SUPPORTED));
        assert_eq!(batches(&five, &five, &Batch::<1>::ONE), Err(INVALID_VALUE));
        assert_eq!(batches(&five, &Batch::new(4, [1]).expect("is right"), &five), Err(INVALID_VALUE));
    }

    #[test]
    fn there_is_at_least_one_matrix_and_none_before_the_first() {
        for (count, step) in [(0, 1), (-1, 1), (1, -1)] {
            assert_eq!(Batch::new(count, [step]).err(), Some(INVALID_VALUE));
        }
    }
}
