// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Triangles in memory: in a full matrix, in a band of it, or packed.

use std::ffi::c_int;

use super::operation::Fill;
use super::{INVALID_VALUE, Status, size};
use crate::memory::{Array, Dense};
use crate::numbers::{C64, Type};
use crate::stream::Fault;

/// The place of a triangle's elements.
#[derive(Clone, Copy, Debug)]
pub enum Storage {
    /// A column every so many elements.
    Full { leading: usize },
    /// The diagonal and so many diagonals beside it are the rows.
    Band { width: usize, leading: usize },
    /// Column after column, without the elements outside of the triangle.
    Packed,
}

impl Storage {
    fn band(width: c_int, leading: c_int) -> Result<Self, Status> {
        let (width, leading) = (size(width)?, size(leading)?);
        if leading <= width { Err(INVALID_VALUE) } else { Ok(Self::Band { width, leading }) }
    }

    /// Elements of memory that a triangle of that order reaches over.
    fn span(self, order: usize, fill: Fill) -> Option<usize> {
        let Some(last) = order.checked_sub(1) else { return Some(0) };
        match (self, fill) {
            (Self::Full { leading }, _) => last.checked_mul(leading)?.checked_add(order),
            (Self::Band { leading, .. }, Fill::Lower) => last.checked_mul(leading)?.checked_add(1),
            (Self::Band { width, leading }, _) => last.checked_mul(leading)?.checked_add(width + 1),
            (Self::Packed, _) => order.checked_mul(order.checked_add(1)?).map(|double| double / 2),
        }
    }

    /// Returns the index in memory of an element of the triangle; `None` for one outside of the band, which is not stored.
    fn place(self, order: usize, fill: Fill, row: usize, column: usize) -> Option<usize> {
        match (self, fill) {
            (Self::Full { leading }, _) => Some(column * leading + row),
            (Self::Band { width, leading }, _) if row.abs_diff(column) <= width => {
                let within = if fill == Fill::Lower { row - column } else { width + row - column };
                Some(column * leading + within)
            }
            (Self::Band { .. }, _) => None,
            (Self::Packed, Fill::Lower) => Some(row + (2 * order - column - 1) * column / 2),
            (Self::Packed, _) => Some(row + column * (column + 1) / 2),
        }
    }
}

/// The address of a triangle's elements, and their places behind it.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    address: usize,
    storage: Storage,
}

impl Stored {
    /// In a full matrix.
    pub fn full(address: usize, leading: c_int) -> Result<Self, Status> {
        Ok(Self { address, storage: Storage::Full { leading: size(leading)? } })
    }

    /// A band.
    pub fn band(address: usize, width: c_int, leading: c_int) -> Result<Self, Status> {
        Ok(Self { address, storage: Storage::band(width, leading)? })
    }

    /// A packed triangle.
    pub fn packed(address: usize) -> Self {
        Self { address, storage: Storage::Packed }
    }
}

/// A triangle of an argument list, as it is in memory when the work runs.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    array: Array,
    storage: Storage,
    fill: Fill,
    order: usize,
}

impl Triangle {
    /// A triangle at an address.
    pub fn new(kind: Type, place: Stored, order: usize, fill: Fill) -> Result<Self, Fault> {
        let Stored { address, storage } = place;
        let array = Array::new(kind, address, storage.span(order, fill).ok_or(Fault)?)?;
        Ok(Self { array, storage, fill, order })
    }

    /// An element of the triangle.
    pub fn get(self, row: usize, column: usize) -> C64 {
        let place = self.storage.place(self.order, self.fill, row, column);
        place.map_or(C64::default(), |place| self.array.get(place))
    }

    /// Changes an element of the triangle.
    pub fn set(self, row: usize, column: usize, value: C64) {
        if let Some(place) = self.storage.place(self.order, self.fill, row, column) {
            self.array.set(place, value);
        }
    }

    /// The rows of a column.
    pub fn rows(self, column: usize) -> std::ops::Range<usize> {
        if self.fill == Fill::Lower { column..self.order } else { 0..column + 1 }
    }

    /// A triangular matrix: zeros elsewhere, and ones on the diagonal of a `is_unit` one.
    pub fn triangular(self, is_unit: bool) -> Dense {
        Dense::from(self.order, self.order, |row, column| match (self.fill.has(row, column), row == column) {
            (true, true) if is_unit => C64::new(1.0, 0.0),
            (true, _) => self.get(row, column),
            (false, _) => C64::default(),
        })
    }

    /// A symmetric matrix, or a Hermitian one.
    pub fn symmetric(self, is_hermitian: bool) -> Dense {
        Dense::from(self.order, self.order, |row, column| {
            let is_stored = self.fill.has(row, column);
            let value = if is_stored { self.get(row, column) } else { self.get(column, row) };
            match (is_hermitian, row == column) {
                (true, true) => C64::new(value.re, 0.0),
                (true, false) if !is_stored => value.conj(),
                _ => value,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element of a triangle has a place of its own, below the span, whose last element is used.
    #[test]
    fn places_fill_the_span() {
        for order in 1..7 {
            for fill in [Fill::Lower, Fill::Upper] {
                for storage in [
                    Storage::Full { leading: order + 2 },
                    Storage::Band { width: 0, leading: 1 },
                    Storage::Band { width: 2, leading: 3 },
                    Storage::Band { width: 9, leading: 11 },
                    Storage::Packed,
                ] {
                    let mut places: Vec<usize> = (0..order)
                        .flat_map(|column| (0..order).map(move |row| (row, column)))
                        .filter(|(row, column)| fill.has(*row, *column))
                        .filter_map(|(row, column)| storage.place(order, fill, row, column))
                        .collect();
                    places.sort_unstable();
                    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{storage:?} {fill:?} {order}");
                    let last = places.last().copied();
                    let span = storage.span(order, fill).expect("small");
                    let is_full = matches!(storage, Storage::Full { .. });
                    // In a full matrix the last column counts with all its rows.
                    assert!(last == Some(span - 1) || is_full && last < Some(span), "{storage:?} {fill:?}");
                }
            }
        }
        assert_eq!(Storage::Packed.span(0, Fill::Upper), Some(0));
        assert_eq!(Storage::Packed.span(usize::MAX, Fill::Upper), None);
        assert!(Storage::band(3, 3).is_err() && Storage::band(-1, 3).is_err());
    }
}
