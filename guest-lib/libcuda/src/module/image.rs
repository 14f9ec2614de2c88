// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Device code as programs pass it: a pointer without a length. The length follows from the kind of image, and the
//! bytes are sent unchanged.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::transport::UserMemory;

use crate::device::COMPUTE_CAPABILITY_MAJOR;
use crate::entry::Api;
use crate::ffi::{HostPtr, Name};

use crate::module::image_code::{self, CONTAINER_MAGIC, ELF_MAGIC};
use crate::module::read_image;

/// First word of the structure that nvcc places in a program (`__fatBinC_Wrapper_t`).
const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// The version of a wrapper that lists the containers from which it was linked (`FATBINC_LINK_VERSION`).
const LINKED: u32 = 2;
/// Maximum number of entries of that list; a longer one is damaged.
const MAX_PARTS: u64 = 4096;

/// Maximum size of an image in bytes. A header with a larger size is damaged.
const MAX_IMAGE_BYTES: u64 = 4 << 30;
/// Type of ELF sections that have no bytes in the file.
const SHT_NOBITS: u32 = 8;

/// Bytes of a wrapper: magic, version, the container, and a list for the version [`LINKED`].
const WRAPPER_BYTES: u64 = 24;
/// Bytes of the shortest header of a container.
const CONTAINER_BYTES: u64 = 16;
/// Bytes of an ELF file's header.
const ELF_BYTES: u64 = 64;

/// A part of an image in the program's memory, from which numbers are read.
///
/// An image is a complete wrapper, container, ELF file or text with a NUL in readable memory: the documentation of
/// `cuModuleLoadData` requires that of the program. Headers are trusted, since there is no length to check them
/// against. They are read only as far as the kind requires.
///
/// # Invariants
///
/// `bytes` bytes can be read from `start` on.
#[derive(Clone, Copy)]
struct Cursor {
    start: usize,
    bytes: u64,
}

impl Cursor {
    /// # Safety
    ///
    /// `bytes` bytes can be read from `start` on as long as the value is used.
    unsafe fn new(start: usize, bytes: u64) -> Self {
        Self { start, bytes }
    }

    /// Reads bytes at an offset. `None` if the part ends before.
    fn read<const BYTES: usize>(self, offset: u64) -> Option<[u8; BYTES]> {
        offset.checked_add(BYTES as u64).filter(|end| *end <= self.bytes)?;
        // SAFETY: the bytes lie inside of the part, which can be read by the invariant; an array of bytes may be anywhere. Other
        // threads of the program may write them, so they are copied once, and no reference to them is made.
        Some(unsafe { ((self.start + offset as usize) as *const [u8; BYTES]).read_volatile() })
    }

    fn u16(self, offset: u64) -> Option<u16> {
        self.read(offset).map(u16::from_le_bytes)
    }

    fn u32(self, offset: u64) -> Option<u32> {
        self.read(offset).map(u32::from_le_bytes)
    }

    fn u64(self, offset: u64) -> Option<u64> {
        self.read(offset).map(u64::from_le_bytes)
    }
}

/// An image to send.
pub enum Image {
    /// Contiguous memory of the program.
    InPlace(UserMemory),
    /// A copy that was joined from several containers.
    Joined(Vec<u8>),
}

impl Image {
    /// Returns the image's bytes.
    pub fn memory(&self) -> UserMemory {
        match self {
            Self::InPlace(memory) => *memory,
            Self::Joined(bytes) => UserMemory::of(bytes),
        }
    }
}

/// Returns the parts of an image that a device needs, without code that the environment variables exclude.
pub fn of(api: Api, image: HostPtr) -> Result<Image, CudaError> {
    allowed(api, whole(image)?)
}

/// Like [`of`], for a file.
pub fn of_file(api: Api, name: Name) -> Result<Image, CudaError> {
    allowed(api, Image::Joined(read_image(name)?))
}

