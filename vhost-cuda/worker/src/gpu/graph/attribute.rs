// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of launches, streams and kernel nodes.

use std::ffi::c_int;

use cudarc::driver::sys::{CUlaunchAttributeID, CUlaunchAttributeValue};
use zerocopy::transmute;

use super::super::raw::RawLaunchAttribute;
use super::super::{CUgraphNode, CUstream, CuResult, CudaError, Driver};

/// `CUlaunchAttributeValue`.
pub type AttributeValue = [u8; 64];

const _: () = assert!(size_of::<AttributeValue>() == size_of::<CUlaunchAttributeValue>());

/// Returns an attribute in the driver's form. Its id may be newer than cudarc.
pub fn launch_attribute(id: u32, value: &AttributeValue) -> RawLaunchAttribute {
    RawLaunchAttribute { id, pad: 0, value: transmute!(*value) }
}

/// Returns the value of an attribute.
pub fn value_of(attribute: &RawLaunchAttribute) -> AttributeValue {
    transmute!(attribute.value)
}

/// Attributes whose values contain handles of events.
pub const EVENT_ATTRIBUTES: [c_int; 2] = [
    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT as c_int,
    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT as c_int,
];

/// Returns whether an attribute's value is known to have no address and, but for [`EVENT_ATTRIBUTES`], no handle. 15 is
/// reserved; 18 is the last one of CUDA 13.3.
pub fn is_documented(attribute: c_int) -> bool {
    matches!(attribute, 0..=14 | 16..=18)
}

/// Checks that the value of an attribute may be passed to the guest.
fn check(attribute: c_int) -> CuResult<()> {
    if is_documented(attribute) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// Returns a value without the driver's handles. The handle of a node that device code changes is a number for the
/// device.
fn without_handles(attribute: c_int, value: AttributeValue) -> AttributeValue {
    if EVENT_ATTRIBUTES.contains(&attribute) { [0; 64] } else { value }
}

#[repr(C, align(8))]
struct Aligned(AttributeValue);

impl Driver {
    /// Returns an attribute of a stream.
    pub fn stream_attribute(&self, stream: CUstream, attribute: c_int) -> CuResult<(AttributeValue,)> {
        check(attribute)?;
        let mut value = Aligned([0; 64]);
        // SAFETY: the value has the size and alignment of a `CUlaunchAttributeValue`.
        unsafe { self.cuStreamGetAttribute(stream, attribute, (&raw mut value).cast()) }?;
        Ok((without_handles(attribute, value.0),))
    }

    /// Sets an attribute of a stream.
    pub fn set_stream_attribute(
        &self,
        attribute: c_int,
        value: AttributeValue,
        stream: CUstream,
    ) -> CuResult<()> {
        let value = Aligned(value);
        // SAFETY: the value has the size and alignment of a `CUlaunchAttributeValue` and lives across the call.
        unsafe { self.cuStreamSetAttribute(stream, attribute, (&raw const value).cast()) }
    }

    /// Returns an attribute of a kernel node.
    pub fn node_attribute(&self, node: CUgraphNode, attribute: c_int) -> CuResult<(AttributeValue,)> {
        check(attribute)?;
        let mut value = Aligned([0; 64]);
        // SAFETY: the value has the size and alignment of a `CUlaunchAttributeValue`, which the driver fills in.
        unsafe { self.cuGraphKernelNodeGetAttribute(node, attribute, (&raw mut value).cast()) }?;
        Ok((without_handles(attribute, value.0),))
    }

    /// Sets an attribute of a kernel node.
    pub fn set_node_attribute(
        &self,
        attribute: c_int,
        value: AttributeValue,
        node: CUgraphNode,
    ) -> CuResult<()> {
        let value = Aligned(value);
        // SAFETY: the value has the size and alignment of a `CUlaunchAttributeValue` and lives across the call.
        unsafe { self.cuGraphKernelNodeSetAttribute(node, attribute, (&raw const value).cast()) }
    }
}
