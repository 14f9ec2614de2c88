// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The layout of arguments and results in the bulk data of the row `vendor_call`. All numbers are little-endian.
//!
//! A block of arguments has a slot of 8 bytes per parameter. The data that the host reads follows, in the order of
//! the parameters, each padded to 8 bytes. The slot is
//! | kind | slot | data |
//! | --- | --- | --- |
//! | number | its bits; those above its size are ignored | |
//! | `ptr`, `stream`, `in stream` | the address, the handle | |
//! | handle, `new`, `end` | the guest's number for it; 0 for null | |
//! | host memory, `scaling` | [`PRESENT`], or 0 for null | the data that the library reads |
//! | descriptor | [`described`], with the type of its scalars, or 0 for null | its contents ([`crate::attributes`]) |
//! | `value` | [`PRESENT`] | the structure |
//! | `scratch`, `table`, `malloc` | [`PRESENT`], or 0 for null | |
//! | `each` | [`PRESENT`], or 0 for null | the arrays, one after the other |
//! | `note`, `asked`, `sum` | the number, as an `int64_t` | |
//! | `graph` | the guest's number for it | |
//! | `placed` | [`PRESENT`] if it is in host memory; else its device address, or 0 for null | the data that the library reads |
//! | `scalar`, `alpha`, `beta` | [`PRESENT`] if it is in host memory; else its device address, or 0 for null | the data that the library reads |
//! | `string` | length + 1, or 0 for null | the bytes, without a NUL |
//! | `out stream` | 0 | |
//!
//! A block of results begins with the function's result, 8 bytes (for text its length + 1, or 0 for null). Then follows
//! the text or, in the order of the parameters, the data that the library wrote, each padded to 8 bytes. That data
//! includes the contents of a `table`, the contents of `malloc` memory with zeros up to the maximum length, and the
//! guest's numbers for handles.

use crate::attributes::Scalars;
use crate::expression::Expression;
use crate::numbers::{compute_type_bytes, data_type_bytes, is_complex};
use crate::{Call, Direction, Element, Host, Kind, Library, Number, ScratchBytes};

/// The slot of memory whose contents are in the block.
pub const PRESENT: u64 = 1;
/// Maximum length of a block of arguments or results, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// Maximum length of a `scratch`, in bytes. Limits the worker's memory; a `scratch` is not sent.
pub const MAX_SCRATCH: usize = 512 << 20;
/// Bytes of a slot. Data is padded to a multiple of it.
pub const SLOT: usize = 8;
/// Maximum length of a text, in bytes.
pub const MAX_TEXT: usize = 64 << 10;
/// Bytes of cuDNN's scaling factors: room for the larger type.
pub const SCALING_BYTES: usize = 8;

/// The error for arguments that imply an invalid size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an argument's size is unknown or too large")]
pub struct BadSize;

/// Returns `bytes`, padded to slots.
pub fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(SLOT)
}

/// Returns the slot of a descriptor: [`PRESENT`], and the type of its scalars.
pub fn described(library: &Library, kind: usize, contents: &[u8]) -> u64 {
    let all = &library.descriptors;
    all[kind].scalars(all, contents).map_or(PRESENT, |scalars| {
        PRESENT
            | (scalars.bytes as u64) << 8
            | u64::from(scalars.host_alpha) << 16
            | u64::from(scalars.host_beta) << 17
    })
}

/// Returns the type of scalars in the result of [`described`].
pub fn scalars(slot: u64) -> Option<Scalars> {
    let bytes = (slot >> 8 & 0xff) as usize;
    let scalars = Scalars { bytes, host_alpha: slot >> 16 & 1 == 1, host_beta: slot >> 17 & 1 == 1 };
    (bytes > 0).then_some(scalars)
}

/// Returns the bytes of an element of a `cudnnBackendAttributeType_t` (`cudnn_graph.h`), listed in
/// `rows/cudnn.attributes`.
pub fn attribute_type_bytes(kind: i128) -> Option<usize> {
    Some(match kind {
        // CUDNN_TYPE_BOOLEAN, CHAR
        2 | 24 => 1,
        // HANDLE, INT64, DOUBLE, VOID_PTR, BACKEND_DESCRIPTOR
        0 | 3 | 5 | 6 | 15 => 8,
        // FRACTION
        26 => 16,
        1 | 4 | 7..=14 | 16..=23 | 25 | 27..=33 => 4,
        _ => return None,
    })
}

