// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of variables of device code and of arrays, while these have ended.
//!
//! Variables are found by their names. One whose address the program has asked for is none of these ([`crate::suspend::deep`]).

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use virtio_cuda_protocol::cuda::{ContextId, Opcode};
use zerocopy::{FromBytes, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::class::Class;
use super::kept::Key;
use super::steps::Step;
use crate::gpu::{BoxCopy, BoxEnd, CUarray, CuResult, CudaError, Driver, PitchedEnd};
use crate::memory::formats::Shape;
use crate::objects::Objects;
use crate::objects::contexts::Contexts;

/// The maximum of the contents of all variables and arrays, in bytes. Bounds the host memory of a guest that loads much.
const MAX_BYTES: usize = 256 << 20;

/// The names that the compiler gives to literals begin with one of these. The image has their contents.
const LITERALS: [&[u8]; 2] = [b"$str", b"__unnamed_"];

/// The maximum number of variables from another worker without contents, and the host memory that each takes besides its contents and name.
const MAX_VARIABLES: usize = 1 << 18;
const VARIABLE_BYTES: usize = 128;

/// The maximum number of levels of a mipmapped array: the halvings of the longest side.
const MAX_LEVELS: u64 = 64;

/// The contents of a session's variables and arrays.
#[derive(Debug, Default)]
pub struct Variables {
    all: Vec<Variable>,
    /// While they come from another worker: the length of the last one, and the host memory of all, in bytes.
    last: usize,
    taken: usize,
}

#[derive(Debug)]
struct Variable {
    place: Place,
    contents: Vec<u8>,
}

/// A variable in a context, as a library has its own in each one; or an array, or a level of a mipmapped array.
#[derive(Clone, Debug)]
struct Place {
    owner: Key,
    /// The context, or the level.
    context: u64,
    /// The variable's name, or nothing.
    name: CString,
}

/// The parts of a session by which its variables are found.
#[derive(Clone, Copy, Debug)]
pub struct Finder<'s> {
    /// The driver.
    pub gpu: &'s Driver,
    /// Modules, libraries and arrays.
    pub objects: &'s Objects,
    /// Contexts.
    pub contexts: &'s Contexts,
}

impl Variables {
    /// Copies the contents of all variables of these modules and libraries, and of these arrays. The session has no work.
    ///
    /// Errors: the driver's; `CUDA_ERROR_NOT_FOUND` for a variable that it does not know, `CUDA_ERROR_OUT_OF_MEMORY` for more than 256 MiB.
    pub fn take(session: Finder<'_>, steps: &[Step]) -> CuResult<Self> {
        let (mut all, mut left) = (Vec::new(), MAX_BYTES);
        for step in steps.iter().filter(|step| !step.variables.is_empty()) {
            let contexts = match step.key.class {
                Class::Module => vec![session.objects.modules.get(step.key.id)?.context()],
                _ => session.contexts.lock().names(),
            };
            for (context, name) in
                contexts.iter().flat_map(|context| step.variables.iter().map(move |name| (*context, name)))
            {
                let place = Place { owner: step.key, context, name: name.clone() };
                let (address, bytes) = match place.find(session) {
                    Err(CudaError::NOT_FOUND) if is_literal(name) => continue,
                    found => found?,
                };
                left = left.checked_sub(bytes).ok_or(CudaError::OUT_OF_MEMORY)?;
                let mut contents = vec![0; bytes];
                // SAFETY: `contents` has room for the variable, whose address and length the driver has told.
                unsafe { session.gpu.cuMemcpyDtoH_v2(contents.as_mut_ptr().cast(), address, bytes) }?;
                all.push(Variable { place, contents });
            }
        }
        for step in steps {
            let levels = match step.call.opcode {
                Opcode::cuArray3DCreate_v2 => 1,
                Opcode::cuMipmappedArrayCreate => MAX_LEVELS,
                _ => continue,
            };
            for level in 0..levels {
                let place = Place { owner: step.key, context: level, name: CString::default() };
                let (array, shape) = match place.array(session) {
                    // There are no more levels.
                    Err(CudaError::INVALID_VALUE) if level > 0 => break,
                    found => found?,
                };
                let bytes = usize::try_from(shape.bytes()?).map_err(|_| CudaError::OUT_OF_MEMORY)?;
                left = left.checked_sub(bytes).ok_or(CudaError::OUT_OF_MEMORY)?;
                let mut contents = vec![0; bytes];
                // SAFETY: `contents` is as long as the array, and the session has no work.
                unsafe { copy_array(session.gpu, array, shape, contents.as_mut_ptr(), Direction::ToHost) }?;
                all.push(Variable { place, contents });
            }
        }
        let last = all.last().map_or(0, |variable: &Variable| variable.contents.len());
        Ok(Self { all, last, taken: 0 })
    }

