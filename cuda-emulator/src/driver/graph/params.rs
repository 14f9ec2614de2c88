// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of nodes.

/// CUgraphNodeType
pub(super) const KERNEL: u32 = 0;
pub(super) const MEMCPY: u32 = 1;
pub(super) const MEMSET: u32 = 2;
pub(super) const HOST: u32 = 3;
pub(super) const GRAPH: u32 = 4;
pub(super) const EMPTY: u32 = 5;
pub(super) const WAIT_EVENT: u32 = 6;
pub(super) const EVENT_RECORD: u32 = 7;
pub(super) const SEMAPHORES_SIGNAL: u32 = 8;
pub(super) const SEMAPHORES_WAIT: u32 = 9;
pub(super) const MEM_ALLOC: u32 = 10;
pub(super) const MEM_FREE: u32 = 11;
pub(super) const BATCH_MEM_OP: u32 = 12;
pub(super) const CONDITIONAL: u32 = 13;
