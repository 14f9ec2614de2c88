// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for the contents of the bulk input, and for what belongs to the call.

use std::ffi::CString;

use virtio_cuda_protocol::cuda::Reader;

use crate::call::CallContext;
use crate::gpu::{
    CUcontext, CheckedOperations, CuResult, CudaError, Driver, Edges, Links, MAX_GROUPS, RawDevResource,
};
use crate::resolve::Resolve;
use crate::words::contents::{self, take};
use crate::words::values::memory_operations;

/// Defines words without arguments, whose values come from the call.
macro_rules! bulk {
    ($($(#[$doc:meta])* $word:ident() -> $name:ident: $host:ty = |$cx:ident| $made:expr;)*) => { $(
        $(#[$doc])*
        pub struct $name;
        $(#[$doc])*
        pub fn $word() -> $name {
            $name
        }
        impl Resolve<'_, $host> for $name {
            fn resolve(self, $cx: &CallContext<'_>) -> CuResult<$host> {
                $made
            }
        }
    )* };
}
bulk! {
    /// A name.
    name() -> Name: CString = |cx| cx.bulk_in.name();
    /// Edges of a graph.
    edges() -> BulkEdges: Edges = |cx| contents::edges(cx);
    /// Nodes at the other ends of edges.
    links() -> BulkLinks: Links = |cx| contents::all_links(cx);
    /// Operations on memory at addresses of the session.
    operations() -> BulkOperations: CheckedOperations = |cx| checked_operations(cx);
    /// The current context.
    current_context() -> CurrentContext: CUcontext = |cx| cx.resolve(cx.context);
    /// The driver.
    driver() -> TheDriver: &'static Driver = |cx| Ok(cx.gpu());
    /// The driver's version.
    driver_version() -> DriverVersion: i32 = |cx| Ok(cx.gpu().cuDriverGetVersion()?.0);
    /// The room in the bulk output, in bytes.
    room() -> Room: u64 = |cx| Ok(cx.bulk_out.room());
    /// Resources of a device, by their names.
    resources() -> BulkResources: Vec<RawDevResource> = |cx| named_resources(cx);
}

fn checked_operations(cx: &CallContext<'_>) -> CuResult<CheckedOperations> {
    let operations = memory_operations(cx, &contents::bulk(cx)?)?;
    // SAFETY: `memory_operations` has compared each address with the session's memory.
    Ok(unsafe { CheckedOperations::new(operations) })
}

fn named_resources(cx: &CallContext<'_>) -> CuResult<Vec<RawDevResource>> {
    let bytes = contents::bulk(cx)?;
    if bytes.is_empty() || bytes.len() > MAX_GROUPS as usize * size_of::<u64>() {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut reader = Reader::new(&bytes);
    let mut resources = Vec::new();
    while !reader.rest().is_empty() {
        resources.push(cx.session.resources.get(take(&mut reader)?)?);
    }
    Ok(resources)
}
