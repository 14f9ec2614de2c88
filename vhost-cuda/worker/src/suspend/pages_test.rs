// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::super::room::PAGE;
use super::*;

const LONG: Duration = Duration::from_secs(20);
const FULL: usize = CHUNK / PAGE;

/// A driver's registrations, which may not end.
#[derive(Clone, Debug, Default)]
struct Driver {
    registered: Arc<Mutex<HashSet<usize>>>,
    fails: Arc<AtomicBool>,
}

impl Registrar for Driver {
    unsafe fn register(&self, address: usize, bytes: usize) -> bool {
        assert_eq!(bytes, BLOCK);
        assert_eq!(resident(address, BLOCK), BLOCK / PAGE, "pages are there before they are registered");
        self.registered.lock().insert(address)
    }

    fn unregister(&self, address: usize) -> bool {
        !self.fails.load(Ordering::Relaxed) && self.registered.lock().remove(&address)
    }
}

/// The numbers of blocks of the pool, of rooms that are ready, and of spare rooms that are taken and not taken.
fn counts(pages: &Pages) -> [usize; 4] {
    let state = pages.state.lock();
    [state.blocks.len(), state.ready.len(), state.spare_used, state.spare.len()]
}

/// Waits until the thread has provided what is wanted.
fn settled(pages: &Pages, expected: [usize; 4]) {
    let begun = Instant::now();
    while counts(pages) != expected || pages.state.lock().changing > 0 {
        assert!(begun.elapsed() < LONG, "{:?} and not {expected:?}", counts(pages));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of pages that are there.
fn resident(address: usize, bytes: usize) -> usize {
    let mut pages = vec![0; bytes / PAGE];
    // SAFETY: memory of this process; the kernel writes a byte for each of its pages.
    assert_eq!(unsafe { libc::mincore(address as *mut _, bytes, pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|page| **page & 1 == 1).count()
}

fn residents(rooms: &[Room]) -> Vec<usize> {
    rooms.iter().map(|room| resident(room.address(), CHUNK)).collect()
}

#[test]
fn pages_are_there_ahead_of_need_and_stay_for_the_next_contents() {
    let (pages, driver) = (Arc::<Pages>::default(), Driver::default());
    pages.keep(2 * BLOCK as u64 + CHUNK_BYTES, driver.clone());
    settled(&pages, [2, 8, 0, 0]);
    assert_eq!(driver.registered.lock().len(), 2);
    let rooms = pages.take(5).unwrap();
    assert_eq!(counts(&pages), [2, 3, 0, 0]);
    assert_eq!(residents(&rooms), [FULL; 5]);
    assert!(rooms.iter().all(|room| room.is_registered()));
    assert_eq!(rooms.windows(2).filter(|two| two[0].is_before(two[1])).count(), 3, "not across blocks");
    // More than there are.
    let more = pages.take(5).unwrap();
    assert_eq!((counts(&pages), residents(&more)), ([2, 0, 2, 0], vec![FULL, FULL, FULL, 0, 0]));
    assert!(!more[4].is_registered());
    let all: HashSet<usize> = rooms.iter().chain(&more).map(|room| room.address()).collect();
    assert_eq!(all.len(), 10, "each room is taken once");
    rooms.into_iter().chain(more).for_each(|room| pages.give(room));
    settled(&pages, [2, 8, 0, 0]);
    assert_eq!(pages.take(0).unwrap(), []);
}

#[test]
fn pages_that_are_too_many_go_back_to_the_kernel() {
    let (pages, driver) = (Arc::<Pages>::default(), Driver::default());
    pages.keep(3 * BLOCK as u64, driver.clone());
    settled(&pages, [3, 12, 0, 0]);
    let room = pages.take(1).unwrap()[0];
    // SAFETY: taken, and there is no other thread that uses it.
    unsafe { room.store(&[7; CHUNK]) };
    driver.fails.store(true, Ordering::Relaxed);
    pages.keep(2 * BLOCK as u64, driver.clone());
    thread::sleep(Duration::from_millis(20));
    assert!(driver.registered.lock().len() == 3, "what may be registered stays");
    driver.fails.store(false, Ordering::Relaxed);
    settled(&pages, [2, 7, 0, 0]);
    pages.keep(0, driver.clone());
    settled(&pages, [1, 3, 0, 0]);
    let mut contents = vec![0; CHUNK];
    // SAFETY: as above.
    unsafe { room.load(&mut contents) }.unwrap();
    assert!(contents.iter().all(|byte| *byte == 7), "what is in use stays");
    pages.give(room);
    settled(&pages, [0, 0, 0, 0]);
    assert!(driver.registered.lock().is_empty());
    assert!(pages.state.lock().areas.is_empty(), "the addresses are free");
}

#[test]
fn without_a_pool_pages_end_with_their_contents() {
    let pages = Pages::default();
    let rooms = pages.take(2).unwrap();
    // SAFETY: taken, and there is no other thread.
    unsafe { rooms[0].store(&[7; CHUNK]) };
    assert_eq!(residents(&rooms), [FULL, 0]);
    pages.give(rooms[0]);
    assert_eq!((residents(&rooms), counts(&pages)), (vec![0, 0], [0, 0, 1, 1]));
    pages.give(rooms[1]);
    assert_eq!(counts(&pages), [0; 4]);
    assert!(pages.take(usize::MAX).is_err());
    assert_eq!(counts(&pages), [0; 4]);
}

/// The contents of a suspension for which the pool was not ready count for it.
#[test]
fn pages_beside_the_pool_are_not_provided_twice() {
    let (pages, driver) = (Arc::<Pages>::default(), Driver::default());
    let early = pages.take(6).unwrap();
    pages.keep(2 * BLOCK as u64, driver.clone());
    thread::sleep(Duration::from_millis(20));
    assert_eq!(counts(&pages), [0, 0, 6, 0]);
    early.into_iter().for_each(|room| pages.give(room));
    settled(&pages, [2, 8, 0, 0]);
}