/// Returns the name in the rows of the handle kind of a `cudnnBackendAttributeType_t`, if its elements are handles.
pub fn attribute_type_handle(kind: i128) -> Option<&'static str> {
    match kind {
        0 => Some("Handle"),
        15 => Some("Backend"),
        _ => None,
    }
}

/// Returns whether the elements of a `cudnnBackendAttributeType_t` are addresses.
pub fn is_attribute_of_addresses(kind: i128) -> bool {
    kind == ADDRESSES
}

/// Returns whether the elements of an attribute of cuDNN may have a `cudnnBackendAttributeType_t`. Addresses, handles and
/// descriptors must not be given as plain numbers, which nobody checks.
#[cfg(feature = "tables")]
pub fn may_have_type(attribute: i128, kind: i128) -> bool {
    let referring = crate::REFERRING;
    let listed = referring.binary_search_by_key(&attribute, |(attribute, _)| i128::from(*attribute));
    listed.map_or(true, |place| kind == i128::from(referring[place].1))
        || attribute_type_bytes(kind) != Some(8)
}

/// `CUDNN_TYPE_VOID_PTR`
const ADDRESSES: i128 = 6;

impl Kind {
    /// Returns the bytes of the memory in a block that a parameter of this kind points to, if they do not depend on other
    /// arguments.
    pub const fn fixed_bytes(&self) -> Option<usize> {
        match self {
            Self::Host(Host { element, count: None, .. }) | Self::Scalar { element, count: None, .. } => {
                element.fixed_bytes()
            }
            Self::Placed { bytes, .. } | Self::Structure(bytes) | Self::Table(bytes) => Some(*bytes as usize),
            Self::Scaling => Some(SCALING_BYTES),
            _ => None,
        }
    }
}

impl Element {
    /// Returns the bytes of an element, if they do not depend on other arguments.
    pub const fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::Number(number) => Some(number.bytes()),
            Self::Bytes(bytes) | Self::Sized { bytes, .. } => Some(bytes as usize),
            Self::Pointer | Self::Handle(_) => Some(8),
            Self::ByDataType(_) | Self::ByAttribute { .. } | Self::ByCompute { .. } => None,
        }
    }
}

impl Call {
    /// Returns the bytes of the memory that the parameter with this index points to, given all slots; 0 for parameters
    /// without memory in the block.
    ///
    /// Errors: the size depends on an invalid value, or exceeds [`MAX_BYTES`].
    pub fn memory_bytes(&self, library: &Library, index: usize, slots: &[u64]) -> Result<usize, BadSize> {
        let present = slots.get(index).copied() == Some(PRESENT);
        let parameter = &self.parameters[index];
        if let Some(bytes) = parameter.bytes {
            return Ok(if present { bytes } else { 0 });
        }
        match &parameter.kind {
            Kind::Host(Host { element, count, .. }) | Kind::Scalar { element, count, .. } if present => {
                self.counted_bytes(*element, count.as_ref(), slots)
            }
            Kind::Allocated { element, most, .. } if present => {
                self.counted_bytes(Element::Number(*element), Some(most), slots)
            }
            Kind::Arrays { element, count, arrays } if present => {
                let each = self.counted_bytes(Element::Number(*element), Some(count), slots)?;
                let arrays = self.count(arrays, slots)?;
                arrays.checked_mul(each).filter(|bytes| *bytes <= MAX_BYTES).ok_or(BadSize)
            }
            Kind::Described { kind, .. } if slots.get(index).is_some_and(|slot| *slot != 0) => {
                Ok(library.descriptors[*kind].crossing_bytes)
            }
            Kind::DescribedScalar { descriptor, .. } if present => slots
                .get(*descriptor)
                .and_then(|slot| scalars(*slot))
                .map(|scalars| scalars.bytes)
                .ok_or(BadSize),
            Kind::Text => match slots.get(index).copied().unwrap_or(0) {
                0 => Ok(0),
                more => usize::try_from(more - 1).ok().filter(|bytes| *bytes <= MAX_TEXT).ok_or(BadSize),
            },
            _ => Ok(0),
        }
    }

