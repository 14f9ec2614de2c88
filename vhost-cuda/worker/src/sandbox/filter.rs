// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the rules to programs for the kernel (seccomp).

use std::collections::BTreeMap;
use std::path::Path;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use vhost_cuda_common::args::Sandbox;
use vhost_cuda_common::confine::calls;

use super::{Bounds, ioctls, rules};

/// `prctl` operations for the timers of threads that NVIDIA's library starts.
const TIMERS: [u64; 2] = [libc::PR_SET_TIMERSLACK as u64, libc::PR_GET_TIMERSLACK as u64];

/// `fcntl` commands with any argument. Excluded: owners of descriptors and their signals (the kernel would send them
/// to any process of the same user), leases, notifications of folders and locks.
const DESCRIPTORS: [libc::c_int; 7] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// The `fallocate` mode that frees memory without growing or shrinking the file.
const GIVE_BACK: libc::c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// Commands of other descriptors: `isatty`, bytes to read, nonblocking mode. Excluded: `FIOASYNC`, `FIOSETOWN`.
const OTHERS: [u64; 3] = [libc::TCGETS, libc::FIONREAD, libc::FIONBIO];

/// The `open` flags that create or truncate a file.
const MAKES_FILES: u64 = (libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u64;
/// The bits of a socket's type that are not flags.
const SOCKET_TYPE: u64 = 0xf;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the programs to apply, in this order. The strictest result of all programs counts.
pub fn programs(sandbox: Sandbox, emulated: bool, bounds: Bounds) -> Result<Vec<BpfProgram>, BackendError> {
    let allowed = allowed(emulated, bounds)?;
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
    // Other releases of NVIDIA's library may make other calls. Most programs tolerate a refused one.
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

fn allowed(emulated: bool, bounds: Bounds) -> Result<Rules, BackendError> {
    let gpu: &[_] = if emulated { &[] } else { rules::GPU };
    let folders: &[_] = if !emulated && bounds.files { rules::FOLDERS } else { &[] };
    let rights: &[_] = if !emulated && bounds.root { rules::RIGHTS } else { &[] };
    let lists = [calls::COMMON, rules::WORKER, gpu, folders, rights];
    let mut rules: Rules = lists.into_iter().flatten().map(|&number| (number, Vec::new())).collect();
    rules.insert(libc::SYS_clone, vec![argument(0, Qword, MaskedEq(calls::THREAD), calls::THREAD)?]);
    // Signals to itself, for `abort`.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![argument(0, Dword, Eq, own)?]);
    // Limits can be read, but not changed.
    rules.insert(libc::SYS_prlimit64, vec![argument(2, Qword, Eq, 0)?]);
    rules.insert(libc::SYS_prctl, one_of(0, &calls::NAMES)?);
    let mut fcntl = one_of(1, &DESCRIPTORS.map(|command| command as u64))?;
    fcntl.push(SeccompRule::new(vec![
        SeccompCondition::new(1, Dword, Eq, libc::F_SETFL as u64)?,
        SeccompCondition::new(2, Dword, MaskedEq(libc::O_ASYNC as u64), 0)?,
    ])?);
    rules.insert(libc::SYS_fcntl, fcntl);
    rules.insert(libc::SYS_fallocate, one_of(1, &[GIVE_BACK as u64])?);
    if bounds.named_pages {
        // It would extend a mapping of one page of guest memory to all following pages. C libraries work without it.
        rules.remove(&libc::SYS_mremap);
    }
    if emulated {
        return Ok(rules);
    }
    rules.insert(libc::SYS_prctl, [one_of(0, &calls::NAMES)?, one_of(0, &TIMERS)?].concat());
    rules.insert(libc::SYS_ioctl, commands()?);
    write_or_execute(&mut rules)?;
    // Both take a process id, with 0 for the caller.
    rules.insert(libc::SYS_move_pages, one_of(0, &[0])?);
    rules.insert(libc::SYS_sched_setaffinity, one_of(0, &[0])?);
    // libcuda passes files to other processes over sockets of this type, on which hardly any service of a host
    // listens.
    let local = SeccompCondition::new(0, Dword, Eq, libc::AF_UNIX as u64)?;
    let of_type = |kind: libc::c_int| SeccompCondition::new(1, Dword, MaskedEq(SOCKET_TYPE), kind as u64);
    let packets = SeccompRule::new(vec![local.clone(), of_type(libc::SOCK_SEQPACKET)?])?;
    let stream = SeccompRule::new(vec![local, of_type(libc::SOCK_STREAM)?])?;
    let mut sockets = vec![packets.clone()];
    if bounds.sockets {
        sockets.extend(of_nccl()?);
        // NCCL allocates all pages of a file of shared memory.
        rules.insert(libc::SYS_fallocate, one_of(1, &[GIVE_BACK as u64, 0])?);
        rules.extend(rules::NETWORK.iter().map(|&number| (number, Vec::new())));
    }
    rules.insert(libc::SYS_socket, sockets);
    // A pair of datagram sockets could send to any address.
    rules.insert(libc::SYS_socketpair, vec![packets, stream]);
    for (number, flags) in [(libc::SYS_open, 1), (libc::SYS_openat, 2)] {
        let existing = vec![argument(flags, Dword, MaskedEq(MAKES_FILES), 0)?];
        rules.insert(number, if bounds.files { Vec::new() } else { existing });
    }
    Ok(rules)
}

/// The sockets that NCCL creates: its ranks meet over TCP and pass files to each other over local datagrams, and the
/// C library queries the kernel for the interfaces.
fn of_nccl() -> Result<Vec<SeccompRule>, BackendError> {
    let kinds = [
        (libc::AF_INET, libc::SOCK_STREAM),
        (libc::AF_INET6, libc::SOCK_STREAM),
        (libc::AF_UNIX, libc::SOCK_DGRAM),
        (libc::AF_NETLINK, libc::SOCK_RAW),
    ];
    let rule = |(family, kind): (libc::c_int, libc::c_int)| {
        let mut conditions = vec![
            SeccompCondition::new(0, Dword, Eq, family as u64)?,
            SeccompCondition::new(1, Dword, MaskedEq(SOCKET_TYPE), kind as u64)?,
        ];
        if family == libc::AF_NETLINK {
            conditions.push(SeccompCondition::new(2, Dword, Eq, libc::NETLINK_ROUTE as u64)?);
        }
        SeccompRule::new(conditions)
    };
    kinds.into_iter().map(rule).collect()
}

/// The `ioctl` commands that NVIDIA's library may use.
fn commands() -> Result<Vec<SeccompRule>, BackendError> {
    let mut commands = one_of(1, &ioctls::UVM)?;
    commands.extend(one_of(1, &OTHERS)?);
    for command in ioctls::of_gpus() {
        commands.push(argument(1, Dword, MaskedEq(ioctls::NUMBER_BITS), command)?);
    }
    for kind in ioctls::of_other_nodes(|node| Path::new(node).exists()) {
        commands.push(argument(1, Dword, MaskedEq(ioctls::TYPE_BITS), kind)?);
    }
    Ok(commands)
}

/// Inserts rules by which no memory is written and executed, at once or one after the other: libraries are mapped from files, and
/// NVIDIA's has no code of its own making. (A worker can still make a file in memory and map that.)
fn write_or_execute(rules: &mut Rules) -> Result<(), BackendError> {
    let (write, execute) = (libc::PROT_WRITE as u64, libc::PROT_EXEC as u64);
    let never = |index: u8, bits: u64| SeccompCondition::new(index, Dword, MaskedEq(bits), 0);
    let of_file = SeccompRule::new(vec![never(2, write)?, never(3, libc::MAP_ANONYMOUS as u64)?])?;
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![never(2, execute)?])?, of_file]);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![never(2, execute)?])?]);
    Ok(())
}

/// Returns rules for an argument with one of these values.
fn one_of(index: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    values.iter().map(|&value| argument(index, Dword, Eq, value)).collect()
}

fn argument(
    index: u8,
    bytes: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, bytes, compare, value)?])
}
