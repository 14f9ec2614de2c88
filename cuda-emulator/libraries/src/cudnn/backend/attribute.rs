// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The values of attributes.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::super::{BAD_PARAM, NOT_FINALIZED, NOT_SUPPORTED, Status};
use super::descriptor::{Finalized, Kind};
use super::with;
use crate::handles::Handle;

/// `CUDNN_TYPE_BACKEND_DESCRIPTOR`
const DESCRIPTORS: c_int = 15;
/// Bytes of an element of each `cudnnBackendAttributeType_t`.
const BYTES: [usize; 31] =
    [8, 4, 1, 8, 4, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8, 4, 4, 4, 4, 4, 4, 4, 4, 1, 4, 16, 4, 4, 4, 4];
/// The maximum number of elements. Bounds the memory of a descriptor; a graph of cuDNN has far fewer tensors and
/// operations.
const MAX_ELEMENTS: usize = 1 << 16;

/// A value.
#[derive(Clone, Debug)]
pub enum Attribute {
    /// Elements of a `cudnnBackendAttributeType_t`.
    Plain { kind: c_int, bytes: Vec<u8> },
    /// The objects that other descriptors described at the time of the call that set the attribute.
    Descriptors(Vec<Arc<Finalized>>),
    /// Descriptors of which one was not finalised at that time. What refers to it cannot be finalised.
    Unfinished,
}

/// The kind of descriptor that an attribute refers to. A descriptor of any kind may have the attribute: [`Finalized`] limits the
/// chains of references.
fn referred(name: c_int) -> Result<Option<Kind>, Status> {
    Ok(Some(match name {
        201 | 1300 => Kind::OperationGraph,
        300 => Kind::Engine,
        302 => Kind::KnobChoice,
        401 => Kind::EngineConfig,
        702 | 708 | 714 => Kind::Convolution,
        703..=705 | 709..=711 | 715..=717 | 751..=753 | 756..=758 => Kind::Tensor,
        1520..=1522 | 1525..=1527 | 1610 | 1611 | 1801 | 1803 => Kind::Tensor,
        2002..=2014 | 2101..=2110 | 2200 | 2201 | 2310 | 2311 | 2313 => Kind::Tensor,
        2800..=2810 | 2851..=2862 => Kind::Tensor,
        913 => Kind::Tensor,
        750 => Kind::Pointwise,
        1523 => Kind::MatMul,
        1612 => Kind::Reduction,
        1710..=1712 | 1720..=1722 | 1726 | 1727 => Kind::Tensor,
        1716 | 1725 => Kind::Resample,
        2312 => Kind::Rng,
        // Operations are of several kinds.
        801 => return Ok(None),
        _ => return Err(NOT_SUPPORTED),
    }))
}

fn size_of(kind: c_int) -> Result<usize, Status> {
    usize::try_from(kind).ok().and_then(|kind| BYTES.get(kind)).copied().ok_or(BAD_PARAM)
}

/// The elements that a program sets.
///
/// # Safety
///
/// `elements` is null or has `count` elements of that type.
pub unsafe fn taken(
    name: c_int,
    kind: c_int,
    count: i64,
    elements: *const c_void,
) -> Result<Attribute, Status> {
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_ELEMENTS).ok_or(BAD_PARAM)?;
    if elements.is_null() && count > 0 {
        return Err(BAD_PARAM);
    }
    let mut bytes = vec![0_u8; count * size_of(kind)?];
    if count > 0 {
        // SAFETY: the elements are not null, so they are as many by this function's contract.
        unsafe { std::ptr::copy_nonoverlapping(elements.cast(), bytes.as_mut_ptr(), bytes.len()) };
    }
    if kind != DESCRIPTORS {
        return Ok(Attribute::Plain { kind, bytes });
    }
    let wanted = referred(name)?;
    let found = handles_in(&bytes).map(|handle| {
        with(handle, |descriptor| {
            let kind = wanted.unwrap_or(descriptor.kind());
            if wanted.is_none() && !kind.is_operation() { Err(BAD_PARAM) } else { descriptor.finalized(kind) }
        })
    });
    match found.collect::<Result<_, _>>() {
        Err(NOT_FINALIZED) => Ok(Attribute::Unfinished),
        found => Ok(Attribute::Descriptors(found?)),
    }
}

