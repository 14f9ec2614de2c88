// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::time::Instant;

use virtio_cuda_protocol::transport::Open;

use super::super::client::ask;
use super::*;
use crate::sessions::fixture::sleeping_worker;
use crate::sessions::session::{Place, Session};
use crate::suspend::suspender::Options;
use crate::suspend::suspender::renewing::Error;

struct Fixture {
    folder: PathBuf,
    _listening: Listening,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("vhost-cuda-control-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let suspender = Suspender::start(Options::default(), Arc::default(), None).unwrap();
        let replace: Replace = Arc::new(|_| "it is a test".into());
        let renew: renewing::Renew = Arc::new(|_, _, _| Err(Error::Worker("it is a test".into())));
        let served = Served { suspender, replace, renew };
        let socket = folder.join("socket");
        let listening = start(&socket, listen(&socket).unwrap(), served).unwrap();
        Self { folder, _listening: listening }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends bytes, and returns the first answer.
    fn say(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn several_requests_are_answered_in_order() {
    let fixture = Fixture::new("order");
    let mut stream = fixture.connect();
    stream
        .write_all(
            b"{\"do\":\"status\"}\n{\"do\":\"suspend\",\"session\":7}\n{\"do\":\"resume\",\"all\":true}\n",
        )
        .unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = || serde_json::from_str::<Answer>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((next().ok, next().error), (true, Some("there is no session 7".into())));
    let last = next();
    assert!(last.ok && last.sessions.is_empty(), "all of none are done");
    let answer: Answer = serde_json::from_str(&ask(&fixture.socket(), &Request::Status {}).unwrap()).unwrap();
    assert!(answer.ok);
}

#[test]
fn requests_that_are_none_are_refused_with_the_reason() {
    let fixture = Fixture::new("garbage");
    for (bad, said) in [
        (&b"\n"[..], "not a request"),
        (b"status\n", "not a request"),
        (b"{\"do\":\"stop\"}\n", "unknown variant"),
        (b"{\"do\":\"suspend\"}\n", "name one of"),
        (b"{\"do\":\"suspend\",\"all\":true,\"session\":1}\n", "name one of"),
        (b"{\"do\":\"suspend\",\"all\":true,\"timeout_ms\":600001}\n", "600000 ms"),
        (b"{\"do\":\"suspend\",\"connection\":9}\n", "connection 9"),
        (b"{\"do\":\"renew\"}\n", "name one of"),
        (b"{\"do\":\"renew\",\"session\":9}\n", "no session 9"),
        (b"{\"do\":\"renew\",\"all\":true,\"timeout_ms\":600001}\n", "600000 ms"),
        (b"{\"do\":\"trace\",\"session\":9,\"time_ms\":10}\n", "no session 9"),
        (b"{\"do\":\"trace\",\"time_ms\":10}\n", "name one of"),
        (b"{\"do\":\"trace\",\"all\":true,\"time_ms\":600001}\n", "600000 ms"),
        (b"\xff\xfe\n", "not a request"),
        (&[b'['; MAX_REQUEST - 1], "not a request"),
    ] {
        let mut line = bad.to_vec();
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        let answer = fixture.say(&line);
        let error = answer.error.unwrap_or_default();
        assert!(!answer.ok && error.contains(said), "{}: {error}", String::from_utf8_lossy(bad));
    }
    let answer = fixture.say(&[b' '; 2 * MAX_REQUEST]);
    assert!(answer.error.unwrap().contains("more than"));
}

#[test]
fn clients_beyond_the_limit_are_refused_and_the_others_served() {
    let fixture = Fixture::new("flood");
    let silent: Vec<_> = (0..MAX_CLIENTS).map(|_| fixture.connect()).collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    // The accepting thread takes them one after the other.
    while fixture.say(b"{\"do\":\"status\"}\n").ok {
        assert!(Instant::now() < deadline, "nobody was refused");
    }
    let mut first = &silent[0];
    first.write_all(b"{\"do\":\"status\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(first).read_line(&mut answer).unwrap();
    assert!(answer.starts_with("{\"ok\":true"), "{answer}");
    drop(silent);
    while !fixture.say(b"{\"do\":\"status\"}\n").ok {
        assert!(Instant::now() < deadline, "places are not given back");
    }
}

#[test]
fn half_a_request_is_none() {
    let fixture = Fixture::new("half");
    let mut stream = fixture.connect();
    stream.write_all(b"{\"do\":\"status\"}").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "");
}

#[test]
fn a_daemon_that_is_not_replaced_says_why() {
    let fixture = Fixture::new("replace");
    let answer = fixture.say(b"{\"do\":\"replace\"}\n");
    assert_eq!((answer.ok, answer.error), (false, Some("it is a test".into())));
    let (client, daemon) = UnixStream::pair().unwrap();
    answer_replace(&daemon, None);
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).unwrap();
    assert!(serde_json::from_str::<Answer>(&line).unwrap().ok);
}

#[test]
fn a_session_that_ends_meanwhile_fails_only_if_it_was_named() {
    let open = Open { pid: 1, uid: 0, charged_uid: 0, name: *b"program\0\0\0\0\0\0\0\0\0" };
    let (worker, _theirs) = sleeping_worker();
    let session = Session::new(3, 3, &open, Place::default(), worker, Arc::default(), Box::new(Arc::default));
    let member = Member { connection: 1, session, idle: Duration::ZERO };
    for (selected, error, expected) in [
        (Selection::All, Some(MoveError::Ended), None),
        (Selection::Connection(1), Some(MoveError::Ended), None),
        (Selection::Session(3), Some(MoveError::Ended), Some(true)),
        (Selection::All, Some(MoveError::Stuck), Some(true)),
        (Selection::All, None, Some(false)),
    ] {
        let has_failed =
            moved(selected, &member, error, MoveError::has_ended).map(|session| session.error.is_some());
        assert_eq!(has_failed, expected, "{selected:?} {error:?}");
    }
}
