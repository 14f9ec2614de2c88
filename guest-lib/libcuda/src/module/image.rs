// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Device code as programs hand it over: a pointer without a length. The length follows from the kind, and
//! the bytes cross exactly as they are.

use std::ffi::CStr;

use virtio_cuda_client::CudaError;
use virtio_cuda_client::transport::UserMemory;

use crate::entry::Api;
use crate::ffi::{HostPtr, Name};

use crate::module::image_code::{self, CONTAINER_MAGIC, ELF_MAGIC};
use crate::module::read_image;

/// First word of the structure that nvcc leaves in a program (`__fatBinC_Wrapper_t`).
const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// Its version if it lists what its container was linked from (`FATBINC_LINK_VERSION`).
const LINKED: u32 = 2;
/// Most entries of that list: one without an end is damaged.
const MAX_PARTS: u64 = 4096;

/// No real image is longer; a header that says so is damaged.
const MAX_IMAGE_BYTES: u64 = 4 << 30;
/// Section type of sections without bytes in the file.
const SHT_NOBITS: u32 = 8;

/// A pointer to device code.
///
/// # Invariants
///
/// The program promised that it points to a wrapper, a container, an ELF file or text with a NUL, whole and
/// in readable memory: the documentation of `cuModuleLoadData` asks for that. Headers are believed, since
/// there is no length to check them against; they are read no further than the kind demands.
#[derive(Clone, Copy)]
struct Cursor(usize);

impl Cursor {
    fn read<T: Copy>(self, offset: u64) -> T {
        // SAFETY: by the invariant every offset that the format defines is readable.
        unsafe { (self.0.wrapping_add(offset as usize) as *const T).read_unaligned() }
    }
}

/// The image as it crosses.
pub enum Image {
    /// As it lies in the program.
    InPlace(UserMemory),
    /// Put together.
    Joined(Vec<u8>),
}

impl Image {
    /// Returns its bytes.
    pub fn memory(&self) -> UserMemory {
        match self {
            Self::InPlace(memory) => *memory,
            Self::Joined(bytes) => UserMemory::of(bytes),
        }
    }
}

/// Returns the parts of an image that a device needs, without the code that the program's environment rules out.
pub fn of(api: Api, image: HostPtr) -> Result<Image, CudaError> {
    allowed(api, whole(image)?)
}

/// As [`of`], of a file.
pub fn of_file(api: Api, name: Name) -> Result<Image, CudaError> {
    allowed(api, Image::Joined(read_image(name)?))
}

fn allowed(api: Api, image: Image) -> Result<Image, CudaError> {
    let code = api.driver.environment.code;
    if code.machine && code.ptx {
        return Ok(image);
    }
    // SAFETY: `whole` found the extent of the program's image, or it is a buffer of this library.
    let bytes = unsafe {
        let UserMemory { address, bytes } = image.memory();
        std::slice::from_raw_parts(address as *const u8, bytes)
    };
    Ok(image_code::allowed(bytes, code)?.map_or(image, Image::Joined))
}

/// An image as the program has it. Of a program that was compiled in parts (`nvcc -rdc=true`) that is the linked
/// container and, behind it, those that it was linked from: it has machine code only, they have PTX as well.
fn whole(image: HostPtr) -> Result<Image, CudaError> {
    let whole = bytes(image)?;
    let wrapper = Cursor(image.address());
    let parts = Cursor(if is_linked(wrapper) { wrapper.read::<usize>(16) } else { 0 });
    if parts.0 == 0 || Cursor(whole.address).read::<u32>(0) != CONTAINER_MAGIC {
        return Ok(Image::InPlace(whole));
    }
    let mut joined = Vec::new();
    append(whole, &mut joined);
    for index in 0..MAX_PARTS {
        let part = Cursor(parts.read::<usize>(index * 8));
        if part.0 == 0 {
            break;
        }
        let bytes = (part.read::<u32>(0) == CONTAINER_MAGIC).then(|| container_bytes(part)).flatten();
        let bytes = bytes.filter(|bytes| joined.len() as u64 + bytes <= MAX_IMAGE_BYTES);
        let bytes = bytes.ok_or(CudaError::INVALID_IMAGE)? as usize;
        append(UserMemory { address: part.0, bytes }, &mut joined);
    }
    Ok(Image::Joined(joined))
}

