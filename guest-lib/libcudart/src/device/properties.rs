// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cudaDeviceProp, built from the driver's attributes once per device.

use core::ffi::{CStr, c_int, c_uint};
use core::mem;

use crate::abi::version::{DEVICE_PROP_BYTES, cudaDeviceProp};
use crate::error::Result;
use crate::pointers::{Out, read_start};
use crate::state::Device;
use crate::{driver, state};

api! {
    fn cudaGetDeviceProperties / cudaGetDeviceProperties_v2(properties: Out<cudaDeviceProp>, device: c_int) {
        properties.check()?;
        properties.set(*of(state::runtime()?.device(device)?)?)
    }

    /// Chooses the device that meets the most requested properties. A property is requested if its field is not zero.
    fn cudaChooseDevice(device: Out<c_int>, wishes: *const cudaDeviceProp) {
        device.check()?;
        // SAFETY: the program promises null or its version's struct, which consists of numbers.
        let wishes = unsafe { read_start(wishes, DEVICE_PROP_BYTES) }?;
        let runtime = state::runtime()?;
        let mut best = (0, 0);
        for ordinal in 0..runtime.device_count() as c_int {
            let points = met(of(runtime.device(ordinal)?)?, &wishes);
            if points > best.0 {
                best = (points, ordinal);
            }
        }
        device.set(best.1)
    }
}

/// Returns the properties of the device, which are read once.
pub fn of(device: &Device) -> Result<&cudaDeviceProp> {
    if let Some(properties) = device.properties.get() {
        return Ok(properties);
    }
    let properties = Box::new(read(device)?);
    Ok(device.properties.get_or_init(|| properties))
}

/// Returns the number of requested properties that a device has.
fn met(has: &cudaDeviceProp, wishes: &cudaDeviceProp) -> u32 {
    let name = |properties: &cudaDeviceProp| {
        let bytes = properties.name.map(|byte| byte as u8);
        CStr::from_bytes_until_nul(&bytes).map(CStr::to_owned).unwrap_or_default()
    };
    let same_name = !name(wishes).is_empty() && name(wishes) == name(has);
    let at_least = |wish: usize, has: usize| wish != 0 && has >= wish;
    let capability = |properties: &cudaDeviceProp| (properties.major * 10 + properties.minor) as usize;
    [
        same_name,
        at_least(capability(wishes), capability(has)),
        at_least(wishes.totalGlobalMem, has.totalGlobalMem),
        at_least(wishes.sharedMemPerBlock, has.sharedMemPerBlock),
        at_least(wishes.multiProcessorCount as usize, has.multiProcessorCount as usize),
        at_least(wishes.maxThreadsPerBlock as usize, has.maxThreadsPerBlock as usize),
    ]
    .into_iter()
    .map(u32::from)
    .sum()
}

/// Reads `CU_DEVICE_ATTRIBUTE_*` values by number. An attribute that the driver does not know reads as 0.
struct Attributes {
    device: c_int,
}

impl Attributes {
    fn get(&self, attribute: c_uint) -> c_int {
        let mut value = 0;
        // SAFETY: `value` is valid for the write.
        let known = unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, self.device) }.is_ok();
        if known { value } else { 0 }
    }

    fn size(&self, attribute: c_uint) -> usize {
        usize::try_from(self.get(attribute)).unwrap_or(0)
    }

    fn several<const N: usize>(&self, attributes: [c_uint; N]) -> [c_int; N] {
        attributes.map(|attribute| self.get(attribute))
    }
}

fn read(device: &Device) -> Result<cudaDeviceProp> {
    // SAFETY: the struct consists of numbers and arrays of numbers, for which zero is a value.
    let mut properties: cudaDeviceProp = unsafe { mem::zeroed() };
    let length = properties.name.len() as c_int;
    // SAFETY: the name's place and its length; the uuid has the driver's layout.
    unsafe {
        driver::cuDeviceGetName(properties.name.as_mut_ptr(), length, device.handle)?;
        driver::cuDeviceGetUuid_v2(&mut properties.uuid, device.handle)?;
        driver::cuDeviceTotalMem_v2(&mut properties.totalGlobalMem, device.handle)?;
    }
    let attributes = Attributes { device: device.handle };
    fill_compute(&mut properties, &attributes);
    fill_textures(&mut properties, &attributes);
    fill_memory(&mut properties, &attributes);
    fill_placement(&mut properties, &attributes);
    fill_own(&mut properties, &attributes);
    Ok(properties)
}

fn fill_compute(p: &mut cudaDeviceProp, a: &Attributes) {
    p.maxThreadsPerBlock = a.get(1);
    p.maxThreadsDim = a.several([2, 3, 4]);
    p.maxGridSize = a.several([5, 6, 7]);
    p.sharedMemPerBlock = a.size(8);
    p.totalConstMem = a.size(9);
    p.warpSize = a.get(10);
    p.memPitch = a.size(11);
    p.regsPerBlock = a.get(12);
    p.multiProcessorCount = a.get(16);
    p.concurrentKernels = a.get(31);
    p.maxThreadsPerMultiProcessor = a.get(39);
    p.asyncEngineCount = a.get(40);
    p.major = a.get(75);
    p.minor = a.get(76);
    p.streamPrioritiesSupported = a.get(78);
    p.globalL1CacheSupported = a.get(79);
    p.localL1CacheSupported = a.get(80);
    p.sharedMemPerMultiprocessor = a.size(81);
    p.regsPerMultiprocessor = a.get(82);
    p.computePreemptionSupported = a.get(90);
    p.cooperativeLaunch = a.get(95);
    p.sharedMemPerBlockOptin = a.size(97);
    p.maxBlocksPerMultiProcessor = a.get(106);
    p.reservedSharedMemPerBlock = a.size(111);
    p.clusterLaunch = a.get(120);
    p.unifiedFunctionPointers = a.get(129);
}

