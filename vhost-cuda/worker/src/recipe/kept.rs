// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of a recipe, by the things that they make or whose settings they change.

use std::collections::{BTreeMap, HashMap, HashSet};

use parking_lot::Mutex;
use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::{ContextId, Opcode};

use super::class::{Class, Identity};
use crate::objects::images::KnownImage;

/// The maximum of a recipe in bytes. Bounds the host memory of a guest that only makes objects.
pub const MAX_BYTES: usize = 64 << 20;
/// The length from which on calls for ended objects are looked for, in bytes.
pub const FIRST_LOOK: usize = 1 << 20;
/// The memory of a call besides its data, in bytes: the structure, and its entries in maps.
pub const CALL_BYTES: usize = 320;
/// The number of new objects that are looked at together. Most have ended by then if a program makes and ends them in a loop. Their
/// input, at most 64 KiB each, does not count yet.
const YOUNG: usize = 16;
/// Finds the object that has a name now.
pub type Find<'a> = &'a dyn Fn(&Key) -> Option<Identity>;

/// The bulk input of a call.
#[derive(Clone, Debug)]
pub enum Bulk {
    /// All of it.
    Bytes(Box<[u8]>),
    /// An image, which the daemon keeps by its digest.
    Image(KnownImage),
}

/// A call that is made again.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its place in the order of calls.
    pub number: u64,
    pub opcode: Opcode,
    /// The guest thread that made it.
    pub thread: u32,
    /// The context that was current.
    pub context: ContextId,
    pub arguments: SmallVec<[u8; 24]>,
    /// The results. Those that a program may have stored must be the same again.
    pub results: Box<[u8]>,
    pub bulk: Bulk,
    /// True if the object that it makes has ended, and others need it still: it ends when these are made.
    pub ends: bool,
}

impl Call {
    pub fn bytes(&self) -> usize {
        let bulk = match &self.bulk {
            Bulk::Bytes(bytes) => bytes.len(),
            Bulk::Image(_) => size_of::<KnownImage>(),
        };
        CALL_BYTES + self.arguments.len() + self.results.len() + bulk
    }
}

/// The name of a thing that calls make, or whose settings they change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub class: Class,
    pub id: u64,
    /// The context of a default stream, or of a texture or surface. Else 0.
    pub context: u64,
}

impl Key {
    /// The key of a context.
    pub fn of_context(id: u64) -> Self {
        Self { class: Class::Context, id, context: 0 }
    }

    /// The key of the thing that `id` names while the context `current` is current.
    pub fn new(class: Class, id: u64, current: ContextId) -> Self {
        Self { class, id, context: if class.is_of_context(id) { current.0 } else { 0 } }
    }
}

/// A setting of a thing: the number of [`Rule::Sets`], and the arguments that tell settings of that number apart.
pub type Setting = (u32, SmallVec<[u8; 16]>);

/// What is kept of a thing that lives.
#[derive(Debug)]
pub struct Kept {
    pub identity: Identity,
    /// The call that made it. `None` for devices, threads and the session, and for classes that are not followed.
    pub made: Option<Call>,
    /// The last call of each setting, with the other objects that it names.
    pub settings: BTreeMap<Setting, (Call, Vec<(Key, Identity)>)>,
}

impl Kept {
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.made.iter().chain(self.settings.values().map(|(call, _)| call))
    }

    pub fn bytes(&self) -> usize {
        CALL_BYTES + self.calls().map(Call::bytes).sum::<usize>()
    }
}

#[derive(Debug)]
pub struct State {
    pub kept: HashMap<Key, Kept>,
    /// The last calls that made objects, before [`Self::settle`].
    young: Vec<(Key, Identity, Option<Call>)>,
    /// The number of the next call.
    pub next: u64,
    pub bytes: usize,
    /// The length at which ended objects are looked for.
    pub look_at: usize,
    /// The first reason for which the session cannot be made again, whatever ends.
    pub obstacle: Option<String>,
    /// True if the recipe was given up because it was too long.
    pub is_given_up: bool,
}

/// The recipe of a session.
#[derive(Debug, Default)]
pub struct Recipe(pub(super) Mutex<State>);

impl Default for State {
    fn default() -> Self {
        Self {
            kept: HashMap::new(),
            young: Vec::new(),
            next: 0,
            bytes: 0,
            look_at: FIRST_LOOK,
            obstacle: None,
            is_given_up: false,
        }
    }
}

impl State {
    pub fn made(&mut self, find: Find<'_>, key: Key, identity: Identity, call: Option<Call>) {
        if self.is_given_up {
            return;
        }
        let made = call.map(|call| Call { number: self.number(), ..call });
        self.young.push((key, identity, made));
        if self.young.len() >= YOUNG {
            self.settle(find);
        }
    }

