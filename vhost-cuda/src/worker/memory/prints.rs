// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds device code that may print or launch kernels.
//!
//! The driver delivers printed text only when it waits itself. A word that the GPU writes can therefore not replace the wait
//! for such code. A graph of a kernel that launches others does not wait for them, unlike the kernel alone.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use cuda_fatbin::CONTAINER_MAGIC;
use log::debug;
use memchr::memmem::Finder;
use parking_lot::Mutex;

use super::footprint::{Target, containers, each_used};

/// Bytes of images that wait to be read. Calls that load more read them themselves.
const MAX_UNREAD_BYTES: usize = 64 << 20;

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
pub struct LoadedCode {
    prints: AtomicBool,
    launches: AtomicBool,
    /// Bytes of images that were not read yet.
    unread: AtomicUsize,
}

impl LoadedCode {
    /// Starts without code. Code counts as having the abilities `always`.
    pub fn new(always: Abilities) -> Self {
        let Abilities { prints, launches } = always;
        Self {
            prints: AtomicBool::new(prints),
            launches: AtomicBool::new(launches),
            unread: AtomicUsize::new(0),
        }
    }

    /// Returns whether code that was loaded may print, as far as is known.
    pub fn may_print(&self) -> bool {
        self.may(&self.prints)
    }

    /// Returns whether code that was loaded may launch kernels, as far as is known.
    pub fn may_launch(&self) -> bool {
        self.may(&self.launches)
    }

    fn may(&self, ability: &AtomicBool) -> bool {
        // In this order: what was found is there before an image counts as read.
        self.unread.load(Ordering::SeqCst) > 0 || ability.load(Ordering::SeqCst)
    }

    /// Reads an image that has just been loaded, for devices of `targets`, and passes it to `then`. Without targets the image
    /// counts as one that does everything. A thread reads it, because unpacking takes as long as loading does.
    pub fn read<I: Deref<Target = [u8]> + Send + 'static>(
        &'static self,
        image: I,
        targets: Vec<Target>,
        then: impl FnOnce(I) + Send + 'static,
    ) {
        if self.prints.load(Ordering::SeqCst) && self.launches.load(Ordering::SeqCst) {
            return then(image);
        }
        let bytes = image.len();
        let read = move || {
            let Abilities { prints, launches } = abilities(&image, &targets);
            self.prints.fetch_or(prints, Ordering::SeqCst);
            self.launches.fetch_or(launches, Ordering::SeqCst);
            self.unread.fetch_sub(bytes, Ordering::SeqCst);
            then(image);
        };
        if self.unread.fetch_add(bytes, Ordering::SeqCst) >= MAX_UNREAD_BYTES {
            return read();
        }
        run_in_thread(thread::Builder::new().name("read-image".into()), read);
    }
}

/// Runs `work` in a thread, or in place if the host's limits allow no thread.
fn run_in_thread(thread: thread::Builder, work: impl FnOnce() + Send + 'static) {
    let work = Arc::new(Mutex::new(Some(work)));
    let taken = Arc::clone(&work);
    let run = move || {
        // Taken in a statement of its own, so that the lock is free while the work runs.
        let work = taken.lock().take();
        if let Some(work) = work {
            work();
        }
    };
    if let Err(error) = thread.spawn(run) {
        debug!("no thread to read an image: {error}");
        let work = work.lock().take();
        if let Some(work) = work {
            work();
        }
    }
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
    #[test]
    fn work_runs_in_place_without_a_thread() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let too_large = thread::Builder::new().stack_size(1 << 62);
        run_in_thread(too_large, move || sender.send(thread::current().id()).unwrap());
        assert_eq!(receiver.recv().unwrap(), thread::current().id());
    }
}
