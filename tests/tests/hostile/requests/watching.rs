// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Guests that record programs of other users and machines, and their own ones in a wrong way.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::frontend::{CallParts, CallResult, FakeFrontend, PATIENCE};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::Opcode;
use virtio_cuda_protocol::transport::{OP_OPEN, Open, PROTOCOL_VERSION, REPLY_OK, RequestHeader};
use zerocopy::IntoBytes;

use crate::calls::ILLEGAL_STATE;
use crate::{Target, attack};

const NOT_FOUND: i32 = 500;

pub fn collect(suite: &mut Suite) {
    attack(suite, "watching::other_users_and_machines", other_users_and_machines);
    attack(suite, "watching::recordings_out_of_order", recordings_out_of_order);
}

/// Opens the session of a process.
fn open(frontend: &mut FakeFrontend, pid: u32, uid: u32) -> Result<u64> {
    let open = Open { pid, uid, charged_uid: uid, name: *b"watching\0\0\0\0\0\0\0\0" };
    let header = RequestHeader { op: OP_OPEN, ..Default::default() };
    let reply = frontend.request(header, open.as_bytes(), [&[], &[]])?;
    ensure!(reply.status == REPLY_OK, "open was answered with status {}", reply.status);
    Ok(u64::from_le_bytes(reply.payload[..].try_into().context("A malformed reply to open")?))
}

fn call(
    frontend: &mut FakeFrontend,
    session: u64,
    opcode: Opcode,
    args: &[u8],
    room: u64,
) -> Result<CallResult> {
    frontend.call(session, &CallParts::new(opcode, args).wants(room))
}

fn start(frontend: &mut FakeFrontend, session: u64, pid: u32, expected: i32) -> Result<()> {
    let result = call(frontend, session, Opcode::profile_start, &pid.to_le_bytes(), 0)?.result;
    ensure!(result == expected, "a recording of process {pid}: {result} and not {expected}");
    Ok(())
}

/// Reads a recording. Returns whether it goes on.
fn read(frontend: &mut FakeFrontend, session: u64, room: u64) -> Result<bool> {
    let answer = call(frontend, session, Opcode::profile_read, &[], room)?;
    ensure!(answer.result == 0 && answer.bulk.len() as u64 <= room, "{answer:?}");
    ensure!(answer.results[..8] == (answer.bulk.len() as u64).to_le_bytes(), "{answer:?}");
    Ok(answer.results[8..12] != [0; 4])
}

/// Reads until the recording has ended.
fn end(frontend: &mut FakeFrontend, session: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while read(frontend, session, 4096)? {
        ensure!(Instant::now() < deadline, "the recording does not end");
    }
    Ok(())
}

fn other_users_and_machines(target: &mut Target) -> Result<()> {
    let (mut machine, mut other) = (target.connect()?, target.connect()?);
    for frontend in [&mut machine, &mut other] {
        ensure!(frontend.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "no greeting");
    }
    let watched = open(&mut machine, 100, 1000)?;
    let neighbour = open(&mut other, 101, 1000)?;
    start(&mut other, neighbour, 100, NOT_FOUND)?;
    let stranger = open(&mut machine, 102, 1001)?;
    start(&mut machine, stranger, 100, NOT_FOUND)?;
    start(&mut machine, stranger, 0, 0)?;
    machine.close(stranger)?;
    for (pid, uid) in [(103, 1000), (104, 0)] {
        let session = open(&mut machine, pid, uid)?;
        start(&mut machine, session, 100, 0)?;
        ensure!(read(&mut machine, session, 32 << 10)?, "the recording has ended");
        // It ends with the profiler's session.
        machine.close(session)?;
    }
    let last = open(&mut machine, 105, 1000)?;
    start(&mut machine, last, 100, 0)?;
    // It ends with the process that is recorded.
    machine.close(watched)?;
    end(&mut machine, last)?;
    start(&mut machine, last, 100, NOT_FOUND)
}

fn recordings_out_of_order(target: &mut Target) -> Result<()> {
    let mut machine = target.connect()?;
    ensure!(machine.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "no greeting");
    let session = open(&mut machine, 100, 1000)?;
    for pid in [1, 101, u32::MAX] {
        start(&mut machine, session, pid, NOT_FOUND)?;
    }
    ensure!(!read(&mut machine, session, 4096)?, "a recording that has not begun");
    ensure!(call(&mut machine, session, Opcode::profile_stop, &[], 0)?.result == 0, "nothing to end");
    for _ in 0..10 {
        start(&mut machine, session, 0, 0)?;
        start(&mut machine, session, 0, ILLEGAL_STATE)?;
        for room in [0, 1, 100, 32 << 10] {
            ensure!(read(&mut machine, session, room)?, "the recording has ended");
        }
        for _ in 0..2 {
            call(&mut machine, session, Opcode::profile_stop, &[], 0)?;
        }
        end(&mut machine, session)?;
    }
    Ok(())
}
