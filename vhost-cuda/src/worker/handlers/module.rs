// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modules, libraries, kernels and their attributes.

use std::ops::Deref;

use log::{Level, debug, log_enabled};
use virtio_cuda_protocol::cuda::{
    DevicePtr, FunctionId, LibraryId, MIN_KNOWN_IMAGE_BYTES, ModuleId, ParamLayout, Wire, Writer,
};

use super::context::bytes_of_stacks;
use super::linked;
use crate::cache::DIGEST_BYTES;
use crate::worker::allocations::Origin;
use crate::worker::call::CallContext;
use crate::worker::footprint::{self, Target};
use crate::worker::gpu::{CUfunction, CUlibrary, CUmodule, CuResult, CudaError, POINTER_IS_MANAGED};
use crate::worker::host_memory::CopyCharge;
use crate::worker::images::Mapped;
use crate::worker::objects::{Kind, Object};
use crate::worker::pools;
use crate::worker::quota::{self, Holder};
use crate::worker::state::SessionState;

/// First word of a fat binary container, and its bytes before the entries.
const FATBIN_MAGIC: u32 = 0xBA55_ED50;
const FATBIN_HEADER_BYTES: u64 = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;
/// `CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`.
const LOCAL_SIZE_BYTES: i32 = 3;
/// Most parameters of a kernel: as many one-byte ones as fit the parameter block.
const MAX_PARAMS: usize = 32_764;

/// An image that came with a call, NUL-terminated for the case that it is text.
pub(super) struct Image {
    bytes: Vec<u8>,
    charge: Option<CopyCharge>,
}

impl Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The image that came with the call.
pub(super) fn image(cx: &CallContext<'_>) -> CuResult<Image> {
    let (mut bytes, charge) = cx.bulk_in.contents()?.into_owned();
    check(&bytes)?;
    log_image(&bytes);
    bytes.push(0);
    Ok(Image { bytes, charge })
}

/// What an image is charged, given back when dropped unless it is kept.
pub(super) struct Charged<'a> {
    session: &'a SessionState,
    holder: Option<Holder>,
}

impl Charged<'_> {
    /// The image is loaded.
    pub(super) fn keep(mut self) {
        self.holder = None;
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        if let Some(holder) = self.holder {
            unloaded(self.session, holder);
        }
    }
}

/// Charges an image, with its NUL, that is about to be loaded: for the host's memory, and under a limit for what it takes
/// of the device's. A library is loaded into every context.
pub(super) fn charge_image<'a>(
    cx: &CallContext<'a>,
    holder: Holder,
    image: &[u8],
    context: u64,
) -> CuResult<Charged<'a>> {
    let session = cx.session;
    session.host_memory.loaded(holder, image.len(), context)?;
    let charged = Charged { session, holder: Some(holder) };
    if session.is_limited() {
        let target = Target { architecture: architecture(cx)?, ptx_only: session.emulated };
        let bytes = quota::rounded(footprint::device_bytes(image, target)?);
        pools::charge(session, |allocations| {
            let contexts = match holder {
                Holder::Library(_) => allocations.quota.contexts(),
                _ => 1,
            };
            allocations.quota.hold(holder, bytes.saturating_mul(contexts), context)
        })?;
    }
    Ok(charged)
}

fn unloaded(session: &SessionState, holder: Holder) {
    session.host_memory.unloaded(holder);
    session.allocations().quota.let_go(holder);
}

/// A module that counts by its name, which is free again when the driver has unloaded it.
pub(super) fn loaded_module(cx: &CallContext<'_>, module: ModuleId, raw: CUmodule) -> Object {
    let (session, name) = (cx.session, module.0);
    let object = cx.made_in(cx.home_of(), raw, move |gpu, raw| {
        let unloading = gpu.cuModuleUnload(raw);
        unloaded(session, Holder::Module(name));
        session.objects.modules.free_name(name);
        unloading
    });
    object.keeps_name()
}

/// As [`loaded_module`], for a library, which is of no context.
fn loaded_library(cx: &CallContext<'_>, library: LibraryId, raw: CUlibrary) -> Object {
    let (session, name) = (cx.session, library.0);
    let object = cx.made_in(None, raw, move |gpu, raw| {
        let unloading = gpu.cuLibraryUnload(raw);
        unloaded(session, Holder::Library(name));
        session.objects.libraries.free_name(name);
        unloading
    });
    object.keeps_name()
}

