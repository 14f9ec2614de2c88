// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulated devices of this process, their memory and their first fault; cuInit.

pub(super) mod api;
pub(super) mod attributes;
pub(super) mod model;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cuda_environment::Environment;

use super::context::{self, Context, PrimaryContext};
use super::external::buffers;
use super::ffi;
use super::handle::Handle;
use super::pool::Pool;
use super::pool::home::Home;
use super::pool::shared::{PointerData, SharedPool};
use super::result::{CUresult, CuResult};
use crate::memory::{Memory, Range, RangeKind};
use model::Model;

/// A device's ordinal.
pub type CUdevice = c_int;
/// A device pointer.
pub type CUdeviceptr = u64;

/// One emulated device.
pub(super) struct Device {
    pub(super) ordinal: CUdevice,
    pub(super) model: Model,
    pub(super) memory: Memory,
    pub(super) primary: PrimaryContext,
    pub(super) fault: Fault,
    pub(super) pool: Arc<Pool>,
    /// The pool that cuMemAllocAsync uses.
    pub(super) current_pool: Mutex<Arc<Pool>>,
    allocations: Mutex<BTreeMap<CUdeviceptr, Owner>>,
}

/// The first error of a kernel. As on hardware, every context of this process on the device returns it from then on,
/// until the process ends.
pub(super) struct Fault(AtomicU32);

impl Fault {
    pub(super) fn get(&self) -> Option<CUresult> {
        Some(CUresult(self.0.load(Ordering::Acquire))).filter(|error| *error != CUresult::CUDA_SUCCESS)
    }

    pub(super) fn check(&self) -> CuResult<()> {
        self.get().map_or(Ok(()), Err)
    }

    /// Sets the error, unless there is an earlier one.
    pub(super) fn set(&self, error: CUresult) {
        let _ = self.0.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Ends the error if `CUDA_EMULATOR_RECOVERS` is 1: for tests of what is above the driver.
    pub(super) fn primary_context_ended(&self) {
        if std::env::var_os("CUDA_EMULATOR_RECOVERS").is_some_and(|value| value == "1") {
            self.0.store(0, Ordering::Release);
        }
    }
}

/// The creator of an allocation.
#[derive(Clone)]
pub(super) struct Owner {
    pub(super) context: Handle<Context>,
    pub(super) pool: Option<Arc<Pool>>,
    /// CU_POINTER_ATTRIBUTE_BUFFER_ID
    pub(super) id: u64,
}

impl Owner {
    /// Returns the creator of one more allocation. Its address may have been used before, but its id is new.
    pub(super) fn new(context: Handle<Context>, pool: Option<Arc<Pool>>) -> Owner {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Owner { context, pool, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) }
    }
}

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// Returns CUDA's environment variables as they were when first read, in cuInit.
pub(super) fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(Environment::of_this_process)
}

/// Returns all devices, or none before cuInit.
pub(super) fn all() -> &'static [Device] {
    DEVICES.get().map_or(&[], Vec::as_slice)
}

/// Returns the device with this ordinal.
pub(super) fn device(ordinal: CUdevice) -> CuResult<&'static Device> {
    usize::try_from(ordinal)
        .ok()
        .and_then(|index| all().get(index))
        .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

/// Returns the device of the current context, or the first one, for queries without a device.
pub(super) fn current_or_first() -> CuResult<&'static Device> {
    let current = context::current_handle().and_then(|_| context::device_of(Handle::NULL).ok());
    current.or_else(|| all().first()).ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
}

/// Returns the valid range around a pointer and its device. Host memory belongs to all devices and is found on the
/// first.
pub(super) fn range_of(ptr: u64) -> Option<(&'static Device, Range)> {
    let mut found =
        all().iter().filter_map(|device| device.memory.range_of(ptr).map(|range| (device, range)));
    let first = found.next()?;
    // Managed memory of one device is a host range of the others, and so is memory from host pools.
    let owner = |(device, range): &(&Device, Range)| device.owner(range.base).is_some();
    if owner(&first) { Some(first) } else { Some(found.find(owner).unwrap_or(first)) }
}

/// Returns whether an address lies in the range of device memory, allocated or not.
pub(super) fn reserved(ptr: u64) -> bool {
    all().iter().any(|device| device.memory.reserves(ptr))
}

impl Device {
    fn new(ordinal: CUdevice, model: Model) -> Result<Device, crate::memory::ReserveError> {
        let pool = Arc::new(Pool::new(Home::of_device(ordinal)));
        Ok(Device {
            ordinal,
            memory: Memory::new(model.memory)?,
            model,
            primary: PrimaryContext::new(),
            fault: Fault(AtomicU32::new(0)),
            current_pool: Mutex::new(Arc::clone(&pool)),
            pool,
            allocations: Mutex::new(BTreeMap::new()),
        })
    }

    /// Allocates device memory for a context, or for none ([`Handle::NULL`]).
    pub(super) fn allocate(
        &self,
        context: Handle<Context>,
        bytes: u64,
        kind: RangeKind,
        pool: Option<Arc<Pool>>,
    ) -> CuResult<CUdeviceptr> {
        self.allocate_aligned(context, bytes, crate::memory::MIN_ALIGN, kind, pool)
    }

