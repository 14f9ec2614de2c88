// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of a recipe that goes to another worker, as bytes. What comes from there makes nothing that a recipe does not make: the thing that
//! a call makes or sets follows from its row here.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use vhost_cuda_common::images::DIGEST_BYTES;
use virtio_cuda_protocol::cuda::{ContextId, Opcode};
use zerocopy::{FromBytes, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::again::stays;
use super::class::{Class, Identity};
use super::kept::{Bulk, Call, Key, MAX_BYTES};
use super::rule::{Rule, Subject};
use super::{MAX_BULK, find, library, rule};
use crate::gpu::CuResult;
use crate::objects::images::KnownImage;
use crate::state::SessionState;

/// The head of a call. Its arguments, its results, and its bulk input or the digest of its image follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    opcode: u32,
    thread: u32,
    context: u64,
    arguments: u32,
    results: u32,
    /// The bytes of the bulk input, or of the image.
    bulk: u64,
    /// [`IMAGE`], [`ENDS`].
    flags: u64,
}

/// [`Head::flags`]: the bulk input is an image.
const IMAGE: u64 = 1;
/// [`Head::flags`]: [`Call::ends`].
const ENDS: u64 = 2;

/// Returns a call as bytes. `None` for an image whose digest is not known.
pub fn bytes_of(call: &Call) -> Option<Vec<u8>> {
    let (bulk, bytes, flags) = match &call.bulk {
        Bulk::Bytes(bytes) => (&bytes[..], bytes.len() as u64, 0),
        Bulk::Image(image) => (&image.digest.get()?[..], image.bytes, IMAGE),
    };
    let head = Head {
        opcode: call.opcode as u32,
        thread: call.thread,
        context: call.context.0,
        arguments: call.arguments.len() as u32,
        results: call.results.len() as u32,
        bulk: bytes,
        flags: flags | if call.ends { ENDS } else { 0 },
    };
    Some([head.as_bytes(), &call.arguments, &call.results, bulk].concat())
}

/// Reads a call, and the thing that it makes or sets. `None` for one that no recipe has.
pub fn call_of(bytes: &[u8]) -> Option<(Key, Call)> {
    let call = read(bytes)?;
    let key = key_of(&call)?;
    let is_code = matches!(key.class, Class::Module | Class::Library);
    (is_code || matches!(call.bulk, Bulk::Bytes(_))).then_some((key, call))
}

/// Reads any call.
pub fn read(bytes: &[u8]) -> Option<Call> {
    let (head, rest) = Head::read_from_prefix(bytes).ok()?;
    let (arguments, rest) = rest.split_at_checked(head.arguments as usize)?;
    let (results, bulk) = rest.split_at_checked(head.results as usize)?;
    let bulk = match head.flags & !ENDS {
        0 if head.bulk <= MAX_BULK && bulk.len() as u64 == head.bulk => Bulk::Bytes(bulk.into()),
        IMAGE => {
            let digest: [u8; DIGEST_BYTES] = bulk.try_into().ok()?;
            Bulk::Image(KnownImage { digest: Arc::new(OnceLock::from(digest)), bytes: head.bulk })
        }
        _ => return None,
    };
    Some(Call {
        number: 0,
        opcode: Opcode::from_u32(head.opcode)?,
        thread: head.thread,
        context: ContextId(head.context),
        arguments: SmallVec::from_slice(arguments),
        results: results.into(),
        bulk,
        ends: head.flags & ENDS != 0,
    })
}

