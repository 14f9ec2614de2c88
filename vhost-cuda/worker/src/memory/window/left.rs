// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address window of a session that goes to another worker, which maps the same guest memory there.

use std::sync::Arc;

use virtio_cuda_protocol::transport::MemEntry;

use super::{Area, Window};
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

    /// Maps an area of another worker at the same address.
    ///
    /// Errors: the reason.
    pub fn restore(
        &mut self,
        memory: Arc<GuestPages>,
        area: Area,
        entries: Vec<MemEntry>,
    ) -> Result<(), String> {
        let list = PageList::for_window(memory, entries).map_err(|_| "an area is not in guest memory")?;
        if list.bytes() != area.bytes {
            return Err("an area has another length than its pages".to_owned());
        }
        let mut pieces = list.file_pieces().map_err(|_| "an area is not of whole pages")?;
        pieces.iter_mut().for_each(|piece| piece.writable = area.writable);
        let now = self.map(&pieces, area.base, area.tag, area.shared);
        let now = now.map_err(|error| format!("pages cannot be mapped at {:#x}: {error}", area.base))?;
        if now == area { Ok(()) } else { Err(format!("the addresses at {:#x} are in use", area.base)) }
    }
}
