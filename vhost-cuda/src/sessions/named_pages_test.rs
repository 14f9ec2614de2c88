// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use std::fs::File;
use vhost_cuda_common::link::Region;
use virtio_cuda_protocol::transport::{MemEntry, OP_CALL, REPLY_INVALID, RequestHeader};
use vm_memory::FileOffset;
use vmm_sys_util::tempfile::TempFile;

/// The first file's number.
const FIRST: u64 = FIRST_NUMBER as u64;

/// Guest memory of two regions of one file, with 8 pages each, at pages 0 and 32 of the file.
fn fixture_memory() -> (Memory, File) {
    let file = TempFile::new().unwrap().into_file();
    file.set_len(64 * PAGE_BYTES).unwrap();
    let region = |guest: u64, page: u64| {
        let backing = FileOffset::new(file.try_clone().unwrap(), page * PAGE_BYTES);
        (GuestAddress(guest * PAGE_BYTES), 8 * PAGE_BYTES as usize, Some(backing))
    };
    (Memory::from_ranges_with_files([region(16, 0), region(24, 32)]).unwrap(), file)
}

fn request(op: u32, flags: u32, tag: u64, pages: &[u64]) -> Request {
    let entry =
        |page: &u64| MemEntry { addr: page * PAGE_BYTES + 5, bytes: PAGE_BYTES as u32 - 5, reserved: 0 };
    Request {
        header: RequestHeader { op, flags, tag, ..RequestHeader::default() },
        payload: Vec::new(),
        in_entries: Vec::new(),
        out_entries: pages.iter().map(entry).collect(),
    }
}

#[test]
fn pages_are_named_until_the_request_is_answered() {
    let (memory, file) = fixture_memory();
    let (id, named) = (id_of(&file).unwrap(), NamedPages::default());
    let covers = |page: u64, pages: u64| named.covers(id, page * PAGE_BYTES, pages * PAGE_BYTES, true);
    assert!(!covers(0, 1));
    // The last page of the first region, two of the second, and a separate one.
    let begun = named.begin(1, &request(OP_CALL, 0, 0, &[25, 23, 24, 18]), &memory);
    for (page, pages) in [(7, 1), (32, 2), (33, 1), (2, 1)] {
        assert!(covers(page, pages), "{pages} from {page}");
    }
    for (page, pages) in
        [(6, 2), (7, 2), (32, 3), (1, 2), (2, 0), (3, 1), (31, 1), (u64::MAX / PAGE_BYTES, 1)]
    {
        assert!(!covers(page, pages), "{pages} from {page}");
    }
    assert!(!named.covers((id.0, id.1 + 1), 7 * PAGE_BYTES, PAGE_BYTES, true), "of another file");
    assert!(!named.covers(id, 7 * PAGE_BYTES, PAGE_BYTES + 1, true), "a byte of the next page");
    named.end(begun, REPLY_OK);
    assert!(!covers(7, 1));
}

#[test]
fn kept_pages_are_named_until_they_go_back_and_shared_ones_for_good() {
    let (memory, file) = fixture_memory();
    let (id, named) = (id_of(&file).unwrap(), NamedPages::default());
    let covers = |page: u64| named.covers(id, page * PAGE_BYTES, PAGE_BYTES, true);
    let run = |number, request: &Request, status| named.end(named.begin(number, request, &memory), status);
    run(1, &request(OP_CALL, FLAG_KEEP, 9, &[16]), REPLY_OK);
    run(2, &request(OP_SHARE, 0, 9, &[17]), REPLY_OK);
    run(3, &request(OP_CALL, FLAG_KEEP, 8, &[18]), REPLY_INVALID);
    assert_eq!([0, 1, 2].map(covers), [true, true, false]);
    // Until the request is executed, another worker, or another machine, maps what is held.
    let unpins = named.begin(4, &request(OP_UNPIN, 0, 9, &[]), &memory);
    assert_eq!(([0, 1].map(covers), named.held(&memory).unwrap().len()), ([true, true], 2));
    named.end(unpins, REPLY_INVALID);
    assert_eq!([0, 1].map(covers), [false, true]);
}

