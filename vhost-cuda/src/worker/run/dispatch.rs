// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an opcode to its handler, made from the call table. The handler of a `custom` row is the function of that name in
//! [`crate::worker::handlers`], and the build fails without it; those of all other rows are derived here.

use std::any::Any;

use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::*;

use super::call::CallContext;
use super::marks::Place;
use super::resolve::{Answer, Region, Resolve, elements, rows};
use super::work::Work;
use crate::worker::gpu::{CuResult, CudaError, STREAM_LEGACY};
use crate::worker::handlers;
use crate::worker::handlers::module::{image, variable};
use crate::worker::nvml::Nvml;
use crate::worker::objects::lifecycle;
use crate::worker::words::*;

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

/// Waits until the call may put work on the GPU, if it does so and the session watches work.
macro_rules! work {
    ($cx:ident $name:ident ($($p:ident),*)) => {
        if const { Opcode::$name.facts().is_gpu_work() }
            && $cx.session.watches_work()
        {
            let all: [Option<StreamId>; _] = [$((&$p as &dyn Any).downcast_ref().copied()),*];
            let place = match all.into_iter().flatten().next() {
                _ if matches!(Opcode::$name, Opcode::vendor_call) => Place::Unknown,
                Some(stream) => Place::Stream(stream),
                None => Place::Stream(StreamId(STREAM_LEGACY as u64)),
            };
            Some(Work::begin($cx, place))
        } else {
            None
        }
    };
}

macro_rules! call {
    (forward $cx:ident $name:ident $inputs:tt $results:tt) => {
        call!(forward $cx $name $inputs $results as $name $inputs)
    };
    (forward $cx:ident $name:ident ($($p:ident),*) ($($r:ident: $rt:ty),*) as $function:ident ($($arg:expr),*)) => {{
        enter!($cx ($($p),*));
        let ($($r,)*) = $cx.session.gpu.$function($(Resolve::resolve($arg, $cx)?),*)?;
        Ok(($(<_ as Answer<$rt>>::answer($r, $cx)?,)*))
    }};
    (forward $cx:ident $name:ident ($($p:ident),*) () where $($range:ident: $bytes:expr),*) => {
        'empty: {
            $(let $range = Region { start: $range, bytes: $bytes, written: stringify!($range) == "dst" };)*
            $(let $p = Resolve::resolve($p, $cx)?;)*
            $(let Some($range) = $range.checked($cx)? else { break 'empty Ok(()) };)*
            // SAFETY: the row's `where` clause states the bytes that the driver uses at each address; they are the
            // session's. The other arguments are good by themselves.
            unsafe { $cx.session.gpu.$name($($p),*) }
        }
    };
    (create $cx:ident $name:ident ($new:ident $(, $p:ident)*) ()) => {
        call!(create $cx $name ($new) () as $name ($($p),*))
    };
    (create $cx:ident $name:ident ($new:ident $(, $p:ident)*) () as $function:ident ($($arg:expr),*)) => {{
        let reserved = lifecycle::Create::reserve($new, $cx)?;
        let (raw,) = $cx.session.gpu.$function($(Resolve::resolve($arg, $cx)?),*)?;
        lifecycle::Create::made($new, $cx, reserved, raw)
    }};
    (destroy $cx:ident $name:ident ($p:ident) ()) => { lifecycle::Destroy::destroy($p, $cx) };
    (destroy $cx:ident $name:ident ($p:ident) () as $of:ident ($arg:expr)) => {
        lifecycle::Destroy::destroy($of($arg), $cx)
    };
    (part $cx:ident $name:ident ($of:ident, $new:ident) ($($r:ident: $rt:ty),*) as $function:ident ($($arg:expr),*)) => {{
        let whole = lifecycle::Whole::whole($of, $cx)?;
        let reserved = lifecycle::reserve($cx, $new)?;
        let (raw,) = $cx.session.gpu.$function($(Resolve::resolve($arg, $cx)?),*)?;
        $(let $r: $rt = lifecycle::described($cx, raw)?;)*
        $cx.fill(reserved, lifecycle::part($cx, $of, $new, raw, whole)?)?;
        Ok(($($r,)*))
    }};
    (part $cx:ident $name:ident ($of:ident, $index:ident, $new:ident) $results:tt as $function:ident ($($arg:expr),*)) => {
        call!(part $cx $name ($of, $new) $results as $function ($($arg),*))
    };
    (variable $cx:ident $name:ident ($owner:ident) ($dptr:ident: $pt:ty, $bytes:ident: $bt:ty)) => {{
        let (dptr, bytes) = $cx.session.gpu.$name($cx.resolve($owner)?, $cx.bulk_in.name()?)?;
        variable::found($cx, $owner, dptr, bytes)
    }};
    (variable $cx:ident $name:ident ($owner:ident) ($dptr:ident: $pt:ty, $bytes:ident: $bt:ty, $managed:ident: $mt:ty)) => {{
        let ($dptr, $bytes) = call!(variable $cx $name ($owner) ($dptr: $pt, $bytes: $bt))?;
        Ok(($dptr, $bytes, variable::is_managed($cx, $dptr)?.into()))
    }};
    (load $cx:ident $name:ident ($new:ident) ()) => { image::load($cx, $new) };
    (load $cx:ident $name:ident ($new:ident, $digest:ident, $bytes:ident) ($known:ident: $kt:ty)) => {
        image::load_known($cx, $new, $digest, $bytes)
    };
    (upload $cx:ident $name:ident ($dst:ident, $stream:ident) ()) => {
        handlers::upload($cx, $dst, $stream, matches!(Opcode::$name, Opcode::cuMemcpyHtoD_v2))
    };
    (download $cx:ident $name:ident ($src:ident $(, $stream:ident)?) ()) => {{
        let stream = call!(stream $cx $($stream)?);
        handlers::download($cx, $src, stream)
    }};
    (stream $cx:ident) => { STREAM_LEGACY };
    (stream $cx:ident $stream:ident) => { $cx.resolve($stream)? };
    (card $cx:ident $name:ident () $results:tt) => {
        Nvml::$name(handlers::nvml_of($cx, DeviceOrdinal(0))?).ok_or(CudaError::NOT_SUPPORTED)
    };
    (card $cx:ident $name:ident ($device:ident $(, $p:ident)*) $results:tt) => {
        Nvml::$name(handlers::nvml_of($cx, $device)?, $($p),*).ok_or(CudaError::NOT_SUPPORTED)
    };
    (custom $cx:ident $name:ident ($($p:ident),*) ($($r:ident: $rt:ty),*)) => { handlers::$name($cx, $($p),*) };
}

macro_rules! emit_dispatch {
    ($($(#[$doc:meta])* $number:literal $kind:ident $name:ident ($($p:ident: $pt:ty),*) -> ($($r:ident: $rt:ty),*) [$($fact:ident)*] $(as $function:ident($($arg:expr),*))? $(entry $order:ident $(/ $per_thread:ident)?)? $(where $($range:ident: $bytes:expr),*)?;)*) => {
        /// Takes the arguments of `opcode`, executes it and puts its results.
        ///
        /// Errors: `CUDA_ERROR_INVALID_VALUE` for arguments that are too short, too long or out of range; else
        /// the handler's error.
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
                    // Before the call locks anything.
                    let work: Option<Work> = work!(cx $name ($($p),*));
                    let outcome: CuResult<($($rt,)*)> =
                        call!($kind cx $name ($($p),*) ($($r: $rt),*) $(as $function ($($arg),*))? $(where $($range: $bytes),*)?);
                    if let Some(work) = work {
                        work.started(cx);
                    }
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
