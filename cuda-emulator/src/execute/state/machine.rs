// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One worker's view of the warp that it runs: registers, active lanes, and how it got there.

use super::block::Block;
use super::grid::Grid;
use super::native::NativeState;
use super::ranges::RangeCache;
use super::warp::Warp;
use crate::code::{CONSTANT, FULL, Instr, LANES, frame, lanes_of};
use crate::launch::{Fault, FaultKind};

/// A handler's result: the next step of the main loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Go on with the next instruction.
    Next,
    /// The lanes in `mask` go on at `imm`, the others with the next instruction.
    Jump,
    /// The handler has set `lane_pc` of every active lane (or blocked or ended it): the running lanes must be
    /// selected again.
    Switch,
    /// `machine.fault` is set.
    Fault,
}

/// # Invariants
/// `frame` points to the frame of the running function inside the running warp's registers, which are large enough for
/// it; `constants` to the program's pool. Both hold while a handler runs. `mask` is a subset of `active`, which is a subset
/// of the warp's living lanes.
pub(crate) struct Machine<'l> {
    pub(in crate::execute) frame: *mut u8,
    pub(in crate::execute) constants: *const u8,
    /// The lanes that execute the current instruction.
    pub(crate) mask: u32,
    /// The lanes that are at `pc`.
    pub(in crate::execute) active: u32,
    pub(in crate::execute) pc: u32,
    /// Offset of `frame` in the warp's registers.
    pub(in crate::execute) base: u32,
    /// The lowest pc at which other lanes of the same frame wait, or `u32::MAX`.
    pub(in crate::execute) merge_pc: u32,
    /// Execute a warp-synchronous instruction without its missing lanes, which can never arrive.
    pub(in crate::execute) force: bool,
    /// The number of backward jumps and calls that are left in this turn.
    pub(in crate::execute) budget: u32,
    /// The index of the running warp in the block.
    pub(in crate::execute) current: usize,
    pub(in crate::execute) block: Box<Block>,
    pub(in crate::execute) grid: &'l Grid<'l>,
    pub(in crate::execute) ranges: RangeCache,
    /// The CPU has the wide vectors of `lanes`.
    pub(in crate::execute) wide: bool,
    /// Every access is inspected.
    pub(in crate::execute) checks: bool,
    pub(in crate::execute) fault: Option<Box<Fault>>,
    /// Translated code; `None` when everything is interpreted.
    pub(in crate::execute) native: Option<Box<NativeState<'l>>>,
}

/// A register or constant as lanes of `T`, whose size is the register's width.
impl Machine<'_> {
    /// Returns the address of a source operand.
    ///
    /// # Safety
    /// `op` is an operand of the current instruction.
    #[inline(always)]
    pub(crate) unsafe fn source<T>(&self, op: u32) -> *const T {
        let base = if op & CONSTANT != 0 { self.constants } else { self.frame.cast_const() };
        // SAFETY: `op` is an operand of the current instruction by this function's contract, and those lie inside the
        // frame or the pool (invariant of the type).
        unsafe { base.add((op & !CONSTANT) as usize).cast() }
    }

    /// Returns the address of a destination.
    ///
    /// # Safety
    /// As [`Self::source`]; `op` is a register.
    #[inline(always)]
    pub(crate) unsafe fn target<T>(&self, op: u32) -> *mut T {
        // SAFETY: `op` is a register of the current instruction by this function's contract, and those lie inside the
        // frame (invariant of the type).
        unsafe { self.frame.add(op as usize).cast() }
    }

    /// All lanes of a source operand.
    ///
    /// # Safety
    /// As [`Self::source`], with `T` as wide as the register.
    #[inline(always)]
    pub(crate) unsafe fn lanes<T: Copy>(&self, op: u32) -> [T; LANES] {
        // SAFETY: a register has 32 lanes; every bit pattern is a value of the lane types that are used here.
        unsafe { *self.source::<[T; LANES]>(op) }
    }

    /// The bits of a predicate operand.
    ///
    /// # Safety
    /// As [`Self::source`]; `op` is a predicate.
    #[inline(always)]
    pub(crate) unsafe fn predicate(&self, op: u32) -> u32 {
        // SAFETY: predicates are 4 bytes.
        unsafe { *self.source::<u32>(op) }
    }

    /// Sets a predicate for the lanes in `mask`.
    ///
    /// # Safety
    /// As [`Self::target`]; `op` is a predicate.
    #[inline(always)]
    pub(crate) unsafe fn set_predicate(&mut self, op: u32, bits: u32) {
        // SAFETY: predicates are 4 bytes.
        unsafe {
            let target = self.target::<u32>(op);
            *target = (*target & !self.mask) | (bits & self.mask);
        }
    }

    /// Writes `values` to the lanes in `mask`.
    ///
    /// # Safety
    /// As [`Self::target`], with `T` as wide as the register.
    #[inline(always)]
    pub(crate) unsafe fn set_lanes<T: Copy>(&mut self, op: u32, values: &[T; LANES]) {
        // SAFETY: a register has 32 lanes of the width of `T`, which nothing else refers to while a handler runs.
        unsafe {
            let target = self.target::<[T; LANES]>(op);
            if self.mask == FULL {
                *target = *values;
            } else {
                for lane in lanes_of(self.mask) {
                    (*target)[lane] = values[lane];
                }
            }
        }
    }

    /// The running warp.
    #[inline(always)]
    pub(crate) fn warp(&mut self) -> &mut Warp {
        &mut self.block.warps[self.current]
    }

    /// Returns the start of lane `lane`'s local memory of the running function.
    ///
    /// # Safety
    /// A function runs: its frame header is valid.
    #[inline(always)]
    pub(in crate::execute) unsafe fn local_start(&mut self, lane: usize) -> *mut u8 {
        // SAFETY: LOCAL_BASE has 32 lanes; it lies within the local memory of its lane, which starts at lane * stride.
        unsafe {
            let base = *self.source::<u32>(frame::LOCAL_BASE).add(lane) as usize;
            let warp = self.warp();
            let stride = warp.local_stride as usize;
            warp.local_ptr().add(lane * stride + base)
        }
    }

    /// Stops the kernel: `lane` did something wrong.
    #[cold]
    pub(crate) fn fail(
        &mut self,
        instr: &Instr,
        lane: usize,
        kind: FaultKind,
        address: u64,
        what: &str,
    ) -> Flow {
        let thread = self.warp().thread_of(lane);
        let block = self.block.index;
        let kernel = &self.grid.launch.kernel.name;
        let [bx, by, bz] = block;
        let [tx, ty, tz] = thread;
        let line = instr.line;
        let message = match kind {
            FaultKind::Assert => what.to_owned(),
            _ => format!(
                "{what}, in kernel `{kernel}`, block ({bx},{by},{bz}), thread ({tx},{ty},{tz}), PTX line {line}"
            ),
        };
        let fault = Fault { kind, kernel: kernel.clone(), block, thread, address, ptx_line: line, message };
        self.fault = Some(Box::new(fault));
        Flow::Fault
    }
}
