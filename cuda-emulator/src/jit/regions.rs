// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Branches at which lanes may diverge for a short while: `if`s without loops. The blocks between such a branch and
//! the point where all lanes reconverge are executed one after the other, each for the lanes that take it. This is
//! the order of the interpreter. A block that no lane takes is skipped.

use super::flow::Flow;
use super::kinds::{self, State};
use super::meaning::Meaning;
use crate::code::Next;
use crate::native::shape::{Kind, Shape};

/// Blocks of a region beyond which the lanes rather part.
const MAX_BLOCKS: usize = 24;
/// Instructions of it: all of them may be executed where one part would do.
const MAX_INSTRUCTIONS: u32 = 400;

impl Flow<'_> {
    /// Finds the regions after branches that are not uniform according to `kinds`; blocks in them become conditional.
    pub(super) fn find_regions(&mut self, kinds: &[Option<State>], shape: Shape) {
        let mut head = 0;
        while head < self.blocks.len() {
            let end = self.region(head, kinds, shape);
            if let Some(end) = end {
                for block in head + 1..end {
                    self.blocks[block].region = Some(end);
                }
            }
            head = end.unwrap_or(head + 1);
        }
        self.relink();
    }

    /// The block at which the lanes that part at the end of block `head` are together again.
    fn region(&self, head: usize, kinds: &[Option<State>], shape: Shape) -> Option<usize> {
        let block = &self.blocks[head];
        let last = block.end - 1;
        let (guard, _) = self.guard(last)?;
        if self.next(last) != Next::Jump {
            return None;
        }
        let mut state = kinds[head].clone()?;
        for pc in block.start..last {
            kinds::step(self, shape, pc, &mut state);
        }
        if state[guard] == Kind::Uniform {
            return None;
        }
        let mut end = self.block_at(self.instr(last).imm as u32)?;
        let mut index = head + 1;
        while index < end {
            if end - head > MAX_BLOCKS || !self.is_simple(index) {
                return None;
            }
            for successor in &self.blocks[index].successors {
                if *successor <= index {
                    return None;
                }
                end = end.max(*successor);
            }
            index += 1;
        }
        let inside = head + 1..end;
        let entered = self.blocks.iter().enumerate().any(|(from, block)| {
            let outside = from != head && !inside.contains(&from);
            outside && block.successors.iter().any(|to| inside.contains(to))
        });
        let count = self.blocks.get(end)?.start.checked_sub(block.end)?;
        (!inside.is_empty() && !entered && count <= MAX_INSTRUCTIONS).then_some(end)
    }

    /// Returns whether nothing in a block leaves translated code, faults aside.
    fn is_simple(&self, block: usize) -> bool {
        let block = &self.blocks[block];
        (block.start..block.end).all(|pc| {
            let plain = match self.meaning(pc) {
                Meaning::Call => self.code.shapes[pc as usize].stays || self.next(pc) == Next::Jump,
                Meaning::Exit | Meaning::Shuffle(_) => false,
                _ => true,
            };
            plain && !self.leaves(pc)
        })
    }
}
