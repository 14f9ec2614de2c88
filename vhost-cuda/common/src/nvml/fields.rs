// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields of the card by their numbers (`NVML_FI_DEV_*`), and values that have one NVML function each.

use std::ffi::{c_int, c_void};

use cuda_abi::{nvmlFieldValue_t, nvmlMarginTemperature_v1_t};
use libloading::os::unix::Symbol;

use super::{Nvml, symbol};

/// `NVML_POWER_SCOPE_MEMORY`, the last one.
const LAST_SCOPE: u32 = 2;

/// Returns whether a guest may read a field: errors of memory and of the link to the host, temperatures, power,
/// clocks, states of the card. Links between cards and data about other machines are excluded. Some fields above 250
/// have other numbers in older releases, where they are of the same kinds.
const fn is_told(field: u32) -> bool {
    matches!(
        field,
        1..=31
            | 74..=83
            | 92..=95
            | 142..=145
            | 169
            | 173..=199
            | 226..=230
            | 251..=288
            | 297..=308
    )
}

impl Nvml {
    /// Returns the type (`nvmlValueType_t`) and value of a field.
    pub fn field(&self, field: u32, scope: u32) -> Option<(u32, u64)> {
        if !is_told(field) || scope > LAST_SCOPE {
            return None;
        }
        let mut value = nvmlFieldValue_t { field, scope, ..nvmlFieldValue_t::default() };
        // SAFETY: the prototype is nvml.h's; the library fills one entry, a local.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut c_void, c_int, *mut nvmlFieldValue_t) -> c_int> =
                symbol(&self.library, c"nvmlDeviceGetFieldValues")?;
            get(self.device, 1, &raw mut value)
        };
        (result == 0 && value.result == 0).then_some((value.kind, value.value))
    }

    /// Returns a value of the row `nvml_value`.
    pub fn single(&self, which: u32) -> Option<u32> {
        match which {
            0 | 1 => self.value_of(c"nvmlDeviceGetPcieThroughput", which as c_int),
            2 => self.value(c"nvmlDeviceGetPcieReplayCounter"),
            3 => self.margin(),
            _ => None,
        }
    }

    fn margin(&self) -> Option<u32> {
        let version = size_of::<nvmlMarginTemperature_v1_t>() as u32 | 1 << 24;
        let mut margin = nvmlMarginTemperature_v1_t { version, degrees: 0 };
        // SAFETY: the prototype is nvml.h's; the place is a local, and `version` says its size.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut c_void, *mut nvmlMarginTemperature_v1_t) -> c_int> =
                symbol(&self.library, c"nvmlDeviceGetMarginTemperature")?;
            get(self.device, &raw mut margin)
        };
        (result == 0).then_some(margin.degrees.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::is_told;

    #[test]
    fn links_between_cards_are_not_told() {
        // NVLINK_CRC_FLIT_ERROR_COUNT_L0, NVLINK_LINK_COUNT, NVLINK_GET_STATE, C2C_LINK_COUNT, and a number that no
        // release has.
        assert!([32, 91, 165, 170, 1000].into_iter().all(|field| !is_told(field)));
        // MEMORY_TEMP and POWER_AVERAGE.
        assert!(is_told(82) && is_told(185));
    }
}
