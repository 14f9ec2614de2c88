// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions that the driver provides to kernels: vprintf, __assertfail, malloc, free, and those of the device
//! runtime, most of which are in `device_runtime`.

use super::argument::{answer, argument};
use super::format::{Arguments, format};
use super::state::{Flow, Machine};
use super::{device_runtime, heap};
use crate::code::{Handler, Instr, lanes_of, window};
use crate::conditions::Condition;
use crate::launch::FaultKind;

/// The maximum length of a string that printf and assert read, in bytes.
const MAX_STRING: u64 = 64 << 10;

/// The handler for a function without body, whose call is `calls[imm]`; how many arguments it takes.
pub(crate) fn select(name: &str) -> Option<(Handler, usize)> {
    Some(match name {
        "vprintf" => (vprintf, 2),
        "__assertfail" => (assert_fail, 5),
        "malloc" => (heap::allocate, 1),
        "free" => (heap::release, 1),
        "cudaGraphSetConditional" => (set_conditional, 2),
        _ => return device_runtime::select(name),
    })
}

/// The string at a generic address, up to its NUL.
fn string(machine: &mut Machine<'_>, instr: &Instr, lane: usize, address: u64) -> Result<Vec<u8>, Flow> {
    // As many bytes at once as are certainly valid: the rest of the allocation.
    let in_window = address.wrapping_sub(window::PARAM) < window::SHARED + window::BYTES - window::PARAM;
    let range = if in_window { None } else { machine.grid.launch.memory.range_of(address) };
    let mut text = Vec::new();
    if let Some(range) = range {
        let bytes = (range.bytes - (address - range.base)).min(MAX_STRING);
        let start = machine.generic(instr, lane, address, bytes)?;
        for offset in 0..bytes as usize {
            // SAFETY: `generic` has checked all of it.
            let byte = unsafe { *start.add(offset) };
            if byte == 0 {
                return Ok(text);
            }
            text.push(byte);
        }
        if bytes == MAX_STRING {
            return Ok(text);
        }
    }
    while (text.len() as u64) < MAX_STRING {
        let place = address.wrapping_add(text.len() as u64);
        let start = machine.generic(instr, lane, place, 1)?;
        // SAFETY: checked.
        match unsafe { *start } {
            0 => break,
            byte => text.push(byte),
        }
    }
    Ok(text)
}

/// The packed arguments of a vprintf call.
struct Buffer<'b, 'm> {
    machine: &'b mut Machine<'m>,
    instr: &'b Instr,
    lane: usize,
    start: u64,
    offset: u64,
    failed: bool,
}

impl Buffer<'_, '_> {
    fn read<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.offset = self.offset.next_multiple_of(N as u64);
        let address = self.start.wrapping_add(self.offset);
        self.offset += N as u64;
        match self.machine.generic(self.instr, self.lane, address, N as u64) {
            // SAFETY: checked for N bytes.
            Ok(place) => Some(unsafe { place.cast::<[u8; N]>().read_unaligned() }),
            Err(_) => {
                self.failed = true;
                None
            }
        }
    }
}

impl Arguments for Buffer<'_, '_> {
    fn word(&mut self) -> Option<u32> {
        self.read().map(u32::from_le_bytes)
    }

    fn double_word(&mut self) -> Option<u64> {
        self.read().map(u64::from_le_bytes)
    }

    fn string(&mut self, address: u64) -> Option<Vec<u8>> {
        string(self.machine, self.instr, self.lane, address).map_err(|_| self.failed = true).ok()
    }
}

/// `int vprintf(const char *format, void *arguments)`
unsafe fn vprintf(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let call = &machine.grid.code.calls[instr.imm as usize];
    for lane in lanes_of(machine.mask) {
        let pointer = argument(machine, call, lane, 0);
        let start = argument(machine, call, lane, 1);
        let text = match string(machine, instr, lane, pointer) {
            Ok(text) => text,
            Err(flow) => return flow,
        };
        let mut buffer = Buffer { machine, instr, lane, start, offset: 0, failed: false };
        let output = format(&text, &mut buffer);
        if buffer.failed {
            return Flow::Fault;
        }
        let conversions = String::from_utf8_lossy(&text).replace("%%", "").matches('%').count();
        if let Some(output) = output {
            machine.grid.launch.printf.push(output);
        }
        answer(machine, call, lane, conversions as u64);
    }
    Flow::Next
}

/// `void __assertfail(const char *message, const char *file, unsigned line, const char *function, size_t size)`
unsafe fn assert_fail(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let call = &machine.grid.code.calls[instr.imm as usize];
    let mut lines = Vec::new();
    for lane in lanes_of(machine.mask) {
        let mut texts = Vec::new();
        for index in [0, 1, 3] {
            let pointer = argument(machine, call, lane, index);
            match string(machine, instr, lane, pointer) {
                Ok(text) => texts.push(String::from_utf8_lossy(&text).into_owned()),
                Err(flow) => return flow,
            }
        }
        let number = argument(machine, call, lane, 2) as u32;
        let [bx, by, bz] = machine.block.index;
        let [tx, ty, tz] = machine.warp().thread_of(lane);
        lines.push(format!(
            "{}:{number}: {}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{}` failed.",
            texts[1], texts[2], texts[0]
        ));
    }
    let first = machine.mask.trailing_zeros() as usize % 32;
    machine.fail(instr, first, FaultKind::Assert, 0, &lines.join("\n"))
}

/// `void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value)`
unsafe fn set_conditional(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let call = &machine.grid.code.calls[instr.imm as usize];
    for lane in lanes_of(machine.mask) {
        let handle = argument(machine, call, lane, 0);
        let value = argument(machine, call, lane, 1) as u32;
        let Some(condition) = Condition::find(handle) else {
            let what = format!("cudaGraphSetConditional of {handle:#x}, which is no handle");
            return machine.fail(instr, lane, FaultKind::IllegalAddress, handle, &what);
        };
        condition.set(value);
    }
    Flow::Next
}
