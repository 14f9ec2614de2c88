// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contexts of a session, the primary ones among them.
//!
//! The worker creates the primary context of device 0 before a session starts, because that is slow. The guest must
//! not notice: only its own retains count.
//!
//! A context lives while it is current in a call or a call uses an object created in it, as every object does. While
//! it *ends*, its name is neither valid nor free: the session's memory is counted by it until the driver has
//! destroyed the context.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use virtio_cuda_protocol::cuda::{ContextId, FIRST_HANDLE};

use super::{Object, Parent, revoke_contexts};
use crate::gpu::{CUcontext, CuResult, CudaError};
use crate::home::Home;

/// The maximum number of named contexts per session, including green contexts (parts of a device).
const MAX_CONTEXTS: usize = 128;
/// The maximum number of contexts that the guest has created besides the devices' primary ones. Each takes half a
/// gigabyte of a large GPU.
const MAX_CREATED: usize = 8;

/// A context that the guest has named.
#[derive(Clone, Debug)]
pub struct Context {
    /// The driver's context.
    pub object: Arc<Object>,
    /// Its device.
    pub device: i32,
    /// True for the device's primary context, and for its green contexts.
    pub primary: bool,
    /// For a green context, the name of the primary context.
    home: Option<u64>,
    /// Its flags that were not passed to the driver.
    pub kept_flags: u32,
}

impl Context {
    /// A context of the driver.
    pub fn new(object: Object, device: i32, primary: bool) -> Self {
        Self { object: Arc::new(object), device, primary, home: None, kept_flags: 0 }
    }
    /// Returns a green context that can be current. Objects created in it belong to the primary context `home`, which
    /// `object` is a part of.
    pub fn green(object: Object, device: i32, home: u64) -> Self {
        Self { object: Arc::new(object), device, primary: true, home: Some(home), kept_flags: 0 }
    }
    /// Returns whether it is a green context.
    pub fn is_green(&self) -> bool {
        self.home.is_some()
    }
    /// Returns the name of the context that owns the objects created in this one, whose name is `id`.
    fn owner(&self, id: ContextId) -> u64 {
        self.home.unwrap_or(id.0)
    }
    /// Returns the context that owns the objects created in this one.
    fn owner_object(&self) -> &Arc<Object> {
        if self.is_green() { self.object.parent().unwrap_or(&self.object) } else { &self.object }
    }
}

/// The primary context of one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Primary {
    /// The driver's handle while this process retains the context without the guest's knowledge.
    warm: Option<usize>,
    /// The guest's name for it, while it retains it.
    pub name: u64,
    /// The number of times that the guest retained it.
    pub retains: u32,
    /// Flags that the guest has requested and that were not passed to the driver.
    pub kept_flags: u32,
    /// The guest's contexts that are not released to the driver yet, including the named one.
    pub alive: u32,
}

impl Primary {
    /// Notes that this process holds the context, though the guest does not.
    pub fn warm_up(&mut self, raw: CUcontext) {
        self.warm = Some(raw as usize);
    }
    /// Takes the handle of a context that this process holds without the guest's knowledge. The caller releases it.
    pub fn take_warm(&mut self) -> Option<CUcontext> {
        self.warm.take().map(|raw| raw as CUcontext)
    }
    /// Removes the guest's name for it.
    pub fn forget_name(&mut self) {
        *self = Self { warm: self.warm, alive: self.alive, ..Self::default() };
    }
}

/// The guest's retains of primary contexts: device, number, and flags that the driver does not get.
#[derive(Clone, Debug, Default)]
pub struct Retains(Vec<(i32, u32, u32)>);

impl Retains {
    /// Those of another worker, each with a device of this one and a number of at least one.
    pub fn of(all: Vec<(i32, u32, u32)>) -> Self {
        Self(all)
    }
    /// Returns those of a device: device, number, and flags that the driver does not get.
    pub fn of_device(&self, device: i32) -> (i32, u32, u32) {
        self.0.iter().find(|(of, ..)| *of == device).copied().unwrap_or((device, 0, 0))
    }
}

/// All contexts of a session.
#[derive(Debug, Default)]
pub struct Contexts {
    state: Mutex<ContextState>,
    /// Counts changes, so that executors notice that a name may mean another context.
    epoch: AtomicU64,
}

