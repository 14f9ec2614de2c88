// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls of threads that read bytes of others, in the daemon (`confine::threads`) and in workers (`sandbox`). They are
//! listed in one place, so that a call which a new C library makes is added once.

use libc::c_long;

/// System calls with any arguments: memory that is not executable, descriptors that are open, threads and time. They open no
/// file, start no process and create no socket.
pub const COMMON: &[c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_ftruncate,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Descriptors that are open: sockets, output of device code, memory that was passed.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    // Threads and time. `clone` is allowed for [`THREAD`] only.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_membarrier,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
];

/// The `clone` flags that create a thread instead of a process.
pub const THREAD: u64 = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;
/// The `prctl` operation that names memory for `/proc/PID/maps`. `libc` does not define it.
const PR_SET_VMA: u64 = 0x5356_4d41;
/// `prctl` operations for names of threads and of memory. Excluded: the signal at the parent's death, core files.
pub const NAMES: [u64; 3] = [libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA];