    /// Copies the contents back to variables and arrays that have been made again. Waits for all copies to variables at once: where
    /// several processes use the GPU, each wait takes as long as the turns of the others.
    ///
    /// Errors: the driver's; `CUDA_ERROR_INVALID_HANDLE` for one of another length. No copy is under way.
    pub fn bring_back(&self, session: Finder<'_>) -> CuResult<()> {
        let mut contexts = BTreeSet::new();
        let begun = self.all.iter().try_for_each(|Variable { place, contents }| {
            if place.is_array() {
                let (array, shape) = place.array(session)?;
                if shape.bytes()? != contents.len() as u64 {
                    return Err(CudaError::INVALID_HANDLE);
                }
                let from = contents.as_ptr().cast_mut();
                // SAFETY: the contents are as long as the array, and are only read.
                return unsafe { copy_array(session.gpu, array, shape, from, Direction::ToDevice) };
            }
            let (address, bytes) = place.find(session)?;
            if bytes != contents.len() {
                return Err(CudaError::INVALID_HANDLE);
            }
            contexts.insert(place.context);
            // SAFETY: the contents are as long as the variable, and stay until the copy has ended: this function waits for it.
            unsafe { session.gpu.cuMemcpyHtoDAsync_v2(address, contents.as_ptr().cast(), bytes, null_mut()) }
        });
        let wait = |context: &u64| {
            enter(session, *context)?;
            session.gpu.cuStreamSynchronize(null_mut())
        };
        // For all, whatever fails.
        let ended: Vec<CuResult<()>> = contexts.iter().map(wait).collect();
        ended.into_iter().fold(begun, CuResult::and)
    }
}

/// Makes a context current.
fn enter(session: Finder<'_>, context: u64) -> CuResult<()> {
    session.gpu.cuCtxSetCurrent(session.contexts.get(ContextId(context))?.object.raw())
}

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToHost,
    ToDevice,
}

/// Copies all of an array. Its context is current.
///
/// # Safety
///
/// `host` must be valid for the bytes of the array: for writing on the way to the host, else for reading.
unsafe fn copy_array(
    gpu: &Driver,
    array: CUarray,
    shape: Shape,
    host: *mut u8,
    direction: Direction,
) -> CuResult<()> {
    let size @ [pitch, height, _] = shape.sides();
    let array = PitchedEnd { end: BoxEnd::Array(array, [0; 3]), pitch: 0, height: 0 };
    let host = PitchedEnd { end: BoxEnd::Host(host), pitch, height };
    let (src, dst) = if direction == Direction::ToHost { (array, host) } else { (host, array) };
    let stream = std::ptr::null_mut();
    // SAFETY: this function's contract; the copy ends here.
    unsafe { gpu.copy_box(&BoxCopy { src, dst, size }, stream) }?;
    gpu.cuStreamSynchronize(stream)
}

/// The longest piece of a variable's contents in one part, in bytes.
const PIECE: usize = 1 << 20;

/// The head of a piece of a variable. Its name and the piece follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// The module, library or array.
    owner: u64,
    /// The context, or the level of an array.
    context: u64,
    /// The bytes of the contents, and the place of the piece in them.
    bytes: u64,
    offset: u64,
    /// An index of [`OWNERS`].
    class: u32,
    name_bytes: u32,
}

/// The owners of contents.
const OWNERS: [Class; 4] = [Class::Module, Class::Library, Class::Array, Class::Mipmap];

