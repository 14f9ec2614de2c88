// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The layout of a tensor in memory.

use std::ffi::c_int;

use half::{bf16, f16};

use super::{BAD_PARAM, MAX_RANK, NOT_SUPPORTED, Status};
use crate::memory::pointer;
use crate::numbers::Type;
use crate::stream::{Done, Fault};

/// The type of a `cudnnDataType_t`.
pub fn data_type(number: c_int) -> Result<Type, Status> {
    Ok(match number {
        0 => Type::F32,
        1 => Type::F64,
        2 => Type::F16,
        3 => Type::I8,
        4 => Type::I32,
        9 => Type::Bf16,
        10 => Type::I64,
        5..=21 => return Err(NOT_SUPPORTED),
        _ => return Err(BAD_PARAM),
    })
}

/// The `cudnnDataType_t` of a type.
pub fn number_of(kind: Type) -> c_int {
    match kind {
        Type::F64 => 1,
        Type::F16 => 2,
        Type::I8 => 3,
        Type::I32 => 4,
        Type::Bf16 => 9,
        Type::I64 => 10,
        _ => 0,
    }
}

/// Types, sizes and distances of a tensor's elements.
///
/// # Invariants
/// There are as many strides as dimensions, no dimension is zero, and `span` elements, which do not exceed `isize::MAX` bytes,
/// have all of the tensor's. The tensor has at most as many elements as `span`, so that a row of doubles of all elements takes
/// at most eight times the memory that the program has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub kind: Type,
    pub dims: Vec<usize>,
    pub strides: Vec<usize>,
    span: usize,
}

impl Layout {
    /// A layout, checked.
    pub fn new(kind: Type, dims: &[i64], strides: &[i64]) -> Result<Self, Status> {
        if dims.is_empty() || dims.len() > MAX_RANK || dims.len() != strides.len() {
            return Err(BAD_PARAM);
        }
        let sizes = |values: &[i64]| -> Result<Vec<usize>, Status> {
            values.iter().map(|value| usize::try_from(*value).map_err(|_| BAD_PARAM)).collect()
        };
        let (dims, strides) = (sizes(dims)?, sizes(strides)?);
        // The distance of one element from the next one does not matter where there is no next one.
        if dims.iter().zip(&strides).any(|(dim, stride)| *dim == 0 || (*dim > 1 && *stride == 0)) {
            return Err(BAD_PARAM);
        }
        let count = dims.iter().try_fold(1_usize, |count, dim| count.checked_mul(*dim)).ok_or(BAD_PARAM)?;
        let last = dims
            .iter()
            .zip(&strides)
            .try_fold(0_usize, |last, (dim, stride)| last.checked_add((dim - 1).checked_mul(*stride)?));
        let span = last.and_then(|last| last.checked_add(1)).ok_or(BAD_PARAM)?;
        let bytes = span.checked_mul(size_of::<f64>()).filter(|bytes| *bytes <= isize::MAX as usize);
        if bytes.is_none() {
            return Err(BAD_PARAM);
        }
        // Elements that lie on top of each other.
        if count > span {
            return Err(NOT_SUPPORTED);
        }
        Ok(Self { kind, dims, strides, span })
    }

