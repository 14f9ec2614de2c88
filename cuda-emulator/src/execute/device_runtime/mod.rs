// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of NVIDIA's device runtime that kernels call, under both names that they have: nvcc's header makes
//! `__cudaCDP2X` of `cudaX`.

mod graphs;
mod launches;
mod queries;
mod streams;
mod transfers;

use super::builtin::{answer, argument};
use super::state::{Flow, Machine};
use crate::code::{Call, Handler, Instr, lanes_of};
use crate::nested::error::RuntimeError;

/// The handler for a function of the device runtime; how many arguments it takes.
pub(super) fn select(name: &str) -> Option<(Handler, usize)> {
    let name = name.strip_prefix("__cudaCDP2").or_else(|| name.strip_prefix("cuda"))?;
    // With streams of threads as the default: the same for a kernel.
    let name = name.strip_suffix("_ptsz").unwrap_or(name);
    let sources = [graphs::select, launches::select, queries::select, streams::select, transfers::select];
    sources.iter().find_map(|select| select(name))
}

/// The end of a call by one thread.
enum End {
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
struct Caller<'c, 'm> {
    machine: &'c mut Machine<'m>,
    instr: &'c Instr,
    call: &'c Call,
    lane: usize,
}

impl Caller<'_, '_> {
    fn argument(&mut self, index: usize) -> u64 {
        argument(self.machine, self.call, self.lane, index)
    }

    fn dimensions(&mut self, index: usize) -> [u32; 3] {
        self.words(index)
    }

    /// An argument that is a structure of 32-bit numbers.
    fn words<const N: usize>(&mut self, index: usize) -> [u32; N] {
        let bytes: [u8; 64] = super::builtin::argument_bytes(self.machine, self.call, self.lane, index);
        std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|byte| bytes[word * 4 + byte])))
    }

    /// An argument that is a structure of 64-bit numbers.
    fn double_words<const N: usize>(&mut self, index: usize) -> [u64; N] {
        let bytes: [u8; 64] = super::builtin::argument_bytes(self.machine, self.call, self.lane, index);
        std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|byte| bytes[word * 8 + byte])))
    }

    /// Bytes at an address of any space.
    fn load<const N: usize>(&mut self, address: u64) -> Result<[u8; N], End> {
        let place = self.machine.generic(self.instr, self.lane, address, N as u64)?;
        // SAFETY: checked for N bytes.
        Ok(unsafe { place.cast::<[u8; N]>().read_unaligned() })
    }

    /// Writes where an argument points to.
    fn store<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> Result<(), End> {
        if address == 0 {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        let place = self.machine.generic_target(self.instr, self.lane, address, N as u64)?;
        // SAFETY: checked for N bytes.
        unsafe { place.cast::<[u8; N]>().write_unaligned(bytes) };
        Ok(())
    }

    /// The index of the kernel whose address a program has.
    fn kernel(&self, address: u64) -> Result<usize, RuntimeError> {
        let grid = self.machine.grid;
        let index = crate::code::function_at(address).filter(|index| {
            let function = grid.code.functions.get(*index);
            let entry = function.and_then(|function| grid.code.entries.get(&function.name));
            entry.is_some_and(|entry| entry.function == *index)
        });
        index.ok_or(RuntimeError::INVALID_DEVICE_FUNCTION)
    }

    /// The block and the number of the thread in it.
    fn thread(&self) -> ([u32; 3], u32) {
        (self.machine.block.index, (self.machine.current * 32 + self.lane) as u32)
    }

    fn fault(&mut self, fault: crate::launch::Fault) -> End {
        self.machine.fault = Some(Box::new(fault));
        End::Fault
    }
}

/// Does `body` for every calling thread; its value is what the function returns.
fn for_each_thread(
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
fn with_status(
    machine: &mut Machine<'_>,
    instr: &Instr,
    mut body: impl FnMut(&mut Caller<'_, '_>) -> Result<(), End>,
) -> Flow {
    for_each_thread(machine, instr, |caller| body(caller).map(|()| 0), |error| error.0.into())
}
