// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules as programs for the kernel (seccomp).

use std::collections::BTreeMap;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::rules;
use crate::args::Sandbox;

/// `clone` flags that make a thread, and not a process.
const THREAD: u64 = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;
/// `prctl` that names memory for `/proc/PID/maps`; `libc` has no name for it.
const PR_SET_VMA: u64 = 0x5356_4d41;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The programs to apply, in this order. The sternest answer of all programs counts.
pub fn programs(sandbox: Sandbox, emulated: bool) -> Result<Vec<BpfProgram>, BackendError> {
    let allowed = allowed(emulated)?;
    if sandbox == Sandbox::Log {
        return Ok(vec![program(allowed, SeccompAction::Log, SeccompAction::Allow)?]);
    }
    let refused: Rules = rules::REFUSED
        .iter()
        .filter(|number| !allowed.contains_key(number))
        .map(|&number| (number, Vec::new()))
        .collect();
    // The C library falls back to `clone`, whose flags can be checked.
    let newer = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let known = [&allowed, &refused, &newer].into_iter().flat_map(Clone::clone).collect();
    let errno = |number: i32| SeccompAction::Errno(number as u32);
    // Other releases of NVIDIA's library may make other calls: most programs bear being refused one.
    let unknown = if sandbox == Sandbox::Refuse { errno(libc::EPERM) } else { SeccompAction::Trap };
    Ok(vec![
        program(refused, SeccompAction::Allow, errno(libc::EACCES))?,
        program(newer, SeccompAction::Allow, errno(libc::ENOSYS))?,
        program(known, unknown, SeccompAction::Allow)?,
    ])
}

fn program(
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, otherwise, matched, TargetArch::x86_64)?.try_into()
}

fn allowed(emulated: bool) -> Result<Rules, BackendError> {
    let more: &[_] = if emulated { &[] } else { rules::GPU };
    let mut rules: Rules = rules::COMMON.iter().chain(more).map(|&number| (number, Vec::new())).collect();
    rules.insert(libc::SYS_clone, vec![argument(0, Qword, MaskedEq(THREAD), THREAD)?]);
    // Signals to itself: `abort`.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![argument(0, Dword, Eq, own)?]);
    // To look at limits, not to change them.
    rules.insert(libc::SYS_prlimit64, vec![argument(2, Qword, Eq, 0)?]);
    if emulated {
        let names = [libc::PR_SET_NAME as u64, PR_SET_VMA];
        let names = names.into_iter().map(|name| argument(0, Dword, Eq, name));
        rules.insert(libc::SYS_prctl, names.collect::<Result<_, _>>()?);
    } else {
        rules.insert(libc::SYS_prctl, Vec::new());
        rules.insert(libc::SYS_socket, vec![argument(0, Dword, Eq, libc::AF_UNIX as u64)?]);
    }
    Ok(rules)
}

fn argument(
    index: u8,
    bytes: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, bytes, compare, value)?])
}
