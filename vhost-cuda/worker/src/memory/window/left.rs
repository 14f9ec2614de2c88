// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address window of a session that goes to another worker, which maps the same guest memory there.

use std::sync::Arc;

use virtio_cuda_protocol::transport::MemEntry;

use super::{Area, Window, close_range, map_side_by_side};
use crate::memory::pages::{GuestPages, PageList};
use crate::memory::reservations::left::SpanRow;

impl Window {
    /// Returns all areas with their guest memory, ordered by address. `None` if some of it is not guest memory any more.
    pub fn rows(&self, memory: &GuestPages) -> Option<Vec<(Area, Vec<MemEntry>)>> {
        let row = |area: &Area| Some((*area, memory.entries_of(self.pieces_of.get(&area.base)?)?));
        self.areas.values().map(row).collect()
    }

    /// Returns the addresses that the guest's process has added, without those that the driver has reserved.
    pub fn claimed(&self) -> Vec<SpanRow> {
        let own = self.claims.iter().filter(|(_, claim)| !claim.borrowed);
        own.map(|(&base, claim)| SpanRow { base, bytes: claim.bytes }).collect()
    }

    /// Adds an area of another worker at the same address, without guest memory ([`Self::fill`]).
    ///
    /// Errors: the reason.
    pub fn restore(&mut self, area: Area) -> Result<(), String> {
        if area.bytes == 0 || self.find(area.tag, area.shared).is_some() {
            return Err("an area is empty, or has the tag of another one".to_owned());
        }
        if !self.is_free(area.base, area.bytes) {
            return Err(format!("the addresses at {:#x} are in use", area.base));
        }
        self.areas.insert(area.base, area);
        self.by_tag.insert((area.tag, area.shared), area.base);
        Ok(())
    }

    /// Maps the pages of an area of [`Self::restore`].
    ///
    /// Errors: the reason. Nothing is mapped then.
    pub fn fill(&mut self, base: u64, memory: Arc<GuestPages>, entries: Vec<MemEntry>) -> Result<(), String> {
        let list = PageList::for_window(memory, entries).map_err(|_| "an area is not in guest memory")?;
        let area = self.areas.get(&base).filter(|area| area.bytes == list.bytes());
        let area = *area.ok_or("an area has another length than its pages")?;
        let mut pieces = list.file_pieces().map_err(|_| "an area is not of whole pages")?;
        pieces.iter_mut().for_each(|piece| piece.writable = area.writable);
        let is_empty = !self.pieces_of.contains_key(&base);
        if !is_empty || self.pieces + pieces.len() > self.max_pieces {
            return Err("it has too many areas".to_owned());
        }
        // SAFETY: the range is that of an area without pages, so that nothing but the reservation is replaced.
        if let Err(error) = unsafe { map_side_by_side(&pieces, base) } {
            close_range(base, area.bytes);
            return Err(format!("pages cannot be mapped at {base:#x}: {error}"));
        }
        self.pieces += pieces.len();
        self.pieces_of.insert(base, pieces.into());
        Ok(())
    }
}
