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
const MASK_BYTES: usize = 8;

/// A kind of descriptor.
#[derive(Debug)]
pub struct Descriptor {
    /// For example `matmul_desc`.
    pub name: String,
    /// Bytes of the public structure.
    pub public_bytes: usize,
    /// The library's function that creates a descriptor. Its arguments are an address, its size, and the initial
    /// attributes. Empty for an object.
    pub init: String,
    /// The library's function that sets an attribute. Its arguments are an address, the attribute's number, the value's
    /// address and its size. Empty for an object.
    pub set: String,
    /// True if the library keeps private state in it.
    pub is_object: bool,
    /// The attributes, in the order of their bits.
    pub attributes: Vec<Attribute>,
    /// Descriptors whose contents are part of this one's.
    pub parts: Vec<Part>,
    /// Bytes of the contents that this project defines.
    pub bytes: usize,
    /// Bytes that are sent: the contents, and room for those of a descriptor whose address is an attribute.
    pub crossing_bytes: usize,
}

/// A descriptor whose contents are part of another's.
#[derive(Debug)]
pub struct Part {
    /// For example `A`.
    pub name: String,
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
    pub name: String,
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

/// Reads a file of attributes.
///
/// Errors: describes the line that cannot be parsed.
pub fn parse(text: &str) -> Result<Vec<Descriptor>, String> {
    let mut descriptors: Vec<Descriptor> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["descriptor", name, bytes, init, set] => {
                descriptors.push(Descriptor {
                    init: init.to_owned(),
                    set: set.to_owned(),
                    ..empty(name, bytes).ok_or(line)?
                });
            }
            ["object", name, bytes] => {
                descriptors.push(Descriptor { is_object: true, ..empty(name, bytes).ok_or(line)? });
            }
            ["part", of, name, kind] => {
                let kind = descriptors.iter().position(|known| known.name == kind).ok_or(line)?;
                let of = descriptors.iter_mut().find(|known| known.name == of).ok_or(line)?;
                of.parts.push(Part { name: name.to_owned(), kind, offset: 0 });
            }
            [kind, number, name, bytes, default, ref flags @ ..] => {
                let position = |name: &str| descriptors.iter().position(|known| known.name == name);
                let Some(descriptor) = position(kind) else { continue };
                let other = flags.iter().find_map(|flag| flag.strip_prefix("descriptor:"));
                let other = other.map(|name| position(name).ok_or(line)).transpose()?;
                descriptors[descriptor].attributes.push(Attribute {
                    number: number.parse().map_err(|_| line.to_owned())?,
                    name: name.to_owned(),
                    bytes: bytes.parse().map_err(|_| line.to_owned())?,
                    offset: 0,
                    default: value_of(default).ok_or(line)?,
                    is_given: default == "given",
                    is_pointer: flags.contains(&"pointer") || other.is_some(),
                    is_readonly: flags.contains(&"readonly"),
                    descriptor: other,
                });
            }
            _ => {}
        }
    }
    // A part is listed before the descriptor that contains it.
    for index in 0..descriptors.len() {
        let (before, rest) = descriptors.split_at_mut(index);
        lay_out(&mut rest[0], before);
    }
    for index in 0..descriptors.len() {
        let other = descriptors[index].other().map_or(0, |(_, kind)| descriptors[kind].bytes);
        descriptors[index].crossing_bytes = descriptors[index].bytes + other;
    }
    Ok(descriptors)
}

fn empty(name: &str, bytes: &str) -> Option<Descriptor> {
    Some(Descriptor {
        name: name.to_owned(),
        public_bytes: bytes.parse().ok()?,
        init: String::new(),
        set: String::new(),
        is_object: false,
        attributes: Vec::new(),
        parts: Vec::new(),
        bytes: 0,
        crossing_bytes: 0,
    })
}

fn value_of(text: &str) -> Option<u64> {
    match (text, text.strip_prefix("0x")) {
        ("given" | "-", _) => Some(0),
        (_, Some(digits)) => u64::from_str_radix(digits, 16).ok(),
        _ => text.parse::<i64>().ok().map(|value| value as u64),
    }
}

