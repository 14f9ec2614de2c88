// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `CUDA_EMULATOR_CHECK=race,init`: finds accesses to shared memory by different warps without a barrier between
//! them, accesses to global memory by different blocks without atomics between them, and reads of uninitialised
//! memory. Kernels continue; each finding is a line of the log.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};

use super::access::{Access, aux};
use crate::checks::checks;
use crate::code::Instr;
use crate::execute::state::{Machine, SEVERAL};

/// The maximum number of lines that one process writes.
const MAX_REPORTS: u32 = 100;
/// The maximum number of words of global memory that one launch remembers.
const MAX_WORDS: usize = 16 << 20;
impl Machine<'_> {
    /// Checks an access of one lane to `bytes` valid bytes at the host address `host`.
    #[cold]
    pub(crate) fn inspect(&mut self, instr: &Instr, lane: usize, host: u64, bytes: u64, access: Access) {
        let start = self.block.shared.as_ptr() as u64;
        let polls = instr.aux & (aux::POLLS | aux::ACQUIRE) != 0;
        if host.wrapping_sub(start) < u64::from(self.block.shared_bytes) {
            let offset = (host - start) as usize;
            if let Some(what) = self.inspect_shared(instr, offset, bytes as usize, access, polls) {
                self.warn(instr, lane, &what);
            }
        } else if self.grid.launch.memory.range_of(host).is_some()
            && let Some(what) = self.inspect_global(instr, host, bytes, access, polls)
        {
            self.warn(instr, lane, &what);
        }
    }

    fn inspect_shared(
        &mut self,
        instr: &Instr,
        offset: usize,
        bytes: usize,
        access: Access,
        polls: bool,
    ) -> Option<String> {
        let warp = self.warp().index;
        let shadow = self.block.shadow.as_mut()?;
        let epoch = shadow.epoch;
        let mut found = None;
        for (index, cell) in shadow.cells.iter_mut().enumerate().skip(offset).take(bytes) {
            let foreign_write = cell.write_epoch == epoch && cell.writer != warp;
            let foreign_read = cell.read_epoch == epoch && cell.reader != warp;
            let conflict = match access {
                Access::Read if polls => None,
                Access::Read => (foreign_write && !cell.atomic).then_some("read after write"),
                Access::Write if foreign_write => Some("write after write"),
                Access::Write => foreign_read.then_some("write after read"),
                Access::Atomic => (foreign_write && !cell.atomic).then_some("atomic operation after write"),
            };
            let unwritten = access != Access::Write && cell.write_epoch == 0;
            if unwritten && checks().init {
                found.get_or_insert_with(|| format!("uninitialised shared memory is read at {index:#x}"));
            } else if let Some(conflict) = conflict.filter(|_| checks().race) {
                let (other, line) = (if foreign_write { cell.writer } else { cell.reader }, cell.line);
                found.get_or_insert_with(|| {
                    format!(
                        "race: {conflict} of shared memory at {index:#x}, which warp {other} accessed at PTX line \
                         {line} without a barrier between"
                    )
                });
            }
            cell.line = instr.line;
            if access == Access::Read {
                cell.reader = if foreign_read { SEVERAL } else { warp };
                cell.read_epoch = epoch;
            } else {
                (cell.writer, cell.write_epoch, cell.atomic) = (warp, epoch, access == Access::Atomic);
            }
        }
        found
    }

    fn inspect_global(
        &mut self,
        instr: &Instr,
        address: u64,
        bytes: u64,
        access: Access,
        polls: bool,
    ) -> Option<String> {
        let memory = self.grid.launch.memory;
        let mut found = None;
        if checks().init {
            if access != Access::Write
                && let Some(missing) = memory.first_uninitialised(address, bytes)
                && !self.is_variable(address)
            {
                found = Some(format!("uninitialised global memory is read at {missing:#x}"));
            }
            if access != Access::Read {
                memory.mark_initialised(address, bytes);
            }
        }
        if !checks().race || self.grid.launch.cooperative {
            return found;
        }
        let [x, y, z] = self.block.index;
        let [nx, ny, _] = self.grid.launch.grid;
        let own = x.wrapping_add(nx.wrapping_mul(y.wrapping_add(ny.wrapping_mul(z)))).wrapping_add(1);
        let shadow = self.block.shadow.as_mut()?;
        shadow.synchronised |= access == Access::Atomic || polls;
        if shadow.synchronised {
            return found;
        }
        let mut words = self.grid.history.0.lock().unwrap_or_else(PoisonError::into_inner);
        for word in address / 4..(address + bytes).div_ceil(4) {
            if words.len() >= MAX_WORDS && !words.contains_key(&word) {
                break;
            }
            let entry = words.entry(word).or_default();
            let written = entry.writer != 0 && entry.writer != own;
            let read = entry.reader != 0 && entry.reader != own;
            let whole = bytes >= 4;
            if whole && (written || (read && access == Access::Write)) {
                let other = if written { entry.writer } else { entry.reader };
                let line = entry.line;
                let who =
                    if other == SEVERAL { "other blocks".to_owned() } else { format!("block {}", other - 1) };
                found.get_or_insert_with(|| {
                    let what = if access == Access::Write { "write" } else { "read" };
                    let at = word * 4;
                    format!(
                        "race: {what} of global memory at {at:#x}, which {who} accessed at PTX line {line}"
                    )
                });
            }
            entry.line = instr.line;
            if access == Access::Write {
                entry.writer = own;
            } else {
                entry.reader = if read { SEVERAL } else { own };
            }
        }
        found
    }

    /// Module variables start as zeros where they have no initial value.
    fn is_variable(&self, address: u64) -> bool {
        let range = self.grid.launch.memory.range_of(address);
        range.is_some_and(|range| self.grid.launch.global_addresses.contains(&range.base))
    }

    fn warn(&mut self, instr: &Instr, lane: usize, what: &str) {
        static REPORTS: AtomicU32 = AtomicU32::new(0);
        match REPORTS.fetch_add(1, Ordering::Relaxed) {
            0..MAX_REPORTS => {}
            MAX_REPORTS => return log::error!("no more findings are shown"),
            _ => {
                // Stays where it is instead of wrapping around.
                REPORTS.store(MAX_REPORTS + 1, Ordering::Relaxed);
                return;
            }
        }
        let [tx, ty, tz] = self.warp().thread_of(lane);
        let [bx, by, bz] = self.block.index;
        let kernel = &self.grid.launch.kernel.name;
        let line = instr.line;
        log::error!(
            "{what}, in kernel `{kernel}`, block ({bx},{by},{bz}), thread ({tx},{ty},{tz}), PTX line {line}"
        );
    }
}
