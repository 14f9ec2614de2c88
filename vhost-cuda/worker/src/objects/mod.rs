// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session's objects by the names that the guest gave them.

pub(super) mod contexts;
pub(super) mod graphs;
mod held;
pub(super) mod images;
pub(super) mod jit;
mod link_thread;
pub(super) mod linker;
pub(super) mod named;
mod object;
mod recent;
pub(super) mod resources;
pub mod user_objects;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use virtio_cuda_protocol::cuda::FIRST_HANDLE;

pub use held::{Exclusive, Held, exclusive};
pub use object::{Destroyer, Object, Parent};
pub use recent::revoke_contexts;
pub use user_objects::UserObjects;

use super::gpu::{CuResult, CudaError};

/// The maximum number of objects of one kind. Bounds the host memory of a guest that only creates objects.
pub const MAX_OBJECTS: usize = 1 << 18;

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
///
/// # Invariants
///
/// The last reference to an object is never given back with `entries` locked: destroying it may take other locks.
#[derive(Debug, Default)]
pub struct Table {
    // `None`: the name is reserved, because its object is being created or is not destroyed yet.
    entries: RwLock<HashMap<u64, Option<Arc<Object>>>>,
}

impl Table {
    /// Returns the object of `id`. It is not destroyed before the caller drops the reference.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn get(&self, id: u64) -> CuResult<Arc<Object>> {
        self.entries.read().get(&id).and_then(Clone::clone).ok_or(CudaError::INVALID_HANDLE)
    }

    /// Returns the object of `id` without keeping it, if there is one.
    pub fn weak(&self, id: u64) -> Option<Weak<Object>> {
        // Not by a reference of the caller's: that might be the last one.
        self.entries.read().get(&id)?.as_ref().map(Arc::downgrade)
    }

    /// Returns the key that identifies an object of this table among those of all tables.
    fn key(&self, id: u64) -> recent::Key {
        (std::ptr::from_ref(self).addr(), id)
    }

    /// Returns the name of an object that `wanted` selects.
    pub fn find(&self, wanted: impl Fn(&Object) -> bool) -> Option<u64> {
        let entries = self.entries.read();
        entries.iter().find(|(_, entry)| entry.as_deref().is_some_and(&wanted)).map(|(&id, _)| id)
    }

    /// Reserves a name that the guest chose, for an object that is about to be created.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a reserved or used name, `CUDA_ERROR_OUT_OF_MEMORY` for too many.
    pub fn reserve(&self, id: u64) -> CuResult<Reserved<'_>> {
        let mut entries = self.entries.write();
        if id < FIRST_HANDLE || entries.contains_key(&id) {
            return Err(CudaError::INVALID_VALUE);
        }
        if entries.len() >= MAX_OBJECTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        entries.insert(id, None);
        Ok(Reserved { table: self, id })
    }

    /// Removes an object from the table; its name is free again.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn remove(&self, id: u64) -> CuResult<Arc<Object>> {
        let object = self.close(id)?;
        self.free_name(id);
        Ok(object)
    }

    /// Removes an object from the table; its name stays reserved until [`Self::free_name`].
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn close(&self, id: u64) -> CuResult<Arc<Object>> {
        let mut entries = self.entries.write();
        let object = entries.get_mut(&id).and_then(Option::take).ok_or(CudaError::INVALID_HANDLE)?;
        // Closed with the table locked: objects created from it cannot get a name after the earlier ones have lost
        // theirs.
        object.close();
        recent::revoke(self.key(id), &object);
        Ok(object)
    }

    /// Frees a name whose object has been destroyed.
    pub fn free_name(&self, id: u64) {
        let mut entries = self.entries.write();
        if let Some(None) = entries.get(&id) {
            entries.remove(&id);
        }
    }

    /// Removes the objects that `dead` selects. Names that are freed with the objects stay reserved until then.
    #[must_use]
    pub fn take(&self, dead: impl Fn(&Object) -> bool) -> Vec<Arc<Object>> {
        let mut removed = Vec::new();
        self.entries.write().retain(|id, entry| {
            let Some(object) = entry.take_if(|object| dead(object)) else { return true };
            object.close();
            recent::revoke(self.key(*id), &object);
            removed.push(object);
            removed.last().is_some_and(|object| object.has_name_to_free())
        });
        removed
    }
}

/// A name without an object yet; free again when dropped.
#[derive(Debug)]
pub struct Reserved<'a> {
    table: &'a Table,
    id: u64,
}

impl Reserved<'_> {
    /// Assigns the object to the name, unless its parent has lost its own name meanwhile. Then the object is returned
    /// to the caller.
    pub fn fill(self, object: Arc<Object>) -> Result<(), Arc<Object>> {
        let mut entries = self.table.entries.write();
        // Checked with the table locked: the thread that closes the parent searches this table for its parts
        // afterwards.
        if !object.is_open() {
            drop(entries);
            if object.has_name_to_free() {
                std::mem::forget(self);
            }
            return Err(object);
        }
        entries.insert(self.id, Some(object));
        drop(entries);
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.table.free_name(self.id);
    }
}