#[test]
fn pages_that_a_process_may_only_read_are_not_for_writing() {
    let (memory, file) = fixture_memory();
    let (id, named) = (id_of(&file).unwrap(), NamedPages::default());
    let covers =
        |page: u64| [false, true].map(|write| named.covers(id, page * PAGE_BYTES, PAGE_BYTES, write));
    let mut call = request(OP_CALL, 0, 0, &[17, 18]);
    call.in_entries = request(OP_CALL, 0, 0, &[16, 17]).out_entries;
    named.begin(1, &call, &memory);
    assert_eq!([0, 1, 2, 3].map(covers), [[true, false], [true, true], [true, true], [false, false]]);
    let kept = named.begin(2, &request(OP_CALL, FLAG_KEEP | FLAG_READ, 9, &[19]), &memory);
    named.end(kept, REPLY_OK);
    assert_eq!(covers(3), [true, false]);
}

/// Regions of these files, as a worker with named pages gets them.
fn regions(files: &[&File]) -> Vec<SharedRegion> {
    let region = |file: &&File| {
        let (file, read_only) = (file.try_clone().unwrap(), file.try_clone().unwrap());
        let read_only = Some(Arc::new(read_only));
        SharedRegion { region: Region::default(), file: FileOffset::new(file, 0), read_only }
    };
    files.iter().map(region).collect()
}

#[test]
fn files_keep_their_numbers_and_no_number_is_used_again() {
    let [one, other, third] = [(); 3].map(|()| TempFile::new().unwrap().into_file());
    let named = NamedPages::default();
    named.set_files(&regions(&[&one, &other, &one])).unwrap();
    let numbers = [&one, &other, &third].map(|file| named.number(file));
    assert_eq!(numbers, [Some(FIRST), Some(FIRST + 2), None]);
    named.set_files(&regions(&[&third, &other])).unwrap();
    let numbers = [&one, &other, &third].map(|file| named.number(file));
    assert_eq!(numbers, [None, Some(FIRST + 2), Some(FIRST + 4)]);
    assert_eq!(named.files.lock().gone, [FIRST_NUMBER]);
}

#[test]
fn descriptors_of_ended_files_are_used_again() {
    let [stays, one, other] = [(); 3].map(|()| TempFile::new().unwrap().into_file());
    let named = NamedPages::default();
    let mut last = 0;
    for _ in 0..MAX_FILES {
        for file in [&one, &other] {
            named.set_files(&regions(&[&stays, file])).unwrap();
            let number = named.number(file).unwrap();
            assert!(number > last && to_read(number) < FIRST_NUMBER + 2 * MAX_FILES);
            last = number;
        }
    }
    assert_eq!(named.number(&stays), Some(FIRST), "the others pass its descriptor over");
    let files = named.files.lock();
    assert!(!files.gone.contains(&FIRST_NUMBER) && files.gone.len() < MAX_FILES as usize);
    assert!(files.present.keys().all(|file| !files.gone.contains(file)));
    drop(files);
    assert_eq!(named.save().restore(&regions(&[&stays, &other])).unwrap().save(), named.save());
}

#[test]
fn too_many_files_at_once_are_refused() {
    let [one, other] = [(); 2].map(|()| TempFile::new().unwrap().into_file());
    let named = NamedPages::default();
    named.set_files(&regions(&[&one])).unwrap();
    let (id, file) = (id_of(&one).unwrap(), Arc::new(one.try_clone().unwrap()));
    for _ in 1..MAX_FILES {
        named.files.lock().add(id, file.clone(), file.clone()).unwrap();
    }
    assert!(named.set_files(&regions(&[&one, &other])).is_err());
}