/// The compute capability of the current context's device, times ten.
fn architecture(cx: &CallContext<'_>) -> CuResult<u32> {
    let device = match cx.place() {
        Ok((_, device)) => device,
        // Libraries belong to no context.
        Err(_) => cx.session.device(0)?,
    };
    let number = |attribute| Ok(cx.gpu().cuDeviceGetAttribute(attribute, device)?.0.unsigned_abs());
    Ok(number(COMPUTE_CAPABILITY_MAJOR)? * 10 + number(COMPUTE_CAPABILITY_MINOR)?)
}

/// The image that the daemon kept, with its NUL, if it has it.
fn known(cx: &CallContext<'_>, digest: [u8; DIGEST_BYTES], bytes: u64) -> CuResult<Option<Mapped>> {
    let Some(image) = cx.session.images.find(digest, bytes) else { return Ok(None) };
    // It was checked when it was received, but in another worker, which may have been spoilt.
    check(&image[..image.len() - 1])?;
    log_image(&image[..image.len() - 1]);
    Ok(Some(image))
}

/// Has the daemon keep an image that has just been loaded.
fn keep(cx: &CallContext<'_>, mut image: Image) {
    image.bytes.pop();
    if image.len() as u64 >= MIN_KNOWN_IMAGE_BYTES {
        cx.session.images.keep(image.bytes, image.charge);
    }
}

/// The driver trusts the lengths in an image, so that of a container is checked here.
fn check(image: &[u8]) -> CuResult<()> {
    if let Some(head) = image.first_chunk::<{ FATBIN_HEADER_BYTES as usize }>()
        && head[..4] == FATBIN_MAGIC.to_le_bytes()
    {
        let (_, size) = head.split_at(8);
        let size = size.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        if size.checked_add(FATBIN_HEADER_BYTES).is_none_or(|end| end > image.len() as u64) {
            return Err(CudaError::INVALID_IMAGE);
        }
    }
    Ok(())
}

/// Says what arrived, to be compared with what the guest library says that it sent.
fn log_image(image: &[u8]) {
    if log_enabled!(Level::Debug) {
        debug!("Image of {} bytes, BLAKE3 {}", image.len(), blake3::hash(image));
    }
}

/// Loads a module.
pub fn cuModuleLoadData(cx: &mut CallContext<'_>, module: ModuleId) -> CuResult<()> {
    let image = image(cx)?;
    load_module(cx, module, &image)?;
    keep(cx, image);
    Ok(())
}

/// Loads a module whose image the daemon kept; 0 if it did not.
pub fn module_load_known(
    cx: &mut CallContext<'_>,
    module: ModuleId,
    digest: [u8; DIGEST_BYTES],
    bytes: u64,
) -> CuResult<(u32,)> {
    let Some(image) = known(cx, digest, bytes)? else { return Ok((0,)) };
    load_module(cx, module, &image)?;
    Ok((1,))
}

/// `image` ends with a NUL.
fn load_module(cx: &CallContext<'_>, module: ModuleId, image: &[u8]) -> CuResult<()> {
    let reserved = cx.session.objects.modules.reserve(module.0)?;
    let charged = charge_image(cx, Holder::Module(module.0), image, cx.home())?;
    // SAFETY: the image lives across the call, which copies what it keeps. Its contents are the guest's: what
    // the driver makes of bad ones stays in this process, which is that guest's alone.
    let (raw,) = linked::load(image, |image| unsafe { cx.gpu().cuModuleLoadData(image) })?;
    charged.keep();
    cx.fill(reserved, loaded_module(cx, module, raw))
}

/// Unloads a module, and what came from it.
pub fn cuModuleUnload(cx: &mut CallContext<'_>, module: ModuleId) -> CuResult<()> {
    let objects = &cx.session.objects;
    if !objects.modules.get(module.0)?.is_whole() {
        // It is a view of a library.
        return Err(CudaError::INVALID_HANDLE);
    }
    let object = objects.modules.remove(module.0)?;
    objects.close_parts(&object);
    cx.session.allocations().forget(|range| range.origin == Origin::ModuleGlobal(module.0));
    Object::destroy(object)
}

/// Charges the local memory of a function's threads, which the driver takes at its first launch and keeps: that of the
/// largest function of each context. `ask` asks the driver for the bytes of a thread, on a device.
fn charge_local(cx: &CallContext<'_>, ask: impl FnOnce(i32) -> CuResult<(i32,)>) -> CuResult<()> {
    let (true, Ok((home, device))) = (cx.session.is_limited(), cx.place()) else { return Ok(()) };
    let each = ask(device)?.0.unsigned_abs();
    let (holder, bytes) = (Holder::Local(home), bytes_of_stacks(cx, each.into())?);
    pools::charge(cx.session, |allocations| {
        let before = allocations.quota.held(holder);
        allocations.quota.hold(holder, bytes.max(before), home)
    })
}

