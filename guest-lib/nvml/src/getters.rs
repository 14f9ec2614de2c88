// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions that the host's library answers: one for each `forward` row of
//! `protocol/nvml/getters.rows`. Invalid
//! arguments are detected here as far as the row describes them; the host's library checks the rest.

mod arguments;
mod exports;

use core::ffi::c_void;

use virtio_cuda_client::calls;
use virtio_cuda_protocol::cuda::getter::MAX_INPUTS;
use virtio_cuda_protocol::cuda::{DeviceOrdinal, Getter};

pub use arguments::copy;
use arguments::{hand_out, inputs_of, lacks_a_place};

use crate::error::{
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_SUCCESS, Result, nvmlReturn_t, of_call,
};
use crate::state::{self, nvmlDevice_t};

/// C types of the table's parameters.
mod c {
    pub type Up = u32;
    pub type Number = u32;
    pub type Peer = crate::state::nvmlDevice_t;
    pub type Out = *mut u8;
    pub type Maybe = *mut u8;
    pub type Text = *mut u8;
    pub type Room = u32;
    pub type Count = *mut u32;
    pub type Entries = *mut u8;
    pub type Struct = *mut u8;
}

/// An argument of a getter.
#[derive(Clone, Copy)]
pub enum Given {
    Number(u32),
    Place(*mut u8),
    Device(nvmlDevice_t),
}

impl From<u32> for Given {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<*mut u8> for Given {
    fn from(place: *mut u8) -> Self {
        Self::Place(place)
    }
}

impl From<*mut u32> for Given {
    fn from(place: *mut u32) -> Self {
        Self::Place(place.cast())
    }
}

impl From<*mut c_void> for Given {
    fn from(device: nvmlDevice_t) -> Self {
        Self::Device(device)
    }
}

impl Given {
    fn place(self) -> *mut u8 {
        match self {
            Self::Place(place) => place,
            _ => core::ptr::null_mut(),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Number(number) => number,
            _ => 0,
        }
    }
}

/// The results of a getter, with their offsets.
pub struct Results {
    getter: &'static Getter,
    bytes: Vec<u8>,
}

impl Results {
    /// Returns the result of the parameter at `index`.
    pub fn of(&self, index: usize) -> &[u8] {
        let place = self.getter.places().find(|&(of, ..)| of == index);
        place.and_then(|(_, first, bytes)| self.bytes.get(first..first + bytes)).unwrap_or(&[])
    }

    /// Returns the first 32 bits of the result of the parameter at `index`.
    pub fn number(&self, index: usize) -> u32 {
        self.of(index).first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
    }

    /// Returns up to `number` entries, of `bytes` bytes each, of the list at `index`.
    fn entries(&self, index: usize, number: u32, bytes: u32) -> &[u8] {
        let all = self.of(index);
        &all[..all.len().min(number as usize * bytes as usize)]
    }
}

/// Queries the row `number` for a device. Rows that are not about a device use the first one.
///
/// Errors: the library's; NVML_ERROR_INVALID_ARGUMENT for inputs that the row does not admit.
pub fn ask(number: u32, device: Option<nvmlDevice_t>, inputs: [u64; MAX_INPUTS]) -> Result<Results> {
    match told(number, device, inputs)? {
        (NVML_SUCCESS, results) => Ok(results),
        (error, _) => Err(error),
    }
}

/// Returns the host library's result. Errors: the library cannot be reached.
fn told(
    number: u32,
    device: Option<nvmlDevice_t>,
    inputs: [u64; MAX_INPUTS],
) -> Result<(nvmlReturn_t, Results)> {
    let device = device_number(device)?;
    let getter = Getter::of(number).ok_or(NVML_ERROR_NOT_SUPPORTED)?;
    getter.check(inputs).map_err(|_| NVML_ERROR_INVALID_ARGUMENT)?;
    let mut bytes = vec![0; getter.bytes()];
    let mut call = state::call()?.output(&mut bytes);
    let code = calls::nvml_get(&mut call, DeviceOrdinal(device), number, inputs).map_err(of_call)?;
    Ok((nvmlReturn_t(code), Results { getter, bytes }))
}

fn device_number(device: Option<nvmlDevice_t>) -> Result<u32> {
    match device {
        Some(device) => Ok(state::device(device)?.number),
        None => state::devices().map(|_| 0),
    }
}

/// The body of an exported function for a `forward` row.
///
/// # Safety
/// Each pointer is null, or valid for reading and writing as the row of that number specifies.
pub unsafe fn answer(number: u32, device: Option<nvmlDevice_t>, given: &[Given]) -> Result {
    device_number(device)?;
    let getter = Getter::of(number).ok_or(NVML_ERROR_NOT_SUPPORTED)?;
    // SAFETY: each place is null or valid for reading what the row reads, by this function's contract.
    let inputs = unsafe { inputs_of(getter, given) }?;
    if lacks_a_place(getter, given) {
        // NVIDIA's library reports features that the card lacks before it checks pointers.
        return match told(number, device, inputs) {
            Ok((error, _)) if error != NVML_SUCCESS => Err(error),
            _ => Err(NVML_ERROR_INVALID_ARGUMENT),
        };
    }
    let results = ask(number, device, inputs)?;
    // SAFETY: each place is null or valid for what the row writes, by this function's contract; `lacks_a_place` found
    // no null except for entries and for places that may be null.
    unsafe { hand_out(getter, given, &results) }
}