    /// Returns a packed tensor of `N, C, …`, whose channels are adjacent (NHWC) or far apart (NCHW).
    pub fn packed(kind: Type, dims: &[i64], channels_last: bool) -> Result<Self, Status> {
        let mut order: Vec<usize> = (0..dims.len()).collect();
        if channels_last && dims.len() > 2 {
            order = [0].into_iter().chain(2..dims.len()).chain([1]).collect();
        }
        let (mut strides, mut next) = (vec![1; dims.len()], 1_i64);
        for dim in order.into_iter().rev() {
            strides[dim] = next;
            next = next.checked_mul(dims[dim]).ok_or(BAD_PARAM)?;
        }
        Self::new(kind, dims, &strides)
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns the bytes from the first to the end of the last element.
    pub fn bytes(&self) -> usize {
        self.span * self.kind.bytes()
    }

    /// The type in which factors and statistics of a tensor of this type are.
    pub fn scaling(&self) -> Type {
        if self.kind == Type::F64 { Type::F64 } else { Type::F32 }
    }

    /// All elements of a tensor at an address, in the order of its dimensions.
    pub fn load(&self, base: usize) -> Result<Vec<f64>, Fault> {
        self.check(base)?;
        // SAFETY: `check` has found the memory of this layout at `base`.
        Ok(unsafe { self.read(base) })
    }

    /// Changes all elements of a tensor at an address.
    pub fn store(&self, base: usize, values: &[f64]) -> Done {
        self.check(base)?;
        // SAFETY: `check` has found the memory of this layout at `base`.
        unsafe { self.write(base, values) };
        Ok(())
    }

    /// Checks that kernels may access a tensor of this layout at an address.
    pub fn check(&self, base: usize) -> Done {
        if !base.is_multiple_of(self.kind.alignment()) {
            return Err(Fault);
        }
        pointer::<u8>(base, self.bytes()).map(drop)
    }

    /// Calls `body` with the place of the first element of each line of the last dimension.
    fn lines(&self, mut body: impl FnMut(usize)) {
        let outer = self.dims.len() - 1;
        let mut at = vec![0; outer];
        loop {
            body(at.iter().zip(&self.strides).map(|(at, stride)| at * stride).sum());
            let Some(dim) = (0..outer).rev().find(|dim| at[*dim] + 1 < self.dims[*dim]) else { return };
            at[dim] += 1;
            at[dim + 1..].fill(0);
        }
    }

    /// # Safety
    ///
    /// `base` has memory of this layout.
    pub unsafe fn read(&self, base: usize) -> Vec<f64> {
        // SAFETY: `base` has memory of this layout, whose elements are of this type.
        unsafe {
            match self.kind {
                Type::F32 => self.read_as(base, |value: f32| value.into()),
                Type::F64 => self.read_as(base, |value: f64| value),
                Type::F16 => self.read_as(base, f16::to_f64),
                Type::Bf16 => self.read_as(base, bf16::to_f64),
                Type::I8 => self.read_as(base, |value: i8| value.into()),
                Type::I32 => self.read_as(base, |value: i32| value.into()),
                // No `cudnnDataType_t` is a complex type.
                Type::I64 | Type::C32 | Type::C64 => self.read_as(base, |value: i64| value as f64),
            }
        }
    }

    /// # Safety
    ///
    /// `base` has memory of this layout, with elements of type `T`.
    unsafe fn read_as<T>(&self, base: usize, wide: impl Fn(T) -> f64) -> Vec<f64> {
        let outer = self.dims.len() - 1;
        let (length, step) = (self.dims[outer], self.strides[outer]);
        let mut values = Vec::with_capacity(self.count());
        self.lines(|start| {
            let line = base as *const T;
            values.extend((0..length).map(|at| {
                // SAFETY: elements of all lines lie below `span`, which `base` has by this function's contract.
                wide(unsafe { line.add(start + at * step).read_unaligned() })
            }));
        });
        values
    }

    /// # Safety
    ///
    /// `base` has memory of this layout.
    pub unsafe fn write(&self, base: usize, values: &[f64]) {
        assert_eq!(values.len(), self.count(), "the caller has a value for each element");
        // SAFETY: `base` has memory of this layout, whose elements are of this type.
        unsafe {
            match self.kind {
                Type::F32 => self.write_as(base, values, |value| value as f32),
                Type::F64 => self.write_as(base, values, |value| value),
                Type::F16 => self.write_as(base, values, f16::from_f64),
                Type::Bf16 => self.write_as(base, values, bf16::from_f64),
                Type::I8 => self.write_as(base, values, |value| value.round_ties_even() as i8),
                Type::I32 => self.write_as(base, values, |value| value.round_ties_even() as i32),
                Type::I64 | Type::C32 | Type::C64 => {
                    self.write_as(base, values, |value| value.round_ties_even() as i64);
                }
            }
        }
    }

    /// # Safety
    ///
    /// `base` has memory of this layout, with elements of type `T`.
    unsafe fn write_as<T>(&self, base: usize, values: &[f64], narrow: impl Fn(f64) -> T) {
        let outer = self.dims.len() - 1;
        let (length, step) = (self.dims[outer], self.strides[outer]);
        let mut lines = values.chunks_exact(length);
        self.lines(|start| {
            let line = base as *mut T;
            for (at, value) in lines.next().into_iter().flatten().enumerate() {
                // SAFETY: elements of all lines lie below `span`, which `base` has by this function's contract.
                unsafe { line.add(start + at * step).write_unaligned(narrow(*value)) };
            }
        });
    }
}

/// Values of a tensor of `from`, spread over one of `to`: dimensions of 1 repeat.
pub fn spread(values: &[f64], from: &[usize], to: &[usize]) -> Vec<f64> {
    if from == to {
        return values.to_vec();
    }
    places(from, to).map(|place| values[place]).collect()
}

/// Dimensions can be spread over others.
pub fn spreads(from: &[usize], to: &[usize]) -> bool {
    from.len() == to.len() && from.iter().zip(to).all(|(from, to)| *from == 1 || from == to)
}

/// For each element of a tensor of `to` the place of that of a tensor of `from` which is spread over it.
pub fn places<'a>(from: &'a [usize], to: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
    let mut strides = vec![0; to.len()];
    let mut next = 1;
    for dim in (0..to.len()).rev() {
        if from[dim] != 1 {
            strides[dim] = next;
        }
        next *= from[dim];
    }
    (0..to.iter().product()).map(move |number: usize| {
        let (mut rest, mut place) = (number, 0);
        for dim in (0..to.len()).rev() {
            place += rest % to[dim] * strides[dim];
            rest /= to[dim];
        }
        place
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_their_strides() {
        let memory: Vec<f32> = (0..24).map(|value| value as f32).collect();
        let channels_last = Layout::packed(Type::F32, &[2, 3, 2, 2], true).expect("valid");
        assert_eq!(channels_last.strides, [12, 1, 6, 3]);
        // SAFETY: there are as many elements.
        let read = unsafe { channels_last.read(memory.as_ptr() as usize) };
        for n in 0..2 {
            for c in 0..3 {
                for place in 0..4 {
                    assert_eq!(read[(n * 3 + c) * 4 + place], (n * 12 + place * 3 + c) as f64);
                }
            }
        }
        let mut written = vec![0_f32; 24];
        // SAFETY: there are as many elements.
        unsafe { channels_last.write(written.as_mut_ptr() as usize, &read) };
        assert_eq!(written, memory);
    }

    #[test]
    fn half_precision_is_rounded_and_gaps_stay() {
        let layout = Layout::new(Type::Bf16, &[2, 2], &[4, 2]).expect("valid");
        let mut memory = [bf16::from_f32(7.0); 7];
        // SAFETY: the layout spans seven elements.
        unsafe { layout.write(memory.as_mut_ptr() as usize, &[1.0, 2.0, 3.001, 4.0]) };
        assert_eq!(memory.map(bf16::to_f32), [1.0, 7.0, 2.0, 7.0, 3.0, 7.0, 4.0]);
    }

    #[test]
    fn sizes_are_checked() {
        let refused = |dims: &[i64], strides: &[i64]| Layout::new(Type::F64, dims, strides).is_err();
        assert!(refused(&[], &[]) && refused(&[2, 0], &[1, 1]) && refused(&[2, -1], &[1, 1]));
        assert!(!refused(&[2, 1], &[1, 0]));
        assert!(refused(&[2, 2], &[1, 0]) && refused(&[1; 9], &[1; 9]) && refused(&[2], &[1, 1]));
        assert!(
            refused(&[i64::MAX, i64::MAX], &[i64::MAX, 1]) && refused(&[1 << 40, 1 << 22], &[1 << 22, 1])
        );
        assert!(refused(&[1 << 20, 1 << 20], &[1, 1]), "elements on top of each other");
        assert!(Layout::packed(Type::F64, &[i64::MAX, i64::MAX], false).is_err());
    }

    #[test]
    fn dimensions_of_one_repeat() {
        assert_eq!(spread(&[1.0, 2.0], &[2, 1], &[2, 3]), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(spread(&[1.0, 2.0], &[1, 2], &[2, 2]), [1.0, 2.0, 1.0, 2.0]);
        assert!(spreads(&[1, 2], &[3, 2]) && !spreads(&[2, 2], &[3, 2]) && !spreads(&[2], &[1, 2]));
    }
}
