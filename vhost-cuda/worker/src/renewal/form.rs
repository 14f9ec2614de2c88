// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows of the stream between two workers that belong to no table. `docs/spec/saved-sessions.md` is their specification.

use std::io;

use vhost_cuda_common::exchange::Token;
use vhost_cuda_common::parts::malformed;
use virtio_cuda_protocol::cuda::CALL_TABLE_VERSION;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::devices::name_of;
use crate::memory::allocations::Origin;
use crate::state::SessionState;

/// [`State::flags`]: the guest library has not sent a version that is known.
pub const REFUSED: u64 = 1;
/// [`State::flags`]: NVIDIA's libraries may print.
pub const MAY_PRINT: u64 = 2;
/// [`State::flags`]: the contents are in a file.
pub const SAVED: u64 = 4;
/// [`State::flags`]: there is a key of digests.
pub const HAS_KEY: u64 = 8;
/// [`State::flags`]: all that are known.
const KNOWN: u64 = REFUSED | MAY_PRINT | SAVED | HAS_KEY;
/// [`State::flags`]: the bits below the version of the call table.
const CALL_TABLE_SHIFT: u32 = 32;

/// Facts of a session.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    pub flags: u64,
    /// The key of its digests.
    pub key: [u64; 2],
    /// The name of its contents.
    pub name: [u8; 16],
    /// The number of the last range.
    pub serial: u64,
    /// The number of the last ticket of a callback.
    pub tickets: u64,
    /// Copies that were counted, and their nanoseconds.
    pub copies: [u64; 2],
    /// The part of the contents that the last suspension has copied, in bytes.
    pub copied_bytes: u64,
}

impl State {
    /// Returns flags, and the version of the call table that the guest library uses, or 0.
    pub fn flags_of(flags: u64, call_table: u32) -> u64 {
        flags | u64::from(call_table) << CALL_TABLE_SHIFT
    }

    /// Returns that version.
    ///
    /// Errors: the reason for which this release cannot serve the session.
    pub fn call_table(&self) -> Result<u32, String> {
        let call_table = (self.flags >> CALL_TABLE_SHIFT) as u32;
        if call_table > CALL_TABLE_VERSION {
            return Err(format!(
                "its program uses version {call_table} of the call table, and this daemon knows {CALL_TABLE_VERSION}: start a \
                 daemon of a newer release"
            ));
        }
        if self.flags & !(KNOWN | u64::MAX << CALL_TABLE_SHIFT) != 0 {
            return Err("it has facts that only a newer release knows".to_owned());
        }
        Ok(call_table)
    }
}

/// A library of NVIDIA.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Library {
    pub number: u32,
    pub major: u32,
}

/// [`Area::flags`].
pub const SHARED: u64 = 1;
pub const WRITABLE: u64 = 2;

/// An area of the window. Its guest memory follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Area {
    pub base: u64,
    pub bytes: u64,
    pub tag: u64,
    pub flags: u64,
}

/// A registration with the GPU.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Registration {
    pub base: u64,
    pub bytes: u64,
    pub context: u64,
    pub dptr: u64,
}

/// A range that a GPU address may lie in.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Range {
    pub base: u64,
    pub bytes: u64,
    /// An index of [`ORIGINS`].
    pub origin: u32,
    /// Its device.
    pub device: u32,
    pub context: u64,
    pub serial: u64,
}

/// The origins of ranges that go to another worker.
pub const ORIGINS: [Origin; 5] =
    [Origin::Allocated, Origin::HostWindow, Origin::ReadOnlyWindow, Origin::Mapped, Origin::Opened];

/// Memory or an event that was offered to other processes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Offered {
    /// [`Offer::what`](vhost_cuda_common::exchange::Offer::what).
    pub what: u64,
    /// Its address or name.
    pub name: u64,
    /// The name of its context.
    pub context: u64,
    /// The token of the offer.
    pub token: Token,
}

/// Retains of the primary context of a device. There is a row for each device, in their order.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Retains {
    pub number: u32,
    pub flags: u32,
}

/// The time of an event, in milliseconds of the host's clock.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Time {
    pub event: u64,
    pub at: f64,
}

/// The position of a lane.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Lane {
    pub lane: u64,
    pub position: u64,
}

/// [`Thread::flags`]: it has a lane, an error that has not been reported, and a lane that says so.
pub const HAS_LANE: u32 = 1;
pub const HAS_DEFERRED: u32 = 2;
pub const SAYS_DEFERRED: u32 = 4;

/// A guest thread. The requests that wait for its lane follow ([`Waiting`]), and the two logs of the compiler.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Thread {
    pub number: u32,
    pub flags: u32,
    pub deferred: i32,
    pub lane: u32,
    pub tag: u64,
    pub consumed: u64,
    pub replied: u64,
    pub waits: u32,
    pub info_bytes: u32,
    pub error_bytes: u32,
    pub wall_time: f32,
    pub threads_per_block: u32,
    pub reserved: u32,
}

/// A request that waits for a position of a lane.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Waiting {
    pub request: u64,
    pub replied: u64,
    pub consumed: u64,
}

/// The head of text that code has printed, which follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Text {
    /// The file descriptor to which it was printed: 1 or 2.
    pub fd: u64,
}

/// The head of a piece of memory's digests, which follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Digests {
    pub address: u64,
}

/// The host that a session leaves with its machine. Devices of another kind have other properties than its program has seen.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Host {
    /// The time when it stopped, in milliseconds of the host's clock.
    pub stopped_at: f64,
    /// The name of its device, with zeros behind it.
    pub device: [u8; 64],
}

/// The head of the devices that a session sees. Their names follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Devices {
    /// A bit for each one that it uses.
    pub used: u64,
}

/// Returns the names of the devices that a session sees, with zeros behind each.
///
/// Errors: the driver's.
pub fn names(session: &SessionState) -> io::Result<Vec<[u8; 64]>> {
    let name = |number| {
        let name = session.device(number).and_then(|device| name_of(&session.gpu, device));
        let name = name.map_err(|error| malformed(&error.to_string()))?;
        let mut shortened = [0; 64];
        shortened.copy_from_slice(&name[..64]);
        Ok(shortened)
    };
    (0..session.devices.len() as u32).map(name).collect()
}

impl Host {
    /// Describes this host.
    ///
    /// Errors: the driver's.
    pub fn of(session: &SessionState, stopped_at: f64) -> io::Result<Self> {
        let device = names(session)?.first().copied().ok_or_else(|| malformed("there is no device"))?;
        Ok(Self { stopped_at, device })
    }

    /// Returns the name of its device.
    pub fn device(&self) -> String {
        let name = self.device.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).escape_default().to_string()
    }
}
