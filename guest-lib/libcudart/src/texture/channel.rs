// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Element formats. The runtime has bits per channel; the driver has `CU_AD_FORMAT_*` and a number of channels.

use core::ffi::{c_int, c_uint};

use crate::abi::shared::cudaChannelFormatDesc;
use crate::error::{Result, cudaErrorInvalidChannelDescriptor};

pub const cudaChannelFormatKindSigned: c_uint = 0;
pub const cudaChannelFormatKindUnsigned: c_uint = 1;
pub const cudaChannelFormatKindFloat: c_uint = 2;

/// The driver's description of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// `CU_AD_FORMAT_*`.
    pub code: c_uint,
    pub channels: c_uint,
}

/// Formats of 1, 2 or 4 equal channels: kind, bits, code.
const PLAIN: &[(c_uint, c_int, c_uint)] = &[
    (cudaChannelFormatKindUnsigned, 8, 0x01),
    (cudaChannelFormatKindUnsigned, 16, 0x02),
    (cudaChannelFormatKindUnsigned, 32, 0x03),
    (cudaChannelFormatKindSigned, 8, 0x08),
    (cudaChannelFormatKindSigned, 16, 0x09),
    (cudaChannelFormatKindSigned, 32, 0x0a),
    (cudaChannelFormatKindFloat, 16, 0x10),
    (cudaChannelFormatKindFloat, 32, 0x20),
];

/// Formats that have a separate `cudaChannelFormatKind*`.
struct Special {
    kind: c_uint,
    bits: [c_int; 4],
    format: Format,
    /// Bytes per element; per 4×4 block for compressed formats.
    size: usize,
}

/// Elements per side of a block of compressed formats.
const BLOCK_SIDE: usize = 4;

/// The smallest unit of a copy: an element, or a block of a compressed format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Bytes per unit.
    pub bytes: usize,
    /// Elements per row of a unit, and rows per unit.
    pub side: usize,
}

impl Unit {
    /// The unit of copies between linear memory.
    pub const BYTE: Self = Self { bytes: 1, side: 1 };

    /// Returns the bytes of a row of `elements` elements; `None` on overflow.
    pub fn row(self, elements: usize) -> Option<usize> {
        elements.div_ceil(self.side).checked_mul(self.bytes)
    }

    /// Returns the rows of units that `rows` rows of elements take.
    pub fn rows(self, rows: usize) -> usize {
        rows.div_ceil(self.side)
    }

    /// Returns the number of elements in `bytes` bytes of a row.
    pub fn elements(self, bytes: usize) -> usize {
        bytes / self.bytes * self.side
    }
}

const fn special(kind: c_uint, bits: [c_int; 4], code: c_uint, channels: c_uint, size: usize) -> Special {
    Special { kind, bits, format: Format { code, channels }, size }
}

/// The special formats by kind: NV12; normalized integers of 8 and 16 bits, unsigned then signed; block compression 1
/// to 7; 10-10-10-2.
const SPECIAL: &[Special] = &[
    special(4, [8, 8, 8, 0], 0xb0, 3, 1),
    special(5, [8, 0, 0, 0], 0xc0, 1, 1),
    special(6, [8, 8, 0, 0], 0xc1, 2, 2),
    special(7, [8, 8, 8, 8], 0xc2, 4, 4),
    special(8, [16, 0, 0, 0], 0xc3, 1, 2),
    special(9, [16, 16, 0, 0], 0xc4, 2, 4),
    special(10, [16, 16, 16, 16], 0xc5, 4, 8),
    special(11, [8, 0, 0, 0], 0xc6, 1, 1),
    special(12, [8, 8, 0, 0], 0xc7, 2, 2),
    special(13, [8, 8, 8, 8], 0xc8, 4, 4),
    special(14, [16, 0, 0, 0], 0xc9, 1, 2),
    special(15, [16, 16, 0, 0], 0xca, 2, 4),
    special(16, [16, 16, 16, 16], 0xcb, 4, 8),
    special(17, [8, 8, 8, 8], 0x91, 4, 8),
    special(18, [8, 8, 8, 8], 0x92, 4, 8),
    special(19, [8, 8, 8, 8], 0x93, 4, 16),
    special(20, [8, 8, 8, 8], 0x94, 4, 16),
    special(21, [8, 8, 8, 8], 0x95, 4, 16),
    special(22, [8, 8, 8, 8], 0x96, 4, 16),
    special(23, [8, 0, 0, 0], 0x97, 1, 8),
    special(24, [8, 0, 0, 0], 0x98, 1, 8),
    special(25, [8, 8, 0, 0], 0x99, 2, 16),
    special(26, [8, 8, 0, 0], 0x9a, 2, 16),
    special(27, [16, 16, 16, 0], 0x9b, 3, 16),
    special(28, [16, 16, 16, 0], 0x9c, 3, 16),
    special(29, [8, 8, 8, 8], 0x9d, 4, 16),
    special(30, [8, 8, 8, 8], 0x9e, 4, 16),
    special(31, [10, 10, 10, 2], 0x50, 4, 4),
];

