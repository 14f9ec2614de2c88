// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The linker. It runs on the device; the linked image is stored here for the program.

use std::ffi::{CStr, CString};

use virtio_cuda_client::protocol::LinkId;
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::answer;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Name, Out};
use crate::handles::{Kind, new_handle};
use crate::jit::JitSinks;
use crate::module::read_file;
use crate::state::modules::links::Link;

/// Maximum input size in bytes. Limits the memory that a wrong size can take.
const MAX_INPUT_BYTES: usize = 1 << 30;
/// Maximum size of a linked image in bytes.
const MAX_IMAGE: u64 = 1 << 30;

fn create(api: Api, count: u32, options: In<u32>, values: HostPtr, out: Out<u64>) -> Result<(), CudaError> {
    out.check()?;
    api.context()?;
    let (options, sinks) = JitSinks::parse(options, values, count)?;
    let handle = new_handle(Kind::Link);
    calls::cuLinkCreate_v2(&mut api.call(), LinkId(handle), options)?;
    api.driver.links.lock().insert(handle, Link { sinks, image: None });
    out.set(handle)
}

/// The options of one call.
struct Options {
    count: u32,
    options: In<u32>,
    values: HostPtr,
}

/// Sends an input with its name.
///
/// # Safety
///
/// `data` can be read.
unsafe fn add(
    api: Api,
    link: u64,
    kind: u32,
    name: &CStr,
    data: UserMemory,
    options: Options,
) -> Result<(), CudaError> {
    let sinks = api.driver.links.sinks(link)?;
    let (options, _) = JitSinks::parse(options.options, options.values, options.count)?;
    let mut input = name.to_bytes().to_vec();
    // SAFETY: `# Safety` promises that the data can be read.
    unsafe { data.append_to(&mut input) };
    let mut call = api.call().input(&input);
    let added = calls::cuLinkAddData_v2(&mut call, LinkId(link), kind, name.count_bytes() as u32, options);
    sinks.fetch(api.call())?;
    added
}

fn add_data(
    api: Api,
    link: u64,
    kind: u32,
    data: UserMemory,
    name: Option<Name>,
    options: Options,
) -> Result<(), CudaError> {
    if data.address == 0 || data.bytes == 0 || data.bytes > MAX_INPUT_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    let name = name.map_or(Ok(CString::default()), |name| name.get())?;
    // SAFETY: the program promised as many bytes there.
    unsafe { add(api, link, kind, &name, data, options) }
}

fn add_file(api: Api, link: u64, kind: u32, path: Name, options: Options) -> Result<(), CudaError> {
    api.driver.links.sinks(link)?;
    let (name, data) = (path.get()?, read_file(path)?);
    // SAFETY: the file's contents live until the call returns.
    unsafe { add(api, link, kind, &name, UserMemory::of(&data), options) }
}

fn complete(api: Api, link: u64) -> Result<Box<[u8]>, CudaError> {
    let sinks = api.driver.links.sinks(link)?;
    let linked = calls::cuLinkComplete(&mut api.call(), LinkId(link));
    sinks.fetch(api.call())?;
    let mut image = answer::zeros(linked?, MAX_IMAGE)?;
    let piece = api.driver.session.limits().copy_bytes.max(1);
    for (index, part) in image.chunks_mut(piece).enumerate() {
        let offset = (index * piece) as u64;
        let wanted = part.len() as u64;
        let got = calls::link_image(&mut api.call().output(part), LinkId(link), offset)?;
        if got != wanted {
            return Err(CudaError::UNKNOWN);
        }
    }
    Ok(image.into())
}

/// Returns a name, which may be missing.
fn optional(name: Name) -> Option<Name> {
    (!name.is_null()).then_some(name)
}

entry_points! {
    /// Begins a link.
    call cuLinkCreate_v2(api, numOptions: u32, options: In<u32>, optionValues: HostPtr, stateOut: Out<u64>) {
        create(api, numOptions, options, optionValues, stateOut)
    }

    /// Begins a link.
    call cuLinkCreate(api, numOptions: u32, options: In<u32>, optionValues: HostPtr, stateOut: Out<u64>) {
        create(api, numOptions, options, optionValues, stateOut)
    }

    /// Adds device code from memory.
    call cuLinkAddData_v2(api, state: u64, r#type: u32, data: HostPtr, size: usize, name: Name,
        numOptions: u32, options: In<u32>, optionValues: HostPtr) {
        let data = UserMemory { address: data.address(), bytes: size };
        add_data(api, state, r#type, data, optional(name), Options { count: numOptions, options, values: optionValues })
    }

    /// Adds device code from memory.
    call cuLinkAddData(api, state: u64, r#type: u32, data: HostPtr, size: usize, name: Name,
        numOptions: u32, options: In<u32>, optionValues: HostPtr) {
        let data = UserMemory { address: data.address(), bytes: size };
        add_data(api, state, r#type, data, optional(name), Options { count: numOptions, options, values: optionValues })
    }

    /// Adds a file of the guest.
    call cuLinkAddFile_v2(api, state: u64, r#type: u32, path: Name, numOptions: u32, options: In<u32>, optionValues: HostPtr) {
        add_file(api, state, r#type, path, Options { count: numOptions, options, values: optionValues })
    }

    /// Adds a file of the guest.
    call cuLinkAddFile(api, state: u64, r#type: u32, path: Name, numOptions: u32, options: In<u32>, optionValues: HostPtr) {
        add_file(api, state, r#type, path, Options { count: numOptions, options, values: optionValues })
    }

    /// Links. The image belongs to the link and ends with it.
    call cuLinkComplete(api, state: u64, cubinOut: Out<usize>, sizeOut: Out<usize>) {
        cubinOut.check()?;
        let image = complete(api, state)?;
        cubinOut.set(image.as_ptr() as usize)?;
        sizeOut.set_if_wanted(image.len());
        api.driver.links.lock().get_mut(&state).ok_or(CudaError::INVALID_HANDLE)?.image = Some(image);
        Ok(())
    }

    /// Ends a link.
    call cuLinkDestroy(api, state: u64) {
        api.driver.links.lock().remove(&state).ok_or(CudaError::INVALID_HANDLE)?;
        calls::cuLinkDestroy(&mut api.call(), LinkId(state))
    }
}