    /// As [`Self::allocate`], with an alignment in bytes, a power of two.
    pub(super) fn allocate_aligned(
        &self,
        context: Handle<Context>,
        bytes: u64,
        align: u64,
        kind: RangeKind,
        pool: Option<Arc<Pool>>,
    ) -> CuResult<CUdeviceptr> {
        let out_of_memory = |_| CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let ptr = self.memory.allocate_as(bytes, align, kind).map_err(out_of_memory)?;
        // Only allocated memory is counted, also for the pool's high water mark.
        if let Some(pool) = &pool {
            pool.add(bytes).inspect_err(|_| {
                self.memory.free(ptr);
            })?;
        }
        self.own(ptr, Owner::new(context, pool));
        if kind.is_everywhere() {
            for other in all().iter().filter(|other| other.ordinal != self.ordinal) {
                other.memory.add_host_range(ptr, bytes, RangeKind::Managed);
            }
        }
        Ok(ptr)
    }

    /// Allocates from a pool that can be shared.
    pub(super) fn allocate_shared(
        &self,
        context: Handle<Context>,
        bytes: u64,
        pool: &Arc<Pool>,
    ) -> CuResult<CUdeviceptr> {
        let shared = pool.shared.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let ptr = shared.allocate(self, bytes)?;
        self.own_shared(context, ptr, bytes, pool, shared)
    }

    /// Maps an allocation of another process.
    pub(super) fn import_shared(
        &self,
        context: Handle<Context>,
        data: PointerData,
        pool: &Arc<Pool>,
    ) -> CuResult<CUdeviceptr> {
        let shared = pool.shared.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (ptr, bytes) = shared.import_pointer(self, data)?;
        self.own_shared(context, ptr, bytes, pool, shared)
    }

    fn own_shared(
        &self,
        context: Handle<Context>,
        ptr: CUdeviceptr,
        bytes: u64,
        pool: &Arc<Pool>,
        shared: &SharedPool,
    ) -> CuResult<CUdeviceptr> {
        pool.add(bytes).inspect_err(|_| {
            let _ = shared.free(self, ptr);
        })?;
        self.own(ptr, Owner::new(context, Some(Arc::clone(pool))));
        Ok(ptr)
    }

    /// Frees an allocation by its first address.
    pub(super) fn free(&self, ptr: CUdeviceptr) -> CuResult<()> {
        let owner = self.disown(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.release(ptr, &owner)
    }

    /// The first half of a free: from now on no other thread can free it. The memory stays valid.
    pub(super) fn disown(&self, ptr: CUdeviceptr) -> Option<Owner> {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).remove(&ptr)
    }

    /// The second half of a free.
    pub(super) fn release(&self, ptr: CUdeviceptr, owner: &Owner) -> CuResult<()> {
        let range = self.memory.range_of(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if let Some(pool) = &owner.pool {
            pool.remove(range.bytes);
            if let Some(shared) = &pool.shared {
                return shared.free(self, ptr).map(|_| ());
            }
        }
        if range.kind.is_everywhere() {
            for other in all().iter().filter(|other| other.ordinal != self.ordinal) {
                other.memory.remove_host_range(ptr);
            }
        }
        if range.kind == RangeKind::External {
            return if buffers::unmap(&self.memory, ptr) {
                Ok(())
            } else {
                Err(CUresult::CUDA_ERROR_INVALID_VALUE)
            };
        }
        super::ipc::offers::withdraw(ptr);
        self.memory.free(ptr);
        Ok(())
    }

    /// Records the owner of memory that begins at `ptr`, for [`Self::disown`].
    pub(super) fn own(&self, ptr: CUdeviceptr, owner: Owner) {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).insert(ptr, owner);
    }

    /// Returns the creator of the allocation that begins at `base`.
    pub(super) fn owner(&self, base: CUdeviceptr) -> Option<Owner> {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).get(&base).cloned()
    }

    /// Frees the remaining memory of a context that ends.
    pub(super) fn free_all_of(&self, context: Handle<Context>) {
        let of_context: Vec<_> = {
            let allocations = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
            allocations.iter().filter(|(_, owner)| owner.context == context).map(|(ptr, _)| *ptr).collect()
        };
        for ptr in of_context {
            // Another thread may have freed it just now.
            let _ = self.free(ptr);
        }
    }
}

fn make_devices() -> CuResult<Vec<Device>> {
    let logger = env_logger::Env::new().filter_or("CUDA_EMULATOR_LOG", "error");
    // Fails when the program that links this library has initialised a logger already.
    let _ = env_logger::Builder::from_env(logger)
        .format(|out, record| {
            use std::io::Write;
            writeln!(
                out,
                "cuda-emulator: {}: {}",
                record.level().as_str().to_ascii_lowercase(),
                record.args()
            )
        })
        .try_init();
    let devices = model::models(&environment().visible_devices)?.into_iter().enumerate();
    let devices = devices.map(|(ordinal, model)| Device::new(ordinal as CUdevice, model));
    let devices = devices.collect::<Result<_, _>>();
    devices.map_err(|error| {
        log::error!("{error}");
        CUresult::CUDA_ERROR_OUT_OF_MEMORY
    })
}

fn init(flags: u32) -> CuResult<()> {
    static STARTING: Mutex<()> = Mutex::new(());
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if ffi::forked() {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if DEVICES.get().is_none() {
        let devices = make_devices()?;
        DEVICES.get_or_init(|| devices);
        ffi::mark_initialised();
    }
    Ok(())
}

super::ffi::entries! { before_init
    cuInit => init(flags: u32);
}
