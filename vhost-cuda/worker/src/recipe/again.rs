// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes the calls that make the objects of a session again, in its own worker, after all of them have ended.
//! [`crate::serve::again`] makes them.
//!
//! Images come from the daemon's cache. They stay mapped from the moment at which the calls are taken, so the daemon is not asked
//! again, and may drop them.

use virtio_cuda_protocol::cuda::{ArrayDescriptor, Opcode, Reader, ResourceDescriptor, Wire};

use super::class::Class;
use super::generators::{MAX_TOTAL, output};
use super::kept::{Bulk, Call, Key, Recipe, lives};
use super::library::finishes_plan;
use super::steps::{Again, Step};
use super::{NO_IMAGE, find, living_obstacle};
use crate::gpu::RawArray;
use crate::memory::allocations::Origin;
use crate::memory::footprint::{Target, variable_names};
use crate::memory::formats::{Shape, WITHOUT_MEMORY};
use crate::state::SessionState;

/// The maximum number of images that are mapped. Bounds the mappings of the process, and the time for which a session waits for the
/// daemon's cache.
const MAX_IMAGES: usize = 4096;

/// `CU_RESOURCE_TYPE_*`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;

/// The highest number of a texture or surface. Bounds the objects that are made and ended again until one gets its number.
pub const MAX_NUMBER: u64 = 4096;

/// The obstacle of code whose contents have no names, or addresses in them.
const UNNAMED: &str = "heaps of device code, and variables that begin with addresses, are not kept";

impl Again {
    /// Takes the calls of the session's recipe, if they make all of it again without losing contents. `target` is the session's device.
    /// Takes the locks of the tables of objects, and waits for the daemon's cache of images.
    ///
    /// Errors: the reason, for people.
    pub fn take(session: &SessionState, target: Target) -> Result<Self, String> {
        let mut state = session.recipe.0.lock();
        let find = |key: &Key| find(session, key);
        state.settle(&find);
        state.look(&find);
        if let Some(obstacle) = state.obstacle.clone().or_else(|| living_obstacle(&state)) {
            return Err(obstacle);
        }
        let lost = state.kept.iter().filter_map(|(key, kept)| lost(session, key, kept.made.as_ref()?));
        if let Some(reason) = lost.min() {
            return Err(reason.to_owned());
        }
        let mut calls = Vec::new();
        for (key, kept) in state.kept.iter().filter(|(key, _)| !stays(key.class)) {
            let ends = !lives(&find, key, &kept.identity);
            calls.extend(kept.made.iter().map(|call| (*key, Call { ends, ..call.clone() })));
            for (call, _) in kept.settings.values() {
                let results = match key.class {
                    Class::Handle { library, kind } if finishes_plan(kept.made.as_ref(), call) => {
                        // The plan that is made again must be this one.
                        let plan = session.vendor.plan(library, kind, key.id);
                        plan.map_err(|error| format!("cudnn: a plan is not known: {error}"))?.into()
                    }
                    _ => call.results.clone(),
                };
                calls.push((*key, Call { results, ..call.clone() }));
            }
        }
        drop(state);
        let numbers = calls.iter().map(|(_, call)| match &call.bulk {
            Bulk::Bytes(block) => output(&call.arguments, block).map_or(0, |(_, bytes)| bytes),
            Bulk::Image(_) => 0,
        });
        if numbers.sum::<u64>() > MAX_TOTAL {
            return Err("curand: generators have given too many numbers".to_owned());
        }
        calls.sort_by_key(|(_, call)| call.number);
        // One that sets several things is made once.
        calls.dedup_by_key(|(_, call)| call.number);
        Self::of(session, target, calls)
    }

    /// Prepares these calls, with the things that each makes or sets. Waits for the daemon's cache of images.
    ///
    /// Errors: the reason, for people.
    pub fn of(session: &SessionState, target: Target, calls: Vec<(Key, Call)>) -> Result<Self, String> {
        if calls.iter().filter(|(_, call)| matches!(call.bulk, Bulk::Image(_))).count() > MAX_IMAGES {
            return Err(format!("it has more than {MAX_IMAGES} images of device code"));
        }
        let calls = textures_in_order(calls);
        // Two sessions that have events of each other wait for each other's: all of its own are there by then.
        let (opens, mut calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|(_, call)| call.opcode == Opcode::cuIpcOpenEventHandle);
        calls.extend(opens);
        let steps = calls.into_iter().map(|(key, call)| step(session, target, key, call));
        steps.collect::<Result<_, _>>().map(Self)
    }
}

