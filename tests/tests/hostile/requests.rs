// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Malformed requests in well-formed chains.

pub mod watching;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::frontend::{BUFFER_BYTES, CallParts, FakeFrontend, HIGH, HIGH_BYTES, LOW, LOW_BYTES};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, Opcode};
use virtio_cuda_protocol::transport::{
    FLAG_KEEP, FLAG_READ, Hello, MemEntry, OP_CALL, OP_CLOSE, OP_HELLO, OP_OPEN, OP_SHARE, OP_UNPIN, Open,
    PROTOCOL_VERSION, REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK, REPLY_SESSION_LOST, REPLY_VERSION,
    RequestHeader,
};
use zerocopy::IntoBytes;

use crate::{Target, attack, attack_with};

const ROOM: u32 = BUFFER_BYTES as u32;

pub fn collect(suite: &mut Suite) {
    attack(suite, "requests::headers", headers);
    attack(suite, "requests::counts_that_lie", counts_that_lie);
    attack(suite, "requests::entries", entries);
    attack(suite, "requests::kept_entries", kept_entries);
    attack(suite, "requests::sessions_of_nobody", sessions_of_nobody);
    attack(suite, "requests::sessions_of_others", sessions_of_others);
    attack(suite, "requests::other_versions", other_versions);
    attack(suite, "requests::hello_ends_sessions", hello_ends_sessions);
    let few = |limits: &[&str]| {
        let arguments = limits.iter().map(|&limit| limit.to_owned()).collect();
        DaemonOptions { arguments, ..Default::default() }
    };
    let two = few(&["--max-sessions", "2", "--max-user-sessions", "2"]);
    attack_with(suite, "requests::too_many_sessions", two, too_many_sessions);
    let four = few(&["--max-sessions", "4"]);
    attack_with(suite, "requests::too_many_sessions_of_a_user", four, too_many_sessions_of_a_user);
}

fn expect(frontend: &mut FakeFrontend, what: &str, bytes: &[u8], status: u32) -> Result<()> {
    let reply = frontend.exchange(bytes, ROOM).with_context(|| what.to_owned())?;
    ensure!(reply.status == status, "{what}: status {}, not {status}", reply.status);
    ensure!(status == REPLY_OK || reply.payload.is_empty(), "{what}: a refusal with a payload");
    Ok(())
}

/// A session that answers.
fn expect_alive(frontend: &mut FakeFrontend, session: u64, what: &str) -> Result<()> {
    let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
    let answer = frontend.call(session, &hello).with_context(|| format!("after {what}"))?;
    ensure!(answer.result == 0, "after {what}: session_hello answered {}", answer.result);
    Ok(())
}

fn headers(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    let call = RequestHeader { op: OP_CALL, session, ..Default::default() };
    let bad = [
        ("operation 0", RequestHeader { op: 0, ..call }),
        ("operation 7", RequestHeader { op: OP_SHARE + 1, ..call }),
        ("operation 2^32 - 1", RequestHeader { op: u32::MAX, ..call }),
        ("unknown flags", RequestHeader { flags: FLAG_KEEP | 4, tag: 1, ..call }),
        ("read without keep", RequestHeader { flags: FLAG_READ, ..call }),
        ("all flags", RequestHeader { flags: u32::MAX, ..call }),
        ("a reserved field", RequestHeader { reserved: 1, ..call }),
        ("keep in a close", RequestHeader { op: OP_CLOSE, flags: FLAG_KEEP, ..call }),
        ("keep in a hello", RequestHeader { op: OP_HELLO, session: 0, flags: FLAG_KEEP, ..call }),
        ("a hello without payload", RequestHeader { op: OP_HELLO, session: 0, ..call }),
        ("an open without payload", RequestHeader { op: OP_OPEN, session: 0, ..call }),
        ("a share without pages", RequestHeader { op: OP_SHARE, ..call }),
    ];
    for (what, header) in bad {
        expect(&mut frontend, what, header.as_bytes(), REPLY_INVALID)?;
    }
    let open = Open { pid: 1, uid: 1, charged_uid: 1, name: [0xff; 16] };
    let long = RequestHeader { op: OP_OPEN, session: 0, payload_bytes: 29, ..call };
    expect(&mut frontend, "a long open", &[long.as_bytes(), open.as_bytes(), &[0]].concat(), REPLY_INVALID)?;
    let named = RequestHeader { op: OP_OPEN, session, payload_bytes: 28, ..call };
    expect(
        &mut frontend,
        "an open in a session",
        &[named.as_bytes(), open.as_bytes()].concat(),
        REPLY_INVALID,
    )?;
    let hello = Hello { protocol_version: PROTOCOL_VERSION };
    let named = RequestHeader { op: OP_HELLO, session, payload_bytes: 4, ..call };
    expect(
        &mut frontend,
        "a hello in a session",
        &[named.as_bytes(), hello.as_bytes()].concat(),
        REPLY_INVALID,
    )?;
    // An arbitrary program name is only a name.
    let other = RequestHeader { op: OP_OPEN, session: 0, payload_bytes: 28, ..call };
    expect(&mut frontend, "a name of nonsense", &[other.as_bytes(), open.as_bytes()].concat(), REPLY_OK)?;
    expect_alive(&mut frontend, session, "bad headers")
}

