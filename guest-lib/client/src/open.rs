// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Opens the process's session, and leaves it: the whole of it in a forked child, a thread's part of it when the thread ends.

use std::sync::Once;

use crate::device::DeviceNode;
use crate::transport::Transport;
use crate::virtio_user::{SOCKET_VARIABLE, VirtioUser, forks};
use crate::{
    Call, Caller, ClientError, CudaError, Session, caller, calls, lane, logging, output, process, session,
    thread,
};

/// The process's session, opened by the first caller. A failure to open is final for the process, as it is
/// in CUDA.
pub fn session() -> Result<&'static Session, CudaError> {
    session_over(|| match std::env::var_os(SOCKET_VARIABLE) {
        Some(path) => Ok(Box::new(VirtioUser::connect(path.as_ref())?)),
        None => Ok(Box::new(DeviceNode::open()?)),
    })
}

/// As [`session()`], over the transport that `connect` makes if there is no session yet.
pub fn session_over(
    connect: impl FnOnce() -> Result<Box<dyn Transport>, ClientError>,
) -> Result<&'static Session, CudaError> {
    process::check()?;
    session::current_or(|| {
        logging::install();
        watch_forks();
        thread::at_end(thread_ends);
        connect().and_then(Session::over).map_err(|error| {
            log::error!("{error}");
            error.result()
        })
    })
}

/// From now on, a forked child leaves the session to its parent and returns `CUDA_ERROR_NOT_INITIALIZED` from
/// every call.
fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` may run in a forked child: see there.
        let rc = unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
        if rc != 0 {
            log::error!("pthread_atfork failed ({rc}): do not use fork in this process");
        }
    });
}

extern "C" fn in_parent() {
    forks::note();
}

/// Runs in a forked child, whose other threads have ended in any state: takes no lock and allocates nothing.
extern "C" fn in_child() {
    process::forked();
    if let Some(session) = session::current() {
        session.transport().in_child();
    }
}

/// Notifies the worker that the calling thread ends, so that its executor can end too.
fn thread_ends() {
    let Some(session) = session::current() else { return };
    // The thread ends even if the worker is not notified. Its executor must have done everything before
    // another thread gets the lane.
    let ordered = caller::at_entry_point(|entry| {
        let answer = lane::order(session, None, Caller::Program(entry));
        output::forward(session, answer.flags);
        answer.result
    });
    if let Err(error) = ordered {
        caller::leave(error);
    }
    if calls::session_thread_exit(&mut Call::internal(session).direct()).is_ok() {
        lane::retire(session);
    }
}
