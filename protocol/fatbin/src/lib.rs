// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the containers that nvcc embeds in programs ("fatbins") and picks the PTX that a device can run; and what
//! PTX declares in device memory.

pub mod tokens;
pub mod variables;

use std::borrow::Cow;
use std::io::Read;

use thiserror::Error;

/// `fatBinaryHeader.magic`
pub const CONTAINER_MAGIC: u32 = 0xBA55_ED50;
/// `__fatBinC_Wrapper_t.magic`
pub const WRAPPER_MAGIC: u32 = 0x4662_43B1;
/// An ELF file, which is how a cubin begins.
pub const ELF_MAGIC: u32 = 0x464C_457F;
/// Bytes of `fatBinaryHeader`.
pub const HEADER_BYTES: usize = 16;

const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
/// The entry header's fields end here; longer headers carry options and names.
const ENTRY_BYTES: usize = 64;
/// The maximum size of PTX text in bytes, more than any compiler writes in one module. Bounds the allocation for a
/// forged size.
pub const MAX_TEXT: usize = 1 << 30;
/// The maximum ratio of LZ4's compression. Bounds the allocation for a forged size.
const LZ4_RATIO: usize = 256;

/// The reason for refusing a container.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FatbinError {
    /// The bytes are not a container, or contradict themselves (CUDA_ERROR_INVALID_IMAGE).
    #[error("not a valid fat binary: {0}")]
    Invalid(&'static str),
    /// Nothing in it runs here (CUDA_ERROR_NO_BINARY_FOR_GPU).
    #[error(
        "no PTX for compute capability {wanted} or lower, found: {found}; compile with -gencode arch=compute_{wanted},code=compute_{wanted} or lower"
    )]
    NoPtx {
        /// The device's compute capability times ten.
        wanted: u32,
        /// The images in the container.
        found: String,
    },
}

/// One entry of a container.
struct Entry<'a> {
    kind: u16,
    architecture: u32,
    flags: u64,
    uncompressed: u64,
    payload: &'a [u8],
}

/// The length of the container that begins with this header, header included.
pub fn container_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, FatbinError> {
    if u32_at(header, 0) != Some(CONTAINER_MAGIC) {
        return Err(FatbinError::Invalid("wrong magic number"));
    }
    let own = usize::from(u16_at(header, 6).unwrap_or(0));
    let rest = u64_at(header, 8).and_then(|size| usize::try_from(size).ok());
    let total = rest.and_then(|rest| rest.checked_add(own));
    total.filter(|_| own >= HEADER_BYTES).ok_or(FatbinError::Invalid("impossible size"))
}

/// The newest architecture of which CUDA 13's compilers know: that of compute capability 12.1.
const NEWEST: u32 = 121;

/// The architectures (compute capability times ten) whose PTX a device executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The device's own.
    pub architecture: u32,
    /// PTX for newer architectures, up to 12.1, is executed where there is no other.
    pub newer: bool,
}

impl Accepted {
    /// The same without newer architectures. For parts of a linked image: the part that is NVIDIA's device runtime has PTX
    /// for the newest architecture alone, and the emulator has its functions.
    pub fn without_newer(self) -> Accepted {
        Accepted { newer: false, ..self }
    }

    /// Orders the PTX that a device executes, the best last: own or older architectures by age, below them newer ones,
    /// of which an older one needs fewer new instructions. `None`: it is not executed.
    pub fn rank(self, architecture: u32) -> Option<i64> {
        let number = i64::from(architecture);
        match architecture {
            _ if architecture <= self.architecture => Some(number),
            ..=NEWEST if self.newer => Some(-number),
            _ => None,
        }
    }
}

/// The PTX that suits the device best.
pub fn ptx(container: &[u8], accepted: Accepted) -> Result<String, FatbinError> {
    let entries = entries(container)?;
    let rank = |entry: &Entry| {
        if entry.kind == KIND_PTX { accepted.rank(entry.architecture) } else { None }
    };
    // The first one when several have the same architecture.
    let best = entries.iter().rev().filter(|entry| rank(entry).is_some()).max_by_key(|entry| rank(entry));
    let Some(best) = best else {
        let describe = |entry: &Entry| {
            format!(
                "{} for sm_{}",
                if entry.kind == KIND_PTX { "PTX" } else { "machine code" },
                entry.architecture
            )
        };
        let found = entries.iter().map(describe).collect::<Vec<_>>().join(", ");
        let found = if found.is_empty() { "nothing".into() } else { found };
        return Err(FatbinError::NoPtx { wanted: accepted.architecture, found });
    };
    let mut text = decompress(best, MAX_TEXT)?.into_owned();
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    String::from_utf8(text).map_err(|_| FatbinError::Invalid("PTX is not text"))
}

