// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Launches. Parameters are marshalled into one packed block before the call returns: they lie in the
//! caller's frame.

use virtio_cuda_client::protocol::{self, FunctionId, LAUNCH_COOPERATIVE, LAUNCH_PRIORITY, LaunchShape};
use virtio_cuda_client::touched::graphs_use_events;
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::graph::wire::put;
use crate::memory::moving::Uses;
use crate::module::function_table::Parameters;
use crate::module::proven::ProvenShapes;

/// Blocks up to this size (all before CUDA 12.1) are packed on the stack.
const USUAL_BLOCK_BYTES: usize = 4096;

/// Keys of the `extra` form.
const LAUNCH_PARAM_END: usize = 0;
const LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
const LAUNCH_PARAM_BUFFER_SIZE: usize = 2;

/// Entries of `extra` to look at: it has two pairs and an end.
const MAX_EXTRA: usize = 8;

/// `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: u64,
    attributes: HostPtr,
    attribute_count: u32,
}
const _: () = assert!(size_of::<LaunchConfig>() == 56);

/// `CUlaunchAttribute`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LaunchAttribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}
const _: () = assert!(size_of::<LaunchAttribute>() == 72);

/// `CU_LAUNCH_ATTRIBUTE_*` that have a place in [`LaunchShape`], and the one that means nothing.
const ATTRIBUTE_IGNORE: u32 = 0;
const ATTRIBUTE_COOPERATIVE: u32 = 2;
const ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;
const ATTRIBUTE_PRIORITY: u32 = 8;
/// Those that name an event.
pub const ATTRIBUTE_PROGRAMMATIC_EVENT: u32 = 7;
pub const ATTRIBUTE_LAUNCH_COMPLETION_EVENT: u32 = 12;
/// The one that answers something.
pub const ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: u32 = 13;
/// Where in its value the `CUgraphDeviceNode` is.
pub const DEVICE_NODE_OFFSET: usize = 8;
/// Where in a [`LaunchAttribute`] the value is.
const VALUE_OFFSET: usize = 8;

impl LaunchConfig {
    fn attribute(&self, index: usize) -> Result<LaunchAttribute, CudaError> {
        self.attributes.as_in().at(index)
    }

    /// Where the program gets the `CUgraphDeviceNode` of its launch, if it wants to change it in device code.
    fn device_node(&self) -> Result<Option<Out<u64>>, CudaError> {
        for index in 0..self.attribute_count as usize {
            if self.attribute(index)?.id == ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
                let start = index * size_of::<LaunchAttribute>() + VALUE_OFFSET;
                return Ok(Some(self.attributes.offset(start + DEVICE_NODE_OFFSET).as_out()));
            }
        }
        Ok(None)
    }

    /// The shape that crosses, and the attributes beside it: how many, and as they cross.
    pub fn shape(&self, api: Api) -> Result<(LaunchShape, u32, Vec<u8>), CudaError> {
        let mut shape = LaunchShape {
            grid: self.grid,
            block: self.block,
            shared_bytes: self.shared_bytes,
            ..Default::default()
        };
        let (mut count, mut bytes) = (0, Vec::new());
        for index in 0..self.attribute_count as usize {
            let LaunchAttribute { id, value, .. } = self.attribute(index)?;
            match id {
                ATTRIBUTE_IGNORE => {}
                ATTRIBUTE_COOPERATIVE if value[0] != 0 => shape.flags |= LAUNCH_COOPERATIVE,
                ATTRIBUTE_COOPERATIVE => {}
                ATTRIBUTE_CLUSTER_DIMENSION => shape.cluster = [value[0], value[1], value[2]],
                ATTRIBUTE_PRIORITY => {
                    shape.flags |= LAUNCH_PRIORITY;
                    shape.priority = value[0] as i32;
                }
                _ => {
                    if let ATTRIBUTE_PROGRAMMATIC_EVENT | ATTRIBUTE_LAUNCH_COMPLETION_EVENT = id {
                        // The launch records it, and so may a graph.
                        graphs_use_events();
                        api.driver.events.remove(u64::from(value[0]) | u64::from(value[1]) << 32);
                    }
                    put(&protocol::LaunchAttribute { id, reserved: 0, value }, &mut bytes)?;
                    count += 1;
                }
            }
        }
        Ok((shape, count, bytes))
    }
}

