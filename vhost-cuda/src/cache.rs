// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cache of device code that workers loaded, so that it crosses once for all processes of a guest's user.
//!
//! Each image lies in a sealed memfd, which cannot be changed any more, followed by a NUL (text needs one). Its name
//! is its BLAKE3 digest, which the daemon compares with the sealed file: neither a guest nor a worker can
//! store an image under a wrong digest. A worker asks over a socket of its own, which a thread of the daemon serves
//! as long as the session lives.
//!
//! If there is no room for another image, the cache drops one of the machine with the most images, and there of the
//! user with the most. So one machine or user can evict others only down to a fair share.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use log::debug;
use lru::LruCache;
use parking_lot::Mutex;
use rustix::fs::fcntl_get_seals;
use serde::{Deserialize, Serialize};
use vhost_cuda_common::files::{self, invalid, write_with};
use vhost_cuda_common::images::{ASK, Answer, DIGEST_BYTES, KEEP, Question, SEALS};
use zerocopy::{FromZeros, IntoBytes};

use crate::confine::threads;
use crate::hand_over::files::{Inherited, Leaving, Number};
use crate::hand_over::freeze;
use crate::owner::{Machine, Owner};

/// The maximum number of images. Each is an open file of the daemon.
pub const MAX_IMAGES: usize = 128;
/// The number of bytes that are hashed at a time.
const CHUNK: usize = 256 << 10;
/// The bytes that the daemon hashes for a machine: so many at once, and so many more for each second since. Limits the processor time
/// of the daemon, which is in no machine's control group; images that do not fit in are not kept.
const HASHED_AT_ONCE: u64 = 1 << 30;
const HASHED_PER_SECOND: u64 = 32 << 20;

/// Identifies an image and its owner. Users of a guest do not share images, because a digest is enough to get the
/// code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    owner: Owner,
    digest: [u8; DIGEST_BYTES],
}

/// An image that is handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedImage {
    owner: Owner,
    digest: [u8; DIGEST_BYTES],
    bytes: u64,
    file: Number,
}

#[derive(Debug)]
struct Image {
    file: Arc<File>,
    bytes: u64,
}

/// The images of one daemon.
#[derive(Debug)]
pub struct ImageCache {
    max_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    images: LruCache<Key, Image>,
    bytes: u64,
    /// The bytes that may be hashed for a machine. One that is missing has all.
    budgets: HashMap<Machine, HashBudget>,
}

/// The bytes that may be hashed for a machine, and when that was found.
#[derive(Clone, Copy, Debug)]
struct HashBudget {
    bytes: u64,
    since: Instant,
}

impl HashBudget {
    fn full(now: Instant) -> Self {
        Self { bytes: HASHED_AT_ONCE, since: now }
    }

    /// Takes `bytes` bytes. Returns whether there were as many.
    fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.since).as_secs_f64() * HASHED_PER_SECOND as f64;
        let all = self.bytes.saturating_add(earned as u64).min(HASHED_AT_ONCE);
        let left = all.checked_sub(bytes);
        *self = Self { bytes: left.unwrap_or(all), since: now };
        left.is_some()
    }
}

impl ImageCache {
    /// Creates a cache of at most `max_bytes` bytes. 0 disables it.
    pub fn new(max_bytes: u64) -> Arc<Self> {
        let state = State { images: LruCache::unbounded(), bytes: 0, budgets: HashMap::new() };
        Arc::new(Self { max_bytes, state: Mutex::new(state) })
    }

    /// Serves the worker at the other end of `socket`, whose session belongs to `owner`, until it ends. If no thread
    /// can be started, the worker has no cache.
    pub fn serve(self: &Arc<Self>, socket: Arc<UnixStream>, owner: Owner) {
        if self.max_bytes == 0 {
            return;
        }
        let cache = self.clone();
        let serving = move || {
            threads::read_foreign_bytes();
            if let Err(error) = cache.answer_all(&socket, owner) {
                debug!("image cache: a worker's socket: {error}");
            }
        };
        if let Err(error) = thread::Builder::new().name("image-cache".into()).spawn(serving) {
            debug!("image cache: no thread: {error}");
        }
    }

