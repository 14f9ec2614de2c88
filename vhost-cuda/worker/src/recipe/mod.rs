// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recipe of a session: the calls that made the objects that live, and those that changed the settings that still hold, in
//! their order. Made again in this order, they give the same objects the same names.
//!
//! What a call does to the recipe follows from its row ([`rule`]). Ends are not followed: an object counts as long as its table
//! has it, so objects that end with others need no rules, and threads that make and end objects at once leave nothing wrong.
//! Calls for objects that have ended stay until the recipe has grown to twice its length.
//!
//! Memory is not in it: the tables of memory have all that is needed ([`crate::memory`]).

pub mod again;
pub mod captured;
mod class;
pub mod generators;
pub mod kept;
pub mod left;
pub mod library;
mod rule;
pub mod steps;
pub mod variables;

use smallvec::SmallVec;
use vhost_cuda_common::recipes::Description;
use virtio_cuda_protocol::cuda::{ContextId, FIRST_HANDLE, GraphId, GraphNodeId, Opcode};

pub use self::class::Class;
use self::class::Identity;
use self::generators::Step;
use self::kept::{Bulk, Call, Kept, Key, Recipe, State};
use self::rule::{Place, Subject};
pub use self::rule::{Rule, rule};
use crate::call::CallContext;
use crate::memory::bulk::BulkIn;
use crate::objects::Table;
use crate::objects::images::KnownImage;
use crate::state::SessionState;

/// The maximum bulk input that is kept as it is, in bytes. Longer images are kept by their digest.
const MAX_BULK: u64 = 64 << 10;
/// The obstacle of a session whose images the daemon does not keep, or not yet.
const NO_IMAGE: &str = "an image of device code is not in the daemon's cache (--image-cache)";
/// The thread's own default stream.
const PER_THREAD: u64 = 2;

/// Takes a call that has succeeded. It must not hold any lock.
pub fn note(rule: &Rule, opcode: Opcode, cx: &CallContext<'_>, arguments: &[u8], results: &[u8]) {
    if let Rule::OfLibrary = rule {
        // The call succeeds also if its answer is the library's error.
        if !cx.thread.library_failed
            && let Some((rows, function)) = library::called(arguments)
            && let Some(rule) = library::rule(rows, function)
        {
            // Its names are in the block.
            note_call(&rule, opcode, cx, arguments, results, true);
        }
        return;
    }
    note_call(rule, opcode, cx, arguments, results, false);
}

