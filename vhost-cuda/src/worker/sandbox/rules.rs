// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls that a worker may make once it serves a session.

use libc::c_long;

/// Calls of the emulator and of the worker itself, with any arguments. They open no file, start no process and create
/// no socket. `filter` adds calls for which only some arguments are allowed.
pub const COMMON: &[c_long] = &[
    // Memory, including executable memory, because the emulator may translate kernels.
    libc::SYS_brk,
    libc::SYS_ftruncate,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munmap,
    // Existing descriptors: the daemon's sockets, output of device code, memory that the daemon passed.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
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
    // Threads and time. `clone` creates threads only (see `filter`).
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
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
    libc::SYS_sysinfo,
    libc::SYS_time,
    libc::SYS_uname,
];

/// Further calls of NVIDIA's driver library: it opens device nodes and its compilers, and talks to other CUDA
/// processes over local sockets. None of them accesses a process by its id.
pub const GPU: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_get_mempolicy,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getppid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_getuid,
    libc::SYS_listen,
    libc::SYS_lstat,
    libc::SYS_mbind,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_pselect6,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_select,
    libc::SYS_set_mempolicy,
    libc::SYS_setsockopt,
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
];

/// Calls that change folders. They are allowed only where the worker's file system is restricted by other means:
/// NVIDIA's library removes the shared memory of its events, and keeps a cache of compiled code if allowed.
pub const FOLDERS: &[c_long] = &[
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
];

/// Calls that change the permissions of open files. They are allowed only in a root of its own, where all but shared
/// memory is read-only. Elsewhere a worker of root could make the host's device nodes inaccessible to all users.
pub const RIGHTS: &[c_long] = &[libc::SYS_fchmod];

/// Calls of NCCL's sockets besides those of [`GPU`].
pub const NETWORK: &[c_long] =
    &[libc::SYS_getpeername, libc::SYS_getpriority, libc::SYS_recvmmsg, libc::SYS_sendmmsg];

/// System calls that fail like a missing file where they are not allowed. Libraries try them and continue without.
pub const REFUSED: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_lstat,
    libc::SYS_mremap,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_socket,
    libc::SYS_stat,
];