    /// Returns the direction of the memory that the parameter with this index points to.
    pub fn direction(&self, index: usize) -> Option<Direction> {
        self.parameters[index].kind.direction()
    }

    /// Returns the bytes of the results, given all slots.
    ///
    /// Errors: see [`Self::memory_bytes`].
    pub fn answer_bytes(&self, library: &Library, slots: &[u64]) -> Result<usize, BadSize> {
        let mut bytes = SLOT;
        for index in self.roles.writes {
            bytes += padded(self.memory_bytes(library, *index, slots)?);
        }
        if bytes <= MAX_BYTES { Ok(bytes) } else { Err(BadSize) }
    }

    /// Returns the bytes of a `scratch`; 0 for null, and for one whose length another function of the library returns.
    ///
    /// Errors: the size depends on an invalid value, or exceeds [`MAX_SCRATCH`].
    pub fn scratch_bytes(&self, index: usize, slots: &[u64]) -> Result<usize, BadSize> {
        match &self.parameters[index].kind {
            Kind::Scratch(scratch) if slots.get(index) == Some(&PRESENT) => match &scratch.bytes {
                ScratchBytes::Counted(bytes) | ScratchBytes::Checked(bytes, _) => {
                    Some(self.count(bytes, slots)?).filter(|bytes| *bytes <= MAX_SCRATCH).ok_or(BadSize)
                }
                ScratchBytes::Asked(_) => Ok(0),
            },
            _ => Ok(0),
        }
    }

    /// Returns whether a `placed` parameter is in host memory.
    pub fn is_in_host_memory(&self, place: usize, slots: &[u64]) -> bool {
        self.integer(place, slots).is_some_and(|place| place != 0)
    }

    /// Returns the bytes of memory that the worker has at least for the parameter with this index.
    ///
    /// Errors: see [`Self::memory_bytes`].
    pub fn room_bytes(&self, index: usize, slots: &[u64]) -> Result<usize, BadSize> {
        match &self.parameters[index].kind {
            Kind::Host(Host { element, room, .. }) if room.is_some() => {
                self.counted_bytes(*element, room.as_ref(), slots)
            }
            _ => Ok(0),
        }
    }

    fn counted_bytes(
        &self,
        element: Element,
        count: Option<&Expression>,
        slots: &[u64],
    ) -> Result<usize, BadSize> {
        let each = self.element_bytes(element, slots).ok_or(BadSize)?;
        let Some(count) = count else { return Ok(each) };
        let count = self.count(count, slots)?;
        count.checked_mul(each).filter(|bytes| *bytes <= MAX_BYTES).ok_or(BadSize)
    }

    /// Returns the value of an expression for a number of elements.
    ///
    /// Errors: it has no value, or exceeds the range of `usize`.
    pub fn count(&self, count: &Expression, slots: &[u64]) -> Result<usize, BadSize> {
        let count = count.value(&|index| self.integer(index, slots)).ok_or(BadSize)?;
        // Clamped to 0: the library itself refuses a negative number.
        usize::try_from(count.max(0)).map_err(|_| BadSize)
    }

    fn element_bytes(&self, element: Element, slots: &[u64]) -> Option<usize> {
        Some(match element {
            Element::ByAttribute { kind, .. } => attribute_type_bytes(self.integer(kind, slots)?)?,
            Element::ByDataType(index) => data_type_bytes(self.integer(index, slots)?)?,
            Element::ByCompute { compute, data } => {
                let complex = is_complex(self.integer(data, slots)?);
                compute_type_bytes(self.integer(compute, slots)?, complex)?
            }
            _ => element.fixed_bytes()?,
        })
    }

    /// Returns the value of the parameter with this index, if it is an integer.
    pub fn integer(&self, index: usize, slots: &[u64]) -> Option<i128> {
        match self.parameters.get(index)?.kind {
            Kind::Value(number) => number.integer(*slots.get(index)?),
            Kind::Noted(_) | Kind::Measured(_) => Number::I64.integer(*slots.get(index)?),
            _ => None,
        }
    }
}