/// Sets the offsets of attributes and parts. `before` contains the descriptors that are listed before this one.
fn lay_out(descriptor: &mut Descriptor, before: &[Descriptor]) {
    let mut order: Vec<usize> = (0..descriptor.attributes.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(descriptor.attributes[*index].bytes));
    let mut end = MASK_BYTES;
    for index in order {
        descriptor.attributes[index].offset = end;
        end += descriptor.attributes[index].bytes;
    }
    end = end.next_multiple_of(8);
    for part in &mut descriptor.parts {
        part.offset = end;
        end += before[part.kind].bytes;
    }
    descriptor.bytes = end;
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# comment\ndescriptor d 64 init set\nd 0 A_SCALE_TYPE 4 given\nd 3 A_POINTER_MODE 4 0\n\
                        d 5 A_POINTER 8 0 pointer\nother 1 B 4 0\n";

    #[test]
    fn contents_have_what_was_set() {
        let descriptor = parse(TEXT).expect("valid").remove(0);
        let mut contents = vec![0; descriptor.bytes];
        let (index, attribute) = descriptor.attribute(5).expect("known");
        assert_eq!((attribute.offset, descriptor.bytes), (8, 24), "the longest comes first");
        assert_eq!(descriptor.value(index, &contents), None);
        descriptor.set(index, 0x7000, &mut contents);
        descriptor.set(0, 1, &mut contents);
        assert_eq!(descriptor.value(index, &contents), Some(0x7000));
        assert_eq!(
            descriptor.scalars(&[], &contents),
            Some(Scalars { bytes: 8, host_alpha: true, host_beta: true }),
            "CUDA_R_64F"
        );
        descriptor.set(1, 4, &mut contents);
        assert_eq!(
            descriptor.scalars(&[], &contents),
            Some(Scalars { bytes: 8, host_alpha: false, host_beta: true })
        );
        descriptor.forget_addresses(&[], &mut contents);
        assert_eq!(descriptor.value(index, &contents), Some(256));
        assert_eq!([0, 0x7000, 0x7080, 0x7004, 0x7001].map(alignment), [0, 256, 128, 4, 1]);
    }

    #[test]
    fn parts_and_other_descriptors_have_their_places() {
        let text = "object part 64\npart 0 X_ALPHA_VECTOR_SCALING 4 0\npart 1 X_BETA_VECTOR_SCALING 4 0\n\
                    part 2 P 8 0 pointer\nobject whole 64\nwhole 9 GIVEN 4 given\npart whole A part\npart whole B part\n\
                    descriptor d 64 init set\nd 1 OTHER 8 0 descriptor:part\n";
        let all = parse(text).expect("valid");
        let [part, whole, d] = &all[..] else { panic!("{all:?}") };
        assert_eq!((part.bytes, whole.bytes, whole.crossing_bytes), (24, 16 + 2 * 24, 16 + 2 * 24));
        assert_eq!((whole.part(&all, 1), d.bytes, d.crossing_bytes), (40..64, 16, 40));
        let mut contents = vec![0xff; whole.bytes];
        whole.make(&[5], &mut contents);
        assert!(whole.is_made(&contents) && !whole.is_made(&[0; 64]));
        assert_eq!(whole.value(0, &contents), Some(5));
        let scalars = |contents: &[u8]| whole.scalars(&all, contents).expect("floats");
        assert_eq!(scalars(&contents), Scalars { bytes: 4, host_alpha: true, host_beta: true });
        part.set(0, 1, &mut contents[16..40]);
        part.set(2, 0x7000, &mut contents[16..40]);
        assert_eq!(scalars(&contents), Scalars { bytes: 4, host_alpha: false, host_beta: true });
        whole.forget_addresses(&all, &mut contents);
        assert_eq!(part.value(2, &contents[16..40]), Some(256));
    }

    #[test]
    fn real_descriptors_fit_their_structures() {
        for library in crate::libraries() {
            for descriptor in &library.descriptors {
                assert!(descriptor.bytes <= descriptor.public_bytes, "{descriptor:?}");
                assert!(descriptor.attributes.iter().filter(|known| known.descriptor.is_some()).count() <= 1);
                assert!(
                    descriptor.attributes.len() <= 64 && !descriptor.attributes.is_empty(),
                    "{descriptor:?}"
                );
                assert!(descriptor.attributes.iter().all(|attribute| attribute.bytes <= 8), "{descriptor:?}");
            }
        }
    }
}