/// All tables of a session, except contexts and graphs.
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
    /// Arrays, levels of mipmapped arrays and planes of arrays. Levels and planes are parts.
    pub arrays: Table,
    /// Mipmapped arrays.
    pub mipmaps: Table,
    /// Pools. A device's default pool cannot be destroyed.
    pub pools: Table,
    /// Texture objects.
    pub textures: Values,
    /// Surface objects.
    pub surfaces: Values,
    /// Texture references; some are parts of modules.
    pub texture_references: Table,
    /// Surface references, parts of modules.
    pub surface_references: Table,
    /// User objects of graphs.
    pub user_objects: UserObjects,
    /// Descriptions of resources for green contexts. The driver never destroys them.
    pub descriptions: Table,
}

/// Objects that the driver identifies by a value that kernels take: in each context other ones.
#[derive(Debug, Default)]
pub struct Values(
    // Contexts and values.
    Mutex<HashSet<(u64, u64)>>,
);

impl Values {
    /// Registers an object that the driver has created in `context`.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` for one more object than a session may have.
    pub fn insert(&self, value: u64, context: u64) -> CuResult<()> {
        let mut all = self.0.lock();
        if all.len() >= MAX_OBJECTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        all.insert((context, value));
        Ok(())
    }

    /// Returns whether there is an object of this value in `context`.
    pub fn has(&self, value: u64, context: u64) -> bool {
        self.0.lock().contains(&(context, value))
    }

    /// Removes an object of `context`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, as the driver returns for values that it has not given out.
    pub fn remove(&self, value: u64, context: u64) -> CuResult<()> {
        if self.0.lock().remove(&(context, value)) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Forgets the objects that ended with a context.
    pub fn forget_context(&self, context: u64) {
        self.0.lock().retain(|(of, _)| *of != context);
    }
}

impl Objects {
    /// The tables of objects that live in contexts. Parts come before the objects that they are parts of.
    fn of_contexts(&self) -> [&Table; 8] {
        [
            &self.functions,
            &self.texture_references,
            &self.surface_references,
            &self.modules,
            &self.arrays,
            &self.mipmaps,
            &self.streams,
            &self.events,
        ]
    }

    /// Removes all names.
    pub fn take_all(&self) {
        for table in self.of_contexts().into_iter().chain([&self.libraries, &self.pools, &self.descriptions])
        {
            drop(table.take(|_| true));
        }
    }

    /// Removes the names of all objects that came from `object`, which has lost its own.
    pub fn close_parts(&self, object: &Arc<Object>) {
        for table in self.of_contexts() {
            table.take(|part| part.is_of(object)).into_iter().for_each(Object::end_with_parent);
        }
    }

