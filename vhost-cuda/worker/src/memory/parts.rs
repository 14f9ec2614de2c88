// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical memory of a device that is given back and brought back: at the same addresses, with the same access.
//!
//! Each step notes what the driver has done. So after a failure at any step the same functions go on from there, in either
//! direction.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::gpu::{
    ACCESS_NONE, ACCESS_READ_WRITE, CuResult, CudaError, Driver, HANDLE_TYPE_FILE, LOCATION_DEVICE,
    RawAccess, RawAllocation, RawLocation,
};

/// The size of all parts in bytes is a multiple of this.
pub const UNIT: u64 = vhost_cuda_common::link::CHUNK_BYTES;

/// The driver's virtual memory management. A trait, so that tests can replace it by one that fails.
pub trait Memory {
    /// Allocates physical memory. Returns its handle.
    fn create(&self, bytes: u64, properties: &RawAllocation) -> CuResult<u64>;
    /// Gives a handle back. The memory ends once nothing is mapped any more, and no file of it is open.
    fn release(&self, handle: u64) -> CuResult<()>;
    /// Returns a file that keeps physical memory as long as it is open.
    fn export(&self, handle: u64) -> CuResult<File>;
    /// Returns a handle of the memory that a file keeps.
    fn import(&self, file: &File) -> CuResult<u64>;
    /// Maps the beginning of physical memory at reserved addresses.
    ///
    /// # Safety
    ///
    /// The addresses must be reserved by the session, with nothing mapped there.
    unsafe fn map(&self, address: u64, bytes: u64, handle: u64) -> CuResult<()>;
    /// Removes a mapping.
    ///
    /// # Safety
    ///
    /// It must be a whole mapping of the session that no work uses.
    unsafe fn unmap(&self, address: u64, bytes: u64) -> CuResult<()>;
    /// Sets the access to a mapping.
    ///
    /// # Safety
    ///
    /// It must be a whole mapping of the session.
    unsafe fn allow(&self, address: u64, bytes: u64, access: &[RawAccess]) -> CuResult<()>;
}

impl Memory for Driver {
    fn create(&self, bytes: u64, properties: &RawAllocation) -> CuResult<u64> {
        // SAFETY: the properties live across the call.
        unsafe { self.cuMemCreate(bytes as usize, properties, 0) }.map(|(handle,)| handle)
    }

    fn release(&self, handle: u64) -> CuResult<()> {
        self.cuMemRelease(handle)
    }

    fn export(&self, handle: u64) -> CuResult<File> {
        self.memory_file(handle)
    }

    fn import(&self, file: &File) -> CuResult<u64> {
        let shareable = std::ptr::without_provenance_mut(file.as_raw_fd() as usize);
        // SAFETY: for this kind of handle the pointer is a file descriptor, which is open across the call.
        unsafe { self.cuMemImportFromShareableHandle(shareable, HANDLE_TYPE_FILE as i32) }
            .map(|(handle,)| handle)
    }

    unsafe fn map(&self, address: u64, bytes: u64, handle: u64) -> CuResult<()> {
        // SAFETY: `Memory::map` demands reserved addresses that are free.
        unsafe { self.cuMemMap(address, bytes as usize, 0, handle, 0) }
    }

    unsafe fn unmap(&self, address: u64, bytes: u64) -> CuResult<()> {
        // SAFETY: `Memory::unmap` demands a whole mapping that no work uses.
        unsafe { self.cuMemUnmap(address, bytes as usize) }
    }

    unsafe fn allow(&self, address: u64, bytes: u64, access: &[RawAccess]) -> CuResult<()> {
        // SAFETY: `Memory::allow` demands a whole mapping; the descriptions live across the call.
        unsafe { self.cuMemSetAccess(address, bytes as usize, access.as_ptr(), access.len()) }
    }
}

/// A place at which a part is mapped, or will be again.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Its first address.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The access of locations to it.
    pub access: Vec<RawAccess>,
    /// True while the driver has it.
    mapped: bool,
}

impl Mapping {
    /// A mapping that the driver has.
    pub fn new(address: u64, bytes: u64, access: Vec<RawAccess>) -> Self {
        Self { address, bytes, access, mapped: true }
    }
}

/// One piece of physical memory with all its mappings.
///
/// # Invariants
///
/// The addresses of the mappings are reserved by the session as long as the part lives. The first mapping covers the whole part.
#[derive(Clone, Debug)]
pub struct Part {
    /// The size in bytes.
    pub bytes: u64,
    properties: RawAllocation,
    mappings: Vec<Mapping>,
    /// The driver's handle, if the session holds it.
    handle: Option<u64>,
    /// False while this process has no physical memory of it.
    exists: bool,
    /// True while its contents are in the store and not in the device's memory.
    pub stored: bool,
    /// A file of the driver, which keeps the memory and its contents while this process does not have it mapped. It stays afterwards, because memory that was
    /// imported cannot be exported.
    file: Option<Arc<File>>,
    /// True while only that keeps it.
    held: bool,
}

impl Part {
    /// A part that the driver has, with its contents. Without a handle only its mapping keeps it, and it has just one.
    pub fn new(handle: Option<u64>, bytes: u64, properties: RawAllocation, mappings: Vec<Mapping>) -> Self {
        assert!(!mappings.is_empty() && (handle.is_some() || mappings.len() == 1), "something keeps a part");
        Self { bytes, properties, mappings, handle, exists: true, stored: false, file: None, held: false }
    }

    /// Returns the part as it is while its contents are in the store and the driver has nothing of it.
    pub fn away(mut self) -> Self {
        self.mappings.iter_mut().for_each(|mapping| mapping.mapped = false);
        Self { handle: None, exists: false, stored: true, ..self }
    }

