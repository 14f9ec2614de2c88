// SPDX-License-Identifier: Apache-2.0 OR MIT

use vhost_cuda_common::exchange::{
    ALLOCATION, ANY_DEVICE, EVENT, HANDLE_BYTES, MEMORY, away, back, closed, look_up, offer, record, settle,
    withdraw,
};
use vhost_cuda_common::images::seal;

use super::*;
use crate::owner::Machine;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

fn budgets() -> FileBudgets {
    FileBudgets { of_user: 100, machine: Budget::new(100), descriptors: Budget::new(100) }
}

/// Settles a shortage of the device, and records process 7.
struct Daemon;

impl Services for Daemon {
    fn settle(&self, shortage: Shortage) -> bool {
        shortage == Shortage::Device(3)
    }

    fn record(&self, pid: u32) -> Option<OwnedFd> {
        (pid == 7).then(|| UnixStream::pair().unwrap().0.into())
    }
}

fn serve(exchange: &Arc<Exchange>, machine: u64, uid: u32, budgets: FileBudgets) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let owner = Owner { machine: Machine::Virtual(machine), uid };
    static SESSIONS: AtomicU64 = AtomicU64::new(1);
    let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
    exchange.serve(Sharer { socket: Arc::new(theirs), session, owner }, budgets, Vec::new(), Daemon);
    ours
}

fn worker(exchange: &Arc<Exchange>, uid: u32) -> UnixStream {
    serve(exchange, 1, uid, budgets())
}

/// Expects that the daemon has closed the socket.
fn expect_end(socket: &UnixStream) {
    use std::io::Read;
    let mut socket = socket;
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut bytes = [0; 4096];
    while socket.read(&mut bytes).unwrap_or(0) > 0 {}
    assert!(offer(socket, memory(1), None).is_err());
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

fn memory(byte: u8) -> Offer {
    Offer { what: MEMORY, device: 0, bytes: 4096, handle: [byte; HANDLE_BYTES] }
}

#[test]
fn what_one_offers_another_finds_by_its_token_alone() {
    let exchange = Exchange::new();
    let (one, other, stranger) = (worker(&exchange, 7), worker(&exchange, 7), worker(&exchange, 8));
    let token = offer(&one, memory(1), None).unwrap().unwrap();
    assert_eq!(offer(&one, memory(1), None).unwrap(), Some(token), "the same again");
    assert_ne!(offer(&one, memory(2), None).unwrap(), Some(token));
    assert_eq!(look_up(&other, token, MEMORY).unwrap().unwrap().0, memory(1));
    assert!(look_up(&other, token, EVENT).unwrap().is_none(), "it is something else");
    assert!(look_up(&stranger, token, MEMORY).unwrap().is_none(), "of another user");
    let elsewhere = serve(&exchange, 2, 7, budgets());
    assert!(look_up(&elsewhere, token, MEMORY).unwrap().is_none(), "of another machine");
    let mut wrong = token;
    wrong[0] ^= 1;
    assert!(look_up(&other, wrong, MEMORY).unwrap().is_none());
}

#[test]
fn offers_end_with_their_session_and_are_bounded() {
    let exchange = Exchange::new();
    let (one, other) = (worker(&exchange, 7), worker(&exchange, 7));
    let mut last = None;
    for number in 0..MAX_OFFERS as u64 {
        last = offer(&one, Offer { bytes: number, ..memory(1) }, None).unwrap();
        assert!(last.is_some());
    }
    assert!(offer(&one, memory(1), None).unwrap().is_none());
    assert!(offer(&other, memory(1), None).unwrap().is_some());
    drop(one);
    wait_until("the offers outlive their session", || {
        look_up(&other, last.unwrap(), MEMORY).unwrap().is_none()
    });
}

#[test]
fn offers_stay_while_a_session_goes_from_one_worker_to_another() {
    let exchange = Exchange::new();
    let owner = Owner { machine: Machine::Virtual(1), uid: 7 };
    let [first, second] = [(); 2].map(|()| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sharer = Sharer { socket: Arc::new(theirs), session: 99, owner };
        exchange.serve(sharer, budgets(), Vec::new(), Daemon);
        ours
    });
    let token = offer(&first, memory(1), None).unwrap().unwrap();
    drop(first);
    wait_until("the first one has ended", || exchange.0.lock().sessions[&99].workers == 1);
    let later = offer(&second, memory(2), None).unwrap().unwrap();
    let other = worker(&exchange, 7);
    assert!([token, later].iter().all(|token| look_up(&other, *token, MEMORY).unwrap().is_some()));
    drop(second);
    wait_until("the session has ended", || !exchange.0.lock().sessions.contains_key(&99));
    assert!(look_up(&other, later, MEMORY).unwrap().is_none());
}

