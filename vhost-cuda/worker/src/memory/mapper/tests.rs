// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the process that maps guest memory, with the daemon's half.

use std::fs::{self, File};
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::channel;
use std::thread;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::set_no_new_privs;
use rustix::{cmsg_space, net};
use vhost_cuda::guest::memory::GuestPages;
use vhost_cuda::guest::memory::{Memory, MemoryTable, ReadOnlyFiles, open_read_only};
use vhost_cuda::guest::request::Request;
use vhost_cuda::sessions::named_pages::{NamedPages, guard};
use virtio_cuda_protocol::transport::{MemEntry, OP_CALL, PAGE_BYTES, RequestHeader};
use vm_memory::{FileOffset, GuestAddress};

use super::*;

const PAGES: u64 = 16;
const PAGE: usize = PAGE_BYTES as usize;

fn fixture_memory() -> (Memory, File) {
    let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(PAGES * PAGE_BYTES).unwrap();
    let backing = FileOffset::new(file.try_clone().unwrap(), 0);
    let ranges = [(GuestAddress(0), (PAGES * PAGE_BYTES) as usize, Some(backing))];
    (Memory::from_ranges_with_files(ranges).unwrap(), file)
}

fn request(ins: &[u64], outs: &[u64]) -> Request {
    let entries = |pages: &[u64]| {
        let entry = |page: &u64| MemEntry { addr: page * PAGE_BYTES, bytes: PAGE_BYTES as u32, reserved: 0 };
        pages.iter().map(entry).collect()
    };
    Request {
        header: RequestHeader { op: OP_CALL, ..RequestHeader::default() },
        payload: Vec::new(),
        in_entries: entries(ins),
        out_entries: entries(outs),
    }
}

fn listener_of(socket: &UnixStream) -> (OwnedFd, Pid) {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let (mut listener, mut sender) = (None, None);
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(mut files) => listener = files.next(),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            _ => {}
        }
    }
    (listener.unwrap(), sender.unwrap())
}

/// Makes a system call that only a process of its own may make: this one has threads that it would end.
fn in_child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child allocates, which glibc allows after a fork, and ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        work();
        // SAFETY: does not return.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the child is this function's, and waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Changes a page in every way that could make it writable.
fn can_be_changed(address: usize) -> [bool; 2] {
    // SAFETY: the page is mapped, and nothing refers to its contents.
    unsafe {
        [
            libc::madvise(address as *mut _, PAGE, libc::MADV_REMOVE) == 0,
            libc::mprotect(address as *mut _, PAGE, libc::PROT_READ | libc::PROT_WRITE) == 0,
        ]
    }
}

#[test]
fn the_process_maps_what_is_named_and_has_nothing_of_the_worker() {
    let (memory, _file) = fixture_memory();
    let named = Arc::new(NamedPages::default());
    let (files, result) = open_read_only(&memory, &ReadOnlyFiles::new());
    result.unwrap();
    let table = MemoryTable::of(&memory, GuestPages::Named, &files);
    named.set_files(&table.regions).unwrap();
    let number = named.number(table.regions[0].file.file()).unwrap();
    let (daemon, socket) = UnixStream::pair().unwrap();
    net::sockopt::set_socket_passcred(&daemon, true).unwrap();
    let (lock, held) = UnixStream::pair().unwrap();
    // The process ends with the thread that has started it.
    let (end, ended) = channel::<()>();
    let (started, mapper) = channel();
    let starter = thread::spawn(move || {
        set_no_new_privs(true).unwrap();
        started.send(Mapper::start(socket, Some(held.as_raw_fd()))).unwrap();
        let _ = ended.recv();
        drop(held);
    });
    let mapper = mapper.recv().unwrap().unwrap();
    let (listener, pid) = listener_of(&daemon);
    let guarding = {
        let named = named.clone();
        thread::spawn(move || guard(&listener, &named))
    };
    let file = mapper.file(number);
    let map = |page: u64, writable: bool| {
        let piece = Mapping { at: None, bytes: PAGE, offset: page * PAGE_BYTES, writable };
        let mut address = 0;
        // SAFETY: no address is asked for.
        unsafe { file.map(&[piece], |_, at| address = at) }.map(|()| address)
    };
    assert_eq!(map(3, false).unwrap_err().raw_os_error(), Some(libc::EPERM), "nothing is named");
    named.begin(1, &request(&[3], &[5]), &memory);
    assert_eq!(map(3, true).unwrap_err().raw_os_error(), Some(libc::EPERM), "it may only be read");
    assert_eq!(map(4, false).unwrap_err().raw_os_error(), Some(libc::EPERM), "another page");
    let (to_read, to_write) = (map(3, false).unwrap(), map(5, true).unwrap());
    assert_eq!(can_be_changed(to_read), [false, false]);
    assert_eq!(can_be_changed(to_write), [true, true]);
    // All or none.
    let pieces =
        [3, 4].map(|page| Mapping { at: None, bytes: PAGE, offset: page * PAGE_BYTES, writable: false });
    // SAFETY: no address is asked for.
    assert!(unsafe { file.map(&pieces, |_, _| panic!("one is not named")) }.is_err());

    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(name.trim(), "cuda-mapper");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert_eq!(descriptors, 4, "its socket, the lock, and the file twice");

    // A file that is no memory any more is taken back.
    named.set_files(&[]).unwrap();
    mapper.refresh();
    let links = || {
        fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().map(|entry| fs::read_link(entry.path()))
    };
    assert!(!links().flatten().any(|link| link.to_string_lossy().contains("guest")));
    assert!(map(3, false).is_err());

    kill_process(pid, Signal::KILL).unwrap();
    // The daemon notices: it would end the worker.
    guarding.join().unwrap();
    assert_eq!((&daemon).read(&mut [0]).unwrap(), 0);
    assert_eq!(mapper.desk.lock().wait_while(IDLE), ENDED);
    end.send(()).unwrap();
    starter.join().unwrap();
    assert_eq!((&lock).read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_worker_whose_mapper_has_ended_ends() {
    let status = in_child(|| {
        set_no_new_privs(true).unwrap();
        let (daemon, socket) = UnixStream::pair().unwrap();
        net::sockopt::set_socket_passcred(&daemon, true).unwrap();
        let mapper = Mapper::start(socket, None).unwrap();
        let (_listener, pid) = listener_of(&daemon);
        kill_process(pid, Signal::KILL).unwrap();
        mapper.refresh();
    });
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 1));
}