impl Variables {
    /// Hands all contents to `to` in pieces, for another worker.
    ///
    /// Errors: those of `to`.
    pub fn write<E>(&self, mut to: impl FnMut(&[&[u8]]) -> Result<(), E>) -> Result<(), E> {
        for Variable { place, contents } in &self.all {
            let name = place.name.as_bytes();
            let mut offset = 0;
            loop {
                let piece = &contents[offset..contents.len().min(offset + PIECE)];
                let head = Head {
                    owner: place.owner.id,
                    context: place.context,
                    bytes: contents.len() as u64,
                    offset: offset as u64,
                    class: OWNERS.iter().position(|class| *class == place.owner.class).unwrap_or(0) as u32,
                    name_bytes: name.len() as u32,
                };
                to(&[head.as_bytes(), name, piece])?;
                offset += piece.len();
                if offset == contents.len() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds a piece of another worker. `None` for one that does not follow the last one, and for more than may be.
    pub fn add(&mut self, bytes: &[u8]) -> Option<()> {
        let (head, rest) = Head::read_from_prefix(bytes).ok()?;
        let (name, piece) = rest.split_at_checked(head.name_bytes as usize)?;
        let class = *OWNERS.get(head.class as usize)?;
        let owner = Key { class, id: head.owner, context: 0 };
        if head.offset == 0 {
            let bytes = usize::try_from(head.bytes).ok()?;
            let taken = self.taken.checked_add(bytes)?.checked_add(VARIABLE_BYTES + name.len())?;
            if taken > MAX_BYTES + MAX_VARIABLES * VARIABLE_BYTES || !self.is_whole() {
                return None;
            }
            self.taken = taken;
            let place = Place { owner, context: head.context, name: CString::new(name).ok()? };
            self.all.push(Variable { place, contents: Vec::with_capacity(bytes) });
            self.last = bytes;
        }
        let whole = self.last;
        let last = self.all.last_mut()?;
        let is_next = last.place.owner == owner
            && last.place.name.as_bytes() == name
            && last.place.context == head.context
            && last.contents.len() as u64 == head.offset
            && head.bytes == whole as u64
            && piece.len() <= whole - last.contents.len();
        is_next.then(|| last.contents.extend_from_slice(piece))
    }

    /// Returns whether all of the last variable is there.
    pub fn is_whole(&self) -> bool {
        self.all.last().is_none_or(|last| last.contents.len() == self.last)
    }
}

fn is_literal(name: &CStr) -> bool {
    LITERALS.iter().any(|start| name.to_bytes().starts_with(start))
}

impl Place {
    fn is_array(&self) -> bool {
        matches!(self.owner.class, Class::Array | Class::Mipmap)
    }

    /// Returns the array, or the level of a mipmapped array. Its context is current then.
    ///
    /// Errors: the driver's; `CUDA_ERROR_INVALID_VALUE` for a level that does not exist.
    fn array(&self, session: Finder<'_>) -> CuResult<(CUarray, Shape)> {
        let (gpu, id) = (session.gpu, self.owner.id);
        let array = match self.owner.class {
            Class::Array => {
                let object = session.objects.arrays.get(id)?;
                enter(session, object.context())?;
                object.raw()
            }
            _ => {
                let object = session.objects.mipmaps.get(id)?;
                enter(session, object.context())?;
                let level = u32::try_from(self.context).map_err(|_| CudaError::INVALID_VALUE)?;
                gpu.cuMipmappedArrayGetLevel(object.raw(), level)?.0
            }
        };
        let (description,) = gpu.cuArray3DGetDescriptor_v2(array)?;
        Ok((array, Shape::of(&description)?))
    }

    /// Returns its address on the device, and its length in bytes. Its context is current then.
    ///
    /// Errors: the driver's.
    fn find(&self, session: Finder<'_>) -> CuResult<(u64, usize)> {
        let (gpu, id) = (session.gpu, self.owner.id);
        enter(session, self.context)?;
        match self.owner.class {
            Class::Module => {
                gpu.cuModuleGetGlobal_v2(session.objects.modules.get(id)?.raw(), self.name.clone())
            }
            _ => gpu.cuLibraryGetGlobal(session.objects.libraries.get(id)?.raw(), self.name.clone()),
        }
    }
}