#[test]
fn events_end_while_nobody_has_them_open_and_whoever_looks_for_them_waits() {
    let exchange = Exchange::new();
    let (one, other) = (worker(&exchange, 7), worker(&exchange, 7));
    let event = |byte| Offer { what: EVENT, bytes: 0, ..memory(byte) };
    let token = offer(&one, event(1), None).unwrap().unwrap();
    for _ in 0..2 {
        assert_eq!(look_up(&other, token, EVENT).unwrap().unwrap().0, event(1));
    }
    for _ in 0..2 {
        assert!(!away(&one).unwrap(), "it is open there");
        closed(&other, token).unwrap();
    }
    // The other one answers, so that the last word of it has come.
    assert!(look_up(&other, [0; TOKEN_BYTES], EVENT).unwrap().is_none());
    assert!(away(&one).unwrap());
    thread::scope(|scope| {
        let found = scope.spawn(|| look_up(&other, token, EVENT).unwrap().unwrap().0);
        thread::sleep(Duration::from_millis(50));
        assert!(!found.is_finished(), "it is away");
        assert!(!back(&one, [0; TOKEN_BYTES], event(2), None).unwrap());
        assert!(!back(&one, token, memory(2), None).unwrap(), "it is something else");
        assert!(back(&one, token, event(2), None).unwrap());
        assert_eq!(found.join().unwrap(), event(2));
    });
    assert!(!back(&other, token, event(3), None).unwrap(), "another session's");
    assert!(!away(&one).unwrap());
    // All that it has open ends with its own.
    assert!(away(&other).unwrap() && away(&one).unwrap());
    drop(one);
    assert!(look_up(&other, token, EVENT).unwrap().is_none(), "nobody brings it back");
}

#[test]
fn files_come_along() {
    let exchange = Exchange::new();
    let (one, other) = (worker(&exchange, 7), worker(&exchange, 7));
    let file = seal(b"shared").unwrap();
    let token = offer(&one, Offer { what: ALLOCATION, ..memory(0) }, Some(&file)).unwrap().unwrap();
    let (_, found) = look_up(&other, token, ALLOCATION).unwrap().unwrap();
    let mut bytes = [0; 6];
    found.unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"shared");
}

#[test]
fn objects_with_files_are_never_the_same() {
    let exchange = Exchange::new();
    let (one, other) = (worker(&exchange, 7), worker(&exchange, 7));
    let offered = |text: &[u8]| offer(&one, memory(1), Some(&seal(text).unwrap())).unwrap().unwrap();
    let tokens = [offered(b"first"), offered(b"other")];
    for (token, text) in tokens.into_iter().zip([b"first", b"other"]) {
        let (_, file) = look_up(&other, token, MEMORY).unwrap().unwrap();
        let mut bytes = [0; 5];
        file.unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, text);
    }
    withdraw(&one, tokens[0]).unwrap();
    assert!(look_up(&other, tokens[1], MEMORY).unwrap().is_some(), "the other one is still there");
}

#[test]
fn only_memory_is_kept() {
    let (exchange, budgets) = (Exchange::new(), budgets());
    let one = serve(&exchange, 1, 7, budgets.clone());
    let socket: OwnedFd = UnixStream::pair().unwrap().0.into();
    let pipe: OwnedFd = io::pipe().unwrap().0.into();
    let open = |path| OwnedFd::from(File::open(path).unwrap());
    for other in [socket, pipe, open("/"), open("/dev/null"), open("/proc/self/exe")] {
        let what = format!("{other:?}");
        let refused = offer(&one, Offer { what: ALLOCATION, ..memory(0) }, Some(&other.into())).unwrap();
        assert!(refused.is_none(), "{what}");
    }
    assert!(offer(&one, memory(1), None).unwrap().is_some(), "it is served still");
    assert_eq!(budgets.machine.used(), 0);
}

