// SPDX-License-Identifier: GPL-2.0-only

//! Limits of driver and device: module parameters and configuration space.

use crate::{
    linux::{
        bindings as glue,
        chunks::PIECE_BYTES, //
    },
    transport::{
        Config,
        MemEntry,
        Open,
        MAX_REQUEST_QUEUES,
        PAGE_BYTES, //
    },
    uapi, //
};
use core::cmp::{
    max,
    min, //
};
use kernel::prelude::*;

/// Maximum payload that the driver accepts, whatever the device offers. Limits kernel memory per request.
const MAX_PAYLOAD_BYTES: u32 = 1 << 20;
/// Maximum buffer size of one call. Limits the time with `mmap_lock` held and the length of page lists.
const MAX_BULK_BYTES: u64 = 1 << 30;
/// Maximum number of sessions. Limits the size of the driver's table.
const MAX_SESSIONS: u32 = 4096;
/// Maximum number of outstanding calls per file. Limits the size of the driver's table.
const MAX_OUTSTANDING: u32 = 1024;
/// Minimum bytes of pages that one piece of an entry list can describe.
const BULK_PER_PIECE: u64 = (PIECE_BYTES / size_of::<MemEntry>()) as u64 * PAGE_BYTES;

/// Limits that the administrator sets for one file, one user and all users.
pub(crate) struct Params {
    outstanding: u32,
    pinned_bytes: u64,
    shared_bytes: u64,
    /// 0: half of the device's limit.
    user_sessions: u32,
    user_pinned_bytes: u64,
    all_pinned_bytes: u64,
    memlock_is_strict: bool,
}

impl Params {
    /// Reads the module's parameters.
    pub(crate) fn of_module() -> Self {
        // SAFETY: The function only reads a counter of the kernel.
        let ram_bytes = unsafe { glue::virtio_cuda_ram_bytes() };
        // SAFETY: The pointer is that of a static in `glue/params.c`. Its parameters have mode 0, so sysfs does not
        // show them and nothing writes them once the module is loaded.
        let set = unsafe { &*glue::virtio_cuda_params() };
        let percent = |value: u32| ram_bytes / 100 * u64::from(min(value, 100));
        let pinned_bytes = match set.max_pinned_mib {
            0 => ram_bytes / 2,
            some => mib(some),
        };
        Self {
            outstanding: set.max_outstanding,
            pinned_bytes,
            shared_bytes: mib(set.max_shared_mib),
            user_sessions: set.max_user_sessions,
            user_pinned_bytes: percent(set.pinned_per_user_percent),
            all_pinned_bytes: percent(set.pinned_percent),
            memlock_is_strict: set.memlock_strict != 0,
        }
    }
}

fn mib(value: u64) -> u64 {
    value.saturating_mul(1 << 20)
}

/// Limits of one device, of each of its files and of each of its users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) request_queues: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) bulk_bytes: u64,
    pub(crate) sessions: u32,
    pub(crate) user_sessions: u32,
    pub(crate) outstanding: u32,
    pub(crate) pinned_bytes: u64,
    pub(crate) shared_bytes: u64,
    /// The limit for all files of one user. Memory that the device keeps and memory that it uses during a request are
    /// counted separately.
    pub(crate) user_pinned_bytes: u64,
    /// The limit of memory that the device keeps for all users together.
    pub(crate) all_pinned_bytes: u64,
    /// If set, `RLIMIT_MEMLOCK` alone limits the pinned memory that is kept for a user.
    pub(crate) memlock_is_strict: bool,
}

impl Limits {
    /// Combines the limits of device and administrator. `EINVAL`: the device's configuration is invalid.
    pub(crate) fn new(config: &Config, params: &Params) -> Result<Self> {
        if !(1..=MAX_REQUEST_QUEUES).contains(&config.num_request_queues)
            || (config.max_payload_bytes as usize) < size_of::<Open>()
            || config.max_sessions == 0
            || config.max_outstanding == 0
        {
            return Err(EINVAL);
        }
        let outstanding = params.outstanding.clamp(1, MAX_OUTSTANDING);
        let sessions = min(config.max_sessions, MAX_SESSIONS);
        let user_sessions = match params.user_sessions {
            0 => max(sessions / 2, 1),
            some => min(some, sessions),
        };
        Ok(Self {
            request_queues: config.num_request_queues,
            payload_bytes: min(config.max_payload_bytes, MAX_PAYLOAD_BYTES),
            bulk_bytes: min(config.max_bulk_bytes, MAX_BULK_BYTES),
            sessions,
            user_sessions,
            outstanding: min(config.max_outstanding, outstanding),
            pinned_bytes: params.pinned_bytes,
            shared_bytes: params.shared_bytes,
            user_pinned_bytes: params.user_pinned_bytes,
            all_pinned_bytes: params.all_pinned_bytes,
            memlock_is_strict: params.memlock_is_strict,
        })
    }

