// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuDevice*: queries of a device.

use std::ffi::{c_char, c_int};

use super::attributes::attribute;
use super::{CUdevice, all, device};
use crate::driver::ffi::{In, Out, Text, copy_text};
use crate::driver::result::{CUresult, CuResult};

fn device_get(out: Out<CUdevice>, ordinal: c_int) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(device(ordinal)?.ordinal);
    Ok(())
}

fn device_get_count(count: Out<c_int>) -> CuResult<()> {
    count.check()?;
    count.set_if_wanted(all().len() as c_int);
    Ok(())
}

fn device_get_name(name: Out<c_char>, len: c_int, ordinal: CUdevice) -> CuResult<()> {
    name.check()?;
    let device = device(ordinal)?;
    if len == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // NVIDIA's driver accepts a negative length. Here it means no room.
    // SAFETY: the caller says in `len` how many bytes the buffer has.
    unsafe { copy_text(name, usize::try_from(len).unwrap_or(0), &device.model.name) };
    Ok(())
}

fn device_get_uuid(uuid: Out<[u8; 16]>, ordinal: CUdevice) -> CuResult<()> {
    uuid.check()?;
    uuid.set_if_wanted(device(ordinal)?.model.uuid());
    Ok(())
}

fn device_total_mem(bytes: Out<usize>, ordinal: CUdevice) -> CuResult<()> {
    bytes.check()?;
    bytes.set_if_wanted(device(ordinal)?.memory.total_bytes() as usize);
    Ok(())
}

/// The version before CUDA 3.2, with as many bytes as 32 bits can represent.
fn device_total_mem_32(bytes: Out<u32>, ordinal: CUdevice) -> CuResult<()> {
    bytes.check()?;
    bytes.set_if_wanted(u32::try_from(device(ordinal)?.memory.total_bytes()).unwrap_or(u32::MAX));
    Ok(())
}

fn device_get_attribute(value: Out<c_int>, number: c_int, ordinal: CUdevice) -> CuResult<()> {
    value.check()?;
    value.set_if_wanted(attribute(number, device(ordinal)?)?);
    Ok(())
}

fn device_compute_capability(major: Out<c_int>, minor: Out<c_int>, ordinal: CUdevice) -> CuResult<()> {
    major.check()?;
    minor.check()?;
    let architecture = device(ordinal)?.model.architecture as c_int;
    major.set_if_wanted(architecture / 10);
    minor.set_if_wanted(architecture % 10);
    Ok(())
}

