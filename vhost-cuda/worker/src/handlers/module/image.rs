// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks, charges and loads images of modules and libraries, for `load` rows.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use cuda_fatbin::{CONTAINER_MAGIC, WRAPPER_MAGIC};
use log::{Level, debug, log_enabled};
use vhost_cuda_common::images::DIGEST_BYTES;
use virtio_cuda_protocol::cuda::{LibraryId, MIN_KNOWN_IMAGE_BYTES, ModuleId};

use crate::call::CallContext;
use crate::copy_charge::CopyCharge;
use crate::gpu::{CUlibrary, CUmodule, CuResult, CudaError};
use crate::handlers::module::compiling::compiled;
use crate::handlers::module::linked;
use crate::memory::footprint::{self, Target};
use crate::memory::pools;
use crate::memory::quota::{self, Holder};
use crate::objects::Object;
use crate::objects::images::{KnownImage, Mapped};
use crate::state::SessionState;

/// The first word of a fat binary container, and the size of its header in bytes.
const FATBIN_MAGIC: u32 = CONTAINER_MAGIC;
const FATBIN_HEADER_BYTES: u64 = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;

/// An image that came with a call, terminated by a NUL in case it is text.
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

/// Returns the image that came with the call.
pub(super) fn image(cx: &CallContext<'_>) -> CuResult<Image> {
    let (mut bytes, charge) = cx.bulk_in.contents()?.into_owned();
    check(&bytes)?;
    log_image(&bytes);
    bytes.push(0);
    Ok(Image { bytes, charge })
}

/// The charge for an image. It is released when dropped, unless it is kept.
pub(super) struct Charged<'a> {
    session: &'a SessionState,
    holder: Option<Holder>,
    context: u64,
    /// Bytes of the device in each context.
    bytes: u64,
}

impl Charged<'_> {
    /// Keeps the charge, because the image is loaded. `own` is what the driver says of the image's variables, if it says anything:
    /// if they take more than the image showed, that is charged, too.
    pub(super) fn keep(mut self, own: Option<u64>) -> CuResult<()> {
        let own = quota::rounded(own.unwrap_or(0));
        if let Some(holder) = self.holder
            && self.session.is_limited()
            && own > self.bytes
        {
            hold(self.session, holder, own, self.context)?;
        }
        self.holder = None;
        Ok(())
    }
}

/// Charges the device memory of an image. A library is loaded into every context.
fn hold(session: &SessionState, holder: Holder, bytes: u64, context: u64) -> CuResult<()> {
    pools::charge(session, |allocations| {
        let contexts = match holder {
            Holder::Library(_) => allocations.quota.contexts(),
            _ => 1,
        };
        allocations.quota.hold(holder, bytes.saturating_mul(contexts), context)
    })
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        if let Some(holder) = self.holder {
            unloaded(self.session, holder);
        }
    }
}

/// Charges an image, including its NUL, that is about to be loaded. The charge covers the host's memory and, under a
/// limit, the device memory that it takes.
pub(super) fn charge_image<'a>(
    cx: &CallContext<'a>,
    holder: Holder,
    image: &[u8],
    context: u64,
) -> CuResult<Charged<'a>> {
    let session = cx.session;
    session.host_memory.loaded(holder, image.len(), context)?;
    let mut charged = Charged { session, holder: Some(holder), context, bytes: 0 };
    if session.is_limited() {
        let target = Target { architecture: architecture(cx)?, ptx_only: session.emulated };
        charged.bytes = quota::rounded(footprint::device_bytes(image, target)?);
        hold(session, holder, charged.bytes, context)?;
    }
    Ok(charged)
}

/// Keeps the charge of a module that was loaded, or unloads it.
pub(super) fn keep_module(cx: &CallContext<'_>, charged: Charged<'_>, raw: CUmodule) -> CuResult<()> {
    charged.keep(cx.gpu().module_bytes(raw)).inspect_err(|_| {
        let _ = cx.gpu().cuModuleUnload(raw);
    })
}

fn unloaded(session: &SessionState, holder: Holder) {
    session.host_memory.unloaded(holder);
    session.allocations().quota.let_go(holder);
}

/// Returns a module that is charged by its name. The name is free again when the driver has unloaded the module.
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

/// As [`loaded_module`], for a library, which belongs to no context.
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

/// Returns the compute capability of the current context's device, times ten.
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

/// Returns the targets of the session's devices.
fn targets(cx: &CallContext<'_>) -> CuResult<Vec<Target>> {
    let mut architectures = (0..cx.session.devices.len() as u32)
        .map(|ordinal| architecture_of(cx, cx.session.device(ordinal)?))
        .collect::<CuResult<Vec<_>>>()?;
    architectures.sort_unstable();
    architectures.dedup();
    let ptx_only = cx.session.emulated;
    Ok(architectures.into_iter().map(|architecture| Target { architecture, ptx_only }).collect())
}

