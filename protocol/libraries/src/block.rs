// SPDX-License-Identifier: Apache-2.0 OR MIT

//! How arguments and answers lie in the bulk data of the row `library_call`. All numbers are little-endian.
//!
//! A block of arguments is a slot of 8 bytes for each parameter, and then, in the order of the parameters, the data that
//! the host reads, each padded to 8 bytes. The slot is
//!
//! | kind | slot | data |
//! | --- | --- | --- |
//! | number | its bits; what is above its size does not count | |
//! | `ptr`, `stream` | the address, the handle | |
//! | handle, `new`, `end` | the guest's number for it; 0 for null | |
//! | host memory, `scaling` | [`PRESENT`], or 0 for null | what the library reads |
//! | `scalar` | [`PRESENT`] if it is in host memory; else its device address, or 0 for null | what the library reads |
//! | `string` | length + 1, or 0 for null | the bytes, without a NUL |
//! | `out stream` | 0 | |
//!
//! A block of answers is what the function returned, 8 bytes (for text its length + 1, or 0 for null), then the text or, in the
//! order of the parameters, what the library wrote, each padded to 8 bytes.

use crate::numbers::{compute_type_bytes, data_type_bytes, is_complex};
use crate::{Call, Direction, Element, Host, Kind};

/// The slot of memory whose contents are in the block.
pub const PRESENT: u64 = 1;
/// Longest block of arguments or answers, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// Bytes of a slot, and what data is padded to.
pub const SLOT: usize = 8;
/// Longest text, in bytes.
pub const MAX_TEXT: usize = 64 << 10;
/// Bytes of cuDNN's factors: room for the larger kind.
pub const SCALING_BYTES: usize = 8;

/// Arguments whose sizes make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an argument's size is unknown or too large")]
pub struct BadSize;

/// `bytes`, padded to slots.
pub fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(SLOT)
}

impl Call {
    /// Bytes of the memory that the parameter of that index points to, given all slots. 0 for parameters that are no memory in
    /// the block.
    ///
    /// Errors: the size depends on something that has no meaning, or is above [`MAX_BYTES`].
    pub fn memory_bytes(&self, index: usize, slots: &[u64]) -> Result<usize, BadSize> {
        let present = slots.get(index).copied() == Some(PRESENT);
        match &self.parameters[index].kind {
            Kind::Host(host) if present => self.host_bytes(host, slots),
            Kind::Scalar { element, .. } if present => self.element_bytes(*element, slots).ok_or(BadSize),
            Kind::Scaling if present => Ok(SCALING_BYTES),
            Kind::Text => match slots.get(index).copied().unwrap_or(0) {
                0 => Ok(0),
                more => usize::try_from(more - 1).ok().filter(|bytes| *bytes <= MAX_TEXT).ok_or(BadSize),
            },
            _ => Ok(0),
        }
    }

    /// Who reads and who writes the memory that the parameter of that index points to.
    pub fn direction(&self, index: usize) -> Option<Direction> {
        match &self.parameters[index].kind {
            Kind::Host(Host { direction, .. }) | Kind::Scalar { direction, .. } => Some(*direction),
            Kind::Scaling | Kind::Text => Some(Direction::In),
            _ => None,
        }
    }

    /// Bytes of the answers, given all slots.
    ///
    /// Errors: as [`Self::memory_bytes`].
    pub fn answer_bytes(&self, slots: &[u64]) -> Result<usize, BadSize> {
        let mut bytes = SLOT;
        for index in 0..self.parameters.len() {
            if self.direction(index).is_some_and(Direction::writes) {
                bytes += padded(self.memory_bytes(index, slots)?);
            }
        }
        if bytes <= MAX_BYTES { Ok(bytes) } else { Err(BadSize) }
    }

    fn host_bytes(&self, host: &Host, slots: &[u64]) -> Result<usize, BadSize> {
        let each = self.element_bytes(host.element, slots).ok_or(BadSize)?;
        let Some(count) = &host.count else { return Ok(each) };
        let count = count.value(&|index| self.integer(index, slots)).ok_or(BadSize)?;
        // The library itself refuses a negative number.
        let count = usize::try_from(count.max(0)).map_err(|_| BadSize)?;
        count.checked_mul(each).filter(|bytes| *bytes <= MAX_BYTES).ok_or(BadSize)
    }

    fn element_bytes(&self, element: Element, slots: &[u64]) -> Option<usize> {
        Some(match element {
            Element::Number(number) => number.bytes(),
            Element::Bytes(bytes) => bytes as usize,
            Element::Pointer | Element::Handle(_) => 8,
            Element::ByDataType(index) => data_type_bytes(self.integer(index, slots)?)?,
            Element::ByCompute { compute, data } => {
                let complex = is_complex(self.integer(data, slots)?);
                compute_type_bytes(self.integer(compute, slots)?, complex)?
            }
        })
    }

    fn integer(&self, index: usize, slots: &[u64]) -> Option<i128> {
        match self.parameters.get(index)?.kind {
            Kind::Value(number) => number.integer(*slots.get(index)?),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;
    use crate::parse::library;

    fn call(row: &str) -> Call {
        let mut library = library("x", &format!("handle Handle\n{row}")).expect(row);
        match library.functions.remove(0).body {
            Body::Forward(call) => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sizes_follow_from_the_slots() {
        let call = call("f(n: i32, a: in f64[n], r: out i32, s: scalar type(t), t: i32)");
        let slots = [5, PRESENT, PRESENT, PRESENT, 5];
        assert_eq!(call.memory_bytes(1, &slots), Ok(40));
        assert_eq!(call.memory_bytes(3, &slots), Ok(16));
        assert_eq!(call.answer_bytes(&slots), Ok(16));
        assert_eq!(call.memory_bytes(1, &[5, 0, 0, 0, 5]), Ok(0), "null");
        assert_eq!(call.memory_bytes(3, &[5, 1, 1, 0x7000, 5]), Ok(0), "in device memory");
        assert_eq!(call.memory_bytes(3, &[5, 1, 1, 1, 99]), Err(BadSize), "no such type");
        assert_eq!(
            call.memory_bytes(1, &[u64::from((-5_i32) as u32), 1, 1, 1, 5]),
            Ok(0),
            "a negative number"
        );
        assert_eq!(call.memory_bytes(1, &[i32::MAX as u64, 1, 1, 1, 5]), Err(BadSize), "too long");
    }

    #[test]
    fn text_is_bounded() {
        let call = call("f(t: string)");
        assert_eq!(call.memory_bytes(0, &[0]), Ok(0));
        assert_eq!(call.memory_bytes(0, &[6]), Ok(5));
        assert_eq!(call.memory_bytes(0, &[MAX_TEXT as u64 + 2]), Err(BadSize));
    }
}
