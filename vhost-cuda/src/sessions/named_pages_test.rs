// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use std::fs::File;
use virtio_cuda_protocol::transport::{MemEntry, OP_CALL, REPLY_INVALID, RequestHeader};
use vm_memory::FileOffset;
use vmm_sys_util::tempfile::TempFile;

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
    let (id, named) = (file_id(&file).unwrap(), NamedPages::default());
    let covers = |page: u64, pages: u64| named.covers(id, page * PAGE_BYTES, pages * PAGE_BYTES);
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
    assert!(!named.covers((id.0, id.1 + 1), 7 * PAGE_BYTES, PAGE_BYTES), "of another file");
    assert!(!named.covers(id, 7 * PAGE_BYTES, PAGE_BYTES + 1), "a byte of the next page");
    named.end(begun, REPLY_OK);
    assert!(!covers(7, 1));
}

#[test]
fn kept_pages_are_named_until_they_go_back_and_shared_ones_for_good() {
    let (memory, file) = fixture_memory();
    let (id, named) = (file_id(&file).unwrap(), NamedPages::default());
    let covers = |page: u64| named.covers(id, page * PAGE_BYTES, PAGE_BYTES);
    let run = |number, request: &Request, status| named.end(named.begin(number, request, &memory), status);
    run(1, &request(OP_CALL, FLAG_KEEP, 9, &[16]), REPLY_OK);
    run(2, &request(OP_SHARE, 0, 9, &[17]), REPLY_OK);
    run(3, &request(OP_CALL, FLAG_KEEP, 8, &[18]), REPLY_INVALID);
    assert_eq!([0, 1, 2].map(covers), [true, true, false]);
    run(4, &request(OP_UNPIN, 0, 9, &[]), REPLY_OK);
    assert_eq!([0, 1].map(covers), [false, true]);
}