/// The state that [`Contexts::lock`] protects.
#[derive(Debug, Default)]
pub struct ContextState {
    named: HashMap<u64, Context>,
    /// Contexts that have lost their name and are not destroyed yet.
    ending: HashMap<u64, Weak<Object>>,
    primaries: HashMap<i32, Primary>,
}

impl Contexts {
    /// Returns exclusive access, also across driver calls that create contexts.
    pub fn lock(&self) -> MutexGuard<'_, ContextState> {
        self.state.lock()
    }
    /// Returns the context named `id`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT`.
    pub fn get(&self, id: ContextId) -> CuResult<Context> {
        self.lock().get(id).cloned()
    }
    /// Returns all contexts that have names, green ones included.
    pub fn all(&self) -> Vec<Context> {
        self.lock().named.values().cloned().collect()
    }
    /// Returns the name of the only context, which is not a part of another one.
    pub fn only(&self) -> Option<ContextId> {
        let state = self.lock();
        let mut named = state.named.iter();
        let (name, context) = named.next()?;
        (named.next().is_none() && !context.is_green()).then_some(ContextId(*name))
    }
    /// Returns whether there is at most one context.
    pub fn is_only_one(&self) -> bool {
        self.lock().named.len() <= 1
    }
    /// Returns the name of the context that owns the objects created in the one named `id`, and its device.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT`.
    pub fn owner(&self, id: ContextId) -> CuResult<Home> {
        let home = |context: &Context| Home { context: context.owner(id), device: context.device };
        self.lock().get(id).map(home)
    }
    /// Returns the name of the context that owns the objects created in the one named `id`.
    pub fn home(&self, id: ContextId) -> u64 {
        self.owner(id).map_or(id.0, |home| home.context)
    }
    /// The same with the context itself.
    pub fn home_of(&self, id: ContextId) -> Option<Parent> {
        let parent =
            |context: &Context| Parent { name: context.owner(id), object: context.owner_object().clone() };
        self.lock().get(id).ok().map(parent)
    }
    /// Returns the number of changes so far.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }
    /// Notes a change. Must be called with the lock held, before contexts that have lost their names are destroyed.
    pub fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
        revoke_contexts();
    }
    /// Forgets the name `name` of a context that the driver has destroyed. Nothing is counted by that name any
    /// longer.
    pub fn ended(&self, name: u64) {
        self.lock().ending.remove(&name);
    }
}

