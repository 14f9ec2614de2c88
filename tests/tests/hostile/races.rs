// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Guest threads that use an object while another one destroys it. Natively that is the end of the program; here libcuda must
//! not get a handle that it has freed, and no worker ends.
//!
//! The emulator looks handles up and would return an error. With `CUDA_EMULATOR_CHECK=handles` it ends the process
//! where NVIDIA's library would follow a pointer into freed memory.

mod graphs;
mod kinds;
mod others;
mod rows;
mod vendor;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_tests::daemon::{DaemonOptions, is_emulated};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::frontend::{BUFFER_BYTES, CallParts, CallResult, PATIENCE, Reply, parse_result};
use vhost_cuda_tests::stack::missing_library;
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::Opcode;
use virtio_cuda_protocol::transport::{OP_CALL, REPLY_OK, RequestHeader};
use zerocopy::IntoBytes;

use crate::calls::Session;
use crate::{Target, attack_with};

/// Rounds of each use with each destruction.
const DEFAULT_ROUNDS: u64 = 24;
/// Threads that use the object, beside the one that destroys it.
const USERS: usize = 2;
/// Stands in arguments for the 64-bit answer of the last call that made the object.
const ANSWER: u64 = 0xa55a_a55a_a55a_a55a;
/// Stand in arguments and bulk data for the first 8 or 16 bytes of the last answer of [`Kind::once`].
const FIRST: u64 = 0xc33c_c33c_c33c_c33c;
const TOKEN: [u8; 16] = [0xc7; 16];

/// Makes objects of a kind.
type Make = fn(&Session) -> Kind;
/// A test's name, and the kind of which it is.
type Test = (&'static str, Make);

/// Objects of one kind.
#[derive(Default)]
struct Kind {
    /// The types of its handles in the call table.
    handles: &'static [&'static str],
    /// Calls that make what stays.
    once: Vec<CallParts>,
    /// Calls that create an object, and succeed.
    make: Vec<CallParts>,
    /// Calls that use it.
    uses: Vec<CallParts>,
    /// The call that destroys it, and succeeds.
    destroy: CallParts,
    /// Calls that take away what may be left.
    clean: Vec<CallParts>,
    /// True if the name of a destroyed object is free only when the driver has reported its end, and `clean` has
    /// received the report.
    ends_later: bool,
    /// Objects that are expensive to create are created only in one of `every` rounds; 0 means 1.
    every: u32,
}

pub fn collect(suite: &mut Suite) {
    let environment = vec![("CUDA_EMULATOR_CHECK".to_owned(), "handles".to_owned())];
    let missing = if is_emulated() { None } else { missing_library(&["libcublas.so.13", "libcublas.so.12"]) };
    let libraries = if missing.is_none() { vendor::ALL } else { &[] };
    for (name, why) in vendor::ALL.iter().zip(&missing).map(|((name, _), why)| (name, why)) {
        suite.skip(format!("races::{name}"), why);
    }
    for &(name, kind) in own_kinds().chain(libraries) {
        let options = DaemonOptions { environment: environment.clone(), ..DaemonOptions::default() };
        attack_with(suite, &format!("races::{name}"), options, move |target| race(target, kind));
    }
    attack_with(
        suite,
        "races::every_use_of_a_handle_is_there",
        DaemonOptions::default(),
        rows::all_are_there,
    );
}

/// The kinds of CUDA itself.
fn own_kinds() -> impl Iterator<Item = &'static Test> {
    kinds::ALL.iter().chain(others::ALL).chain(graphs::ALL)
}

fn rounds() -> u32 {
    effort::rounds(DEFAULT_ROUNDS).unwrap_or(DEFAULT_ROUNDS).try_into().unwrap_or(u32::MAX)
}

/// Lets every use of a kind, and its destruction itself, meet its destruction.
fn race(target: &Target, kind: Make) -> Result<()> {
    let mut session = Session::open(target)?;
    let mut kind = kind(&session);
    let mut first = Vec::new();
    for parts in &kind.once {
        let made = session.expect(&with_first(parts, &first), &[0])?.results;
        first = if made.is_empty() { first } else { made };
    }
    for parts in kind.make.iter_mut().chain(&mut kind.uses).chain(&mut kind.clean) {
        *parts = with_first(parts, &first);
    }
    for parts in &kind.uses {
        alone(&mut session, &kind, parts).with_context(|| format!("{} alone", name(parts)))?;
        meet(&mut session, &kind, parts).with_context(|| name(parts).to_owned())?;
    }
    let twice = kind.destroy.clone();
    meet(&mut session, &kind, &twice).with_context(|| format!("{} twice", name(&twice)))?;
    session.greet()
}

fn name(parts: &CallParts) -> &'static str {
    Opcode::from_u32(parts.opcode).map_or("an unknown call", Opcode::name)
}

/// Creates an object. Returns the 64-bit result of the last call.
fn made(session: &mut Session, kind: &Kind) -> Result<u64> {
    let mut answer = 0;
    for make in &kind.make {
        let made = make_one(session, kind, &filled(make, answer))?;
        answer = made.results.first_chunk().map_or(answer, |bytes| u64::from_le_bytes(*bytes));
    }
    Ok(answer)
}