/// As [`note`]. The names are in the bulk input if `in_block`, else in the arguments.
fn note_call(
    rule: &Rule,
    opcode: Opcode,
    cx: &CallContext<'_>,
    arguments: &[u8],
    results: &[u8],
    in_block: bool,
) {
    let image = cx.thread.image.take();
    let session = cx.session;
    let recipe = &session.recipe;
    let find = |key: &Key| find(session, key);
    // Taken once, so that the names are those of the call that is kept.
    let block = match rule {
        Rule::Makes(_) | Rule::Sets { .. } | Rule::Fills { .. } if in_block => {
            match bulk(&cx.bulk_in, None) {
                Some(Bulk::Bytes(block)) => Some(block),
                _ => return never(recipe, opcode, "its input is too long", arguments),
            }
        }
        _ => None,
    };
    let named = block.as_deref().unwrap_or(arguments);
    let bulk = || match &block {
        Some(block) => Some(Bulk::Bytes(block.clone())),
        None => bulk(&cx.bulk_in, image.clone()),
    };
    let call = |bulk| Call {
        number: 0,
        opcode,
        thread: cx.thread.number,
        context: cx.context,
        arguments: match in_block {
            true => library::again(arguments, named),
            false => arguments.into(),
        },
        results: results.into(),
        bulk,
        ends: false,
    };
    // `None` if one of these has ended.
    let named_by = |places: &[Place]| -> Option<Vec<(Key, Identity)>> {
        let mut found = Vec::new();
        for place in places {
            let id = place.name(named, results)?;
            // A handle may be null.
            if id != 0 || !matches!(place.class, Class::Handle { .. }) {
                let key = Key::new(place.class, id, cx.context);
                found.push((key, find(&key)?));
            }
        }
        Some(found)
    };
    match rule {
        Rule::Never(reason) => never(recipe, opcode, reason, arguments),
        Rule::OfLibrary => {}
        Rule::Changes(place) => {
            let Some(id) = place.name(named, results) else { return };
            match place.class {
                Class::Node => session.graphs.node_changed(GraphNodeId(id)),
                _ => session.graphs.changed(GraphId(id)),
            }
        }
        Rule::ThreadEnds => {
            let mut state = recipe.0.lock();
            state.remove(&Key::new(Class::Thread, cx.thread.number.into(), cx.context));
        }
        Rule::Makes(place) => {
            let Some(id) = place.name(named, results) else { return };
            let key = Key::new(place.class, id, cx.context);
            // An object that has ended already needs no call.
            let Some(identity) = find(&key) else { return };
            let Some(bulk) = bulk() else {
                return never(recipe, opcode, "its input is too long", arguments);
            };
            let call = place.class.is_kept().then(|| call(bulk));
            recipe.0.lock().made(&find, key, identity, call);
        }
        Rule::Sets { subject, setting, parts, uses } => {
            let (class, id) = match subject {
                Subject::Named(place) => (place.class, place.name(named, results)),
                Subject::Context => (Class::Context, Some(cx.context.0)),
                Subject::Thread => (Class::Thread, Some(cx.thread.number.into())),
                Subject::Session => (Class::Session, Some(0)),
            };
            let Some(id) = id else { return };
            if class == Class::Stream && id == PER_THREAD {
                return never(recipe, opcode, "default streams of threads are not followed", arguments);
            }
            let key = Key::new(class, id, cx.context);
            let in_arrays = block.as_deref().map(|block| library::handles_in(arguments, block));
            let (Some(identity), Some(mut uses)) = (find(&key), named_by(uses)) else { return };
            for (class, id) in in_arrays.into_iter().flatten() {
                let key = Key::new(class, id, cx.context);
                let Some(identity) = find(&key) else { return };
                uses.push((key, identity));
            }
            let Some(bulk) = bulk() else {
                return never(recipe, opcode, "its input is too long", arguments);
            };
            let mut parts: SmallVec<_> =
                parts.iter().filter_map(|part| named.get(part.clone())).flatten().copied().collect();
            if in_block && let Some(step) = generator_step(arguments) {
                let output = generators::output(arguments, named).map_or(0, |(_, bytes)| bytes);
                let mut state = recipe.0.lock();
                let reason = if step == Step::Given && session.graphs.is_capturing() {
                    Some("random numbers in captures are not followed")
                } else if state.settings(&key) >= generators::MAX_CALLS || output > generators::MAX_BYTES {
                    Some("a generator has given too many numbers")
                } else {
                    None
                };
                if step == Step::Position {
                    state.forget(&key, |call| generator_step(&call.arguments) == Some(Step::Given));
                }
                // All of them are made again, in their order.
                parts = SmallVec::from_slice(&state.next.to_le_bytes());
                drop(state);
                if let Some(reason) = reason {
                    return never(recipe, opcode, reason, arguments);
                }
            }
            recipe.0.lock().set(&find, (key, identity), (*setting, parts), call(bulk), uses);
        }
        Rule::Fills { setting, parts, uses } => {
            let (Some(block), Some(mut uses)) = (&block, named_by(uses)) else { return };
            let filled: Vec<_> = library::handles_in(arguments, block)
                .into_iter()
                .filter_map(|(class, id)| {
                    let key = Key::new(class, id, cx.context);
                    Some((key, find(&key)?))
                })
                .collect();
            // The call is made again with all of them, so each needs the others.
            uses.extend(filled.iter().cloned());
            let parts: SmallVec<_> =
                parts.iter().filter_map(|part| named.get(part.clone())).flatten().copied().collect();
            let mut number = 0;
            for of in filled {
                let call = Call { number, ..call(Bulk::Bytes(block.clone())) };
                let setting = (*setting, parts.clone());
                number = recipe.0.lock().set(&find, of, setting, call, uses.clone());
            }
        }
    }
}

/// Returns the effect of a call of a library on the numbers of a generator.
fn generator_step(arguments: &[u8]) -> Option<Step> {
    library::called(arguments).and_then(|(library, function)| generators::step(library, function))
}

/// Notes that the session cannot be made again.
fn never(recipe: &Recipe, opcode: Opcode, reason: &str, arguments: &[u8]) {
    let mut state = recipe.0.lock();
    if state.obstacle.is_none() {
        state.obstacle = Some(format!("{}: {reason}", named(opcode, arguments)));
    }
}

