// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control flow of a function, its registers, and which of them are alive where.

use std::collections::{BTreeSet, HashMap};

use super::meaning::{Meaning, meaning};
use crate::code::{Code, Function, GUARD_NOT, Instr, NO_GUARD, Next};

/// Instructions of a function beyond which it is not translated: translation takes some 50 µs an instruction.
const MAX_INSTRUCTIONS: usize = 6000;
/// Registers of such a function.
const MAX_REGISTERS: usize = 4096;

/// A set of registers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Set(Vec<u64>);

impl Set {
    fn new(count: usize) -> Set {
        Set(vec![0; count.div_ceil(64)])
    }

    pub(super) fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    /// Adds all of `other`; whether that changed anything.
    pub(super) fn unite(&mut self, other: &Set) -> bool {
        let mut changed = false;
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            changed |= *more & !*word != 0;
            *word |= more;
        }
        changed
    }

    pub(super) fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 != 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = word.checked_ilog2()?;
                word ^= 1 << bit;
                Some(index * 64 + bit as usize)
            })
        })
    }
}

/// A register of the frame. Values that are never alive together may share one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Register {
    /// Its offset in the frame.
    pub(super) place: u32,
    /// Bytes of a lane, 0 for predicates.
    pub(super) bytes: u8,
}

/// Instructions of which only the first is jumped to and only the last jumps.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Blocks that follow: of a branch at which the lanes part for a region (`regions`) the next one only, and of a block in
    /// the region the next one in any case.
    pub(super) successors: Vec<usize>,
    /// It is executed by some lanes only; all are together again at this block.
    pub(super) region: Option<usize>,
    pub(super) live_in: Set,
}

/// A function, analysed.
pub(super) struct Flow<'c> {
    pub(super) code: &'c Code,
    pub(super) start: u32,
    pub(super) registers: Vec<Register>,
    by_place: HashMap<u32, usize>,
    pub(super) meanings: Vec<Meaning>,
    pub(super) blocks: Vec<Block>,
}

impl<'c> Flow<'c> {
    /// `None` when the function is too large.
    pub(super) fn new(code: &'c Code, function: &Function) -> Option<Flow<'c>> {
        let (start, end) = (function.entry_pc, function.end_pc);
        let count = end.checked_sub(start)? as usize;
        if count == 0 || count > MAX_INSTRUCTIONS {
            return None;
        }
        let mut flow = Flow {
            code,
            start,
            registers: Vec::new(),
            by_place: HashMap::new(),
            meanings: code.instrs[start as usize..end as usize].iter().map(meaning).collect(),
            blocks: Vec::new(),
        };
        let (first, last) = (code.shapes[start as usize].first, code.shapes[end as usize].first);
        for mention in &code.mentions[first as usize..last as usize] {
            let registers = &mut flow.registers;
            flow.by_place.entry(mention.place).or_insert_with(|| {
                registers.push(Register { place: mention.place, bytes: mention.bytes });
                registers.len() - 1
            });
        }
        if flow.registers.len() > MAX_REGISTERS {
            return None;
        }
        flow.find_blocks(end);
        flow.find_live();
        Some(flow)
    }

    pub(super) fn instr(&self, pc: u32) -> &'c Instr {
        &self.code.instrs[pc as usize]
    }

    pub(super) fn meaning(&self, pc: u32) -> Meaning {
        self.meanings[(pc - self.start) as usize]
    }

    /// Returns whether an instruction is executed by its handler in any case.
    pub(super) fn is_called(&self, pc: u32) -> bool {
        match self.meaning(pc) {
            Meaning::Call => self.next(pc) == Next::Following,
            Meaning::Load(_) | Meaning::Store(_) => !super::kinds::is_plain(self.instr(pc)),
            _ => false,
        }
    }

    pub(super) fn next(&self, pc: u32) -> Next {
        self.code.shapes[pc as usize].next
    }

    /// The register at an operand's place.
    pub(super) fn register(&self, place: u32) -> usize {
        self.by_place[&place]
    }

    /// The guard predicate, and whether it is negated.
    pub(super) fn guard(&self, pc: u32) -> Option<(usize, bool)> {
        let guard = self.instr(pc).guard;
        (guard != NO_GUARD).then(|| (self.register(guard & !GUARD_NOT), guard & GUARD_NOT != 0))
    }

    /// The block that starts at a position.
    pub(super) fn block_at(&self, pc: u32) -> Option<usize> {
        self.blocks.binary_search_by_key(&pc, |block| block.start).ok()
    }

    /// Returns the end of the block with an instruction.
    pub(super) fn end_of_block(&self, pc: u32) -> u32 {
        let behind = self.blocks.partition_point(|block| block.start <= pc);
        self.blocks[behind.saturating_sub(1)].end
    }