fn counts_that_lie(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    let call = RequestHeader { op: OP_CALL, session, ..Default::default() };
    let lies = [
        RequestHeader { payload_bytes: 1, ..call },
        RequestHeader { payload_bytes: u32::MAX, ..call },
        RequestHeader { payload_bytes: frontend.config.max_payload_bytes + 1, ..call },
        RequestHeader { in_entries: 1, ..call },
        RequestHeader { in_entries: u32::MAX, ..call },
        RequestHeader { out_entries: 1, ..call },
        RequestHeader { out_entries: u32::MAX, ..call },
        RequestHeader { in_entries: 1 << 28, out_entries: 1 << 28, ..call },
        RequestHeader { in_entries: u32::MAX, out_entries: u32::MAX, payload_bytes: u32::MAX, ..call },
    ];
    for header in lies {
        expect(&mut frontend, &format!("{header:?}"), header.as_bytes(), REPLY_INVALID)?;
        let more = [header.as_bytes(), &[0; 100]].concat();
        expect(&mut frontend, &format!("{header:?} and 100 bytes"), &more, REPLY_INVALID)?;
    }
    let trailing = [call.as_bytes(), &[0; 3]].concat();
    expect(&mut frontend, "bytes that nobody counts", &trailing, REPLY_INVALID)?;
    expect_alive(&mut frontend, session, "lies")
}

fn with_entries(header: RequestHeader, input: &[MemEntry], output: &[MemEntry]) -> Vec<u8> {
    let (in_entries, out_entries) = (input.len() as u32, output.len() as u32);
    let header = RequestHeader { in_entries, out_entries, ..header };
    [header.as_bytes(), input.as_bytes(), output.as_bytes()].concat()
}

fn entries(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    let call = RequestHeader { op: OP_CALL, session, ..Default::default() };
    let entry = |addr: u64, bytes: u32| MemEntry { addr, bytes, reserved: 0 };
    let bad = [
        ("no bytes", entry(HIGH, 0)),
        ("a reserved field", MemEntry { addr: HIGH, bytes: 16, reserved: 1 }),
        ("at 0", entry(0, 16)),
        ("before the memory", entry(LOW - 8, 16)),
        ("over the end of a region", entry(LOW + LOW_BYTES - 8, 16)),
        ("in the hole", entry(LOW + LOW_BYTES, 4096)),
        ("into the next region", entry(HIGH - 8, 16)),
        ("over the end of memory", entry(HIGH + HIGH_BYTES - 8, 16)),
        ("around the end of all addresses", entry(u64::MAX - 7, 16)),
        ("4 GiB", entry(LOW, u32::MAX)),
    ];
    for (what, entry) in bad {
        for (input, output) in [(&[entry][..], &[][..]), (&[], &[entry]), (&[entry], &[entry])] {
            expect(&mut frontend, what, &with_entries(call, input, output), REPLY_INVALID)?;
        }
    }
    // More than one request may name, although each entry is good.
    let most = frontend.config.max_bulk_bytes;
    let piece = entry(LOW, (LOW_BYTES / 2) as u32);
    let many = vec![piece; (most / u64::from(piece.bytes) + 1) as usize];
    expect(&mut frontend, "more than max_bulk_bytes", &with_entries(call, &many, &[]), REPLY_INVALID)?;
    expect(&mut frontend, "more than max_bulk_bytes", &with_entries(call, &[], &many), REPLY_INVALID)?;
    expect_alive(&mut frontend, session, "bad entries")
}

fn kept_entries(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    let keep = RequestHeader { op: OP_CALL, session, flags: FLAG_KEEP, tag: 1, ..Default::default() };
    let share = RequestHeader { op: OP_SHARE, session, tag: 4096, ..Default::default() };
    let entry = |addr: u64, bytes: u32| MemEntry { addr, bytes, reserved: 0 };
    for bad in [entry(HIGH + 8, 4096), entry(HIGH, 4095), entry(HIGH, 1), entry(HIGH - 4096, 8192)] {
        expect(&mut frontend, &format!("{bad:?} kept"), &with_entries(keep, &[], &[bad]), REPLY_INVALID)?;
        expect(&mut frontend, &format!("{bad:?} shared"), &with_entries(share, &[], &[bad]), REPLY_INVALID)?;
    }
    expect_alive(&mut frontend, session, "bad kept entries")?;
    // Unpinning pages that were never pinned.
    let unpin = RequestHeader { op: OP_UNPIN, session, tag: 99, ..Default::default() };
    let reply = frontend.exchange(unpin.as_bytes(), ROOM)?;
    ensure!(reply.status != REPLY_SESSION_LOST, "an unknown tag ended the session");
    expect_alive(&mut frontend, session, "an unknown tag")
}