/// Returns whether it is a wrapper with a list of the containers that went into its own.
fn is_linked(at: Cursor) -> bool {
    at.read::<u8>(0) == WRAPPER_MAGIC as u8
        && at.read::<u32>(0) == WRAPPER_MAGIC
        && at.read::<u32>(4) == LINKED
}

/// Appends a container; the next one is aligned.
fn append(container: UserMemory, to: &mut Vec<u8>) {
    // SAFETY: by the invariant of `Cursor` the container is readable as far as its header says.
    to.extend_from_slice(unsafe {
        std::slice::from_raw_parts(container.address as *const u8, container.bytes)
    });
    to.resize(to.len().next_multiple_of(8), 0);
}

/// The bytes of an image: what a wrapper points to, or the image itself.
fn bytes(image: HostPtr) -> Result<UserMemory, CudaError> {
    if image.address() == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut at = Cursor(image.address());
    if at.read::<u32>(0) == WRAPPER_MAGIC {
        // The wrapper: magic, version, data.
        at = Cursor(at.read::<usize>(8));
        if at.0 == 0 {
            return Err(CudaError::INVALID_IMAGE);
        }
    }
    let bytes = match at.read::<u32>(0) {
        CONTAINER_MAGIC => container_bytes(at),
        ELF_MAGIC => elf_bytes(at),
        _ => Some(text_bytes(at)),
    };
    match bytes {
        Some(bytes) if bytes <= MAX_IMAGE_BYTES => Ok(UserMemory { address: at.0, bytes: bytes as usize }),
        _ => Err(CudaError::INVALID_IMAGE),
    }
}

/// magic, version (u16), header size (u16), bytes after the header (u64).
fn container_bytes(at: Cursor) -> Option<u64> {
    u64::from(at.read::<u16>(6)).checked_add(at.read::<u64>(8))
}

/// To the end of whatever lies last: the tables, a segment or a section.
fn elf_bytes(at: Cursor) -> Option<u64> {
    let table = |offset: u64, entry_bytes: u16, count: u16| {
        offset.checked_add(u64::from(entry_bytes) * u64::from(count))
    };
    let (program_headers, section_headers): (u64, u64) = (at.read(0x20), at.read(0x28));
    let (program_entry, program_count): (u16, u16) = (at.read(0x36), at.read(0x38));
    let (section_entry, section_count): (u16, u16) = (at.read(0x3a), at.read(0x3c));
    let mut end = 64u64;
    end = end.max(table(program_headers, program_entry, program_count)?);
    end = end.max(table(section_headers, section_entry, section_count)?);
    if end > MAX_IMAGE_BYTES {
        return None;
    }
    for index in 0..u64::from(program_count) {
        let header = program_headers + index * u64::from(program_entry);
        end = end.max(at.read::<u64>(header + 0x08).checked_add(at.read::<u64>(header + 0x20))?);
    }
    for index in 0..u64::from(section_count) {
        let header = section_headers + index * u64::from(section_entry);
        if at.read::<u32>(header + 0x04) != SHT_NOBITS {
            end = end.max(at.read::<u64>(header + 0x18).checked_add(at.read::<u64>(header + 0x20))?);
        }
    }
    Some(end)
}

/// PTX with its NUL.
fn text_bytes(at: Cursor) -> u64 {
    // SAFETY: by the invariant of `Cursor`, text ends with a NUL.
    unsafe { CStr::from_ptr(at.0 as *const _) }.count_bytes() as u64 + 1
}

#[cfg(test)]
#[path = "image_test.rs"]
mod tests;