fn allowed(api: Api, image: Image) -> Result<Image, CudaError> {
    let code = api.driver.environment.code;
    let UserMemory { address, bytes } = image.memory();
    let is_long = bytes > api.driver.session.limits().bulk_bytes;
    if code.machine && code.ptx && !is_long {
        return Ok(image);
    }
    // A request cannot carry it, unless code for other devices is left out.
    let majors = if is_long { majors(api)? } else { Vec::new() };
    // SAFETY: `whole` found an image there, or it is a file's contents, which a NUL follows unless they begin with such a word.
    let is_container = unsafe { begins_with(address, CONTAINER_MAGIC) };
    // Of other images only the first word is looked at.
    let bytes = if is_container { bytes } else { bytes.min(size_of_val(&CONTAINER_MAGIC)) };
    // SAFETY: `whole` found the extent of the program's image, or it is a buffer of this library.
    let copy = unsafe { UserMemory { address, bytes }.to_vec() };
    Ok(image_code::allowed(&copy, code, &majors)?.map_or(image, Image::Joined))
}

/// Returns the major numbers of the compute capabilities of all devices. Each executes machine code for its own number alone.
fn majors(api: Api) -> Result<Vec<u64>, CudaError> {
    let major = |device| api.driver.device(device)?.attribute(COMPUTE_CAPABILITY_MAJOR);
    (0..api.driver.devices.count()).map(|device| major(device).map(|major| major as u64)).collect()
}

/// Returns a complete image. For a program that was compiled in parts (`nvcc -rdc=true`) that is the linked container,
/// followed by the containers from which it was linked. The linked one has only machine code; the others also have PTX.
fn whole(image: HostPtr) -> Result<Image, CudaError> {
    let whole = bytes(image)?;
    // SAFETY: the program passes an image, which is not null: `bytes` has looked.
    let parts = unsafe { parts_of(image.address()) };
    // SAFETY: `bytes` found an image there.
    if parts == 0 || !unsafe { begins_with(whole.address, CONTAINER_MAGIC) } {
        return Ok(Image::InPlace(whole));
    }
    let mut joined = Vec::new();
    // SAFETY: `bytes` found that the container is that long.
    unsafe { append(whole, &mut joined) };
    for index in 0..MAX_PARTS as usize {
        // SAFETY: the list ends with a null, and none came yet.
        let entry = unsafe { Cursor::new(parts + index * 8, 8) };
        let Some(part @ 1..) = entry.u64(0).map(|part| part as usize) else { break };
        // SAFETY: the list of a wrapper has addresses of containers.
        let bytes = unsafe { begins_with(part, CONTAINER_MAGIC).then(|| container_bytes(part)).flatten() };
        let bytes = bytes.filter(|bytes| joined.len() as u64 + bytes <= MAX_IMAGE_BYTES);
        let bytes = bytes.ok_or(CudaError::INVALID_IMAGE)? as usize;
        // SAFETY: the container's header says that it is that long.
        unsafe { append(UserMemory { address: part, bytes }, &mut joined) };
    }
    Ok(Image::Joined(joined))
}

/// Returns whether an image begins with this word. No byte of the word is zero, so text is read no further than its
/// NUL.
///
/// # Safety
///
/// There is an image at `address`.
unsafe fn begins_with(address: usize, magic: u32) -> bool {
    // SAFETY: `# Safety` promises an image. All kinds but text have a whole word, and text is read until a byte differs.
    let is_same =
        |(index, byte): (usize, u8)| unsafe { ((address + index) as *const u8).read_volatile() == byte };
    magic.to_le_bytes().into_iter().enumerate().all(is_same)
}

/// Returns the address of the list of containers from which a wrapper's container was linked; 0 for any other image.
///
/// # Safety
///
/// There is an image at `address`.
unsafe fn parts_of(address: usize) -> usize {
    // SAFETY: `# Safety` promises an image.
    if !unsafe { begins_with(address, WRAPPER_MAGIC) } {
        return 0;
    }
    // SAFETY: an image that begins with this word is a wrapper, which has as many bytes.
    let wrapper = unsafe { Cursor::new(address, WRAPPER_BYTES) };
    let list = wrapper.u32(4).filter(|version| *version == LINKED).and_then(|_| wrapper.u64(16));
    list.unwrap_or(0) as usize
}