fn handles_in(bytes: &[u8]) -> impl Iterator<Item = Handle> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|bytes| usize::from_le_bytes(*bytes))
}

impl Attribute {
    /// One or more numbers of 64 bits.
    pub fn of_integers(values: &[i64]) -> Self {
        Self::Plain { kind: 3, bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect() }
    }

    /// No element of a type.
    pub fn none_of(kind: c_int) -> Self {
        if kind == DESCRIPTORS {
            return Self::Descriptors(Vec::new());
        }
        Self::Plain { kind, bytes: Vec::new() }
    }

    /// Whole numbers, enumerations and truth values.
    pub fn integers(&self) -> Result<Vec<i64>, Status> {
        let Self::Plain { kind, bytes } = self else { return Err(BAD_PARAM) };
        match (kind, size_of(*kind)?) {
            // Handles, floating-point numbers, texts and fractions.
            (0 | 4 | 5 | 24 | 26, _) => Err(BAD_PARAM),
            (_, 1) => Ok(bytes.iter().map(|byte| i64::from(*byte)).collect()),
            (_, 4) => Ok(bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|bytes| i64::from(i32::from_le_bytes(*bytes)))
                .collect()),
            _ => Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()),
        }
    }

    /// Whole numbers, also those that are written as fractions; others are not supported.
    pub fn wholes(&self) -> Result<Vec<i64>, Status> {
        let Self::Plain { kind: 26, bytes } = self else { return self.integers() };
        let fractions = bytes.as_chunks::<8>().0.as_chunks::<2>().0.iter();
        let whole = |[numerator, denominator]: &[[u8; 8]; 2]| {
            let numerator = i64::from_le_bytes(*numerator);
            match i64::from_le_bytes(*denominator) {
                0 => Err(BAD_PARAM),
                denominator => match numerator.checked_rem(denominator) {
                    Some(0) => Ok(numerator / denominator),
                    _ => Err(NOT_SUPPORTED),
                },
            }
        };
        fractions.map(whole).collect()
    }

    /// One floating-point number.
    pub fn real(&self) -> Result<f64, Status> {
        match self {
            Self::Plain { kind: 4, bytes } => {
                bytes[..].try_into().map(f32::from_le_bytes).map(f64::from).map_err(|_| BAD_PARAM)
            }
            Self::Plain { kind: 5, bytes } => {
                bytes[..].try_into().map(f64::from_le_bytes).map_err(|_| BAD_PARAM)
            }
            _ => Err(BAD_PARAM),
        }
    }

    /// Gives the program as many elements as it has room for; answers how many there are.
    ///
    /// # Safety
    ///
    /// `elements` is null or has room for `room` elements of that type.
    pub unsafe fn given(&self, kind: c_int, room: usize, elements: *mut c_void) -> Result<usize, Status> {
        match self {
            Self::Plain { kind: own, bytes } => {
                let size = size_of(kind)?;
                if kind != *own {
                    return Err(BAD_PARAM);
                }
                let count = bytes.len() / size;
                if !elements.is_null() {
                    // SAFETY: the elements are not null, so there is room for `room` by this function's contract.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            bytes.as_ptr(),
                            elements.cast(),
                            count.min(room) * size,
                        );
                    }
                }
                Ok(count)
            }
            Self::Unfinished => Err(NOT_FINALIZED),
            Self::Descriptors(_) if kind != DESCRIPTORS => Err(BAD_PARAM),
            Self::Descriptors(found) => {
                for (index, found) in found.iter().enumerate().take(if elements.is_null() { 0 } else { room })
                {
                    // SAFETY: the elements are not null, so there is room for `room` by this function's contract.
                    let handle = unsafe { elements.cast::<Handle>().add(index).read_unaligned() };
                    with(handle, |descriptor| descriptor.fill(found.clone()))?;
                }
                Ok(found.len())
            }
        }
    }
}
