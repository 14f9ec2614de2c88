// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors that are plain structures in the program's memory, as in cuBLASLt.
//!
//! Their real contents are private to the library. A descriptor in the guest therefore has contents that this project
//! defines: the attributes that were set. The attributes are sent with each call that uses the descriptor, and the
//! host's library creates a real descriptor from them. The file `rows/NAME.attributes` lists the attributes of a
//! library:
//!
//! ```text
//! descriptor matmul_desc 256 cublasLtMatmulDescInit_internal cublasLtMatmulDescSetAttribute
//! matmul_desc 0 CUBLASLT_MATMUL_DESC_COMPUTE_TYPE 4 given
//! matmul_desc 8 CUBLASLT_MATMUL_DESC_BIAS_POINTER 8 0 pointer
//! ```
//!
//! The contents of a descriptor are a word with a bit for each attribute that was set, then the attributes, the largest
//! first, then the contents of its parts.
//!
//! A library may keep private state in a descriptor, as cuSPARSELt does. Such a descriptor is an `object`: the worker
//! lets the library create it once, and uses it for all calls with the same contents. Its parts are the objects from
//! which it was created:
//!
//! ```text
//! object matmul 512
//! matmul 100 OPERATION_A 4 given
//! part matmul A mat
//! ```
//!
//! `descriptor:KIND` after an attribute means that its value is the address of a descriptor of that kind, which may be
//! null. The contents of that descriptor are sent after the contents of the first.

use std::ops::Range;

use crate::numbers::data_type_bytes;

/// Attributes of an object from this number on are arguments of the function that creates it.
pub const FIRST_ARGUMENT: u32 = 100;
/// The number of an attribute that structured matrices have and dense ones do not.
pub const SPARSITY: u32 = 106;

/// Bytes of the word with a bit for each attribute.
pub const MASK_BYTES: usize = 8;

/// A kind of descriptor.
#[derive(Debug)]
pub struct Descriptor {
    /// For example `matmul_desc`.
    pub name: &'static str,
    /// Bytes of the public structure.
    pub public_bytes: usize,
    /// The library's function that creates a descriptor. Its arguments are an address, its size, and the initial
    /// attributes. Empty for an object.
    pub init: &'static str,
    /// The library's function that sets an attribute. Its arguments are an address, the attribute's number, the value's
    /// address and its size. Empty for an object.
    pub set: &'static str,
    /// True if the library keeps private state in it.
    pub is_object: bool,
    /// The attributes, in the order of their bits.
    pub attributes: &'static [Attribute],
    /// Descriptors whose contents are part of this one's.
    pub parts: &'static [Part],
    /// Bytes of the contents that this project defines.
    pub bytes: usize,
    /// Bytes that are sent: the contents, and room for those of a descriptor whose address is an attribute.
    pub crossing_bytes: usize,
}

/// A descriptor whose contents are part of another's.
#[derive(Debug)]
pub struct Part {
    /// For example `A`.
    pub name: &'static str,
    /// Number of the kind.
    pub kind: usize,
    /// Offset in the contents of the containing descriptor, in bytes.
    pub offset: usize,
}

/// An attribute of a descriptor.
#[derive(Debug)]
pub struct Attribute {
    /// Number of the attribute.
    pub number: u32,
    /// Name of the attribute.
    pub name: &'static str,
    /// Size in bytes, at most 8.
    pub bytes: usize,
    /// Offset in the contents, in bytes.
    pub offset: usize,
    /// The value if it was not set.
    pub default: u64,
    /// True if the value is an argument of the function that creates the descriptor.
    pub is_given: bool,
    /// True if the value is a device address.
    pub is_pointer: bool,
    /// True if only the library changes it.
    pub is_readonly: bool,
    /// The kind of descriptor whose address is the value, which may be null. `None` for other attributes.
    pub descriptor: Option<usize>,
}

/// The type of the scalars that belong to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalars {
    /// Bytes per scalar.
    pub bytes: usize,
    /// True if alpha is in host memory.
    pub host_alpha: bool,
    /// True if beta is in host memory.
    pub host_beta: bool,
}

impl Descriptor {
    /// Returns the attribute with this number, and its index.
    pub fn attribute(&self, number: u32) -> Option<(usize, &Attribute)> {
        self.attributes.iter().enumerate().find(|(_, attribute)| attribute.number == number)
    }

    /// Returns the indices of the attributes that are arguments of the function that creates the descriptor, in
    /// argument order.
    pub fn given(&self) -> impl Iterator<Item = usize> {
        let attributes = self.attributes.iter().enumerate();
        attributes.filter(|(_, attribute)| attribute.is_given).map(|(index, _)| index)
    }

