// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds device code that may print or launch kernels.
//!
//! The driver delivers printed text only when it waits itself. A word that the GPU writes can therefore not replace the wait
//! for such code. A graph of a kernel that launches others does not wait for them, unlike the kernel alone.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use cuda_fatbin::{CONTAINER_MAGIC, unpacked_bytes};
use log::debug;
use memchr::memmem::Finder;
use parking_lot::{Condvar, Mutex};

use super::footprint::{Target, containers, each_used};

/// Bytes of images that wait to be read, packed and unpacked. Calls that load more wait until some were read.
const MAX_UNREAD_BYTES: u64 = 256 << 20;

/// The function that device code uses to print, as machine code and PTX name it.
const PRINTS: &[u8] = b"vprintf";
/// The beginnings of functions of the device's runtime, as machine code and PTX name them.
const LAUNCHES: [&[u8]; 2] = [b"__cudaCDP", b"cudaLaunchDevice"];

/// The abilities of device code that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Print.
    pub prints: bool,
    /// Launch kernels.
    pub launches: bool,
}

impl Abilities {
    const ALL: Self = Self { prints: true, launches: true };
}

/// Records the abilities of the loaded code.
#[derive(Debug)]
pub struct LoadedCode(Arc<Shared>);

/// What the thread that reads has in common with the session.
#[derive(Debug)]
struct Shared {
    prints: AtomicBool,
    launches: AtomicBool,
    /// Images that were not read yet.
    unread: AtomicUsize,
    queue: Queue,
}

/// Images that wait for the thread that reads them. There is one such thread, because an image can be a thousand times as long
/// when it is unpacked.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    has_room: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(u64, Read)>,
    /// Bytes of those that wait, and of the one that is read.
    bytes: u64,
    /// True if a thread reads.
    has_reader: bool,
}

type Read = Box<dyn FnOnce() + Send>;

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("bytes", &self.state.lock().bytes).finish_non_exhaustive()
    }
}

impl Queue {
    /// Appends an image of so many bytes once there is room. Returns true if the caller must start a reader.
    fn push(&self, bytes: u64, read: Read) -> bool {
        let mut state = self.state.lock();
        // One that is longer than all room is read alone.
        let is_full =
            |state: &mut State| state.bytes > 0 && state.bytes.saturating_add(bytes) > MAX_UNREAD_BYTES;
        self.has_room.wait_while(&mut state, is_full);
        state.bytes = state.bytes.saturating_add(bytes);
        state.waiting.push_back((bytes, read));
        !std::mem::replace(&mut state.has_reader, true)
    }

    /// Reads all images that wait.
    fn run(&self) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.waiting.pop_front();
                state.has_reader = next.is_some();
                next
            };
            let Some((bytes, read)) = next else { return };
            read();
            let mut state = self.state.lock();
            state.bytes = state.bytes.saturating_sub(bytes);
            drop(state);
            self.has_room.notify_all();
        }
    }
}

impl LoadedCode {
    /// Starts without code. Code counts as having the abilities `always`.
    pub fn new(always: Abilities) -> Self {
        let Abilities { prints, launches } = always;
        Self(Arc::new(Shared {
            prints: AtomicBool::new(prints),
            launches: AtomicBool::new(launches),
            unread: AtomicUsize::new(0),
            queue: Queue::default(),
        }))
    }

    /// Returns whether code that was loaded may print, as far as is known.
    pub fn may_print(&self) -> bool {
        self.may(&self.0.prints)
    }

    /// Returns whether code that was loaded may launch kernels, as far as is known.
    pub fn may_launch(&self) -> bool {
        self.may(&self.0.launches)
    }

    fn may(&self, ability: &AtomicBool) -> bool {
        // In this order: what was found is there before an image counts as read.
        self.0.unread.load(Ordering::SeqCst) > 0 || ability.load(Ordering::SeqCst)
    }

    /// Reads an image that has just been loaded, for devices of `targets`, and passes it to `then`. Without targets the image
    /// counts as one that does everything. A thread reads it, because unpacking takes as long as loading does.
    pub fn read<I: Deref<Target = [u8]> + Send + 'static>(
        &self,
        image: I,
        targets: Vec<Target>,
        then: impl FnOnce(I) + Send + 'static,
    ) {
        let shared = &self.0;
        if shared.prints.load(Ordering::SeqCst) && shared.launches.load(Ordering::SeqCst) {
            return then(image);
        }
        let of_reader = shared.clone();
        let bytes = whole_bytes(&image);
        let read = move || {
            let Abilities { prints, launches } = abilities(&image, &targets);
            of_reader.prints.fetch_or(prints, Ordering::SeqCst);
            of_reader.launches.fetch_or(launches, Ordering::SeqCst);
            of_reader.unread.fetch_sub(1, Ordering::SeqCst);
            then(image);
        };
        shared.unread.fetch_add(1, Ordering::SeqCst);
        if shared.queue.push(bytes, Box::new(read)) {
            let reader = shared.clone();
            let reader = thread::Builder::new().name("read-image".into()).spawn(move || reader.queue.run());
            if let Err(error) = reader {
                debug!("no thread to read an image: {error}");
                shared.queue.run();
            }
        }
    }
}

/// Returns the bytes of an image, and of its code when it is unpacked.
fn whole_bytes(image: &[u8]) -> u64 {
    let unpacked = containers(image).filter_map(|container| unpacked_bytes(container?).ok());
    unpacked.fold(image.len() as u64, u64::saturating_add)
}

