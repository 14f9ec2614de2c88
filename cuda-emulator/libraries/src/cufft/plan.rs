// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A plan, and its execution.

use rustfft::{FftDirection, FftPlanner};

use super::{INVALID_SIZE, INVALID_VALUE, NOT_SUPPORTED, Status};
use crate::memory::Array;
use crate::numbers::{C64, Type};
use crate::stream::{Done, Fault};

/// The maximum number of dimensions of a transform.
const MAX_RANK: usize = 3;
/// The maximum number of elements of a transform, over all batches. Bounds the memory of the process.
const MAX_ELEMENTS: usize = 1 << 30;

/// The side of a real transform that has the real numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Complex to complex.
    Complex,
    /// Real to complex.
    Forward,
    /// Complex to real.
    Inverse,
}

/// The positions of the elements of one side.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// The storage of each dimension, if it is not packed.
    pub embed: Option<Vec<i64>>,
    /// Elements from one to the next.
    pub stride: i64,
    /// Elements from one batch to the next.
    pub distance: i64,
}

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of transform.
    pub kind: Kind,
    /// The types of input and output.
    pub types: [Type; 2],
    sizes: Vec<usize>,
    batch: usize,
    sides: [Side; 2],
}

/// A place in memory of each element of a side.
struct Places {
    embed: Vec<usize>,
    stride: usize,
    distance: usize,
}

impl Places {
    /// The place of the element at these coordinates.
    fn place(&self, batch: usize, at: &[usize]) -> Option<usize> {
        let mut offset = 0_usize;
        for (coordinate, embed) in at.iter().zip(&self.embed) {
            offset = offset.checked_mul(*embed)?.checked_add(*coordinate)?;
        }
        batch.checked_mul(self.distance)?.checked_add(offset.checked_mul(self.stride)?)
    }
}

/// The memory of a side, and the places of elements in it.
struct Memory {
    array: Array,
    places: Places,
}

impl Plan {
    /// A plan, checked.
    pub fn new(types: [Type; 2], sizes: &[i64], batch: i64, sides: [Side; 2]) -> Result<Self, Status> {
        let kind = match types.map(Type::is_complex) {
            [true, true] => Kind::Complex,
            [false, true] => Kind::Forward,
            [true, false] => Kind::Inverse,
            [false, false] => return Err(NOT_SUPPORTED),
        };
        if sizes.is_empty() || sizes.len() > MAX_RANK {
            return Err(INVALID_VALUE);
        }
        let of_size = |size: &i64| usize::try_from(*size).ok().filter(|size| *size > 0).ok_or(INVALID_SIZE);
        let sizes = sizes.iter().map(of_size).collect::<Result<Vec<_>, _>>()?;
        let batch = of_size(&batch)?;
        let total = sizes.iter().try_fold(batch, |total, size| total.checked_mul(*size));
        total.filter(|total| *total <= MAX_ELEMENTS).ok_or(INVALID_SIZE)?;
        for side in sides.iter().filter(|side| side.embed.is_some()) {
            let embed = side.embed.iter().flatten();
            if side.stride < 1 || side.distance < 0 || embed.skip(1).any(|size| *size < 1) {
                return Err(INVALID_VALUE);
            }
        }
        Ok(Self { kind, types, sizes, batch, sides })
    }

    fn has_half(&self, is_output: bool) -> bool {
        matches!((self.kind, is_output), (Kind::Forward, true) | (Kind::Inverse, false))
    }

    /// The sizes of a side as it is stored.
    fn stored(&self, is_output: bool) -> Vec<usize> {
        let mut sizes = self.sizes.clone();
        if let (true, Some(last)) = (self.has_half(is_output), sizes.last_mut()) {
            *last = *last / 2 + 1;
        }
        sizes
    }