    /// The registers that an instruction mentions, and whether it writes them.
    pub(super) fn mentions(&self, pc: u32) -> impl Iterator<Item = (usize, bool)> + '_ {
        let shapes = &self.code.shapes;
        let (first, last) = (shapes[pc as usize].first, shapes[pc as usize + 1].first);
        let mentions = &self.code.mentions[first as usize..last as usize];
        mentions.iter().map(|mention| (self.by_place[&mention.place], mention.written))
    }

    /// Returns whether the interpreter executes the instruction, because it selects the running lanes again.
    pub(super) fn leaves(&self, pc: u32) -> bool {
        let shape = self.code.shapes[pc as usize];
        let ends = shape.next == Next::Table || shape.next == Next::Nowhere;
        let handler = self.instr(pc).run as usize;
        let known = [crate::execute::control::call(), crate::execute::barrier::barrier()];
        self.meaning(pc) != Meaning::Exit && (ends || known.iter().any(|leave| *leave as usize == handler))
    }

    fn find_blocks(&mut self, end: u32) {
        let mut starts = BTreeSet::from([self.start]);
        for pc in self.start..end {
            let next = self.next(pc);
            match next {
                Next::Jump => drop(starts.insert(self.instr(pc).imm as u32)),
                Next::Table => starts.extend(&self.code.tables[self.instr(pc).imm as usize]),
                Next::Following | Next::Nowhere => {}
            }
            if next != Next::Following || self.leaves(pc) {
                starts.insert(pc + 1);
            }
        }
        let starts: Vec<u32> = starts.into_iter().filter(|pc| (self.start..end).contains(pc)).collect();
        let ends = starts.iter().skip(1).copied().chain([end]);
        let count = self.registers.len();
        self.blocks = starts
            .iter()
            .zip(ends)
            .map(|(start, end)| Block {
                start: *start,
                end,
                successors: Vec::new(),
                region: None,
                live_in: Set::new(count),
            })
            .collect();
        for index in 0..self.blocks.len() {
            let end = self.blocks[index].end;
            let last = end - 1;
            let next = self.next(last);
            let mut successors = Vec::new();
            match next {
                Next::Jump => successors.extend(self.block_at(self.instr(last).imm as u32)),
                Next::Table => {
                    let table = &self.code.tables[self.instr(last).imm as usize];
                    successors.extend(table.iter().filter_map(|pc| self.block_at(*pc)));
                }
                Next::Following | Next::Nowhere => {}
            }
            if next == Next::Following || self.instr(last).guard != NO_GUARD {
                successors.extend(self.block_at(end));
            }
            self.blocks[index].successors = successors;
        }
    }

    /// Links the blocks of each region to one chain.
    pub(super) fn relink(&mut self) {
        for index in 0..self.blocks.len() {
            if self.blocks[index].region.is_some() || self.heads_region(index) {
                self.blocks[index].successors = vec![index + 1];
            }
        }
        let count = self.registers.len();
        self.blocks.iter_mut().for_each(|block| block.live_in = Set::new(count));
        self.find_live();
    }

    /// Returns whether the lanes diverge after a block.
    pub(super) fn heads_region(&self, index: usize) -> bool {
        let inside = |index: usize| self.blocks.get(index).is_some_and(|block| block.region.is_some());
        let first = inside(index + 1) && self.blocks[index].region != self.blocks[index + 1].region;
        first && self.blocks[index].region.is_none_or(|end| end == index + 1)
    }

    fn find_live(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for index in (0..self.blocks.len()).rev() {
                let mut live = self.live_out(index);
                for pc in (self.blocks[index].start..self.blocks[index].end).rev() {
                    self.before(pc, &mut live);
                }
                if self.blocks[index].region.is_some() {
                    // The lanes that skip it keep theirs.
                    let behind = self.live_out(index);
                    live.unite(&behind);
                }
                changed |= self.blocks[index].live_in.unite(&live);
            }
        }
    }

    /// Returns the registers that are live after a block.
    pub(super) fn live_out(&self, block: usize) -> Set {
        let mut live = Set::new(self.registers.len());
        for successor in &self.blocks[block].successors {
            live.unite(&self.blocks[*successor].live_in);
        }
        live
    }

    /// Converts the registers that are live after an instruction to those that are live before it.
    fn before(&self, pc: u32, live: &mut Set) {
        let guarded = self.instr(pc).guard != NO_GUARD;
        if !guarded {
            self.mentions(pc).filter(|mention| mention.1).for_each(|mention| live.remove(mention.0));
        }
        let reads = self.mentions(pc).filter(|mention| guarded || !mention.1);
        reads.for_each(|mention| live.insert(mention.0));
    }

    /// Returns the registers that are live after each instruction of a block, in order, and before the first.
    pub(super) fn live_behind(&self, block: usize) -> (Set, Vec<Set>) {
        let Block { start, end, .. } = self.blocks[block];
        let mut live = self.live_out(block);
        let mut sets = Vec::with_capacity((end - start) as usize);
        for pc in (start..end).rev() {
            sets.push(live.clone());
            self.before(pc, &mut live);
        }
        sets.reverse();
        (live, sets)
    }
}
