// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the sandbox. Each case has a process of its own, because a process cannot leave the sandbox.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::thread;

use vhost_cuda_common::confine::rights::files_can_be_bounded;

use super::*;

/// Runs `work` in a forked child with the sandbox closed. Returns its exit status and its log.
fn closed(sandbox: Sandbox, emulated: bool, work: fn() -> i32) -> (i32, String) {
    closed_with(sandbox, emulated, work)
}

fn closed_with(sandbox: Sandbox, emulated: bool, work: impl FnOnce() -> i32) -> (i32, String) {
    closed_in(sandbox, emulated, |bounds| bounds, work)
}

fn closed_in(
    sandbox: Sandbox,
    emulated: bool,
    change: impl FnOnce(Bounds) -> Bounds,
    work: impl FnOnce() -> i32,
) -> (i32, String) {
    let mut ends = [0; 2];
    // SAFETY: `ends` is a local of two descriptors, both of which this process owns afterwards.
    let mut log = unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        std::fs::File::from_raw_fd(ends[0])
    };
    // SAFETY: the child only calls what works after a fork of a process with threads: it allocates, which glibc
    // allows, and ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        report_to(ends[1]);
        let status = match enter(sandbox, &Folders::default(), false)
            .map_err(anyhow::Error::from)
            .and_then(|bounds| close(sandbox, emulated, change(bounds)))
        {
            Ok(()) => work(),
            Err(_) => 99,
        };
        // SAFETY: does not return.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the write end is this function's; the child is waited for once.
    unsafe {
        libc::close(ends[1]);
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
    let mut said = String::new();
    log.read_to_string(&mut said).expect("the log");
    let status = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
    (status, said)
}

fn makes_threads() -> i32 {
    let mapped = thread::spawn(|| maps(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_ANONYMOUS, -1));
    i32::from(mapped.join().ok() != Some(true))
}

fn opens_a_file() -> i32 {
    let error = std::fs::File::open("/etc/passwd").err().and_then(|error| error.raw_os_error());
    error.unwrap_or(0)
}

fn connects() -> i32 {
    // SAFETY: plain system call.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    if socket < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(98) } else { 0 }
}

fn forks() -> i32 {
    // SAFETY: the system call itself: glibc's would run handlers.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

fn starts_a_program() -> i32 {
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: the path is a C string, the lists are empty.
    unsafe { libc::execve(c"/bin/true".as_ptr(), &raw const null, &raw const null) }
}

/// Returns `errno` after a system call that failed.
fn last_error(result: i32) -> i32 {
    if result < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(98) } else { 0 }
}

fn aborts() -> i32 {
    std::process::abort()
}

#[test]
fn threads_and_executable_memory_are_allowed() {
    for emulated in [true, false] {
        assert_eq!(closed(Sandbox::Seccomp, emulated, makes_threads), (0, String::new()));
    }
    let executes = || i32::from(!maps(libc::PROT_READ | libc::PROT_EXEC, libc::MAP_ANONYMOUS, -1));
    assert_eq!(closed(Sandbox::Seccomp, true, executes), (0, String::new()), "the emulator translates");
}

/// Maps four kilobytes. Returns whether that has failed.
fn maps(protection: libc::c_int, flags: libc::c_int, file: libc::c_int) -> bool {
    let flags = libc::MAP_PRIVATE | flags;
    // SAFETY: a new mapping that replaces nothing.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, file, 0) };
    at != libc::MAP_FAILED
}

#[test]
fn no_memory_of_a_worker_with_a_gpu_is_written_and_executed() {
    const ANONYMOUS: libc::c_int = libc::MAP_ANONYMOUS;
    let (read, write, execute) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    let program = File::open("/proc/self/exe").expect("this program");
    let allowed = || {
        let of_file = maps(read | execute, 0, program.as_raw_fd());
        i32::from(!(of_file && maps(read | write, ANONYMOUS, -1)))
    };
    assert_eq!(closed_with(Sandbox::Refuse, false, allowed).0, 0, "libraries are mapped from files");
    let refused = || {
        let page = 4096;
        // SAFETY: a new mapping that replaces nothing, whose rights only are changed.
        let changed = unsafe {
            let at =
                libc::mmap(std::ptr::null_mut(), page, read | write, libc::MAP_PRIVATE | ANONYMOUS, -1, 0);
            libc::mprotect(at, page, read | execute) == 0
        };
        let made = maps(read | execute, ANONYMOUS, -1)
            || maps(read | write | execute, ANONYMOUS, -1)
            || maps(read | write | execute, 0, program.as_raw_fd());
        i32::from(changed || made)
    };
    assert_eq!(closed_with(Sandbox::Refuse, false, refused).0, 0, "code that the worker has written");
    assert_eq!(closed_with(Sandbox::Refuse, true, refused).0, 1, "the emulator translates");
}