impl ContextState {
    /// Records flags of a context that only the guest knows.
    pub fn keep_flags(&mut self, id: ContextId, flags: u32) {
        if let Some(context) = self.named.get_mut(&id.0) {
            context.kept_flags = flags;
        }
    }
    /// Returns the primary context of `device`.
    pub fn primary(&mut self, device: i32) -> &mut Primary {
        self.primaries.entry(device).or_default()
    }
    /// Checks a name that the guest chose.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_CONTEXT_IS_DESTROYED` for the name
    /// of a context that a call still uses.
    pub fn check_new(&self, id: ContextId) -> CuResult<()> {
        if id.0 < FIRST_HANDLE || self.named.contains_key(&id.0) {
            return Err(CudaError::INVALID_VALUE);
        }
        if self.ending.contains_key(&id.0) {
            return Err(CudaError::CONTEXT_IS_DESTROYED);
        }
        let all = self.named.len() + self.ending.len();
        if all >= MAX_CONTEXTS { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }
    /// Checks that the session may create one more context.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_created(&self) -> CuResult<()> {
        let created = self.named.values().filter(|context| !context.primary).count();
        if created >= MAX_CREATED { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }
    /// Registers a context under a name.
    pub fn insert(&mut self, id: ContextId, context: Context) {
        self.named.insert(id.0, context);
    }
    /// Returns the context named `id`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT`.
    pub fn get(&self, id: ContextId) -> CuResult<&Context> {
        self.named.get(&id.0).ok_or(CudaError::INVALID_CONTEXT)
    }
    /// Returns the green contexts of the primary context named `home`.
    pub fn greens_of(&self, home: u64) -> HashSet<u64> {
        self.named.iter().filter(|(_, context)| context.home == Some(home)).map(|(&name, _)| name).collect()
    }
    /// Removes the name of a context that is yet to end.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT`.
    pub fn close(&mut self, id: ContextId) -> CuResult<Arc<Object>> {
        let context = self.named.remove(&id.0).ok_or(CudaError::INVALID_CONTEXT)?;
        self.ending.insert(id.0, Arc::downgrade(&context.object));
        Ok(context.object)
    }
    /// Returns whether no context lives, and none is ending.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.ending.is_empty()
    }
    /// Returns the names of all contexts that are not a part of another one.
    pub fn names(&self) -> Vec<u64> {
        self.named.iter().filter(|(_, context)| !context.is_green()).map(|(&name, _)| name).collect()
    }
    /// Removes the names of all contexts and the devices' retains, which are returned for [`Self::put_retains`].
    pub fn close_all(&mut self) -> (Vec<(u64, Arc<Object>)>, Retains) {
        let named: Vec<u64> = self.named.keys().copied().collect();
        let closed = named.into_iter().filter_map(|name| Some((name, self.close(ContextId(name)).ok()?)));
        let closed = closed.collect();
        let retained = self.primaries.iter_mut().filter(|(_, primary)| primary.retains > 0);
        let taken = retained.map(|(&device, primary)| {
            let taken = (device, primary.retains, primary.kept_flags);
            primary.forget_name();
            taken
        });
        (closed, Retains(taken.collect()))
    }
    /// Sets the retains of primary contexts, each of which has one at least.
    pub fn put_retains(&mut self, Retains(taken): &Retains) {
        for &(device, retains, kept_flags) in taken {
            let primary = self.primary(device);
            (primary.retains, primary.kept_flags) = (retains, kept_flags);
            let name = ContextId(primary.name);
            self.keep_flags(name, kept_flags);
        }
    }
    /// Removes the names of all contexts. Green contexts come before their primary contexts.
    #[cfg(any(test, fuzzing))]
    pub fn take_all(&mut self) -> Vec<(u64, Arc<Object>)> {
        let mut all: Vec<_> = self.named.drain().collect();
        all.sort_by_key(|(_, context)| !context.is_green());
        all.into_iter().map(|(name, context)| (name, context.object)).collect()
    }
    /// Returns the context that has or had this name, or `None` while the driver destroys it.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT` once it is destroyed.
    pub fn find(&self, id: ContextId) -> CuResult<Option<Arc<Object>>> {
        match self.ending.get(&id.0) {
            Some(ending) => Ok(ending.upgrade()),
            None => self.get(id).map(|context| Some(context.object.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: ContextId = ContextId(FIRST_HANDLE);

    fn object() -> Object {
        Object::new(std::ptr::without_provenance_mut::<u8>(8))
    }

    #[test]
    fn the_name_of_a_context_is_free_once_it_is_destroyed() {
        let contexts = Contexts::default();
        let mut state = contexts.lock();
        state.check_new(NAME).unwrap();
        state.insert(NAME, Context::new(object(), 0, false));
        assert_eq!(state.check_new(NAME), Err(CudaError::INVALID_VALUE));
        let used = state.close(NAME).unwrap();
        assert_eq!(state.close(NAME).unwrap_err(), CudaError::INVALID_CONTEXT);
        assert_eq!(state.get(NAME).map(drop), Err(CudaError::INVALID_CONTEXT));
        assert!(state.find(NAME).unwrap().is_some_and(|found| Arc::ptr_eq(&found, &used)));
        assert_eq!(state.check_new(NAME), Err(CudaError::CONTEXT_IS_DESTROYED));
        drop(used);
        assert!(state.find(NAME).unwrap().is_none(), "the driver destroys it");
        assert_eq!(state.check_new(NAME), Err(CudaError::CONTEXT_IS_DESTROYED));
        drop(state);
        contexts.ended(NAME.0);
        assert!(contexts.lock().find(NAME).is_err());
        contexts.lock().check_new(NAME).unwrap();
    }

    #[test]
    fn what_is_made_in_a_green_context_belongs_to_the_primary_one() {
        let contexts = Contexts::default();
        let primary = Context::new(object(), 0, true);
        let green = object().part_of(primary.object.clone());
        let kept = primary.object.clone();
        contexts.lock().insert(NAME, primary);
        let name = ContextId(NAME.0 + 1);
        contexts.lock().insert(name, Context::green(green, 0, NAME.0));
        let owner = Home { context: NAME.0, device: 0 };
        assert_eq!((contexts.owner(name), contexts.home(name)), (Ok(owner), NAME.0));
        assert!(
            contexts
                .home_of(name)
                .is_some_and(|home| home.name == NAME.0 && Arc::ptr_eq(&home.object, &kept))
        );
        assert_eq!(contexts.lock().greens_of(NAME.0), HashSet::from([name.0]));
    }
}
