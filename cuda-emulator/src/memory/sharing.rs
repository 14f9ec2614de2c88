// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of one device that another one reaches, and memory that is mapped piece by piece.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Memory, OutOfMemory, Range, RangeKind, State};

impl Memory {
    /// From now on addresses of `peer`'s own memory are valid here, too. Once for each [`Self::remove_peer`].
    pub fn add_peer(&'static self, peer: &'static Memory) {
        peer.watchers.write().unwrap_or_else(PoisonError::into_inner).push(self);
        self.peers.write().unwrap_or_else(PoisonError::into_inner).push(peer);
        self.has_peers.store(true, Ordering::Release);
    }

    /// Ends what [`Self::add_peer`] began.
    pub fn remove_peer(&'static self, peer: &'static Memory) {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = peers.iter().position(|known| std::ptr::eq(*known, peer)) {
            peers.swap_remove(place);
        }
        self.has_peers.store(!peers.is_empty(), Ordering::Release);
        drop(peers);
        let mut watchers = peer.watchers.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = watchers.iter().position(|known| std::ptr::eq(*known, self)) {
            watchers.swap_remove(place);
        }
        drop(watchers);
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// The range of a peer's own memory around `ptr`.
    pub(super) fn peer_range_of(&self, ptr: u64) -> Option<Range> {
        if !self.has_peers.load(Ordering::Acquire) {
            return None;
        }
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        let own = |peer: &&Memory| peer.read_state().ranges.find(ptr);
        let reachable = |range: &Range| matches!(range.kind, RangeKind::Device | RangeKind::Heap);
        peers.iter().find_map(own).filter(reachable)
    }

    /// Notifies watchers of this memory that ranges were removed.
    pub(super) fn notify_watchers(&self) {
        for watcher in self.watchers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            watcher.generation.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Takes bytes of the device's memory for something that lies elsewhere in the address space.
    pub fn charge(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let mut state = self.write_state();
        let free = state.total - state.used;
        if bytes > free {
            return Err(OutOfMemory { requested: bytes, free });
        }
        state.used += bytes;
        Ok(())
    }

    /// Gives back what [`Self::charge`] took.
    pub fn discharge(&self, bytes: u64) {
        let mut state = self.write_state();
        state.used = state.used.saturating_sub(bytes);
    }

    /// Replaces ranges outside of the window in one step, so that an unchanged part is never missing for its users.
    /// The caller keeps the new ranges mapped as [`Self::add_host_range`] requires. Returns false when one overlaps
    /// another range: that one is left out.
    pub fn replace_host_ranges(&self, remove: &[u64], add: &[(u64, u64)], kind: RangeKind) -> bool {
        let mut state = self.write_state();
        for base in remove {
            let outside = |range: &Range| !State::in_window(&state, range.base);
            if state.ranges.at(*base).filter(outside).is_some() {
                state.ranges.remove(*base);
            }
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
        let mut all = true;
        for (base, bytes) in add {
            all &= state.ranges.insert(Range { base: *base, bytes: *bytes, kind });
        }
        all
    }
}