    fn answer_all(&self, socket: &UnixStream, owner: Owner) -> io::Result<()> {
        loop {
            let _permit = freeze::readable(socket);
            let Some((question, file)) = receive(socket)? else { return Ok(()) };
            let Question { kind, bytes, digest, .. } = question;
            match (kind, file) {
                (ASK, _) => answer(socket, self.find(Key { owner, digest }, bytes).as_deref())?,
                (KEEP, Some(file)) => match self.keep(file, bytes, Key { owner, digest }) {
                    Ok(()) => {}
                    Err(error) => debug!("image cache: an image is not kept: {error}"),
                },
                _ => return Err(invalid("a question of unknown kind")),
            }
        }
    }

    fn find(&self, key: Key, bytes: u64) -> Option<Arc<File>> {
        let mut state = self.state.lock();
        state.images.get(&key).filter(|image| image.bytes == bytes).map(|image| image.file.clone())
    }

    /// Stores an image of `bytes` bytes whose digest the worker has told, and makes room for it. One that is there is not looked at
    /// again.
    fn keep(&self, file: File, bytes: u64, key: Key) -> io::Result<()> {
        if bytes > self.max_bytes {
            return Err(invalid("it is larger than the whole cache"));
        }
        if self.find(key, bytes).is_some() {
            return Ok(());
        }
        check(&file, bytes)?;
        if !self.state.lock().may_hash(bytes, key.owner.machine) {
            return Err(invalid("its machine has sent too many"));
        }
        if digest(&file, bytes)? != key.digest {
            return Err(invalid("it has another digest"));
        }
        let mut state = self.state.lock();
        if state.images.promote(&key) {
            return Ok(());
        }
        // The image counts already, so that its owner does not evict an image of another one with as many bytes.
        state.images.put(key, Image { file: Arc::new(file), bytes });
        state.bytes += bytes;
        while state.images.len() > MAX_IMAGES || state.bytes > self.max_bytes {
            let Some(victim) = state.victim(key) else { break };
            state.bytes -= state.images.pop(&victim).map_or(0, |old| old.bytes);
        }
        Ok(())
    }

    /// Returns the images of these owners, with their digests and lengths.
    pub fn of(&self, owners: &[Owner]) -> Vec<(Owner, [u8; DIGEST_BYTES], u64, Arc<File>)> {
        let state = self.state.lock();
        let images = state.images.iter().filter(|(key, _)| owners.contains(&key.owner));
        images.map(|(key, image)| (key.owner, key.digest, image.bytes, image.file.clone())).collect()
    }

    /// Stores an image of `bytes` bytes that comes with a machine.
    ///
    /// Errors: those of [`Self::serve`]'s workers. The image is not there then.
    pub fn add(&self, file: File, bytes: u64, owner: Owner, digest: [u8; DIGEST_BYTES]) -> io::Result<()> {
        self.keep(file, bytes, Key { owner, digest })
    }

    /// The bytes that all images may have.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Returns all images for the next program, the least recently used one first.
    pub fn save(&self, files: &mut Leaving) -> Vec<SavedImage> {
        let state = self.state.lock();
        let images = state.images.iter().rev();
        let mut save = |(key, image): (&Key, &Image)| {
            let Key { owner, digest } = *key;
            SavedImage { owner, digest, bytes: image.bytes, file: files.add(&*image.file) }
        };
        images.map(&mut save).collect()
    }

    /// Adds the images of the program before this one, as far as they fit into this cache.
    ///
    /// Errors: the state is wrong.
    pub fn restore(&self, saved: Vec<SavedImage>, files: &mut Inherited) -> io::Result<()> {
        let mut state = self.state.lock();
        for SavedImage { owner, digest, bytes, file } in saved {
            let file = File::from(files.take(file)?);
            if state.images.len() < MAX_IMAGES && bytes <= self.max_bytes.saturating_sub(state.bytes) {
                check(&file, bytes)?;
                state.bytes += bytes;
                state.images.put(Key { owner, digest }, Image { file: Arc::new(file), bytes });
            }
        }
        Ok(())
    }

