// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Errors between this process and the device, and the `CUresult` that a program gets for each.

use std::io;

use crate::CudaError;

/// A failure below CUDA: of the device node, the socket or the session.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The device node or socket cannot be opened.
    #[error("No virtio-cuda device: {path}: {source}")]
    NoDevice {
        /// The device node or socket.
        path: String,
        /// The reason for which it cannot be opened.
        source: io::Error,
    },
    /// The vhost-user handshake failed.
    #[error("The daemon at {path} cannot be used: {reason}")]
    Daemon {
        /// The socket.
        path: String,
        /// The refused or failed step.
        reason: String,
    },
    /// The two sides were built from different protocols.
    #[error(
        "Version mismatch: this library speaks {what} {ours}, the other side {theirs}: install matching builds"
    )]
    Version {
        /// The protocol that differs.
        what: &'static str,
        /// Version of this library.
        ours: u32,
        /// Version of the driver, device or worker.
        theirs: u32,
    },
    /// The worker has ended or the connection broke; the session stays lost.
    #[error("The session is lost: its worker has ended or the device was restarted")]
    SessionLost,
    /// The device has ended the session for a kernel that ran too long.
    #[error(
        "A kernel, a graph or a library call ran longer than the host allows (--time-limit of vhost-user-cuda): the \
         session has ended. Make them shorter, or have the limit raised"
    )]
    TimeLimit,
    /// There is no session left for another program.
    #[error(
        "No session is free: too many CUDA programs run, of this user or of all, or the host cannot start another. \
         End one, or raise the limits: max_user_sessions of the module virtio_cuda, --max-user-sessions and \
         --max-sessions of vhost-user-cuda"
    )]
    Sessions,
    /// A limit of the device or driver is reached: pinned bytes, outstanding requests.
    #[error(
        "A limit of the virtio-cuda device is reached: pinned memory of this program or its user, or outstanding \
         requests. The parameters of the module virtio_cuda set it"
    )]
    Limit,
    /// Memory of the caller cannot be read, written or pinned.
    #[error("Memory handed to the device cannot be accessed or pinned")]
    Fault,
    /// The other side broke the protocol, or refused a request as malformed.
    #[error("The device refused a request or answered with nonsense")]
    Protocol,
    /// Any other failure of the operating system.
    #[error("Talking to the virtio-cuda device failed: {0}")]
    Io(#[from] io::Error),
}

impl ClientError {
    /// Returns the result that the program gets.
    pub fn result(&self) -> CudaError {
        match self {
            Self::NoDevice { .. } | Self::Daemon { .. } => CudaError::NO_DEVICE,
            Self::Version { .. } => CudaError::SYSTEM_DRIVER_MISMATCH,
            Self::SessionLost | Self::Sessions => CudaError::DEVICE_UNAVAILABLE,
            Self::TimeLimit => CudaError::LAUNCH_TIMEOUT,
            Self::Limit => CudaError::OUT_OF_MEMORY,
            Self::Fault => CudaError::INVALID_VALUE,
            Self::Protocol | Self::Io(_) => CudaError::UNKNOWN,
        }
    }
}
