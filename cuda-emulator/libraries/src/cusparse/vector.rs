// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sparse vectors, and operations on one of them and a dense vector: copies, sums, rotations and products.

use std::ffi::c_int;

use super::descriptors::{DenseVector, end, get, index_type, size, value_type};
use super::handle::{Settings, settings};
use super::{INVALID_VALUE, NOT_SUPPORTED, Status, give, operation, scaled, status, workspace};
use crate::cublas::handle::Scalar;
use crate::cublas::operation::Operation;
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::Array;
use crate::numbers::{C64, Type, TypedAddress};
use crate::stream::{Done, Fault};

/// A `cusparseSpVecDescr_t`.
#[derive(Clone, Copy, Debug)]
struct SparseVector {
    size: usize,
    count: usize,
    indices: TypedAddress,
    values: TypedAddress,
    base: i64,
}

impl SparseVector {
    /// Calls `body` with the number of each element and its place in a dense vector.
    fn each(&self, mut body: impl FnMut(usize, usize)) -> Done {
        let indices = Array::open(self.indices, self.count)?;
        for at in 0..self.count {
            let place = (indices.real(at) as i64).checked_sub(self.base).ok_or(Fault)?;
            let place = usize::try_from(place).ok().filter(|place| *place < self.size).ok_or(Fault)?;
            body(at, place);
        }
        Ok(())
    }

    fn open(&self) -> Result<Array, Fault> {
        Array::open(self.values, self.count)
    }
}

exported! {
    /// Describes a sparse vector.
    pub unsafe extern "C" fn [cusparseCreateSpVec, cusparseCreateConstSpVec]
    (
        place: *mut Handle, length: i64, count: i64, indices: usize, values: usize, index: c_int, base: c_int, kind: c_int,
    ) -> Status {
        let made = || {
            if !(0..=1).contains(&base) {
                return Err(INVALID_VALUE);
            }
            let (indices, values) = (index_type(index)?.at(indices), value_type(kind)?.at(values));
            Ok(SparseVector { size: size(length)?, count: size(count)?, indices, values, base: base.into() })
        };
        // SAFETY: the caller gives a place for a handle, or null.
        unsafe { give(place, made()) }
    }
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroySpVec(handle: Handle) -> Status {
    end::<SparseVector>(handle)
}

/// The arguments that all functions of this file have. Both vectors have one size and one type.
#[derive(Clone, Copy)]
struct Pair {
    settings: Settings,
    sparse: SparseVector,
    dense: DenseVector,
    kind: Type,
}

impl Pair {
    fn new(handle: Handle, sparse: Handle, dense: Handle) -> Result<Self, Status> {
        let (settings, sparse) = (settings(handle)?, get::<SparseVector>(sparse)?);
        let (dense, kind) = (get::<DenseVector>(dense)?, sparse.values.kind);
        let are_alike = (sparse.size, kind) == (dense.count, dense.kind);
        if are_alike { Ok(Self { settings, sparse, dense, kind }) } else { Err(INVALID_VALUE) }
    }

    /// Two scalars, which have no type of their own.
    fn scalars(&self, [first, second]: [usize; 2]) -> Result<[Scalar; 2], Status> {
        let kind = match self.kind {
            Type::F16 | Type::Bf16 => Type::F32,
            Type::F32 | Type::F64 | Type::C32 | Type::C64 => self.kind,
            Type::I8 | Type::I32 | Type::I64 => return Err(NOT_SUPPORTED),
        };
        Ok([self.settings.scalar(kind, first)?, self.settings.scalar(kind, second)?])
    }
}

/// Copies the elements of a sparse vector to their places in a dense one, or back.
fn copy(handle: Handle, sparse: Handle, dense: Handle, to_dense: bool) -> Result<(), Status> {
    let pair = Pair::new(handle, sparse, dense)?;
    pair.settings.queue(move || {
        let (elements, all) = (pair.sparse.open()?, pair.dense.open()?);
        pair.sparse.each(|at, place| {
            if to_dense {
                all.set(place, elements.get(at));
            } else {
                elements.set(at, all.get(place));
            }
        })
    })
}

fn add(handle: Handle, factors: [usize; 2], x: Handle, y: Handle) -> Result<(), Status> {
    let pair = Pair::new(handle, x, y)?;
    let [alpha, beta] = pair.scalars(factors)?;
    pair.settings.queue(move || {
        let (alpha, beta, elements, all) =
            (alpha.get()?, beta.get()?, pair.sparse.open()?, pair.dense.open()?);
        if beta != C64::new(1.0, 0.0) {
            (0..pair.dense.count).for_each(|at| all.set(at, scaled(beta, all.get(at))));
        }
        pair.sparse.each(|at, place| all.set(place, all.get(place) + alpha * elements.get(at)))
    })
}

fn rotate(handle: Handle, coefficients: [usize; 2], x: Handle, y: Handle) -> Result<(), Status> {
    let pair = Pair::new(handle, x, y)?;
    let [c, s] = pair.scalars(coefficients)?;
    pair.settings.queue(move || {
        let (c, s, elements, all) = (c.get()?, s.get()?, pair.sparse.open()?, pair.dense.open()?);
        pair.sparse.each(|at, place| {
            let (element, other) = (elements.get(at), all.get(place));
            elements.set(at, c * element + s * other);
            all.set(place, c * other - s * element);
        })
    })
}

fn multiply(
    handle: Handle,
    number: c_int,
    x: Handle,
    y: Handle,
    place: usize,
    compute: c_int,
) -> Result<(), Status> {
    let (pair, operation) = (Pair::new(handle, x, y)?, operation(number)?);
    let compute = value_type(compute)?;
    let is_known = match pair.kind {
        Type::I8 => [Type::I32, Type::F32].contains(&compute),
        Type::F16 | Type::Bf16 => compute == Type::F32,
        kind => compute == kind,
    };
    if !is_known || operation == Operation::Transpose {
        return Err(NOT_SUPPORTED);
    }
    pair.settings.result(compute, place, move || {
        let (elements, all) = (pair.sparse.open()?, pair.dense.open()?);
        let mut sum = C64::default();
        pair.sparse.each(|at, place| {
            let element = elements.get(at);
            let element = if operation == Operation::Conjugate { element.conj() } else { element };
            sum += element * all.get(place);
        })?;
        Ok(sum)
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

/// y = alpha x + beta y. The last argument is the type of the scalars, which programs without a daemon do not give.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseAxpby(
    handle: Handle,
    alpha: usize,
    x: Handle,
    beta: usize,
    y: Handle,
    _scalars: c_int,
) -> Status {
    status(add(handle, [alpha, beta], x, y))
}

/// (x, y) = (c x + s y, c y - s x), where x has an element. The last argument is that of `cusparseAxpby`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseRot(
    handle: Handle,
    c: usize,
    s: usize,
    x: Handle,
    y: Handle,
    _scalars: c_int,
) -> Status {
    status(rotate(handle, [c, s], x, y))
}

/// result = op(x) y.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpVV(
    handle: Handle,
    op: c_int,
    x: Handle,
    y: Handle,
    result: usize,
    compute: c_int,
    _buffer: usize,
) -> Status {
    status(multiply(handle, op, x, y, result, compute))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpVV_bufferSize(
    handle: Handle,
    _op: c_int,
    _x: Handle,
    _y: Handle,
    _result: usize,
    _compute: c_int,
    size: *mut usize,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { workspace(handle, size) }
}
