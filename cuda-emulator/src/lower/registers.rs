// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places for virtual registers: those that are never alive at the same time share one, so that the registers of a warp fit
//! the host's first-level cache.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::draft::{After, Arg, Draft, Label, Width};
use crate::code::frame;

/// Bits of the liveness sets beyond which every register gets a place of its own.
const MAX_LIVENESS_BITS: usize = 1 << 29;

/// The position of each register in the frame, and the size of the frame.
pub(super) struct Assignment {
    pub(super) offsets: Vec<u32>,
    pub(super) frame_bytes: u64,
    /// The number of 32-bit registers that are needed at the same time.
    pub(super) pressure: u32,
}

/// Assigns places. `labels` are positions in `drafts`.
pub(super) fn assign(drafts: &[Draft], widths: &[Width], labels: &[usize]) -> Assignment {
    let intervals = live_intervals(drafts, widths.len(), labels);
    let mut order: Vec<usize> = (0..widths.len()).filter(|r| intervals[*r].0 <= intervals[*r].1).collect();
    order.sort_by_key(|register| intervals[*register].0);
    let classes = [Width::B128, Width::B64, Width::B32, Width::B16, Width::Predicate];
    let mut free: [Vec<u32>; 5] = Default::default();
    let mut used = [0_u32; 5];
    let mut slots = vec![0_u32; widths.len()];
    let mut active: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
    let class = |register: usize| match widths[register] {
        Width::B128 => 0,
        Width::B64 => 1,
        Width::B32 => 2,
        Width::B16 => 3,
        Width::Predicate => 4,
    };
    for register in order {
        let (start, end) = intervals[register];
        while let Some(Reverse((ended, other))) = active.peek().copied() {
            if ended >= start {
                break;
            }
            active.pop();
            free[class(other)].push(slots[other]);
        }
        let class = class(register);
        slots[register] = free[class].pop().unwrap_or_else(|| {
            used[class] += 1;
            used[class] - 1
        });
        active.push(Reverse((end, register)));
    }
    let mut starts = [0_u64; 5];
    let mut next = u64::from(frame::HEADER);
    for index in 0..5 {
        starts[index] = next;
        next += u64::from(used[index]) * u64::from(classes[index].slot_bytes());
        next = next.next_multiple_of(64);
    }
    let offset = |register: usize| {
        let class = class(register);
        starts[class] + u64::from(slots[register]) * u64::from(classes[class].slot_bytes())
    };
    let wide = used[0].saturating_mul(4).saturating_add(used[1].saturating_mul(2));
    let pressure = wide.saturating_add(used[2]).saturating_add(used[3]);
    Assignment {
        offsets: (0..widths.len()).map(|register| u32::try_from(offset(register)).unwrap_or(0)).collect(),
        frame_bytes: next,
        pressure,
    }
}

/// First and last draft at which each register holds a value that is still wanted; first > last for unused ones.
fn live_intervals(drafts: &[Draft], registers: usize, labels: &[usize]) -> Vec<(usize, usize)> {
    let mut intervals = vec![(usize::MAX, 0); registers];
    let mut extend = |register: usize, at: usize| {
        let interval = &mut intervals[register];
        *interval = (interval.0.min(at), interval.1.max(at));
    };
    for (at, draft) in drafts.iter().enumerate() {
        for (register, _) in mentioned(draft) {
            extend(register, at);
        }
    }
    let blocks = Blocks::new(drafts, labels);
    let words = registers.div_ceil(64);
    if blocks.starts.len().saturating_mul(registers) > MAX_LIVENESS_BITS {
        return vec![(0, drafts.len()); registers];
    }
    let live_in = blocks.live_in(drafts, words);
    for (block, live) in live_in.chunks(words.max(1)).enumerate() {
        let start = blocks.starts[block];
        for register in ones(live) {
            extend(register, start);
        }
        for successor in &blocks.successors[block] {
            for register in ones(&live_in[successor * words..(successor + 1) * words]) {
                extend(register, blocks.end(block, drafts.len()) - 1);
            }
        }
    }
    intervals
}

