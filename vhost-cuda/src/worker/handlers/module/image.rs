// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of modules and libraries: checked, charged and loaded, for `load` rows.

use std::ops::Deref;

use log::{Level, debug, log_enabled};
use virtio_cuda_protocol::cuda::{LibraryId, MIN_KNOWN_IMAGE_BYTES, ModuleId};

use crate::cache::DIGEST_BYTES;
use crate::worker::call::CallContext;
use crate::worker::footprint::{self, Target};
use crate::worker::gpu::{CUlibrary, CUmodule, CuResult, CudaError};
use crate::worker::handlers::module::linked;
use crate::worker::host_memory::CopyCharge;
use crate::worker::images::Mapped;
use crate::worker::objects::Object;
use crate::worker::pools;
use crate::worker::quota::{self, Holder};
use crate::worker::state::SessionState;

/// First word of a fat binary container, and its bytes before the entries.
const FATBIN_MAGIC: u32 = 0xBA55_ED50;
const FATBIN_HEADER_BYTES: u64 = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;

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

/// The charge for an image, given back when dropped unless it is kept.
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
    let device = match cx.owner() {
        Ok(home) => home.device,
        // Libraries belong to no context.
        Err(_) => cx.session.device(0)?,
    };
    architecture_of(cx, device)
}

fn architecture_of(cx: &CallContext<'_>, device: i32) -> CuResult<u32> {
    let number = |attribute| Ok(cx.gpu().cuDeviceGetAttribute(attribute, device)?.0.unsigned_abs());
    Ok(number(COMPUTE_CAPABILITY_MAJOR)? * 10 + number(COMPUTE_CAPABILITY_MINOR)?)
}

/// The kinds of devices of the session.
fn targets(cx: &CallContext<'_>) -> CuResult<Vec<Target>> {
    let mut architectures = (0..cx.session.devices.len() as u32)
        .map(|ordinal| architecture_of(cx, cx.session.device(ordinal)?))
        .collect::<CuResult<Vec<_>>>()?;
    architectures.sort_unstable();
    architectures.dedup();
    let ptx_only = cx.session.emulated;
    Ok(architectures.into_iter().map(|architecture| Target { architecture, ptx_only }).collect())
}

/// The image that the daemon kept, with its NUL, if it has it.
fn known(cx: &CallContext<'_>, digest: [u8; DIGEST_BYTES], bytes: u64) -> CuResult<Option<Mapped>> {
    let Some(image) = cx.session.images.find(digest, bytes) else { return Ok(None) };
    // It was checked when it was received, but in another worker, which may have been spoilt.
    check(&image[..image.len() - 1])?;
    log_image(&image[..image.len() - 1]);
    Ok(Some(image))
}

/// Has an image read that has just been loaded, and then passed to `then`.
pub(super) fn read<I: Deref<Target = [u8]> + Send + 'static>(
    cx: &CallContext<'_>,
    image: I,
    then: impl FnOnce(I) + Send + 'static,
) {
    cx.session.code.read(image, targets(cx).unwrap_or_default(), then);
}

/// Has the daemon keep an image.
fn keep(session: &SessionState, mut image: Image) {
    image.bytes.pop();
    if image.len() as u64 >= MIN_KNOWN_IMAGE_BYTES {
        session.images.keep(image.bytes, image.charge);
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

/// Names of what images are loaded as.
pub trait Load: Copy {
    /// Loads `image`, which ends with a NUL, under this name.
    fn load(self, cx: &CallContext<'_>, image: &[u8]) -> CuResult<()>;
}

/// Loads the image that came with the call.
pub fn load(cx: &CallContext<'_>, name: impl Load) -> CuResult<()> {
    let image = image(cx)?;
    name.load(cx, &image)?;
    let session = cx.session;
    read(cx, image, |image| keep(session, image));
    Ok(())
}

/// Loads an image that the daemon kept; 0 if it did not.
pub fn load_known(
    cx: &CallContext<'_>,
    name: impl Load,
    digest: [u8; DIGEST_BYTES],
    bytes: u64,
) -> CuResult<(u32,)> {
    let Some(image) = known(cx, digest, bytes)? else { return Ok((0,)) };
    name.load(cx, &image)?;
    read(cx, image, drop);
    Ok((1,))
}

impl Load for ModuleId {
    fn load(self, cx: &CallContext<'_>, image: &[u8]) -> CuResult<()> {
        let reserved = cx.session.objects.modules.reserve(self.0)?;
        let charged = charge_image(cx, Holder::Module(self.0), image, cx.home())?;
        // SAFETY: the image lives across the call, which copies what it keeps. Its contents are the guest's: what
        // the driver makes of bad ones stays in this process, which is that guest's alone.
        let (raw,) = linked::load(image, |image| unsafe { cx.gpu().cuModuleLoadData(image) })?;
        charged.keep();
        cx.fill(reserved, loaded_module(cx, self, raw))
    }
}

impl Load for LibraryId {
    fn load(self, cx: &CallContext<'_>, image: &[u8]) -> CuResult<()> {
        use std::ptr::null_mut as null;
        let reserved = cx.session.objects.libraries.reserve(self.0)?;
        let charged = charge_image(cx, Holder::Library(self.0), image, 0)?;
        // SAFETY: the image lives across the call, which copies what it keeps; bad contents stay in this process, which is that
        // guest's alone. There are no options, so their arrays may be null.
        let load = |code| unsafe { cx.gpu().cuLibraryLoadData(code, null(), null(), 0, null(), null(), 0) };
        let (raw,) = linked::load(image, load)?;
        charged.keep();
        cx.fill(reserved, loaded_library(cx, self, raw))
    }
}
