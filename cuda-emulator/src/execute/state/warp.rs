// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a warp while it does not run, and its memory.

use super::native::AtBarrier;
use crate::code::{LANES, Line, lanes_of};

/// The maximum number of bytes of registers of a warp's call stack: stops runaway recursion.
const MAX_REGISTER_BYTES: usize = 16 << 20;

/// One warp. `lane_pc` and `lane_base` are valid for the living lanes while the warp does not run, and for the lanes that are
/// not active while it does.
#[derive(Debug)]
pub(crate) struct Warp {
    /// Its number in the block.
    pub(crate) index: u32,
    pub(in crate::execute) registers: Vec<Line>,
    local: Vec<Line>,
    /// Bytes of local memory that each lane has; lane `n` has those from `n * stride` on.
    pub(in crate::execute) local_stride: u32,
    pub(in crate::execute) lane_pc: [u32; LANES],
    pub(in crate::execute) lane_base: [u32; LANES],
    /// Lanes that exist and have not exited.
    pub(crate) alive: u32,
    /// Lanes that wait at a block barrier.
    pub(in crate::execute) at_barrier: u32,
    /// Lanes that wait for others at a warp-synchronous instruction.
    pub(in crate::execute) at_sync: u32,
    /// Lanes of `at_barrier` that wait for the other blocks of the cluster.
    pub(in crate::execute) at_cluster: u32,
    /// The phase of the cluster's barrier in which each lane arrived last.
    pub(in crate::execute) arrived_phase: [u32; LANES],
    /// threadIdx.x, .y and .z.
    pub(in crate::execute) tid: [[u32; LANES]; 3],
    /// The lane that went on last when all had to take turns.
    pub(in crate::execute) favoured: u32,
    /// The lanes that were active at the end of its last turn.
    pub(in crate::execute) last: u32,
    /// It polled memory in its last turn, perhaps for a lane that waits for its own turn.
    pub(in crate::execute) polled: bool,
    /// True if it has not run yet: all its lanes are at the first instruction, and `lane_pc` and `lane_base` are not
    /// set.
    pub(in crate::execute) fresh: bool,
    /// The position of all its living lanes while they wait at a barrier. `lane_pc` and `lane_base` do not have it
    /// then.
    pub(in crate::execute) together: Option<(u32, u32)>,
    /// LOCAL_BASE and LOCAL_TOP of the kernel's frame are as at its start.
    pub(in crate::execute) prepared: bool,
    /// Registers that are not in the frame.
    pub(in crate::execute) resume: Option<AtBarrier>,
    pub(in crate::execute) barrier_words: Vec<u64>,
}

impl Warp {
    /// Warp `index` of a block of that shape.
    pub(in crate::execute) fn new(index: u32, shape: [u32; 3]) -> Warp {
        let threads = shape[0] * shape[1] * shape[2];
        let first = index * LANES as u32;
        let tid = [(1, shape[0]), (shape[0], shape[1]), (shape[0] * shape[1], u32::MAX)]
            .map(|(step, size)| std::array::from_fn(|lane| (first + lane as u32) / step % size));
        let count = threads.saturating_sub(first).min(LANES as u32);
        Warp {
            index,
            registers: Vec::new(),
            local: Vec::new(),
            local_stride: 0,
            lane_pc: [0; LANES],
            lane_base: [0; LANES],
            alive: if count == 32 { u32::MAX } else { (1 << count) - 1 },
            at_barrier: 0,
            at_sync: 0,
            at_cluster: 0,
            arrived_phase: [0; LANES],
            tid,
            favoured: 0,
            last: 0,
            polled: false,
            fresh: false,
            together: None,
            prepared: false,
            resume: None,
            barrier_words: Vec::new(),
        }
    }

    /// threadIdx of a lane.
    pub(in crate::execute) fn thread_of(&self, lane: usize) -> [u32; 3] {
        [self.tid[0][lane], self.tid[1][lane], self.tid[2][lane]]
    }

    /// Makes room for `bytes` bytes of registers, which may move them. Returns false if that is too much.
    pub(in crate::execute) fn ensure_registers(&mut self, bytes: usize) -> bool {
        let lines = bytes.div_ceil(size_of::<Line>());
        if lines > self.registers.len() {
            if bytes > MAX_REGISTER_BYTES && !self.registers.is_empty() {
                return false;
            }
            // Twice as much each time: a recursion must not copy at every step.
            let lines = lines.max(if self.registers.is_empty() { 0 } else { self.registers.len() * 2 });
            self.registers.resize(lines, Line([0; 64]));
        }
        true
    }

    /// Grows the local memory of every lane to at least `bytes` bytes, which may move it. Returns false if that
    /// exceeds `limit`.
    pub(in crate::execute) fn ensure_local(&mut self, bytes: u32, limit: u32) -> bool {
        if bytes <= self.local_stride {
            return true;
        }
        if bytes > limit {
            return false;
        }
        let stride = bytes.max(self.local_stride.saturating_mul(2).min(limit)).next_multiple_of(64) as usize;
        let old_stride = self.local_stride as usize;
        let mut local = vec![Line([0; 64]); stride * LANES / size_of::<Line>()];
        for lane in lanes_of(if old_stride > 0 { u32::MAX } else { 0 }) {
            let from = lane * old_stride / size_of::<Line>();
            let to = lane * stride / size_of::<Line>();
            let lines = old_stride / size_of::<Line>();
            local[to..to + lines].copy_from_slice(&self.local[from..from + lines]);
        }
        self.local = local;
        self.local_stride = stride as u32;
        true
    }

    /// The frame at an offset of the registers.
    pub(in crate::execute) fn frame_at(&mut self, base: u32) -> *mut u8 {
        self.registers.as_mut_ptr().cast::<u8>().wrapping_add(base as usize)
    }

    /// The local memory of all lanes.
    pub(in crate::execute) fn local_ptr(&mut self) -> *mut u8 {
        self.local.as_mut_ptr().cast()
    }
}

/// Registers of a warp that does not run; `place` is the byte offset of the register.
impl Warp {
    /// Writes one lane of a 32-bit register.
    pub(in crate::execute) fn write_register(&mut self, place: usize, lane: usize, value: u32) {
        let at = place + lane * 4;
        if let Some(Line(bytes)) = self.registers.get_mut(at / 64) {
            bytes[at % 64..at % 64 + 4].copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// Writes all lanes of a 32-bit register, which begins a line.
    pub(in crate::execute) fn fill_register(&mut self, place: usize, value: u32) {
        let first = place / size_of::<Line>();
        let bytes = value.to_ne_bytes();
        let line = Line(std::array::from_fn(|index| bytes[index % 4]));
        let count = LANES * 4 / size_of::<Line>();
        if let Some(lines) = self.registers.get_mut(first..first + count) {
            lines.fill(line);
        }
    }

    /// Writes one lane of a predicate.
    pub(in crate::execute) fn write_predicate(&mut self, place: usize, lane: usize, value: bool) {
        if let Some(Line(bytes)) = self.registers.get_mut(place / 64) {
            let word = &mut bytes[place % 64..place % 64 + 4];
            let old = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            let new = if value { old | 1 << lane } else { old & !(1 << lane) };
            word.copy_from_slice(&new.to_ne_bytes());
        }
    }
}
