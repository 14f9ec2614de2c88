// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Objects of cuSPARSELt in a program's memory. Those of the guest's library and of the emulator have the same contents
//! ([`cuda_library_rows::attributes`]).

use cuda_library_rows::CUSPARSELT;
pub use cuda_library_rows::attributes::SPARSITY;
use cuda_library_rows::attributes::{Attribute, Descriptor, FIRST_ARGUMENT};

/// `cusparseStatus_t`
type Status = i32;

const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 3;
const NOT_SUPPORTED: Status = 10;

/// A kind of object.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// All kinds of the library.
    pub all: &'static [Descriptor],
    /// The descriptor of this kind.
    pub descriptor: &'static Descriptor,
}

impl Kind {
    /// Returns the kind with this name.
    pub fn named(name: &str) -> Result<Self, Status> {
        let all = CUSPARSELT.descriptors;
        let descriptor = all.iter().find(|descriptor| descriptor.name == name).ok_or(NOT_SUPPORTED)?;
        Ok(Self { all, descriptor })
    }

    /// Returns the contents of the object at an address.
    ///
    /// Errors: `object` is null or not an object of this kind.
    ///
    /// # Safety
    ///
    /// `object` is null or has as many bytes as an object of this kind.
    pub unsafe fn read(self, object: u64) -> Result<Vec<u8>, Status> {
        if object == 0 {
            return Err(INVALID_VALUE);
        }
        let mut contents = vec![0; self.descriptor.bytes];
        // SAFETY: not null, so an object by this function's contract, which is longer than our contents.
        unsafe { std::ptr::copy_nonoverlapping(object as *const u8, contents.as_mut_ptr(), contents.len()) };
        if self.descriptor.is_made(&contents) { Ok(contents) } else { Err(INVALID_VALUE) }
    }

    /// Stores contents in the object at an address.
    ///
    /// Errors: the address is null.
    ///
    /// # Safety
    ///
    /// `object` is null or has room for an object of this kind.
    pub unsafe fn write(self, object: u64, contents: &[u8]) -> Result<(), Status> {
        if object == 0 || contents.len() != self.descriptor.bytes {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, so room for an object by this function's contract, which is longer than our contents.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), object as *mut u8, contents.len()) };
        Ok(())
    }

    /// Clears the contents of an object, which ends it.
    ///
    /// Errors: `object` is null or not an object of this kind.
    ///
    /// # Safety
    ///
    /// `object` is null or an object of this kind.
    pub unsafe fn destroy(self, object: u64) -> Result<(), Status> {
        // SAFETY: null or an object of this kind by this function's contract.
        unsafe {
            let contents = self.read(object)?;
            self.write(object, &vec![0; contents.len()])
        }
    }

    /// Returns the word after the contents of an object.
    ///
    /// # Safety
    ///
    /// `object` is an object of this kind.
    pub unsafe fn word(self, object: u64) -> u64 {
        // SAFETY: an object by this function's contract, which has room for a word after our contents.
        unsafe { ((object as usize + self.descriptor.bytes) as *const u64).read_unaligned() }
    }

    /// Sets the word after the contents of an object.
    ///
    /// # Safety
    ///
    /// `object` is an object of this kind.
    pub unsafe fn set_word(self, object: u64, word: u64) {
        // SAFETY: an object by this function's contract, which has room for a word after our contents.
        unsafe { ((object as usize + self.descriptor.bytes) as *mut u64).write_unaligned(word) };
    }

    /// Returns the contents of a new object with these parts.
    pub fn make(self, given: &[u64], parts: &[&[u8]]) -> Vec<u8> {
        let mut contents = vec![0; self.descriptor.bytes];
        self.descriptor.make(given, &mut contents);
        for (index, part) in parts.iter().enumerate() {
            contents[self.descriptor.part(self.all, index)].copy_from_slice(part);
        }
        contents
    }

    /// Returns the index and the row of an attribute that programs may use.
    pub fn attribute(self, number: i32) -> Option<(usize, &'static Attribute)> {
        let number = u32::try_from(number).ok().filter(|number| *number < FIRST_ARGUMENT)?;
        self.descriptor.attribute(number)
    }

    /// Returns the value of an attribute: the value that was set, or else the default.
    pub fn value(self, contents: &[u8], number: u32) -> u64 {
        let found = self.descriptor.attribute(number);
        found.map_or(0, |(index, attribute)| {
            self.descriptor.value(index, contents).unwrap_or(attribute.default)
        })
    }

    /// Sets an attribute in `contents`.
    ///
    /// Errors: there is no such attribute, or the value has a different length.
    ///
    /// # Safety
    ///
    /// `value` is null or has `bytes` bytes.
    pub unsafe fn set(
        self,
        contents: &mut [u8],
        number: i32,
        value: *const u8,
        bytes: usize,
    ) -> Result<(), Status> {
        let (index, attribute) = self.attribute(number).ok_or(INVALID_VALUE)?;
        if value.is_null() || bytes != attribute.bytes || attribute.is_readonly {
            return Err(INVALID_VALUE);
        }
        let mut word = [0; 8];
        // SAFETY: not null, so `bytes` bytes by this function's contract; an attribute has at most 8.
        unsafe { std::ptr::copy_nonoverlapping(value, word.as_mut_ptr(), bytes) };
        self.descriptor.set(index, u64::from_le_bytes(word), contents);
        Ok(())
    }

    /// Copies the attributes that programs may use and that are set in `from` to `contents`.
    pub fn merge(self, from: &[u8], contents: &mut [u8]) {
        for (index, attribute) in self.descriptor.attributes.iter().enumerate() {
            let value = self.descriptor.value(index, from);
            if let Some(value) = value.filter(|_| attribute.number < FIRST_ARGUMENT) {
                self.descriptor.set(index, value, contents);
            }
        }
    }
}

/// Defines functions that destroy objects. The guest's library and the emulator share them: destroying an object needs
/// neither a handle nor the worker.
macro_rules! destroyers {
    ($($kind:literal: $name:ident;)*) => { $(
        /// Destroys an object.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: u64) -> Status {
            // SAFETY: NVIDIA's function demands of its caller an object of this kind, or null.
            Kind::named($kind).and_then(|kind| unsafe { kind.destroy(object) }).err().unwrap_or(SUCCESS)
        }
    )* };
}

