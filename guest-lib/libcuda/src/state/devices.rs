// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The devices that the program sees. All constant properties come from one cached reply per device.

use std::sync::OnceLock;

use cuda_abi::CUmemLocation;
use cuda_environment::{Environment, NamedTwice};
use virtio_cuda_client::protocol::{DeviceOrdinal, Location};
use virtio_cuda_client::{Call, CudaError, Session, calls};

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: u32 = 1;
/// Number of attributes to query: those of CUDA 13.0, and room for later ones.
const MAX_ATTRIBUTES: usize = 192;
const MULTIPROCESSOR_COUNT: i32 = 16;
/// Pools can be shared as file descriptors only (`CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`).
const MEMPOOL_HANDLE_TYPES: usize = 119;
const HANDLE_TYPE_FILE: i32 = 1;
/// Supported for one device: see `cuLaunchCooperativeKernelMultiDevice`.
const COOPERATIVE_MULTI_DEVICE_LAUNCH: usize = 96;

/// Attributes that describe *this* stack instead of the GPU.
const OVERRIDES: &[(i32, i32)] = &[
    (88, 0),   // PAGEABLE_MEMORY_ACCESS: the GPU does not see the guest's page tables
    (89, 0),   // CONCURRENT_MANAGED_ACCESS: `__managed__` variables are made coherent at synchronisation only
    (91, 0),   // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: registered memory has its own device address
    (92, 0),   // CAN_USE_STREAM_MEM_OPS_V1
    (93, 0),   // CAN_USE_64_BIT_STREAM_MEM_OPS_V1
    (94, 0),   // CAN_USE_STREAM_WAIT_VALUE_NOR_V1
    (98, 0),   // CAN_FLUSH_REMOTE_WRITES
    (99, 1),   // HOST_REGISTER_SUPPORTED
    (100, 0),  // PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
    (101, 0),  // DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
    (110, 0),  // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
    (114, 0),  // TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
    (116, 0),  // GPU_DIRECT_RDMA_SUPPORTED
    (117, 0),  // GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
    (122, 0),  // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 0),  // CAN_USE_STREAM_WAIT_VALUE_NOR
    (124, 0),  // DMA_BUF_SUPPORTED
    (128, 0),  // HANDLE_TYPE_FABRIC_SUPPORTED
    (130, 0),  // NUMA_CONFIG
    (131, -1), // NUMA_ID
    (132, 0),  // MULTICAST_SUPPORTED
    (134, 0),  // HOST_NUMA_ID
    (136, 0),  // MEM_DECOMPRESS_ALGORITHM_MASK
    (137, 0),  // MEM_DECOMPRESS_MAXIMUM_LENGTH
    (141, 1),  // HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (142, 1),  // HOST_NUMA_MEMORY_POOLS_SUPPORTED
    (144, 1),  // HOST_MEMORY_POOLS_SUPPORTED
    (145, 1),  // HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (146, 0),  // HOST_ALLOC_DMA_BUF_SUPPORTED
];

/// Constant properties of a device.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Bytes of the device's memory.
    pub total_bytes: u64,
    /// UUID of the device.
    pub uuid: [u8; 16],
    /// PCI address in the spelling of `cuDeviceGetPCIBusId`.
    pub pci_bus_id: Vec<u8>,
    /// Name of the device.
    pub name: Vec<u8>,
    /// Attribute `i + 1`, or `i32::MIN` where the host's driver does not know it.
    attributes: Vec<i32>,
}

impl Snapshot {
    fn fetch(session: &Session, device: WorkerDevice) -> Result<Self, CudaError> {
        let mut raw = [0u8; MAX_ATTRIBUTES * 4];
        let mut call = Call::internal(session).output(&mut raw);
        let (total_bytes, uuid, pci_bus_id, name) = calls::device_snapshot(&mut call, device.on_wire())?;
        let count = call.output_bytes() / 4;
        let value = |bytes: &[u8; 4]| i32::from_le_bytes(*bytes);
        let mut attributes: Vec<i32> = raw.as_chunks().0.iter().take(count).map(value).collect();
        for &(attribute, value) in OVERRIDES {
            if let Some(slot) = attributes.get_mut(attribute as usize - 1)
                && *slot != i32::MIN
            {
                *slot = value;
            }
        }
        if let Some(slot) = attributes.get_mut(MEMPOOL_HANDLE_TYPES - 1)
            && *slot != i32::MIN
        {
            *slot &= HANDLE_TYPE_FILE;
        }
        let text = |padded: &[u8]| padded.split(|&byte| byte == 0).next().unwrap_or(&[]).to_vec();
        Ok(Self { total_bytes, uuid, pci_bus_id: text(&pci_bus_id), name: text(&name), attributes })
    }

    /// Returns an attribute. Errors: `CUDA_ERROR_INVALID_VALUE` if the number is unknown.
    pub fn attribute(&self, attribute: i32) -> Result<i32, CudaError> {
        let index = usize::try_from(attribute).ok().and_then(|number| number.checked_sub(1));
        match index.and_then(|index| self.attributes.get(index)) {
            None | Some(&i32::MIN) => Err(CudaError::INVALID_VALUE),
            Some(&value) => Ok(value),
        }
    }

    /// Returns `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
    pub fn multiprocessors(&self) -> Result<i32, CudaError> {
        self.attribute(MULTIPROCESSOR_COUNT)
    }
}

/// The number of a device in calls to the worker. `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` may give it another
/// number in the program. Only [`Devices`] converts between them; all tables of this library have the program's
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerDevice(u32);

