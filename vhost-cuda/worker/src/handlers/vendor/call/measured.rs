// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that follow from other arguments ([`cuda_library_rows::Measure`]): lengths of arrays that a descriptor
//! contains, or that other arrays contain. The library would read as many elements, whatever the guest has sent.

use cuda_library_rows::{Asked, Body, Kind, Measure};

use super::attempt::Attempt;
use super::memory::Memory;
use crate::gpu::CudaError;
use crate::vendor::invoke::call_with_integers;
use crate::vendor::refusal::Refusal;

impl Attempt<'_> {
    /// Compares the guest's numbers with the worker's own. The handles of the call are locked, so that what the
    /// library answers holds for the call, too.
    ///
    /// Errors: the library's status if it does not answer, or for a negative length; a CUDA error for a number that the
    /// guest's library invented.
    pub(super) fn check_measured(&self, slots: &[u64], memory: &Memory) -> Result<(), Refusal> {
        for &index in self.call.roles.measured {
            let Kind::Measured(measure) = &self.call.parameters[index].kind else { continue };
            let measured = match measure {
                Measure::Asked(asked) => self.ask(asked, slots)?,
                Measure::Sum(array) => {
                    let bytes = self.call.memory_bytes(self.loaded.rows, *array, slots)?;
                    let sum = sum(memory.contents(*array).get(..bytes).unwrap_or_default());
                    sum.ok_or(Refusal::Status(self.loaded.rows.statuses.invalid_value))?
                }
            };
            if slots[index] != measured as u64 {
                return Err(CudaError::INVALID_VALUE.into());
            }
        }
        Ok(())
    }

    fn ask(&self, asked: &Asked, slots: &[u64]) -> Result<i64, Refusal> {
        let Body::Forward(call) = &self.loaded.rows.functions[asked.function].body else {
            return Err(CudaError::NOT_SUPPORTED.into());
        };
        let Kind::Handle { kind, nullable: false } = self.call.parameters[asked.handle].kind else {
            return Err(CudaError::NOT_SUPPORTED.into());
        };
        let address = self.loaded.address(asked.function).ok_or(CudaError::NOT_FOUND)?;
        let handle = self.handle(kind, slots[asked.handle], false)?;
        let answer = asked.ask(call, handle, |arguments| {
            // SAFETY: the row describes the function, and the parser has checked that it takes a handle of this kind,
            // lengths and memory, which `Asked::ask` passes; the call keeps the handle alive.
            match unsafe { call_with_integers(address, arguments) } {
                Some(status) if self.loaded.rows.statuses.is_good(status) => Ok(()),
                Some(status) => Err(Refusal::Status(status)),
                None => Err(CudaError::INVALID_VALUE.into()),
            }
        });
        answer?.ok_or(Refusal::Status(self.loaded.rows.statuses.invalid_value))
    }
}

/// Returns the sum of numbers of 32 bits, or `None` if one is negative.
fn sum(numbers: &[u8]) -> Option<i64> {
    let numbers = numbers.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
    numbers.map(|number| u32::try_from(number).ok().map(i64::from)).sum()
}

#[cfg(test)]
#[path = "measured_test.rs"]
mod tests;
