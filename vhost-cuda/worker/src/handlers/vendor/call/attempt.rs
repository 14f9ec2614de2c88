// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call of a library's function, as far as all of its steps know it.

use cuda_library_rows::block::attribute_type_handle;
use cuda_library_rows::{Call, Element, Host};
use smallvec::SmallVec;

use crate::call::CallContext;
use crate::vendor::handles::Handles;
use crate::vendor::load::Loaded;

/// The words of a call's parameters. Most calls have few enough that this, like [`Answers`], needs no allocation.
pub type Slots = SmallVec<[u64; 24]>;
pub type Answers = SmallVec<[u8; 128]>;

/// The handles that a call uses, by kind and name.
pub type Named = SmallVec<[(usize, u64); 4]>;

/// The guest's contents of `inout` memory that holds handles, by parameter. Answers contain the guest's numbers, not
/// the library's.
pub type Originals = SmallVec<[(usize, Vec<u8>); 1]>;

/// A call that is about to be made.
pub struct Attempt<'a> {
    /// The call.
    pub cx: &'a CallContext<'a>,
    /// The library.
    pub loaded: &'a Loaded,
    /// The number of the function.
    pub number: u32,
    /// The row of the function.
    pub call: &'a Call,
    /// The address of the function.
    pub address: usize,
}

impl<'a> Attempt<'a> {
    /// The library's handles.
    pub fn handles(&self) -> &'a Handles {
        &self.loaded.handles
    }

    /// Returns the kind of handles that lie in host memory.
    pub fn handles_in(&self, host: &Host, slots: &[u64]) -> Option<usize> {
        match host.element {
            Element::Handle(kind) => Some(kind),
            Element::ByAttribute { kind, .. } => {
                let name = attribute_type_handle(self.call.integer(kind, slots)?)?;
                self.loaded.rows.handles.iter().position(|kind| kind.name == name)
            }
            _ => None,
        }
    }
}
