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
    ($($(#[$doc:meta])* $number:literal $kind:ident $name:ident ($($p:ident: $pt:ty),*) -> ($($r:ident: $rt:ty),*) $([$($fact:ident)*])?;)*) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_devices_needs_no_context() {
        for opcode in
            [Opcode::cuMemRelease, Opcode::cuMemUnmap, Opcode::cuMemPoolDestroy, Opcode::cuCtxDestroy_v2]
        {
            assert!(!opcode.facts().needs_context(), "{opcode:?}");
        }
        for opcode in [Opcode::cuMemAllocFromPoolAsync, Opcode::cuMemAlloc_v2, Opcode::cuTexObjectCreate] {
            assert!(opcode.facts().needs_context(), "{opcode:?}");
        }
    }
}
