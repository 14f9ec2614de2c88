// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The answers of NVIDIA's management library, for this virtual machine only. If the host does not know:
//! `CUDA_ERROR_NOT_SUPPORTED`.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! nvml_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// The release of the host's driver, padded with NUL.
            0x0e00 card nvml_driver_version() -> (text: [u8; 80]) [other same code];
            /// Memory that each session of the virtual machine may use, and the memory that all of them use, in bytes.
            0x0e01 custom nvml_memory(device: DeviceOrdinal) -> (total: u64, used: u64) [other same code];
            /// Per cent of the GPU's time that the virtual machine's sessions compute and use memory.
            0x0e02 card nvml_utilization(device: DeviceOrdinal) -> (gpu: u32, memory: u32) [other same code];
            /// Sensors of the card, each `u32::MAX` where it is not known: 0 temperature (degrees Celsius), 1 power
            /// and 2 its limit (mW), 3 SM clock, 4 memory clock, 5 and 6 their maximum values (MHz), 7 performance
            /// state, 8 generation and 9 width of the PCIe link, 10 and 11 their maximum values.
            0x0e03 card nvml_sensors(device: DeviceOrdinal) -> (values: [u32; 12]) [other same code];
            /// Further values of the card, none a secret of other machines, each `u64::MAX` where it is not known: 0 to 3
            /// temperatures of shutdown, slow-down, of the memory and the GPU (degrees Celsius), 4 default power limit, 5
            /// and 6 its minimum and maximum (mW), 7 whether power is managed, 8 energy (mJ), 9 the reasons for low clocks
            /// and 10 the supported reasons, 11 fans and 12 their speed (per cent), 13 and 14 maximum clocks that can be set
            /// (SM, memory, MHz), 15 and 16 clocks of applications, 17 and 18 the same by default, 19 rows of memory
            /// replaced after correctable and 20 uncorrectable errors, 21 whether more are pending, 22 whether one failed.
            0x0e04 card nvml_card(device: DeviceOrdinal) -> (values: [u64; 23]) [other same code];
            /// A field (`NVML_FI_DEV_*`) of the card in a scope (`NVML_POWER_SCOPE_*`): its `nvmlValueType_t` and the bytes
            /// of its value. The host reports fields that describe the card, not those that describe its users.
            0x0e05 card nvml_field(device: DeviceOrdinal, field: u32, scope: u32) -> (kind: u32, value: u64) [other same code];
            /// The traffic of the card's link: 0 to the host and 1 from it (KB/s, measured for 20 ms), 2 its replays; 3 the
            /// margin by which the GPU may get warmer, in degrees Celsius (an `i32`).
            0x0e06 card nvml_value(device: DeviceOrdinal, which: u32) -> (value: u32) [other same code];
            /// Calls the function with number `getter` of [`crate::cuda::getter`]; inputs that it does not have are 0. `code` is
            /// its `nvmlReturn_t`. Bulk out: its results, at the places that [`crate::cuda::Getter::places`] returns.
            0x0e07 custom nvml_get(device: DeviceOrdinal, getter: u32, inputs: [u64; 3]) -> (code: u32) [other same code];
        } }
    };
}
