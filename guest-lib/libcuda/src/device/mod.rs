// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Devices. All constant properties come from one cached reply per device.

use virtio_cuda_client::protocol::DeviceOrdinal;
use virtio_cuda_client::{CudaError, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Name, Out, OutName};
use crate::state::devices::{Snapshot, WorkerDevice, pci_address};

/// The attribute `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
pub const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;
/// Stands for the host as the peer of a device.
const HOST: DeviceOrdinal = DeviceOrdinal(u32::MAX);

impl Driver {
    /// Returns the constant properties of a device.
    pub fn device(&self, device: i32) -> Result<&Snapshot, CudaError> {
        self.devices.snapshot(self.session, device)
    }
}

/// `CU_ATOMIC_OPERATION_MAX`.
const ATOMIC_OPERATIONS: i32 = 13;

/// Returns the capabilities of a link, for each of the requested operations.
fn atomics(
    api: Api,
    capabilities: Out<u32>,
    operations: In<i32>,
    count: u32,
    device: i32,
    peer: Option<i32>,
) -> Result<(), CudaError> {
    capabilities.check()?;
    if operations.is_null() || count == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let devices = &api.driver.devices;
    let number = |device| devices.check(device).map(WorkerDevice::on_wire);
    let (from, to) = (number(device)?, peer.map_or(Ok(HOST), number)?);
    if from == to {
        return Err(CudaError::INVALID_DEVICE);
    }
    for index in 0..count as usize {
        capabilities.set_at(index, 0)?;
        if !(0..ATOMIC_OPERATIONS).contains(&operations.at(index)?) {
            return Err(CudaError::INVALID_VALUE);
        }
    }
    let all = calls::device_atomics(&mut api.call(), from, to)?;
    let (words, _) = all.as_chunks();
    for index in 0..count as usize {
        let word = words.get(operations.at(index)? as usize).copied().unwrap_or_default();
        capabilities.set_at(index, u32::from_le_bytes(word))?;
    }
    Ok(())
}

entry_points! {
    /// Returns the device with this ordinal, which is the same number.
    call cuDeviceGet(api, device: Out<i32>, ordinal: i32) {
        api.driver.devices.check(ordinal)?;
        device.set(ordinal)
    }

    /// Returns the number of devices.
    call cuDeviceGetCount(api, count: Out<i32>) {
        count.set(api.driver.devices.count())
    }

    /// Returns the device's name.
    call cuDeviceGetName(api, name: OutName, len: i32, dev: i32) {
        let text = &api.driver.device(dev)?.name;
        // NVIDIA's driver accepts a negative length. Here it means no room.
        if len < 0 { Ok(()) } else { name.set(text, len) }
    }

    /// Returns the device's UUID.
    call cuDeviceGetUuid(api, uuid: Out<[u8; 16]>, dev: i32) {
        uuid.set(api.driver.device(dev)?.uuid)
    }

    /// Returns the device's UUID (it would differ for MIG instances only, which do not exist here).
    call cuDeviceGetUuid_v2(api, uuid: Out<[u8; 16]>, dev: i32) {
        uuid.set(api.driver.device(dev)?.uuid)
    }

    /// Returns the bytes of the device's memory.
    call cuDeviceTotalMem_v2(api, bytes: Out<usize>, dev: i32) {
        bytes.set(api.driver.device(dev)?.total_bytes as usize)
    }

    /// The version from before CUDA 3.2: the size is limited to 32 bits.
    call cuDeviceTotalMem(api, bytes: Out<u32>, dev: i32) {
        bytes.check()?;
        bytes.set(u32::try_from(api.driver.device(dev)?.total_bytes).unwrap_or(u32::MAX))
    }

    /// Returns an attribute.
    call cuDeviceGetAttribute(api, pi: Out<i32>, attrib: i32, dev: i32) {
        pi.check()?;
        pi.set(api.driver.device(dev)?.attribute(attrib)?)
    }

    /// Returns the compute capability.
    call cuDeviceComputeCapability(api, major: Out<i32>, minor: Out<i32>, dev: i32) {
        let device = api.driver.device(dev)?;
        major.set(device.attribute(COMPUTE_CAPABILITY_MAJOR)?)?;
        minor.set(device.attribute(COMPUTE_CAPABILITY_MINOR)?)
    }

    /// Returns the properties that CUDA 4 knew (`CUdevprop`).
    call cuDeviceGetProperties(api, prop: Out<[i32; 14]>, dev: i32) {
        // These are maxThreadsPerBlock, maxThreadsDim, maxGridSize, sharedMemPerBlock, totalConstantMemory, SIMDWidth,
        // memPitch, regsPerBlock, clockRate and textureAlign: the first 14 attributes.
        let device = api.driver.device(dev)?;
        let mut values = [0; 14];
        for (value, attribute) in values.iter_mut().zip(1..) {
            *value = device.attribute(attribute)?;
        }
        prop.set(values)
    }

    /// Returns the PCI address as text.
    call cuDeviceGetPCIBusId(api, pciBusId: OutName, len: i32, dev: i32) {
        pciBusId.set_whole(&api.driver.device(dev)?.pci_bus_id, len)
    }

    /// Returns the device at a PCI address; domain and function may be missing.
    call cuDeviceGetByPCIBusId(api, dev: Out<i32>, pciBusId: Name) {
        let wanted = pci_address(pciBusId.get()?.to_bytes()).ok_or(CudaError::INVALID_VALUE)?;
        for device in 0..api.driver.devices.count() {
            if pci_address(&api.driver.device(device)?.pci_bus_id) == Some(wanted) {
                return dev.set(device);
            }
        }
        Err(CudaError::INVALID_DEVICE)
    }

    /// Returns whether a device can access another device's memory.
    call cuDeviceCanAccessPeer(api, canAccessPeer: Out<i32>, dev: i32, peerDev: i32) {
        canAccessPeer.check()?;
        let (device, peer) = (api.driver.devices.check(dev)?, api.driver.devices.check(peerDev)?);
        let can = if device == peer { 0 } else { calls::cuDeviceCanAccessPeer(&mut api.call(), device.on_wire(), peer.on_wire())? };
        canAccessPeer.set(can)
    }

    /// Returns an attribute of the link between two devices.
    call cuDeviceGetP2PAttribute(api, value: Out<i32>, attrib: i32, srcDevice: i32, dstDevice: i32) {
        value.check()?;
        let (src, dst) = (api.driver.devices.check(srcDevice)?, api.driver.devices.check(dstDevice)?);
        value.set(calls::cuDeviceGetP2PAttribute(&mut api.call(), attrib, src.on_wire(), dst.on_wire())?)
    }

    /// Returns the atomic operations that kernels support on host memory.
    call cuDeviceGetHostAtomicCapabilities(api, capabilities: Out<u32>, operations: In<i32>, count: u32, dev: i32) {
        atomics(api, capabilities, operations, count, dev, None)
    }

    /// Returns the atomic operations that a device supports on another device's memory.
    call cuDeviceGetP2PAtomicCapabilities(api, capabilities: Out<u32>, operations: In<i32>, count: u32,
        srcDevice: i32, dstDevice: i32) {
        atomics(api, capabilities, operations, count, srcDevice, Some(dstDevice))
    }

    /// Execution affinity is not supported.
    call cuDeviceGetExecAffinitySupport(api, pi: Out<i32>, _kind: i32, dev: i32) {
        api.driver.devices.check(dev)?;
        pi.set(0)
    }
}
