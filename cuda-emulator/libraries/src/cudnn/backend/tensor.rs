// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Tensors of graphs.

use super::super::layout::{Layout, data_type};
use super::super::{BAD_PARAM, NOT_SUPPORTED, Status};
use super::descriptor::Attributes;
use crate::numbers::Type;

/// The maximum number of elements of a virtual or ragged tensor. Bounds the allocation of a graph, which no memory of
/// the program bounds.
const MAX_VIRTUAL: usize = 1 << 28;
/// The maximum number of elements of all such tensors that a graph needs at the same time, and of an operation's
/// temporary memory.
pub const MAX_ALIVE: usize = 2 * MAX_VIRTUAL;

/// A tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The number that identifies it in a graph.
    pub uid: i64,
    pub layout: Layout,
    /// It passes from one operation to the next, and is in no memory.
    pub is_virtual: bool,
    /// It is one number in host memory.
    pub is_by_value: bool,
    /// The number and the layout of the tensor of its batches' offsets, if it is ragged.
    pub offsets: Option<(i64, Layout)>,
}

impl Tensor {
    /// A tensor of these attributes.
    pub fn new(attributes: &Attributes) -> Result<Self, Status> {
        let kind = i32::try_from(attributes.integer(901)?).map_err(|_| BAD_PARAM)?;
        // Vectors of channels, and elements in another order.
        if attributes.integer_or(904, 1)? != 1 || attributes.integer_or(909, 0)? != 0 {
            return Err(NOT_SUPPORTED);
        }
        // A truth value (`CUDNN_DATA_BOOLEAN`) is a byte: 0 or 1.
        let kind = if kind == 11 { Type::I8 } else { data_type(kind)? };
        let layout = Layout::new(kind, &attributes.integers(902)?, &attributes.integers(903)?)?;
        let offsets = attributes.optional_tensor(913)?;
        let tensor = Self {
            uid: attributes.integer(906)?,
            layout,
            is_virtual: attributes.integer_or(907, 0)? != 0,
            is_by_value: attributes.integer_or(908, 0)? != 0,
            offsets: offsets.as_ref().map(|offsets| (offsets.uid, offsets.layout.clone())),
        };
        if tensor.is_by_value && (tensor.is_virtual || tensor.layout.count() != 1) {
            return Err(BAD_PARAM);
        }
        // Also keeps tensors from forming a chain.
        let is_plain =
            |offsets: &Self| !offsets.is_virtual && !offsets.is_by_value && offsets.offsets.is_none();
        if !offsets.as_ref().is_none_or(is_plain) || tensor.is_by_value && offsets.is_some() {
            return Err(BAD_PARAM);
        }
        if tensor.is_unbounded() && tensor.layout.count() > MAX_VIRTUAL {
            return Err(NOT_SUPPORTED);
        }
        Ok(tensor)
    }

    /// Returns whether no memory of the program's bounds its size.
    pub fn is_unbounded(&self) -> bool {
        self.is_virtual || self.offsets.is_some()
    }

    pub fn dims(&self) -> &[usize] {
        &self.layout.dims
    }
}