/// Code in a container that a device can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Machine code for this architecture, which runs on devices of the same major one.
    Machine(u32),
    /// PTX for this architecture, which runs on later ones, too.
    Ptx(u32),
    /// Something else, such as the compiler's own representation for a link.
    Other(u16),
}

/// Passes each accepted entry of a container to `visit`, unpacked. Other entries are not unpacked.
///
/// Errors: the container is damaged, or an accepted entry has more than `most` bytes when it is unpacked.
pub fn each_code(
    container: &[u8],
    most: usize,
    accept: impl Fn(Code) -> bool,
    mut visit: impl FnMut(Code, &[u8]),
) -> Result<(), FatbinError> {
    for entry in entries(container)? {
        let code = match entry.kind {
            KIND_PTX => Code::Ptx(entry.architecture),
            KIND_ELF => Code::Machine(entry.architecture),
            kind => Code::Other(kind),
        };
        if accept(code) {
            visit(code, &decompress(&entry, most)?);
        }
    }
    Ok(())
}

/// Returns the bytes of all entries of a container as they claim to be when they are unpacked, without unpacking them.
pub fn unpacked_bytes(container: &[u8]) -> Result<u64, FatbinError> {
    let bytes =
        |entry: &Entry| if entry.is_packed() { entry.uncompressed } else { entry.payload.len() as u64 };
    Ok(entries(container)?.iter().map(bytes).fold(0, u64::saturating_add))
}

fn entries(container: &[u8]) -> Result<Vec<Entry<'_>>, FatbinError> {
    let header = container.first_chunk().ok_or(FatbinError::Invalid("shorter than its header"))?;
    let total = container_bytes(header)?;
    let start = usize::from(u16_at(header, 6).unwrap_or(0));
    let mut rest = container.get(start..total).ok_or(FatbinError::Invalid("shorter than its size"))?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (entry, bytes) = entry(rest).ok_or(FatbinError::Invalid("an entry exceeds the container"))?;
        entries.push(entry);
        rest = &rest[bytes..];
    }
    Ok(entries)
}

/// The entry at the start of `bytes`, and its length.
fn entry(bytes: &[u8]) -> Option<(Entry<'_>, usize)> {
    let header = usize::try_from(u32_at(bytes, 4)?).ok().filter(|size| *size >= ENTRY_BYTES)?;
    let padded = usize::try_from(u64_at(bytes, 8)?).ok()?;
    let end = header.checked_add(padded)?;
    let payload = bytes.get(header..end)?;
    let compressed = usize::try_from(u32_at(bytes, 16)?).ok()?;
    let payload = if compressed == 0 { payload } else { payload.get(..compressed)? };
    let entry = Entry {
        kind: u16_at(bytes, 0)?,
        architecture: u32_at(bytes, 28)?,
        flags: u64_at(bytes, 40)?,
        uncompressed: u64_at(bytes, 56)?,
        payload,
    };
    Some((entry, end))
}

impl Entry<'_> {
    fn is_packed(&self) -> bool {
        self.flags & (FLAG_LZ4 | FLAG_ZSTD) != 0
    }
}