fn sessions_of_nobody(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    for name in [0, 1, 2, session ^ 1, session.wrapping_add(1), u64::MAX] {
        for op in [OP_CALL, OP_CLOSE, OP_UNPIN] {
            let header = RequestHeader { op, session: name, ..Default::default() };
            expect(
                &mut frontend,
                &format!("operation {op}, session {name:#x}"),
                header.as_bytes(),
                REPLY_SESSION_LOST,
            )?;
        }
    }
    expect_alive(&mut frontend, session, "sessions of nobody")?;
    ensure!(frontend.close(session)?.status == REPLY_OK, "close");
    let closed = RequestHeader { op: OP_CLOSE, session, ..Default::default() };
    expect(&mut frontend, "closed twice", closed.as_bytes(), REPLY_SESSION_LOST)?;
    let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
    let reply = frontend.carry(session, &hello.payload(&hello.header()), [&[], &[]])?;
    ensure!(reply.status == REPLY_SESSION_LOST, "a call after close: status {}", reply.status);
    Ok(())
}

/// One machine's driver uses the session of another machine.
fn sessions_of_others(target: &mut Target) -> Result<()> {
    let (mut victim, mut attacker) = (target.connect()?, target.connect()?);
    let session = victim.open_session()?;
    let own = attacker.open_session()?;
    ensure!(session != own, "two sessions have one name");
    for op in [OP_CALL, OP_CLOSE, OP_UNPIN] {
        let header = RequestHeader { op, session, ..Default::default() };
        expect(
            &mut attacker,
            &format!("operation {op} on another's session"),
            header.as_bytes(),
            REPLY_SESSION_LOST,
        )?;
    }
    attacker.hello(PROTOCOL_VERSION)?;
    expect_alive(&mut victim, session, "an attack by another machine")
}

fn other_versions(target: &mut Target) -> Result<()> {
    for version in [0, PROTOCOL_VERSION + 1, u32::MAX] {
        let mut frontend = target.connect()?;
        let reply = frontend.hello(version)?;
        ensure!(reply.status == REPLY_VERSION, "version {version}: status {}", reply.status);
    }
    let log = target.daemon.log();
    let both = [format!("version {}", PROTOCOL_VERSION + 1), format!("{PROTOCOL_VERSION}")];
    ensure!(both.iter().all(|version| log.contains(version)), "the log does not name both versions");
    Ok(())
}

fn hello_ends_sessions(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    ensure!(frontend.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "hello");
    let header = RequestHeader { op: OP_CALL, session, ..Default::default() };
    expect(&mut frontend, "a session from before hello", header.as_bytes(), REPLY_SESSION_LOST)
}

/// A user of the guest gets half of the sessions; its root may use the rest.
fn too_many_sessions_of_a_user(target: &mut Target) -> Result<()> {
    const ROOT: u32 = 0;
    let mut frontend = target.connect()?;
    let first = frontend.open_session()?;
    let expect = |frontend: &mut FakeFrontend, uid: u32, status: u32| -> Result<()> {
        let reply = frontend.open_as(uid)?;
        ensure!(reply.status == status, "user {uid}: status {}, not {status}", reply.status);
        Ok(())
    };
    expect(&mut frontend, 1000, REPLY_OK)?;
    expect(&mut frontend, 1000, REPLY_NO_RESOURCES)?;
    expect(&mut frontend, 1001, REPLY_OK)?;
    expect(&mut frontend, 1000, REPLY_NO_RESOURCES)?;
    // A subordinate user of the first one, in a namespace.
    let reply = frontend.open_charged(100_000, 1000)?;
    ensure!(reply.status == REPLY_NO_RESOURCES, "a subordinate user: status {}", reply.status);
    expect(&mut frontend, ROOT, REPLY_OK)?;
    expect(&mut frontend, ROOT, REPLY_NO_RESOURCES)?;
    expect_alive(&mut frontend, first, "sessions of others")?;
    // A close that is answered has made room.
    ensure!(frontend.close(first)?.status == REPLY_OK, "close");
    expect(&mut frontend, 1000, REPLY_OK)
}

fn too_many_sessions(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let first = frontend.open_session()?;
    ensure!(frontend.open()?.status == REPLY_OK, "the second session");
    for _ in 0..10 {
        let reply = frontend.open()?;
        ensure!(reply.status == REPLY_NO_RESOURCES, "the third session: status {}", reply.status);
    }
    expect_alive(&mut frontend, first, "too many sessions")?;
    ensure!(frontend.close(first)?.status == REPLY_OK, "close");
    ensure!(frontend.open()?.status == REPLY_OK, "a session in the place of a closed one");
    Ok(())
}
