// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session's objects by the names that the guest gave them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::gpu::{CuResult, CudaError};

/// Most objects of one kind: a guest that only creates runs into an error, not into the host's memory.
const MAX_OBJECTS: usize = 1 << 18;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The driver's handle, as an integer so that the table may be shared between threads.
    pub raw: usize,
    /// The context it lives in; 0 for none.
    pub context: u64,
    /// The object it came from (a function's module or library); 0 for none.
    pub owner: u64,
    /// What the handle is, where a table holds two kinds.
    pub kind: Kind,
}

/// The two kinds of [`virtio_cuda_protocol::cuda::FunctionId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The only kind of its table, or a `CUfunction`.
    #[default]
    Plain,
    /// A `CUkernel`.
    Kernel,
}

/// Objects of one type.
#[derive(Debug, Default)]
pub struct Table {
    // `None`: the name is taken, its object is being made.
    entries: RwLock<HashMap<u64, Option<Entry>>>,
}

impl Table {
    /// What `id` stands for.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn get(&self, id: u64) -> CuResult<Entry> {
        self.read().get(&id).copied().flatten().ok_or(CudaError::INVALID_HANDLE)
    }

    /// The name of an object that `wanted` picks.
    pub fn find(&self, wanted: impl Fn(&Entry) -> bool) -> Option<u64> {
        let entries = self.read();
        entries.iter().find(|(_, entry)| entry.as_ref().is_some_and(&wanted)).map(|(&id, _)| id)
    }

    /// Takes a name that the guest minted, for an object that is about to be made.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a reserved or used name, `CUDA_ERROR_OUT_OF_MEMORY` for too many.
    pub fn reserve(&self, id: u64) -> CuResult<Reserved<'_>> {
        let mut entries = self.write();
        if id < FIRST_HANDLE || entries.contains_key(&id) {
            return Err(CudaError::INVALID_VALUE);
        }
        if entries.len() >= MAX_OBJECTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        entries.insert(id, None);
        Ok(Reserved { table: self, id })
    }

    /// Takes an object out of the table; its name is free again.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn remove(&self, id: u64) -> CuResult<Entry> {
        let mut entries = self.write();
        let entry = entries.get(&id).copied().flatten().ok_or(CudaError::INVALID_HANDLE)?;
        entries.remove(&id);
        Ok(entry)
    }

    /// Forgets the objects that `dead` names: the driver has destroyed them with something else.
    pub fn forget(&self, dead: impl Fn(&Entry) -> bool) {
        self.write().retain(|_, entry| !entry.as_ref().is_some_and(&dead));
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<u64, Option<Entry>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<u64, Option<Entry>>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name without object yet; free again when dropped.
#[derive(Debug)]
pub struct Reserved<'a> {
    table: &'a Table,
    id: u64,
}

impl Reserved<'_> {
    /// Gives the name its object.
    pub fn fill(self, entry: Entry) {
        self.table.write().insert(self.id, Some(entry));
        std::mem::forget(self);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.table.write().remove(&self.id);
    }
}

/// All tables of a session, but contexts.
#[derive(Debug, Default)]
pub struct Objects {
    /// Streams.
    pub streams: Table,
    /// Events.
    pub events: Table,
    /// Modules.
    pub modules: Table,
    /// Libraries.
    pub libraries: Table,
    /// Functions and kernels.
    pub functions: Table,
    /// Arrays, levels of mipmapped arrays and planes of arrays; the last two have an owner.
    pub arrays: Table,
    /// Mipmapped arrays.
    pub mipmaps: Table,
    /// Pools; a device's default one has an owner.
    pub pools: Table,
    /// Texture objects.
    pub textures: Values,
    /// Surface objects.
    pub surfaces: Values,
    /// Texture references; a module's have an owner.
    pub texture_references: Table,
    /// Surface references; their owners are modules.
    pub surface_references: Table,
    /// User objects of graphs.
    pub user_objects: Table,
    /// What describes resources for green contexts. The driver never destroys them.
    pub descriptions: Table,
}

