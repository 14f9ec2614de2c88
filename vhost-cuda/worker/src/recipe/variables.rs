// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of variables of device code, while their modules have ended.
//!
//! They are found by their names. A variable whose address the program has asked for is none of these ([`crate::suspend::deep`]).

use std::ffi::{CStr, CString};

use virtio_cuda_protocol::cuda::ContextId;

use super::class::Class;
use super::kept::Key;
use super::steps::Step;
use crate::gpu::{CuResult, CudaError, Driver};
use crate::objects::Objects;
use crate::objects::contexts::Contexts;

/// The maximum of the contents of all variables, in bytes. Bounds the host memory of a guest that loads much.
const MAX_BYTES: usize = 64 << 20;

/// The names that the compiler gives to literals begin with one of these. The image has their contents.
const LITERALS: [&[u8]; 2] = [b"$str", b"__unnamed_"];

/// The contents of a session's variables.
#[derive(Debug, Default)]
pub struct Variables(Vec<Variable>);

#[derive(Debug)]
struct Variable {
    place: Place,
    contents: Vec<u8>,
}

/// A variable in a context. A library has its own in each one.
#[derive(Clone, Debug)]
struct Place {
    owner: Key,
    context: u64,
    name: CString,
}

/// The parts of a session by which its variables are found.
#[derive(Clone, Copy, Debug)]
pub struct Finder<'s> {
    /// The driver.
    pub gpu: &'s Driver,
    /// Modules and libraries.
    pub objects: &'s Objects,
    /// Contexts.
    pub contexts: &'s Contexts,
}

impl Variables {
    /// Copies the contents of all variables of these modules and libraries. The session has no work.
    ///
    /// Errors: the driver's; `CUDA_ERROR_NOT_FOUND` for a variable that it does not know, `CUDA_ERROR_OUT_OF_MEMORY` for more than 64 MiB.
    pub fn take(session: Finder<'_>, steps: &[Step]) -> CuResult<Self> {
        let (mut all, mut left) = (Vec::new(), MAX_BYTES);
        for step in steps.iter().filter(|step| !step.variables.is_empty()) {
            let contexts = match step.key.class {
                Class::Module => vec![session.objects.modules.get(step.key.id)?.context()],
                _ => session.contexts.lock().names(),
            };
            for (context, name) in
                contexts.iter().flat_map(|context| step.variables.iter().map(move |name| (*context, name)))
            {
                let place = Place { owner: step.key, context, name: name.clone() };
                let (address, bytes) = match place.find(session) {
                    Err(CudaError::NOT_FOUND) if is_literal(name) => continue,
                    found => found?,
                };
                left = left.checked_sub(bytes).ok_or(CudaError::OUT_OF_MEMORY)?;
                let mut contents = vec![0; bytes];
                // SAFETY: `contents` has room for the variable, whose address and length the driver has told.
                unsafe { session.gpu.cuMemcpyDtoH_v2(contents.as_mut_ptr().cast(), address, bytes) }?;
                all.push(Variable { place, contents });
            }
        }
        Ok(Self(all))
    }

    /// Copies the contents back to variables that have been made again.
    ///
    /// Errors: the driver's; `CUDA_ERROR_INVALID_HANDLE` for one of another length.
    pub fn bring_back(&self, session: Finder<'_>) -> CuResult<()> {
        self.0.iter().try_for_each(|Variable { place, contents }| {
            let (address, bytes) = place.find(session)?;
            if bytes != contents.len() {
                return Err(CudaError::INVALID_HANDLE);
            }
            // SAFETY: the contents are as long as the variable.
            unsafe { session.gpu.cuMemcpyHtoD_v2(address, contents.as_ptr().cast(), bytes) }
        })
    }
}

fn is_literal(name: &CStr) -> bool {
    LITERALS.iter().any(|start| name.to_bytes().starts_with(start))
}

impl Place {
    /// Returns its address on the device, and its length in bytes. Its context is current then.
    ///
    /// Errors: the driver's.
    fn find(&self, session: Finder<'_>) -> CuResult<(u64, usize)> {
        let (gpu, id) = (session.gpu, self.owner.id);
        gpu.cuCtxSetCurrent(session.contexts.get(ContextId(self.context))?.object.raw())?;
        match self.owner.class {
            Class::Module => {
                gpu.cuModuleGetGlobal_v2(session.objects.modules.get(id)?.raw(), self.name.clone())
            }
            _ => gpu.cuLibraryGetGlobal(session.objects.libraries.get(id)?.raw(), self.name.clone()),
        }
    }
}
