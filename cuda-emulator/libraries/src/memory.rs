// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Device memory, as operations access it. All of it is checked when an operation runs: an address that kernels could not access
//! is a [`Fault`], which ends the context as on a GPU.

use std::ffi::c_int;

use crate::numbers::{C64, Type, TypedAddress};
use crate::stream::{Fault, reaches};

/// Adjacent elements.
///
/// # Invariants
/// `base` has `count` elements of `kind` that kernels may access, or memory of the caller's that is as long.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    kind: Type,
    base: usize,
    count: usize,
}

impl Array {
    /// `count` elements at an address.
    pub fn new(kind: Type, base: usize, count: usize) -> Result<Self, Fault> {
        let bytes = count.checked_mul(kind.bytes()).ok_or(Fault)?;
        if count > 0 && (!base.is_multiple_of(kind.alignment()) || !reaches(base, bytes)) {
            return Err(Fault);
        }
        Ok(Self { kind, base, count })
    }

    /// `count` elements at an address that has a type.
    pub fn open(place: TypedAddress, count: usize) -> Result<Self, Fault> {
        Self::new(place.kind, place.address, count)
    }

    /// The element of that index.
    pub fn get(self, index: usize) -> C64 {
        assert!(index < self.count, "checked by the caller");
        // SAFETY: the index is below `count` (invariant of the type).
        unsafe { self.kind.read(self.base + index * self.kind.bytes()) }
    }

    /// Changes the element of that index.
    pub fn set(self, index: usize, value: C64) {
        assert!(index < self.count, "checked by the caller");
        // SAFETY: the index is below `count` (invariant of the type).
        unsafe { self.kind.write(self.base + index * self.kind.bytes(), value) };
    }

    /// The element of that index, without its imaginary part.
    pub fn real(self, index: usize) -> f64 {
        self.get(index).re
    }

    /// Changes the element of that index to a real number.
    pub fn set_real(self, index: usize, value: f64) {
        self.set(index, C64::new(value, 0.0));
    }
}

/// Adjacent plain numbers of one type.
///
/// # Errors
///
/// As [`Array::new`].
pub fn pointer<T>(address: usize, count: usize) -> Result<*mut T, Fault> {
    let bytes = count.checked_mul(size_of::<T>()).ok_or(Fault)?;
    if count > 0 && (!address.is_multiple_of(align_of::<T>()) || !reaches(address, bytes)) {
        return Err(Fault);
    }
    Ok(address as *mut T)
}

/// An address from an array of addresses in device memory.
pub fn address_at(array: usize, index: usize) -> Result<usize, Fault> {
    let place = array.checked_add(index.checked_mul(size_of::<usize>()).ok_or(Fault)?).ok_or(Fault)?;
    // SAFETY: `pointer` has checked it.
    Ok(unsafe { pointer::<usize>(place, 1)?.read() })
}

/// A number in device memory.
pub fn set_i32(address: usize, index: usize, value: i32) -> Result<(), Fault> {
    let place = address.checked_add(index.checked_mul(size_of::<i32>()).ok_or(Fault)?).ok_or(Fault)?;
    // SAFETY: `pointer` has checked it.
    unsafe { pointer::<i32>(place, 1)?.write(value) };
    Ok(())
}

/// `base`, moved by elements.
pub fn moved(base: usize, elements: i64, kind: Type) -> usize {
    base.wrapping_add_signed((elements as isize).wrapping_mul(kind.bytes() as isize))
}

/// A vector of an argument list: the address of its first element in memory, and the distance of its elements.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    address: usize,
    step: c_int,
}

impl Strided {
    /// Elements that are `step` apart.
    pub const fn new(address: usize, step: c_int) -> Self {
        Self { address, step }
    }

    /// `count` elements of that type.
    pub fn open(self, kind: Type, count: usize) -> Result<Vector, Fault> {
        Vector::new(kind, self.address, count, i64::from(self.step))
    }
}

/// The elements of a vector, which may be apart.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    array: Array,
    count: usize,
    step: usize,
    is_backward: bool,
}

