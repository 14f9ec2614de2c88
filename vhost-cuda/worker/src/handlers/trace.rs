// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings for profilers ([`crate::profile`]).

use crate::call::CallContext;
use crate::gpu::CuResult;

/// Begins to record a process of the same user.
pub fn profile_start(cx: &mut CallContext<'_>, pid: u32) -> CuResult<()> {
    let session = cx.session;
    session.profile.relay.start(|| session.sharing.record(pid))
}
