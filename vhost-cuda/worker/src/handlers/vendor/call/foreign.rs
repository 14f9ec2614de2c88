// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles of other libraries that a call uses.

use std::collections::BTreeMap;

use cuda_library_rows::library;
use smallvec::SmallVec;

use super::attempt::{Attempt, Named};
use crate::gpu::{CuResult, CudaError};
use crate::vendor::handles::{Handles, LockedStates};

/// States of other libraries' handles, with their owners and names.
type Foreign<'a> = SmallVec<[(&'a Handles, Named, LockedStates); 1]>;

impl<'a> Attempt<'a> {
    /// Locks the states of other libraries' handles, so that no call changes them between the checks and the use. All
    /// calls lock their own library's states first. A library whose handles others use does not itself use those of
    /// another library, so there is no deadlock.
    pub(super) fn lock_foreign(&self, named: &Named) -> Foreign<'a> {
        let mut owners = BTreeMap::<u32, Named>::new();
        for &(kind, id) in named {
            let Some((name, kind)) = &self.loaded.rows.handles[kind].of else { continue };
            let Some((number, rows)) = library(name) else { continue };
            let kind = rows.handles.iter().position(|known| known.name == *kind);
            owners.entry(number).or_default().extend(kind.map(|kind| (kind, id)));
        }
        let session = self.cx.session;
        // Without the library there are no such handles, and the call fails when it looks them up.
        let owners = owners.into_iter().filter_map(|(number, named)| {
            let owner = &session.vendor.get(number).ok()?.handles;
            let locked = owner.lock(&named);
            Some((owner, named, locked))
        });
        owners.collect()
    }

    /// Returns a handle of another library, of its first kind if no kind is given.
    pub(super) fn foreign(&self, name: &str, kind: Option<&str>, id: u64) -> CuResult<*mut u8> {
        let (number, rows) = library(name).ok_or(CudaError::NOT_FOUND)?;
        let kind = match kind {
            Some(kind) => {
                rows.handles.iter().position(|known| known.name == kind).ok_or(CudaError::NOT_FOUND)?
            }
            None => 0,
        };
        self.cx.keep(self.cx.session.vendor.get(number)?.handles.kind(kind)?, id)
    }
}
