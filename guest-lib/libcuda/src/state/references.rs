// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The texture and surface references of the process.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;

/// The kind of reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Texture,
    Surface,
}

#[derive(Clone, Copy, Debug)]
pub struct Reference {
    pub kind: Kind,
    pub context: u64,
    /// The module; 0 if `cuTexRefCreate` created the reference.
    pub module: u64,
}

#[derive(Debug, Default)]
pub struct Tables {
    pub references: HashMap<u64, Reference>,
    /// The references that were requested before.
    pub names: HashMap<(u64, Kind, CString), u64>,
}

/// All references by handle.
#[derive(Debug, Default)]
pub struct References(Mutex<Tables>);

impl References {
    pub fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, handle: u64, kind: Kind) -> Result<Reference, CudaError> {
        let found = self.lock().references.get(&handle).copied().filter(|reference| reference.kind == kind);
        found.ok_or(CudaError::INVALID_HANDLE)
    }

    /// Removes the references of an unloaded module.
    pub fn forget_module(&self, module: u64) {
        let mut tables = self.lock();
        tables.references.retain(|_, reference| reference.module != module);
        tables.names.retain(|(of, ..), _| *of != module);
    }

    /// Removes the references of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        let mut tables = self.lock();
        tables.references.retain(|_, reference| reference.context != context);
        let Tables { references, names } = &mut *tables;
        names.retain(|_, handle| references.contains_key(handle));
    }
}