fn ones(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(index, word)| {
        let mut word = *word;
        std::iter::from_fn(move || {
            let bit = word.checked_ilog2()?;
            word ^= 1 << bit;
            Some(index * 64 + bit as usize)
        })
    })
}

/// The registers of a draft; true for those it overwrites in every lane that executes it.
fn mentioned(draft: &Draft) -> impl Iterator<Item = (usize, bool)> + '_ {
    let operands = draft.ops.iter().chain(&draft.more).filter_map(|arg| match arg {
        Arg::Def(register) => Some((register.0 as usize, draft.guard.is_none())),
        Arg::Use(register) => Some((register.0 as usize, false)),
        Arg::None | Arg::Constant(_) => None,
    });
    operands.chain(draft.guard.map(|(register, _)| (register.0 as usize, false)))
}

/// Returns the registers that the draft reads, or keeps by a guarded write.
fn reads(draft: &Draft) -> impl Iterator<Item = usize> + '_ {
    mentioned(draft).filter(|(_, overwritten)| !overwritten).map(|(register, _)| register)
}

/// The control flow graph.
struct Blocks {
    starts: Vec<usize>,
    successors: Vec<Vec<usize>>,
}

impl Blocks {
    fn new(drafts: &[Draft], labels: &[usize]) -> Blocks {
        let mut is_start = vec![false; drafts.len() + 1];
        is_start[0] = true;
        for position in labels {
            is_start[*position] = true;
        }
        for (at, draft) in drafts.iter().enumerate() {
            if draft.after != After::Next {
                is_start[at + 1] = true;
            }
        }
        let starts: Vec<usize> = (0..drafts.len()).filter(|at| is_start[*at]).collect();
        let mut blocks = Blocks { starts, successors: Vec::new() };
        for block in 0..blocks.starts.len() {
            let end = blocks.end(block, drafts.len());
            let last = &drafts[end - 1];
            let mut next = Vec::new();
            let mut go = |label: &Label| next.extend(blocks.containing(labels[label.0]));
            match &last.after {
                After::Jump(label) => go(label),
                After::Table(table) => table.iter().for_each(go),
                After::Next | After::End => {}
            }
            if last.after == After::Next || last.guard.is_some() {
                next.extend(blocks.containing(end));
            }
            next.sort_unstable();
            next.dedup();
            blocks.successors.push(next);
        }
        blocks
    }

    fn end(&self, block: usize, total: usize) -> usize {
        self.starts.get(block + 1).copied().unwrap_or(total)
    }

    fn containing(&self, position: usize) -> Option<usize> {
        self.starts.binary_search(&position).ok()
    }

    /// The registers that are alive at the start of each block, `words` words each.
    fn live_in(&self, drafts: &[Draft], words: usize) -> Vec<u64> {
        let count = self.starts.len();
        let mut needed = vec![0_u64; count * words];
        let mut written = vec![0_u64; count * words];
        for block in 0..count {
            let row = block * words;
            for draft in &drafts[self.starts[block]..self.end(block, drafts.len())] {
                for register in reads(draft) {
                    if written[row + register / 64] & (1 << (register % 64)) == 0 {
                        needed[row + register / 64] |= 1 << (register % 64);
                    }
                }
                for (register, _) in mentioned(draft).filter(|(_, overwritten)| *overwritten) {
                    written[row + register / 64] |= 1 << (register % 64);
                }
            }
        }
        let mut live = needed.clone();
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..count).rev() {
                for successor in &self.successors[block] {
                    for word in 0..words {
                        let row = block * words + word;
                        let new = live[row] | (live[successor * words + word] & !written[row]);
                        changed |= new != live[row];
                        live[row] = new;
                    }
                }
            }
        }
        live
    }
}