#[test]
fn withdrawn_offers_make_room_and_are_found_no_more() {
    let (exchange, budgets) = (Exchange::new(), budgets());
    let (one, other) = (serve(&exchange, 1, 7, budgets.clone()), worker(&exchange, 7));
    let allocation = Offer { what: ALLOCATION, ..memory(0) };
    let offered = |socket| offer(socket, allocation, Some(&seal(b"memory").unwrap())).unwrap();
    for _ in 0..1000 {
        withdraw(&one, offered(&one).expect("an offer")).unwrap();
    }
    let tokens: Vec<_> = (0..budgets.of_user).map(|_| offered(&one).expect("an offer")).collect();
    assert!(offered(&one).is_none(), "one too many");
    assert_eq!(budgets.machine.used(), budgets.of_user);
    let (_, found) = look_up(&other, tokens[0], ALLOCATION).unwrap().unwrap();
    withdraw(&other, tokens[0]).unwrap();
    assert!(look_up(&other, tokens[0], ALLOCATION).unwrap().is_some(), "it is not the other's to withdraw");
    withdraw(&one, tokens[0]).unwrap();
    // The other one's thread may have the object for a moment after its answer.
    wait_until("there is room again", || offered(&one).is_some());
    assert!(look_up(&other, tokens[0], ALLOCATION).unwrap().is_none());
    let mut bytes = [0; 6];
    found.unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"memory", "who has found it keeps it");
    // The same object offered after a withdrawal is another offer.
    let token = offer(&one, memory(1), None).unwrap().unwrap();
    withdraw(&one, token).unwrap();
    assert_ne!(offer(&one, memory(1), None).unwrap(), Some(token));
    drop(one);
    wait_until("files outlive their session", || {
        budgets.machine.used() == 0 && budgets.descriptors.used() == 0
    });
}

#[test]
fn files_are_bounded_for_a_machine_and_for_the_daemon() {
    let exchange = Exchange::new();
    let offered = |socket| {
        let file = seal(b"memory").unwrap();
        offer(socket, Offer { what: ALLOCATION, ..memory(0) }, Some(&file)).unwrap().is_some()
    };
    let few = FileBudgets { of_user: 9, machine: Budget::new(2), descriptors: Budget::new(3) };
    let (one, other) = (serve(&exchange, 1, 7, few.clone()), serve(&exchange, 1, 8, few.clone()));
    assert!(offered(&one) && offered(&other) && !offered(&one));
    let elsewhere = serve(&exchange, 2, 7, FileBudgets { machine: Budget::new(2), ..few });
    assert!(offered(&elsewhere) && !offered(&elsewhere));
}

#[test]
fn a_user_may_share_many_files_in_all_sessions_together_and_leaves_some_to_others() {
    let exchange = Exchange::new();
    let budgets = FileBudgets { of_user: 600, machine: Budget::new(800), descriptors: Budget::new(1000) };
    let file = seal(b"memory").unwrap();
    let mut number = 0_u64;
    let mut offered = |socket| {
        number += 1;
        let one = Offer { what: ALLOCATION, bytes: number, ..memory(1) };
        offer(socket, one, Some(&file)).unwrap()
    };
    let begin = |uid| serve(&exchange, 1, uid, budgets.clone());
    let (one, second, other) = (begin(7), begin(7), begin(8));
    let tokens: Vec<_> = (0..500).map(|_| offered(&one).unwrap()).collect();
    assert_eq!((0..101).filter(|_| offered(&second).is_some()).count(), 100);
    assert_eq!((0..201).filter(|_| offered(&other).is_some()).count(), 200, "the rest of the machine's");
    for token in &tokens[..50] {
        withdraw(&one, *token).unwrap();
    }
    assert_eq!((0..51).filter(|_| offered(&one).is_some()).count(), 50);
    drop((one, second, other));
    wait_until("files outlive their sessions", || {
        budgets.machine.used() == 0 && exchange.0.lock().users.is_empty()
    });
}

