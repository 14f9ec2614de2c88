// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The linker, and modules loaded with options for the compiler.

use std::ffi::CString;
use std::sync::Arc;

use virtio_cuda_protocol::cuda::{JitOptions, LinkId, ModuleId};

use crate::call::CallContext;
use crate::call::lifecycle::Destroy;
use crate::gpu::{CuResult, CudaError};
use crate::handlers::module::compiling::compiled;
use crate::handlers::module::image::{charge_image, check, image, keep_module, loaded_module, read_and_keep};
use crate::memory::quota::Holder;
use crate::objects::jit::JitArguments;
use crate::objects::linker::LinkInput;

/// The supported `CU_JIT_INPUT_*` values run from 0 (cubin) to this one, `CU_JIT_INPUT_LIBRARY`. NVVM is not
/// supported.
const LAST_INPUT: u32 = 4;
/// The memory that the driver and this process need for an input besides its contents.
const INPUT_BYTES: usize = 4096;

/// Loads a module with options.
pub fn cuModuleLoadDataEx(cx: &mut CallContext<'_>, module: ModuleId, options: JitOptions) -> CuResult<()> {
    cx.thread.jit = Default::default();
    let mut arguments = JitArguments::new(&options)?;
    let image = image(cx)?;
    let reserved = cx.session.objects.modules.reserve(module.0)?;
    let charged = charge_image(cx, Holder::Module(module.0), &image, cx.home())?;
    let (count, numbers, values) = arguments.as_raw();
    // SAFETY: the image, the options and their buffers live across the call, which copies the parts that it keeps;
    // the effect of bad contents stays in this process, which serves that guest alone.
    let load = || unsafe { cx.gpu().cuModuleLoadDataEx(image.as_ptr().cast(), count, numbers, values) };
    let loaded = compiled(load);
    cx.thread.jit = arguments.logs();
    let (raw,) = loaded?;
    keep_module(cx, charged, raw)?;
    cx.fill(reserved, loaded_module(cx, module, raw))?;
    read_and_keep(cx, image);
    Ok(())
}

/// Returns the compiler's latest logs for this thread.
pub fn jit_logs(cx: &mut CallContext<'_>) -> CuResult<(u32, u32, f32, u32)> {
    let logs = std::mem::take(&mut cx.thread.jit);
    let room = cx.bulk_out.room() as usize;
    let info = &logs.info[..logs.info.len().min(room)];
    let error = &logs.error[..logs.error.len().min(room - info.len())];
    cx.bulk_out.put(&[info, error].concat())?;
    Ok((info.len() as u32, error.len() as u32, logs.wall_time, logs.threads_per_block))
}

/// Adds an input to a link.
pub fn cuLinkAddData_v2(
    cx: &mut CallContext<'_>,
    link: LinkId,
    kind: u32,
    name_bytes: u32,
    options: JitOptions,
) -> CuResult<()> {
    cx.thread.jit = Default::default();
    let link = cx.session.links.get(link.0)?;
    let mut link = link.lock();
    let arguments = JitArguments::new(&options)?;
    let contents = cx.bulk_in.contents()?;
    let (name, data) = contents.split_at_checked(name_bytes as usize).ok_or(CudaError::INVALID_VALUE)?;
    if kind > LAST_INPUT || data.is_empty() {
        return Err(CudaError::INVALID_VALUE);
    }
    check(data)?;
    let name = CString::new(name).map_err(|_| CudaError::INVALID_VALUE)?;
    let charge = cx.session.host_memory.charge_link(data.len() + arguments.log_bytes() + INPUT_BYTES)?;
    let input = LinkInput { name, contents: [data, &[0]].concat(), arguments, _charge: charge };
    let added = compiled(|| link.add(kind, input));
    cx.thread.jit = link.arguments.logs();
    added
}

/// Completes a link.
pub fn cuLinkComplete(cx: &mut CallContext<'_>, link: LinkId) -> CuResult<(u64,)> {
    cx.thread.jit = Default::default();
    let link = cx.session.links.get(link.0)?;
    let mut link = link.lock();
    let memory = &cx.session.host_memory;
    let linked = compiled(|| link.complete(|bytes| memory.charge_link(bytes)));
    cx.thread.jit = link.arguments.logs();
    Ok((linked? as u64,))
}

/// Returns a part of the linked image.
pub fn link_image(cx: &mut CallContext<'_>, link: LinkId, offset: u64) -> CuResult<(u64,)> {
    let link = cx.session.links.get(link.0)?;
    let link = link.lock();
    let from = usize::try_from(offset).ok().and_then(|offset| link.image.get(offset..));
    let from = from.ok_or(CudaError::INVALID_VALUE)?;
    let part = &from[..from.len().min(cx.bulk_out.room() as usize)];
    cx.bulk_out.put(part)?;
    Ok((part.len() as u64,))
}

impl Destroy for LinkId {
    /// Ends a link as soon as no call uses it.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        match Arc::into_inner(cx.session.links.remove(self.0)?) {
            Some(link) => link.into_inner().end(),
            // The call that uses it ends it. That call may take as long as a compilation.
            None => Ok(()),
        }
    }
}
