// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Ragged tensors: batches of different lengths, one after the other in memory. A tensor of offsets contains the
//! start of each batch and the end of the last one, in elements. Its dimensions and strides are those of the longest
//! batch. Rows after the end of a batch are not in memory: they are read as zeros and not written.

use super::super::layout::Layout;
use super::super::{BAD_PARAM, Operand, Status};
use crate::stream::{Done, Fault};

/// A ragged tensor in memory.
#[derive(Debug)]
pub struct Ragged {
    layout: Layout,
    base: usize,
    /// One number more than there are batches.
    offsets: Operand,
}

/// A batch that has elements.
#[derive(Debug, PartialEq)]
struct Batch {
    number: usize,
    /// The place of its first element.
    start: usize,
    /// Its elements. The dimension of the largest stride is that of the positions, and is cut.
    layout: Layout,
}

/// The dimension of a layout's positions.
fn positions(layout: &Layout) -> usize {
    let several = (1..layout.dims.len()).filter(|dim| layout.dims[*dim] > 1);
    several.max_by_key(|dim| layout.strides[*dim]).unwrap_or(layout.dims.len() - 1)
}

/// The batches between these offsets; nothing if offsets do not ascend.
fn batches(layout: &Layout, offsets: &[f64]) -> Option<Vec<Batch>> {
    let axis = positions(layout);
    let mut found = Vec::new();
    for (number, ends) in offsets.windows(2).enumerate() {
        let (start, end) = (ends[0], ends[1]);
        if !(0.0 <= start && start <= end && end <= isize::MAX as f64 / 8.0) {
            return None;
        }
        let length = (end as usize - start as usize).div_ceil(layout.strides[axis].max(1));
        if length == 0 {
            continue;
        }
        let sizes = |values: &[usize]| values[1..].iter().map(|value| *value as i64).collect::<Vec<_>>();
        let mut dims = sizes(&layout.dims);
        dims[axis - 1] = dims[axis - 1].min(length as i64);
        let layout = Layout::new(layout.kind, &dims, &sizes(&layout.strides)).ok()?;
        found.push(Batch { number, start: start as usize, layout });
    }
    Some(found)
}

impl Ragged {
    /// Creates a tensor of at least two dimensions with its offsets.
    pub fn new(layout: Layout, base: usize, offsets: Operand) -> Result<Self, Status> {
        if layout.dims.len() < 2 || offsets.layout.count() != layout.dims[0] + 1 || base == 0 {
            return Err(BAD_PARAM);
        }
        Ok(Self { layout, base, offsets })
    }

    /// Calls `body` for each batch with its layout and address, and for each of its lines with the place of the line in the
    /// whole and its length.
    fn each(&self, mut body: impl FnMut(&Layout, usize, &[(usize, usize)]) -> Done) -> Done {
        for batch in batches(&self.layout, &self.offsets.load()?).ok_or(Fault)? {
            let start = batch.start.checked_mul(self.layout.kind.bytes());
            let address = start.and_then(|start| self.base.checked_add(start)).ok_or(Fault)?;
            body(&batch.layout, address, &lines(&self.layout, &batch))?;
        }
        Ok(())
    }

    /// All elements in the order of its dimensions.
    pub fn load(&self) -> Result<Vec<f64>, Fault> {
        let mut values = vec![0.0; self.layout.count()];
        self.each(|layout, address, lines| {
            let loaded = layout.load(address)?;
            let mut rest = &loaded[..];
            for (place, length) in lines {
                let (line, after) = rest.split_at(*length);
                values[*place..][..*length].copy_from_slice(line);
                rest = after;
            }
            Ok(())
        })?;
        Ok(values)
    }

    /// Changes all elements that are in memory.
    pub fn store(&self, values: &[f64]) -> Done {
        self.each(|layout, address, lines| {
            let own: Vec<f64> =
                lines.iter().flat_map(|(place, length)| &values[*place..][..*length]).copied().collect();
            layout.store(address, &own)
        })
    }
}

/// Runs of elements that a batch and the whole have in the same order: the place of each in the whole, and its length.
fn lines(whole: &Layout, batch: &Batch) -> Vec<(usize, usize)> {
    let axis = positions(whole);
    let product = |dims: &[usize]| dims.iter().product::<usize>();
    let (outer, inner) = (product(&whole.dims[1..axis]), product(&whole.dims[axis + 1..]));
    let (line, own) = (whole.dims[axis] * inner, batch.layout.dims[axis - 1] * inner);
    (0..outer).map(|number| ((batch.number * outer + number) * line, own)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Type;

    /// Three batches of two heads, up to four positions and two elements; heads are adjacent.
    fn layout() -> Layout {
        Layout::new(Type::F32, &[3, 2, 4, 2], &[1 << 20, 2, 4, 1]).expect("valid")
    }

    #[test]
    fn batches_follow_each_other() {
        let memory: Vec<f32> = (0..20).map(|value| value as f32).collect();
        let layout = layout();
        // Lengths of 3, 0 and 2.
        let found = batches(&layout, &[0.0, 12.0, 12.0, 20.0]).expect("they ascend");
        assert_eq!(
            found.iter().map(|batch| (batch.number, batch.start)).collect::<Vec<_>>(),
            [(0, 0), (2, 12)]
        );
        assert_eq!(found.iter().map(|batch| batch.layout.dims[1]).collect::<Vec<_>>(), [3, 2]);
        for (batch, length) in found.iter().zip([3, 2]) {
            // SAFETY: the batch ends within the memory.
            let read = unsafe { batch.layout.read(memory[batch.start..].as_ptr() as usize) };
            let lines = lines(&layout, batch);
            assert_eq!(lines.len(), 2);
            for (head, (place, count)) in lines.into_iter().enumerate() {
                assert_eq!((place, count), ((batch.number * 2 + head) * 8, length * 2));
                for position in 0..length {
                    let value = memory[batch.start + position * 4 + head * 2];
                    assert_eq!(read[(head * length + position) * 2], f64::from(value));
                }
            }
        }
    }

    #[test]
    fn the_last_part_of_a_packed_row_may_end_the_memory() {
        // Adjacent queries, keys and values: those of the last position end before its row does.
        let packed = Layout::new(Type::F32, &[1, 2, 4, 2], &[1 << 20, 2, 12, 1]).expect("valid");
        let found = batches(&packed, &[0.0, 24.0]).expect("they ascend");
        assert_eq!((found[0].layout.dims[1], found[0].layout.bytes()), (2, 16 * 4));
    }

    #[test]
    fn longer_batches_are_cut_and_mistakes_refused() {
        let found = batches(&layout(), &[0.0, 100.0, 100.0, 100.0]).expect("they ascend");
        assert_eq!((found.len(), &found[0].layout.dims[..]), (1, &[2, 4, 2][..]));
        for offsets in [[0.0, 12.0, 8.0, 20.0], [-4.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 1e19]] {
            assert!(batches(&layout(), &offsets).is_none(), "{offsets:?}");
        }
        let offsets = |count| Operand::new(Layout::new(Type::I32, &[count], &[1]).expect("valid"), 64);
        assert!(Ragged::new(layout(), 64, offsets(4).expect("valid")).is_ok());
        assert!(Ragged::new(layout(), 64, offsets(3).expect("valid")).is_err(), "an offset is missing");
    }
}
