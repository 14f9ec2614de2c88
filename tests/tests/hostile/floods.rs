// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Too much of everything, and random bytes.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::control::Control;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::{BUFFER_BYTES, CallParts, FakeFrontend, HIGH, LOW, PATIENCE, SLOTS};
use vhost_cuda_tests::ring::{Descriptor, INDIRECT, NEXT, QUEUE_SIZE, WRITE};
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, Opcode};
use virtio_cuda_protocol::transport::{
    MemEntry, OP_CALL, PROTOCOL_VERSION, REPLY_NO_RESOURCES, REPLY_OK, RequestHeader,
};
use zerocopy::IntoBytes;

use crate::kills::settle;
use crate::{Target, attack};

pub fn collect(suite: &mut Suite) {
    attack(suite, "floods::a_full_queue", full_queue);
    attack(suite, "floods::four_machines_at_once", four_machines);
    attack(suite, "floods::connections_that_say_nothing", silent_connections);
    attack(suite, "floods::connections_of_garbage", garbage_connections);
    attack(suite, "floods::sessions_that_are_never_closed", abandoned_sessions);
    attack(suite, "floods::random_chains", random_chains);
    attack(suite, "floods::random_requests", random_requests);
    suite.test("floods::control_socket", control_socket);
}

/// Clients of the control socket that write random bytes, half requests and long lines, that read nothing, and that come in great
/// number. The daemon serves the next one.
fn control_socket(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("control");
    let control = Control::at(&socket);
    let options = DaemonOptions { arguments: control.options(), ..DaemonOptions::default() };
    let mut daemon = Daemon::start(&kit.stack, &options)?;
    daemon.wait_until("control is served", PATIENCE, |_| control.sessions().is_ok())?;
    // A worker that is still starting has descriptors that are opened later.
    settle(&daemon, 1)?;
    let files = daemon.open_files();
    thread::scope(|scope| {
        for seed in 0..4 {
            let socket = &socket;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut silent = Vec::new();
                for _ in 0..40 {
                    let Ok(mut client) = UnixStream::connect(socket) else { continue };
                    let mut bytes: Vec<u8> = match random.u8(..3) {
                        0 => b"{\"do\":\"suspend\",\"all\":true}\n".repeat(random.usize(..200)),
                        1 => b"[".repeat(random.usize(..20_000)),
                        _ => (0..random.usize(..5000)).map(|_| random.u8(..)).collect(),
                    };
                    bytes.truncate(random.usize(..=bytes.len()));
                    // The daemon may have hung up.
                    let _ = client.set_nonblocking(true).and_then(|()| client.write_all(&bytes));
                    if random.u8(..8) == 0 {
                        silent.push(client);
                    }
                }
            });
        }
    });
    daemon.wait_until("it serves again", PATIENCE, |_| control.sessions().is_ok())?;
    daemon.wait_until("descriptors are closed", PATIENCE, |daemon| daemon.open_files() <= files)?;
    ensure!(daemon.is_running(), "the daemon has ended");
    Ok(())
}

/// As many requests as the queue holds, without collecting any meanwhile. Each is answered once.
fn full_queue(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    let parts = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
    let payload = parts.payload(&parts.header());
    let header =
        RequestHeader { op: OP_CALL, session, payload_bytes: payload.len() as u32, ..Default::default() };
    let bytes = [header.as_bytes(), &payload].concat();
    for _ in 0..20 {
        for slot in 0..SLOTS {
            frontend.submit(0, slot, &bytes, BUFFER_BYTES as u32)?;
        }
        let mut seen = [false; SLOTS as usize];
        for _ in 0..SLOTS {
            let reply = frontend.reply(0, PATIENCE)?.context("A request was not answered")?;
            let slot = reply.used.head as usize / usize::from(QUEUE_SIZE / SLOTS);
            ensure!(!std::mem::replace(&mut seen[slot], true), "slot {slot} was answered twice");
            ensure!([REPLY_OK, REPLY_NO_RESOURCES].contains(&reply.status), "status {}", reply.status);
        }
    }
    Ok(())
}

fn four_machines(target: &mut Target) -> Result<()> {
    let socket = target.daemon.socket();
    let attackers = (0..4).map(|seed| {
        let socket = socket.clone();
        thread::spawn(move || -> Result<()> {
            for round in 0..5 {
                let mut frontend = FakeFrontend::connect(&socket)?;
                let session = frontend.open_session()?;
                random_calls(&mut frontend, session, seed * 100 + round, 200)?;
            }
            Ok(())
        })
    });
    for attacker in attackers.collect::<Vec<_>>() {
        attacker.join().map_err(|_| anyhow::anyhow!("An attacker panicked"))??;
    }
    Ok(())
}

fn random_bytes(random: &mut fastrand::Rng, below: usize) -> Vec<u8> {
    let count = random.usize(..below);
    std::iter::repeat_with(|| random.u8(..)).take(count).collect()
}