#[test]
fn a_worker_that_does_not_read_its_answers_is_left() {
    let exchange = Exchange::new();
    let one = worker(&exchange, 7);
    // A thread begins it.
    wait_until("its session has begun", || !exchange.0.lock().sessions.is_empty());
    let question = Question { kind: OFFER, number: 0, token: [0; TOKEN_BYTES], offer: memory(1) };
    for _ in 0..100 {
        if write_with(&one, question.as_bytes(), None).is_err() {
            break;
        }
    }
    // Before anything is read: there would be room again.
    wait_until("its session is over", || exchange.0.lock().sessions.is_empty());
    expect_end(&one);
}

#[test]
fn a_worker_without_memory_waits_for_sessions_that_are_ending() {
    let one = worker(&Exchange::new(), 7);
    assert!(settle(&one, Shortage::Device(3)).unwrap());
    assert!(!settle(&one, Shortage::Device(ANY_DEVICE)).unwrap());
    assert!(!settle(&one, Shortage::None).unwrap() && !settle(&one, Shortage::Limit).unwrap());
    assert!(offer(&one, memory(1), None).unwrap().is_some(), "other questions go on");
}

#[test]
fn nonsense_ends_the_conversation() {
    let exchange = Exchange::new();
    let one = worker(&exchange, 7);
    let question = Question { kind: 9, number: 0, token: [0; TOKEN_BYTES], offer: memory(1) };
    write_with(&one, question.as_bytes(), None).unwrap();
    expect_end(&one);
}

#[test]
fn devices_of_nvidia_are_known_by_their_names() {
    let devices =
        "Character devices:\n  1 mem\n195 nvidia\n236 nvidia-uvm\n\nBlock devices:\n  8 nvidia-not\n";
    assert_eq!(nvidia_majors(devices), [195, 236]);
    assert!(is_nvidia(195) && !is_nvidia(1));
}

#[test]
fn offers_go_over_with_their_tokens_and_files() {
    let before = Exchange::new();
    let (socket, theirs) = UnixStream::pair().unwrap();
    let owner = Owner { machine: Machine::Host, uid: 7 };
    before.serve(Sharer { socket: Arc::new(theirs), session: 42, owner }, budgets(), Vec::new(), Daemon);
    let file = seal(b"memory").unwrap();
    let what = Offer { what: ALLOCATION, device: 1, bytes: 6, handle: [0; HANDLE_BYTES] };
    let tokens = [offer(&socket, memory(1), None), offer(&socket, what, Some(&file))];
    let [plain, with_file] = tokens.map(|token| token.unwrap().unwrap());
    let mut files = Leaving::default();
    assert!(before.save(41, &mut files).is_empty(), "another session");
    let saved = before.save(42, &mut files);
    let json = serde_json::to_vec(&saved).unwrap();
    let saved: Vec<SavedOffer> = serde_json::from_slice(&json).unwrap();
    assert_eq!((saved.len(), files.numbers().len()), (2, 1));
    // The daemon's file is the next program's now.
    std::mem::forget(before);
    std::mem::forget(socket);
    crate::hand_over::files::keep_open(&files.numbers(), true).unwrap();
    let mut files = Inherited::of(&files.numbers()).unwrap();
    let wrong = SavedOffer { handle: vec![1], ..saved[0].clone() };
    assert!(wrong.restore(&mut files).is_err(), "a handle of another length");
    let offers = saved.into_iter().map(|offer| offer.restore(&mut files)).collect::<io::Result<_>>();
    let after = Exchange::new();
    let (again, theirs) = UnixStream::pair().unwrap();
    after.serve(Sharer { socket: Arc::new(theirs), session: 42, owner }, budgets(), offers.unwrap(), Daemon);
    assert_eq!(look_up(&again, plain, MEMORY).unwrap().unwrap().0, memory(1));
    let (found, file) = look_up(&again, with_file, ALLOCATION).unwrap().unwrap();
    let mut bytes = [0; 6];
    file.unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((found, &bytes), (what, b"memory"));
    assert_eq!(offer(&again, memory(1), None).unwrap(), Some(plain), "the same object again");
}

#[test]
fn a_recording_is_a_socket_of_its_own() {
    let exchange = Exchange::new();
    let worker = worker(&exchange, 1000);
    assert!(record(&worker, 8).unwrap().is_none());
    assert!(record(&worker, 7).unwrap().unwrap().metadata().unwrap().file_type().is_socket());
    assert!(offer(&worker, memory(1), None).unwrap().is_some(), "the questions go on");
}
