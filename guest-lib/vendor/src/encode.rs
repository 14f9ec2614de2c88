// SPDX-License-Identifier: Apache-2.0 OR MIT

//! From the arguments of a C function to a block ([`cuda_library_rows::block`]), and from answers to the program's memory.

use cuda_library_rows::block::{BadSize, MAX_BYTES, MAX_TEXT, PRESENT, SCALING_BYTES, SLOT, padded};
use cuda_library_rows::{Call, Kind};

/// The slots of a call as they cross: addresses of host memory become [`PRESENT`].
///
/// `device_scalars`: scalars are in device memory. `mint` gives numbers to new handles.
///
/// # Safety
///
/// Texts among `slots` are C strings.
pub unsafe fn slots(call: &Call, slots: &[u64], device_scalars: bool, mint: impl Fn() -> u64) -> Vec<u64> {
    let mut crossing = Vec::with_capacity(slots.len());
    for (parameter, &slot) in call.parameters.iter().zip(slots) {
        crossing.push(match parameter.kind {
            Kind::Host(_) | Kind::Scaling if slot != 0 => PRESENT,
            Kind::Scalar { .. } if slot != 0 && !device_scalars => PRESENT,
            Kind::New(_) => mint(),
            Kind::OutStream => 0,
            // SAFETY: the caller's promise.
            Kind::Text if slot != 0 => 1 + unsafe { libc::strnlen(slot as *const _, MAX_TEXT) } as u64,
            _ => slot,
        });
    }
    crossing
}

/// Fills `block` with slots and what the library reads.
///
/// # Safety
///
/// `addresses` are the arguments that `crossing` was made of, and lead to memory as NVIDIA's manual demands.
pub unsafe fn arguments(
    call: &Call,
    addresses: &[u64],
    crossing: &[u64],
    block: &mut Vec<u8>,
) -> Result<(), BadSize> {
    block.clear();
    block.extend(crossing.iter().flat_map(|slot| slot.to_le_bytes()));
    for (index, &address) in addresses.iter().enumerate() {
        if !call.direction(index).is_some_and(|direction| direction.reads()) {
            continue;
        }
        let bytes = call.memory_bytes(index, crossing)?;
        let start = block.len();
        if start + padded(bytes) > MAX_BYTES {
            return Err(BadSize);
        }
        block.resize(start + padded(bytes), 0);
        // A float may be the last of its page; what is aligned to 8 bytes lies within one.
        let readable = match call.parameters[index].kind {
            Kind::Scaling if bytes > 0 && address % SCALING_BYTES as u64 != 0 => SCALING_BYTES / 2,
            _ => bytes,
        };
        // SAFETY: the caller promises that many bytes at the address, which is not null where `bytes` is not 0. A value of
        // cuDNN's may be a float whose next four bytes are another's, but they are there.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, block[start..].as_mut_ptr(), readable) };
    }
    Ok(())
}

/// Puts the answers in `block` where the program wants them. The first slot is what the function returned.
///
/// # Safety
///
/// As for [`arguments`].
pub unsafe fn answers(call: &Call, addresses: &[u64], crossing: &[u64], block: &[u8]) -> Result<(), BadSize> {
    let mut rest = block.get(SLOT..).ok_or(BadSize)?;
    for (index, &address) in addresses.iter().enumerate() {
        if !call.direction(index).is_some_and(|direction| direction.writes()) {
            continue;
        }
        let bytes = call.memory_bytes(index, crossing)?;
        let (data, later) = rest.split_at_checked(padded(bytes)).ok_or(BadSize)?;
        // SAFETY: the caller promises room for that many bytes at the address, which is not null where `bytes` is not 0.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), address as *mut u8, bytes) };
        rest = later;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cuda_library_rows::{Body, Library, parse};

    use super::*;

    fn library(row: &str) -> Library {
        parse::library("x", &format!("handle H\n{row}\n")).expect(row)
    }

    fn call(library: &Library) -> &Call {
        let Body::Forward(call) = &library.functions[0].body else { panic!("{library:?}") };
        call
    }

    #[test]
    fn arguments_and_answers_cross() {
        let rows = library("f(h: H, n: i32, a: in i32[n], s: scalar f32, r: out i64, t: string)");
        let call = call(&rows);
        let (a, s, mut r) = ([1_i32, 2, 3], 0.5_f32, 0_i64);
        let addresses =
            [7, 3, a.as_ptr() as u64, &raw const s as u64, &raw mut r as u64, c"text".as_ptr() as u64];
        let mut block = Vec::new();
        // SAFETY: the addresses are those of locals of the types that the row names.
        let crossing = unsafe { slots(call, &addresses, false, || 0) };
        assert_eq!(crossing, [7, 3, PRESENT, PRESENT, PRESENT, 5]);
        // SAFETY: as above.
        unsafe { arguments(call, &addresses, &crossing, &mut block) }.expect("fits");
        assert_eq!(block.len(), 6 * 8 + 16 + 8 + 8);
        assert_eq!(block[48..64], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(block[72..], *b"text\0\0\0\0");
        let reply = [0_u64, 42].map(u64::to_le_bytes).concat();
        // SAFETY: as above.
        unsafe { answers(call, &addresses, &crossing, &reply) }.expect("fits");
        assert_eq!(r, 42);
        // SAFETY: as above.
        assert_eq!(unsafe { answers(call, &addresses, &crossing, &reply[..8]) }, Err(BadSize));
    }

    #[test]
    fn scalars_of_the_device_cross_by_address() {
        let rows = library("f(h: H, s: scalar out f32)");
        let addresses = [7, 0x7000_0000];
        // SAFETY: there is no text.
        let crossing = unsafe { slots(call(&rows), &addresses, true, || 0) };
        assert_eq!(crossing, addresses);
        assert_eq!(call(&rows).answer_bytes(&crossing), Ok(8));
    }
}
