// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One process's connection to the device.

pub(crate) mod control;
pub(crate) mod lanes;
mod outstanding;
mod pace;

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, Malformed, Opcode, Reader, Wire, agreed_version};
use virtio_cuda_ring::{LANE_BYTES, LaneMemory};

use control::Payload;
use lanes::{Lane, Lanes};
use outstanding::{Outstanding, Permit};

use crate::reply::Answer;
use crate::touched::ORDER;
use crate::transport::{Limits, Transport};
use crate::{Caller, ClientError, CudaError, process, thread};

/// The maximum number of devices that a worker may report. Bounds the tables of this library.
const MAX_DEVICES: u32 = 256;

static CURRENT: OnceLock<Result<Session, CudaError>> = OnceLock::new();

/// Returns the process's session. The first caller opens it, by `open`.
pub(crate) fn current_or(
    open: impl FnOnce() -> Result<Session, CudaError>,
) -> Result<&'static Session, CudaError> {
    CURRENT.get_or_init(open).as_ref().map_err(|error| *error)
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
    /// Opens a session over a transport.
    pub(crate) fn over(transport: Box<dyn Transport>) -> Result<Self, ClientError> {
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
        let facts =
            |reader: &mut Reader<'_>| Ok((Wire::take(reader)?, Wire::take(reader)?, Wire::take(reader)?));
        self.own_call(Opcode::session_hello, thread::number(), &[&version.to_le_bytes()], facts).map_err(
            |error| {
                if self.lost.load(Ordering::Relaxed) {
                    ClientError::SessionLost
                } else {
                    log::error!("The worker refused the session: {error}");
                    ClientError::Protocol
                }
            },
        )
    }

    /// Makes a call of the session itself, in the name of a thread.
    fn own_call<T>(
        &self,
        opcode: Opcode,
        thread: u32,
        arguments: &[&[u8]],
        take: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<T, CudaError> {
        process::check()?;
        self.control(opcode, &Payload::new(opcode, thread, Caller::Internal, arguments), take).result
    }

    /// Sends a call through the request queue at once, whatever was posted before.
    pub(crate) fn control<T>(
        &self,
        opcode: Opcode,
        payload: &Payload,
        take: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Answer<T> {
        let answer = self.check().and_then(|()| {
            // Those of lanes have theirs for certain.
            let _permit = (opcode != Opcode::session_wait).then(|| self.outstanding());
            control::send(self.transport(), payload, take)
        });
        answer
            .inspect(|answer| log::trace!("{}: {:?}", opcode.name(), answer.result.as_ref().err()))
            .unwrap_or_else(|error| Answer::of(Err(self.failed(opcode, error))))
    }

    /// Returns whether the worker has this call, too.
    pub(crate) fn knows(&self, opcode: Opcode) -> bool {
        opcode.since() <= self.version
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

    /// The lanes of its threads.
    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Returns a lane that no thread uses.
    pub(crate) fn take_lane(&self) -> Option<Box<Lane>> {
        self.lanes.take(|| {
            let _permit = self.outstanding();
            let (base, tag) = self.transport.share(LANE_BYTES)?;
            // SAFETY: the transport has mapped that many bytes at a page's start, for good.
            Ok((unsafe { LaneMemory::new(base) }, tag))
        })
    }

    /// Makes the lane that of the calling thread: its positions begin at `begins`.
    pub(crate) fn set_up_lane(&self, lane: &Lane, begins: u64) -> Result<(), CudaError> {
        let (tag, index, begins) = (lane.tag.to_le_bytes(), lane.index.to_le_bytes(), begins.to_le_bytes());
        self.own_call(Opcode::session_lane, thread::number(), &[&tag, &index, &begins], |_| Ok(()))
    }

    /// Wakes the executor of a thread and sleeps until record `reply` of its lane is answered (if not 0) and
    /// `consumed` bytes are consumed.
    pub(crate) fn wait_for_lane(&self, thread: u32, reply: u64, consumed: u64) -> Result<(), ClientError> {
        let arguments: [&[u8]; 2] = [&reply.to_le_bytes(), &consumed.to_le_bytes()];
        self.own_call(Opcode::session_wait, thread, &arguments, |_| Ok(())).map_err(|_| match self.check() {
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
