// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The handles of a library. They are numbers, not addresses: a destroyed handle is never found again.

use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

/// A handle: what C sees as an opaque pointer.
pub type Handle = usize;

type Any1 = Arc<dyn Any + Send + Sync>;

static ALIVE: LazyLock<RwLock<HashMap<Handle, Any1>>> = LazyLock::new(RwLock::default);
/// As an address would be: not small, and aligned.
static LAST: AtomicUsize = AtomicUsize::new(0x1000);

/// Creates a handle.
pub fn make<T: Send + 'static>(value: T) -> Handle {
    let handle = LAST.fetch_add(16, Ordering::Relaxed);
    insert(handle, value);
    handle
}

fn insert<T: Send + 'static>(handle: Handle, value: T) {
    ALIVE.write().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(Mutex::new(value)));
}

/// Calls `body` with the object of a handle. Returns `None` if it is not a handle of this type.
pub fn with<T: Send + 'static, R>(handle: Handle, body: impl FnOnce(&mut T) -> R) -> Option<R> {
    let found = ALIVE.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned();
    let Some(found) = found.and_then(|any| any.downcast::<Mutex<T>>().ok()) else {
        stop_if_checked(handle);
        return None;
    };
    let mut value = found.lock().unwrap_or_else(PoisonError::into_inner);
    Some(body(&mut value))
}

/// Ends a handle; false: it is not a handle of this type.
pub fn end<T: Send + 'static>(handle: Handle) -> bool {
    let mut alive = ALIVE.write().unwrap_or_else(PoisonError::into_inner);
    let is_one = alive.get(&handle).is_some_and(|any| any.is::<Mutex<T>>());
    if is_one {
        alive.remove(&handle);
    } else {
        drop(alive);
        stop_if_checked(handle);
    }
    is_one
}

/// With `CUDA_EMULATOR_CHECK=handles` ends the process where NVIDIA's library would follow a pointer into memory that it has
/// freed.
fn stop_if_checked(handle: Handle) {
    static CHECKED: LazyLock<bool> = LazyLock::new(|| {
        std::env::var("CUDA_EMULATOR_CHECK")
            .is_ok_and(|wanted| wanted.split(',').any(|check| check == "handles"))
    });
    if *CHECKED && handle != 0 {
        eprintln!(
            "cuda-emulator: a library is called with the handle {handle:#x}, which it does not have (any more)"
        );
        std::process::abort();
    }
}

/// Handles that are small numbers, as cuFFT's.
pub struct Small<T>(PhantomData<T>);

impl<T: Send + 'static> Small<T> {
    /// Creates a handle.
    pub fn make(value: T) -> i32 {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as i32;
        insert(Self::key(number), value);
        number
    }

    /// The handle in the table of all handles, where numbers that are not multiples of 16 are small handles.
    pub fn key(number: i32) -> Handle {
        number as u32 as usize * 16 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_has_ended_is_found_nowhere() {
        let (first, second) = (make(5_u32), make("text"));
        assert_eq!(with(first, |value: &mut u32| std::mem::replace(value, 6)), Some(5));
        assert_eq!(with(first, |value: &mut u32| *value), Some(6));
        assert_eq!(with(second, |value: &mut u32| *value), None, "of another type");
        assert!(!end::<&str>(first) && end::<u32>(first) && !end::<u32>(first));
        assert_eq!(with(first, |value: &mut u32| *value), None);
    }
}
