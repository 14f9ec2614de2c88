// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Writes the elements of sparse matrices. Only [`Sparse::update`] takes blocks.

use super::descriptors::{Format, Sparse};
use crate::memory::Array;
use crate::numbers::C64;
use crate::stream::{Done, Fault};

impl Sparse {
    /// Writes all elements: row, column and value, in the order of the matrix' form. There have to be as many as the matrix has.
    pub fn store(&self, elements: impl IntoIterator<Item = (usize, usize, C64)>) -> Done {
        let values = self.open()?;
        self.write(elements.into_iter().enumerate().map(|(at, (row, column, value))| {
            // Elements that are too many are found below.
            if at < self.count {
                values.set(at, value);
            }
            (row, column)
        }))
    }

    /// Changes the values of all elements, by row, column and old value, in the order in which they are stored.
    pub fn update(&self, mut value: impl FnMut(usize, usize, C64) -> C64) -> Done {
        let values = self.open()?;
        for (row, column, at) in self.positions()? {
            values.set(at, value(row, column, values.get(at)));
        }
        Ok(())
    }

    /// Writes all elements without their values.
    pub fn store_pattern(&self, elements: impl IntoIterator<Item = (usize, usize)>) -> Done {
        self.write(elements.into_iter())
    }

    fn write(&self, elements: impl Iterator<Item = (usize, usize)>) -> Done {
        let is_compressed = self.format != Format::Pairs;
        let lines = self.lines().0;
        let count = if is_compressed { lines.checked_add(1).ok_or(Fault)? } else { self.count };
        let offsets = Array::open(self.offsets, count)?;
        let indices = Array::open(self.indices, self.count)?;
        let (mut found, mut begun) = (0, 0);
        for (row, column) in elements {
            let (line, other) = if self.format == Format::Columns { (column, row) } else { (row, column) };
            if found == self.count || line >= lines {
                return Err(Fault);
            }
            if is_compressed {
                (begun..=line).for_each(|line| offsets.set_real(line, (found + self.base) as f64));
                begun = begun.max(line + 1);
            } else {
                offsets.set_real(found, (line + self.base) as f64);
            }
            indices.set_real(found, (other + self.base) as f64);
            found += 1;
        }
        if is_compressed {
            (begun..=lines).for_each(|line| offsets.set_real(line, (found + self.base) as f64));
        }
        if found == self.count { Ok(()) } else { Err(Fault) }
    }
}
