// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that maps guest memory with `--guest-pages named`. It has the descriptors of guest memory in a table of its
//! own, and a filter under which each of its `mmap` calls waits for the daemon ([`crate::sessions::named_pages`]) and nothing else
//! can be done with a descriptor. No other thread of the worker has one.

mod filter;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use rustix::thread::set_no_new_privs;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// The thread, from the outside.
#[derive(Debug)]
pub struct Mapper {
    orders: Sender<Order>,
}

/// A file of guest memory that the thread has.
#[derive(Debug)]
pub struct NamedFile {
    number: RawFd,
    mapper: Arc<Mapper>,
}

#[derive(Debug)]
enum Order {
    /// Take the next file from the daemon.
    Receive(SyncSender<io::Result<RawFd>>),
    /// Map pieces of a file, all or none.
    Map(RawFd, Vec<Mapping>, SyncSender<io::Result<Vec<usize>>>),
    /// The file is not used any more.
    Close(RawFd),
}

/// The maximum number of pieces per order: others wait for the thread meanwhile.
const MAX_PIECES: usize = 256;

/// A piece of a file that is to be mapped.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// The address; `None`: anywhere.
    pub at: Option<usize>,
    /// Its bytes, whole pages.
    pub bytes: usize,
    /// Its place in the file.
    pub offset: u64,
    /// True for writing, too.
    pub writable: bool,
}

impl Mapper {
    /// Starts the thread. Over `socket` the daemon receives the listener of the filter, and sends files of guest memory.
    /// Must be called when the sandbox is closed: the thread inherits its filter.
    pub fn start(socket: UnixStream) -> io::Result<Arc<Self>> {
        let (orders, inbox) = channel();
        let (ready, started) = sync_channel(1);
        thread::Builder::new().name("guest-pages".into()).spawn(move || {
            let outcome = enter(&socket);
            let entered = outcome.is_ok();
            let _ = ready.send(outcome);
            if entered {
                serve(&socket, &inbox);
            }
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(Arc::new(Self { orders }))
    }

    /// Receives the next file that the daemon sends.
    pub fn receive(self: &Arc<Self>) -> io::Result<NamedFile> {
        Ok(NamedFile { number: self.ask(Order::Receive)?, mapper: self.clone() })
    }

    fn ask<T>(&self, order: impl FnOnce(SyncSender<io::Result<T>>) -> Order) -> io::Result<T> {
        let (answer, answered) = sync_channel(1);
        self.orders.send(order(answer)).map_err(io::Error::other)?;
        answered.recv().map_err(io::Error::other)?
    }
}

/// Tests, in a thread of its own, whether this host lets another process decide over mappings.
///
/// Errors: the kernel has no such filters (before Linux 5.5), or the process that started this one, such as a container's
/// runtime, has installed one: there can be one only.
pub fn can_be_guarded() -> io::Result<()> {
    let attempt = thread::Builder::new().name("guard-attempt".into()).spawn(|| {
        set_no_new_privs(true)?;
        filter::guarded().map(drop)
    })?;
    attempt.join().unwrap_or_else(|_| Err(io::Error::other("the attempt failed")))
}

impl NamedFile {
    /// Maps pages of the file that the guest's process has named, and hands each piece with its address to `mapped`. An order
    /// to the thread costs as much as a mapping, so that pieces go together.
    ///
    /// Errors: pieces that were not handed over are not mapped, unless they have an address: then they may be.
    ///
    /// # Safety
    ///
    /// Nothing else may use the memory at the addresses.
    pub unsafe fn map(&self, pieces: &[Mapping], mut mapped: impl FnMut(&Mapping, usize)) -> io::Result<()> {
        for pieces in pieces.chunks(MAX_PIECES) {
            let addresses = self.mapper.ask(|answer| Order::Map(self.number, pieces.to_vec(), answer))?;
            pieces.iter().zip(addresses).for_each(|(piece, address)| mapped(piece, address));
        }
        Ok(())
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        let _ = self.mapper.orders.send(Order::Close(self.number));
    }
}

/// Leaves the descriptor table of all other threads, and lets the daemon decide over mappings.
fn enter(socket: &UnixStream) -> io::Result<()> {
    let check = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let own = socket.as_raw_fd() as libc::c_uint;
    // SAFETY: plain system calls. After the first one the table is this thread's alone, and it uses no other descriptor
    // than the socket.
    unsafe {
        check(libc::unshare(libc::CLONE_FILES))?;
        if own > 0 {
            check(libc::close_range(0, own - 1, 0))?;
        }
        check(libc::close_range(own + 1, libc::c_uint::MAX, 0))?;
    }
    let listener = filter::guarded()?;
    socket
        .send_with_fd(&[0_u8][..], listener.as_raw_fd())
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    drop(listener);
    filter::silent()
}

fn serve(socket: &UnixStream, orders: &Receiver<Order>) {
    for order in orders {
        match order {
            Order::Receive(answer) => drop(answer.send(receive(socket))),
            Order::Map(file, pieces, answer) => {
                // SAFETY: the caller of `NamedFile::map` promises that nothing else uses the memory at the addresses.
                drop(answer.send(unsafe { map_all(file, &pieces) }));
            }
            // SAFETY: the descriptor came from `receive`, and its owner has just been dropped.
            Order::Close(file) => drop(unsafe { OwnedFd::from_raw_fd(file) }),
        }
    }
}

fn receive(socket: &UnixStream) -> io::Result<RawFd> {
    use std::os::fd::IntoRawFd;
    let mut byte = [0];
    loop {
        match socket.recv_with_fd(&mut byte) {
            Ok((1, Some(file))) => return Ok(File::into_raw_fd(file)),
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) => return Err(io::Error::from_raw_os_error(error.errno())),
        }
    }
}

/// Maps pieces of a file; returns their addresses.
///
/// # Safety
///
/// Nothing else may use the memory at the addresses that are asked for.
unsafe fn map_all(file: RawFd, pieces: &[Mapping]) -> io::Result<Vec<usize>> {
    let mut addresses = Vec::with_capacity(pieces.len());
    for piece in pieces {
        // SAFETY: `# Safety` promises that nothing else uses the memory at the address that the piece asks for.
        match unsafe { map_shared(file, piece) } {
            Ok(address) => addresses.push(address),
            Err(error) => {
                let anywhere = pieces.iter().zip(addresses).filter(|(piece, _)| piece.at.is_none());
                for (piece, address) in anywhere {
                    // SAFETY: mapped above, and nothing has its address yet.
                    unsafe { libc::munmap(address as *mut _, piece.bytes) };
                }
                return Err(error);
            }
        }
    }
    Ok(addresses)
}

/// Maps a piece of a file, at its address or anywhere. Returns the address.
///
/// # Safety
///
/// Nothing else may use the memory at the address.
pub unsafe fn map_shared(file: RawFd, piece: &Mapping) -> io::Result<usize> {
    let protection = libc::PROT_READ | if piece.writable { libc::PROT_WRITE } else { 0 };
    let offset = libc::off_t::try_from(piece.offset).map_err(io::Error::other)?;
    let (at, flags) = match piece.at {
        Some(at) => (at, libc::MAP_SHARED | libc::MAP_FIXED),
        None => (0, libc::MAP_SHARED),
    };
    // SAFETY: without an address nothing is replaced; nothing else uses the memory at one that was given.
    let mapped = unsafe { libc::mmap(at as *mut _, piece.bytes, protection, flags, file, offset) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped as usize) }
}