/// Puts textures and surfaces behind contexts and arrays, ordered by their numbers: the driver gives the lowest one that is free.
fn textures_in_order(calls: Vec<(Key, Call)>) -> Vec<(Key, Call)> {
    let has_number = |(key, _): &(Key, Call)| matches!(key.class, Class::Texture | Class::Surface);
    let (mut textures, mut others): (Vec<_>, Vec<_>) = calls.into_iter().partition(has_number);
    textures.sort_by_key(|(key, call)| (call.context.0, key.id));
    let is_before =
        |(key, _): &(Key, Call)| matches!(key.class, Class::Context | Class::Array | Class::Mipmap);
    let at = others.iter().rposition(is_before).map_or(0, |last| last + 1);
    others.splice(at..at, textures);
    others
}

/// Returns whether settings of this class outlive the driver's objects.
pub fn stays(class: Class) -> bool {
    matches!(class, Class::Session | Class::Thread)
}

/// Returns the reason if the call that has made an object does not make it again with its contents.
fn lost(session: &SessionState, key: &Key, made: &Call) -> Option<&'static str> {
    match key.class {
        Class::Array | Class::Mipmap => lost_of_array(made),
        Class::Texture | Class::Surface => {
            if key.id > MAX_NUMBER {
                return Some("textures and surfaces with numbers above 4096 are not made again");
            }
            let resource = ResourceDescriptor::take(&mut Reader::new(&made.arguments)).ok()?;
            let lives = match resource.kind {
                ARRAY => session.objects.arrays.get(resource.object).is_ok(),
                MIPMAPPED_ARRAY => session.objects.mipmaps.get(resource.object).is_ok(),
                // Its addresses stay reserved while the memory is away.
                _ => match session.allocations().find(resource.dptr).map(|range| range.origin) {
                    Some(Origin::Allocated | Origin::Mapped) => true,
                    Some(_) => return Some("textures of memory that does not move are not made again"),
                    None => false,
                },
            };
            (!lives).then_some("a texture or surface has outlived its memory")
        }
        Class::TextureReference | Class::SurfaceReference => {
            Some("references to textures and surfaces are not made again")
        }
        Class::Description => Some("green contexts are not made again"),
        _ => None,
    }
}

/// Returns the reason if the contents of an array cannot be copied.
fn lost_of_array(made: &Call) -> Option<&'static str> {
    let mut arguments = Reader::new(&made.arguments);
    match made.opcode {
        Opcode::cuArray3DCreate_v2 | Opcode::cuMipmappedArrayCreate => {
            let description = u64::take(&mut arguments).and_then(|_| ArrayDescriptor::take(&mut arguments));
            let description = RawArray::from(&description.ok()?);
            if description.flags & WITHOUT_MEMORY != 0 {
                return Some("arrays whose memory is mapped later are not kept");
            }
            Shape::of(&description).err().map(|_| "arrays of this format are not kept")
        }
        // A part of another one.
        Opcode::cuMipmappedArrayGetLevel => None,
        _ => Some("contents of arrays are not kept"),
    }
}

fn step(session: &SessionState, target: Target, key: Key, call: Call) -> Result<Step, String> {
    let image = match &call.bulk {
        Bulk::Bytes(_) => None,
        Bulk::Image(known) => {
            let digest = known.digest.get().ok_or_else(|| NO_IMAGE.to_owned())?;
            Some(session.images.find(*digest, known.bytes).ok_or_else(|| NO_IMAGE.to_owned())?)
        }
    };
    let is_code = matches!(key.class, Class::Module | Class::Library);
    let bytes = match (&image, &call.bulk) {
        (Some(image), _) => &image[..],
        (None, Bulk::Bytes(bytes)) => bytes,
        (None, Bulk::Image(_)) => &[],
    };
    let mut variables = match is_code && !bytes.is_empty() {
        true => variable_names(bytes, target).ok_or_else(|| UNNAMED.to_owned())?,
        false => Vec::new(),
    };
    if key.class == Class::Library {
        // Also constants that a copy has changed.
        variables.extend(session.variables.names_of(key.id));
        variables.sort_unstable();
        variables.dedup();
    }
    Ok(Step { call, key, image, variables })
}

/// Empties a recipe of all that ends with the driver's objects.
pub fn restart(recipe: &Recipe) {
    recipe.0.lock().restart(|key| stays(key.class));
}