/// Objects that the driver names with a value that kernels take.
#[derive(Debug, Default)]
pub struct Values {
    // To the context of each.
    contexts: Mutex<HashMap<u64, u64>>,
}

impl Values {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses one more object than a session may have.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_room(&self) -> CuResult<()> {
        if self.lock().len() >= MAX_OBJECTS { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Enters an object that the driver has made in `context`.
    pub fn insert(&self, value: u64, context: u64) {
        self.lock().insert(value, context);
    }

    /// Takes an object out.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, as the driver says of values that it has not given out.
    pub fn remove(&self, value: u64) -> CuResult<()> {
        self.lock().remove(&value).map(drop).ok_or(CudaError::INVALID_VALUE)
    }

    fn forget_context(&self, context: u64) {
        self.lock().retain(|_, of| *of != context);
    }
}

impl Objects {
    /// Forgets the references of modules that are gone.
    pub fn forget_references(&self) {
        for table in [&self.texture_references, &self.surface_references] {
            table.forget(|entry| entry.owner != 0 && self.modules.get(entry.owner).is_err());
        }
    }

    /// Forgets what a context took with it.
    pub fn forget_context(&self, context: u64) {
        let tables = [
            &self.streams,
            &self.events,
            &self.modules,
            &self.functions,
            &self.arrays,
            &self.mipmaps,
            &self.texture_references,
            &self.surface_references,
        ];
        for table in tables {
            table.forget(|entry| entry.context == context);
        }
        self.textures.forget_context(context);
        self.surfaces.forget_context(context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(raw: usize) -> Entry {
        Entry { raw, context: 5, owner: 0, kind: Kind::Plain }
    }

    #[test]
    fn names_are_minted_once_and_looked_up() {
        let table = Table::default();
        let id = FIRST_HANDLE + 1;
        table.reserve(id).unwrap().fill(entry(0xdead));
        assert_eq!(table.get(id).unwrap().raw, 0xdead);
        assert_eq!(table.reserve(id).unwrap_err(), CudaError::INVALID_VALUE);
        assert_eq!(table.reserve(FIRST_HANDLE - 1).unwrap_err(), CudaError::INVALID_VALUE);
        assert_eq!(table.reserve(0).unwrap_err(), CudaError::INVALID_VALUE);
        assert_eq!(table.get(id + 1).unwrap_err(), CudaError::INVALID_HANDLE);
        assert_eq!(table.remove(id).unwrap().raw, 0xdead);
        assert_eq!(table.remove(id).unwrap_err(), CudaError::INVALID_HANDLE);
    }

    #[test]
    fn a_name_whose_object_could_not_be_made_is_free_again() {
        let table = Table::default();
        let reserved = table.reserve(FIRST_HANDLE).unwrap();
        // While it is being made it is neither usable nor free.
        assert_eq!(table.get(FIRST_HANDLE).unwrap_err(), CudaError::INVALID_HANDLE);
        assert_eq!(table.remove(FIRST_HANDLE).unwrap_err(), CudaError::INVALID_HANDLE);
        assert!(table.reserve(FIRST_HANDLE).is_err());
        drop(reserved);
        table.reserve(FIRST_HANDLE).unwrap().fill(entry(1));
    }

    #[test]
    fn a_context_takes_its_objects_along() {
        let objects = Objects::default();
        objects.streams.reserve(FIRST_HANDLE).unwrap().fill(entry(1));
        objects.libraries.reserve(FIRST_HANDLE).unwrap().fill(Entry { context: 0, ..entry(2) });
        objects.forget_context(5);
        assert!(objects.streams.get(FIRST_HANDLE).is_err());
        assert!(objects.libraries.get(FIRST_HANDLE).is_ok());
    }

    #[test]
    fn a_table_is_bounded() {
        let table = Table::default();
        for id in 0..MAX_OBJECTS as u64 {
            table.reserve(FIRST_HANDLE + id).unwrap().fill(entry(1));
        }
        assert_eq!(table.reserve(1 << 40).unwrap_err(), CudaError::OUT_OF_MEMORY);
    }
}