/// Appends a container and aligns the position of the next one.
///
/// # Safety
///
/// The container is readable.
unsafe fn append(container: UserMemory, to: &mut Vec<u8>) {
    // SAFETY: `# Safety` promises that the container can be read.
    unsafe { container.append_to(to) };
    to.resize(to.len().next_multiple_of(8), 0);
}

/// Returns the bytes of an image, or of the image that a wrapper points to.
fn bytes(image: HostPtr) -> Result<UserMemory, CudaError> {
    let mut address = image.address();
    if address == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: not null, so the program passes an image.
    if unsafe { begins_with(address, WRAPPER_MAGIC) } {
        // SAFETY: an image that begins with this word is a wrapper, which has as many bytes.
        let wrapper = unsafe { Cursor::new(address, WRAPPER_BYTES) };
        address = wrapper.u64(8).unwrap_or(0) as usize;
        if address == 0 {
            return Err(CudaError::INVALID_IMAGE);
        }
    }
    // SAFETY: the program's image, or the one that its wrapper points to; the first word determines the kind.
    let bytes = unsafe {
        if begins_with(address, CONTAINER_MAGIC) {
            container_bytes(address)
        } else if begins_with(address, ELF_MAGIC) {
            elf_bytes(address)
        } else {
            Some(text_bytes(address))
        }
    };
    match bytes {
        Some(bytes) if bytes <= MAX_IMAGE_BYTES => Ok(UserMemory { address, bytes: bytes as usize }),
        _ => Err(CudaError::INVALID_IMAGE),
    }
}

/// Returns the size of a container. Its header is: magic, version (u16), header size (u16), bytes after the header
/// (u64).
///
/// # Safety
///
/// There is a container at `address`.
unsafe fn container_bytes(address: usize) -> Option<u64> {
    // SAFETY: `# Safety` promises a container, whose header is no shorter.
    let header = unsafe { Cursor::new(address, CONTAINER_BYTES) };
    u64::from(header.u16(6)?).checked_add(header.u64(8)?)
}

/// Returns the size of an ELF file: the end of the last table, segment or section.
///
/// # Safety
///
/// There is an ELF file at `address`.
unsafe fn elf_bytes(address: usize) -> Option<u64> {
    let table = |offset: u64, entry_bytes: u16, count: u16| {
        offset.checked_add(u64::from(entry_bytes) * u64::from(count))
    };
    // SAFETY: `# Safety` promises an ELF file, which begins with its header.
    let at = unsafe { Cursor::new(address, ELF_BYTES) };
    let (program_headers, section_headers) = (at.u64(0x20)?, at.u64(0x28)?);
    let (program_entry, program_count) = (at.u16(0x36)?, at.u16(0x38)?);
    let (section_entry, section_count) = (at.u16(0x3a)?, at.u16(0x3c)?);
    let mut end = ELF_BYTES;
    end = end.max(table(program_headers, program_entry, program_count)?);
    end = end.max(table(section_headers, section_entry, section_count)?);
    if end > MAX_IMAGE_BYTES {
        return None;
    }
    // SAFETY: `# Safety` promises an ELF file, whose header says that its tables end there.
    let at = unsafe { Cursor::new(address, end) };
    for index in 0..u64::from(program_count) {
        let header = program_headers + index * u64::from(program_entry);
        end = end.max(at.u64(header + 0x08)?.checked_add(at.u64(header + 0x20)?)?);
    }
    for index in 0..u64::from(section_count) {
        let header = section_headers + index * u64::from(section_entry);
        if at.u32(header + 0x04)? != SHT_NOBITS {
            end = end.max(at.u64(header + 0x18)?.checked_add(at.u64(header + 0x20)?)?);
        }
    }
    Some(end)
}

/// Returns the size of PTX including its NUL.
///
/// # Safety
///
/// There is text with a NUL at `address`.
unsafe fn text_bytes(address: usize) -> u64 {
    // SAFETY: `# Safety` promises the NUL.
    let bytes = unsafe { libc::strnlen(address as *const _, MAX_IMAGE_BYTES as usize) };
    bytes as u64 + 1
}

#[cfg(test)]
#[path = "image_test.rs"]
mod tests;