/// Returns the thing that a call makes or sets, as its row says.
fn key_of(call: &Call) -> Option<Key> {
    let rule = rule(call.opcode)?;
    let of_library;
    let (rule, named) = match (rule, &call.bulk) {
        (Rule::OfLibrary, Bulk::Bytes(block)) => {
            let (rows, function) = library::called(&call.arguments)?;
            of_library = library::rule(rows, function)?;
            (&of_library, &block[..])
        }
        _ => (rule, &call.arguments[..]),
    };
    let (class, id) = match rule {
        Rule::Fills { .. } => *library::handles_in(&call.arguments, named).first()?,
        Rule::Makes(place) | Rule::Sets { subject: Subject::Named(place), .. } => {
            (place.class, place.name(named, &call.results)?)
        }
        Rule::Sets { subject: Subject::Context, .. } => (Class::Context, call.context.0),
        Rule::Sets { subject: Subject::Thread, .. } => (Class::Thread, call.thread.into()),
        Rule::Sets { subject: Subject::Session, .. } => (Class::Session, 0),
        Rule::Changes(_) | Rule::Never(_) | Rule::ThreadEnds | Rule::OfLibrary => return None,
    };
    class.is_kept().then(|| Key::new(class, id, call.context))
}

/// The calls of a recipe that come from another worker.
#[derive(Debug, Default)]
pub struct Calls {
    all: Vec<(Key, Call)>,
    bytes: usize,
}

impl Calls {
    /// Adds a call. Returns false for one that no recipe has, and when all are longer than a recipe may be.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        let Some((key, call)) = call_of(bytes) else { return false };
        self.bytes += call.bytes();
        let fits = self.bytes <= MAX_BYTES && !stays(key.class);
        self.all.push((key, call));
        fits
    }

    /// Returns them in their order.
    pub fn all(self) -> Vec<(Key, Call)> {
        self.all
    }
}

/// Returns the calls whose settings outlive the driver's objects.
///
/// Errors: the reason if one of these is no setting that [`restore_setting`] sets.
pub fn settings(session: &SessionState) -> Result<Vec<Call>, String> {
    let state = session.recipe.0.lock();
    let kept = state.kept.iter().filter(|(key, _)| stays(key.class));
    let mut calls: Vec<Call> = kept.flat_map(|(_, kept)| kept.calls().cloned()).collect();
    drop(state);
    calls.sort_by_key(|call| call.number);
    match calls.iter().find(|call| !is_restored(call.opcode)) {
        Some(call) => Err(format!("{} has been called", call.opcode.name())),
        None => Ok(calls),
    }
}

fn is_restored(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::cuThreadExchangeStreamCaptureMode | Opcode::vendor_environment)
}

/// Sets a setting of another worker that outlives the driver's objects, and takes it into the recipe. The mode of captures of a thread is set by
/// its executor ([`capture_mode`]).
///
/// Errors: `CUDA_ERROR_INVALID_VALUE`.
pub fn restore_setting(session: &SessionState, bytes: &[u8]) -> CuResult<()> {
    let invalid = crate::gpu::CudaError::INVALID_VALUE;
    let (key, call) = call_of(bytes).filter(|(_, call)| is_restored(call.opcode)).ok_or(invalid)?;
    if let (Opcode::vendor_environment, Bulk::Bytes(record)) = (call.opcode, &call.bulk) {
        session.vendor.set_variables(record)?;
    }
    let Some(Rule::Sets { setting, parts, .. }) = rule(call.opcode) else { return Err(invalid) };
    let parts = parts.iter().filter_map(|part| call.arguments.get(part.clone())).flatten().copied();
    let setting = (*setting, parts.collect());
    let find = |key: &Key| find(session, key);
    session.recipe.0.lock().set(&find, (key, Identity::Name), setting, call, Vec::new());
    Ok(())
}

/// Returns the mode of captures that a guest thread has set for itself.
pub fn capture_mode(session: &SessionState, thread: u32) -> Option<i32> {
    let state = session.recipe.0.lock();
    let kept = state.kept.get(&Key::new(Class::Thread, thread.into(), ContextId(0)))?;
    let last = kept.calls().max_by_key(|call| call.number)?;
    last.arguments.first_chunk().map(|mode| i32::from_le_bytes(*mode))
}