    /// Returns the part with the file of its memory, if that has come from another process.
    pub fn with_file(self, file: Option<Arc<File>>) -> Self {
        Self { file, ..self }
    }

    /// Returns the file of its memory, if it has one.
    pub fn file(&self) -> Option<&Arc<File>> {
        self.file.as_ref()
    }

    /// Returns a file of its memory.
    ///
    /// Errors: the driver's; `CUDA_ERROR_NOT_SUPPORTED` for memory that is away, or that only its mapping keeps.
    pub fn export(&self, memory: &impl Memory) -> CuResult<Arc<File>> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => memory.export(self.handle.ok_or(CudaError::NOT_SUPPORTED)?).map(Arc::new),
        }
    }

    /// Has a file keep its memory from now on, across [`Self::give_back`].
    ///
    /// Errors: as for [`Self::export`].
    pub fn hold(&mut self, memory: &impl Memory) -> CuResult<()> {
        self.file = Some(self.export(memory)?);
        self.held = true;
        Ok(())
    }

    /// Takes the file of another process that keeps its memory. It is away.
    pub fn hold_in(&mut self, file: File) {
        self.file = Some(Arc::new(file));
        (self.held, self.stored) = (true, false);
    }

    /// Returns the file that keeps its memory while this process has none of it.
    pub fn held(&self) -> Option<&Arc<File>> {
        self.file.as_ref().filter(|_| self.held)
    }

    /// Returns whether its contents are elsewhere: in the store, or in memory that a file keeps.
    pub fn is_away(&self) -> bool {
        self.stored || self.held
    }

    /// Notes that its contents are in its memory.
    pub fn is_back(&mut self) {
        (self.stored, self.held) = (false, false);
    }

    /// Returns the driver's handle. `None` while there is none.
    pub fn handle(&self) -> Option<u64> {
        self.handle
    }

    /// Returns whether there is physical memory.
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// Returns the driver's number of its device.
    pub fn device(&self) -> i32 {
        self.properties.location.id
    }

    /// Lets another device access it, or no longer. Memory that is not there follows when it comes back.
    ///
    /// Errors: the driver's; the access is as before.
    pub fn set_access(&mut self, memory: &impl Memory, device: i32, is_allowed: bool) -> CuResult<()> {
        let location = RawLocation { kind: LOCATION_DEVICE, id: device };
        let flags = if is_allowed { ACCESS_READ_WRITE } else { ACCESS_NONE };
        let access = RawAccess { location, flags };
        for Mapping { address, bytes, access: all, mapped } in &mut self.mappings {
            if *mapped {
                // SAFETY: the session's mapping (invariant), which the driver has.
                unsafe { memory.allow(*address, *bytes, &[access]) }?;
            }
            all.retain(|known| known.location != location);
            if is_allowed {
                all.push(access);
            }
        }
        Ok(())
    }

    /// The devices that have access to it.
    pub fn readers(&self) -> impl Iterator<Item = i32> {
        self.mappings[0].access.iter().map(|access| access.location.id)
    }

    /// Returns whether a device has access to it.
    pub fn is_accessible(&self, device: i32) -> bool {
        self.readers().any(|reader| reader == device)
    }

    /// Returns the address at which all of it is mapped.
    pub fn address(&self) -> u64 {
        self.mappings[0].address
    }

    /// Unmaps the part and gives its memory back.
    ///
    /// Errors: the driver's.
    ///
    /// # Safety
    ///
    /// No work of the device may use it.
    pub unsafe fn give_back(&mut self, memory: &impl Memory) -> CuResult<()> {
        for mapping in self.mappings.iter_mut().filter(|mapping| mapping.mapped) {
            // SAFETY: the session's mapping (invariant), which the driver has; the caller promises that no work uses it.
            unsafe { memory.unmap(mapping.address, mapping.bytes) }?;
            mapping.mapped = false;
        }
        if let Some(handle) = self.handle {
            memory.release(handle)?;
            self.handle = None;
        }
        self.exists = false;
        if !self.held {
            self.file = None;
        }
        Ok(())
    }

    /// Maps the memory that a file keeps, or allocates some, unless the part has it. New memory has undefined contents.
    ///
    /// Errors: the driver's.
    pub fn bring_back(&mut self, memory: &impl Memory) -> CuResult<()> {
        if !self.exists {
            self.handle = Some(match &self.file {
                Some(file) => memory.import(file)?,
                None => memory.create(self.bytes, &self.properties)?,
            });
            self.exists = true;
        }
        for Mapping { address, bytes, access, mapped } in &mut self.mappings {
            if !*mapped {
                // Without a handle it has one mapping, and exists only with that.
                let handle = self.handle.ok_or(CudaError::INVALID_VALUE)?;
                // SAFETY: reserved addresses of the session (invariant), where the driver has nothing.
                unsafe { memory.map(*address, *bytes, handle) }?;
                *mapped = true;
            }
            // Also for a mapping that the driver has kept: this may have failed there before.
            if !access.is_empty() {
                // SAFETY: the session's mapping (invariant).
                unsafe { memory.allow(*address, *bytes, access) }?;
            }
        }
        Ok(())
    }

    /// Gives the handle back that [`Self::bring_back`] has got for memory that only its mapping keeps.
    ///
    /// Errors: the driver's; it keeps the memory then until the process ends.
    pub fn release_handle(&mut self, memory: &impl Memory) -> CuResult<()> {
        self.handle.take().map_or(Ok(()), |handle| memory.release(handle))
    }
}
