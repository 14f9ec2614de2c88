// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker's side of the daemon's cache of images.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use log::debug;
use parking_lot::Mutex;
use vhost_cuda_common::images::{self, ASK, DIGEST_BYTES, KEEP, Question};

use crate::copy_charge::CopyCharge;

/// The time limit for the daemon's answer, because a call of the guest waits meanwhile.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The cache. It is used as long as the daemon answers.
#[derive(Debug)]
pub struct Images {
    socket: Mutex<Option<UnixStream>>,
}

/// A BLAKE3 digest.
type Digest = [u8; DIGEST_BYTES];

/// An image that the daemon was given, or has had.
#[derive(Clone, Debug)]
pub struct KnownImage {
    /// Its digest, once it is computed.
    pub digest: Arc<OnceLock<Digest>>,
    /// Its length in bytes, without a NUL.
    pub bytes: u64,
}

/// An image, followed by a NUL.
///
/// # Invariants
///
/// A private mapping of `bytes` bytes of a sealed file, owned by this value.
#[derive(Debug)]
pub struct Mapped {
    at: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and is only read until it is unmapped.
unsafe impl Send for Mapped {}

impl Images {
    /// Returns the cache at the other end of `socket`.
    pub fn new(socket: UnixStream) -> Arc<Self> {
        let usable =
            socket.set_read_timeout(Some(TIMEOUT)).and_then(|()| socket.set_write_timeout(Some(TIMEOUT)));
        Arc::new(Self { socket: Mutex::new(usable.ok().map(|()| socket)) })
    }

    fn ask(&self, digest: Digest, bytes: u64) -> Option<File> {
        let question = Question { kind: ASK, bytes, digest, ..Question::default() };
        self.with(|socket| {
            images::send(socket, &question, None)?;
            images::receive_answer(socket)
        })?
    }

    /// Returns whether the daemon has the image. The question counts as a use of it.
    pub fn has(&self, image: &KnownImage) -> bool {
        image.digest.get().is_some_and(|digest| self.ask(*digest, image.bytes).is_some())
    }

    /// Returns the image of `bytes` bytes with that digest, if the daemon has it.
    pub fn find(&self, digest: Digest, bytes: u64) -> Option<Mapped> {
        let file = self.ask(digest, bytes)?;
        Mapped::new(&file, bytes).inspect_err(|error| debug!("Cannot map an image: {error}")).ok()
    }

    /// Sends an image (without the NUL) to the daemon, and sets its digest. Returns at once, and sends in the background.
    pub fn keep(
        self: &Arc<Self>,
        image: Vec<u8>,
        charge: Option<CopyCharge>,
        known_as: Arc<OnceLock<Digest>>,
    ) {
        let this = self.clone();
        let keep = move || {
            match images::seal(&image) {
                Ok(file) => {
                    let digest = *known_as.get_or_init(|| *blake3::hash(&image).as_bytes());
                    let bytes = image.len() as u64;
                    let question = Question { kind: KEEP, bytes, digest, ..Question::default() };
                    this.with(|socket| images::send(socket, &question, Some(&file)));
                }
                Err(error) => debug!("Cannot keep an image: {error}"),
            }
            // The charge lasts as long as the image.
            drop(charge);
        };
        // Without a thread the image crosses once more next time.
        let _ = thread::Builder::new().name("keep-image".into()).spawn(keep);
    }

    /// Talks to the daemon. After an error it is not used again, because the next answer might be an old one.
    fn with<T>(&self, talk: impl FnOnce(&UnixStream) -> io::Result<T>) -> Option<T> {
        let mut socket = self.socket.lock();
        match talk(socket.as_ref()?) {
            Ok(value) => Some(value),
            Err(error) => {
                debug!("The daemon's image cache does not answer: {error}");
                *socket = None;
                None
            }
        }
    }
}

impl Mapped {
    fn new(file: &File, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_add(1));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping of a file of that length (the daemon has checked it) that cannot shrink.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { at, bytes }) }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: by the invariant it is readable memory that does not change.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: by the invariant this value owns it.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda::cache::ImageCache;
    use vhost_cuda::owner::{Machine, Owner};

    use super::*;

    #[test]
    fn an_image_comes_back_with_its_nul() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ImageCache::new(1 << 20).serve(Arc::new(theirs), Owner { machine: Machine::Host, uid: 0 });
        let images = Images::new(ours);
        let image = vec![42; 70_000];
        let digest = *blake3::hash(&image).as_bytes();
        assert!(images.find(digest, 70_000).is_none());
        let known = KnownImage { digest: Arc::default(), bytes: 70_000 };
        images.keep(image.clone(), None, known.digest.clone());
        let found = loop {
            match images.find(digest, 70_000) {
                Some(found) => break found,
                None => thread::yield_now(),
            }
        };
        assert_eq!((&found[..70_000], found[70_000], found.len()), (&image[..], 0, 70_001));
        assert!(images.has(&known) && !images.has(&KnownImage { bytes: 69_999, ..known }));
    }

    #[test]
    fn without_a_daemon_there_is_no_cache() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let images = Images::new(ours);
        assert!(images.find([0; DIGEST_BYTES], 1).is_none());
        assert!(images.find([0; DIGEST_BYTES], 1).is_none());
    }
}
