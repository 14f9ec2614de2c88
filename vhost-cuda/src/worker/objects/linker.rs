// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links that have begun.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::jit::JitArguments;
use crate::limits::budget::Charge;
use crate::worker::gpu::{CUlinkState, CuResult, CudaError, Driver};

/// Most links of a session at once: each may hold megabytes.
const MAX_LINKS: usize = 64;
/// Most inputs of a link.
const MAX_INPUTS: usize = 4096;

/// One link. Its end is that of the driver's link, too.
#[derive(Debug)]
pub struct Link {
    gpu: &'static Driver,
    raw: usize,
    /// The options that it was begun with, whose buffers the driver writes.
    pub arguments: JitArguments,
    /// The linked image, once there is one.
    pub image: Vec<u8>,
    /// The image's share of the session's host memory.
    pub image_charge: Option<Charge>,
    /// Names and contents of the inputs, which the driver may look at until the link ends, and their shares.
    inputs: Vec<(CString, Vec<u8>, Charge)>,
}

impl Link {
    /// A link of the driver.
    pub fn new(gpu: &'static Driver, raw: CUlinkState, arguments: JitArguments) -> Self {
        Self { gpu, raw: raw as usize, arguments, image: Vec::new(), image_charge: None, inputs: Vec::new() }
    }

    /// Keeps an input for as long as the link.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` if that are too many.
    pub fn keep(
        &mut self,
        name: CString,
        mut contents: Vec<u8>,
        charge: Charge,
    ) -> CuResult<(*const c_char, *mut c_void)> {
        if self.inputs.len() >= MAX_INPUTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        // The buffers stay where they are when the vector moves.
        let places = (name.as_ptr(), contents.as_mut_ptr().cast());
        self.inputs.push((name, contents, charge));
        Ok(places)
    }

    /// Lets go of the input that came last, which the driver has refused.
    pub fn forget_last(&mut self) {
        self.inputs.pop();
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUlinkState {
        self.raw as CUlinkState
    }

    /// Ends the link.
    ///
    /// Errors: the driver's.
    pub fn end(mut self) -> CuResult<()> {
        match std::mem::take(&mut self.raw) {
            0 => Ok(()),
            raw => self.gpu.cuLinkDestroy(raw as CUlinkState),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Buffers and inputs go afterwards.
        if self.raw != 0 {
            let _ = self.gpu.cuLinkDestroy(self.raw());
        }
    }
}

/// The session's links by the names that the guest gave them.
#[derive(Debug, Default)]
pub struct Links(Mutex<HashMap<u64, Arc<Mutex<Link>>>>);

impl Links {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mutex<Link>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a link; `make` is called only for a name that is free.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`, and what `make` answers.
    pub fn add(&self, name: u64, make: impl FnOnce() -> CuResult<Link>) -> CuResult<()> {
        let mut links = self.lock();
        if name < FIRST_HANDLE || links.contains_key(&name) {
            return Err(CudaError::INVALID_VALUE);
        }
        if links.len() >= MAX_LINKS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        links.insert(name, Arc::new(Mutex::new(make()?)));
        Ok(())
    }

    /// A link.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn get(&self, name: u64) -> CuResult<Arc<Mutex<Link>>> {
        self.lock().get(&name).cloned().ok_or(CudaError::INVALID_HANDLE)
    }

    /// Takes a link out.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn remove(&self, name: u64) -> CuResult<Arc<Mutex<Link>>> {
        self.lock().remove(&name).ok_or(CudaError::INVALID_HANDLE)
    }
}