fn decompress<'a>(entry: &Entry<'a>, most: usize) -> Result<Cow<'a, [u8]>, FatbinError> {
    if !entry.is_packed() {
        return Ok(entry.payload.into());
    }
    let size = usize::try_from(entry.uncompressed).ok().filter(|size| *size <= most.min(MAX_TEXT));
    let size = size.ok_or(FatbinError::Invalid("impossible uncompressed size"))?;
    if entry.flags & FLAG_LZ4 != 0 {
        if size / LZ4_RATIO > entry.payload.len() {
            return Err(FatbinError::Invalid("impossible uncompressed size"));
        }
        return lz4_flex::block::decompress(entry.payload, size)
            .map(Cow::Owned)
            .map_err(|_| FatbinError::Invalid("damaged LZ4 data"));
    }
    let damaged = FatbinError::Invalid("damaged zstd data");
    let decoder = ruzstd::decoding::StreamingDecoder::new(entry.payload).map_err(|_| damaged.clone())?;
    let mut text = Vec::new();
    decoder.take(size as u64).read_to_end(&mut text).map_err(|_| damaged.clone())?;
    if text.len() == size { Ok(text.into()) } else { Err(damaged) }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upto(architecture: u32) -> Accepted {
        Accepted { architecture, newer: false }
    }

    fn fixture_entry(
        kind: u16,
        architecture: u32,
        flags: u64,
        payload: &[u8],
        uncompressed: usize,
    ) -> Vec<u8> {
        let mut bytes = vec![0u8; ENTRY_BYTES];
        let padded = payload.len().next_multiple_of(8);
        bytes[0..2].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&(ENTRY_BYTES as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        if flags != 0 {
            bytes[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        }
        bytes[28..32].copy_from_slice(&architecture.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        bytes[56..64].copy_from_slice(&(uncompressed as u64).to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(ENTRY_BYTES + padded, 0);
        bytes
    }

    fn fixture_container(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut bytes = CONTAINER_MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 16, 0]);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn the_newest_fitting_ptx_is_chosen() {
        let ptx_of = |architecture, text: &[u8]| fixture_entry(KIND_PTX, architecture, 0, text, text.len());
        let container = fixture_container(&[
            ptx_of(75, b"seventy-five\0"),
            fixture_entry(2, 90, 0, b"\x7fELF", 4),
            ptx_of(80, b"eighty\0"),
            ptx_of(100, b"hundred\0"),
        ]);
        assert_eq!(ptx(&container, upto(90)).unwrap(), "eighty");
        assert_eq!(ptx(&container, upto(75)).unwrap(), "seventy-five");
        assert!(matches!(ptx(&container, upto(70)), Err(FatbinError::NoPtx { wanted: 70, .. })));
    }

    #[test]
    fn newer_ptx_is_chosen_where_there_is_no_other() {
        let ptx_of = |architecture, text: &[u8]| fixture_entry(KIND_PTX, architecture, 0, text, text.len());
        let newer = fixture_container(&[
            fixture_entry(KIND_ELF, 90, 0, b"\x7fELF", 4),
            ptx_of(120, b"later\0"),
            ptx_of(100, b"first\0"),
            ptx_of(100, b"second\0"),
        ]);
        let any = |architecture| Accepted { architecture, newer: true };
        assert_eq!((any(90).rank(121), any(90).rank(999)), (Some(-121), None), "unknown to any compiler");
        assert_eq!(ptx(&newer, any(90)).unwrap(), "first");
        assert_eq!(ptx(&newer, any(120)).unwrap(), "later");
        assert!(matches!(ptx(&newer, upto(90)), Err(FatbinError::NoPtx { wanted: 90, .. })));
        let both = fixture_container(&[ptx_of(120, b"newer\0"), ptx_of(75, b"older\0")]);
        assert_eq!(ptx(&both, any(90)).unwrap(), "older");
    }

    #[test]
    fn only_what_is_accepted_is_unpacked() {
        let container = fixture_container(&[
            fixture_entry(KIND_PTX, 80, FLAG_ZSTD, b"damaged", 1000),
            fixture_entry(KIND_ELF, 90, 0, b"machine!", 8),
        ]);
        let mut seen = Vec::new();
        let visit = |code, bytes: &[u8]| seen.push((code, bytes.to_vec()));
        each_code(&container, 8, |code| code == Code::Machine(90), visit).unwrap();
        assert_eq!(seen, [(Code::Machine(90), b"machine!".to_vec())]);
        assert!(each_code(&container, 8, |_| true, |_, _| ()).is_err());
        assert_eq!(unpacked_bytes(&container), Ok(1008));
    }

    #[test]
    fn both_compressions_are_read() {
        let text = b".version 9.0\n.target sm_90\n.target sm_90\n.target sm_90\n\0";
        let packed = lz4_flex::block::compress(text);
        let container = fixture_container(&[fixture_entry(KIND_PTX, 90, FLAG_LZ4, &packed, text.len())]);
        assert_eq!(ptx(&container, upto(90)).unwrap().as_bytes(), &text[..text.len() - 1]);

        let packed =
            ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
        let container = fixture_container(&[fixture_entry(KIND_PTX, 90, FLAG_ZSTD, &packed, text.len())]);
        assert_eq!(ptx(&container, upto(90)).unwrap().as_bytes(), &text[..text.len() - 1]);
        for (most, good) in [(text.len(), true), (text.len() - 1, false)] {
            assert_eq!(each_code(&container, most, |_| true, |_, _| ()).is_ok(), good);
        }
        let lying = fixture_container(&[fixture_entry(KIND_PTX, 90, FLAG_ZSTD, &packed, text.len() + 1)]);
        assert!(matches!(ptx(&lying, upto(90)), Err(FatbinError::Invalid(_))));
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let text = b"some text that is long enough to be packed, packed, packed\0";
        let packed = lz4_flex::block::compress(text);
        let good = fixture_container(&[fixture_entry(KIND_PTX, 90, FLAG_LZ4, &packed, text.len())]);
        for cut in 0..good.len() {
            assert!(matches!(ptx(&good[..cut], upto(90)), Err(FatbinError::Invalid(_))), "cut at {cut}");
        }
        // Any answer but a panic or a huge allocation.
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = ptx(&bad, upto(90));
            }
        }
    }
}
