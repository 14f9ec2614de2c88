// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drops the rights of a process.

use std::io;

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// Returns whether this kernel has Landlock.
pub fn files_can_be_bounded() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    rules.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

/// Drops all capabilities permanently, so that exec does not restore any.
pub fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    // The kernel knows fewer capabilities. The first unknown number ends the list.
    for capability in 0..64 {
        // SAFETY: plain system call. It fails without CAP_SETPCAP, and then there is nothing to lose: exec gives
        // nothing to a process without new privileges but what is in the sets that are emptied below.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
            break;
        }
    }
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
