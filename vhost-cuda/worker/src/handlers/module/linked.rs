// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of programs that were compiled in parts: a linked container, followed by the containers that it was linked
//! from. The linked one has machine code only. A device that cannot execute that code links the parts again.

use std::ffi::c_void;

use cuda_abi::__fatBinC_Wrapper_t;

use crate::gpu::{CuResult, CudaError};

/// The first words of `__fatBinC_Wrapper_t` and of a container.
const WRAPPER_MAGIC: u32 = 0x4662_43B1;
const CONTAINER_MAGIC: [u8; 4] = 0xBA55_ED50u32.to_le_bytes();
/// `FATBINC_LINK_VERSION`
const LINKED: u32 = 2;
const HEADER_BYTES: usize = 16;

/// Loads an image with its NUL. If that contains nothing for the device, loads the parts that follow it.
pub fn load<T>(image: &[u8], load: impl Fn(*const c_void) -> CuResult<T>) -> CuResult<T> {
    let loaded = load(image.as_ptr().cast());
    if loaded.as_ref().err() != Some(&CudaError::NO_BINARY_FOR_GPU) {
        return loaded;
    }
    let mut parts = parts(image);
    if parts.is_empty() {
        return loaded;
    }
    parts.push(std::ptr::null());
    let (data, parts) = (image.as_ptr() as usize, parts.as_ptr() as usize);
    let wrapper = __fatBinC_Wrapper_t { magic: WRAPPER_MAGIC, version: LINKED, data, parts };
    load((&raw const wrapper).cast())
}

/// Returns the containers that follow the first one.
fn parts(image: &[u8]) -> Vec<*const u8> {
    let mut found = Vec::new();
    let mut rest = image;
    while let Some(bytes) = container_bytes(rest) {
        found.push(rest.as_ptr());
        rest = bytes.checked_next_multiple_of(8).and_then(|next| rest.get(next..)).unwrap_or(&[]);
    }
    if found.is_empty() { found } else { found.split_off(1) }
}

/// Returns the size of the container that begins here, if it lies completely in `bytes`.
fn container_bytes(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let own = usize::from(u16::from_le_bytes([header[6], header[7]]));
    let size = u64::from_le_bytes(*header.last_chunk()?);
    let total = own.checked_add(usize::try_from(size).ok()?)?;
    (header.starts_with(&CONTAINER_MAGIC) && own >= HEADER_BYTES && total <= bytes.len()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(payload: usize) -> Vec<u8> {
        let mut bytes = CONTAINER_MAGIC.to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((payload as u64).to_le_bytes());
        bytes.resize(HEADER_BYTES + payload, 7);
        bytes
    }

    #[test]
    fn parts_are_found_and_lies_are_not_followed() {
        let image = [&container(12)[..], &[0; 4], &container(8), &container(0), &[0]].concat();
        let offsets: Vec<_> =
            parts(&image).into_iter().map(|part| part as usize - image.as_ptr() as usize).collect();
        assert_eq!(offsets, [32, 56]);
        assert!(parts(&container(8)).is_empty());
        let mut long = container(8);
        long.extend(container(8));
        long[32] = 9;
        assert!(parts(&long).is_empty());
        assert!(parts(b".version 9.0").is_empty());
    }

    #[test]
    fn parts_are_tried_when_the_whole_has_nothing() {
        let image = [container(8), container(8)].concat();
        let tried = std::cell::RefCell::new(Vec::new());
        let refuse = |at: *const c_void| -> CuResult<()> {
            tried.borrow_mut().push(at);
            Err(CudaError::NO_BINARY_FOR_GPU)
        };
        assert_eq!(load(&image, refuse), Err(CudaError::NO_BINARY_FOR_GPU));
        assert_eq!(tried.borrow().len(), 2);
        assert_eq!(load(&image, |_| Err::<(), _>(CudaError::INVALID_IMAGE)), Err(CudaError::INVALID_IMAGE));
    }
}
