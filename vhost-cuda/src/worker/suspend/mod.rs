// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suspends and resumes a session: its device memory moves to host memory and back.

use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_OK};
use zerocopy::IntoBytes;

use super::run::call::Reply;
use crate::sessions::link::{Frame, MOVED_BEFORE, Moved, NOTHING_MOVABLE, TO_RESUME, TO_SUSPEND, suspend_of};

/// Executes a request of the daemon to suspend or resume the session.
pub fn execute(frame: &Frame) -> Reply {
    let outcome = match frame.header.kind {
        TO_SUSPEND if suspend_of(&frame.payload).is_some() => NOTHING_MOVABLE,
        TO_RESUME if frame.payload.is_empty() => MOVED_BEFORE,
        _ => return (REPLY_INVALID, Vec::new()),
    };
    (REPLY_OK, Moved { outcome, ..Moved::default() }.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::link::{Suspend, ToWorker, moved_of};

    #[test]
    fn a_session_without_device_memory_is_not_suspended() {
        let mut frame = Frame::of_payload(ToWorker::default(), Suspend::default().as_bytes().to_vec());
        for (kind, outcome) in [(TO_SUSPEND, Some(NOTHING_MOVABLE)), (TO_RESUME, None)] {
            frame.header.kind = kind;
            let (status, payload) = execute(&frame);
            let expected = if outcome.is_some() { REPLY_OK } else { REPLY_INVALID };
            assert_eq!((status, moved_of(&payload).map(|moved| moved.outcome)), (expected, outcome));
        }
        frame.payload.clear();
        let outcome = moved_of(&execute(&frame).1).map(|moved| moved.outcome);
        assert_eq!(outcome, Some(MOVED_BEFORE));
    }
}
