// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sparse vectors, and the copies between them and dense ones.

use std::ffi::c_int;

use super::descriptors::{DenseVector, ends, get, index_type, size, value_type};
use super::handle::settings;
use super::{INVALID_VALUE, Status, give, status};
use crate::handles::Handle;
use crate::memory::Array;
use crate::numbers::Type;
use crate::stream::Fault;

/// A `cusparseSpVecDescr_t`.
#[derive(Clone, Copy, Debug)]
struct SparseVector {
    size: usize,
    count: usize,
    indices: (Type, usize),
    values: (Type, usize),
    base: i64,
}

impl SparseVector {
    /// The place of each element in a dense vector.
    fn places(&self) -> Result<Vec<usize>, Fault> {
        let indices = Array::new(self.indices.0, self.indices.1, self.count)?;
        let place =
            |at| usize::try_from(indices.real(at) as i64 - self.base).ok().filter(|place| *place < self.size);
        (0..self.count).map(|at| place(at).ok_or(Fault)).collect()
    }
}

macro_rules! creates {
    ($($name:ident)*) => { $(
        /// Describes a sparse vector.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            place: *mut Handle, length: i64, count: i64, indices: usize, values: usize, index: c_int, base: c_int, kind: c_int,
        ) -> Status {
            let made = || {
                if !(0..=1).contains(&base) {
                    return Err(INVALID_VALUE);
                }
                let (indices, values) = ((index_type(index)?, indices), (value_type(kind)?, values));
                Ok(SparseVector { size: size(length)?, count: size(count)?, indices, values, base: base.into() })
            };
            // SAFETY: the caller gives a place for a handle, or null.
            unsafe { give(place, made()) }
        }
    )* };
}
creates! { cusparseCreateSpVec cusparseCreateConstSpVec }

ends! { cusparseDestroySpVec SparseVector; }

/// Copies the elements of a sparse vector to their places in a dense one, or back.
fn copy(handle: Handle, sparse: Handle, dense: Handle, to_dense: bool) -> Result<(), Status> {
    let (settings, sparse, dense) =
        (settings(handle)?, get::<SparseVector>(sparse)?, get::<DenseVector>(dense)?);
    if sparse.size != dense.count || sparse.values.0 != dense.kind {
        return Err(INVALID_VALUE);
    }
    settings.queue(move || {
        let elements = Array::new(sparse.values.0, sparse.values.1, sparse.count)?;
        let all = dense.open()?;
        for (at, place) in sparse.places()?.into_iter().enumerate() {
            if to_dense {
                all.set(place, elements.get(at));
            } else {
                elements.set(at, all.get(place));
            }
        }
        Ok(())
    })
}

/// y(indices) = x.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseScatter(handle: Handle, x: Handle, y: Handle) -> Status {
    status(copy(handle, x, y, true))
}

/// x = y(indices).
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGather(handle: Handle, y: Handle, x: Handle) -> Status {
    status(copy(handle, x, y, false))
}
