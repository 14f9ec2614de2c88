// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The rows: the number, `forward` if the guest's function is derived or `custom` if it is written by hand, NVIDIA's name, and
//! the parameters as `nvml.h` has them; the first is the device, or `system` for none. A number, once shipped, keeps
//! its meaning: `golden/getters.txt` checks it.
//!
//! There are no rows for functions that would identify the host (serial numbers, the PDI, its name and location), list
//! processes, or report how much others use the card (memory, time).

use super::{Getter, Parameter};

/// Expands to `$emit! { rows }` with every row.
#[macro_export]
macro_rules! nvml_getters {
    ($emit:ident) => {
        $emit! {
            // Facts about the card.
            0x00 forward nvmlDeviceGetVbiosVersion(device, version: Text(32), length: Room);
            0x01 forward nvmlDeviceGetBoardPartNumber(device, number: Text(80), length: Room);
            0x02 forward nvmlDeviceGetInforomImageVersion(device, version: Text(16), length: Room);
            0x03 forward nvmlDeviceGetInforomVersion(device, object: Up(3), version: Text(16), length: Room);
            0x04 forward nvmlDeviceGetInforomConfigurationChecksum(device, checksum: Out(4));
            0x05 forward nvmlDeviceGetGspFirmwareVersion(device, version: Out(64));
            0x06 forward nvmlDeviceGetGspFirmwareMode(device, enabled: Out(4), by_default: Out(4));
            0x07 forward nvmlDeviceGetModuleId(device, module: Out(4));
            0x08 forward nvmlDeviceGetBoardId(device, board: Out(4));
            0x09 forward nvmlDeviceGetBusType(device, bus: Out(4));
            0x0a forward nvmlDeviceGetPcieLinkMaxSpeed(device, speed: Out(4));
            0x0b forward nvmlDeviceGetPcieSpeed(device, mbps: Out(4));
            0x0c forward nvmlDeviceGetBAR1MemoryInfo(device, memory: Out(24));
            0x0d forward nvmlDeviceGetC2cModeInfoV(device, mode: Out(4));
            0x0e forward nvmlDeviceGetCapabilities(device, capabilities: Struct(8, 1, &[]));
            0x0f forward nvmlDeviceGetAddressingMode(device, mode: Struct(8, 1, &[]));
            0x10 custom nvmlDeviceGetDisplayMode(device, mode: Out(4));
            0x11 forward nvmlDeviceGetEncoderCapacity(device, codec: Up(2), per_cent: Out(4));
            0x12 forward nvmlDeviceGetAPIRestriction(device, which: Up(1), restricted: Out(4));
            0x13 forward nvmlDeviceGetAccountingBufferSize(device, size: Out(4));
            0x14 forward nvmlDeviceGetLastBBXFlushTime(device, time: Out(8), duration: Out(8));
            0x15 forward nvmlDeviceGetBBXTimeData_v1(device, data: Out(4));
            0x16 forward nvmlDeviceGetGpuOperationMode(device, current: Out(4), pending: Out(4));

            // The system, as far as the card's driver knows it.
            0x20 custom nvmlSystemGetDriverBranch(system, branch: Struct(84, 1, &[]), length: Room);
            0x21 forward nvmlSystemGetConfComputeCapabilities(system, capabilities: Out(8));
            0x22 forward nvmlSystemGetConfComputeState(system, state: Out(12));
            0x23 forward nvmlSystemGetConfComputeGpusReadyState(system, ready: Out(4));
            0x24 forward nvmlSystemGetConfComputeKeyRotationThresholdInfo(system, info: Struct(16, 1, &[]));
            0x25 forward nvmlDeviceGetConfComputeMemSizeInfo(device, sizes: Out(16));
            0x26 forward nvmlSystemGetNvlinkBwMode(system, mode: Out(4));
            0x27 forward nvmlSystemGetHicVersion(system, count: Count(8), entries: Entries(36));
            0x28 forward nvmlSystemGetConfComputeSettings(system, settings: Struct(20, 1, &[]));

            // Memory errors.
            0x30 forward nvmlDeviceGetDefaultEccMode(device, mode: Out(4));
            0x31 forward nvmlDeviceGetTotalEccErrors(device, kind: Up(1), counter: Up(1), errors: Out(8));
            0x32 forward nvmlDeviceGetDetailedEccErrors(device, kind: Up(1), counter: Up(1), errors: Out(32));
            0x33 forward nvmlDeviceGetMemoryErrorCounter(device, kind: Up(1), counter: Up(1), location: Up(7), errors: Out(8));
            0x34 forward nvmlDeviceGetSramEccErrorStatus(device, status: Struct(104, 1, &[]));
            0x35 forward nvmlDeviceGetRowRemapperHistogram(device, histogram: Out(20));
            0x36 forward nvmlDeviceGetRemappedRows_v2(device, rows: Out(24));
            0x37 forward nvmlDeviceGetBankRemapperStatus_v1(device, status: Out(20));
            0x38 forward nvmlDeviceGetRetiredPages(device, cause: Up(1), count: Count(64), addresses: Entries(8));
            0x39 forward nvmlDeviceGetRetiredPages_v2(device, cause: Up(1), count: Count(64), addresses: Entries(8), times: Entries(8));
            0x3a forward nvmlDeviceGetRetiredPagesPendingStatus(device, pending: Out(4));
            0x3b forward nvmlDeviceGetRepairStatus(device, status: Struct(12, 1, &[]));
            0x3c forward nvmlDeviceGetUnrepairableMemoryFlag_v1(device, flag: Out(4));
            0x3d forward nvmlDeviceGetDramEncryptionMode(device, current: Struct(8, 1, &[]), pending: Struct(8, 1, &[]));

            // Clocks, power, fans.
            0x40 custom nvmlDeviceGetClockInfo(device, kind: Up(3), mhz: Out(4));
            0x41 custom nvmlDeviceGetMaxClockInfo(device, kind: Up(3), mhz: Out(4));
            0x42 custom nvmlDeviceGetClock(device, kind: Up(3), which: Up(3), mhz: Out(4));
            0x43 forward nvmlDeviceGetSupportedMemoryClocks(device, count: Count(64), mhz: Entries(4));
            0x44 forward nvmlDeviceGetSupportedGraphicsClocks(device, memory: Number, count: Count(512), mhz: Entries(4));
            0x45 forward nvmlDeviceGetAdaptiveClockInfoStatus(device, status: Out(4));
            0x46 forward nvmlDeviceGetAutoBoostedClocksEnabled(device, enabled: Out(4), by_default: Out(4));
            0x47 forward nvmlDeviceGetGpcClkVfOffset(device, mhz: Out(4));
            0x48 forward nvmlDeviceGetMemClkVfOffset(device, mhz: Out(4));
            0x49 forward nvmlDeviceGetGpcClkMinMaxVfOffset(device, min: Out(4), max: Out(4));
            0x4a forward nvmlDeviceGetMemClkMinMaxVfOffset(device, min: Out(4), max: Out(4));
            0x4b forward nvmlDeviceGetClockOffsets(device, offsets: Struct(24, 1, &[3, 32]));
            0x4c forward nvmlDeviceGetMinMaxClockOfPState(device, kind: Up(3), state: Up(15), min: Maybe(4), max: Maybe(4));
            0x4d custom nvmlDeviceGetSupportedPerformanceStates(device, states: Out(64), bytes: Only(&[64]));
            0x4e forward nvmlDeviceGetPerformanceModes(device, modes: Struct(2052, 1, &[]));
            0x4f forward nvmlDeviceGetCurrentClockFreqs(device, clocks: Struct(2052, 1, &[]));
            0x50 forward nvmlDeviceGetViolationStatus(device, policy: Up(11), time: Out(16));
            0x51 forward nvmlDeviceGetTemperatureThreshold(device, which: Up(7), degrees: Out(4));
            0x52 forward nvmlDeviceGetPowerSource(device, source: Out(4));
            0x53 forward nvmlDeviceGetPowerMizerMode_v1(device, modes: Out(12));
            0x54 forward nvmlDeviceGetAdaptiveTgpModeInfo_v1(device, info: Out(20));
            0x55 forward nvmlDeviceGetFanSpeed_v2(device, fan: Up(15), per_cent: Out(4));
            0x56 forward nvmlDeviceGetTargetFanSpeed(device, fan: Up(15), per_cent: Out(4));
            0x57 forward nvmlDeviceGetFanControlPolicy_v2(device, fan: Up(15), policy: Out(4));
            0x58 forward nvmlDeviceGetMinMaxFanSpeed(device, min: Out(4), max: Out(4));
            0x59 forward nvmlDeviceGetFanSpeedRPM(device, speed: Struct(12, 1, &[15]));
            0x5a forward nvmlDeviceGetCoolerInfo(device, info: Struct(16, 1, &[15]));
            // Power and clocks; the other kinds report how much all machines use the card.
            0x5b custom nvmlDeviceGetSamples(device, kind: Only(&[0, 5, 6, 7]), since: Number, value_kind: Out(4), count: Count(256), samples: Entries(16));
            0x5c forward nvmlDeviceGetThermalSettings(device, sensor: Up(15), settings: Out(64));

            // Several cards, and parts of one.
            0x60 forward nvmlDeviceOnSameBoard(device, other: Peer, same: Out(4));
            0x61 forward nvmlDeviceGetTopologyCommonAncestor(device, other: Peer, level: Out(4));
            0x62 forward nvmlDeviceGetP2PStatus(device, other: Peer, which: Up(5), status: Out(4));
            0x63 forward nvmlDeviceGetGpuInstanceProfileInfo(device, profile: Up(31), info: Out(48));
            0x64 custom nvmlDeviceGetGpuInstanceProfileInfoV(device, profile: Up(31), info: Struct(152, 2, &[]));
            0x65 custom nvmlDeviceGetGpuInstanceProfileInfoV(device, profile: Up(31), info: Struct(152, 3, &[]));
            0x66 custom nvmlDeviceGetGpuInstanceProfileInfoByIdV(device, profile: Up(255), info: Struct(152, 2, &[]));
            0x67 custom nvmlDeviceGetGpuInstanceProfileInfoByIdV(device, profile: Up(255), info: Struct(152, 3, &[]));
            0x68 custom nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile: Up(255), places: Entries(8), count: Count(64));
            0x69 forward nvmlDeviceGetGpuInstanceRemainingCapacity(device, profile: Up(255), count: Out(4));
        }
    };
}