#[test]
fn named_pages_go_over_for_the_same_files() {
    let (memory, file) = fixture_memory();
    let (id, named) = (id_of(&file).unwrap(), NamedPages::default());
    named.end(named.begin(1, &request(OP_CALL, FLAG_KEEP, 5, &[16, 17]), &memory), REPLY_OK);
    let backing = Arc::new(file.try_clone().unwrap());
    let region = SharedRegion {
        region: Region::default(),
        file: FileOffset::new(file.try_clone().unwrap(), 0),
        read_only: Some(backing),
    };
    named.set_files(std::slice::from_ref(&region)).unwrap();
    let saved = named.save();
    assert_eq!(serde_json::from_slice::<SavedPages>(&serde_json::to_vec(&saved).unwrap()).unwrap(), saved);
    let restored = saved.clone().restore(&[region]).unwrap();
    assert!(restored.covers(id, 0, 2 * PAGE_BYTES, true) && !restored.covers(id, 0, 3 * PAGE_BYTES, true));
    assert_eq!((restored.number(&file), restored.save()), (Some(FIRST), saved.clone()));
    // Another memory has none of its files.
    let gone = saved.clone().restore(&[]).unwrap();
    assert_eq!((gone.number(&file), gone.save().gone), (None, vec![FIRST_NUMBER]));
    for number in [0, FIRST - 2, FIRST + 1, FIRST + 2, u64::MAX] {
        let wrong = SavedPages { present: vec![(number, id, true)], ..saved.clone() };
        assert!(wrong.restore(&[]).is_err(), "{number}");
        assert!(SavedPages { gone: vec![number as u32], ..saved.clone() }.restore(&[]).is_err());
    }
    let twice = vec![(FIRST, id, true), (FIRST + u64::from(2 * MAX_FILES), id, true)];
    let many = SavedPages { present: twice, count: 2 * u64::from(MAX_FILES), ..saved.clone() };
    assert!(many.restore(&[]).is_err(), "two files with one descriptor");
    assert!(SavedPages { count: u64::MAX, ..saved }.restore(&[]).is_err());
}

#[test]
fn two_workers_of_a_session_have_the_same_pages_and_files_of_their_own() {
    let (memory, file) = fixture_memory();
    let (id, named) = (id_of(&file).unwrap(), NamedPages::default());
    let [first, second] = [(); 2].map(|()| TempFile::new().unwrap().into_file());
    named.set_files(&regions(&[&first])).unwrap();
    named.end(named.begin(1, &request(OP_CALL, FLAG_KEEP, 5, &[16]), &memory), REPLY_OK);
    let begun = named.begin(2, &request(OP_CALL, 0, 0, &[17]), &memory);
    let other = named.for_another_mapper();
    let covers = |page: u64| [&named, &other].map(|of| of.covers(id, page * PAGE_BYTES, PAGE_BYTES, true));
    assert_eq!([0, 1, 2].map(covers), [[true; 2], [true; 2], [false; 2]]);
    // The one answers a request that the other one has got, and the guest takes pages back.
    other.end(begun, REPLY_OK);
    other.end(other.begin(3, &request(OP_UNPIN, 0, 5, &[]), &memory), REPLY_OK);
    assert_eq!([0, 1].map(covers), [[false; 2]; 2]);
    assert_eq!(other.number(&first), None, "its mapper has no file yet");
    other.set_files(&regions(&[&second, &first])).unwrap();
    assert_eq!([&first, &second].map(|file| named.number(file)), [Some(FIRST), None]);
    assert_eq!(other.number(&second), Some(FIRST));
}

#[test]
fn held_pages_go_to_another_machine_with_the_same_memory() {
    let ((memory, file), (other, there)) = (fixture_memory(), fixture_memory());
    let (named, elsewhere) = (NamedPages::default(), NamedPages::default());
    let run = |number, request: &Request| named.end(named.begin(number, request, &memory), REPLY_OK);
    run(1, &request(OP_CALL, FLAG_KEEP, 9, &[25, 23, 24, 18]));
    run(2, &request(OP_CALL, FLAG_KEEP | FLAG_READ, 8, &[19]));
    run(3, &request(OP_SHARE, 0, 9, &[20, 21]));
    let rows = named.held(&memory).unwrap();
    let json = serde_json::to_string(&rows).unwrap();
    elsewhere.hold(serde_json::from_str(&json).unwrap(), &other);
    let (here, id) = (id_of(&file).unwrap(), id_of(&there).unwrap());
    for page in 0..64 {
        for write in [false, true] {
            let covers = |named: &NamedPages, id| named.covers(id, page * PAGE_BYTES, PAGE_BYTES, write);
            assert_eq!(covers(&named, here), covers(&elsewhere, id), "page {page}, for writing: {write}");
        }
    }
    assert!(elsewhere.covers(id, 32 * PAGE_BYTES, 2 * PAGE_BYTES, true), "pages side by side");
    assert!(named.held(&other).is_none(), "files that are not there");
    let lie = HeldPages {
        source: Source::Kept(1),
        read: vec![(u64::MAX - 1, u64::MAX)],
        written: vec![(0, u64::MAX)],
    };
    elsewhere.hold(vec![lie], &other);
}
