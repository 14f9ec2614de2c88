// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A plan, and its execution.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use cuda_abi::prototypes::types::CUcontext;

use crate::cufft::{CuFft, cufft};
use crate::driver::{Driver, driver};
use crate::error::{Error, Result};
use crate::moves::{download, upload};
use crate::problem::{Kind, Problem};

/// The alignment of arrays in device memory.
const ALIGNMENT: usize = 256;

/// The arrays of a transform: addresses of the input and the output.
pub type Arrays = [usize; 2];

/// A plan.
pub struct Plan {
    problem: Problem,
    arrays: Arrays,
    driver: &'static Driver,
    cufft: &'static CuFft,
    /// The context in which the plan was made.
    context: CUcontext,
    handle: c_int,
    /// Device memory for the elements of the input.
    input: u64,
    /// Device memory for those of the output. Complex transforms are in place.
    output: u64,
    /// The device memory has one user at a time.
    busy: Mutex<()>,
}

impl Plan {
    /// Plans transforms of these arrays.
    ///
    /// Errors: a library is missing or has no memory.
    pub fn new(problem: Problem, arrays: Arrays) -> Result<Self> {
        let (driver, cufft) = (driver()?, cufft()?);
        let context = driver.context()?;
        let offset =
            if let Kind::Complex(_) = problem.form.kind { 0 } else { aligned(problem.layouts[0].bytes())? };
        let bytes = offset.checked_add(problem.layouts[1].bytes()).ok_or(Error::Memory)?;
        let handle = cufft.plan(&problem.sizes, problem.form.number(), problem.batch)?;
        let input = match driver.allocate(bytes) {
            Ok(input) => input,
            Err(error) => {
                cufft.destroy(handle);
                return Err(error);
            }
        };
        let output = input + offset as u64;
        Ok(Self { problem, arrays, driver, cufft, context, handle, input, output, busy: Mutex::new(()) })
    }

    /// The problem that the plan solves.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The arrays for which it was planned.
    pub fn arrays(&self) -> Arrays {
        self.arrays
    }

    /// Transforms arrays, and waits for the results.
    ///
    /// # Safety
    ///
    /// The arrays have the plan's layouts. The input may be read, and the output written.
    pub unsafe fn execute(&self, [input, output]: Arrays) -> Result {
        if input == 0 || output == 0 {
            return Err(Error::Arguments("an array is NULL"));
        }
        let _alone = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let [before, after] = &self.problem.layouts;
        let direction = self.problem.form.direction();
        self.driver.within(self.context, || {
            // SAFETY: the input may be read by this function's contract, and its elements fit into the device memory.
            unsafe { upload(self.driver, self.input, input, before) }?;
            // SAFETY: the device memory has room for the elements of both sides.
            unsafe { self.cufft.execute(self.handle, self.input, self.output, direction) }?;
            // SAFETY: the output may be written by this function's contract; its elements are in device memory.
            unsafe { download(self.driver, output, self.output, after) }?;
            self.driver.wait()
        })
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // The program may have ended the context, and the memory with it.
        let _ = self.driver.within(self.context, || {
            self.cufft.destroy(self.handle);
            self.driver.free(self.input)
        });
    }
}

fn aligned(bytes: usize) -> Result<usize> {
    bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Error::Memory)
}
