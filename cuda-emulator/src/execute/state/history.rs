// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of memory accesses for `CUDA_EMULATOR_CHECK`.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::checks::checks;

/// More than one warp or block has read.
pub(in crate::execute) const SEVERAL: u32 = u32::MAX;

/// The last access to a byte of shared memory. Epoch 0 means none; each barrier begins a new epoch.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::execute) struct Cell {
    pub(in crate::execute) write_epoch: u32,
    pub(in crate::execute) read_epoch: u32,
    pub(in crate::execute) writer: u32,
    pub(in crate::execute) reader: u32,
    pub(in crate::execute) line: u32,
    pub(in crate::execute) atomic: bool,
}

/// The history of a block's shared memory.
#[derive(Debug)]
pub(in crate::execute) struct Shadow {
    pub(in crate::execute) cells: Vec<Cell>,
    pub(in crate::execute) epoch: u32,
    /// The block has done an atomic operation or a volatile read: it may know what others did.
    pub(in crate::execute) synchronised: bool,
}

impl Shadow {
    /// For a block with `bytes` bytes of shared memory, if anything is to be checked.
    pub(in crate::execute) fn new(bytes: u32) -> Option<Box<Shadow>> {
        let shadow = || {
            Box::new(Shadow { cells: vec![Cell::default(); bytes as usize], epoch: 1, synchronised: false })
        };
        checks().any().then(shadow)
    }

    /// For the next block.
    pub(in crate::execute) fn reset(&mut self) {
        self.cells.fill(Cell::default());
        self.epoch = 1;
        self.synchronised = false;
    }

    /// Begins a new epoch at a barrier, which orders later accesses after earlier ones.
    pub(in crate::execute) fn next_epoch(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
    }
}

/// The accesses to a word of global memory.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::execute) struct Word {
    /// The number of the block that wrote it, plus 1.
    pub(in crate::execute) writer: u32,
    pub(in crate::execute) reader: u32,
    pub(in crate::execute) line: u32,
}

/// The history of global memory during a launch.
#[derive(Debug, Default)]
pub(in crate::execute) struct History(pub(in crate::execute) Mutex<HashMap<u64, Word>>);