    /// Takes the last new objects over, as far as they have not ended.
    pub fn settle(&mut self, find: Find<'_>) {
        let mut young = std::mem::take(&mut self.young);
        for (key, identity, made) in young.drain(..) {
            if identity.has_ended() {
                continue;
            }
            // Without an identity of its own it may be another object of the same name.
            let is_known = |kept: &Kept| kept.made.is_some() && kept.identity.is_object(&identity);
            if self.kept.get(&key).is_some_and(is_known) {
                continue;
            }
            self.remove(&key);
            let kept = Kept { identity, made, settings: BTreeMap::new() };
            self.bytes += kept.bytes();
            self.kept.insert(key, kept);
        }
        // Its room is used again.
        self.young = young;
        self.bound(find);
    }

    /// Takes a call that sets something, under its number, or under the next one if that is 0. Returns the number.
    pub fn set(
        &mut self,
        find: Find<'_>,
        (key, identity): (Key, Identity),
        setting: Setting,
        call: Call,
        uses: Vec<(Key, Identity)>,
    ) -> u64 {
        self.settle(find);
        if self.is_given_up {
            return 0;
        }
        if self.kept.get(&key).is_some_and(|kept| !kept.identity.is(&identity)) {
            self.remove(&key);
        }
        let number = if call.number == 0 { self.number() } else { call.number };
        let call = Call { number, ..call };
        let added = call.bytes();
        let kept = self.kept.entry(key).or_insert_with(|| {
            self.bytes += CALL_BYTES;
            Kept { identity, made: None, settings: BTreeMap::new() }
        });
        let before = kept.settings.insert(setting, (call, uses));
        self.bytes += added;
        self.bytes -= before.map_or(0, |(call, _)| call.bytes());
        self.bound(find);
        number
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn remove(&mut self, key: &Key) {
        self.bytes -= self.kept.remove(key).map_or(0, |kept| kept.bytes());
    }

    /// Begins anew with the things that stay.
    pub fn restart(&mut self, stays: impl Fn(&Key) -> bool) {
        let kept: HashMap<_, _> = self.kept.drain().filter(|(key, _)| stays(key)).collect();
        let bytes = kept.values().map(Kept::bytes).sum();
        *self = Self { kept, bytes, next: self.next, ..Self::default() };
    }

    /// Keeps the recipe within its bounds.
    fn bound(&mut self, find: Find<'_>) {
        if self.bytes < self.look_at {
            return;
        }
        self.look(find);
        self.look_at = (2 * self.bytes).max(FIRST_LOOK);
        if self.bytes > MAX_BYTES {
            (self.kept, self.bytes, self.is_given_up) = (HashMap::new(), 0, true);
            let reason = || format!("the recipe is longer than {} MiB", MAX_BYTES >> 20);
            self.obstacle.get_or_insert_with(reason);
        }
    }

    /// Removes all that concerns objects which have ended, unless others need them still.
    pub fn look(&mut self, find: Find<'_>) {
        debug_assert!(self.young.is_empty());
        let needed = self.needed(find);
        let is_there = |key: &Key, identity: &Identity| {
            needed.contains(key) && key.class.is_held() || lives(find, key, identity)
        };
        self.kept.retain(|key, kept| {
            kept.settings.retain(|_, (_, uses)| uses.iter().all(|(key, identity)| is_there(key, identity)));
            needed.contains(key)
        });
        self.bytes = self.kept.values().map(Kept::bytes).sum();
    }

    /// Returns the things that live, and those that these were made from.
    fn needed(&self, find: Find<'_>) -> HashSet<Key> {
        let living = self.kept.iter().filter(|(key, kept)| lives(find, key, &kept.identity));
        let mut needed: HashSet<Key> = living.map(|(key, _)| *key).collect();
        let mut left: Vec<Key> = needed.iter().copied().collect();
        while let Some(kept) = left.pop().and_then(|key| self.kept.get(&key)) {
            for (used, identity) in kept.settings.values().flat_map(|(_, uses)| uses) {
                let is_kept = || self.kept.get(used).is_some_and(|kept| kept.identity.is(identity));
                if used.class.is_held() && is_kept() && needed.insert(*used) {
                    left.push(*used);
                }
            }
        }
        needed
    }
}

/// Returns whether a thing is still the one of that name.
pub fn lives(find: Find<'_>, key: &Key, identity: &Identity) -> bool {
    find(key).is_some_and(|now| now.is(identity))
}
