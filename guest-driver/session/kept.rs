// SPDX-License-Identifier: GPL-2.0-only

//! Memory that the device keeps between requests, by tag. Dropping the table frees the memory, so this may only happen
//! when the device certainly no longer uses it.

use crate::memory::Memory;
use kernel::{
    prelude::*,
    xarray::{
        AllocKind,
        XArray, //
    },
};

/// The memory of a tag.
struct Entry {
    /// None while the request with this tag is outstanding.
    memory: Option<Memory>,
    /// Set once the device was asked to release it.
    leaving: bool,
}

/// The table.
#[pin_data]
pub(crate) struct Kept {
    #[pin]
    entries: XArray<KBox<Entry>>,
}

impl Kept {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            entries <- XArray::new(AllocKind::Alloc),
        })
    }

    /// Adds an empty entry for `tag`, so that [`Self::fill`] cannot fail. `EEXIST`: the tag is in use.
    pub(crate) fn reserve(&self, tag: u64) -> Result {
        let entry = Entry {
            memory: None,
            leaving: false,
        };
        let entry = KBox::new(entry, GFP_KERNEL)?;
        let mut entries = self.entries.lock();
        if entries.get(tag as usize).is_some() {
            return Err(EEXIST);
        }
        entries
            .store(tag as usize, entry, GFP_KERNEL)
            .map_err(|refused| refused.error)?;
        Ok(())
    }

    /// Stores memory in the reserved entry.
    pub(crate) fn fill(&self, tag: u64, memory: Option<Memory>) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(tag as usize) {
            entry.memory = memory;
        }
    }

    /// Removes the entry and frees the memory. Sleeps.
    pub(crate) fn forget(&self, tag: u64) {
        let entry = self.entries.lock().remove(tag as usize);
        drop(entry);
    }

    /// Marks pinned memory as being released. `ENOENT`: the tag is unknown, or the memory is already being released.
    pub(crate) fn leave(&self, tag: u64) -> Result {
        let mut entries = self.entries.lock();
        match entries.get_mut(tag as usize) {
            Some(entry) if matches!(entry.memory, Some(Memory::Pinned(_))) && !entry.leaving => {
                entry.leaving = true;
                Ok(())
            }
            _ => Err(ENOENT),
        }
    }

    /// Reverts [`Self::leave`].
    pub(crate) fn stay(&self, tag: u64) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(tag as usize) {
            entry.leaving = false;
        }
    }
}
