// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors that are plain structures in the program's memory, as cuBLASLt has them.
//!
//! Their real contents are private to the library. So a descriptor in the guest has contents of ours: the attributes that were
//! set. They cross with each call that uses the descriptor, and the worker has the host's library make a real one of them.
//! The attributes of a library are listed in its file `rows/NAME.attributes`:
//!
//! ```text
//! descriptor matmul_desc 256 cublasLtMatmulDescInit_internal cublasLtMatmulDescSetAttribute
//! matmul_desc 0 CUBLASLT_MATMUL_DESC_COMPUTE_TYPE 4 given
//! matmul_desc 8 CUBLASLT_MATMUL_DESC_BIAS_POINTER 8 0 pointer
//! ```
//!
//! Contents of a descriptor: a word with a bit for each attribute that was set, then the attributes, the longest first.

use crate::numbers::data_type_bytes;

/// Bytes of the word of bits.
const MASK_BYTES: usize = 8;

/// A kind of descriptor.
#[derive(Debug)]
pub struct Descriptor {
    /// `matmul_desc`
    pub name: String,
    /// Bytes of the public structure.
    pub public_bytes: usize,
    /// The library's function that makes one: of an address, its size, and the attributes that are given at first.
    pub init: String,
    /// The library's function that sets an attribute: of an address, the number, the value's address and its size.
    pub set: String,
    /// The attributes, in the order of their bits.
    pub attributes: Vec<Attribute>,
    /// Bytes of our contents.
    pub bytes: usize,
}

/// An attribute of a descriptor.
#[derive(Debug)]
pub struct Attribute {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its size, at most 8 bytes.
    pub bytes: usize,
    /// The offset in our contents.
    pub offset: usize,
    /// Its value in a descriptor in which it was not set.
    pub default: u64,
    /// The value is an argument of the function that makes the descriptor.
    pub is_given: bool,
    /// The value is a device address.
    pub is_pointer: bool,
    /// The value is the address of another descriptor, which does not cross.
    pub is_descriptor: bool,
}

/// The type of the scalars that belong to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalars {
    /// Bytes of each.
    pub bytes: usize,
    /// alpha is in host memory.
    pub host_alpha: bool,
    /// beta is in host memory.
    pub host_beta: bool,
}

impl Descriptor {
    /// The attribute of that number.
    pub fn attribute(&self, number: u32) -> Option<(usize, &Attribute)> {
        self.attributes.iter().enumerate().find(|(_, attribute)| attribute.number == number)
    }

    /// The value of the attribute of that index in `contents`, if it was set.
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

    /// Sets the attribute of that index. Only the bytes of the attribute count.
    pub fn set(&self, index: usize, value: u64, contents: &mut [u8]) {
        let Some(attribute) = self.attributes.get(index) else { return };
        if let Some(mask) = contents.first_chunk_mut::<MASK_BYTES>() {
            *mask = (u64::from_le_bytes(*mask) | 1 << index).to_le_bytes();
        }
        if let Some(place) = contents.get_mut(attribute.offset..attribute.offset + attribute.bytes) {
            place.copy_from_slice(&value.to_le_bytes()[..attribute.bytes]);
        }
    }

    /// Returns the type of the scalars of a call with this descriptor.
    pub fn scalars(&self, contents: &[u8]) -> Option<Scalars> {
        let named = |end: &str| {
            let index = self.attributes.iter().position(|attribute| attribute.name.ends_with(end))?;
            Some(self.value(index, contents).unwrap_or(self.attributes[index].default))
        };
        let bytes = data_type_bytes(i128::from(named("_SCALE_TYPE")?))?;
        let mode = named("_POINTER_MODE")?;
        // CUBLASLT_POINTER_MODE_HOST, and _ALPHA_DEVICE_VECTOR_BETA_HOST.
        Some(Scalars { bytes, host_alpha: mode == 0, host_beta: matches!(mode, 0 | 4) })
    }

    /// Replaces addresses in `contents` by whether there is one, so that two calls that differ in nothing else look alike.
    pub fn forget_addresses(&self, contents: &mut [u8]) {
        for (index, attribute) in self.attributes.iter().enumerate() {
            if let (true, Some(value)) = (attribute.is_pointer, self.value(index, contents)) {
                self.set(index, u64::from(value != 0), contents);
            }
        }
    }
}

/// Reads a file of attributes.
///
/// Errors: the line that cannot be read.
pub fn parse(text: &str) -> Result<Vec<Descriptor>, String> {
    let mut descriptors: Vec<Descriptor> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["descriptor", name, bytes, init, set] => descriptors.push(Descriptor {
                name: name.to_owned(),
                public_bytes: bytes.parse().map_err(|_| line.to_owned())?,
                init: init.to_owned(),
                set: set.to_owned(),
                attributes: Vec::new(),
                bytes: 0,
            }),
            [kind, number, name, bytes, default, ref flags @ ..] => {
                let Some(descriptor) = descriptors.iter_mut().find(|known| known.name == kind) else {
                    continue;
                };
                descriptor.attributes.push(Attribute {
                    number: number.parse().map_err(|_| line.to_owned())?,
                    name: name.to_owned(),
                    bytes: bytes.parse().map_err(|_| line.to_owned())?,
                    offset: 0,
                    default: value_of(default).ok_or(line)?,
                    is_given: default == "given",
                    is_pointer: flags.contains(&"pointer"),
                    is_descriptor: flags.contains(&"descriptor"),
                });
            }
            _ => {}
        }
    }
    descriptors.iter_mut().for_each(lay_out);
    Ok(descriptors)
}

fn value_of(text: &str) -> Option<u64> {
    match (text, text.strip_prefix("0x")) {
        ("given" | "-", _) => Some(0),
        (_, Some(digits)) => u64::from_str_radix(digits, 16).ok(),
        _ => text.parse::<i64>().ok().map(|value| value as u64),
    }
}

/// Gives attributes their places.
fn lay_out(descriptor: &mut Descriptor) {
    let mut order: Vec<usize> = (0..descriptor.attributes.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(descriptor.attributes[*index].bytes));
    let mut end = MASK_BYTES;
    for index in order {
        descriptor.attributes[index].offset = end;
        end += descriptor.attributes[index].bytes;
    }
    descriptor.bytes = end.next_multiple_of(8);
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
            descriptor.scalars(&contents),
            Some(Scalars { bytes: 8, host_alpha: true, host_beta: true }),
            "CUDA_R_64F"
        );
        descriptor.set(1, 4, &mut contents);
        assert_eq!(
            descriptor.scalars(&contents),
            Some(Scalars { bytes: 8, host_alpha: false, host_beta: true })
        );
        descriptor.forget_addresses(&mut contents);
        assert_eq!(descriptor.value(index, &contents), Some(1));
    }

    #[test]
    fn real_descriptors_fit_their_structures() {
        for library in crate::libraries() {
            for descriptor in &library.descriptors {
                assert!(descriptor.bytes <= descriptor.public_bytes, "{descriptor:?}");
                assert!(
                    descriptor.attributes.len() <= 64 && !descriptor.attributes.is_empty(),
                    "{descriptor:?}"
                );
                assert!(descriptor.attributes.iter().all(|attribute| attribute.bytes <= 8), "{descriptor:?}");
            }
        }
    }
}
