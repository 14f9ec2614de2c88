// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Launches. Parameters are copied into one packed block before the call returns, because they are in the caller's
//! stack frame.

use cuda_abi::{CUlaunchAttribute, CUlaunchConfig};
use virtio_cuda_client::protocol::{self, FunctionId, LAUNCH_COOPERATIVE, LAUNCH_PRIORITY, LaunchShape};
use virtio_cuda_client::touched::graphs_use_events;
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{Call, CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::state::modules::functions::Parameters;
use crate::state::modules::proven::ProvenShapes;
use crate::state::moving::Uses;
use crate::wire::put;

/// Keys of the `extra` form.
const LAUNCH_PARAM_END: usize = 0;
const LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
const LAUNCH_PARAM_BUFFER_SIZE: usize = 2;

/// Maximum number of entries of `extra` that are read: it has two pairs and an end.
const MAX_EXTRA: usize = 8;

/// `CU_LAUNCH_ATTRIBUTE_*` with a field in [`LaunchShape`], and the one that is ignored.
const ATTRIBUTE_IGNORE: u32 = 0;
const ATTRIBUTE_COOPERATIVE: u32 = 2;
const ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;
const ATTRIBUTE_PRIORITY: u32 = 8;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`, which refers to nothing.
const ATTRIBUTE_SERIALIZATION: u32 = 6;
/// Stands for that attribute in the shapes of accepted launches. Not on the wire.
const LAUNCH_SERIALIZATION: u32 = 1 << 31;
/// The attributes that refer to an event.
pub const ATTRIBUTE_PROGRAMMATIC_EVENT: u32 = 7;
pub const ATTRIBUTE_LAUNCH_COMPLETION_EVENT: u32 = 12;
/// The attribute that has a result.
pub const ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: u32 = 13;
/// The offset of the `CUgraphDeviceNode` in that attribute's value, in bytes.
pub const DEVICE_NODE_OFFSET: usize = 8;
/// The offset of the value in a [`CUlaunchAttribute`], in bytes.
const VALUE_OFFSET: usize = 8;

/// Returns a launch attribute.
fn attribute(config: &CUlaunchConfig, index: usize) -> Result<CUlaunchAttribute, CudaError> {
    // SAFETY: the program promises an array of `attribute_count` attributes.
    unsafe { In::at_address(config.attributes) }.at(index)
}

/// Returns the pointer for the launch's `CUgraphDeviceNode`, if the program wants to change the node in device code.
fn device_node(config: &CUlaunchConfig) -> Result<Option<Out<u64>>, CudaError> {
    for index in 0..config.attribute_count as usize {
        if attribute(config, index)?.id == ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
            let start = index * size_of::<CUlaunchAttribute>() + VALUE_OFFSET;
            // SAFETY: inside of attribute `index`, of `attribute_count` that the program promises.
            let place =
                unsafe { HostPtr::at_address(config.attributes).offset(start + DEVICE_NODE_OFFSET).as_out() };
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// Returns the shape to send, and the other attributes: their number and their encoding.
pub fn shape(config: &CUlaunchConfig, api: Api) -> Result<(LaunchShape, u32, Vec<u8>), CudaError> {
    let mut shape = LaunchShape {
        grid: config.grid,
        block: config.block,
        shared_bytes: config.shared_bytes,
        ..Default::default()
    };
    let (mut count, mut bytes) = (0, Vec::new());
    for index in 0..config.attribute_count as usize {
        let CUlaunchAttribute { id, value, .. } = attribute(config, index)?;
        match id {
            ATTRIBUTE_IGNORE => {}
            ATTRIBUTE_COOPERATIVE if value[0] != 0 => shape.flags |= LAUNCH_COOPERATIVE,
            ATTRIBUTE_COOPERATIVE => {}
            ATTRIBUTE_SERIALIZATION if value[0] == 0 => {}
            ATTRIBUTE_CLUSTER_DIMENSION => shape.cluster = [value[0], value[1], value[2]],
            ATTRIBUTE_PRIORITY => {
                shape.flags |= LAUNCH_PRIORITY;
                shape.priority = value[0] as i32;
            }
            _ => {
                if let ATTRIBUTE_PROGRAMMATIC_EVENT | ATTRIBUTE_LAUNCH_COMPLETION_EVENT = id {
                    // The launch records the event, and a graph may do so, too.
                    graphs_use_events();
                    api.driver.events.recorded_by_graphs(u64::from(value[0]) | u64::from(value[1]) << 32);
                }
                put(&protocol::LaunchAttribute { id, reserved: 0, value }, &mut bytes)?;
                count += 1;
            }
        }
    }
    Ok((shape, count, bytes))
}

/// Refuses launches that lack a value for a parameter.
fn check(parameters: &Parameters, values: In<HostPtr>) -> Result<(), CudaError> {
    for (index, layout) in parameters.layouts.iter().enumerate() {
        if values.at(index)?.address() == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        if layout.offset as usize + layout.bytes as usize > parameters.block_bytes {
            return Err(CudaError::UNKNOWN);
        }
    }
    Ok(())
}

/// Copies each parameter, which [`check`] has checked, to its offset in `block`.
fn pack(parameters: &Parameters, values: In<HostPtr>, block: &mut [u8]) {
    for (index, layout) in parameters.layouts.iter().enumerate() {
        let (start, bytes) = (layout.offset as usize, layout.bytes as usize);
        if let (Ok(value), Some(place)) = (values.at(index), block.get_mut(start..start + bytes)) {
            // SAFETY: by the invariant of `values` each element points to a value of the parameter's size.
            unsafe { std::ptr::copy_nonoverlapping(value.address() as *const u8, place.as_mut_ptr(), bytes) };
        }
    }
}

/// Returns the block that the program packed for the `extra` form.
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
    // SAFETY: by the invariant of `extra` the element after CU_LAUNCH_PARAM_BUFFER_SIZE points to a size_t.
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
        // SAFETY: by the invariant of `extra` it leads to a block of that length.
        bytes.extend(unsafe { block.to_vec() });
        return Ok(());
    }
    let known = api.driver.functions.get(function)?;
    let parameters = known.parameters(api, function)?;
    let start = bytes.len();
    check(parameters, values)?;
    bytes.resize(start + parameters.block_bytes, 0);
    pack(parameters, values, &mut bytes[start..]);
    Ok(())
}

/// The configuration of a launch with attributes that are not in [`LaunchShape`].
struct Configuration {
    stream: u64,
    shape: LaunchShape,
    count: u32,
    /// The encoded attributes.
    bytes: Vec<u8>,
    /// The pointer for the node that device code can change.
    device_node: Option<Out<u64>>,
}

impl Configuration {
    /// Returns whether the launch has no attribute other than [`ATTRIBUTE_SERIALIZATION`].
    fn only_serialize(&self) -> bool {
        self.count == 1 && self.bytes.starts_with(&ATTRIBUTE_SERIALIZATION.to_le_bytes())
    }
}

/// Launches with attributes that are not in [`LaunchShape`].
fn launch_with_attributes(
    api: Api,
    function: u64,
    configuration: Configuration,
    values: In<HostPtr>,
    extra: In<usize>,
) -> Result<(), CudaError> {
    let known = api.driver.functions.get(function)?;
    let provable = (configuration.only_serialize() && extra.is_null()).then_some(&known.proven);
    let Configuration { stream, shape, count, mut bytes, device_node } = configuration;
    let accepted = LaunchShape { flags: shape.flags | LAUNCH_SERIALIZATION, ..shape };
    let post = provable.is_some_and(|proven| proven.contains(accepted)) && api.may_post(stream);
    append_parameters(api, function, values, extra, &mut bytes)?;
    let (function, stream) = (FunctionId(function), api.stream(stream)?);
    let _sent = api.before_work(Uses::Anything, stream)?;
    let mut call = api.in_context()?.input(&bytes).posted_if(post);
    match device_node {
        None => {
            calls::cuLaunchKernelEx(&mut call, function, stream, shape, count)?;
            if let (Some(proven), false) = (provable, post) {
                proven.add(accepted);
            }
        }
        Some(out) => out.set(calls::launch_updatable(&mut call, function, stream, shape, count)?)?,
    }
    api.work_queued();
    api.end_asynchronous(stream)
}

/// The source of a launch's parameter block.
enum Block<'b> {
    /// Values of the program, to be packed into this many bytes.
    Values(usize, &'b dyn Fn(&mut [u8])),
    /// A copy of a block that the program packed.
    Copy(&'b [u8]),
    /// A block that the program packed.
    Program(UserMemory),
}

impl<'b> Block<'b> {
    fn put_into<'c>(self, call: Call<'c>) -> Call<'c>
    where
        'b: 'c,
    {
        match self {
            Self::Values(bytes, write) => call.input_with(bytes, write),
            Self::Copy(bytes) => call.input(bytes),
            // SAFETY: `packed_by_caller` found the block, which the program promises until the launch returns.
            Self::Program(memory) => unsafe { call.input_at(memory) },
        }
    }
}

/// Launches with parameters in either form.
pub fn launch(
    api: Api,
    function: u64,
    stream: u64,
    shape: LaunchShape,
    values: In<HostPtr>,
    extra: Option<In<usize>>,
) -> Result<(), CudaError> {
    let id = api.stream(stream)?;
    let send = |block: Block<'_>, proven: Option<&ProvenShapes>| {
        let _sent = api.before_work(Uses::Anything, id)?;
        let mut call = block.put_into(api.in_context()?);
        let post = api.may_post(stream) && proven.is_some_and(|proven| proven.contains(shape));
        call = call.posted_if(post);
        calls::cuLaunchKernel(&mut call, FunctionId(function), id, shape)?;
        if let (Some(proven), false) = (proven, post) {
            proven.add(shape);
        }
        api.work_queued();
        api.end_asynchronous(id)
    };
    if let Some(extra) = extra.filter(|extra| !extra.is_null()) {
        if !values.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let block = packed_by_caller(extra)?;
        // Managed memory belongs to the GPU while work is being queued, so the block is copied before.
        if api.driver.memory.moving.at(block.address as u64).is_some() {
            // SAFETY: by the invariant of `extra` it leads to a block of that length.
            let copy = unsafe { block.to_vec() };
            return send(Block::Copy(&copy), None);
        }
        return send(Block::Program(block), None);
    }
    let known = api.driver.functions.get(function)?;
    let parameters = known.parameters(api, function)?;
    check(parameters, values)?;
    let write = |block: &mut [u8]| pack(parameters, values, block);
    send(Block::Values(parameters.block_bytes, &write), Some(&known.proven))
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
        launch(api, f, hStream, shape, kernelParams, Some(extra))
    }

    /// Launches with attributes.
    call cuLaunchKernelEx / cuLaunchKernelEx_ptsz (api, config: In<CUlaunchConfig>, f: u64, kernelParams: In<HostPtr>, extra: In<usize>) {
        let config = config.get()?;
        api.driver.functions.get(f)?;
        let (shape, count, bytes) = self::shape(&config, api)?;
        if count > 0 {
            let device_node = device_node(&config)?;
            let configuration = Configuration { stream: config.stream, shape, count, bytes, device_node };
            return launch_with_attributes(api, f, configuration, kernelParams, extra);
        }
        launch(api, f, config.stream, shape, kernelParams, Some(extra))
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
        launch(api, f, hStream, shape, kernelParams, None)
    }
}

#[cfg(test)]
mod tests {
    use virtio_cuda_client::protocol::ParamLayout;

    use super::*;

    /// Returns a C array of pointers as a parameter.
    fn array<T>(values: &[T]) -> In<HostPtr> {
        // SAFETY: the slice has an element for each parameter and outlives its uses.
        unsafe { In::at_address(values.as_ptr() as usize) }
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
        check(&parameters, array(&values)).expect("has all values");
        pack(&parameters, array(&values), &mut block);
        assert_eq!(block[..8], a.to_le_bytes());
        assert_eq!(block[8..], [9, 0, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn missing_parameters_are_refused() {
        let parameters = Parameters { layouts: vec![ParamLayout { offset: 0, bytes: 8 }], block_bytes: 8 };
        assert_eq!(check(&parameters, array(&[0usize])), Err(CudaError::INVALID_VALUE));
        assert_eq!(check(&parameters, In::NULL), Err(CudaError::INVALID_VALUE));
    }

    #[test]
    fn extra_hands_a_block_over() {
        let size = 24usize;
        let extra = [1, 0x5000, 2, &raw const size as usize, 0];
        // SAFETY: the list, and the length that it leads to, are locals.
        let list = unsafe { In::at_address(extra.as_ptr() as usize) };
        let found = packed_by_caller(list).expect("valid");
        assert_eq!((found.address, found.bytes), (0x5000, 24));
    }
}
