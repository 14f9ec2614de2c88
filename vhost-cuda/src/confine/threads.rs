// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Confines the daemon's own threads that read the bytes of guests and of workers.
//!
//! The daemon as a whole starts processes, mounts file systems and opens sockets. None of these threads does: queues
//! ([`crate::front_end`]), replies of workers ([`crate::sessions`]), their questions ([`crate::cache`],
//! [`crate::exchange`]), their messages, and the state of a migrated device. So each of them gives up all other system
//! calls and all files before it reads the first byte, and so do the threads that it starts. Calls that they need from
//! outside are made by another thread ([`outside`]).
//!
//! All threads have one memory: against foreign code in the daemon this is no wall, only a longer way.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError,
};
use libc::c_long;
use log::warn;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use vhost_cuda_common::args::Sandbox;
use vhost_cuda_common::confine::{calls, listener};

/// Further system calls of these threads, with any arguments. [`allowed`] adds calls for which only some arguments are allowed.
const FURTHER: &[c_long] = &[
    // Descriptors that the daemon has, and those that workers send.
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_wait,
    libc::SYS_fcntl,
    libc::SYS_fstatfs,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_splice,
    // The ends of workers.
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// The `prctl` operation for the timers of threads.
const TIMERS: u64 = libc::PR_SET_TIMERSLACK as u64;
/// Commands of descriptors: bytes that were not read or not taken yet, and nonblocking mode.
const COMMANDS: [u64; 3] = [libc::TIOCOUTQ, libc::FIONREAD, libc::FIONBIO];
/// The sign of a process id: it is the number of a process group.
const GROUP: u64 = 1 << 31;
/// All processes of the user, for `kill`.
const EVERYBODY: u64 = 0xffff_ffff;

/// The restrictions of a thread.
#[derive(Debug, Default)]
struct Restrictions {
    /// True if it gets no files by Landlock.
    without_files: bool,
    /// Its filters of system calls, in the order in which they are applied. The strictest result of all counts.
    programs: Vec<BpfProgram>,
}

/// The restrictions that [`read_foreign_bytes`] applies. Not set outside of the daemon.
static RESTRICTIONS: OnceLock<Restrictions> = OnceLock::new();
/// The thread of [`outside`].
static OUTSIDE: OnceLock<Sender<Job>> = OnceLock::new();

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static IS_CONFINED: Cell<bool> = const { Cell::new(false) };
}

/// Makes [`read_foreign_bytes`] confine threads from now on, unless `sandbox` is off. Called once per process.
pub fn start(sandbox: Sandbox) -> anyhow::Result<()> {
    let restrictions = Restrictions::of(sandbox)?;
    let (sender, jobs) = channel::<Job>();
    thread::Builder::new().name("outside".into()).spawn(move || jobs.iter().for_each(|job| job()))?;
    let _ = OUTSIDE.set(sender);
    let _ = RESTRICTIONS.set(restrictions);
    Ok(())
}

/// Confines the calling thread, and the threads that it will start, before it reads bytes of a guest or a worker.
pub fn read_foreign_bytes() {
    if IS_CONFINED.get() {
        return;
    }
    IS_CONFINED.set(true);
    let Some(restrictions) = RESTRICTIONS.get() else { return };
    if let Err(error) = restrictions.apply() {
        static SAID: OnceLock<()> = OnceLock::new();
        SAID.get_or_init(|| {
            warn!("threads of the daemon that read a guest's bytes are not confined: {error:#}")
        });
    }
}

/// Runs `job` in a thread that is not confined. Does not wait for it.
pub fn outside(job: impl FnOnce() + Send + 'static) {
    match OUTSIDE.get() {
        // The thread lives as long as the process.
        Some(outside) => drop(outside.send(Box::new(job))),
        None => job(),
    }
}

/// Runs `work` in a thread that is not confined, and waits for it. `None` if there is no thread.
pub fn ask_outside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, result) = channel();
    outside(move || {
        // Jobs of others wait for the thread of `outside`, so the work has one of its own.
        let _ = thread::Builder::new().name("outside-work".into()).spawn(move || sender.send(work()));
    });
    result.recv().ok()
}

