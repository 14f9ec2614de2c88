// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One process's connection to the device.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, ContextId, Opcode, StreamId, agreed_version};

use crate::device::DeviceNode;
use crate::lane::{self, Lanes};
use crate::outstanding::{Outstanding, Permit};
use crate::touched::{ORDER, Touched};
use crate::transport::{Limits, Transport};
use crate::virtio_user::{SOCKET_VARIABLE, VirtioUser};
use crate::{Call, Caller, ClientError, CudaError, caller, calls, idle, logging, process};

/// The maximum number of devices that a worker may report. Bounds the tables of this library.
const MAX_DEVICES: u32 = 256;

static CURRENT: OnceLock<Result<Session, CudaError>> = OnceLock::new();

/// The process's session, opened by the first caller. A failure to open is final for the process, as it is
/// in CUDA.
pub fn open() -> Result<&'static Session, CudaError> {
    open_over(|| match std::env::var_os(SOCKET_VARIABLE) {
        Some(path) => Ok(Box::new(VirtioUser::connect(path.as_ref())?)),
        None => Ok(Box::new(DeviceNode::open()?)),
    })
}

/// As [`open`], over the transport that `connect` makes if there is no session yet.
pub fn open_over(
    connect: impl FnOnce() -> Result<Box<dyn Transport>, ClientError>,
) -> Result<&'static Session, CudaError> {
    process::check()?;
    let session = CURRENT.get_or_init(|| {
        logging::install();
        process::watch_forks();
        connect().and_then(Session::over).map_err(|error| {
            log::error!("{error}");
            error.result()
        })
    });
    session.as_ref().map_err(|error| *error)
}

/// Returns the process's session, if it is open.
pub fn current() -> Option<&'static Session> {
    CURRENT.get().and_then(|session| session.as_ref().ok())
}

/// Returns the reason for which a session is lost, as far as the worker has written it to the lanes.
fn why_lost() -> ClientError {
    match ORDER.verdict() {
        Some(result) if result == CudaError::LAUNCH_TIMEOUT.code().cast_unsigned() => ClientError::TimeLimit,
        _ => ClientError::SessionLost,
    }
}

/// An open session.
pub struct Session {
    transport: Box<dyn Transport>,
    limits: Limits,
    outstanding: Outstanding,
    lanes: Lanes,
    lost: AtomicBool,
    /// The version of the call table that the worker knows, too.
    version: u32,
    driver_version: i32,
    device_count: u32,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("limits", &self.limits).field("lost", &self.lost).finish()
    }
}

impl Session {
    fn over(transport: Box<dyn Transport>) -> Result<Self, ClientError> {
        let limits = transport.limits();
        let lanes = Lanes::new(limits.outstanding);
        let mut session = Self {
            limits,
            outstanding: Outstanding::new(limits.outstanding - lanes.requests()),
            transport,
            lanes,
            lost: AtomicBool::new(false),
            version: CALL_TABLE_VERSION,
            driver_version: 0,
            device_count: 0,
        };
        let (mut version, mut driver_version, mut device_count) = session.hello(CALL_TABLE_VERSION)?;
        if version != CALL_TABLE_VERSION
            && let Some(common) = agreed_version(version)
        {
            (version, driver_version, device_count) = session.hello(common)?;
            session.version = common;
        }
        if version != session.version {
            return Err(ClientError::Version {
                what: "call table",
                ours: CALL_TABLE_VERSION,
                theirs: version,
            });
        }
        if device_count > MAX_DEVICES {
            return Err(ClientError::Protocol);
        }
        session.driver_version = driver_version;
        session.device_count = device_count;
        log::info!("Session open: CUDA {driver_version}, {device_count} device(s), {:?}", session.limits);
        Ok(session)
    }

    fn hello(&self, version: u32) -> Result<(u32, i32, u32), ClientError> {
        calls::session_hello(&mut self.internal().direct(), version).map_err(|error| {
            if self.lost.load(Ordering::Relaxed) {
                ClientError::SessionLost
            } else {
                log::error!("The worker refused the session: {error}");
                ClientError::Protocol
            }
        })
    }

