// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Writes the output of device code to the program's own C streams, so that it mixes with the program's `printf` in the
//! order of a native run.

use virtio_cuda_protocol::cuda::{RESULT_STDERR, RESULT_STDOUT};

use crate::{Call, Session, calls};

/// The maximum output that is fetched for one reply, in bytes: the worker keeps less. A worker that always has more could
/// otherwise keep the thread for ever. The rest is fetched after the next reply.
const MAX_OUTPUT: usize = 64 << 20;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Fetches and prints the output that the reply's `flags` announce.
pub fn forward(session: &Session, flags: u32) {
    if flags & RESULT_STDOUT != 0 {
        // SAFETY: libc initialises the variable before any program code runs; it is only read here.
        drain(session, 1, unsafe { stdout });
    }
    if flags & RESULT_STDERR != 0 {
        // SAFETY: libc initialises this variable, too, before any program code runs; it is only read here.
        drain(session, 2, unsafe { stderr });
    }
}

fn drain(session: &Session, fd: u32, stream: *mut libc::FILE) {
    let mut buffer = [0u8; 8192];
    for _ in 0..MAX_OUTPUT / buffer.len() {
        let mut call = Call::internal(session).output(&mut buffer);
        let Ok((bytes, left)) = calls::session_output(&mut call, fd) else { return };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(buffer.len());
        // SAFETY: `stream` is libc's own; the buffer holds `bytes` initialised bytes.
        unsafe { libc::fwrite(buffer.as_ptr().cast(), 1, bytes, stream) };
        if left == 0 || bytes == 0 {
            return;
        }
    }
}