impl Vector {
    /// `count` elements, `step` apart. A negative step begins at the end (as in BLAS).
    pub fn new(kind: Type, base: usize, count: usize, step: i64) -> Result<Self, Fault> {
        let apart = usize::try_from(step.unsigned_abs()).map_err(|_| Fault)?;
        let span = match count {
            0 => 0,
            _ => (count - 1).checked_mul(apart).and_then(|last| last.checked_add(1)).ok_or(Fault)?,
        };
        Ok(Self { array: Array::new(kind, base, span)?, count, step: apart, is_backward: step < 0 })
    }

    /// The number of elements.
    pub fn count(self) -> usize {
        self.count
    }

    fn place(self, index: usize) -> usize {
        (if self.is_backward { self.count - 1 - index } else { index }) * self.step
    }

    /// The element of that index.
    pub fn get(self, index: usize) -> C64 {
        self.array.get(self.place(index))
    }

    /// Changes the element of that index.
    pub fn set(self, index: usize, value: C64) {
        self.array.set(self.place(index), value);
    }

    /// All elements.
    pub fn load(self) -> Vec<C64> {
        (0..self.count).map(|index| self.get(index)).collect()
    }

    /// Changes all elements.
    pub fn store(self, values: &[C64]) {
        values.iter().enumerate().for_each(|(index, value)| self.set(index, *value));
    }
}

/// A matrix, stored by columns.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    array: Array,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    leading: usize,
}

impl Matrix {
    /// A matrix whose columns are `leading` elements apart.
    pub fn new(kind: Type, base: usize, rows: usize, columns: usize, leading: usize) -> Result<Self, Fault> {
        let span = match (rows, columns) {
            (0, _) | (_, 0) => 0,
            _ => (columns - 1).checked_mul(leading).and_then(|last| last.checked_add(rows)).ok_or(Fault)?,
        };
        Ok(Self { array: Array::new(kind, base, span)?, rows, columns, leading })
    }

    /// An element.
    pub fn get(self, row: usize, column: usize) -> C64 {
        self.array.get(column * self.leading + row)
    }

    /// Changes an element.
    pub fn set(self, row: usize, column: usize, value: C64) {
        self.array.set(column * self.leading + row, value);
    }

    /// All elements.
    pub fn load(self) -> Dense {
        Dense::from(self.rows, self.columns, |row, column| self.get(row, column))
    }

    /// Changes all elements that `values` has.
    pub fn store(self, values: &Dense) {
        for column in 0..self.columns.min(values.columns) {
            for row in 0..self.rows.min(values.rows) {
                self.set(row, column, values[(row, column)]);
            }
        }
    }
}

/// A matrix of our own.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    values: Vec<C64>,
}

impl Dense {
    /// A matrix of these elements.
    pub fn from(rows: usize, columns: usize, element: impl Fn(usize, usize) -> C64) -> Self {
        let values = (0..columns).flat_map(|column| {
            let element = &element;
            (0..rows).map(move |row| element(row, column))
        });
        Self { rows, columns, values: values.collect() }
    }

    /// A matrix of zeros with ones on its diagonal.
    pub fn identity(rows: usize, columns: usize) -> Self {
        Self::from(rows, columns, |row, column| C64::new(f64::from(u8::from(row == column)), 0.0))
    }

    /// The transposed and conjugated matrix.
    pub fn adjoint(&self) -> Self {
        Self::from(self.columns, self.rows, |row, column| self[(column, row)].conj())
    }

    /// The product of two.
    pub fn times(&self, other: &Self) -> Self {
        let mut product = Self::from(self.rows, other.columns, |_, _| C64::default());
        for column in 0..other.columns {
            for inner in 0..self.columns {
                let factor = other[(inner, column)];
                for row in 0..self.rows {
                    product[(row, column)] += self[(row, inner)] * factor;
                }
            }
        }
        product
    }

    /// A column.
    pub fn column(&self, column: usize) -> &[C64] {
        &self.values[column * self.rows..(column + 1) * self.rows]
    }
}

impl std::ops::Index<(usize, usize)> for Dense {
    type Output = C64;

    fn index(&self, (row, column): (usize, usize)) -> &C64 {
        &self.values[column * self.rows + row]
    }
}

impl std::ops::IndexMut<(usize, usize)> for Dense {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut C64 {
        &mut self.values[column * self.rows + row]
    }
}
