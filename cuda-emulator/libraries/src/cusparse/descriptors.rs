// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors of vectors and matrices.

use std::ffi::c_int;

use super::batch::Batch;
use super::blocks::Block;
use super::{INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status, give, status};
use crate::cublas::operation::Operation;
use crate::exported::exported;
use crate::handles::{self, Handle};
use crate::memory::{Array, Dense, Matrix};
use crate::numbers::{C64, Type, TypedAddress};
use crate::stream::Fault;

/// The storage of the positions of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Compressed rows: the index at which each row begins.
    Rows,
    /// Compressed columns: the index at which each column begins.
    Columns,
    /// Row and column of each element.
    Pairs,
    /// Compressed rows of dense blocks.
    Blocks,
}

/// A `cusparseSpMatDescr_t`.
#[derive(Clone, Copy, Debug)]
pub struct Sparse {
    pub(super) format: Format,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Elements, or blocks.
    pub(super) count: usize,
    /// Offsets, or the rows of elements.
    pub(super) offsets: TypedAddress,
    pub(super) indices: TypedAddress,
    pub(super) values: TypedAddress,
    pub(super) base: usize,
    /// The triangle that a solver uses, and whether its diagonal counts as ones.
    pub(super) is_upper: bool,
    pub(super) has_ones: bool,
    /// The steps are those of offsets, indices and values.
    pub(super) batch: Batch<3>,
    /// The shape of the part of the matrix that one index places.
    pub(super) block: Block,
}

/// A `cusparseDnVecDescr_t`.
#[derive(Clone, Copy, Debug)]
pub struct DenseVector {
    /// Its elements.
    pub count: usize,
    /// Their type.
    pub kind: Type,
    values: usize,
}

/// A `cusparseDnMatDescr_t`.
#[derive(Clone, Copy, Debug)]
pub struct DenseMatrix {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    pub(super) leading: usize,
    pub(super) kind: Type,
    pub(super) values: usize,
    pub(super) is_by_rows: bool,
    pub(super) batch: Batch<1>,
}

/// Returns the object of a descriptor.
pub fn get<T: Copy + Send + 'static>(handle: Handle) -> Result<T, Status> {
    handles::with(handle, |value: &mut T| *value).ok_or(INVALID_VALUE)
}

/// A size that is not negative.
pub fn size(value: i64) -> Result<usize, Status> {
    usize::try_from(value).map_err(|_| INVALID_VALUE)
}

/// The type of elements of a `cudaDataType`.
pub fn value_type(number: c_int) -> Result<Type, Status> {
    Type::new(number).ok_or(NOT_SUPPORTED)
}

/// A `cusparseIndexType_t`.
pub fn index_type(number: c_int) -> Result<Type, Status> {
    match number {
        2 => Ok(Type::I32),
        3 => Ok(Type::I64),
        _ => Err(NOT_SUPPORTED),
    }
}

impl Sparse {
    pub(super) fn new(
        format: Format,
        [rows, columns, count]: [i64; 3],
        [offsets, indices, values]: [usize; 3],
        [offset_type, index, base, value]: [c_int; 4],
    ) -> Result<Self, Status> {
        Ok(Self {
            format,
            rows: size(rows)?,
            columns: size(columns)?,
            count: size(count)?,
            offsets: index_type(offset_type)?.at(offsets),
            indices: index_type(index)?.at(indices),
            values: value_type(value)?.at(values),
            base: usize::try_from(base).ok().filter(|base| *base <= 1).ok_or(INVALID_VALUE)?,
            is_upper: false,
            has_ones: false,
            batch: Batch::ONE,
            block: Block::ELEMENT,
        })
    }

    /// A matrix of the legacy API: indices of 32 bits.
    pub fn legacy(
        format: Format,
        [rows, columns, count]: [c_int; 3],
        [offsets, indices, values]: [usize; 3],
        base: usize,
        kind: Type,
    ) -> Result<Self, Status> {
        Ok(Self {
            format,
            rows: size(rows.into())?,
            columns: size(columns.into())?,
            count: size(count.into())?,
            offsets: Type::I32.at(offsets),
            indices: Type::I32.at(indices),
            values: kind.at(values),
            base,
            is_upper: false,
            has_ones: false,
            batch: Batch::ONE,
            block: Block::ELEMENT,
        })
    }

    /// The number of lines of a compressed form, and the elements that a line may have.
    pub(super) fn lines(&self) -> (usize, usize) {
        match self.format {
            Format::Columns => (self.columns, self.rows),
            _ => (self.rows / self.block.rows, self.columns / self.block.columns),
        }
    }

    fn number(&self, array: Array, at: usize, limit: usize) -> Result<usize, Fault> {
        let number = (array.real(at) as i64).checked_sub(self.base as i64).ok_or(Fault)?;
        usize::try_from(number).ok().filter(|number| *number < limit).ok_or(Fault)
    }

