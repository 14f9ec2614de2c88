// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

fn host_ptr(bytes: &[u8]) -> HostPtr {
    // SAFETY: the slice is an image that outlives its uses.
    unsafe { HostPtr::at_address(bytes.as_ptr() as usize) }
}

fn container(payload: u64) -> Vec<u8> {
    let mut image = Vec::new();
    image.extend(CONTAINER_MAGIC.to_le_bytes());
    image.extend([1, 0, 16, 0]);
    image.extend(payload.to_le_bytes());
    image.resize(16 + payload as usize, 0xcc);
    image
}

/// Returns an ELF header, one program header, one section that ends at `section_end`, and one section without bytes.
fn elf(section_end: u64) -> Vec<u8> {
    let mut image = vec![0u8; 64 + 56 + 2 * 64];
    let mut put = |offset: usize, bytes: &[u8]| image[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &ELF_MAGIC.to_le_bytes());
    put(0x20, &64u64.to_le_bytes());
    put(0x28, &120u64.to_le_bytes());
    for (offset, value) in [(0x36, 56u16), (0x38, 1), (0x3a, 64), (0x3c, 2)] {
        put(offset, &value.to_le_bytes());
    }
    put(120 + 0x18, &(section_end - 8).to_le_bytes());
    put(120 + 0x20, &8u64.to_le_bytes());
    put(184 + 0x04, &SHT_NOBITS.to_le_bytes());
    put(184 + 0x18, &(1u64 << 20).to_le_bytes());
    put(184 + 0x20, &(1u64 << 20).to_le_bytes());
    image
}

#[test]
fn container_has_its_header_and_payload() {
    let image = container(100);
    let found = bytes(host_ptr(&image)).expect("valid");
    assert_eq!((found.address, found.bytes), (image.as_ptr() as usize, 116));
}

#[test]
fn wrapper_is_followed() {
    let image = container(8);
    let mut wrapper = Vec::new();
    wrapper.extend(WRAPPER_MAGIC.to_le_bytes());
    wrapper.extend(2u32.to_le_bytes());
    wrapper.extend((image.as_ptr() as u64).to_le_bytes());
    wrapper.extend(0u64.to_le_bytes());
    let found = bytes(host_ptr(&wrapper)).expect("valid");
    assert_eq!((found.address, found.bytes), (image.as_ptr() as usize, 24));
}

#[test]
fn what_a_container_was_linked_from_crosses_behind_it() {
    let (linked, parts) = (container(12), [container(8), container(16)]);
    let mut list: Vec<u64> = parts.iter().map(|part| part.as_ptr() as u64).collect();
    list.push(0);
    let wrapper = [u64::from(WRAPPER_MAGIC) | 2 << 32, linked.as_ptr() as u64, list.as_ptr() as u64];
    let bytes: Vec<u8> = wrapper.iter().flat_map(|word| word.to_le_bytes()).collect();
    let Ok(Image::Joined(joined)) = whole(host_ptr(&bytes)) else { panic!("not joined") };
    assert_eq!(joined, [&linked[..], &[0; 4], &parts[0], &parts[1]].concat());
    let Ok(Image::InPlace(_)) = whole(host_ptr(&linked)) else { panic!("not in place") };
}

#[test]
fn elf_ends_where_its_last_part_ends() {
    assert_eq!(bytes(host_ptr(&elf(5000))).expect("valid").bytes, 5000, "a section lies last");
    assert_eq!(bytes(host_ptr(&elf(100))).expect("valid").bytes, 248, "the section table lies last");
}

#[test]
fn ptx_is_text_with_its_nul() {
    assert_eq!(bytes(host_ptr(b".version 9.0\n\0junk")).expect("valid").bytes, 14);
}

#[test]
fn damaged_headers_are_refused() {
    let mut image = container(8);
    image[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(bytes(host_ptr(&image)).is_err());
    let mut image = elf(100);
    image[0x28..0x30].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
    assert!(bytes(host_ptr(&image)).is_err());
    let mut image = elf(100);
    image[0x3a] = 1;
    assert!(bytes(host_ptr(&image)).is_err(), "the section table ends inside of its first entry");
}
