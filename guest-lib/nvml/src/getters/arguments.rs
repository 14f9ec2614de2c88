// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of getters: the inputs that are sent to the host, and the results that are stored for the program.

use virtio_cuda_protocol::cuda::getter::{MAX_INPUTS, MAX_PARAMETERS};
use virtio_cuda_protocol::cuda::{Getter, Parameter};

use super::{Given, Results};
use crate::error::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, Result,
};
use crate::pointers::store_text;
use crate::state;

/// Returns whether a required pointer is null. Pointers to entries may be null if there is room for none.
pub fn lacks_a_place(getter: &Getter, given: &[Given]) -> bool {
    getter.parameters.iter().zip(given).any(|(parameter, argument)| match parameter {
        Parameter::Out(_) | Parameter::Text(_) | Parameter::Count(_) => argument.place().is_null(),
        _ => false,
    })
}

/// Returns the inputs among the arguments. Refuses structures that are null or not of the row's version.
///
/// # Safety
/// Each pointer is null or valid for reading what the row reads.
pub unsafe fn inputs_of(getter: &Getter, given: &[Given]) -> Result<[u64; MAX_INPUTS]> {
    let is_structure = |parameter: &Parameter| matches!(parameter, Parameter::Struct(..));
    let mut structures = getter.parameters.iter().zip(given).filter(|(parameter, _)| is_structure(parameter));
    if structures.any(|(_, argument)| argument.place().is_null()) {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let mut found = [0; MAX_PARAMETERS];
    let mut count = 0;
    for (&parameter, &argument) in getter.parameters.iter().zip(given) {
        let mut put = |value: u64| {
            found[count] = value;
            count += 1;
        };
        match parameter {
            Parameter::Up(_) | Parameter::Only(_) | Parameter::Number => put(argument.number().into()),
            Parameter::Peer => {
                let Given::Device(peer) = argument else { return Err(NVML_ERROR_INVALID_ARGUMENT) };
                put(state::device(peer)?.number.into());
            }
            Parameter::Struct(bytes, version, lasts) => {
                let words = argument.place().cast::<u32>();
                // SAFETY: not null, so valid; a structure begins with its version.
                if unsafe { words.read() } != bytes | version << 24 {
                    return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
                }
                for word in 1..=lasts.len() {
                    // SAFETY: the structure is valid for what the row reads, by this function's contract: the inputs
                    // follow the version.
                    put(unsafe { words.add(word).read() }.into());
                }
            }
            _ => {}
        }
    }
    Ok(core::array::from_fn(|index| found[index]))
}

/// Stores the results where the program's pointers say.
///
/// # Safety
/// The contract of [`answer`]. Only pointers to entries, and those that may be null, are null.
pub unsafe fn hand_out(getter: &Getter, given: &[Given], results: &Results) -> Result {
    let is_list = |parameter: &Parameter| matches!(parameter, Parameter::Entries(_));
    let mut lists = getter.parameters.iter().zip(given).filter(|(parameter, _)| is_list(parameter));
    let lacks_a_list = lists.any(|(_, argument)| argument.place().is_null());
    let mut count = 0;
    for (index, &parameter) in getter.parameters.iter().enumerate() {
        let place = given[index].place();
        match parameter {
            Parameter::Maybe(_) if place.is_null() => {}
            Parameter::Out(_) | Parameter::Maybe(_) | Parameter::Struct(..) => {
                // SAFETY: the place is valid for the bytes of the row.
                unsafe { copy(results.of(index), place) };
            }
            Parameter::Text(_) => {
                let text = results.of(index).split(|&byte| byte == 0).next().unwrap_or(&[]);
                let room = given.get(index + 1).map_or(0, |room| room.number());
                // SAFETY: the program says how much room the place has.
                unsafe { store_text(place.cast(), room, text) }?;
            }
            Parameter::Count(_) => {
                count = results.number(index);
                // SAFETY: not null, so valid for a number.
                let room = unsafe { place.cast::<u32>().read() };
                if lacks_a_list && count > 0 && room >= count {
                    return Err(NVML_ERROR_INVALID_ARGUMENT);
                }
                // SAFETY: not null, so valid for a number in both directions.
                unsafe { place.cast::<u32>().write(count) };
                if room < count {
                    return Err(NVML_ERROR_INSUFFICIENT_SIZE);
                }
            }
            Parameter::Entries(bytes) if count > 0 => {
                // SAFETY: by the program's count there is room for as many entries, at a place that is not null.
                unsafe { copy(results.entries(index, count, bytes), place) };
            }
            _ => {}
        }
    }
    Ok(())
}

/// # Safety
/// `place` is valid for writing `bytes.len()` bytes.
pub unsafe fn copy(bytes: &[u8], place: *mut u8) {
    // SAFETY: this function's contract; the data from the host does not overlap the program's memory.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> &'static Getter {
        Getter::all().iter().find(|getter| getter.name == name).expect("a row")
    }

    fn results(getter: &'static Getter, words: &[u32]) -> Results {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.resize(getter.bytes(), 0);
        Results { getter, bytes }
    }

    #[test]
    fn lists_are_given_if_they_fit() {
        let getter = row("nvmlDeviceGetSupportedMemoryClocks");
        let results = results(getter, &[2, 0, 3201, 2201]);
        let give = |count: &mut u32, list: *mut u8| {
            let given = [Given::from(&raw mut *count), Given::from(list)];
            // SAFETY: both places are null or locals of the size that the count says.
            unsafe { hand_out(getter, &given, &results) }
        };
        let (mut count, mut list) = (2, [0u32; 2]);
        assert_eq!(give(&mut count, list.as_mut_ptr().cast()), Ok(()));
        assert_eq!((count, list), (2, [3201, 2201]));
        count = 1;
        assert_eq!(give(&mut count, list.as_mut_ptr().cast()), Err(NVML_ERROR_INSUFFICIENT_SIZE));
        assert_eq!(count, 2);
        assert_eq!(give(&mut count, core::ptr::null_mut()), Err(NVML_ERROR_INVALID_ARGUMENT));
        count = 0;
        assert_eq!(give(&mut count, core::ptr::null_mut()), Err(NVML_ERROR_INSUFFICIENT_SIZE));
    }

    #[test]
    fn texts_need_their_room() {
        let getter = row("nvmlDeviceGetVbiosVersion");
        let results = results(getter, &[u32::from_ne_bytes(*b"96.0")]);
        for (room, fits) in [(5, true), (4, false), (0, false)] {
            let mut text = [b'x'; 5];
            let given = [Given::from(text.as_mut_ptr()), Given::from(room)];
            // SAFETY: the place is a local of at least this room.
            assert_eq!(unsafe { hand_out(getter, &given, &results) }.is_ok(), fits, "{room}");
            assert_eq!(&text, if fits { b"96.0\0" } else { b"xxxxx" });
        }
    }

    #[test]
    fn structures_of_other_versions_are_refused() {
        let getter = row("nvmlDeviceGetClockOffsets");
        let mut offsets = [24 | 1 << 24, 2, 15, 0, 0, 0u32];
        let inputs = |offsets: &mut [u32; 6]| {
            // SAFETY: the place is a local of the structure's size.
            unsafe { inputs_of(getter, &[Given::from(offsets.as_mut_ptr())]) }
        };
        assert_eq!(inputs(&mut offsets), Ok([2, 15, 0]));
        offsets[0] = 24 | 2 << 24;
        assert_eq!(inputs(&mut offsets), Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH));
        // SAFETY: null is refused.
        let none = unsafe { inputs_of(getter, &[Given::from(core::ptr::null_mut::<u8>())]) };
        assert_eq!(none, Err(NVML_ERROR_INVALID_ARGUMENT));
    }
}