    /// Reduces the buffer size of a call so that each possible request fits into a ring of `entries` descriptors.
    /// `EINVAL`: the ring is too small for any request.
    pub(crate) fn fit_ring(&mut self, entries: u32) -> Result {
        // Payload and reply, each with one more piece for its header and the remainder of a piece.
        let fixed = 2 * (self.payload_bytes.div_ceil(PIECE_BYTES as u32) + 1);
        let pieces = entries.checked_sub(fixed).ok_or(EINVAL)? / 2;
        let bulk = u64::from(pieces) * BULK_PER_PIECE;
        // A buffer that begins inside a page touches one more page.
        self.bulk_bytes = min(self.bulk_bytes, bulk.saturating_sub(PAGE_BYTES));
        Ok(())
    }

    /// Returns the reply to `VIRTIO_CUDA_INFO`.
    pub(crate) fn info(&self) -> uapi::Info {
        uapi::Info {
            protocol_version: crate::transport::PROTOCOL_VERSION,
            max_payload_bytes: self.payload_bytes,
            max_bulk_bytes: self.bulk_bytes,
            max_pinned_bytes: min(self.pinned_bytes, self.user_pinned_bytes),
            max_outstanding: self.outstanding,
            reserved: 0,
        }
    }
}

#[kunit_tests(virtio_cuda_limits)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            magic: 0,
            protocol_version: 0,
            num_request_queues: 2,
            max_payload_bytes: 65536,
            max_bulk_bytes: 64 << 20,
            max_sessions: 16,
            max_outstanding: 8,
            status: 0,
            driver_version: 0,
            reserved: [0; 6],
        }
    }

    const PARAMS: Params = Params {
        outstanding: 64,
        pinned_bytes: 1 << 30,
        shared_bytes: 1 << 24,
        user_sessions: 0,
        user_pinned_bytes: 1 << 30,
        all_pinned_bytes: 1 << 31,
        memlock_is_strict: false,
    };

    #[test]
    fn the_smaller_limit_counts() -> Result {
        let limits = Limits::new(&config(), &PARAMS)?;
        assert_eq!(limits.outstanding, 8);
        assert_eq!(limits.payload_bytes, 65536);
        let mut large = config();
        large.max_payload_bytes = u32::MAX;
        large.max_bulk_bytes = u64::MAX;
        large.max_sessions = u32::MAX;
        large.max_outstanding = u32::MAX;
        let limits = Limits::new(&large, &PARAMS)?;
        assert_eq!(limits.payload_bytes, MAX_PAYLOAD_BYTES);
        assert_eq!(limits.bulk_bytes, MAX_BULK_BYTES);
        assert_eq!(limits.sessions, MAX_SESSIONS);
        assert_eq!(limits.outstanding, 64);
        let greedy = Params {
            outstanding: u32::MAX,
            ..PARAMS
        };
        let limits = Limits::new(&large, &greedy)?;
        assert_eq!(limits.outstanding, MAX_OUTSTANDING);
        Ok(())
    }

    #[test]
    fn a_user_gets_half_of_the_sessions_or_what_the_administrator_says() -> Result {
        let sessions = |max_sessions, user_sessions| {
            let config = Config {
                max_sessions,
                ..config()
            };
            let params = Params {
                user_sessions,
                ..PARAMS
            };
            Limits::new(&config, &params).map(|limits| limits.user_sessions)
        };
        assert_eq!(sessions(64, 0)?, 32);
        assert_eq!(sessions(1, 0)?, 1);
        assert_eq!(sessions(64, 48)?, 48);
        assert_eq!(sessions(64, 100)?, 64);
        Ok(())
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            Limits::new(&config, &PARAMS).is_err()
        };
        assert!(refused(|c| c.num_request_queues = 0));
        assert!(refused(|c| c.num_request_queues = 17));
        assert!(refused(|c| c.max_payload_bytes = 8));
        assert!(refused(|c| c.max_sessions = 0));
        assert!(refused(|c| c.max_outstanding = 0));
    }

    #[test]
    fn a_small_ring_shortens_the_buffers() -> Result {
        let mut limits = Limits::new(&config(), &PARAMS)?;
        limits.fit_ring(1024)?;
        assert_eq!(limits.bulk_bytes, 64 << 20);
        limits.fit_ring(16)?;
        // 16 - 2 * (2 + 1) = 10: five pieces for each list
        assert_eq!(limits.bulk_bytes, 5 * (8 << 20) - 4096);
        assert!(limits.fit_ring(4).is_err());
        Ok(())
    }
}
