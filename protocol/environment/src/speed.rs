// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One switch for all that only makes the guest's calls faster: calls that are not waited for, memory, pages and answers that are
//! kept for reuse, and managed memory that moves. Results are the same without it.

use std::sync::OnceLock;

/// `off` turns it off; `queues` also turns off lanes, so that all calls go through the request queues.
pub const VARIABLE: &str = "VIRTIO_CUDA_SPEED";

/// Returns whether it is on in this process.
pub fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os(VARIABLE).is_none_or(|value| value != "off" && value != "queues"))
}

/// Returns whether calls may go through lanes.
pub fn has_lanes() -> bool {
    std::env::var_os(VARIABLE).is_none_or(|value| value != "queues")
}