    /// Drops the images of a machine that has disconnected.
    pub fn forget(&self, machine: Machine) {
        let mut state = self.state.lock();
        let of_machine: Vec<Key> =
            state.images.iter().map(|(key, _)| *key).filter(|key| key.owner.machine == machine).collect();
        for key in of_machine {
            state.bytes -= state.images.pop(&key).map_or(0, |old| old.bytes);
        }
        state.budgets.remove(&machine);
    }
}

impl State {
    /// Takes `bytes` bytes of what is hashed for a machine. Returns whether there were as many.
    fn may_hash(&mut self, bytes: u64, machine: Machine) -> bool {
        let now = Instant::now();
        self.budgets.entry(machine).or_insert_with(|| HashBudget::full(now)).take(bytes, now)
    }

    /// Returns the image to drop for `new`, which is stored already: the least recently used one of the user with the
    /// most images in the machine with the most images.
    fn victim(&self, new: Key) -> Option<Key> {
        let most = |of: &dyn Fn(&Key) -> bool| {
            self.images.iter().filter(|(key, _)| of(key)).map(|(_, image)| image.weight()).sum::<u64>()
        };
        let rank = |key: &Key| {
            let (owner, machine) = (key.owner, key.owner.machine);
            let of_machine = most(&|other| other.owner.machine == machine);
            let of_owner = most(&|other| other.owner == owner);
            (of_machine, machine == new.owner.machine, of_owner, owner == new.owner)
        };
        // The iteration begins with the most recently used image, and the last one of equal rank is taken.
        self.images.iter().map(|(key, _)| *key).filter(|key| *key != new).max_by_key(rank)
    }
}

impl Image {
    /// Returns the cost of an image: its bytes and a descriptor, which counts as a part of a cache of the default
    /// size.
    fn weight(&self) -> u64 {
        self.bytes + (256 << 20) / MAX_IMAGES as u64
    }
}

/// Checks that `file` has the announced length and cannot change. Only files in memory can be sealed.
fn check(file: &File, bytes: u64) -> io::Result<()> {
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(invalid("its file is not sealed"));
    }
    let mut last = [1];
    file.read_exact_at(&mut last, bytes)?;
    if Some(file.metadata()?.len()) != bytes.checked_add(1) || last != [0] {
        return Err(invalid("its file has another length"));
    }
    Ok(())
}

/// Reads the file instead of mapping it, because a missing page of a mapping would raise a signal.
fn digest(file: &File, bytes: u64) -> io::Result<[u8; DIGEST_BYTES]> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < bytes {
        let piece = &mut buffer[..CHUNK.min((bytes - at) as usize)];
        file.read_exact_at(piece, at)?;
        hasher.update(piece);
        at += piece.len() as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}

fn receive(socket: &UnixStream) -> io::Result<Option<(Question, Option<File>)>> {
    let mut question = Question::new_zeroed();
    let read = read_with(socket, question.as_mut_bytes())?;
    Ok(read.map(|file| (question, file)))
}

fn answer(socket: &UnixStream, file: Option<&File>) -> io::Result<()> {
    write_with(socket, Answer { found: u32::from(file.is_some()) }.as_bytes(), file)
}

/// Fills `bytes`, and returns the accompanying file. Returns `None` if the other end has closed the socket.
///
/// Errors: those of the socket; `TimedOut` if the rest does not come in time.
pub(crate) fn read_with(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<Option<Option<File>>> {
    files::read_with(socket, bytes, |rest| freeze::Message::of(socket).read_exact(rest))
}

#[cfg(test)]
#[path = "cache_test.rs"]
mod tests;

#[cfg(any(test, fuzzing))]
#[path = "cache_fuzz.rs"]
pub mod fuzz;