/// Returns the image that the daemon has cached, with its NUL, if it has it.
fn known(cx: &CallContext<'_>, digest: [u8; DIGEST_BYTES], bytes: u64) -> CuResult<Option<Mapped>> {
    let Some(image) = cx.session.images.find(digest, bytes) else { return Ok(None) };
    // It was checked when it was received, but by another worker, which may have been compromised.
    check(&image[..image.len() - 1])?;
    log_image(&image[..image.len() - 1]);
    Ok(Some(image))
}

/// Reads the code of an image that has just been loaded, and then passes the image to `then`.
pub(super) fn read<I: Deref<Target = [u8]> + Send + 'static>(
    cx: &CallContext<'_>,
    image: I,
    then: impl FnOnce(I) + Send + 'static,
) {
    cx.session.code.read(image, targets(cx).unwrap_or_default(), then);
}

/// Reads the code of an image that the call has loaded, and passes the image to the daemon's cache if it is long enough.
pub(super) fn read_and_keep(cx: &CallContext<'_>, image: Image) {
    // Without the NUL.
    let bytes = image.len() as u64 - 1;
    if bytes < MIN_KNOWN_IMAGE_BYTES {
        return read(cx, image, drop);
    }
    let (images, digest) = (cx.session.images.clone(), Arc::<OnceLock<_>>::default());
    *cx.thread.image.borrow_mut() = Some(KnownImage { digest: digest.clone(), bytes });
    read(cx, image, move |mut image| {
        image.bytes.pop();
        images.keep(image.bytes, image.charge, digest);
    });
}

/// Checks the length of a container, because the driver trusts the lengths in an image. It would also follow the addresses of
/// containers that a wrapper has; the guest's library sends what they point to.
pub(super) fn check(image: &[u8]) -> CuResult<()> {
    if image.starts_with(&WRAPPER_MAGIC.to_le_bytes()) {
        return Err(CudaError::INVALID_IMAGE);
    }
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

/// Logs the received image, for comparison with the guest library's log of the sent one.
fn log_image(image: &[u8]) {
    if log_enabled!(Level::Debug) {
        debug!("Image of {} bytes, BLAKE3 {}", image.len(), blake3::hash(image));
    }
}

/// Names of objects that images are loaded as.
pub trait Load: Copy {
    /// Loads `image`, which ends with a NUL, under this name.
    fn load(self, cx: &CallContext<'_>, image: &[u8]) -> CuResult<()>;
}

/// Loads the image that came with the call.
pub fn load(cx: &CallContext<'_>, name: impl Load) -> CuResult<()> {
    let image = image(cx)?;
    name.load(cx, &image)?;
    read_and_keep(cx, image);
    Ok(())
}

/// Loads an image that the daemon has cached. Returns 0 if it has not.
pub fn load_known(
    cx: &CallContext<'_>,
    name: impl Load,
    digest: [u8; DIGEST_BYTES],
    bytes: u64,
) -> CuResult<(u32,)> {
    let Some(image) = known(cx, digest, bytes)? else { return Ok((0,)) };
    name.load(cx, &image)?;
    *cx.thread.image.borrow_mut() = Some(KnownImage { digest: Arc::new(digest.into()), bytes });
    read(cx, image, drop);
    Ok((1,))
}

impl Load for ModuleId {
    fn load(self, cx: &CallContext<'_>, image: &[u8]) -> CuResult<()> {
        let reserved = cx.session.objects.modules.reserve(self.0)?;
        let charged = charge_image(cx, Holder::Module(self.0), image, cx.home())?;
        // SAFETY: the image lives across the call, which copies the parts that it keeps. The guest controls its
        // contents: the effect of bad ones stays in this process, which serves that guest alone.
        let load = |image| unsafe { cx.gpu().cuModuleLoadData(image) };
        let (raw,) = compiled(|| linked::load(image, load))?;
        keep_module(cx, charged, raw)?;
        cx.fill(reserved, loaded_module(cx, self, raw))
    }
}

impl Load for LibraryId {
    fn load(self, cx: &CallContext<'_>, image: &[u8]) -> CuResult<()> {
        use std::ptr::null_mut as null;
        let reserved = cx.session.objects.libraries.reserve(self.0)?;
        let charged = charge_image(cx, Holder::Library(self.0), image, 0)?;
        // SAFETY: the image lives across the call, which copies the parts that it keeps; the effect of bad contents
        // stays in this process, which serves that guest alone. There are no options, so their arrays may be null.
        let load = |code| unsafe { cx.gpu().cuLibraryLoadData(code, null(), null(), 0, null(), null(), 0) };
        let (raw,) = compiled(|| linked::load(image, load))?;
        charged.keep(cx.gpu().library_bytes(raw)).inspect_err(|_| {
            let _ = cx.gpu().cuLibraryUnload(raw);
        })?;
        cx.fill(reserved, loaded_library(cx, self, raw))
    }
}
