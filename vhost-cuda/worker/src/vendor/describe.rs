// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors of cuBLASLt, which the library creates anew for each call ([`cuda_library_rows::attributes`]).

use cuda_library_rows::Library;

use super::load::Loaded;
use super::refusal::Refusal;
use crate::gpu::CudaError;

/// The alignment of a call's host memory in bytes, and the minimum distance between two pieces.
pub const ALIGNMENT: usize = size_of::<u128>();

const MALFORMED: Refusal = Refusal::Cuda(CudaError::INVALID_VALUE);

/// Returns the size in bytes of the library's own structure and of one that it may point to.
pub fn described_bytes(library: &Library, kind: usize) -> usize {
    let other = library.descriptors[kind].other();
    let other = other.map_or(0, |(_, other)| library.descriptors[other].public_bytes);
    library.descriptors[kind].public_bytes.next_multiple_of(ALIGNMENT) + other
}

/// Creates a descriptor in `place` from the transferred contents, followed by one that it points to.
///
/// Errors: the library's status, or `CUDA_ERROR_NOT_FOUND` if it does not have the functions.
pub fn describe(loaded: &Loaded, kind: usize, contents: &[u8], place: &mut [u8]) -> Result<(), Refusal> {
    let descriptors = &loaded.rows.descriptors;
    let descriptor = &descriptors[kind];
    let (place, behind) = match descriptor.other() {
        Some(_) => place
            .split_at_mut_checked(descriptor.public_bytes.next_multiple_of(ALIGNMENT))
            .ok_or(MALFORMED)?,
        None => (place, &mut [][..]),
    };
    let mut other_address = 0;
    if let Some((index, other)) = descriptor.other()
        && descriptor.value(index, contents).is_some_and(|address| address != 0)
    {
        let contents = contents.get(descriptor.bytes..).ok_or(MALFORMED)?;
        describe(loaded, other, contents, behind)?;
        other_address = behind.as_mut_ptr() as u64;
    }
    let call = |name: &str, values: &[u64]| -> Result<(), Refusal> {
        // SAFETY: functions that create and change descriptors take these (see `cuda_library_rows::attributes`); the
        // addresses are of memory with the lengths that are passed.
        unsafe { loaded.call(name, values) }
    };
    let address = place.as_mut_ptr() as u64;
    let values = descriptor.attributes.iter().enumerate();
    let values = values.map(|(index, attribute)| (attribute, descriptor.value(index, contents)));
    let mut given = vec![address, descriptor.public_bytes as u64];
    for (attribute, value) in values.clone().filter(|(attribute, _)| attribute.is_given) {
        given.push(value.unwrap_or(attribute.default));
    }
    call(descriptor.init, &given)?;
    for (attribute, value) in values.filter(|(attribute, _)| !attribute.is_given) {
        let Some(value) = value else { continue };
        // The guest's value is an address in the guest.
        let value = if attribute.descriptor.is_some() { other_address } else { value };
        let value = value.to_le_bytes();
        call(
            descriptor.set,
            &[address, u64::from(attribute.number), value.as_ptr() as u64, attribute.bytes as u64],
        )?;
    }
    Ok(())
}
