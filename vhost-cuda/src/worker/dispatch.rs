// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an opcode to its handler, made from the call table: a `forward` row's handler is derived here, a
//! `custom` row's is the function of that name in [`super::handlers`], and the build fails without it.

use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::*;

use super::call::CallContext;
use super::gpu::{CuResult, CudaError};
use super::handlers;
use super::resolve::Resolve;

/// Locks the graphs of nodes first: they may be several, and come before anything else.
macro_rules! enter {
    ($cx:ident ($($p:ident),*)) => {
        let all: [Option<GraphNodeId>; _] = [$(Resolve::as_node(&$p)),*];
        let nodes: SmallVec<[GraphNodeId; 2]> = all.into_iter().flatten().collect();
        if !nodes.is_empty() {
            $cx.enter(&[], &nodes);
        }
    };
}

macro_rules! call {
    (forward $cx:ident $name:ident ($($p:ident),*)) => {
{
        enter!($cx ($($p),*));
        $cx.session.gpu.$name($(Resolve::resolve($p, $cx)?),*)
    }    };
    (custom $cx:ident $name:ident ($($p:ident),*)) => { handlers::$name($cx, $($p),*) };
}

macro_rules! emit_dispatch {
    ($($(#[$doc:meta])* $number:literal $kind:ident $name:ident ($($p:ident: $pt:ty),*) -> ($($r:ident: $rt:ty),*);)*) => {
        /// Takes the arguments of `opcode`, executes it and puts its results.
        ///
        /// Errors: `CUDA_ERROR_INVALID_VALUE` for arguments that are too short, too long or out of range; else
        /// the handler's.
        pub fn dispatch(
            opcode: Opcode,
            cx: &mut CallContext<'_>,
            mut args: Reader<'_>,
            results: &mut Writer<'_>,
        ) -> CuResult<()> {
            match opcode {
                $(Opcode::$name => {
                    $(let $p = <$pt as Wire>::take(&mut args).map_err(|_| CudaError::INVALID_VALUE)?;)*
                    args.finish().map_err(|_| CudaError::INVALID_VALUE)?;
                    let ($($r,)*): ($($rt,)*) = call!($kind cx $name ($($p),*))?;
                    $(Wire::put(&$r, results).map_err(|_| CudaError::INVALID_VALUE)?;)*
                    Ok(())
                })*
            }
        }
    };
}
virtio_cuda_protocol::all_calls!(emit_dispatch);

/// Whether the call works in the current context. The others must work also when that has just been destroyed.
pub fn needs_context(opcode: Opcode) -> bool {
    use Opcode as O;
    let number = opcode as u32;
    // Pools and memory without addresses belong to devices; they are given back after their contexts, too.
    let of_pools = (O::cuMemPoolCreate as u32..O::cuMemAllocFromPoolAsync as u32).contains(&number)
        || (O::pool_create_shareable as u32..O::cuMemPoolImportPointer as u32).contains(&number);
    let of_memory =
        (O::cuMemAddressReserve as u32..=O::cuMemGetAllocationPropertiesFromHandle as u32).contains(&number);
    let of_resources = (O::cuDeviceGetDevResource as u32..=O::cuGreenCtxDestroy as u32).contains(&number);
    number >= O::cuCtxSynchronize as u32
        && opcode != O::cuCtxGetApiVersion
        && !of_pools
        && !of_memory
        && !of_resources
}

/// Whether the driver may have printed what device code left in its buffer: it does so at launches, waits,
/// copies, and when modules and contexts come and go.
pub fn may_print(opcode: Opcode) -> bool {
    use Opcode as O;
    match opcode {
        O::session_output | O::session_thread_exit => true,
        O::cuCtxSynchronize | O::cuStreamSynchronize | O::cuEventSynchronize => true,
        O::cuStreamQuery | O::cuEventQuery | O::cuStreamWaitEvent | O::cuEventRecordWithFlags => true,
        O::cuCtxDestroy_v2 | O::cuDevicePrimaryCtxRelease_v2 | O::cuDevicePrimaryCtxReset_v2 => true,
        O::cuMemAlloc_v2
        | O::cuMemFree_v2
        | O::cuLaunchKernel
        | O::cuLaunchKernelEx
        | O::launch_updatable => true,
        O::cuGraphLaunch => true,
        O::cuModuleLoadData | O::cuModuleUnload | O::cuLibraryLoadData | O::cuLibraryUnload => true,
        O::module_load_known | O::library_load_known => true,
        O::cuStreamDestroy_v2 | O::cuEventDestroy_v2 => true,
        O::cuModuleLoadDataEx => true,
        // All copies and sets.
        _ if (O::memcpy_box_htoa as u32..=O::memcpy_box_atod as u32).contains(&(opcode as u32)) => true,
        _ => (O::cuMemcpyHtoD_v2 as u32..=O::cuMemsetD2D32Async as u32).contains(&(opcode as u32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_devices_needs_no_context() {
        for opcode in
            [Opcode::cuMemRelease, Opcode::cuMemUnmap, Opcode::cuMemPoolDestroy, Opcode::cuCtxDestroy_v2]
        {
            assert!(!needs_context(opcode), "{opcode:?}");
        }
        for opcode in [Opcode::cuMemAllocFromPoolAsync, Opcode::cuMemAlloc_v2, Opcode::cuTexObjectCreate] {
            assert!(needs_context(opcode), "{opcode:?}");
        }
    }
}
