// SPDX-License-Identifier: Apache-2.0 OR MIT

use vhost_cuda_common::images::{receive_answer, seal, send};

use super::*;

const LIMIT: u64 = 1 << 20;

fn owner(uid: u32) -> Owner {
    Owner { machine: Machine::Virtual(1), uid }
}

fn key(uid: u32, image: &[u8]) -> Key {
    Key { owner: owner(uid), digest: *blake3::hash(image).as_bytes() }
}

fn keep(cache: &ImageCache, image: &[u8], uid: u32) {
    cache.keep(seal(image).unwrap(), image.len() as u64, key(uid, image)).unwrap();
}

fn has(cache: &ImageCache, image: &[u8], uid: u32) -> bool {
    cache.find(key(uid, image), image.len() as u64).is_some()
}

#[test]
fn an_image_is_found_by_its_own_digest_user_and_length_only() {
    let cache = ImageCache::new(LIMIT);
    keep(&cache, b"image", 1000);
    assert!(has(&cache, b"image", 1000));
    assert!(!has(&cache, b"image", 1001), "another user of the guest");
    assert!(!has(&cache, b"other", 1000));
    assert!(cache.find(key(1000, b"image"), 4).is_none(), "another length");
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let cache = ImageCache::new(1000);
    for letter in [b'a', b'b', b'c'] {
        keep(&cache, &[letter; 300], 0);
    }
    assert!(has(&cache, &[b'a'; 300], 0));
    keep(&cache, &[b'd'; 300], 0);
    let left = [b'a', b'b', b'c', b'd'].map(|letter| has(&cache, &[letter; 300], 0));
    assert_eq!(left, [true, false, true, true]);
    assert_eq!(cache.state.lock().bytes, 900);
    keep(&cache, &[b'd'; 300], 0);
    assert_eq!(cache.state.lock().bytes, 900, "the same once more is not counted twice");
}

#[test]
fn the_number_of_images_is_bounded() {
    let cache = ImageCache::new(LIMIT);
    for number in 0..2 * MAX_IMAGES {
        keep(&cache, &number.to_le_bytes(), 0);
    }
    assert_eq!(cache.state.lock().images.len(), MAX_IMAGES);
}

#[test]
fn files_that_could_change_or_lie_about_their_length_are_refused() {
    let cache = ImageCache::new(LIMIT);
    let open = vmm_sys_util::tempfile::TempFile::new().unwrap().into_file();
    open.set_len(6).unwrap();
    let named = key(0, b"image");
    assert!(cache.keep(open, 5, key(0, &[0; 5])).is_err(), "not sealed");
    assert!(cache.keep(seal(b"image").unwrap(), 4, named).is_err(), "longer than said");
    assert!(cache.keep(seal(b"image").unwrap(), 7, named).is_err(), "shorter than said");
    assert!(cache.keep(seal(b"image").unwrap(), u64::MAX, named).is_err());
    assert!(cache.keep(seal(b"other").unwrap(), 5, named).is_err(), "another digest");
    assert!(cache.state.lock().images.is_empty());
    let zeros = key(0, &[0; 100]);
    assert!(cache.keep(seal(&[0; 100]).unwrap(), 100, zeros).is_ok());
    assert!(ImageCache::new(99).keep(seal(&[0; 100]).unwrap(), 100, zeros).is_err(), "larger than the cache");
}

#[test]
fn an_image_is_hashed_once() {
    let cache = ImageCache::new(LIMIT);
    let image = vec![7; 1000];
    let left = || cache.state.lock().budgets.get(&owner(0).machine).map(|budget| budget.bytes);
    keep(&cache, &image, 0);
    let after_one = left().unwrap();
    assert!(after_one < HASHED_AT_ONCE);
    for _ in 0..3 {
        keep(&cache, &image, 0);
    }
    assert_eq!(left(), Some(after_one));
    cache.forget(owner(0).machine);
    assert_eq!(left(), None);
}

#[test]
fn hashing_for_a_machine_has_a_rate() {
    let start = Instant::now();
    let mut budget = HashBudget::full(start);
    assert!(!budget.take(HASHED_AT_ONCE + 1, start) && budget.take(HASHED_AT_ONCE, start));
    assert!(!budget.take(1, start));
    let later = start + std::time::Duration::from_secs(2);
    assert!(!budget.take(2 * HASHED_PER_SECOND + 1, later) && budget.take(2 * HASHED_PER_SECOND, later));
    let much_later = start + std::time::Duration::from_secs(1 << 20);
    assert!(!budget.take(HASHED_AT_ONCE + 1, much_later) && budget.take(HASHED_AT_ONCE, much_later));
}