    /// Returns whether the worker has this call, too.
    pub(crate) fn knows(&self, opcode: Opcode) -> bool {
        opcode.since() <= self.version
    }

    /// Starts a call.
    pub fn call(&self, caller: Caller) -> Call<'_> {
        Call::new(self, caller)
    }

    /// Starts a call that no entry point makes for the program.
    pub fn internal(&self) -> Call<'_> {
        self.call(Caller::Internal)
    }

    /// Bounds of one call.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The CUDA version of the host's driver, as `cuDriverGetVersion` has it.
    pub fn driver_version(&self) -> i32 {
        self.driver_version
    }

    /// GPUs of this session.
    pub fn device_count(&self) -> u32 {
        self.device_count
    }

    /// Returns the transport, for memory that calls keep.
    pub fn transport(&self) -> &dyn Transport {
        self.transport.as_ref()
    }

    /// Takes kept pages back.
    pub fn unpin(&self, tag: u64) -> Result<(), CudaError> {
        process::check()?;
        // Posted calls may use the pages.
        lane::order(self, Some(&Touched::everything()), Caller::Internal)?;
        let _permit = self.outstanding();
        self.check().and_then(|()| self.transport.unpin(tag)).map_err(|error| error.result())
    }

    /// Waits until the calls posted so far that must precede a copy in `stream` are executed, as every call except a direct one
    /// does by itself.
    ///
    /// Errors: that of an earlier posted call, for the program.
    pub fn order_copy(&self, caller: Caller, context: ContextId, stream: StreamId) -> Result<(), CudaError> {
        process::check()?;
        let mut touched = Touched::of(Opcode::cuMemcpyAsync, context.0, false);
        touched.add(&stream);
        lane::order(self, Some(&touched), caller)
    }

    /// Returns whether the device has no work for this process, and no error of a posted call to report to the calling thread.
    pub fn is_idle(&self) -> bool {
        idle::is_idle() && self.is_settled()
    }

    /// Returns whether `stream` has no work, and there is no error of a posted call to report to the calling thread.
    pub fn is_stream_idle(&self, context: ContextId, stream: StreamId) -> bool {
        idle::is_stream_idle(context, stream) && self.is_settled()
    }

    fn is_settled(&self) -> bool {
        !lane::has_deferred_error() && !caller::has_left() && process::check().is_ok() && self.check().is_ok()
    }

    /// The lanes of its threads.
    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Wakes the executor of the calling thread and sleeps until record `reply` of its lane is answered (if not 0) and
    /// `consumed` bytes are consumed.
    pub(crate) fn wait_for_lane(&self, reply: u64, consumed: u64) -> Result<(), ClientError> {
        calls::session_wait(&mut self.internal().direct(), reply, consumed).map_err(|_| match self.check() {
            Err(lost) => lost,
            Ok(()) => ClientError::Protocol,
        })
    }

    /// Waits for the right to have a call outstanding.
    pub(crate) fn outstanding(&self) -> Permit<'_> {
        self.outstanding.take()
    }

    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.lost.load(Ordering::Relaxed) { Err(why_lost()) } else { Ok(()) }
    }

    /// Notes that a call has failed below CUDA. Returns the result for the program.
    pub(crate) fn failed(&self, opcode: Opcode, error: ClientError) -> CudaError {
        let error = if matches!(error, ClientError::SessionLost) { why_lost() } else { error };
        match error {
            // Said once; the session stays lost.
            ClientError::SessionLost | ClientError::TimeLimit => {
                if !self.lost.swap(true, Ordering::Relaxed) {
                    log::error!("{}: {error}", opcode.name());
                }
            }
            _ => log::debug!("{}: {error}", opcode.name()),
        }
        error.result()
    }
}

#[cfg(test)]
#[path = "session_test.rs"]
mod tests;