impl Restrictions {
    fn of(sandbox: Sandbox) -> Result<Self, BackendError> {
        let (without_files, refusal) = match sandbox {
            Sandbox::Off => return Ok(Self::default()),
            Sandbox::Log => (false, SeccompAction::Log),
            // The daemon serves others meanwhile, so a call that a C library makes unexpectedly must not end it.
            Sandbox::Auto | Sandbox::Seccomp | Sandbox::Refuse => {
                (true, SeccompAction::Errno(libc::EPERM as u32))
            }
        };
        Ok(Self { without_files, programs: programs(refusal)?.into() })
    }

    /// Restricts the calling thread.
    fn apply(&self) -> anyhow::Result<()> {
        if self.without_files {
            without_files()?;
        }
        for program in &self.programs {
            seccompiler::apply_filter(program)?;
        }
        Ok(())
    }
}

/// Denies the calling thread all files and all ports by Landlock, where the kernel has it.
fn without_files() -> Result<(), RulesetError> {
    let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let rules =
        rules.handle_access(AccessFs::from_all(ABI::V6))?.handle_access(AccessNet::from_all(ABI::V6))?;
    rules.create()?.set_compatibility(CompatLevel::BestEffort).restrict_self().map(drop)
}

fn programs(refusal: SeccompAction) -> Result<[BpfProgram; 2], BackendError> {
    let program = |rules, otherwise, matched| -> Result<BpfProgram, BackendError> {
        SeccompFilter::new(rules, otherwise, matched, TargetArch::x86_64)?.try_into()
    };
    let mut rules = allowed()?;
    rules.insert(libc::SYS_clone3, Vec::new());
    // The C library falls back to `clone`, whose flags can be checked.
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([
        program(newer, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?,
        program(rules, refusal, SeccompAction::Allow)?,
    ])
}

fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls::COMMON.iter().chain(FURTHER).map(|&number| (number, Vec::new())).collect();
    rules.insert(
        libc::SYS_clone,
        vec![rule(vec![condition(0, Qword, MaskedEq(calls::THREAD), calls::THREAD)?])?],
    );
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        let executable = libc::PROT_EXEC as u64;
        rules.insert(number, vec![rule(vec![condition(2, Dword, MaskedEq(executable), 0)?])?]);
    }
    rules.insert(libc::SYS_prctl, [one_of(0, &calls::NAMES)?, one_of(0, &[TIMERS])?].concat());
    rules.insert(libc::SYS_ioctl, one_of(1, &[&COMMANDS[..], &listener::COMMANDS].concat())?);
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![rule(vec![condition(0, Dword, Eq, own)?])?]);
    // A worker is a process group. `kill` takes its negative number.
    let kill = vec![
        condition(0, Dword, MaskedEq(GROUP), GROUP)?,
        condition(0, Dword, Ne, EVERYBODY)?,
        condition(1, Dword, Eq, libc::SIGKILL as u64)?,
    ];
    rules.insert(libc::SYS_kill, vec![rule(kill)?]);
    Ok(rules)
}

/// Returns rules for an argument with one of these values.
fn one_of(index: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    values.iter().map(|&value| rule(vec![condition(index, Dword, Eq, value)?])).collect()
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions)
}

