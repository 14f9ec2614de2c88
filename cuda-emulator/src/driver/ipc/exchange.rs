// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes memory files to other processes. A handle contains the socket of the process that offers a file, and a
//! token of 128 random bits. A process of the same user that knows the token gets that file and no other.
//!
//! A process that may create no sockets, such as the daemon's workers, passes the file itself: the handle also
//! contains the file's descriptor, and a handle with [`HERE`] is opened by a descriptor of the opening process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use cuda_abi::prototypes::{Parameter, Shape};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::threads;

/// The first bytes of a handle.
const MAGIC: [u8; 8] = *b"cudaemu\x01";
/// The time limit for the other side, so that neither process blocks the other for ever.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum number of clients that are served at the same time. The listening thread serves the last one.
const MAX_BUSY: usize = 16;
/// The maximum number of files that a process offers at a time. Each is an open file.
const MAX_OFFERS: usize = 4096;

/// [`IpcHandle::place`]: the descriptor is one of the process that opens the handle.
const HERE: u32 = 1;

/// 128 random bits.
pub(super) type Token = [u8; 16];

/// The contents of a CUipcMemHandle or CUipcEventHandle.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle {
    magic: [u8; 8],
    /// Identifies the offering process, and its socket.
    server: Token,
    pub(super) token: Token,
    /// The bytes of memory, or 0 for an event, in the machine's byte order.
    pub(super) bytes: [u8; 8],
    /// The file's descriptor in the offering process, or, with [`HERE`], in the opening one.
    descriptor: [u8; 4],
    place: [u8; 4],
    reserved: [u8; 8],
}

const _: () = assert!(size_of::<IpcHandle>() == size_of::<cuda_abi::CUipcMemHandle>());

impl Parameter for IpcHandle {
    const SHAPE: Shape = Shape::Struct(size_of::<Self>());
}

/// A process's socket, and its offers.
struct Server {
    name: Token,
    offers: Mutex<BTreeMap<Token, Arc<File>>>,
}

static SERVER: OnceLock<io::Result<Server>> = OnceLock::new();

fn random() -> io::Result<Token> {
    let mut token = Token::default();
    getrandom::fill(&mut token).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(token)
}

fn address(name: Token) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("cuda-emulator-{:032x}", u128::from_be_bytes(name)))
}

impl Server {
    fn start() -> io::Result<Server> {
        let name = random()?;
        if let Err(error) = Self::listen(name) {
            log::debug!("memory can be shared by descriptor only: {error}");
        }
        Ok(Server { name, offers: Mutex::default() })
    }

    fn listen(name: Token) -> io::Result<()> {
        let listener = UnixListener::bind_addr(&address(name)?)?;
        thread::Builder::new().name("cuda-ipc".into()).spawn(move || {
            let busy = Arc::new(());
            for stream in listener.incoming() {
                let own = Arc::clone(&busy);
                let serve = move || {
                    // A client that disconnects or sends invalid requests does not affect this process.
                    if let Err(error) = stream.and_then(|stream| answer(&stream)) {
                        log::debug!("a process that asked for shared memory: {error}");
                    }
                    drop(own);
                };
                // A slow client blocks no other, unless there are many of them.
                if Arc::strong_count(&busy) <= MAX_BUSY { threads::run(Box::new(serve)) } else { serve() }
            }
        })?;
        Ok(())
    }

    fn offers(&self) -> MutexGuard<'_, BTreeMap<Token, Arc<File>>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn server() -> CuResult<&'static Server> {
    SERVER.get_or_init(Server::start).as_ref().map_err(|error| {
        log::error!("memory cannot be shared: {error}");
        CUresult::CUDA_ERROR_OPERATING_SYSTEM
    })
}

/// Returns whether the process at the other end runs as this user.
fn is_own_user(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to locals, whose size is passed; geteuid cannot fail.
    unsafe {
        let (out, length) = ((&raw mut peer).cast(), &raw mut length);
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, out, length) == 0
            && peer.uid == libc::geteuid()
    }
}

