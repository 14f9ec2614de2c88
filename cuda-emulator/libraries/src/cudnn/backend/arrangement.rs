// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations that move elements and change none.

use super::super::layout::Layout;

/// Elements at the same places of memory, seen as a tensor of another layout.
///
/// # Invariants
/// Both layouts have the same places, each of which is one element of each.
#[derive(Debug)]
pub struct View {
    /// Distance, size and packed distance of each dimension of the first layout, the largest distance first.
    from: Vec<[usize; 3]>,
    to: Layout,
}

/// Distances and sizes of dimensions of more than one element, the largest distance first.
fn sorted(layout: &Layout) -> Vec<[usize; 3]> {
    let (mut packed, mut dimensions) = (1, Vec::new());
    for (dim, stride) in layout.dims.iter().zip(&layout.strides).rev() {
        if *dim > 1 {
            dimensions.push([*stride, *dim, packed]);
        }
        packed *= dim;
    }
    dimensions.sort_unstable_by_key(|[stride, ..]| std::cmp::Reverse(*stride));
    dimensions
}

/// The places of a layout as few regular series, if no two elements share one.
fn series(layout: &Layout) -> Option<Vec<[usize; 2]>> {
    let mut found: Vec<[usize; 2]> = Vec::new();
    for [stride, dim, _] in sorted(layout) {
        match found.last_mut() {
            Some([last, ..]) if *last < stride * dim => return None,
            Some([last, count]) if *last == stride * dim => (*last, *count) = (stride, *count * dim),
            _ => found.push([stride, dim]),
        }
    }
    Some(found)
}

impl View {
    /// The view of a tensor by another layout, unless that has other places.
    pub fn new(from: &Layout, to: &Layout) -> Option<Self> {
        let places = series(from)?;
        (series(to)? == places).then(|| Self { from: sorted(from), to: to.clone() })
    }

    /// The elements in the order of the second layout.
    pub fn of(&self, values: &[f64]) -> Vec<f64> {
        let outer: usize = self.to.count();
        let element = |number: usize| {
            let (mut rest, mut place) = (number, 0);
            for (dim, stride) in self.to.dims.iter().zip(&self.to.strides).rev() {
                place += rest % dim * stride;
                rest /= dim;
            }
            let mut at = 0;
            for [stride, _, packed] in &self.from {
                at += place / stride * packed;
                place %= stride;
            }
            values[at]
        };
        (0..outer).map(element).collect()
    }
}

/// Tensors one after the other along a dimension.
#[derive(Debug)]
pub struct Concatenation {
    /// Consecutive elements of each tensor.
    runs: Vec<usize>,
}

impl Concatenation {
    /// Returns tensors of these sizes along a dimension, unless they do not add up to one of the sizes of `to`.
    pub fn new(axis: usize, from: &[&[usize]], to: &[usize]) -> Option<Self> {
        let (outer, size) = (to.get(..axis)?, *to.get(axis)?);
        let inner = &to[axis + 1..];
        let fits =
            |dims: &&[usize]| dims.len() == to.len() && dims[..axis] == *outer && dims[axis + 1..] == *inner;
        let sizes = || from.iter().map(|dims| dims[axis]);
        if !from.iter().all(fits) || sizes().try_fold(0_usize, usize::checked_add) != Some(size) {
            return None;
        }
        let inner: usize = inner.iter().product();
        Some(Self { runs: sizes().map(|size| size * inner).collect() })
    }

    /// The elements of the whole.
    pub fn join(&self, values: &[&[f64]]) -> Vec<f64> {
        let mut lines: Vec<_> =
            values.iter().zip(&self.runs).map(|(values, run)| values.chunks_exact(*run)).collect();
        let mut joined = Vec::with_capacity(values.iter().map(|values| values.len()).sum());
        while let Some(line) = lines.iter_mut().map(Iterator::next).collect::<Option<Vec<_>>>() {
            line.into_iter().for_each(|line| joined.extend_from_slice(line));
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Type;

    fn layout(dims: &[i64], strides: &[i64]) -> Layout {
        Layout::new(Type::F32, dims, strides).expect("valid")
    }

    #[test]
    fn a_view_reads_the_same_memory() {
        let memory: Vec<f32> = (0..40).map(|value| value as f32).collect();
        let packed = layout(&[2, 3, 4], &[12, 4, 1]);
        let pairs = [
            (packed.clone(), layout(&[2, 4, 3], &[12, 1, 4])),
            (packed.clone(), layout(&[6, 4], &[4, 1])),
            (layout(&[2, 3, 4], &[1, 2, 6]), layout(&[3, 2, 1, 4], &[8, 4, 0, 1])),
            // With gaps.
            (layout(&[2, 3, 4], &[20, 5, 1]), layout(&[4, 2, 3], &[1, 20, 5])),
            (layout(&[1], &[1]), layout(&[1, 1], &[3, 7])),
        ];
        for (from, to) in pairs {
            let view = View::new(&from, &to).expect("the same places");
            // SAFETY: both layouts have at most 40 elements.
            let (values, wanted) =
                unsafe { (from.read(memory.as_ptr() as usize), to.read(memory.as_ptr() as usize)) };
            assert_eq!(view.of(&values), wanted, "{from:?} {to:?}");
        }
        let others = [layout(&[2, 3, 3], &[12, 4, 1]), layout(&[2, 3, 4], &[24, 4, 1]), layout(&[24], &[2])];
        assert!(others.iter().all(|other| View::new(&packed, other).is_none()));
        let overlapping = layout(&[3, 2], &[2, 3]);
        assert!(View::new(&overlapping, &overlapping).is_none());
    }

    #[test]
    fn tensors_are_joined_along_a_dimension() {
        let (first, second) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0]);
        let join = Concatenation::new(1, &[&[2, 2], &[2, 1]], &[2, 3]).expect("they fit");
        assert_eq!(join.join(&[&first, &second]), [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
        let join = Concatenation::new(0, &[&[2, 2], &[1, 2]], &[3, 2]).expect("they fit");
        assert_eq!(join.join(&[&first, &second]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let refused = |axis, from: &[&[usize]], to: &[usize]| Concatenation::new(axis, from, to).is_none();
        assert!(refused(1, &[&[2, 2], &[1, 1]], &[2, 3]) && refused(1, &[&[2, 2]], &[2, 3]));
        assert!(refused(2, &[&[2, 2]], &[2, 2]) && refused(0, &[&[2]], &[2, 2]));
    }
}