fn device_get_pci_bus_id(text: Out<c_char>, len: c_int, ordinal: CUdevice) -> CuResult<()> {
    text.check()?;
    let bus_id = format!("0000:{:02X}:00.0", device(ordinal)?.model.pci_bus());
    let capacity =
        usize::try_from(len).ok().filter(|len| *len > 0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller says in `len`, which is `capacity`, how many bytes the buffer has.
    unsafe { copy_text(text, capacity, &bus_id) };
    Ok(())
}

fn device_get_by_pci_bus_id(out: Out<CUdevice>, text: Text) -> CuResult<()> {
    out.check()?;
    let text = text.text()?;
    let (address, _function) = text.rsplit_once('.').unwrap_or((&text, "0"));
    let mut parts = address.rsplit(':').map(|part| u32::from_str_radix(part, 16));
    let (slot, bus, domain) = (parts.next(), parts.next(), parts.next().unwrap_or(Ok(0)));
    let (Some(Ok(slot)), Some(Ok(bus)), Ok(domain)) = (slot, bus, domain) else {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    if slot != 0 || domain != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    let found = all().iter().find(|device| device.model.pci_bus() == bus);
    out.set_if_wanted(found.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?.ordinal);
    Ok(())
}

fn device_can_access_peer(can: Out<c_int>, one: CUdevice, other: CUdevice) -> CuResult<()> {
    can.check()?;
    device(one)?;
    device(other)?;
    can.set_if_wanted(c_int::from(one != other));
    Ok(())
}

/// No fabric connects these devices.
fn device_get_clique_count(count: Out<usize>, ordinal: CUdevice) -> CuResult<()> {
    count.check()?;
    device(ordinal)?;
    count.set_if_wanted(0);
    Ok(())
}

fn device_get_p2p_attribute(
    value: Out<c_int>,
    number: c_int,
    one: CUdevice,
    other: CUdevice,
) -> CuResult<()> {
    value.check()?;
    device(one)?;
    device(other)?;
    if one == other {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    // CUdevice_P2PAttribute: performance rank, access, native atomics, access to arrays, partial native atomics.
    value.set_if_wanted(match number {
        1 => 0,
        2..=4 => 1,
        5 => 0,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    });
    Ok(())
}

/// `CUatomicOperation`s: integers (add, min, max, increment, decrement), bits (and, or, xor), exchange, compare and
/// swap, floats (add, min, max). `CUatomicOperationCapability`: over PCIe an H200 executes none of them natively.
const HOST_ATOMICS: [u32; 13] = [0; 13];

/// Returns the capabilities of the requested operations, once all are checked.
fn atomics_of(table: &[u32; 13], capabilities: Out<u32>, operations: In<c_int>, count: u32) -> CuResult<()> {
    let of = |index| {
        // SAFETY: less than `count`, as many elements as the caller says that the array has.
        unsafe { capabilities.element(index) }.set_if_wanted(0);
        let operation = usize::try_from(operations.at(index)?).ok();
        let capability = operation.and_then(|operation| table.get(operation)).copied();
        capability.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    };
    let answers = (0..count as usize).map(of).collect::<CuResult<Vec<u32>>>()?;
    for (index, answer) in answers.into_iter().enumerate() {
        // SAFETY: there are `count` answers, as many as the caller says that the array has elements.
        unsafe { capabilities.element(index) }.set_if_wanted(answer);
    }
    Ok(())
}

fn device_get_host_atomic_capabilities(
    capabilities: Out<u32>,
    operations: In<c_int>,
    count: u32,
    ordinal: CUdevice,
) -> CuResult<()> {
    capabilities.check()?;
    if operations.is_null() || count == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    device(ordinal)?;
    atomics_of(&HOST_ATOMICS, capabilities, operations, count)
}

fn device_get_p2p_atomic_capabilities(
    capabilities: Out<u32>,
    operations: In<c_int>,
    count: u32,
    one: CUdevice,
    other: CUdevice,
) -> CuResult<()> {
    capabilities.check()?;
    if operations.is_null() || count == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    device(one)?;
    device(other)?;
    if one == other {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    atomics_of(&HOST_ATOMICS, capabilities, operations, count)
}

fn device_get_exec_affinity_support(value: Out<c_int>, _kind: c_int, ordinal: CUdevice) -> CuResult<()> {
    value.check()?;
    device(ordinal)?;
    value.set_if_wanted(0);
    Ok(())
}

fn device_get_texture_1d_linear_max_width(
    width: Out<usize>,
    format: u32,
    channels: u32,
    ordinal: CUdevice,
) -> CuResult<()> {
    width.check()?;
    crate::driver::array::format_of(format, channels)?;
    device(ordinal)?;
    width.set_if_wanted(1 << 28);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuDeviceGet => device_get(out: Out<CUdevice>, ordinal: c_int);
    cuDeviceGetCount => device_get_count(count: Out<c_int>);
    cuDeviceGetName => device_get_name(name: Out<c_char>, len: c_int, device: CUdevice);
    cuDeviceGetUuid => device_get_uuid(uuid: Out<[u8; 16]>, device: CUdevice);
    cuDeviceGetUuid_v2 => device_get_uuid(uuid: Out<[u8; 16]>, device: CUdevice);
    cuDeviceTotalMem => device_total_mem_32(bytes: Out<u32>, device: CUdevice);
    cuDeviceTotalMem_v2 => device_total_mem(bytes: Out<usize>, device: CUdevice);
    cuDeviceGetAttribute => device_get_attribute(value: Out<c_int>, number: c_int, device: CUdevice);
    cuDeviceComputeCapability => device_compute_capability(major: Out<c_int>, minor: Out<c_int>, device: CUdevice);
    cuDeviceGetPCIBusId => device_get_pci_bus_id(text: Out<c_char>, len: c_int, device: CUdevice);
    cuDeviceGetByPCIBusId => device_get_by_pci_bus_id(out: Out<CUdevice>, text: Text);
    cuDeviceCanAccessPeer => device_can_access_peer(can: Out<c_int>, one: CUdevice, other: CUdevice);
    cuDeviceGetP2PAttribute => device_get_p2p_attribute(
        value: Out<c_int>, number: c_int, one: CUdevice, other: CUdevice);
    cuDeviceGetCliqueCount => device_get_clique_count(count: Out<usize>, device: CUdevice);
    cuDeviceGetHostAtomicCapabilities => device_get_host_atomic_capabilities(
        capabilities: Out<u32>, operations: In<c_int>, count: u32, device: CUdevice);
    cuDeviceGetP2PAtomicCapabilities => device_get_p2p_atomic_capabilities(
        capabilities: Out<u32>, operations: In<c_int>, count: u32, one: CUdevice, other: CUdevice);
    cuDeviceGetExecAffinitySupport => device_get_exec_affinity_support(
        value: Out<c_int>, kind: c_int, device: CUdevice);
    cuDeviceGetTexture1DLinearMaxWidth => device_get_texture_1d_linear_max_width(
        width: Out<usize>, format: u32, channels: u32, device: CUdevice);
}