    /// Returns the value of the attribute with this index in `contents`, if it was set.
    pub fn value(&self, index: usize, contents: &[u8]) -> Option<u64> {
        let mask = u64::from_le_bytes(*contents.first_chunk::<MASK_BYTES>()?);
        let attribute = self.attributes.get(index)?;
        if mask >> index & 1 == 0 {
            return None;
        }
        let mut value = [0; 8];
        let bytes = contents.get(attribute.offset..attribute.offset + attribute.bytes)?;
        value[..attribute.bytes].copy_from_slice(bytes);
        Some(u64::from_le_bytes(value))
    }

    /// Sets the attribute with this index. Bits above the attribute's size are ignored.
    pub fn set(&self, index: usize, value: u64, contents: &mut [u8]) {
        let Some(attribute) = self.attributes.get(index) else { return };
        if let Some(mask) = contents.first_chunk_mut::<MASK_BYTES>() {
            *mask = (u64::from_le_bytes(*mask) | 1 << index).to_le_bytes();
        }
        if let Some(place) = contents.get_mut(attribute.offset..attribute.offset + attribute.bytes) {
            place.copy_from_slice(&value.to_le_bytes()[..attribute.bytes]);
        }
    }

    /// Initialises a new descriptor with the initial attributes.
    pub fn make(&self, given: &[u64], contents: &mut [u8]) {
        contents.fill(0);
        for (index, value) in self.given().zip(given) {
            self.set(index, *value, contents);
        }
    }

    /// Returns whether `contents` are those of an initialised descriptor.
    pub fn is_made(&self, contents: &[u8]) -> bool {
        self.given().all(|index| self.value(index, contents).is_some())
    }

    /// Returns the word with a bit for each attribute that was set.
    pub fn mask(&self, contents: &[u8]) -> u64 {
        contents.first_chunk::<MASK_BYTES>().map_or(0, |mask| u64::from_le_bytes(*mask))
    }

    /// Returns the range of the part with this index in the contents.
    ///
    /// # Panics
    ///
    /// If there is no such part.
    pub fn part(&self, all: &[Self], index: usize) -> Range<usize> {
        let part = &self.parts[index];
        part.offset..part.offset + all[part.kind].bytes
    }

    /// Returns the index of the attribute that is the address of another descriptor, and the kind of that descriptor.
    pub fn other(&self) -> Option<(usize, usize)> {
        let mut attributes = self.attributes.iter().enumerate();
        attributes.find_map(|(index, attribute)| Some((index, attribute.descriptor?)))
    }

    /// Returns the value of the attribute whose name ends with `end`, of this descriptor or of one of its parts.
    fn named(&self, all: &[Self], end: &str, contents: &[u8]) -> Option<u64> {
        let own = self.attributes.iter().position(|attribute| attribute.name.ends_with(end));
        if let Some(index) = own {
            return Some(self.value(index, contents).unwrap_or(self.attributes[index].default));
        }
        self.parts.iter().find_map(|part| all[part.kind].named(all, end, contents.get(part.offset..)?))
    }

    /// Returns the type of the scalars of a call with this descriptor.
    pub fn scalars(&self, all: &[Self], contents: &[u8]) -> Option<Scalars> {
        let named = |end: &str| self.named(all, end, contents);
        // cuSPARSELt uses floats, or vectors of them in device memory.
        if let (Some(alpha), Some(beta)) = (named("_ALPHA_VECTOR_SCALING"), named("_BETA_VECTOR_SCALING")) {
            return Some(Scalars { bytes: size_of::<f32>(), host_alpha: alpha == 0, host_beta: beta == 0 });
        }
        let bytes = data_type_bytes(i128::from(named("_SCALE_TYPE")?))?;
        let mode = named("_POINTER_MODE")?;
        // The modes are CUBLASLT_POINTER_MODE_HOST, and _ALPHA_DEVICE_VECTOR_BETA_HOST.
        Some(Scalars { bytes, host_alpha: mode == 0, host_beta: matches!(mode, 0 | 4) })
    }

    /// Replaces each address in `contents` by its alignment, so that calls that differ only in addresses compare equal if the
    /// library treats them alike.
    pub fn forget_addresses(&self, all: &[Self], contents: &mut [u8]) {
        for (index, attribute) in self.attributes.iter().enumerate() {
            if let (true, Some(value)) = (attribute.is_pointer, self.value(index, contents)) {
                self.set(index, alignment(value), contents);
            }
        }
        let other = self.other().map(|(_, kind)| (kind, self.bytes));
        let parts = self.parts.iter().map(|part| (part.kind, part.offset)).chain(other);
        for (kind, offset) in parts {
            if let Some(contents) = contents.get_mut(offset..offset + all[kind].bytes) {
                all[kind].forget_addresses(all, contents);
            }
        }
    }
}

/// Returns the alignment of an address in bytes, and 0 for null: what a library's answer may depend on. No library asks for more
/// than 256 (`cublasSetWorkspace`).
pub fn alignment(address: u64) -> u64 {
    (address & address.wrapping_neg()).min(256)
}