    fn places(&self, is_output: bool, is_in_place: bool) -> Result<Places, Fault> {
        let side = &self.sides[usize::from(is_output)];
        if let Some(embed) = &side.embed {
            let number = |value: i64| usize::try_from(value).map_err(|_| Fault);
            return Ok(Places {
                // The first one is never used.
                embed: embed.iter().map(|size| number((*size).max(0))).collect::<Result<_, _>>()?,
                stride: number(side.stride)?,
                distance: number(side.distance)?,
            });
        }
        let mut embed = self.stored(is_output);
        // Real numbers that share memory with complex ones are padded.
        if let (true, Some(last)) =
            (is_in_place && !self.types[usize::from(is_output)].is_complex(), embed.last_mut())
        {
            *last = (*last / 2 + 1) * 2;
        }
        let distance = embed.iter().product();
        Ok(Places { embed, stride: 1, distance })
    }

    /// Transforms.
    pub fn execute(&self, input: usize, output: usize, is_inverse: bool) -> Done {
        let is_in_place = input == output;
        let from = self.open(input, false, is_in_place)?;
        let to = self.open(output, true, is_in_place)?;
        // All is read before anything is written: batches may overlap in a transform in place.
        let mut all: Vec<Vec<C64>> =
            (0..self.batch).map(|batch| self.load(&from, batch)).collect::<Result<_, _>>()?;
        let mut planner = FftPlanner::new();
        for values in &mut all {
            self.transform(values, is_inverse, &mut planner);
        }
        let stored = self.stored(true);
        for (batch, values) in all.iter().enumerate() {
            for at in coordinates(&stored) {
                to.array.set(to.places.place(batch, &at).ok_or(Fault)?, values[index(&self.sizes, &at)]);
            }
        }
        Ok(())
    }

    /// The memory of a side, checked up to its last element.
    fn open(&self, base: usize, is_output: bool, is_in_place: bool) -> Result<Memory, Fault> {
        let places = self.places(is_output, is_in_place)?;
        let last: Vec<usize> = self.stored(is_output).iter().map(|size| size - 1).collect();
        let end = places.place(self.batch - 1, &last).and_then(|last| last.checked_add(1)).ok_or(Fault)?;
        Ok(Memory { array: Array::new(self.types[usize::from(is_output)], base, end)?, places })
    }

    /// One batch, with all elements of a half that is not stored.
    fn load(&self, from: &Memory, batch: usize) -> Result<Vec<C64>, Fault> {
        let get = |at: &[usize]| Ok(from.array.get(from.places.place(batch, at).ok_or(Fault)?));
        let half = self.sizes.last().map_or(0, |last| last / 2 + 1);
        coordinates(&self.sizes)
            .map(|at| {
                if self.has_half(false) && at.last().is_some_and(|last| *last >= half) {
                    let mirrored: Vec<usize> =
                        at.iter().zip(&self.sizes).map(|(at, size)| (size - at) % size).collect();
                    return Ok(get(&mirrored)?.conj());
                }
                get(&at)
            })
            .collect()
    }

    fn transform(&self, values: &mut [C64], is_inverse: bool, planner: &mut FftPlanner<f64>) {
        let direction = if is_inverse { FftDirection::Inverse } else { FftDirection::Forward };
        let mut inner = 1;
        for size in self.sizes.iter().rev() {
            let fft = planner.plan_fft(*size, direction);
            let mut line = vec![C64::default(); *size];
            for start in (0..values.len()).filter(|start| start / inner % size == 0) {
                (0..*size).for_each(|at| line[at] = values[start + at * inner]);
                fft.process(&mut line);
                (0..*size).for_each(|at| values[start + at * inner] = line[at]);
            }
            inner *= size;
        }
    }
}

/// The place in a packed array.
fn index(sizes: &[usize], at: &[usize]) -> usize {
    at.iter().zip(sizes).fold(0, |index, (at, size)| index * size + at)
}

/// All coordinates, the last dimension running fastest.
fn coordinates(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..sizes.iter().product()).map(move |number| {
        let mut rest: usize = number;
        let mut at = vec![0; sizes.len()];
        for (place, size) in at.iter_mut().zip(sizes).rev() {
            (*place, rest) = (rest % size, rest / size);
        }
        at
    })
}