/// Copies each parameter to its place in `block`.
fn pack(parameters: &Parameters, values: In<HostPtr>, block: &mut [u8]) -> Result<(), CudaError> {
    for (index, layout) in parameters.layouts.iter().enumerate() {
        let value = values.at(index)?;
        if value.address() == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let (start, bytes) = (layout.offset as usize, layout.bytes as usize);
        let place = block.get_mut(start..start + bytes).ok_or(CudaError::UNKNOWN)?;
        // SAFETY: the caller promises that each element points to a value of the parameter's size.
        unsafe { std::ptr::copy_nonoverlapping(value.address() as *const u8, place.as_mut_ptr(), bytes) };
    }
    Ok(())
}

/// The block that the `extra` form hands over ready-made.
fn packed_by_caller(extra: In<usize>) -> Result<UserMemory, CudaError> {
    let (mut address, mut bytes) = (None, None);
    for index in (0..MAX_EXTRA).step_by(2) {
        match extra.at(index)? {
            LAUNCH_PARAM_END => break,
            LAUNCH_PARAM_BUFFER_POINTER => address = Some(extra.at(index + 1)?),
            LAUNCH_PARAM_BUFFER_SIZE => bytes = Some(extra.at(index + 1)?),
            _ => return Err(CudaError::INVALID_VALUE),
        }
    }
    let (Some(address), Some(size)) = (address, bytes) else { return Err(CudaError::INVALID_VALUE) };
    if size == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: the caller promises that the element after CU_LAUNCH_PARAM_BUFFER_SIZE points to a size_t.
    let bytes = unsafe { (size as *const usize).read() };
    if bytes > 0 && address == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(UserMemory { address, bytes })
}

/// Appends the packed block of parameters in either form.
pub fn append_parameters(
    api: Api,
    function: u64,
    values: In<HostPtr>,
    extra: In<usize>,
    bytes: &mut Vec<u8>,
) -> Result<(), CudaError> {
    if !extra.is_null() {
        if !values.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let block = packed_by_caller(extra)?;
        if block.bytes > 0 {
            // SAFETY: the caller promises that many bytes there.
            let block = unsafe { std::slice::from_raw_parts(block.address as *const u8, block.bytes) };
            bytes.extend_from_slice(block);
        }
        return Ok(());
    }
    let known = api.driver.functions.get(function)?;
    let parameters = known.parameters(api, function)?;
    let start = bytes.len();
    bytes.resize(start + parameters.block_bytes, 0);
    pack(parameters, values, &mut bytes[start..])
}

/// Launches with attributes that [`LaunchShape`] does not have, encoded in `bytes`.
fn launch_with_attributes(
    api: Api,
    function: u64,
    stream: u64,
    shape: LaunchShape,
    (count, mut bytes): (u32, Vec<u8>),
    (values, extra): (In<HostPtr>, In<usize>),
    device_node: Option<Out<u64>>,
) -> Result<(), CudaError> {
    append_parameters(api, function, values, extra, &mut bytes)?;
    let _sent = api.before_work(Uses::Anything)?;
    let mut call = api.in_context()?.input(UserMemory::of(&bytes));
    let (function, stream) = (FunctionId(function), api.stream(stream));
    match device_node {
        None => calls::cuLaunchKernelEx(&mut call, function, stream, shape, count)?,
        Some(out) => out.set(calls::launch_updatable(&mut call, function, stream, shape, count)?)?,
    }
    api.work_queued();
    api.end_asynchronous(stream)
}

/// Launches with parameters in either form.
pub fn launch(
    api: Api,
    function: u64,
    stream: u64,
    shape: LaunchShape,
    (values, extra): (In<HostPtr>, Option<In<usize>>),
) -> Result<(), CudaError> {
    let send = |block: UserMemory, proven: Option<&ProvenShapes>| {
        let _sent = api.before_work(Uses::Anything)?;
        let mut call = api.in_context()?.input(block);
        let post = api.may_post(stream) && proven.is_some_and(|proven| proven.contains(shape));
        if post {
            call = call.posted();
        }
        calls::cuLaunchKernel(&mut call, FunctionId(function), api.stream(stream), shape)?;
        if let (Some(proven), false) = (proven, post) {
            proven.add(shape);
        }
        api.work_queued();
        api.end_asynchronous(api.stream(stream))
    };
    if let Some(extra) = extra.filter(|extra| !extra.is_null()) {
        if !values.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let block = packed_by_caller(extra)?;
        // Managed memory is the GPU's while work is being queued.
        if api.driver.memory.moving.at(block.address as u64).is_some() {
            // SAFETY: the caller promises that many bytes there.
            let copy =
                unsafe { std::slice::from_raw_parts(block.address as *const u8, block.bytes) }.to_vec();
            return send(UserMemory::of(&copy), None);
        }
        return send(block, None);
    }
    let known = api.driver.functions.get(function)?;
    let parameters = known.parameters(api, function)?;
    let mut usual = [0u8; USUAL_BLOCK_BYTES];
    let mut long = Vec::new();
    let block = if parameters.block_bytes <= usual.len() {
        &mut usual[..parameters.block_bytes]
    } else {
        long.resize(parameters.block_bytes, 0);
        &mut long[..]
    };
    pack(parameters, values, block)?;
    send(UserMemory::of(block), Some(&known.proven))
}