fn random_calls(frontend: &mut FakeFrontend, session: u64, seed: u64, count: usize) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..count {
        let bytes = random_bytes(&mut random, 300);
        let (in_entries, out_entries) = (random.u32(..3), random.u32(..3));
        let header = RequestHeader {
            op: OP_CALL,
            session,
            payload_bytes: bytes.len() as u32,
            in_entries,
            out_entries,
            ..Default::default()
        };
        let entries = (0..in_entries + out_entries).map(|_| MemEntry {
            addr: HIGH + random.u64(..1 << 20),
            bytes: random.u32(1..10_000),
            reserved: 0,
        });
        let entries: Vec<MemEntry> = entries.collect();
        frontend.exchange(&[header.as_bytes(), &bytes, entries.as_bytes()].concat(), 4096)?;
    }
    Ok(())
}

/// Connections that are opened and left: others are served meanwhile, and their remains go with them.
fn silent_connections(target: &mut Target) -> Result<()> {
    let socket = target.daemon.socket();
    FakeFrontend::behave(&socket)?;
    let before = target.daemon.open_files();
    let silent: Vec<_> = (0..50)
        .map(|_| std::os::unix::net::UnixStream::connect(&socket))
        .collect::<Result<_, _>>()
        .context("A connection")?;
    FakeFrontend::behave(&socket).context("With 50 silent connections")?;
    drop(silent);
    let settled = |daemon: &vhost_cuda_tests::daemon::Daemon| daemon.open_files() <= before + 4;
    target.daemon.wait_until("the descriptors of closed connections are closed", PATIENCE, settled)
}

fn garbage_connections(target: &mut Target) -> Result<()> {
    use std::io::Write;
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..50 {
        let mut stream = std::os::unix::net::UnixStream::connect(target.daemon.socket())?;
        let bytes = random_bytes(&mut random, 5000);
        // The daemon may hang up at the first wrong byte.
        let _ = stream.write_all(&bytes);
    }
    Ok(())
}

fn abandoned_sessions(target: &mut Target) -> Result<()> {
    FakeFrontend::behave(&target.daemon.socket())?;
    let quiet = target.daemon.workers().len();
    for _ in 0..8 {
        let mut frontend = target.connect()?;
        frontend.open_session()?;
        frontend.open()?;
    }
    let settled = |daemon: &vhost_cuda_tests::daemon::Daemon| daemon.workers().len() <= quiet.max(1);
    target.daemon.wait_until("the workers of gone machines have ended", PATIENCE, settled)
}

/// Random descriptor tables and heads. A queue may end up unusable; the daemon may not.
fn random_chains(target: &mut Target) -> Result<()> {
    for seed in 0..30 {
        attack_rings(&target.daemon.socket(), seed).with_context(|| format!("seed {seed}"))?;
        ensure!(target.daemon.is_running(), "seed {seed}: the daemon has ended");
    }
    Ok(())
}

fn attack_rings(socket: &Path, seed: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut frontend = FakeFrontend::connect_with(socket, if seed.is_multiple_of(2) { 1 << 28 } else { 0 })?;
    let base = frontend.readable(0, 0);
    for _ in 0..40 {
        for index in 0..16 {
            let addr = match random.u8(..10) {
                0 => random.u64(..),
                1 => LOW + random.u64(..0x10_0000),
                2 => HIGH - random.u64(..64),
                _ => base + random.u64(..100_000),
            };
            let len = match random.u8(..10) {
                0 => random.u32(..),
                1 => 0,
                _ => random.u32(..200),
            };
            let flags = [0, NEXT, NEXT, WRITE, NEXT | WRITE, INDIRECT, NEXT | INDIRECT][random.usize(..7)];
            let next = if random.u8(..12) == 0 { random.u16(..) } else { random.u16(..16) };
            frontend.rings[0].describe(index, Descriptor { addr, len, flags, next })?;
        }
        for _ in 0..8 {
            let head = if random.u8(..20) == 0 { random.u16(..) } else { random.u16(..16) };
            frontend.rings[0].offer(head)?;
        }
        frontend.rings[0].kick()?;
        while frontend.rings[0].next_used(Duration::from_millis(1))?.is_some() {}
    }
    Ok(())
}

/// Random headers before random bytes: every request is answered, and none leaks resources.
fn random_requests(target: &mut Target) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut frontend = target.connect()?;
    for round in 0..3000 {
        let mut small = |most: u32| if random.u8(..8) == 0 { random.u32(..) } else { random.u32(..=most) };
        let header = RequestHeader {
            op: small(7),
            flags: small(1),
            session: u64::from(small(2)),
            payload_bytes: small(64),
            in_entries: small(2),
            out_entries: small(2),
            reserved: small(0),
            tag: u64::from(small(3)),
        };
        let tail = random_bytes(&mut random, 130);
        frontend
            .exchange(&[header.as_bytes(), &tail].concat(), 1024)
            .with_context(|| format!("round {round}: {header:?}"))?;
    }
    ensure!(frontend.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "the queue is stuck");
    Ok(())
}