macro_rules! emit_rows {
    ($($number:literal $kind:ident $name:ident ($of:ident $(, $p:ident: $k:ident $(($($v:expr),*))?)*);)*) => {
        /// Every row.
        pub(super) const GETTERS: &[Getter] = &[$(Getter {
            number: $number,
            name: stringify!($name),
            of_device: is_device!($of),
            parameters: &[$(Parameter::$k $(($($v),*))?),*],
        },)*];
    };
}
macro_rules! is_device {
    (device) => {
        true
    };
    (system) => {
        false
    };
}
nvml_getters!(emit_rows);

#[cfg(test)]
mod tests {
    use super::super::{Parameter, MAX_INPUTS, MAX_PARAMETERS};
    use super::GETTERS;

    #[test]
    fn numbers_are_unique_and_rows_fit() {
        for (index, row) in GETTERS.iter().enumerate() {
            assert!(GETTERS[..index].iter().all(|other| other.number < row.number), "{}", row.name);
            assert!(row.parameters.len() <= MAX_PARAMETERS, "{}", row.name);
            assert!(row.bytes() > 0 && row.bytes() <= 8192, "{}", row.name);
            let inputs: usize = row
                .parameters
                .iter()
                .map(|parameter| match parameter {
                    Parameter::Up(_) | Parameter::Only(_) | Parameter::Number | Parameter::Peer => 1,
                    Parameter::Struct(_, _, lasts) => lasts.len(),
                    _ => 0,
                })
                .sum();
            assert!(inputs <= MAX_INPUTS, "{}", row.name);
        }
    }

    #[test]
    fn only_getters_and_nothing_of_other_machines() {
        let secret = [
            "Serial",
            "Pdi",
            "Uuid",
            "Hostname",
            "Platform",
            "Process",
            "Pids",
            "Utilization",
            "Irq",
            "GetMemoryInfo",
        ];
        for row in GETTERS {
            assert!(
                row.name.starts_with("nvmlDevice") || row.name.starts_with("nvmlSystemGet"),
                "{}",
                row.name
            );
            assert!(
                ["DeviceSet", "SystemSet", "Reset", "Clear"].iter().all(|word| !row.name.contains(word)),
                "{}",
                row.name
            );
            assert!(secret.iter().all(|word| !row.name.contains(word)), "{}", row.name);
        }
    }
}