#[test]
fn a_worker_gets_what_another_kept() {
    let cache = ImageCache::new(LIMIT);
    let connect = |uid| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        cache.serve(Arc::new(theirs), owner(uid));
        ours
    };
    let (first, second, stranger) = (connect(1), connect(1), connect(2));
    let image = vec![7; 100_000];
    let ask = Question { kind: ASK, bytes: 100_000, digest: key(0, &image).digest, ..Default::default() };
    let asked = |worker: &UnixStream| {
        send(worker, &ask, None).unwrap();
        receive_answer(worker).unwrap()
    };
    assert!(asked(&first).is_none());
    let keep = Question { kind: KEEP, ..ask };
    send(&first, &keep, Some(&seal(&image).unwrap())).unwrap();
    assert!(asked(&first).is_some(), "questions of one worker are answered in their order");
    let file = asked(&second).unwrap();
    let mut found = vec![0; 100_001];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!((&found[..100_000], found[100_000]), (&image[..], 0));
    assert!(file.write_at(b"x", 0).is_err(), "nobody can change it");
    assert!(asked(&stranger).is_none());

    // An invalid question ends the connection, not the daemon.
    send(&first, &Question { kind: 9, ..Default::default() }, None).unwrap();
    assert!(receive_answer(&first).is_err());
    assert!(asked(&second).is_some());
}

#[test]
fn nobody_evicts_others_but_for_a_fair_share() {
    let cache = ImageCache::new(1000);
    let keep_for = |machine, uid, letter: u8, count: u8| {
        for number in 0..count {
            let (owner, image) =
                (Owner { machine: Machine::Virtual(machine), uid }, [letter, number].repeat(50));
            let key = Key { owner, ..key(0, &image) };
            cache.keep(seal(&image).unwrap(), 100, key).unwrap();
        }
    };
    let count = |machine, uid| {
        let state = cache.state.lock();
        state
            .images
            .iter()
            .filter(|(key, _)| key.owner == Owner { machine: Machine::Virtual(machine), uid })
            .count()
    };
    keep_for(1, 7, b'a', 3);
    // Many images of one user and then of many users of one machine.
    keep_for(2, 7, b'b', 100);
    assert_eq!((count(1, 7), count(2, 7)), (3, 7));
    for uid in 100..200 {
        keep_for(2, uid, b'c', 3);
    }
    assert_eq!(count(1, 7), 3);
    // Another machine gets its share, independent of the earlier ones, and no more.
    keep_for(3, 7, b'd', 8);
    assert_eq!((count(1, 7), count(3, 7)), (3, 3));
    // An image as large as the whole cache is the only one.
    keep(&cache, &[9; 1000], 0);
    let contents = || {
        let state = cache.state.lock();
        (state.images.len(), state.bytes)
    };
    assert_eq!(contents(), (1, 1000));
    cache.forget(Machine::Virtual(1));
    assert_eq!(contents(), (0, 0));
}

#[test]
fn images_go_over_in_the_order_of_their_use() {
    let cache = ImageCache::new(LIMIT);
    for letter in [b'a', b'b', b'c'] {
        keep(&cache, &[letter; 300], 0);
    }
    assert!(has(&cache, &[b'a'; 300], 0));
    let mut files = Leaving::default();
    let saved = cache.save(&mut files);
    assert_eq!(
        serde_json::from_slice::<Vec<SavedImage>>(&serde_json::to_vec(&saved).unwrap()).unwrap(),
        saved
    );
    std::mem::forget(cache);
    crate::hand_over::files::keep_open(&files.numbers(), true).unwrap();
    let mut files = Inherited::of(&files.numbers()).unwrap();
    let lying = SavedImage { bytes: 299, ..saved[0].clone() };
    assert!(ImageCache::new(LIMIT).restore(vec![lying], &mut files).is_err());
    // A smaller one takes what fits.
    let small = ImageCache::new(700);
    small.restore(saved.clone(), &mut files).unwrap();
    assert_eq!(small.state.lock().bytes, 600);
    files.commit();
    let after = ImageCache::new(900);
    after.restore(saved.clone(), &mut files).unwrap();
    keep(&after, &[b'd'; 300], 0);
    assert!(has(&after, &[b'a'; 300], 0) && !has(&after, &[b'b'; 300], 0));
    assert!(after.restore(saved, &mut files).is_err(), "the descriptors are taken");
}
