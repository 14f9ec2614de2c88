// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that make the objects of a session again ([`super::again`]).

use std::ffi::CString;

use virtio_cuda_protocol::cuda::Opcode;

use super::kept::{Call, Key};
use crate::objects::images::Mapped;

/// A call that is made again.
#[derive(Debug)]
pub struct Step {
    /// The call.
    pub call: Call,
    /// The thing that it makes, or whose setting it changes.
    pub key: Key,
    /// The image of device code, with a NUL, if the recipe has only its digest.
    pub image: Option<Mapped>,
    /// The names of the variables of a module or library.
    pub variables: Vec<CString>,
}

/// The calls of a recipe in their order.
#[derive(Debug)]
pub struct Again(pub Vec<Step>);

impl Again {
    /// Returns the number of calls.
    pub fn calls(&self) -> usize {
        self.0.len()
    }

    /// Returns whether a call opens an event of another process.
    pub fn opens_events(&self) -> bool {
        self.0.iter().any(|step| step.call.opcode == Opcode::cuIpcOpenEventHandle)
    }
}