    /// Removes the names of all objects in a context that is about to be destroyed. Without `streams_end_with_it` the
    /// driver is asked to destroy each stream.
    pub fn close_context(&self, context: u64, streams_end_with_it: bool) {
        for table in self.of_contexts() {
            let removed = table.take(|object| object.context() == context);
            if std::ptr::eq(table, &self.streams) && !streams_end_with_it {
                drop(removed);
                continue;
            }
            let (whole, parts): (Vec<_>, Vec<_>) = removed.into_iter().partition(|object| object.is_whole());
            parts.into_iter().chain(whole).for_each(Object::end_with_parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(raw: usize) -> Arc<Object> {
        Arc::new(fixture(raw))
    }

    fn fixture(raw: usize) -> Object {
        let context = Object::new(std::ptr::without_provenance_mut::<u8>(1));
        Object::new(std::ptr::without_provenance_mut::<u8>(raw))
            .in_context(Some(Parent { name: 5, object: Arc::new(context) }))
    }

    fn raw(object: &Object) -> usize {
        object.raw::<u8>() as usize
    }

    #[test]
    fn names_are_taken_once_and_looked_up() {
        let table = Table::default();
        let id = FIRST_HANDLE + 1;
        table.reserve(id).unwrap().fill(object(0xdead)).unwrap();
        assert_eq!(raw(&table.get(id).unwrap()), 0xdead);
        assert_eq!(table.reserve(id).unwrap_err(), CudaError::INVALID_VALUE);
        assert_eq!(table.reserve(FIRST_HANDLE - 1).unwrap_err(), CudaError::INVALID_VALUE);
        assert_eq!(table.reserve(0).unwrap_err(), CudaError::INVALID_VALUE);
        assert_eq!(table.get(id + 1).unwrap_err(), CudaError::INVALID_HANDLE);
        assert_eq!(raw(&table.remove(id).unwrap()), 0xdead);
        assert_eq!(table.remove(id).unwrap_err(), CudaError::INVALID_HANDLE);
    }

    #[test]
    fn a_name_whose_object_could_not_be_made_is_free_again() {
        let table = Table::default();
        let reserved = table.reserve(FIRST_HANDLE).unwrap();
        // While the object is being created its name is neither usable nor free.
        assert_eq!(table.get(FIRST_HANDLE).unwrap_err(), CudaError::INVALID_HANDLE);
        assert_eq!(table.remove(FIRST_HANDLE).unwrap_err(), CudaError::INVALID_HANDLE);
        assert!(table.reserve(FIRST_HANDLE).is_err());
        drop(reserved);
        table.reserve(FIRST_HANDLE).unwrap().fill(object(1)).unwrap();
    }

    #[test]
    fn a_call_keeps_what_it_uses_after_the_name_is_gone() {
        let destroyed = Arc::new(Mutex::new(0));
        let count = destroyed.clone();
        let object = fixture(1).ends_by(move |_| {
            *count.lock() += 1;
            Ok(())
        });
        let table = Table::default();
        table.reserve(FIRST_HANDLE).unwrap().fill(Arc::new(object)).unwrap();
        let used = table.get(FIRST_HANDLE).unwrap();
        Object::destroy(table.remove(FIRST_HANDLE).unwrap()).unwrap();
        assert_eq!(table.get(FIRST_HANDLE).unwrap_err(), CudaError::INVALID_HANDLE);
        assert_eq!(*destroyed.lock(), 0, "a call uses it");
        // The name is free for another object meanwhile.
        table.reserve(FIRST_HANDLE).unwrap().fill(self::object(2)).unwrap();
        drop(used);
        assert_eq!(*destroyed.lock(), 1);
        assert_eq!(raw(&table.get(FIRST_HANDLE).unwrap()), 2);
    }

    #[test]
    fn a_closed_name_stays_taken_until_it_is_freed() {
        let table = Table::default();
        table.reserve(FIRST_HANDLE).unwrap().fill(object(1)).unwrap();
        table.close(FIRST_HANDLE).unwrap();
        assert_eq!(table.close(FIRST_HANDLE).unwrap_err(), CudaError::INVALID_HANDLE);
        assert_eq!(table.reserve(FIRST_HANDLE).unwrap_err(), CudaError::INVALID_VALUE);
        table.free_name(FIRST_HANDLE);
        table.reserve(FIRST_HANDLE).unwrap().fill(object(2)).unwrap();
        table.free_name(FIRST_HANDLE);
        assert!(table.get(FIRST_HANDLE).is_ok(), "it has an object");
    }

    #[test]
    fn names_that_objects_free_are_taken_until_then() {
        let objects = Objects::default();
        let context = object(1);
        let array = Object::new(std::ptr::without_provenance_mut::<u8>(2))
            .in_context(Some(Parent { name: 7, object: context.clone() }));
        let array = Arc::new(array.ends_by(|_| Ok(())).keeps_name());
        let used = array.clone();
        objects.arrays.reserve(FIRST_HANDLE).unwrap().fill(array).unwrap();
        objects.close_context(7, true);
        assert!(objects.arrays.get(FIRST_HANDLE).is_err());
        assert!(objects.arrays.reserve(FIRST_HANDLE).is_err(), "the array still counts by it");
        objects.arrays.free_name(FIRST_HANDLE);
        objects.arrays.reserve(FIRST_HANDLE).unwrap().fill(used).expect_err("it lost its name");
        assert!(objects.arrays.reserve(FIRST_HANDLE).is_err(), "nothing has freed it");
    }

    #[test]
    fn parts_lose_their_names_with_the_whole() {
        let objects = Objects::default();
        let library = object(1);
        let view = Arc::new(fixture(2).part_of(library.clone()));
        let function = Arc::new(fixture(3).part_of(view.clone()));
        objects.modules.reserve(FIRST_HANDLE).unwrap().fill(view.clone()).unwrap();
        objects.functions.reserve(FIRST_HANDLE).unwrap().fill(function).unwrap();
        objects.functions.reserve(FIRST_HANDLE + 1).unwrap().fill(object(4)).unwrap();
        library.close();
        objects.close_parts(&library);
        assert!(objects.modules.get(FIRST_HANDLE).is_err() && objects.functions.get(FIRST_HANDLE).is_err());
        assert!(objects.functions.get(FIRST_HANDLE + 1).is_ok(), "another module's");
        let late = Arc::new(fixture(5).part_of(view));
        let refused = objects.functions.reserve(FIRST_HANDLE + 2).unwrap().fill(late).unwrap_err();
        assert_eq!(raw(&refused), 5, "made while the library was unloaded");
        assert!(objects.functions.reserve(FIRST_HANDLE + 2).is_ok(), "its name is free");
    }

    #[test]
    fn a_context_takes_its_objects_along() {
        let objects = Objects::default();
        objects.streams.reserve(FIRST_HANDLE).unwrap().fill(object(1)).unwrap();
        objects.libraries.reserve(FIRST_HANDLE).unwrap().fill(object(2)).unwrap();
        objects.close_context(5, true);
        assert!(objects.streams.get(FIRST_HANDLE).is_err());
        assert!(objects.libraries.get(FIRST_HANDLE).is_ok());
    }

    #[test]
    fn a_table_is_bounded() {
        let table = Table::default();
        for id in 0..MAX_OBJECTS as u64 {
            table.reserve(FIRST_HANDLE + id).unwrap().fill(object(1)).unwrap();
        }
        assert_eq!(table.reserve(1 << 40).unwrap_err(), CudaError::OUT_OF_MEMORY);
    }
}