impl Format {
    /// Converts a channel description to the driver's format.
    pub fn of(desc: &cudaChannelFormatDesc) -> Result<Self> {
        let bits = [desc.x, desc.y, desc.z, desc.w];
        if let Some(special) = SPECIAL.iter().find(|special| special.kind == desc.f && special.bits == bits) {
            return Ok(special.format);
        }
        let channels = match bits.map(|bits| bits != 0) {
            [true, false, false, false] => 1,
            [true, true, false, false] => 2,
            [true, true, true, true] => 4,
            _ => return Err(cudaErrorInvalidChannelDescriptor),
        };
        if bits[..channels].iter().any(|&other| other != bits[0]) {
            return Err(cudaErrorInvalidChannelDescriptor);
        }
        let plain = PLAIN.iter().find(|(kind, size, _)| (*kind, *size) == (desc.f, bits[0]));
        let (_, _, code) = plain.ok_or(cudaErrorInvalidChannelDescriptor)?;
        Ok(Self { code: *code, channels: channels as c_uint })
    }

    /// Converts the format to the runtime's description.
    pub fn desc(self) -> Result<cudaChannelFormatDesc> {
        if let Some(special) = SPECIAL.iter().find(|special| special.format == self) {
            let [x, y, z, w] = special.bits;
            return Ok(cudaChannelFormatDesc { x, y, z, w, f: special.kind });
        }
        let (kind, bits, _) = self.plain()?;
        let channel = |index| if self.channels > index { *bits } else { 0 };
        Ok(cudaChannelFormatDesc { x: channel(0), y: channel(1), z: channel(2), w: channel(3), f: *kind })
    }

    /// Returns the unit in which copies are measured.
    pub fn unit(self) -> Result<Unit> {
        Ok(Unit { bytes: self.element_size()?, side: if self.is_compressed() { BLOCK_SIDE } else { 1 } })
    }

    /// Returns whether elements are stored in blocks.
    fn is_compressed(self) -> bool {
        (0x91..=0x9e).contains(&self.code)
    }

    /// Returns the bytes per element; per 4×4 block for compressed formats.
    pub fn element_size(self) -> Result<usize> {
        if let Some(special) = SPECIAL.iter().find(|special| special.format == self) {
            return Ok(special.size);
        }
        let (_, bits, _) = self.plain()?;
        Ok(*bits as usize / 8 * self.channels as usize)
    }

    fn plain(self) -> Result<&'static (c_uint, c_int, c_uint)> {
        PLAIN.iter().find(|(_, _, code)| *code == self.code).ok_or(cudaErrorInvalidChannelDescriptor)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    f: c_uint,
) -> cudaChannelFormatDesc {
    cudaChannelFormatDesc { x, y, z, w, f }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(x: c_int, y: c_int, z: c_int, w: c_int, f: c_uint) -> cudaChannelFormatDesc {
        cudaChannelFormatDesc { x, y, z, w, f }
    }

    #[test]
    fn every_format_survives_the_way_back() {
        let plain = PLAIN.iter().flat_map(|&(kind, bits, _)| {
            [desc(bits, 0, 0, 0, kind), desc(bits, bits, 0, 0, kind), desc(bits, bits, bits, bits, kind)]
        });
        let special = SPECIAL.iter().map(|special| {
            let [x, y, z, w] = special.bits;
            desc(x, y, z, w, special.kind)
        });
        let mut count = 0;
        for desc in plain.chain(special) {
            assert_eq!(Format::of(&desc).unwrap().desc().unwrap(), desc);
            count += 1;
        }
        assert_eq!(count, 24 + 28);
    }

    #[test]
    fn what_no_array_holds_is_refused() {
        let refused = [
            desc(32, 0, 0, 0, 3),
            desc(7, 0, 0, 0, cudaChannelFormatKindUnsigned),
            desc(8, 16, 0, 0, cudaChannelFormatKindUnsigned),
            desc(32, 32, 32, 0, cudaChannelFormatKindFloat),
            desc(0, 32, 0, 0, cudaChannelFormatKindFloat),
            desc(8, 0, 0, 0, cudaChannelFormatKindFloat),
            desc(0, 0, 0, 0, cudaChannelFormatKindSigned),
        ];
        for desc in refused {
            assert_eq!(Format::of(&desc), Err(cudaErrorInvalidChannelDescriptor), "{desc:?}");
        }
    }

    #[test]
    fn compressed_formats_are_copied_in_blocks() {
        let unit = Format { code: 0x91, channels: 4 }.unit().unwrap();
        assert_eq!((unit.row(32), unit.row(31), unit.rows(2), unit.elements(16)), (Some(64), Some(64), 1, 8));
        let unit = Format { code: 0x20, channels: 2 }.unit().unwrap();
        assert_eq!((unit.row(32), unit.rows(2), unit.elements(16)), (Some(256), 2, 2));
        assert_eq!(unit.row(usize::MAX), None);
    }

    #[test]
    fn sizes() {
        let size = |desc| Format::of(&desc).unwrap().element_size().unwrap();
        assert_eq!(size(desc(32, 32, 32, 32, cudaChannelFormatKindFloat)), 16);
        assert_eq!(size(desc(16, 0, 0, 0, cudaChannelFormatKindSigned)), 2);
        assert_eq!(size(desc(10, 10, 10, 2, 31)), 4);
    }
}
