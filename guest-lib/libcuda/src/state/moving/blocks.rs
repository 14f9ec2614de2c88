// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The owner of each block's contents, and the number of blocks that a touch of the program fetches.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 64 << 10;
/// Maximum number of blocks that one touch fetches: 32 MiB.
const MAX_AHEAD: usize = 512;

/// The owner of a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The block was never written.
    Nobody,
    /// The program: its pages are mapped, and it may have written them.
    Program,
    /// The GPU: the pages are not mapped in the program.
    Gpu,
    /// The GPU, whose work goes on; the program has a copy, the changes of which are sent later ([`crate::memory::moving::shared`]).
    Shared,
}

/// The contents of shared blocks when the program got them. Each shared block has one.
pub type Twins = BTreeMap<usize, Box<[u8]>>;

/// Adjacent blocks with the same owner.
pub type Run = (Owner, Range<usize>);

/// The blocks of an allocation.
#[derive(Debug)]
pub struct Blocks {
    owners: Vec<Owner>,
    /// The block that a program with sequential access touches next.
    next: usize,
    /// Number of blocks that the last touch fetched.
    ahead: usize,
}

impl Blocks {
    /// Returns the blocks of `bytes` bytes, none of which was written.
    pub fn new(bytes: u64) -> Self {
        Self { owners: vec![Owner::Nobody; bytes.div_ceil(BLOCK_BYTES) as usize], next: 0, ahead: 1 }
    }

    /// Returns the blocks that contain any of `bytes` bytes from `offset` on, clipped to the allocation.
    pub fn holding(&self, offset: u64, bytes: u64) -> Range<usize> {
        let end = offset.saturating_add(bytes).div_ceil(BLOCK_BYTES).min(self.owners.len() as u64);
        (offset / BLOCK_BYTES).min(end) as usize..end as usize
    }

    /// Returns the owner of a block.
    pub fn owner(&self, block: usize) -> Owner {
        self.owners[block]
    }

    /// Sets the owner of blocks.
    pub fn set(&mut self, blocks: Range<usize>, owner: Owner) {
        self.owners[blocks].fill(owner);
    }

    /// Returns the blocks of `range` that the GPU does not own, in runs.
    pub fn not_on_the_gpu(&self, range: Range<usize>) -> Vec<Run> {
        self.runs(range).filter(|(owner, _)| *owner != Owner::Gpu).collect()
    }

    /// Returns the blocks of `range` that are shared, in runs.
    pub fn shared(&self, range: Range<usize>) -> Vec<Range<usize>> {
        self.runs(range).filter(|(owner, _)| *owner == Owner::Shared).map(|(_, run)| run).collect()
    }

    /// Returns the blocks of `range` that the program does not own, in runs.
    pub fn not_in_the_program(&self, range: Range<usize>) -> Vec<Run> {
        self.runs(range).filter(|(owner, _)| *owner != Owner::Program).collect()
    }

    fn runs(&self, range: Range<usize>) -> impl Iterator<Item = Run> {
        let first = range.start;
        let chunks = self.owners[range].chunk_by(|one, other| one == other);
        chunks.scan(first, |at, run| {
            let start = *at;
            *at += run.len();
            Some((run[0], start..*at))
        })
    }

    /// Returns the blocks to fetch when the program touches `block`. Blocks with the same owner after it are included:
    /// twice as many each time while the access is sequential.
    pub fn touched(&mut self, block: usize) -> Range<usize> {
        self.ahead = if block == self.next { (self.ahead * 2).min(MAX_AHEAD) } else { 1 };
        let owner = self.owners[block];
        let same = self.owners[block..].iter().take(self.ahead).take_while(|other| **other == owner).count();
        self.next = block + same;
        block..block + same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_as_long_as_they_can_be() {
        let mut blocks = Blocks::new(8 * BLOCK_BYTES);
        blocks.set(2..5, Owner::Gpu);
        blocks.set(5..6, Owner::Program);
        let (nobody, program) = (Owner::Nobody, Owner::Program);
        assert_eq!(blocks.not_on_the_gpu(0..8), [(nobody, 0..2), (program, 5..6), (nobody, 6..8)]);
        assert_eq!(blocks.not_on_the_gpu(1..6), [(nobody, 1..2), (program, 5..6)]);
        assert_eq!(blocks.not_in_the_program(4..7), [(Owner::Gpu, 4..5), (nobody, 6..7)]);
        assert!(blocks.not_on_the_gpu(2..5).is_empty() && blocks.not_on_the_gpu(3..3).is_empty());
    }

    #[test]
    fn a_part_of_a_block_is_the_block() {
        let blocks = Blocks::new(3 * BLOCK_BYTES);
        assert_eq!(blocks.holding(1, 1), 0..1);
        assert_eq!(blocks.holding(BLOCK_BYTES - 1, 2), 0..2);
        assert_eq!(blocks.holding(BLOCK_BYTES, u64::MAX), 1..3);
        assert!(blocks.holding(9 * BLOCK_BYTES, 1).is_empty());
        assert!(blocks.holding(BLOCK_BYTES, 0).is_empty());
    }

    #[test]
    fn a_program_that_goes_from_front_to_back_gets_more_each_time() {
        let mut blocks = Blocks::new(4096 * BLOCK_BYTES);
        let (mut at, mut lengths) = (0, Vec::new());
        while at < 4096 {
            let run = blocks.touched(at);
            lengths.push(run.len());
            blocks.set(run.clone(), Owner::Program);
            at = run.end;
        }
        assert_eq!(&lengths[..9], [2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert!(lengths[9..lengths.len() - 1].iter().all(|&length| length == MAX_AHEAD));
    }

    #[test]
    fn a_program_that_jumps_gets_one_and_only_of_the_same_owner() {
        let mut blocks = Blocks::new(64 * BLOCK_BYTES);
        blocks.set(0..32, Owner::Gpu);
        assert_eq!(blocks.touched(7), 7..8);
        assert_eq!(blocks.touched(8), 8..10);
        assert_eq!(blocks.touched(31), 31..32);
        assert_eq!(blocks.touched(32), 32..34, "goes on behind the GPU's");
        assert_eq!(blocks.touched(20), 20..21);
        assert_eq!(blocks.touched(63), 63..64);
    }
}
