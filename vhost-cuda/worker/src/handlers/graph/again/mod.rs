// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs of a session as bytes, from which they are made again after a deep suspension, also in another worker.
//!
//! The driver tells what is in a graph, so this is asked when the session has stopped ([`describe`]), and nothing is noted while programs
//! run but what the driver does not tell: [`crate::objects::graphs::sources`]. [`make`] calls the handlers that the program's own calls have
//! called, with their checks.

mod describe;
mod leftovers;
mod library;
mod make;
mod unset;

use virtio_cuda_protocol::cuda::ContextId;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::describe::describe;
pub use self::make::make;
use crate::call::{CallContext, ThreadState};
use crate::memory::bulk::{BulkIn, BulkOut};
use crate::state::SessionState;

/// The maximum length of all graphs of a session, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// The maximum number of graphs that lie in each other.
const MAX_DEPTH: usize = 16;

/// The kind of a node that a library has added ([`library`]).
const OF_LIBRARY: u32 = 1 << 31;

/// The first bytes. `objects` times [`References`] follow, then `graphs` times [`GraphHead`], then `execs` times [`ExecHead`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// The only context.
    context: u64,
    /// The number of names that the worker has given.
    named: u64,
    objects: u64,
    graphs: u64,
    execs: u64,
}

/// A user object of the program, and references to it: the program's own, or a graph's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct References {
    object: u64,
    count: u64,
}

/// A graph. `nodes` times [`NodeHead`] follow, `edges` times [`EdgeRow`], and `objects` times [`References`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct GraphHead {
    name: u64,
    nodes: u64,
    edges: u64,
    objects: u32,
    /// 1 if only executable graphs need it.
    is_hidden: u32,
}

/// A node. Its parameters follow as for `graph_add_node`, and its attributes ([`AttributeRow`]). For a graph in a node, a [`GraphHead`] follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct NodeHead {
    name: u64,
    kind: u32,
    bytes: u32,
    attributes: u64,
}

/// An attribute of a kernel node.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct AttributeRow {
    id: u64,
    value: [u8; 64],
}

/// An edge, with its `CUgraphEdgeData`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct EdgeRow {
    from: u64,
    to: u64,
    data: [u8; 8],
}

/// An executable graph. `own` nodes with parameters of their own follow, as [`NodeHead`] without attributes, and the names of `off` nodes that are
/// switched off.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ExecHead {
    name: u64,
    graph: u64,
    flags: u64,
    own: u64,
    off: u64,
}

/// Returns the state of a call of the session's own, with this bulk input.
fn call<'a>(
    session: &'static SessionState,
    thread: &'a mut ThreadState,
    context: ContextId,
    bulk: &'a [u8],
) -> CallContext<'a> {
    CallContext {
        session,
        thread,
        context,
        api_call: 0,
        bulk_in: BulkIn::Inline(bulk),
        bulk_out: BulkOut::inline(0),
        kept: None,
    }
}
