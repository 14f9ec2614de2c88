// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread's call of a function of the device runtime.

use crate::code::{Call, Instr, lanes_of};
use crate::execute::argument::{answer, argument, argument_bytes};
use crate::execute::state::{Flow, Machine};
use crate::nested::error::RuntimeError;

/// The end of a call by one thread.
pub(super) enum End {
    /// An error for the thread; also its last one.
    Error(RuntimeError),
    /// The kernel is stopped; `machine.fault` is set.
    Fault,
}

impl From<RuntimeError> for End {
    fn from(error: RuntimeError) -> End {
        End::Error(error)
    }
}

impl From<Flow> for End {
    fn from(_: Flow) -> End {
        End::Fault
    }
}

/// One thread's call.
pub(super) struct Caller<'c, 'm> {
    pub(super) machine: &'c mut Machine<'m>,
    pub(super) instr: &'c Instr,
    pub(super) call: &'c Call,
    pub(super) lane: usize,
}

impl Caller<'_, '_> {
    pub(super) fn argument(&mut self, index: usize) -> u64 {
        argument(self.machine, self.call, self.lane, index)
    }

    pub(super) fn dimensions(&mut self, index: usize) -> [u32; 3] {
        self.words(index)
    }

    /// An argument that is a structure of 32-bit numbers.
    pub(super) fn words<const N: usize>(&mut self, index: usize) -> [u32; N] {
        let bytes: [u8; 64] = argument_bytes(self.machine, self.call, self.lane, index);
        std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|byte| bytes[word * 4 + byte])))
    }

    /// An argument that is a structure of 64-bit numbers.
    pub(super) fn double_words<const N: usize>(&mut self, index: usize) -> [u64; N] {
        let bytes: [u8; 64] = argument_bytes(self.machine, self.call, self.lane, index);
        std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|byte| bytes[word * 8 + byte])))
    }

    /// Bytes at an address of any space.
    pub(super) fn load<const N: usize>(&mut self, address: u64) -> Result<[u8; N], End> {
        let place = self.machine.generic(self.instr, self.lane, address, N as u64)?;
        // SAFETY: checked for N bytes.
        Ok(unsafe { place.cast::<[u8; N]>().read_unaligned() })
    }

    /// Writes where an argument points to.
    pub(super) fn store<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> Result<(), End> {
        if address == 0 {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        let place = self.machine.generic_target(self.instr, self.lane, address, N as u64)?;
        // SAFETY: checked for N bytes.
        unsafe { place.cast::<[u8; N]>().write_unaligned(bytes) };
        Ok(())
    }

    /// The index of the kernel whose address a program has.
    pub(super) fn kernel(&self, address: u64) -> Result<usize, RuntimeError> {
        let grid = self.machine.grid;
        let index = crate::code::function_at(address).filter(|index| {
            let function = grid.code.functions.get(*index);
            let entry = function.and_then(|function| grid.code.entries.get(&function.name));
            entry.is_some_and(|entry| entry.function == *index)
        });
        index.ok_or(RuntimeError::INVALID_DEVICE_FUNCTION)
    }

    /// The block and the number of the thread in it.
    pub(super) fn thread(&self) -> ([u32; 3], u32) {
        (self.machine.block.index, (self.machine.current * 32 + self.lane) as u32)
    }

    pub(super) fn fault(&mut self, fault: crate::launch::Fault) -> End {
        self.machine.fault = Some(Box::new(fault));
        End::Fault
    }
}

/// Calls `body` for every calling thread. Its value is the function's result.
pub(super) fn for_each_thread(
    machine: &mut Machine<'_>,
    instr: &Instr,
    mut body: impl FnMut(&mut Caller<'_, '_>) -> Result<u64, End>,
    failed: impl Fn(RuntimeError) -> u64,
) -> Flow {
    let grid = machine.grid;
    let call = &grid.code.calls[instr.imm as usize];
    for lane in lanes_of(machine.mask) {
        let mut caller = Caller { machine, instr, call, lane };
        let value = match body(&mut caller) {
            Ok(value) => value,
            Err(End::Error(error)) => {
                let (block, thread) = caller.thread();
                grid.children.set_error(block, thread, error);
                failed(error)
            }
            Err(End::Fault) => return Flow::Fault,
        };
        answer(machine, call, lane, value);
    }
    Flow::Next
}

/// As [`for_each_thread`] for functions that return a cudaError_t.
pub(super) fn with_status(
    machine: &mut Machine<'_>,
    instr: &Instr,
    mut body: impl FnMut(&mut Caller<'_, '_>) -> Result<(), End>,
) -> Flow {
    for_each_thread(machine, instr, |caller| body(caller).map(|()| 0), |error| error.0.into())
}