/// Describes the recipe. Takes the locks of the tables of objects.
pub fn describe(session: &SessionState) -> Description {
    let mut state = session.recipe.0.lock();
    let find = |key: &Key| find(session, key);
    state.settle(&find);
    state.look(&find);
    let calls = state.kept.values().map(|kept| kept.calls().count()).sum::<usize>();
    let of_calls = state.kept.values().flat_map(Kept::calls).filter_map(|call| match &call.bulk {
        Bulk::Image(image) => Some(image.clone()),
        Bulk::Bytes(_) => None,
    });
    let images: Vec<_> = of_calls.collect();
    let obstacle = state.obstacle.clone().or_else(|| living_obstacle(&state));
    let bytes = state.bytes as u64;
    drop(state);
    // The daemon answers, which may take longer.
    let is_missing = || images.iter().any(|image| !session.images.has(image));
    let obstacle = obstacle.or_else(|| is_missing().then(|| NO_IMAGE.to_owned()));
    Description { calls: calls as u64, bytes, obstacle }
}

/// Returns the reason if there are objects that no call makes again.
fn living_obstacle(state: &State) -> Option<String> {
    let classes = state.kept.keys().filter_map(|key| Some((key.class, key.class.obstacle()?)));
    classes.min().map(|(_, obstacle)| obstacle.to_owned())
}

/// Looks up the object that has this name now.
fn find(session: &SessionState, key: &Key) -> Option<Identity> {
    let id = key.id;
    let objects = &session.objects;
    let in_table = |table: &Table| table.weak(id).map(Identity::Object);
    let named = |is_there: bool| is_there.then_some(Identity::Name);
    match key.class {
        // It lives as long as its context.
        Class::Stream if id < FIRST_HANDLE => find(session, &Key::of_context(key.context)),
        Class::Session | Class::Thread | Class::Device => Some(Identity::Name),
        Class::Context => {
            session.contexts.lock().get(ContextId(id)).ok().map(|context| Identity::of(&context.object))
        }
        Class::Stream => in_table(&objects.streams),
        Class::Event => in_table(&objects.events),
        Class::Module => in_table(&objects.modules),
        Class::Library => in_table(&objects.libraries),
        Class::Function => in_table(&objects.functions),
        Class::Variable => {
            // It lives as long as its library and its context, which may be another one of the same name after a reset.
            let named = session.variables.get(id)?;
            objects.libraries.weak(named.library.0)?;
            find(session, &Key::of_context(named.context.0))
        }
        Class::Array => in_table(&objects.arrays),
        Class::Mipmap => in_table(&objects.mipmaps),
        Class::TextureReference => in_table(&objects.texture_references),
        Class::SurfaceReference => in_table(&objects.surface_references),
        Class::Pool => in_table(&objects.pools),
        Class::Description => in_table(&objects.descriptions),
        Class::Texture | Class::Surface => {
            let home = session.contexts.home(ContextId(key.context));
            let values = if key.class == Class::Texture { &objects.textures } else { &objects.surfaces };
            named(values.has(id, home))
        }
        Class::Link => named(session.links.has(id)),
        Class::Handle { library, kind } => session.vendor.handle(library, kind, id).map(Identity::Object),
        Class::Graph | Class::Node | Class::Exec | Class::UserObject => None,
    }
}

/// Returns the name of a call for people: for NVIDIA's libraries that of the library.
fn named(opcode: Opcode, arguments: &[u8]) -> &'static str {
    let library = library::called(arguments).filter(|_| opcode == Opcode::vendor_call);
    library.map_or(opcode.name(), |(library, _)| library.name)
}

/// Returns what is kept of a call's bulk input. `None` if it is too long.
fn bulk(bulk: &BulkIn<'_>, image: Option<KnownImage>) -> Option<Bulk> {
    match image {
        Some(image) => Some(Bulk::Image(image)),
        // The guest may have changed its pages meanwhile. Then its recipe says what it has there now.
        None if bulk.bytes() == 0 => Some(Bulk::Bytes(Box::default())),
        None if bulk.bytes() <= MAX_BULK => Some(Bulk::Bytes(bulk.contents().ok()?.into_bytes().into())),
        None => None,
    }
}

#[cfg(test)]
mod tests;