/// Names a function of a module.
pub fn cuModuleGetFunction(cx: &mut CallContext<'_>, module: ModuleId, function: FunctionId) -> CuResult<()> {
    let (owner, name) = (cx.session.objects.modules.get(module.0)?, cx.bulk_in.name()?);
    let reserved = cx.session.objects.functions.reserve(function.0)?;
    // SAFETY: the name is NUL-terminated and lives across the call.
    let (raw,) = unsafe { cx.gpu().cuModuleGetFunction(cx.held().keep(owner.clone()), name.as_ptr()) }?;
    charge_local(cx, |_| cx.gpu().cuFuncGetAttribute(LOCAL_SIZE_BYTES, raw))?;
    cx.fill(reserved, Object::new(raw).in_context(cx.home_of()).part_of(owner))
}

/// A variable of a module.
pub fn cuModuleGetGlobal_v2(cx: &mut CallContext<'_>, module: ModuleId) -> CuResult<(DevicePtr, u64, u32)> {
    let (owner, name) = (cx.resolve(module)?, cx.bulk_in.name()?);
    // SAFETY: the name is NUL-terminated and lives across the call.
    let found = unsafe { cx.gpu().cuModuleGetGlobal_v2(owner, name.as_ptr()) }?;
    let (dptr, bytes) = global(cx, found, Origin::ModuleGlobal(module.0))?;
    Ok((dptr, bytes, is_managed(cx, dptr)?.into()))
}

/// Loads a library.
pub fn cuLibraryLoadData(cx: &mut CallContext<'_>, library: LibraryId) -> CuResult<()> {
    let image = image(cx)?;
    load_library(cx, library, &image)?;
    keep(cx, image);
    Ok(())
}

/// Loads a library whose image the daemon kept; 0 if it did not.
pub fn library_load_known(
    cx: &mut CallContext<'_>,
    library: LibraryId,
    digest: [u8; DIGEST_BYTES],
    bytes: u64,
) -> CuResult<(u32,)> {
    let Some(image) = known(cx, digest, bytes)? else { return Ok((0,)) };
    load_library(cx, library, &image)?;
    Ok((1,))
}

/// `image` ends with a NUL.
fn load_library(cx: &CallContext<'_>, library: LibraryId, image: &[u8]) -> CuResult<()> {
    use std::ptr::null_mut as null;
    let reserved = cx.session.objects.libraries.reserve(library.0)?;
    let charged = charge_image(cx, Holder::Library(library.0), image, 0)?;
    // SAFETY: as for cuModuleLoadData; there are no options, so their arrays may be null.
    let load = |code| unsafe { cx.gpu().cuLibraryLoadData(code, null(), null(), 0, null(), null(), 0) };
    let (raw,) = linked::load(image, load)?;
    charged.keep();
    cx.fill(reserved, loaded_library(cx, library, raw))
}

/// Unloads a library, and what came from it.
pub fn cuLibraryUnload(cx: &mut CallContext<'_>, library: LibraryId) -> CuResult<()> {
    let object = cx.session.objects.libraries.remove(library.0)?;
    cx.session.objects.close_parts(&object);
    cx.session.allocations().forget(|range| range.origin == Origin::LibraryGlobal(library.0));
    Object::destroy(object)
}

/// Names a kernel of a library.
pub fn cuLibraryGetKernel(cx: &mut CallContext<'_>, library: LibraryId, kernel: FunctionId) -> CuResult<()> {
    let (owner, name) = (cx.session.objects.libraries.get(library.0)?, cx.bulk_in.name()?);
    let reserved = cx.session.objects.functions.reserve(kernel.0)?;
    // SAFETY: the name is NUL-terminated and lives across the call.
    let (raw,) = unsafe { cx.gpu().cuLibraryGetKernel(cx.held().keep(owner.clone()), name.as_ptr()) }?;
    charge_local(cx, |device| cx.gpu().cuKernelGetAttribute(LOCAL_SIZE_BYTES, raw, device))?;
    cx.fill(reserved, Object::new(raw).of_kind(Kind::Kernel).part_of(owner))
}

