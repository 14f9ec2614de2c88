// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls whose result the worker completes with values that only it knows.

use std::ffi::c_uint;
use std::ptr;

use super::argument::Opaque;
use super::raw::RawTensorMap;
use super::{CUgraphNode, CuResult, Driver};

impl Driver {
    /// Returns the flags of the current context, including those that were not passed to the driver.
    pub fn context_flags(&self, kept: u32) -> CuResult<(c_uint,)> {
        self.cuCtxGetFlags().map(|(flags,)| (flags | kept,))
    }

    /// Returns the kind of a node, unless the node stands for another one.
    pub fn node_kind(&self, node: CUgraphNode, known: Option<u32>) -> CuResult<(c_uint,)> {
        known.map_or_else(|| self.cuGraphNodeGetType(node), |kind| Ok((kind,)))
    }

    /// Returns a tensor map with another address. Only the driver knows the encoding of maps, and it does not access
    /// memory here.
    pub fn map_at(&self, mut map: RawTensorMap, address: Opaque) -> CuResult<(RawTensorMap,)> {
        // SAFETY: the map has its size and alignment; the address is only put into it.
        unsafe { self.cuTensorMapReplaceAddress(&mut map, ptr::without_provenance_mut(address.0 as usize)) }?;
        Ok((map,))
    }
}