/// Retries after signals: system calls with a time limit fail with any signal, and the program may receive many.
fn through_signals<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn answer(mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if !is_own_user(stream) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut token = Token::default();
    stream.read_exact(&mut token)?;
    let found = SERVER.get().and_then(|server| server.as_ref().ok()?.offers().get(&token).cloned());
    match found {
        Some(file) => {
            let send = || stream.send_with_fd(&[1_u8][..], file.as_raw_fd()).map_err(io::Error::from);
            through_signals(send).map(|_| ())
        }
        None => stream.write_all(&[0]),
    }
}

/// Offers a file. The handle is valid until [`withdraw`].
pub(super) fn offer(file: Arc<File>, bytes: u64) -> CuResult<IpcHandle> {
    let server = server()?;
    let token = random().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    let mut offers = server.offers();
    if offers.len() >= MAX_OFFERS {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let descriptor = file.as_raw_fd().to_ne_bytes();
    offers.insert(token, file);
    let bytes = bytes.to_ne_bytes();
    let (place, reserved) = ([0; 4], [0; 8]);
    Ok(IpcHandle { magic: MAGIC, server: server.name, token, bytes, descriptor, place, reserved })
}

/// Ends an offer. Processes that have the file keep it.
pub(super) fn withdraw(token: Token) {
    if let Some(Ok(server)) = SERVER.get() {
        server.offers().remove(&token);
    }
}

impl IpcHandle {
    /// Returns CUDA_ERROR_INVALID_VALUE for bytes that are not a handle.
    pub(super) fn check(&self) -> CuResult<()> {
        if self.magic == MAGIC { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }

    /// Returns a handle for a file that a courier ([`super::files`]) passes on.
    pub(super) fn by_courier(token: Token) -> Self {
        let (bytes, descriptor, place, reserved) = ([0; 8], [0; 4], [0; 4], [0; 8]);
        IpcHandle { magic: MAGIC, server: Token::default(), token, bytes, descriptor, place, reserved }
    }

    /// As [`Self::fetch`], but never a descriptor of this process.
    pub(super) fn fetch_from_other(&self) -> io::Result<File> {
        self.ask()
    }

    /// Returns whether this process created it.
    pub(super) fn is_own(&self) -> bool {
        SERVER.get().and_then(|server| server.as_ref().ok()).is_some_and(|server| server.name == self.server)
    }

    /// Returns its file from the process that offers it. The contents of the file are not checked.
    pub(super) fn fetch(&self) -> CuResult<File> {
        self.check()?;
        let here = u32::from_ne_bytes(self.place) == HERE;
        let file = if here { self.take() } else { self.ask() };
        file.map_err(|error| {
            log::debug!("no shared memory from the process that offered it: {error}");
            CUresult::CUDA_ERROR_MAP_FAILED
        })
    }

    /// Returns a copy of the descriptor that another component has stored there.
    fn take(&self) -> io::Result<File> {
        // SAFETY: duplicating checks the descriptor.
        let copy = unsafe { libc::fcntl(i32::from_ne_bytes(self.descriptor), libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nobody else owns.
        Ok(unsafe { File::from_raw_fd(copy) })
    }

    fn ask(&self) -> io::Result<File> {
        let address = address(self.server)?;
        let mut stream = through_signals(|| UnixStream::connect_addr(&address))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // Another user's process could have taken the socket name of a process that has ended.
        if !is_own_user(&stream) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.write_all(&self.token)?;
        let mut answer = [0_u8; 1];
        let receive = || stream.recv_with_fd(&mut answer).map_err(io::Error::from);
        let (_, file): (usize, Option<File>) = through_signals(receive)?;
        file.filter(|_| answer == [1]).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn who_asks_does_not_wait_for_a_slow_client() {
        let file = Arc::new(crate::memory::memory_file(4096).unwrap());
        let handle = offer(file, 0).unwrap();
        let slow: Vec<_> =
            (0..3).map(|_| UnixStream::connect_addr(&address(handle.server).unwrap()).unwrap()).collect();
        let begin = Instant::now();
        assert_eq!(handle.fetch().unwrap().metadata().unwrap().len(), 4096);
        assert!(begin.elapsed() < PATIENCE);
        drop(slow);
        withdraw(handle.token);
    }

    #[test]
    fn signals_end_no_call() {
        let mut left = 3;
        let result = through_signals(|| {
            left -= 1;
            if left > 0 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(left) }
        });
        assert_eq!(result.unwrap(), 0);
    }
}
