// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that graphs retain, counted like on a device. A launch needs memory for the addresses of its allocation
//! nodes. It keeps the memory that it had before, takes memory that another graph no longer needs, or otherwise gets
//! more. Only cuDeviceGraphMemTrim releases it.
//!
//! Only the count is shared here: each allocation has its memory as long as its graph exists (`memory`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::memory::{Block, GraphMemory};
use crate::driver::device::{CUdevice, Device};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::queue::{Mark, Queue};

/// Memory that a launch has got.
struct Piece {
    bytes: u64,
    /// The block whose addresses it served last.
    block: Weak<Block>,
    /// The end of the last launch that uses it, or `None` while that is being submitted.
    last: Option<Mark>,
}

impl Piece {
    fn is_of(&self, block: &Arc<Block>) -> bool {
        std::ptr::eq(self.block.as_ptr(), Arc::as_ptr(block))
    }

    /// Returns whether it is unused after `queue`'s present end, or at all.
    fn is_free(&self, queue: Option<&Arc<Queue>>) -> bool {
        let ended = |mark: &Mark| mark.reached() || queue.is_some_and(|queue| mark.is_of(queue));
        let live = self.block.upgrade().is_some_and(|block| block.is_live());
        !live && self.last.as_ref().is_some_and(ended)
    }
}

#[derive(Default)]
struct Kept {
    pieces: Vec<Piece>,
    /// The high water marks: of used and of reserved memory.
    high: [u64; 2],
}

impl Kept {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

fn all() -> MutexGuard<'static, BTreeMap<CUdevice, Kept>> {
    static KEPT: Mutex<BTreeMap<CUdevice, Kept>> = Mutex::new(BTreeMap::new());
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the blocks that a launch allocates, each once.
fn blocks(memory: &[(Arc<GraphMemory>, bool)]) -> Vec<Arc<Block>> {
    let mut blocks: Vec<Arc<Block>> = Vec::new();
    for block in memory.iter().filter(|(_, allocates)| *allocates).map(|(memory, _)| memory.block()) {
        if !blocks.iter().any(|known| Arc::ptr_eq(known, block)) {
            blocks.push(Arc::clone(block));
        }
    }
    blocks
}

/// Begins the submission of a launch in `queue`.
pub(super) fn begin(memory: &[(Arc<GraphMemory>, bool)], queue: &Arc<Queue>) {
    let mut all = all();
    for block in blocks(memory) {
        let kept = all.entry(block.device().ordinal).or_default();
        let own = kept.pieces.iter().position(|piece| piece.is_of(&block));
        let free = || {
            let fits = |piece: &Piece| piece.bytes >= block.bytes() && piece.is_free(Some(queue));
            let pieces = kept.pieces.iter().enumerate().filter(|(_, piece)| fits(piece));
            pieces.min_by_key(|(_, piece)| piece.bytes).map(|(index, _)| index)
        };
        match own.or_else(free) {
            Some(index) => {
                let piece = &mut kept.pieces[index];
                (piece.block, piece.last) = (Arc::downgrade(&block), None);
            }
            None => {
                kept.pieces.push(Piece { bytes: block.bytes(), block: Arc::downgrade(&block), last: None });
                let bytes = kept.bytes();
                kept.high.iter_mut().for_each(|high| *high = bytes.max(*high));
            }
        }
    }
}

/// Ends the submission of a launch, which ends at `mark`.
pub(super) fn end(memory: &[(Arc<GraphMemory>, bool)], mark: &Mark) {
    let mut all = all();
    for block in blocks(memory) {
        let kept = all.entry(block.device().ordinal).or_default();
        for piece in kept.pieces.iter_mut().filter(|piece| piece.is_of(&block)) {
            piece.last = Some(mark.clone());
        }
    }
}

/// cuDeviceGraphMemTrim
pub(super) fn trim(device: &Device) {
    if let Some(kept) = all().get_mut(&device.ordinal) {
        kept.pieces.retain(|piece| !piece.is_free(None));
    }
}

/// cuDeviceGetGraphMemAttribute
pub(super) fn attribute(device: &Device, attribute: u32) -> CuResult<u64> {
    let mut all = all();
    let kept = all.entry(device.ordinal).or_default();
    match attribute {
        0 | 2 => Ok(kept.bytes()),
        1 | 3 => Ok(kept.high[attribute as usize / 2]),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// cuDeviceSetGraphMemAttribute: the high water marks can be reset.
pub(super) fn reset(device: &Device, attribute: u32, value: u64) -> CuResult<()> {
    if !matches!(attribute, 1 | 3) || value != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut all = all();
    let kept = all.entry(device.ordinal).or_default();
    kept.high[attribute as usize / 2] = kept.bytes();
    Ok(())
}

/// The number of live allocations in a block: at most one in a correct program.
#[derive(Default)]
pub(super) struct Live(AtomicU64);

impl Live {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}
