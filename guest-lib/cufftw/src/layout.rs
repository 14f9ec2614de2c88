// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The places of an array's elements in memory.

use crate::error::{Error, Result};

const TOO_LONG: Error = Error::Arguments("the array is longer than the address space");

/// A dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The number of elements.
    pub count: usize,
    /// The distance from one element to the next, in elements.
    pub stride: usize,
}

/// An array. Its last byte is at most `isize::MAX` bytes after its first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// At least one, the outermost first. None can be merged with the next one.
    axes: Vec<Axis>,
    /// The size of an element, in bytes.
    element: usize,
    bytes: usize,
    extent: usize,
}

impl Layout {
    /// The layout of an array with these dimensions, the outermost first, and elements of `element` bytes.
    ///
    /// Errors: it is empty, or longer than the address space.
    pub fn new(axes: &[Axis], element: usize) -> Result<Self> {
        let (mut count, mut last) = (1_usize, 0_usize);
        for axis in axes {
            let steps = axis.count.checked_sub(1).ok_or(Error::Arguments("a size is 0"))?;
            count = count.checked_mul(axis.count).ok_or(TOO_LONG)?;
            let length = steps.checked_mul(axis.stride).ok_or(TOO_LONG)?;
            last = last.checked_add(length).ok_or(TOO_LONG)?;
        }
        let extent = last.checked_add(1).and_then(|elements| elements.checked_mul(element));
        let bytes = count.checked_mul(element);
        let fits = |bytes: &usize| isize::try_from(*bytes).is_ok();
        let (extent, bytes) = (extent.filter(fits).ok_or(TOO_LONG)?, bytes.filter(fits).ok_or(TOO_LONG)?);
        Ok(Self { axes: merged(axes), element, bytes, extent })
    }

    /// The bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes from the first element to the end of the last one.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// Returns whether the elements are side by side, in order.
    pub fn is_packed(&self) -> bool {
        matches!(self.axes[..], [Axis { stride: 1, .. }])
    }

    /// Calls `each` for each run of elements that are side by side, in order: with the place of the run in the array, the
    /// bytes of the elements before it, and its bytes. Every run is within [`Self::extent`] and [`Self::bytes`].
    pub fn runs(&self, mut each: impl FnMut(usize, usize, usize)) {
        let Some((last, outer)) = self.axes.split_last() else { return };
        let (steps, length) = if last.stride == 1 { (1, last.count) } else { (last.count, 1) };
        let rows: usize = outer.iter().map(|axis| axis.count).product();
        let mut before = 0;
        for row in 0..rows {
            let start = place(outer, row);
            for step in 0..steps {
                let at = (start + step * last.stride) * self.element;
                each(at, before, length * self.element);
                before += length * self.element;
            }
        }
    }
}

/// The place of the element with this number, counted in order.
fn place(axes: &[Axis], mut number: usize) -> usize {
    let mut place = 0;
    for axis in axes.iter().rev() {
        place += number % axis.count * axis.stride;
        number /= axis.count;
    }
    place
}

/// Merges dimensions that are one longer dimension, and leaves out those of one element.
fn merged(axes: &[Axis]) -> Vec<Axis> {
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for axis in axes.iter().filter(|axis| axis.count != 1) {
        match merged.last_mut() {
            Some(outer) if axis.count.checked_mul(axis.stride) == Some(outer.stride) => {
                *outer = Axis { count: outer.count * axis.count, stride: axis.stride };
            }
            _ => merged.push(*axis),
        }
    }
    if merged.is_empty() {
        merged.push(Axis { count: 1, stride: 1 });
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(axes: &[(usize, usize)], element: usize) -> Result<Layout> {
        let axes: Vec<Axis> =
            axes.iter().map(|(count, stride)| Axis { count: *count, stride: *stride }).collect();
        Layout::new(&axes, element)
    }

    fn runs(layout: &Layout) -> Vec<(usize, usize, usize)> {
        let mut found = Vec::new();
        layout.runs(|place, before, bytes| found.push((place, before, bytes)));
        found
    }

    #[test]
    fn a_matrix_without_gaps_is_one_run() {
        let matrix = layout(&[(1, 99), (3, 4), (4, 1)], 8).expect("it is short");
        assert!(matrix.is_packed());
        assert_eq!((matrix.bytes(), matrix.extent()), (96, 96));
        assert_eq!(runs(&matrix), [(0, 0, 96)]);
        assert!(layout(&[(1, 7)], 8).expect("it is short").is_packed());
    }

    #[test]
    fn padded_rows_are_runs() {
        let padded = layout(&[(2, 12), (2, 6), (5, 1)], 4).expect("it is short");
        assert!(!padded.is_packed());
        assert_eq!((padded.bytes(), padded.extent()), (80, 92));
        assert_eq!(runs(&padded), [(0, 0, 20), (24, 20, 20), (48, 40, 20), (72, 60, 20)]);
    }

    #[test]
    fn columns_are_elements() {
        let columns = layout(&[(2, 1), (2, 3)], 16).expect("it is short");
        assert_eq!(runs(&columns), [(0, 0, 16), (48, 16, 16), (16, 32, 16), (64, 48, 16)]);
    }

    #[test]
    fn empty_and_long_arrays_are_refused() {
        assert!(layout(&[(0, 1)], 8).is_err());
        assert!(layout(&[(usize::MAX, 1)], 8).is_err());
        assert!(layout(&[(3, usize::MAX)], 1).is_err());
        assert!(layout(&[(1 << 40, 0), (1 << 40, 0)], 1).is_err());
    }
}