/// A variable of a library.
pub fn cuLibraryGetGlobal(cx: &mut CallContext<'_>, library: LibraryId) -> CuResult<(DevicePtr, u64, u32)> {
    let (owner, name) = (cx.resolve(library)?, cx.bulk_in.name()?);
    // SAFETY: the name is NUL-terminated and lives across the call.
    let found = unsafe { cx.gpu().cuLibraryGetGlobal(owner, name.as_ptr()) }?;
    let (dptr, bytes) = global(cx, found, Origin::LibraryGlobal(library.0))?;
    Ok((dptr, bytes, is_managed(cx, dptr)?.into()))
}

/// A managed variable of a library.
pub fn cuLibraryGetManaged(cx: &mut CallContext<'_>, library: LibraryId) -> CuResult<(DevicePtr, u64)> {
    let (owner, name) = (cx.resolve(library)?, cx.bulk_in.name()?);
    // SAFETY: the name is NUL-terminated and lives across the call.
    let found = unsafe { cx.gpu().cuLibraryGetManaged(owner, name.as_ptr()) }?;
    global(cx, found, Origin::LibraryGlobal(library.0))
}

/// Enters a variable into the session's memory.
fn global(cx: &CallContext<'_>, (dptr, bytes): (u64, usize), origin: Origin) -> CuResult<(DevicePtr, u64)> {
    let place = cx.place().unwrap_or((0, 0));
    let mut allocations = cx.session.allocations();
    // Asked for again it stays the same range.
    if allocations.find(dptr).is_none() {
        allocations.insert(dptr, bytes as u64, origin, place);
    }
    Ok((DevicePtr(dptr), bytes as u64))
}

/// Whether a variable's address is one of managed memory.
fn is_managed(cx: &CallContext<'_>, dptr: DevicePtr) -> CuResult<bool> {
    // Room for more than the four bytes that the driver stores.
    let mut managed = 0u64;
    // SAFETY: the attribute is stored in `managed`, which outlives the call.
    unsafe { cx.gpu().cuPointerGetAttribute((&raw mut managed).cast(), POINTER_IS_MANAGED, dptr.0) }?;
    Ok(managed != 0)
}

/// Names the module that a library has in the current context.
pub fn cuLibraryGetModule(cx: &mut CallContext<'_>, library: LibraryId, module: ModuleId) -> CuResult<()> {
    let owner = cx.session.objects.libraries.get(library.0)?;
    let reserved = cx.session.objects.modules.reserve(module.0)?;
    let (raw,) = cx.gpu().cuLibraryGetModule(cx.held().keep(owner.clone()))?;
    cx.fill(reserved, Object::new(raw).in_context(cx.home_of()).part_of(owner))
}

/// Names the function that a kernel has in the current context.
pub fn cuKernelGetFunction(
    cx: &mut CallContext<'_>,
    kernel: FunctionId,
    function: FunctionId,
) -> CuResult<()> {
    let owner = cx.session.objects.functions.get(kernel.0)?;
    if owner.kind() != Kind::Kernel {
        return Err(CudaError::INVALID_HANDLE);
    }
    let reserved = cx.session.objects.functions.reserve(function.0)?;
    let (raw,) = cx.gpu().cuKernelGetFunction(cx.held().keep(owner.clone()))?;
    cx.fill(reserved, Object::new(raw).in_context(cx.home_of()).part_of(owner))
}

/// The layout of a function's parameters.
pub fn function_layout(cx: &mut CallContext<'_>, function: FunctionId) -> CuResult<(u32,)> {
    let object = cx.session.objects.functions.get(function.0)?;
    let kind = object.kind();
    let raw: CUfunction = cx.held().keep(object);
    let parameter = |index| match kind {
        Kind::Kernel => cx.gpu().cuKernelGetParamInfo(raw as _, index),
        Kind::Plain => cx.gpu().cuFuncGetParamInfo(raw, index),
    };
    let mut layout = Vec::new();
    let mut count = 0;
    while count < MAX_PARAMS {
        // The driver says INVALID_VALUE for the index after the last one.
        let (offset, bytes) = match parameter(count) {
            Ok(found) => found,
            Err(CudaError::INVALID_VALUE) => break,
            Err(error) => return Err(error),
        };
        let mut pair = [0; 8];
        let value = ParamLayout { offset: offset as u32, bytes: bytes as u32 };
        value.put(&mut Writer::new(&mut pair)).map_err(|_| CudaError::INVALID_VALUE)?;
        layout.extend_from_slice(&pair);
        count += 1;
    }
    // As much as the guest has room for; the count tells it what it needs.
    let room = cx.bulk_out.room() as usize / 8 * 8;
    layout.truncate(room);
    cx.bulk_out.put(&layout)?;
    Ok((count as u32,))
}
