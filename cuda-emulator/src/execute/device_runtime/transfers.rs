// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cudaMemcpyAsync and cudaMemsetAsync in their forms: between places in global memory only.

use super::caller::{Caller, End, with_status};
use crate::code::{Handler, Instr, window};
use crate::execute::run::slot;
use crate::execute::state::{Flow, Machine};
use crate::nested::Task;
use crate::nested::error::RuntimeError;
use crate::nested::transfer::{Box3, Source, Transfer};

/// cudaMemcpyDeviceToDevice, cudaMemcpyDefault
const DEVICE_TO_DEVICE: u64 = 3;
const DEFAULT: u64 = 4;

pub(super) fn select(name: &str) -> Option<(Handler, usize)> {
    Some(match name {
        "MemcpyAsync" => (copy, 5),
        "Memcpy2DAsync" => (copy_2d, 8),
        "Memcpy3DAsync" => (copy_3d, 2),
        "MemsetAsync" => (fill, 4),
        "Memset2DAsync" => (fill_2d, 6),
        "Memset3DAsync" => (fill_3d, 4),
        _ => return None,
    })
}

/// Returns true if the address is one of global memory: it is not null, and not in the windows of shared, local and parameter
/// memory.
fn is_global(address: u64) -> bool {
    address != 0
        && address
            .checked_sub(window::PARAM)
            .is_none_or(|offset| offset >= window::SHARED + window::BYTES - window::PARAM)
}

impl Caller<'_, '_> {
    fn transfer(&mut self, transfer: Transfer, kind: u64, stream: u64) -> Result<(), End> {
        if transfer.is_empty() {
            return Ok(());
        }
        if kind != DEVICE_TO_DEVICE && kind != DEFAULT {
            return Err(RuntimeError::INVALID_MEMCPY_DIRECTION.into());
        }
        let source = match transfer.source {
            Source::Memory(source) => is_global(source.start),
            Source::Byte(_) => true,
        };
        if !source || !is_global(transfer.target.start) {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        transfer.check()?;
        let grid = self.machine.grid;
        match slot(grid.children, grid.launch) {
            Ok(slot) => self.submit(Task::Transfer(transfer), slot, stream),
            Err(fault) => Err(self.fault(fault)),
        }
    }
}

/// `cudaMemcpyAsync(void *target, const void *source, size_t count, cudaMemcpyKind kind, cudaStream_t stream)`
unsafe fn copy(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let target = Box3::linear(caller.argument(0));
        let source = Source::Memory(Box3::linear(caller.argument(1)));
        let extent = [caller.argument(2), 1, 1];
        let (kind, stream) = (caller.argument(3), caller.argument(4));
        caller.transfer(Transfer { target, source, extent }, kind, stream)
    })
}

/// `cudaMemcpy2DAsync(void *target, size_t pitch, const void *source, size_t pitch, size_t width, size_t height,
/// cudaMemcpyKind kind, cudaStream_t stream)`
unsafe fn copy_2d(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let target = Box3 { start: caller.argument(0), pitch: caller.argument(1), plane: 0 };
        let source = Box3 { start: caller.argument(2), pitch: caller.argument(3), plane: 0 };
        let extent = [caller.argument(4), caller.argument(5), 1];
        let (kind, stream) = (caller.argument(6), caller.argument(7));
        caller.transfer(Transfer { target, source: Source::Memory(source), extent }, kind, stream)
    })
}

/// Returns the address at which a box begins inside a cudaPitchedPtr (pointer, pitch, width and height of a plane).
fn place([start, pitch, _, height]: [u64; 4], [x, y, z]: [u64; 3]) -> Option<Box3> {
    let plane = pitch.checked_mul(height)?;
    let offset = z.checked_mul(plane)?.checked_add(y.checked_mul(pitch)?)?.checked_add(x)?;
    Some(Box3 { start: start.checked_add(offset)?, pitch, plane })
}

/// `cudaMemcpy3DAsync(const cudaMemcpy3DParms *parameters, cudaStream_t stream)`: arrays are not for kernels.
unsafe fn copy_3d(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (address, stream) = (caller.argument(0), caller.argument(1));
        if address == 0 {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        let bytes: [u8; 160] = caller.load(address)?;
        let word = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[index * 8 + byte]));
        // cudaMemcpy3DParms: array, position, pitched pointer of the source, then of the target; extent, kind.
        let (source_position, source) = ([word(1), word(2), word(3)], [word(4), word(5), word(6), word(7)]);
        let (target_position, target) =
            ([word(9), word(10), word(11)], [word(12), word(13), word(14), word(15)]);
        let extent = [word(16), word(17), word(18)];
        let kind = word(19) & u64::from(u32::MAX);
        if word(0) != 0 || word(8) != 0 {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        let source = place(source, source_position).ok_or(RuntimeError::INVALID_VALUE)?;
        let target = place(target, target_position).ok_or(RuntimeError::INVALID_VALUE)?;
        caller.transfer(Transfer { target, source: Source::Memory(source), extent }, kind, stream)
    })
}

/// `cudaMemsetAsync(void *target, int value, size_t count, cudaStream_t stream)`
unsafe fn fill(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let target = Box3::linear(caller.argument(0));
        let source = Source::Byte(caller.argument(1) as u8);
        let (extent, stream) = ([caller.argument(2), 1, 1], caller.argument(3));
        caller.transfer(Transfer { target, source, extent }, DEFAULT, stream)
    })
}

/// `cudaMemset2DAsync(void *target, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)`
unsafe fn fill_2d(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let target = Box3 { start: caller.argument(0), pitch: caller.argument(1), plane: 0 };
        let source = Source::Byte(caller.argument(2) as u8);
        let (extent, stream) = ([caller.argument(3), caller.argument(4), 1], caller.argument(5));
        caller.transfer(Transfer { target, source, extent }, DEFAULT, stream)
    })
}

/// `cudaMemset3DAsync(cudaPitchedPtr target, int value, cudaExtent extent, cudaStream_t stream)`
unsafe fn fill_3d(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let target = place(caller.double_words(0), [0; 3]).ok_or(RuntimeError::INVALID_VALUE)?;
        let source = Source::Byte(caller.argument(1) as u8);
        let (extent, stream) = (caller.double_words(2), caller.argument(3));
        caller.transfer(Transfer { target, source, extent }, DEFAULT, stream)
    })
}
