// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls whose answer the worker completes by what only it knows.

use std::ffi::c_uint;
use std::ptr;

use super::argument::Opaque;
use super::raw::RawTensorMap;
use super::{CUgraphNode, CuResult, Driver};

impl Driver {
    /// Flags of the current context, with those that the driver was not told.
    pub fn context_flags(&self, kept: u32) -> CuResult<(c_uint,)> {
        self.cuCtxGetFlags().map(|(flags,)| (flags | kept,))
    }

    /// The kind of a node, unless it is one that stands for another.
    pub fn node_kind(&self, node: CUgraphNode, known: Option<u32>) -> CuResult<(c_uint,)> {
        known.map_or_else(|| self.cuGraphNodeGetType(node), |kind| Ok((kind,)))
    }

    /// A tensor map with another address. Only the driver knows how maps are encoded, and it looks at no memory here.
    pub fn map_at(&self, mut map: RawTensorMap, address: Opaque) -> CuResult<(RawTensorMap,)> {
        // SAFETY: the map has its size and alignment; the address is only put into it.
        unsafe { self.cuTensorMapReplaceAddress(&mut map, ptr::without_provenance_mut(address.0 as usize)) }?;
        Ok((map,))
    }
}