fn make_one(session: &mut Session, kind: &Kind, make: &CallParts) -> Result<CallResult> {
    const TAKEN: i32 = 1;
    let until = Instant::now() + PATIENCE;
    while kind.ends_later && Instant::now() < until {
        let made = session.expect(make, &[0, TAKEN])?;
        if made.result == 0 {
            return Ok(made);
        }
        clean(session, kind, 0)?;
    }
    session.expect(make, &[0])
}

fn clean(session: &mut Session, kind: &Kind, answer: u64) -> Result<()> {
    for clean in &kind.clean {
        let reply = session.frontend.call(session.id, &filled(clean, answer));
        reply.with_context(|| format!("{} afterwards", name(clean)))?;
    }
    Ok(())
}

/// Checks that the use is correct: without a race it succeeds.
fn alone(session: &mut Session, kind: &Kind, parts: &CallParts) -> Result<()> {
    let answer = made(session, kind)?;
    session.expect(&filled(parts, answer), &[0])?;
    session.expect(&filled(&kind.destroy, answer), &[0])?;
    clean(session, kind, answer)
}

fn meet(session: &mut Session, kind: &Kind, parts: &CallParts) -> Result<()> {
    // Functions of libraries are arguments of one call.
    let is_destroy = (parts.opcode, &parts.args) == (kind.destroy.opcode, &kind.destroy.args);
    for round in 0..rounds().div_ceil(kind.every.max(1)).max(USERS as u32 + 1) {
        let answer = made(session, kind)?;
        // The destruction comes first, between, and last.
        let place = round as usize % (USERS + 1);
        let mut calls = vec![CallParts { thread: 2, ..filled(parts, answer) }; USERS];
        calls[1].thread = 3;
        calls.insert(place, filled(&kind.destroy, answer));
        let results = together(session, &calls)?;
        let destroyed = results[place];
        let others = results.iter().enumerate().filter(|&(index, _)| index != place);
        let successes = others.filter(|(_, result)| **result == 0).count() as u32;
        if is_destroy {
            let all = successes + u32::from(destroyed == 0);
            ensure!(all == 1, "{all} of {} calls destroyed the object", USERS + 1);
        } else {
            ensure!(destroyed == 0, "{} answered {destroyed}", name(&kind.destroy));
        }
        clean(session, kind, answer)?;
    }
    session.greet()
}

fn filled(parts: &CallParts, answer: u64) -> CallParts {
    let mut parts = parts.clone();
    put(&mut parts.args, &ANSWER.to_le_bytes(), &answer.to_le_bytes());
    parts
}

fn with_first(parts: &CallParts, first: &[u8]) -> CallParts {
    let mut parts = parts.clone();
    for bytes in [&mut parts.args, &mut parts.bulk] {
        put(bytes, &TOKEN, first);
        put(bytes, &FIRST.to_le_bytes(), first);
    }
    parts
}

/// Puts the beginning of `value`, if that is long enough, in the place of a mark.
fn put(bytes: &mut [u8], mark: &[u8], value: &[u8]) {
    let at = bytes.windows(mark.len()).position(|bytes| bytes == mark);
    if let (Some(at), Some(value)) = (at, value.get(..mark.len())) {
        bytes[at..at + mark.len()].copy_from_slice(value);
    }
}

/// Makes calls of several threads at once, and returns their results.
fn together(session: &mut Session, calls: &[CallParts]) -> Result<Vec<i32>> {
    for (slot, parts) in (0u16..).zip(calls) {
        let payload = parts.payload(&parts.header());
        let header = RequestHeader {
            op: OP_CALL,
            session: session.id,
            payload_bytes: payload.len() as u32,
            ..Default::default()
        };
        let bytes = [header.as_bytes(), &payload].concat();
        session.frontend.submit(0, slot, &bytes, BUFFER_BYTES as u32)?;
    }
    let mut results = vec![None; calls.len()];
    for _ in calls {
        let reply: Reply = session.frontend.reply(0, PATIENCE)?.context("A call is not answered")?;
        let slot = reply.slot();
        if reply.status != REPLY_OK {
            bail!("{} was answered with status {}", calls.get(slot).map_or("a call", name), reply.status);
        }
        *results.get_mut(slot).context("A reply to nothing")? = Some(parse_result(&reply.payload)?.result);
    }
    results.into_iter().collect::<Option<_>>().context("Two replies to one call")
}

/// A call of 64-bit arguments, then 32-bit ones.
fn words(opcode: Opcode, long: &[u64], short: &[u32]) -> CallParts {
    let mut args: Vec<u8> = long.iter().flat_map(|word| word.to_le_bytes()).collect();
    args.extend(short.iter().flat_map(|word| word.to_le_bytes()));
    CallParts::new(opcode, &args).context(crate::calls::CONTEXT)
}

/// A call of arguments in any order.
fn pieces(opcode: Opcode, pieces: &[&[u8]]) -> CallParts {
    CallParts::new(opcode, &pieces.concat()).context(crate::calls::CONTEXT)
}