#[test]
fn commands_of_nvidias_nodes_are_listed() {
    let answer = |command: u64| {
        // SAFETY: there is no such descriptor, so nothing is read or written.
        closed_with(Sandbox::Refuse, false, || last_error(unsafe { libc::ioctl(-1, command, 0) })).0
    };
    // NV_ESC_RM_CONTROL and NV_ESC_CARD_INFO with sizes, UVM_INITIALIZE, UVM_FREE
    for command in [0xc020_462a, 0xca00_46c8, 0x3000_0001, 34] {
        assert_eq!(answer(command), libc::EBADF, "{command:#x}");
    }
    // A command within another one, UVM_TOOLS_READ_PROCESS_MEMORY and _WRITE_, the next numbers, types of nodes that are not there
    for command in [0xc010_46d3, 0xc010_4600, 62, 63, 0, 0xfff, 0xc010_6d00, 0xc010_4701, 0x5412] {
        assert_eq!(answer(command), libc::EPERM, "{command:#x}");
    }
    let nodes = |there: &'static str| ioctls::of_other_nodes(move |node| node == there).count();
    assert_eq!((nodes("/dev/dxg"), nodes("/dev/nvidia-modeset"), nodes("/dev/null")), (1, 1, 0));
}

#[test]
fn files_and_sockets_are_refused_with_an_error() {
    let refused = (libc::EACCES, String::new());
    assert_eq!(closed(Sandbox::Seccomp, true, opens_a_file), refused);
    assert_eq!(closed(Sandbox::Seccomp, true, connects), refused);
    assert_eq!(closed(Sandbox::Off, true, opens_a_file), (0, String::new()));
}

#[test]
fn the_list_for_gpus_opens_what_libraries_need_and_nothing_else() {
    let refused =
        |file: fn() -> i32| assert_eq!(closed(Sandbox::Seccomp, false, file), (libc::EACCES, String::new()));
    assert!(files_can_be_bounded(), "these tests need a kernel with Landlock");
    refused(opens_a_file);
    refused(|| opened(File::open("/run")));
    refused(|| opened(File::options().write(true).open("/proc/self/comm")));
    // Another process's files.
    refused(|| opened(File::open(format!("/proc/{}/status", std::os::unix::process::parent_id()))));
    refused(|| opened(File::create_new("/usr/made-by-a-worker")));
    refused(|| opened(std::fs::remove_file("/etc/ld.so.cache").and_then(|()| File::open("/"))));
    for file in [
        || opened(File::open("/proc/self/maps")),
        // NVIDIA's libraries ask for the machine and the driver.
        || opened(File::open("/proc/cpuinfo")),
        || opened(File::open("/proc/sys/kernel/osrelease")),
        || opened(File::options().write(true).open("/dev/null")),
        // NVIDIA's library names its threads, and does not start if it cannot.
        || opened(File::options().write(true).truncate(true).open("/proc/thread-self/comm")),
    ] {
        assert_eq!(closed(Sandbox::Seccomp, false, file), (0, String::new()));
    }
}

/// Returns the error of opening a file, or 0.
fn opened(result: io::Result<File>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().unwrap_or(97))
}

#[test]
fn nothing_reaches_another_process() {
    const F_SETSIG: i32 = 10;
    const FIOSETOWN: i32 = 0x8901;
    let calls = [
        ("the owner of a descriptor", libc::SYS_fcntl, [0, libc::F_SETOWN, 1]),
        ("its signal", libc::SYS_fcntl, [0, F_SETSIG, libc::SIGKILL]),
        ("signals", libc::SYS_fcntl, [0, libc::F_SETFL, libc::O_ASYNC]),
        ("leases", libc::SYS_fcntl, [0, libc::F_SETLEASE, libc::F_RDLCK]),
        ("the parent's death", libc::SYS_prctl, [libc::PR_SET_PDEATHSIG, 0, 0]),
        ("core files", libc::SYS_prctl, [libc::PR_SET_DUMPABLE, 1, 0]),
        ("descriptors", libc::SYS_pidfd_open, [1, 0, 0]),
        ("a signal", libc::SYS_kill, [1, 0, 0]),
        ("memory", libc::SYS_process_vm_readv, [1, 0, 0]),
        ("where it runs", libc::SYS_sched_setaffinity, [1, 0, 0]),
        ("an owner by ioctl", libc::SYS_ioctl, [0, FIOSETOWN, 0]),
        ("signals by ioctl", libc::SYS_ioctl, [0, libc::FIOASYNC as i32, 0]),
        ("datagrams", libc::SYS_socketpair, [libc::AF_UNIX, libc::SOCK_DGRAM, 0]),
        ("streams", libc::SYS_socket, [libc::AF_UNIX, libc::SOCK_STREAM, 0]),
    ];
    for (what, number, [first, second, third]) in calls {
        // SAFETY: what would be a pointer is null.
        let call = || unsafe { libc::syscall(number, first, second, third, 0, 0, 0) } as i32;
        for emulated in [true, false] {
            // The refusing filter returns the error where the other one ends the process.
            let (status, _) = closed_with(Sandbox::Refuse, emulated, || last_error(call()));
            assert!([libc::EPERM, libc::EACCES].contains(&status), "{what}, emulated {emulated}: {status}");
        }
    }
}

