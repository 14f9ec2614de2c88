// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User objects of graphs (`CUuserObject`). The driver counts references, and destroys the object with the last one.
//! The handle must not be used after that, so the program's references are counted here, too.

use std::collections::HashMap;

use parking_lot::Mutex;
use virtio_cuda_protocol::cuda::{FIRST_HANDLE, UserObjectId};

use super::MAX_OBJECTS;
use crate::gpu::{CUuserObject, CuResult, CudaError, Driver};

#[derive(Debug)]
struct Entry {
    raw: usize,
    /// The program's references.
    own: u64,
}

/// The user objects of a session, by name. Locked across the driver's functions, so that no thread uses an object
/// that another thread is about to destroy.
#[derive(Debug, Default)]
pub struct UserObjects(Mutex<HashMap<u64, Entry>>);

impl UserObjects {
    /// Registers an object that `make` creates with `count` references.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a reserved or used name, `CUDA_ERROR_OUT_OF_MEMORY` for too many, and
    /// those of `make`.
    pub fn add(&self, name: u64, count: u32, make: impl FnOnce() -> CuResult<CUuserObject>) -> CuResult<()> {
        let mut objects = self.0.lock();
        if name < FIRST_HANDLE || objects.contains_key(&name) {
            return Err(CudaError::INVALID_VALUE);
        }
        if objects.len() >= MAX_OBJECTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let raw = make()? as usize;
        objects.insert(name, Entry { raw, own: count.into() });
        Ok(())
    }

    /// Changes the number of references in the driver: `change` gets the handle and the program's count, and returns
    /// the new one. `kept` is true if something else keeps the object.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE` for an unknown name, `CUDA_ERROR_INVALID_VALUE` where nothing is known to
    /// keep the object, and those of `change`.
    pub fn change(
        &self,
        name: u64,
        kept: bool,
        change: impl FnOnce(CUuserObject, u64) -> CuResult<u64>,
    ) -> CuResult<()> {
        let mut objects = self.0.lock();
        let entry = objects.get_mut(&name).ok_or(CudaError::INVALID_HANDLE)?;
        if entry.own == 0 && !kept {
            return Err(CudaError::INVALID_VALUE);
        }
        entry.own = change(entry.raw as CUuserObject, entry.own)?;
        Ok(())
    }

    /// Retains references for the program.
    ///
    /// Errors: as [`Self::change`], and the driver's.
    pub fn retain(&self, gpu: &Driver, object: UserObjectId, count: u32) -> CuResult<()> {
        self.change(object.0, false, |raw, own| {
            gpu.cuUserObjectRetain(raw, count)?;
            Ok(own.saturating_add(count.into()))
        })
    }

    /// Releases references of the program, at most as many as it holds.
    ///
    /// Errors: as [`Self::change`], and the driver's.
    pub fn release(&self, gpu: &Driver, object: UserObjectId, count: u32) -> CuResult<()> {
        self.change(object.0, false, |raw, own| {
            gpu.cuUserObjectRelease(raw, within(count, own))?;
            Ok(own - own.min(count.into()))
        })
    }

    /// Returns the names of all objects, with the program's references.
    pub fn rows(&self) -> Vec<(u64, u64)> {
        let mut rows: Vec<_> = self.0.lock().iter().map(|(&name, entry)| (name, entry.own)).collect();
        rows.sort_unstable();
        rows
    }

    /// Takes all objects, with the program's references.
    pub fn take_all(&self) -> Vec<(CUuserObject, u64)> {
        self.0.lock().drain().map(|(_, entry)| (entry.raw as CUuserObject, entry.own)).collect()
    }

    /// Forgets an object that the driver has destroyed.
    pub fn remove(&self, name: u64) {
        self.0.lock().remove(&name);
    }
}

/// Limits a count to `most`, unless the driver refuses the count anyway.
pub fn within(count: u32, most: u64) -> u32 {
    let wrong = i32::try_from(count).is_err();
    if wrong { count } else { u32::try_from(most).map_or(count, |most| count.min(most)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_not_named_after_its_last_reference() {
        let objects = UserObjects::default();
        let raw = std::ptr::without_provenance_mut(8);
        objects.add(FIRST_HANDLE, 2, || Ok(raw)).unwrap();
        assert_eq!(objects.add(FIRST_HANDLE, 1, || panic!("taken")), Err(CudaError::INVALID_VALUE));
        let less = |_, own| Ok(own - 1);
        objects.change(FIRST_HANDLE, false, less).unwrap();
        assert!(objects.change(FIRST_HANDLE, false, |_, _| Err(CudaError::NOT_SUPPORTED)).is_err());
        objects.change(FIRST_HANDLE, false, less).expect("a refused change does not count");
        assert_eq!(
            objects.change(FIRST_HANDLE, false, |_, _| panic!("destroyed")),
            Err(CudaError::INVALID_VALUE)
        );
        objects
            .change(FIRST_HANDLE, true, |found, own| Ok(own + u64::from(found == raw)))
            .expect("a graph has it");
        objects.remove(FIRST_HANDLE);
        assert_eq!(objects.change(FIRST_HANDLE, true, less), Err(CudaError::INVALID_HANDLE));
    }
}