impl WorkerDevice {
    /// Returns the number for the wire.
    pub fn on_wire(self) -> DeviceOrdinal {
        DeviceOrdinal(self.0)
    }
}

/// A device that the program sees.
#[derive(Debug)]
struct Visible {
    worker: WorkerDevice,
    snapshot: OnceLock<Snapshot>,
}

/// The devices that the program sees, by the program's numbers.
#[derive(Debug)]
pub struct Devices {
    visible: Vec<Visible>,
    /// Number of devices of the session.
    all: usize,
}

impl Devices {
    /// Returns the devices of the session that the environment makes visible.
    pub fn new(session: &Session, environment: &Environment) -> Result<Self, CudaError> {
        let mut all: Vec<_> = (0..session.device_count()).map(WorkerDevice).collect();
        let mut uuids = Vec::new();
        if environment.pci_order || environment.visible_devices.needs_uuids() {
            let fetch = |&device| Snapshot::fetch(session, device).map(|snapshot| (device, snapshot));
            let mut facts = all.iter().map(fetch).collect::<Result<Vec<_>, _>>()?;
            if environment.pci_order {
                facts.sort_by_key(|(_, snapshot)| pci_address(&snapshot.pci_bus_id));
            }
            (all, uuids) = facts.into_iter().map(|(device, snapshot)| (device, snapshot.uuid)).unzip();
        }
        let visible = environment.visible_devices.choose(all.len(), &uuids);
        let visible = visible.map_err(|NamedTwice| CudaError::INVALID_DEVICE)?.into_iter();
        let visible = visible.map(|at| Visible { worker: all[at], snapshot: OnceLock::new() }).collect();
        Ok(Self { visible, all: all.len() })
    }

    /// Returns the number of visible devices.
    pub fn count(&self) -> i32 {
        self.visible.len() as i32
    }

    /// Returns whether the session has devices that are not visible.
    pub fn hides_any(&self) -> bool {
        self.visible.len() < self.all
    }

    fn get(&self, device: i32) -> Result<&Visible, CudaError> {
        let slot = usize::try_from(device).ok().and_then(|device| self.visible.get(device));
        slot.ok_or(CudaError::INVALID_DEVICE)
    }

    /// Returns the worker's number of a program's device.
    ///
    /// Errors: `CUDA_ERROR_INVALID_DEVICE` if the device is not visible.
    pub fn check(&self, device: i32) -> Result<WorkerDevice, CudaError> {
        Ok(self.get(device)?.worker)
    }

    /// Returns the program's number of a worker's device.
    ///
    /// Errors: `CUDA_ERROR_INVALID_DEVICE` if the device is not visible.
    pub fn number_of(&self, worker: u32) -> Result<i32, CudaError> {
        let found = self.visible.iter().position(|device| device.worker.0 == worker);
        found.map(|number| number as i32).ok_or(CudaError::INVALID_DEVICE)
    }

    /// Converts a program's location for the worker. A device that is not visible becomes one that the worker does not
    /// have, for which each call has its own error.
    pub fn to_worker(&self, location: CUmemLocation) -> Location {
        let CUmemLocation { kind, id } = location;
        let unknown = -1;
        let device = || self.check(id).map_or(unknown, |device| device.0 as i32);
        Location { kind, id: if kind == LOCATION_DEVICE { device() } else { id } }
    }

    /// Converts a worker's location for the program.
    ///
    /// Errors: those of [`Self::number_of`].
    pub fn to_program(&self, location: Location) -> Result<CUmemLocation, CudaError> {
        let Location { kind, id } = location;
        let id = if kind == LOCATION_DEVICE { self.number_of(id as u32)? } else { id };
        Ok(CUmemLocation { kind, id })
    }

    /// Returns the constant properties of a device.
    pub fn snapshot(&self, session: &Session, device: i32) -> Result<&Snapshot, CudaError> {
        let Visible { worker, snapshot } = self.get(device)?;
        if let Some(snapshot) = snapshot.get() {
            return Ok(snapshot);
        }
        let mut fetched = Snapshot::fetch(session, *worker)?;
        if self.count() > 1
            && let Some(slot) = fetched.attributes.get_mut(COOPERATIVE_MULTI_DEVICE_LAUNCH - 1)
        {
            *slot = 0;
        }
        Ok(snapshot.get_or_init(|| fetched))
    }
}

/// Parses `domain:bus:device.function` in hexadecimal.
pub fn pci_address(text: &[u8]) -> Option<[u32; 4]> {
    let text = std::str::from_utf8(text).ok()?;
    let (path, function) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = path.rsplit(':');
    let mut number = |default| parts.next().map_or(Some(default), |part| u32::from_str_radix(part, 16).ok());
    let (device, bus, domain) = (number(0)?, number(0)?, number(0)?);
    Some([domain, bus, device, u32::from_str_radix(function, 16).ok()?])
}

#[cfg(test)]
mod tests {
    use super::pci_address;

    #[test]
    fn pci_addresses_in_all_spellings() {
        assert_eq!(pci_address(b"0000:3b:00.0"), Some([0, 0x3b, 0, 0]));
        assert_eq!(pci_address(b"3B:00"), Some([0, 0x3b, 0, 0]));
        assert_eq!(pci_address(b"00000001:3b:02.1"), Some([1, 0x3b, 2, 1]));
        assert_eq!(pci_address(b"card"), None);
    }
}