#[test]
fn sockets_of_nccl_are_for_workers_with_namespaces() {
    let kinds = [
        ("the network", [libc::AF_INET, libc::SOCK_STREAM, 0], true),
        ("its second version", [libc::AF_INET6, libc::SOCK_STREAM, 0], true),
        ("local datagrams", [libc::AF_UNIX, libc::SOCK_DGRAM, 0], true),
        ("interfaces", [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE], true),
        ("audits", [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT], false),
        ("datagrams of the network", [libc::AF_INET, libc::SOCK_DGRAM, 0], false),
        ("local streams", [libc::AF_UNIX, libc::SOCK_STREAM, 0], false),
    ];
    for (what, [family, kind, protocol], allowed) in kinds {
        // SAFETY: a plain system call.
        let make = || last_error(unsafe { libc::syscall(libc::SYS_socket, family, kind, protocol) } as i32);
        let outside = |bounds: Bounds| bounds.with_sockets();
        let inside = |bounds: Bounds| Bounds { root: true, ..bounds }.with_sockets();
        let (status, _) = closed_in(Sandbox::Refuse, false, outside, make);
        assert!([libc::EPERM, libc::EACCES].contains(&status), "{what} without namespaces: {status}");
        let (status, _) = closed_in(Sandbox::Refuse, false, inside, make);
        // A host without IPv6 reports that it has no IPv6.
        let is_there = [0, libc::EAFNOSUPPORT].contains(&status);
        assert_eq!(is_there, allowed, "{what} in namespaces: {status}");
    }
}

#[test]
fn no_process_of_the_user_reaches_a_workers_memory() {
    for sandbox in [Sandbox::Seccomp, Sandbox::Refuse, Sandbox::Log, Sandbox::Off] {
        // SAFETY: the child allocates, which glibc allows after a fork, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let entered = enter(sandbox, &Folders::default(), false);
            // SAFETY: plain system calls.
            unsafe { libc::_exit(entered.map_or(99, |_| libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0))) };
        }
        let mut status = 0;
        // SAFETY: the child is this function's, and waited for once.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        let dumpable = i32::from(sandbox == Sandbox::Off);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, dumpable), "{sandbox:?}");
    }
}

#[test]
fn processes_and_programs_end_the_worker_and_the_log_says_why() {
    for emulated in [true, false] {
        let (status, said) = closed(Sandbox::Seccomp, emulated, forks);
        assert_eq!(status, 1, "{said}");
        assert!(said.contains("the system call clone (56)"), "{said}");
        let (status, said) = closed(Sandbox::Seccomp, emulated, starts_a_program);
        assert_eq!(status, 1, "{said}");
        assert!(said.contains("the system call execve (59)"), "{said}");
    }
}

#[test]
fn processes_and_programs_fail_where_others_are_only_refused() {
    let status_of = |work| closed(Sandbox::Refuse, false, work);
    assert_eq!(status_of(|| last_error(forks())), (libc::EPERM, String::new()));
    assert_eq!(status_of(|| last_error(starts_a_program())), (libc::EPERM, String::new()));
    assert_eq!(status_of(connects), (libc::EPERM, String::new()));
    assert_eq!(status_of(makes_threads), (0, String::new()));
}

#[test]
fn no_choice_leaves_a_worker_without_a_filter() {
    assert_eq!(chosen(Sandbox::Auto, true), Sandbox::Seccomp);
    assert_eq!(chosen(Sandbox::Auto, false), Sandbox::Refuse);
}

#[test]
fn aborting_is_no_offence() {
    assert_eq!(closed(Sandbox::Seccomp, true, aborts), (-1, String::new()));
}

#[test]
fn a_sandbox_that_only_logs_allows_everything() {
    assert_eq!(closed(Sandbox::Log, true, opens_a_file), (0, String::new()));
    // A pipe's number would tell: it is no member of the list.
    let (status, said) = closed(Sandbox::Log, true, || io::stdin().as_raw_fd());
    assert_eq!((status, said.as_str()), (0, ""));
}
