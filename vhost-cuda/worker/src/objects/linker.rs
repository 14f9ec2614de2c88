// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The links of a session.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use parking_lot::Mutex;
use vhost_cuda_common::budget::Charge;
use virtio_cuda_protocol::cuda::{FIRST_HANDLE, JitOptions, LinkId};

use super::jit::JitArguments;
use super::link_thread::{Input, LinkThread};
use crate::gpu::{CuResult, CudaError, Driver};

/// The maximum number of links of a session at once. Each may hold megabytes.
const MAX_LINKS: usize = 64;
/// The maximum size of a linked image, in bytes. The guest fetches it from a copy in this process.
const MAX_IMAGE_BYTES: usize = 1 << 30;
/// The maximum number of inputs per link.
const MAX_INPUTS: usize = 4096;

/// One link. Dropping it also ends the driver's link.
#[derive(Debug)]
pub struct Link {
    // Dropped first: until then the driver may read the other fields.
    thread: LinkThread,
    /// The options that it was begun with. The driver writes to their buffers.
    pub arguments: JitArguments,
    /// The linked image, empty until the link is complete.
    pub image: Vec<u8>,
    /// The charge of the image to the session's host memory.
    image_charge: Option<Charge>,
    /// The inputs, which the driver may read until the link ends.
    inputs: Vec<LinkInput>,
}

/// An input of a link.
#[derive(Debug)]
pub struct LinkInput {
    /// Its name.
    pub name: CString,
    /// Its contents. The last byte is a NUL for text without one. It is not counted in the length: for a library with one
    /// additional byte, NVIDIA's driver 580 frees memory twice.
    pub contents: Vec<u8>,
    /// Its own options. The driver may write to their buffers, too.
    pub arguments: JitArguments,
    /// The charge of all this to the session's host memory.
    pub _charge: Charge,
}

impl Link {
    /// Begins a link.
    ///
    /// Errors: the driver's errors; `CUDA_ERROR_OUT_OF_MEMORY` without a thread for it.
    pub fn begin(gpu: &'static Driver, mut arguments: JitArguments) -> CuResult<Self> {
        // SAFETY: the options move into the link, which ends the driver's link before it drops them; their buffers do not
        // move.
        let thread = unsafe { LinkThread::begin(gpu, &mut arguments) }?;
        Ok(Self { thread, arguments, image: Vec::new(), image_charge: None, inputs: Vec::new() })
    }

    /// Adds an input, which is kept as long as the link. `kind` is a `CUjitInputType`.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` for too many inputs, and the driver's errors.
    pub fn add(&mut self, kind: u32, mut added: LinkInput) -> CuResult<()> {
        if self.inputs.len() >= MAX_INPUTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.forget_image();
        let (contents, bytes) = (added.contents.as_ptr() as usize, added.contents.len() - 1);
        let input = Input { kind, contents, bytes, name: added.name.as_ptr() as usize };
        // SAFETY: name, contents and options move to `inputs`, which the link drops after its thread; their addresses do not
        // change by that. The driver does not keep an input that it refused.
        unsafe { self.thread.add(input, &mut added.arguments) }?;
        self.inputs.push(added);
        Ok(())
    }

    /// Completes the link. Keeps the image, for which `charge` is called with its length. Returns that length, in
    /// bytes.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` for an image above 1 GiB; those of `charge`; the driver's errors.
    pub fn complete(&mut self, charge: impl FnOnce(usize) -> CuResult<Charge>) -> CuResult<usize> {
        self.forget_image();
        let (image, bytes) = self.thread.complete()?;
        if image == 0 || bytes > MAX_IMAGE_BYTES {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.image_charge = Some(charge(bytes)?);
        // SAFETY: the driver keeps that many bytes there until the link ends, which needs the link.
        self.image = unsafe { std::slice::from_raw_parts(image as *const u8, bytes) }.to_vec();
        Ok(bytes)
    }

    fn forget_image(&mut self) {
        (self.image, self.image_charge) = (Vec::new(), None);
    }

    /// Ends the link.
    ///
    /// Errors: the driver's errors.
    pub fn end(self) -> CuResult<()> {
        // Inputs and options are dropped once the driver no longer uses them.
        let Self { thread, arguments, inputs, .. } = self;
        let ended = thread.destroy();
        drop((arguments, inputs));
        ended
    }
}

/// The session's links by the names that the guest gave them.
#[derive(Debug, Default)]
pub struct Links(Mutex<HashMap<u64, Arc<Mutex<Link>>>>);

impl Links {
    /// Begins a link of that name.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a reserved or used name and for wrong options, `CUDA_ERROR_OUT_OF_MEMORY` for too
    /// many links, and the driver's errors.
    pub fn begin(&self, gpu: &'static Driver, LinkId(name): LinkId, options: JitOptions) -> CuResult<()> {
        let arguments = JitArguments::new(&options)?;
        let mut links = self.0.lock();
        if name < FIRST_HANDLE || links.contains_key(&name) {
            return Err(CudaError::INVALID_VALUE);
        }
        if links.len() >= MAX_LINKS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        links.insert(name, Arc::new(Mutex::new(Link::begin(gpu, arguments)?)));
        Ok(())
    }

    /// Returns a link.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn get(&self, name: u64) -> CuResult<Arc<Mutex<Link>>> {
        self.0.lock().get(&name).cloned().ok_or(CudaError::INVALID_HANDLE)
    }

    /// Returns whether there is a link of this name.
    pub fn has(&self, name: u64) -> bool {
        self.0.lock().contains_key(&name)
    }

    /// Removes a link.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn remove(&self, name: u64) -> CuResult<Arc<Mutex<Link>>> {
        self.0.lock().remove(&name).ok_or(CudaError::INVALID_HANDLE)
    }
}