destroyers! {
    "mat": cusparseLtMatDescriptorDestroy;
    "selection": cusparseLtMatmulAlgSelectionDestroy;
    "plan": cusparseLtMatmulPlanDestroy;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_room_for_contents_and_a_word() {
        for name in ["mat", "matmul", "selection", "plan"] {
            let kind = Kind::named(name).expect(name);
            assert!(kind.descriptor.bytes + 8 <= kind.descriptor.public_bytes, "{name}");
        }
    }

    #[test]
    fn what_was_destroyed_is_no_object() {
        let kind = Kind::named("mat").expect("known");
        let mut object = [0_u64; 64];
        let place = object.as_mut_ptr() as u64;
        let contents = kind.make(&[1, 2, 3, 16, 2, 1], &[]);
        // SAFETY: `object` is as long as a matrix.
        unsafe {
            assert_eq!(kind.read(place), Err(INVALID_VALUE), "it was not made");
            assert_eq!(kind.write(place, &contents), Ok(()));
            kind.set_word(place, 7);
            assert_eq!((kind.read(place), kind.word(place)), (Ok(contents), 7));
            assert_eq!((kind.destroy(place), kind.destroy(place)), (Ok(()), Err(INVALID_VALUE)));
            assert_eq!((kind.read(0), kind.write(0, &[])), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
        }
    }

    #[test]
    fn values_of_attributes_are_as_long_as_their_sizes_say() {
        let kind = Kind::named("matmul").expect("known");
        let mut contents = kind.make(&[0, 1, 2], &[]);
        let bias = 0x7000_u64;
        let mut set = |number, bytes| {
            // SAFETY: `bias` has 8 bytes.
            unsafe { kind.set(&mut contents, number, (&raw const bias).cast(), bytes) }
        };
        assert_eq!((set(8, 4), set(8, 8)), (Err(INVALID_VALUE), Ok(())));
        assert_eq!((set(100, 4), set(-1, 4)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
        assert_eq!((kind.value(&contents, 8), kind.value(&contents, 4)), (bias, 0x3f80_0000));
        let mut other = kind.make(&[5, 5, 5], &[]);
        kind.merge(&contents, &mut other);
        assert_eq!((kind.value(&other, 8), kind.value(&other, 100)), (bias, 5));
    }
}
