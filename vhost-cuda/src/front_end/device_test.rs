// SPDX-License-Identifier: Apache-2.0 OR MIT

use virtio_cuda_protocol::transport::{OP_SHARE, OP_UNPIN, Open, RequestHeader};

use super::opening::ROOT;
use super::*;
use crate::guest::fixture::FixtureGuest;
use crate::sessions::fixture::worker_spec;
use crate::suspend::suspender::Options;

const ROOM: u32 = 64;

/// Creates a device whose workers cannot start. No test here needs one.
fn device(max_sessions: u32) -> Arc<Device> {
    let pool = WorkerPool::start(worker_spec(), 0, None).unwrap();
    Device::new(
        1,
        Arc::new(Settings {
            num_queues: 2,
            max_sessions,
            memory: None,
            cgroups: None,
            guest_pages: GuestPages::All,
            lose_sessions: false,
            contents: None,
            suspend_with_machine: false,
            session_rate: 20,
            max_user_sessions: (max_sessions / 2).max(1),
            images: ImageCache::new(0),
            exchange: Exchange::new(),
            endings: Arc::default(),
            suspender: Suspender::start(Options::default(), Arc::default(), None).unwrap(),
            descriptors: Descriptors::plenty(),
            record: |_, _, _| Err(std::io::ErrorKind::Unsupported.into()),
            pool,
        }),
    )
}

/// Sends one request and waits for its reply.
fn ask(
    device: &Arc<Device>,
    guest: &mut FixtureGuest,
    op: u32,
    session: u64,
    payload: &[u8],
) -> (u32, Vec<u8>) {
    let header =
        RequestHeader { op, session, payload_bytes: payload.len() as u32, ..RequestHeader::default() };
    let before = guest.used().len();
    let (request, chain) = guest.request(header, payload, &[], &[], ROOM);
    device.handle(request, chain);
    guest.wait_used(before + 1);
    let (head, _) = guest.used()[before];
    guest.reply(head)
}

fn hello(version: u32) -> Vec<u8> {
    Hello { protocol_version: version }.as_bytes().to_vec()
}

#[test]
fn a_driver_of_the_same_version_is_greeted_and_no_other() {
    let (device, mut guest) = (device(1), FixtureGuest::new());
    assert_eq!(
        ask(&device, &mut guest, OP_HELLO, 0, &hello(PROTOCOL_VERSION)),
        (REPLY_OK, hello(PROTOCOL_VERSION))
    );
    for other in [0, PROTOCOL_VERSION + 1, u32::MAX] {
        assert_eq!(ask(&device, &mut guest, OP_HELLO, 0, &hello(other)), (REPLY_VERSION, vec![]));
    }
    // The driver's version from its probe counts as well.
    device.set_driver_version(PROTOCOL_VERSION + 1);
    assert_eq!(ask(&device, &mut guest, OP_HELLO, 0, &hello(PROTOCOL_VERSION)).0, REPLY_VERSION);
    device.set_driver_version(PROTOCOL_VERSION);
    assert_eq!(ask(&device, &mut guest, OP_HELLO, 0, &hello(PROTOCOL_VERSION)).0, REPLY_OK);
}

#[test]
fn sessions_that_nobody_opened_are_lost() {
    let (device, mut guest) = (device(1), FixtureGuest::new());
    for op in [OP_CALL, OP_CLOSE, OP_UNPIN] {
        for session in [0, 1, u64::MAX] {
            assert_eq!(ask(&device, &mut guest, op, session, &[]), (REPLY_SESSION_LOST, vec![]));
        }
    }
    assert_eq!(ask(&device, &mut guest, OP_SHARE, 1, &[]).0, REPLY_INVALID);
}

#[test]
fn an_open_that_gets_no_worker_is_answered_and_gives_its_room_back() {
    let (device, mut guest) = (device(1), FixtureGuest::new());
    // The pool has stopped: taking a worker from it fails at once.
    device.settings.pool.stop();
    for _ in 0..3 {
        let open = Open { pid: 1, uid: 0, charged_uid: 0, name: [0; 16] };
        assert_eq!(ask(&device, &mut guest, OP_OPEN, 0, open.as_bytes()), (REPLY_NO_RESOURCES, vec![]));
    }
    assert_eq!(device.sessions.lock().opening, 0);
}

#[test]
fn no_more_sessions_open_than_allowed() {
    let device = device(2);
    let (first, second) = (device.reserve(ROOT), device.reserve(ROOT));
    assert!(first.is_some() && second.is_some() && device.reserve(ROOT).is_none());
    drop(first);
    assert!(device.reserve(ROOT).is_some());
}

#[test]
fn a_user_gets_half_of_the_sessions() {
    let device = device(4);
    let (first, second) = (device.reserve(1000), device.reserve(1000));
    assert!(first.is_some() && second.is_some() && device.reserve(1000).is_none());
    // The session that waits for a worker has one, and counts until it has ended.
    let (reservation, of_user) = first.unwrap();
    drop(reservation);
    assert!(device.reserve(1000).is_none());
    let others = (device.reserve(1001), device.reserve(ROOT));
    assert!(others.0.is_some() && others.1.is_some());
    drop((others, of_user));
    assert!(device.reserve(1000).is_some());
    drop(second);
    assert!(device.sessions.lock().users.is_empty());
}

#[test]
fn a_stop_is_not_undone_by_the_thread_of_a_queue() {
    let (device, guest) = (device(1), FixtureGuest::new());
    let before = device.stops();
    device.stop();
    device.go_on(&guest.snapshot(), before);
    assert!(device.is_stopped(), "the queue had started before the stop");
    // The next queue.
    device.stop();
    device.go_on(&guest.snapshot(), before + 1);
    assert!(device.stopped.load(Ordering::Acquire));
    device.go_on(&guest.snapshot(), device.stops());
    assert!(!device.stopped.load(Ordering::Acquire));
}
