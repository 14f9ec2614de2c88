// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Devices: one cached reply holds all constant facts.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! device_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Constant facts of a device. Bulk out: its attributes as i32, from attribute 1 on (`i32::MIN`: the
            /// driver does not know it). `name` and `pci_bus_id` are NUL-padded.
            0x0101 custom device_snapshot(device: DeviceOrdinal) -> (total_bytes: u64, uuid: [u8; 16], pci_bus_id: [u8; 32], name: [u8; 256]) [other same silent no_context];
            /// Returns whether `device` can address memory of `peer`.
            0x0102 forward cuDeviceCanAccessPeer(device: DeviceOrdinal, peer: DeviceOrdinal) -> (can: i32) [other same silent no_context];
            /// An attribute of the link between two devices.
            0x0103 forward cuDeviceGetP2PAttribute(attrib: i32, src: DeviceOrdinal, dst: DeviceOrdinal) -> (value: i32) [other same silent no_context];
            /// Returns the capabilities of each `CUatomicOperation` over the link to another device, or to the host if `peer` is
            /// `u32::MAX`: 13 words of `CU_ATOMIC_CAPABILITY_*` bits, little-endian.
            0x0104 forward device_atomics(device: DeviceOrdinal, peer: DeviceOrdinal) -> (capabilities: [u8; 52]) [other same silent no_context]
                as atomic_capabilities(device, host_or(peer));
        } }
    };
}
