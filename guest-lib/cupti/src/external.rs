// SPDX-License-Identifier: Apache-2.0 OR MIT
//! External correlation ids: a stack per thread and kind. The top id belongs to each call of the thread.

use std::cell::RefCell;

use crate::result::{CUptiResult, INVALID_PARAMETER, MAX_LIMIT_REACHED, QUEUE_EMPTY, Result, enter, set};

/// `CUPTI_EXTERNAL_CORRELATION_KIND_SIZE` minus the invalid kind.
pub const KINDS: usize = 5;
/// The maximum depth of a stack. It limits the memory of a program that only pushes.
const MAX_DEPTH: usize = 1 << 16;

thread_local! {
    static STACKS: RefCell<[Vec<u64>; KINDS]> = const { RefCell::new([const { Vec::new() }; KINDS]) };
}

/// The ids that the program has pushed for the running call, by kind from 1.
pub type Pushed = [Option<u64>; KINDS];

/// Returns the tops of this thread's stacks; all are `None` while the thread ends.
pub fn tops() -> Pushed {
    let tops = STACKS.try_with(|stacks| stacks.borrow().each_ref().map(|stack| stack.last().copied()));
    tops.unwrap_or_default()
}

fn with<T>(kind: u32, body: impl FnOnce(&mut Vec<u64>) -> Result<T>) -> Result<T> {
    let at = (kind as usize).checked_sub(1).filter(|at| *at < KINDS).ok_or(INVALID_PARAMETER)?;
    STACKS.try_with(|stacks| body(&mut stacks.borrow_mut()[at])).unwrap_or(Err(INVALID_PARAMETER))
}

/// Pushes an id for the calls of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> CUptiResult {
    enter(|| {
        with(kind, |stack| {
            if stack.len() >= MAX_DEPTH {
                return Err(MAX_LIMIT_REACHED);
            }
            stack.push(id);
            Ok(())
        })
    })
}

/// Pops the last id and stores it.
///
/// # Safety
///
/// `last` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64) -> CUptiResult {
    enter(|| {
        let id = with(kind, |stack| stack.pop().ok_or(QUEUE_EMPTY))?;
        if last.is_null() {
            return Ok(());
        }
        // SAFETY: this function's contract.
        unsafe { set(last, id) }
    })
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    #[test]
    fn each_kind_has_a_stack() {
        assert_eq!(cuptiActivityPushExternalCorrelationId(3, 7), 0);
        assert_eq!(cuptiActivityPushExternalCorrelationId(3, 8), 0);
        assert_eq!(cuptiActivityPushExternalCorrelationId(4, 9), 0);
        assert_eq!(tops(), [None, None, Some(8), Some(9), None]);
        let mut last = 0;
        // SAFETY: `last` is a local.
        let pop = |last: *mut u64| unsafe { cuptiActivityPopExternalCorrelationId(3, last) };
        assert_eq!((pop(&raw mut last), last), (0, 8));
        assert_eq!(pop(null_mut()), 0);
        assert_eq!(pop(&raw mut last), QUEUE_EMPTY);
        assert_eq!(cuptiActivityPushExternalCorrelationId(0, 1), INVALID_PARAMETER);
        assert_eq!(cuptiActivityPushExternalCorrelationId(6, 1), INVALID_PARAMETER);
    }
}