    /// Returns the start of each line of a compressed form, and the end of the last. They do not decrease and do not
    /// exceed `limit`.
    pub(super) fn starts(&self, limit: usize) -> Result<Vec<usize>, Fault> {
        let lines = self.lines().0;
        let offsets = Array::open(self.offsets, lines.checked_add(1).ok_or(Fault)?)?;
        let starts =
            (0..=lines).map(|line| self.number(offsets, line, usize::MAX)).collect::<Result<Vec<_>, _>>()?;
        let is_within = starts.last().is_some_and(|end| *end <= limit);
        if is_within && starts.is_sorted() { Ok(starts) } else { Err(Fault) }
    }

    /// Returns the stored elements: row, column and the index of the value. There are at most as many as the matrix
    /// has values.
    pub(super) fn positions(&self) -> Result<Vec<(usize, usize, usize)>, Fault> {
        let indices = Array::open(self.indices, self.count)?;
        if self.format == Format::Pairs {
            let rows = Array::open(self.offsets, self.count)?;
            let position =
                |at| Ok((self.number(rows, at, self.rows)?, self.number(indices, at, self.columns)?, at));
            return (0..self.count).map(position).collect();
        }
        let others = self.lines().1;
        let mut positions = Vec::new();
        for (line, ends) in self.starts(self.count)?.windows(2).enumerate() {
            for at in ends[0]..ends[1] {
                let other = self.number(indices, at, others)?;
                match self.format {
                    Format::Columns => positions.push((other, line, at)),
                    _ => positions.extend(self.block.positions(line, other, at)),
                }
            }
        }
        Ok(positions)
    }

    /// The memory of the values.
    pub(super) fn open(&self) -> Result<Array, Fault> {
        let count = self.count.checked_mul(self.block.size()).ok_or(Fault)?;
        Array::open(self.values, count)
    }

    /// The elements: row, column and value.
    pub fn load(&self) -> Result<Vec<(usize, usize, C64)>, Fault> {
        let values = self.open()?;
        let positions = self.positions()?.into_iter();
        Ok(positions.map(|(row, column, at)| (row, column, values.get(at))).collect())
    }

    /// The elements of op(A).
    pub fn load_as(&self, operation: Operation) -> Result<Vec<(usize, usize, C64)>, Fault> {
        let elements = self.load()?.into_iter();
        Ok(match operation {
            Operation::None => elements.collect(),
            Operation::Transpose => elements.map(|(row, column, value)| (column, row, value)).collect(),
            Operation::Conjugate => {
                elements.map(|(row, column, value)| (column, row, value.conj())).collect()
            }
        })
    }
}

impl DenseVector {
    /// Its memory.
    pub fn open(&self) -> Result<Array, Fault> {
        Array::new(self.kind, self.values, self.count)
    }
}

impl DenseMatrix {
    fn stored(&self) -> Result<Matrix, Fault> {
        let (inner, outer) =
            if self.is_by_rows { (self.columns, self.rows) } else { (self.rows, self.columns) };
        Matrix::new(self.kind, self.values, inner, outer, self.leading)
    }

    /// All elements.
    pub fn load(&self) -> Result<Dense, Fault> {
        let matrix = self.stored()?;
        Ok(Dense::from(self.rows, self.columns, |row, column| {
            if self.is_by_rows { matrix.get(column, row) } else { matrix.get(row, column) }
        }))
    }

    /// Changes all elements.
    pub fn store(&self, values: &Dense) -> Result<(), Fault> {
        let matrix = self.stored()?;
        matrix.store(&if self.is_by_rows { Operation::Transpose.of(values) } else { values.clone() });
        Ok(())
    }
}

/// Creates a descriptor whose contents the program sets later.
///
/// # Safety
///
/// `place` is null or has room for a handle.
pub(super) unsafe fn create<T: Default + Send + 'static>(place: *mut Handle) -> Status {
    // SAFETY: null, or room for a handle by this function's contract.
    unsafe { give(place, Ok(T::default())) }
}

/// Ends a descriptor.
pub(super) fn end<T: Send + 'static>(handle: Handle) -> Status {
    if handles::end::<T>(handle) { SUCCESS } else { INVALID_VALUE }
}

exported! {
    /// Describes a matrix whose lines begin at offsets.
    pub unsafe extern "C" fn(format) [
        cusparseCreateCsr(Format::Rows), cusparseCreateConstCsr(Format::Rows), cusparseCreateCsc(Format::Columns),
        cusparseCreateConstCsc(Format::Columns),
    ]
    (
        place: *mut Handle, rows: i64, columns: i64, count: i64, offsets: usize, indices: usize, values: usize,
        offset_type: c_int, index: c_int, base: c_int, value: c_int,
    ) -> Status {
        let types = [offset_type, index, base, value];
        let made = Sparse::new(format, [rows, columns, count], [offsets, indices, values], types);
        // SAFETY: the caller gives a place for a handle, or null.
        unsafe { give(place, made) }
    }
}

