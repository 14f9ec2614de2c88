// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls that a worker may make once it serves a session.

use libc::c_long;

/// Calls of the emulator and of the worker itself besides [`vhost_cuda_common::confine::calls::COMMON`], with any arguments. `filter` adds calls for which only some
/// arguments are allowed.
pub const WORKER: &[c_long] = &[
    // Memory, including executable memory, because the emulator may translate kernels.
    libc::SYS_mincore,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_msync,
    // Descriptors that are open.
    libc::SYS_newfstatat,
    // Threads and time.
    libc::SYS_getrusage,
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
