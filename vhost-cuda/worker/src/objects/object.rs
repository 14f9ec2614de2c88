// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One object of the driver. It lives while a name or a call refers to it, and ends before the object that it came
//! from.
//!
//! libcuda follows handles into its heap, so a handle must not be destroyed while a call uses it. The table of names
//! holds one reference, and each call that uses the object holds another one (`held`). Destroying an object removes
//! its name at once. The thread that releases the last reference asks the driver to destroy the object. The calling
//! thread never waits for other calls: some of them run for as long as the guest wishes (`cuStreamSynchronize`), and
//! on a host the destroying call would return at once, too. So it returns the driver's result if nothing else used
//! the object, and success otherwise.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Kind;
use crate::gpu::CuResult;

/// A context that an object is made in.
#[derive(Clone, Debug)]
pub struct Parent {
    /// Its name.
    pub name: u64,
    /// Its object.
    pub object: Arc<Object>,
}

/// The function that asks the driver to destroy an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destroyer {
    /// The call that the guest made to destroy it.
    Call,
    /// A call that was the last to use it. Any context may be current in its thread.
    LastUser,
}

/// Destroys an object in the driver.
pub type End = Box<dyn FnOnce(Destroyer) -> CuResult<()> + Send + Sync>;

/// An object of the driver (see the module's documentation).
pub struct Object {
    /// The driver's handle, as an integer so that the table may be shared between threads.
    raw: usize,
    /// The name of the context that it lives in, or 0.
    context: u64,
    kind: Kind,
    /// The context itself.
    home: Option<Arc<Object>>,
    /// Its other origin (a function's module, a level's mipmapped array).
    parent: Option<Arc<Object>>,
    /// `None`: the object ends with its parent, or never.
    end: Option<End>,
    /// True if its name stays reserved until `end` has freed it.
    keeps_name: bool,
    /// True once the name was removed: no object is created from this object any longer.
    closed: AtomicBool,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("raw", &self.raw).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Object {
    /// Returns an object that is not destroyed by itself.
    pub fn new<T>(raw: *mut T) -> Self {
        Self {
            raw: raw as usize,
            context: 0,
            kind: Kind::Plain,
            home: None,
            parent: None,
            end: None,
            keeps_name: false,
            closed: AtomicBool::new(false),
        }
    }

    /// One of a context; it ends before that.
    pub fn in_context(mut self, context: Option<Parent>) -> Self {
        if let Some(Parent { name, object }) = context {
            (self.context, self.home) = (name, Some(object));
        }
        self
    }

    /// Sets the parent, which outlives the object.
    pub fn part_of(mut self, parent: Arc<Object>) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Sets the function that destroys the object.
    pub fn ends_by(mut self, end: impl FnOnce(Destroyer) -> CuResult<()> + Send + Sync + 'static) -> Self {
        self.end = Some(Box::new(end));
        self
    }

    /// Keeps the name reserved until the object is destroyed. The function that destroys it frees the name, too.
    pub fn keeps_name(mut self) -> Self {
        self.keeps_name = true;
        self
    }

    /// Returns whether its name stays reserved until it is destroyed.
    pub fn has_name_to_free(&self) -> bool {
        self.keeps_name
    }

    /// Sets the kind.
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Returns the driver's handle. It may be used as long as the caller has a reference to this object.
    pub fn raw<T>(&self) -> *mut T {
        self.raw as *mut T
    }

    /// Returns whether this is the driver's handle.
    pub fn is<T>(&self, raw: *mut T) -> bool {
        self.raw == raw as usize
    }

    /// Returns the name of the context that it lives in, or 0.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Returns the kind of the handle, where a table holds two kinds.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the object that it came from, besides its context.
    pub fn parent(&self) -> Option<&Arc<Object>> {
        self.parent.as_ref()
    }

    /// Returns whether the guest can destroy it by itself.
    pub fn is_whole(&self) -> bool {
        self.end.is_some()
    }

    /// Returns whether it came from `other`, directly or not.
    pub fn is_of(&self, other: &Arc<Object>) -> bool {
        self.origins().any(|origin| Arc::ptr_eq(origin, other) || origin.is_of(other))
    }

    /// Returns whether its name and those of the objects that it came from are still valid.
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire) && self.origins().all(|origin| origin.is_open())
    }

    fn origins(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.home.iter().chain(&self.parent)
    }

    /// Makes tables refuse objects that are created from it from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Releases the caller's reference. Destroys the object if it was the last one.
    ///
    /// Errors: the driver's errors.
    pub fn destroy(object: Arc<Self>) -> CuResult<()> {
        object.close();
        let Some(mut last) = Arc::into_inner(object) else { return Ok(()) };
        // `last` is dropped afterwards, together with its references to the objects that it came from.
        last.end.take().map_or(Ok(()), |end| end(Destroyer::Call))
    }

    /// Releases the caller's reference when the parent of the object is about to be destroyed. The driver does not
    /// have to be asked for an object that no call uses, unless its name is still to be freed.
    pub fn end_with_parent(object: Arc<Self>) {
        object.close();
        if let Some(mut last) = Arc::into_inner(object)
            && !last.keeps_name
        {
            last.end = None;
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(end) = self.end.take()
            && let Err(error) = end(Destroyer::LastUser)
        {
            log::debug!("An object was destroyed after its last use: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::gpu::CudaError;

    /// The destroyed objects, in order.
    type Log = Arc<Mutex<Vec<(usize, Destroyer)>>>;

    fn fixture(log: &Log, number: usize) -> Object {
        let log = log.clone();
        Object::new(std::ptr::without_provenance_mut::<u8>(number)).ends_by(move |who| {
            log.lock().push((number, who));
            if number == 13 { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
        })
    }

    #[test]
    fn the_destroying_call_gets_the_drivers_answer_if_nothing_else_uses_the_object() {
        let log = Log::default();
        assert_eq!(Object::destroy(Arc::new(fixture(&log, 1))), Ok(()));
        assert_eq!(Object::destroy(Arc::new(fixture(&log, 13))), Err(CudaError::INVALID_VALUE));
        assert_eq!(*log.lock(), [(1, Destroyer::Call), (13, Destroyer::Call)]);
    }

    #[test]
    fn the_last_user_destroys_the_object_once() {
        let log = Log::default();
        let object = Arc::new(fixture(&log, 1));
        let (first, second) = (object.clone(), object.clone());
        assert_eq!(Object::destroy(object), Ok(()), "the destroying call does not wait");
        drop(first);
        assert!(log.lock().is_empty(), "a call uses it still");
        assert!(!second.is_open());
        drop(second);
        assert_eq!(*log.lock(), [(1, Destroyer::LastUser)]);
    }

    #[test]
    fn an_object_ends_before_what_it_came_from() {
        let log = Log::default();
        let context = Arc::new(fixture(&log, 1));
        let module = Arc::new(fixture(&log, 2).in_context(Some(Parent { name: 5, object: context.clone() })));
        let function = Object::new(std::ptr::without_provenance_mut::<u8>(3)).part_of(module.clone());
        assert!(function.is_of(&module) && function.is_of(&context) && !module.is_of(&module));
        assert!(!function.is_whole() && function.is_open());
        // A launch uses the function, while others unload the module and destroy the context.
        assert_eq!(Object::destroy(module), Ok(()));
        assert!(!function.is_open(), "its module was unloaded");
        assert_eq!(Object::destroy(context), Ok(()));
        assert!(log.lock().is_empty());
        drop(function);
        assert_eq!(*log.lock(), [(2, Destroyer::LastUser), (1, Destroyer::LastUser)]);
    }

    #[test]
    fn what_no_call_uses_ends_with_its_parent() {
        let log = Log::default();
        let context = Arc::new(fixture(&log, 1));
        let idle = Arc::new(fixture(&log, 2).part_of(context.clone()));
        let used = Arc::new(fixture(&log, 3).part_of(context.clone()));
        let call = used.clone();
        Object::end_with_parent(idle);
        Object::end_with_parent(used);
        assert_eq!(Object::destroy(context), Ok(()));
        drop(call);
        assert_eq!(*log.lock(), [(3, Destroyer::LastUser), (1, Destroyer::LastUser)]);
    }

    #[test]
    fn racing_references_destroy_once() {
        for _ in 0..200 {
            let log = Log::default();
            let object = Arc::new(fixture(&log, 1));
            std::thread::scope(|scope| {
                for user in 0..3 {
                    let mine = object.clone();
                    scope.spawn(move || match user {
                        0 => Object::destroy(mine),
                        _ => {
                            drop(mine);
                            Ok(())
                        }
                    });
                }
                drop(object);
            });
            assert_eq!(log.lock().len(), 1);
        }
    }
}