fn condition(
    index: u8,
    bytes: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, bytes, compare, value)
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::files;

    use super::*;
    use std::fs::File;
    use std::io;
    use std::io::ErrorKind::PermissionDenied;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use crate::cache;

    /// Runs `work` in a confined thread.
    fn confined<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let run = || {
            Restrictions::of(Sandbox::Auto).unwrap().apply().unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    /// Makes a system call that must be refused.
    fn refused(what: &str, number: c_long, arguments: [u64; 6]) {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the filter answers in place of the kernel. If it does not, the arguments below harm nothing.
        let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
        assert_eq!((result, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)), "{what}");
    }

    #[test]
    fn a_confined_thread_opens_and_starts_nothing() {
        confined(|| {
            assert_eq!(File::open("/dev/null").unwrap_err().kind(), PermissionDenied);
            assert_eq!(Command::new("/bin/true").spawn().unwrap_err().kind(), PermissionDenied);
            let local = libc::AF_UNIX as u64;
            refused("a socket", libc::SYS_socket, [local, libc::SOCK_STREAM as u64, 0, 0, 0, 0]);
            refused("a process", libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]);
            refused("a program", libc::SYS_execve, [0; 6]);
            refused("a debugger", libc::SYS_ptrace, [libc::PTRACE_TRACEME.into(), 0, 0, 0, 0, 0]);
            refused("another's descriptor", libc::SYS_pidfd_getfd, [u64::MAX, 0, 0, 0, 0, 0]);
            refused("another's memory", libc::SYS_process_vm_readv, [0; 6]);
            refused("a namespace", libc::SYS_unshare, [0; 6]);
            refused("a mount", libc::SYS_umount2, [0; 6]);
            refused("a removed folder", libc::SYS_rmdir, [0; 6]);
            refused("a filter", libc::SYS_seccomp, [u64::MAX, 0, 0, 0, 0, 0]);
            let (pages, code) = (4096, libc::PROT_READ | libc::PROT_EXEC);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            refused("code", libc::SYS_mmap, [0, pages, code as u64, flags as u64, u64::MAX, 0]);
            // Signal 0 only asks whether a signal may be sent.
            let own = u64::from(std::process::id());
            for target in [own, EVERYBODY, 1, 0, own.wrapping_neg()] {
                refused("a signal", libc::SYS_kill, [target, 0, 0, 0, 0, 0]);
            }
        });
    }

    #[test]
    fn a_confined_thread_does_its_work() {
        let mut worker = Command::new("/bin/sleep").arg("60").process_group(0).spawn().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        confined(|| {
            let file = files::memory_file(c"confined").unwrap();
            file.set_len(4096).unwrap();
            file.write_all_at(b"bytes", 1).unwrap();
            assert!(file.metadata().unwrap().len() == 4096 && file.try_clone().is_ok());
            // To tell huge pages from others.
            assert!(rustix::fs::fstatfs(&file).is_ok());
            for command in listener::COMMANDS {
                // SAFETY: the file is no listener, so that nothing is read or written.
                unsafe { libc::ioctl(file.as_raw_fd(), command, 0) };
                assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOTTY));
            }
            files::write_with(&one, b"bytes", Some(&file)).unwrap();
            one.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
            let mut bytes = [0; 5];
            assert!(cache::read_with(&other, &mut bytes).unwrap().unwrap().is_some());
            let thread = thread::Builder::new().name("inner".into());
            let inner = thread.spawn(|| File::open("/dev/null").is_err()).unwrap();
            assert!(inner.join().unwrap(), "a thread of a confined one is confined");
            drop(vec![1_u8; 64 << 20]);
            let group = -(worker.id() as i32);
            // SAFETY: the group is that of the child, which was not reaped.
            assert_eq!(unsafe { libc::kill(group, libc::SIGKILL) }, 0);
            assert_eq!(worker.wait().unwrap().signal(), Some(libc::SIGKILL));
        });
        assert!(File::open("/dev/null").is_ok(), "other threads are not confined");
    }

    #[test]
    fn landlock_denies_files_without_the_filter() {
        if !vhost_cuda_common::confine::rights::files_can_be_bounded() {
            return;
        }
        let open = || {
            without_files().unwrap();
            ["/etc/passwd", "/proc/self/maps", "/dev/null", "/"]
                .map(|path| File::open(path).map_err(|error| error.kind()).err())
        };
        assert_eq!(thread::spawn(open).join().unwrap(), [Some(PermissionDenied); 4]);
    }

    #[test]
    fn jobs_run_outside_of_confined_threads() {
        // Without a daemon: in the calling thread.
        let (done, result) = channel();
        outside(move || done.send(File::open("/dev/null").is_ok()).unwrap());
        assert!(result.recv().unwrap());
    }
}