/// Returns the abilities of the code of `image` that a device of one of `targets` uses.
pub fn abilities(image: &[u8], targets: &[Target]) -> Abilities {
    if targets.is_empty() {
        return Abilities::ALL;
    }
    let finders = (Finder::new(PRINTS), LAUNCHES.map(Finder::new));
    let mut found = Abilities::default();
    let mut look = |bytes: &[u8]| {
        found.prints |= finders.0.find(bytes).is_some();
        found.launches |= finders.1.iter().any(|finder| finder.find(bytes).is_some());
    };
    if !image.starts_with(&CONTAINER_MAGIC.to_le_bytes()) {
        look(image);
        return found;
    }
    for container in containers(image) {
        for &target in targets {
            if container.and_then(|container| each_used(container, target, &mut look)).is_none() {
                // Damaged code counts as code that does everything.
                return Abilities::ALL;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::footprint::tests::container;
    use super::*;

    const TARGETS: [Target; 2] =
        [Target { architecture: 90, ptx_only: false }, Target { architecture: 120, ptx_only: false }];

    const NOTHING: Abilities = Abilities { prints: false, launches: false };
    const PRINTS: Abilities = Abilities { prints: true, launches: false };

    #[test]
    fn what_code_does_is_found_where_a_device_uses_it() {
        let (prints, silent) = (&b".extern .func vprintf();"[..], &b".func printf();"[..]);
        assert_eq!((abilities(prints, &TARGETS), abilities(silent, &TARGETS)), (PRINTS, NOTHING));
        let both = container(&[(1, 80, prints), (1, 90, silent)]);
        assert_eq!(abilities(&both, &TARGETS), NOTHING);
        let later = container(&[(1, 100, prints), (1, 90, silent)]);
        assert_eq!((abilities(&later, &TARGETS), abilities(&later, &TARGETS[..1])), (PRINTS, NOTHING));
        let linked = [container(&[]), later.clone(), both].concat();
        assert_eq!(abilities(&linked, &TARGETS), PRINTS);
        assert_eq!(abilities(&later[..later.len() - 1], &TARGETS[..1]), Abilities::ALL, "it cannot be read");
        for launches in [&b".extern .func cudaLaunchDeviceV2();"[..], b".nv.info.__cudaCDP2LaunchDeviceV2"] {
            assert_eq!(abilities(launches, &TARGETS), Abilities { prints: false, launches: true });
        }
    }

    #[test]
    fn code_may_print_until_it_was_read() {
        let code: &'static LoadedCode = Box::leak(Box::new(LoadedCode::new(NOTHING)));
        assert!(!code.may_print());
        let (sender, receiver) = std::sync::mpsc::channel();
        let (started, start) = std::sync::mpsc::channel::<()>();
        /// An image whose contents come late.
        struct Slow(std::sync::Mutex<std::sync::mpsc::Receiver<()>>, &'static [u8], AtomicBool);
        impl Deref for Slow {
            type Target = [u8];
            fn deref(&self) -> &[u8] {
                // First its length is asked for.
                if self.2.swap(true, Ordering::SeqCst) {
                    let _ = self.0.lock().unwrap().recv();
                }
                self.1
            }
        }
        let slow = Slow(std::sync::Mutex::new(start), b"silent", AtomicBool::new(false));
        code.read(slow, TARGETS.to_vec(), move |_| sender.send(()).unwrap());
        assert!(code.may_print(), "nobody has read it");
        drop(started);
        receiver.recv().unwrap();
        assert!(!code.may_print());
        let (sender, receiver) = std::sync::mpsc::channel();
        code.read(b"vprintf".to_vec(), TARGETS.to_vec(), move |_| sender.send(()).unwrap());
        receiver.recv().unwrap();
        assert!(code.may_print());
        assert!(LoadedCode::new(PRINTS).may_print() && !LoadedCode::new(PRINTS).may_launch());
    }

    /// Containers that are small, and large when they are unpacked: one is read at a time, and few wait.
    #[test]
    fn one_image_is_read_at_a_time() {
        /// Readers now, their maximum, and the maximum of images that wait.
        static COUNTS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
        let code: &'static LoadedCode = Box::leak(Box::new(LoadedCode::new(NOTHING)));
        // Packed, of another architecture, and as long as half of the room.
        let mut packed = container(&[(2, 50, &[0; 64])]);
        packed[16 + 40..16 + 48].copy_from_slice(&0x8000u64.to_le_bytes());
        packed[16 + 56..16 + 64].copy_from_slice(&(MAX_UNREAD_BYTES / 2).to_le_bytes());
        assert!(whole_bytes(&packed) > MAX_UNREAD_BYTES / 2);
        let (sender, receiver) = std::sync::mpsc::channel();
        let load = || {
            let sender = sender.clone();
            code.read(packed.clone(), TARGETS.to_vec(), move |_| {
                let now = COUNTS[0].fetch_add(1, Ordering::SeqCst) + 1;
                COUNTS[1].fetch_max(now, Ordering::SeqCst);
                COUNTS[2].fetch_max(code.0.queue.state.lock().waiting.len(), Ordering::SeqCst);
                thread::sleep(std::time::Duration::from_millis(2));
                COUNTS[0].fetch_sub(1, Ordering::SeqCst);
                sender.send(()).unwrap();
            });
        };
        thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(load))));
        assert_eq!(receiver.iter().take(16).count(), 16);
        let counts = [1, 2].map(|index| COUNTS[index].load(Ordering::SeqCst));
        assert!(counts[0] == 1 && counts[1] == 0, "readers and images that wait: {counts:?}");
        assert!(!code.may_print());
    }
}