entry_points! {
    /// Launches a function or kernel.
    call cuLaunchKernel / cuLaunchKernel_ptsz (api, f: u64, gridDimX: u32, gridDimY: u32, gridDimZ: u32,
        blockDimX: u32, blockDimY: u32, blockDimZ: u32, sharedMemBytes: u32, hStream: u64,
        kernelParams: In<HostPtr>, extra: In<usize>) {
        let shape = LaunchShape {
            grid: [gridDimX, gridDimY, gridDimZ],
            block: [blockDimX, blockDimY, blockDimZ],
            shared_bytes: sharedMemBytes,
            ..Default::default()
        };
        launch(api, f, hStream, shape, (kernelParams, Some(extra)))
    }

    /// Launches with attributes.
    call cuLaunchKernelEx / cuLaunchKernelEx_ptsz (api, config: In<LaunchConfig>, f: u64, kernelParams: In<HostPtr>, extra: In<usize>) {
        let config = config.get()?;
        api.driver.functions.get(f)?;
        let (shape, count, attributes) = config.shape(api)?;
        if count > 0 {
            let (attributes, node) = ((count, attributes), config.device_node()?);
            return launch_with_attributes(api, f, config.stream, shape, attributes, (kernelParams, extra), node);
        }
        launch(api, f, config.stream, shape, (kernelParams, Some(extra)))
    }

    /// Launches with all blocks resident at once.
    call cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz (api, f: u64, gridDimX: u32, gridDimY: u32, gridDimZ: u32,
        blockDimX: u32, blockDimY: u32, blockDimZ: u32, sharedMemBytes: u32, hStream: u64, kernelParams: In<HostPtr>) {
        let shape = LaunchShape {
            grid: [gridDimX, gridDimY, gridDimZ],
            block: [blockDimX, blockDimY, blockDimZ],
            shared_bytes: sharedMemBytes,
            flags: LAUNCH_COOPERATIVE,
            ..Default::default()
        };
        launch(api, f, hStream, shape, (kernelParams, None))
    }
}

#[cfg(test)]
mod tests {
    use virtio_cuda_client::protocol::ParamLayout;

    use super::*;

    /// A C array of pointers as a parameter.
    fn array<T>(values: &[T]) -> In<HostPtr> {
        // SAFETY: In is transparent over a pointer.
        unsafe { std::mem::transmute(values.as_ptr()) }
    }

    #[test]
    fn parameters_go_to_their_places() {
        let parameters = Parameters {
            layouts: vec![
                ParamLayout { offset: 0, bytes: 8 },
                ParamLayout { offset: 8, bytes: 1 },
                ParamLayout { offset: 12, bytes: 4 },
            ],
            block_bytes: 16,
        };
        let (a, b, c) = (0x1122_3344_5566_7788_u64, 9u8, 7u32);
        let values = [&raw const a as usize, &raw const b as usize, &raw const c as usize];
        let mut block = [0u8; 16];
        pack(&parameters, array(&values), &mut block).expect("packs");
        assert_eq!(block[..8], a.to_le_bytes());
        assert_eq!(block[8..], [9, 0, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn missing_parameters_are_refused() {
        let parameters = Parameters { layouts: vec![ParamLayout { offset: 0, bytes: 8 }], block_bytes: 8 };
        let mut block = [0u8; 8];
        assert_eq!(pack(&parameters, array(&[0usize]), &mut block), Err(CudaError::INVALID_VALUE));
        // SAFETY: In is transparent over a pointer.
        let none: In<HostPtr> = unsafe { std::mem::transmute(0usize) };
        assert_eq!(pack(&parameters, none, &mut block), Err(CudaError::INVALID_VALUE));
    }

    #[test]
    fn extra_hands_a_block_over() {
        let size = 24usize;
        let extra = [1, 0x5000, 2, &raw const size as usize, 0];
        // SAFETY: In is transparent over a pointer.
        let list = unsafe { std::mem::transmute::<*const usize, In<usize>>(extra.as_ptr()) };
        let found = packed_by_caller(list).expect("valid");
        assert_eq!((found.address, found.bytes), (0x5000, 24));
    }
}
