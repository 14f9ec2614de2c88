// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an opcode to its handler, made from the call table. The handlers of `forward`, `create` and `destroy` rows are
//! derived here; that of a `custom` row is the function of that name in [`crate::worker::handlers`], and the build fails without it.

use std::any::Any;

use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::*;

use super::call::CallContext;
use super::resolve::{Answer, Region, Resolve, elements, rows};
use crate::worker::gpu::{CuResult, CudaError};
use crate::worker::handlers;
use crate::worker::objects::lifecycle;

/// Locks the graphs of nodes first: they may be several, and come before anything else.
macro_rules! enter {
    ($cx:ident ($($p:ident),*)) => {
        let all: [Option<GraphNodeId>; _] = [$((&$p as &dyn Any).downcast_ref().copied()),*];
        let nodes: SmallVec<[GraphNodeId; 2]> = all.into_iter().flatten().collect();
        if !nodes.is_empty() {
            $cx.enter(&[], &nodes);
        }
    };
}

macro_rules! call {
    (forward $cx:ident $name:ident ($($p:ident),*) ($($r:ident: $rt:ty),*)) => {{
        enter!($cx ($($p),*));
        let ($($r,)*) = $cx.session.gpu.$name($(Resolve::resolve($p, $cx)?),*)?;
        Ok(($(<_ as Answer<$rt>>::answer($r, $cx)?,)*))
    }};
    (forward $cx:ident $name:ident ($($p:ident),*) () where $($range:ident: $bytes:expr),*) => {
        'empty: {
            $(let $range = Region { start: $range, bytes: $bytes };)*
            $(let $p = Resolve::resolve($p, $cx)?;)*
            $(let Some($range) = $range.checked($cx)? else { break 'empty Ok(()) };)*
            // SAFETY: the row's `where` clause states the bytes that the driver uses at each address; they are the
            // session's. The other arguments are good by themselves.
            unsafe { $cx.session.gpu.$name($($p),*) }
        }
    };
    (create $cx:ident $name:ident ($new:ident $(, $p:ident)*) ()) => {{
        let reserved = lifecycle::reserve($cx, $new)?;
        let (raw,) = $cx.session.gpu.$name($(Resolve::resolve($p, $cx)?),*)?;
        $cx.fill(reserved, made($cx, $new, raw))
    }};
    (destroy $cx:ident $name:ident ($p:ident) ()) => { lifecycle::destroy($cx, $p) };
    (custom $cx:ident $name:ident ($($p:ident),*) ($($r:ident: $rt:ty),*)) => { handlers::$name($cx, $($p),*) };
}

/// As [`lifecycle::Create::made`], with the type taken from the name.
fn made<T: lifecycle::Create>(cx: &CallContext<'_>, _: T, raw: T::Raw) -> crate::worker::objects::Object {
    T::made(cx, raw)
}

macro_rules! emit_dispatch {
    ($($(#[$doc:meta])* $number:literal $kind:ident $name:ident ($($p:ident: $pt:ty),*) -> ($($r:ident: $rt:ty),*) $([$($fact:ident)*])? $(where $($range:ident: $bytes:expr),*)?;)*) => {
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
                    let outcome: CuResult<($($rt,)*)> =
                        call!($kind cx $name ($($p),*) ($($r: $rt),*) $(where $($range: $bytes),*)?);
                    let ($($r,)*) = outcome?;
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