fn fill_textures(p: &mut cudaDeviceProp, a: &Attributes) {
    p.textureAlignment = a.size(14);
    p.maxTexture1D = a.get(21);
    p.maxTexture2D = a.several([22, 23]);
    p.maxTexture3D = a.several([24, 25, 26]);
    p.maxTexture2DLayered = a.several([27, 28, 29]);
    p.surfaceAlignment = a.size(30);
    p.maxTexture1DLayered = a.several([42, 43]);
    p.maxTexture2DGather = a.several([45, 46]);
    p.maxTexture3DAlt = a.several([47, 48, 49]);
    p.texturePitchAlignment = a.size(51);
    p.maxTextureCubemap = a.get(52);
    p.maxTextureCubemapLayered = a.several([53, 54]);
    p.maxSurface1D = a.get(55);
    p.maxSurface2D = a.several([56, 57]);
    p.maxSurface3D = a.several([58, 59, 60]);
    p.maxSurface1DLayered = a.several([61, 62]);
    p.maxSurface2DLayered = a.several([63, 64, 65]);
    p.maxSurfaceCubemap = a.get(66);
    p.maxSurfaceCubemapLayered = a.several([67, 68]);
    p.maxTexture2DLinear = a.several([70, 71, 72]);
    p.maxTexture2DMipmap = a.several([73, 74]);
    p.maxTexture1DMipmap = a.get(77);
    p.sparseCudaArraySupported = a.get(112);
    p.deferredMappingCudaArraySupported = a.get(121);
}

fn fill_memory(p: &mut cudaDeviceProp, a: &Attributes) {
    p.integrated = a.get(18);
    p.canMapHostMemory = a.get(19);
    p.ECCEnabled = a.get(32);
    p.memoryBusWidth = a.get(37);
    p.l2CacheSize = a.get(38);
    p.unifiedAddressing = a.get(41);
    p.managedMemory = a.get(83);
    p.hostNativeAtomicSupported = a.get(86);
    p.pageableMemoryAccess = a.get(88);
    p.concurrentManagedAccess = a.get(89);
    p.canUseHostPointerForRegisteredMem = a.get(91);
    p.hostRegisterSupported = a.get(99);
    p.pageableMemoryAccessUsesHostPageTables = a.get(100);
    p.directManagedMemAccessFromHost = a.get(101);
    p.persistingL2CacheMaxSize = a.get(108);
    p.accessPolicyMaxWindowSize = a.get(109);
    p.hostRegisterReadOnlySupported = a.get(113);
    p.memoryPoolsSupported = a.get(115);
    p.memoryPoolSupportedHandleTypes = a.get(119) as c_uint;
}

fn fill_placement(p: &mut cudaDeviceProp, a: &Attributes) {
    p.pciBusID = a.get(33);
    p.pciDeviceID = a.get(34);
    p.tccDriver = a.get(35);
    p.pciDomainID = a.get(50);
    p.isMultiGpuBoard = a.get(84);
    p.multiGpuBoardGroupID = a.get(85);
    p.timelineSemaphoreInteropSupported = a.get(114);
    p.gpuDirectRDMASupported = a.get(116);
    p.gpuDirectRDMAFlushWritesOptions = a.get(117) as c_uint;
    p.gpuDirectRDMAWritesOrdering = a.get(118);
    p.ipcEventSupported = a.get(125);
}

/// Fills the members that only this version of the struct has.
#[cfg(not(cuda_major = "13"))]
fn fill_own(p: &mut cudaDeviceProp, a: &Attributes) {
    p.clockRate = a.get(13);
    p.deviceOverlap = a.get(15);
    p.kernelExecTimeoutEnabled = a.get(17);
    p.computeMode = a.get(20);
    p.memoryClockRate = a.get(36);
    p.maxTexture1DLinear = a.get(69);
    p.singleToDoublePrecisionPerfRatio = a.get(87);
    p.cooperativeMultiDeviceLaunch = a.get(96);
}

/// Fills the members that only this version of the struct has.
#[cfg(cuda_major = "13")]
fn fill_own(p: &mut cudaDeviceProp, a: &Attributes) {
    p.deviceNumaConfig = a.get(130);
    p.deviceNumaId = a.get(131);
    p.mpsEnabled = a.get(133);
    p.hostNumaId = a.get(134);
    p.gpuPciDeviceID = a.get(139) as c_uint;
    p.gpuPciSubsystemID = a.get(140) as c_uint;
    p.hostNumaMultinodeIpcSupported = a.get(143);
}