exported! {
    /// Describes a matrix by row and column of each element.
    pub unsafe extern "C" fn [cusparseCreateCoo, cusparseCreateConstCoo]
    (
        place: *mut Handle, rows: i64, columns: i64, count: i64, row_numbers: usize, column_numbers: usize, values: usize,
        index: c_int, base: c_int, value: c_int,
    ) -> Status {
        let (sizes, places) = ([rows, columns, count], [row_numbers, column_numbers, values]);
        let made = Sparse::new(Format::Pairs, sizes, places, [index, index, base, value]);
        // SAFETY: the caller gives a place for a handle, or null.
        unsafe { give(place, made) }
    }

    /// Describes a vector.
    pub unsafe extern "C" fn [cusparseCreateDnVec, cusparseCreateConstDnVec]
    (place: *mut Handle, count: i64, values: usize, kind: c_int) -> Status {
        let made = || Ok(DenseVector { count: size(count)?, kind: value_type(kind)?, values });
        // SAFETY: the caller gives a place for a handle, or null.
        unsafe { give(place, made()) }
    }

    /// Describes a dense matrix.
    pub unsafe extern "C" fn [cusparseCreateDnMat, cusparseCreateConstDnMat]
    (place: *mut Handle, rows: i64, columns: i64, leading: i64, values: usize, kind: c_int, order: c_int) -> Status {
        let made = || {
            let (rows, columns, leading) = (size(rows)?, size(columns)?, size(leading)?);
            let is_by_rows = match order {
                1 => false,
                2 => true,
                _ => return Err(INVALID_VALUE),
            };
            let inner = if is_by_rows { columns } else { rows };
            if leading < inner {
                return Err(INVALID_VALUE);
            }
            Ok(DenseMatrix { rows, columns, leading, kind: value_type(kind)?, values, is_by_rows, batch: Batch::ONE })
        };
        // SAFETY: the caller gives a place for a handle, or null.
        unsafe { give(place, made()) }
    }
}

exported! {
    /// Ends a descriptor.
    pub extern "C" fn(end) [
        cusparseDestroySpMat(end::<Sparse>), cusparseDestroyDnVec(end::<DenseVector>), cusparseDestroyDnMat(end::<DenseMatrix>),
    ]
    (handle: Handle) -> Status {
        end(handle)
    }
}

/// Rows, columns and elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpMatGetSize(
    handle: Handle,
    rows: *mut i64,
    columns: *mut i64,
    count: *mut i64,
) -> Status {
    let found = match get::<Sparse>(handle) {
        Ok(found) => found,
        Err(status) => return status,
    };
    for (place, value) in [
        (rows, found.rows),
        (columns, found.columns),
        (count, found.count.saturating_mul(found.block.size())),
    ] {
        // SAFETY: the caller gives places for numbers, or null.
        let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
        *place = value as i64;
    }
    SUCCESS
}

/// Sets which triangle a solver uses, or the diagonal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSpMatSetAttribute(
    handle: Handle,
    attribute: c_int,
    data: *const c_int,
    bytes: usize,
) -> Status {
    if data.is_null() || bytes != size_of::<c_int>() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller gives as many bytes as it says.
    let value = match unsafe { data.read_unaligned() } {
        0 => false,
        1 => true,
        _ => return INVALID_VALUE,
    };
    let set = |found: &mut Sparse| {
        match attribute {
            0 => found.is_upper = value,
            1 => found.has_ones = value,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    };
    status(handles::with(handle, set).unwrap_or(Err(INVALID_VALUE)))
}

exported! {
    /// Replaces all addresses.
    pub extern "C" fn(format) [
        cusparseCsrSetPointers(Format::Rows), cusparseCscSetPointers(Format::Columns), cusparseCooSetPointers(Format::Pairs),
    ]
    (handle: Handle, offsets: usize, indices: usize, values: usize) -> Status {
        let set = |found: &mut Sparse| {
            if found.format != format {
                return Err(INVALID_VALUE);
            }
            (found.offsets.address, found.indices.address, found.values.address) = (offsets, indices, values);
            Ok(())
        };
        status(handles::with(handle, set).unwrap_or(Err(INVALID_VALUE)))
    }
}

exported! {
    /// Replaces the address of the values.
    pub extern "C" fn(set) [
        cusparseSpMatSetValues(|found: &mut Sparse, values| found.values.address = values),
        cusparseDnVecSetValues(|found: &mut DenseVector, values| found.values = values),
        cusparseDnMatSetValues(|found: &mut DenseMatrix, values| found.values = values),
    ]
    (handle: Handle, values: usize) -> Status {
        status(handles::with(handle, |found| set(found, values)).ok_or(INVALID_VALUE))
    }
}
