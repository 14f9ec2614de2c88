// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Forged calls of NVIDIA's libraries: calls that do not fit a function's row are refused before the library sees
//! them, and the session continues.

mod lengths;
mod notes;

use anyhow::{Context, Result, ensure};
use cuda_library_rows::block::{PRESENT, SLOT, described, padded};
use cuda_library_rows::{Body, COUNT, Call, Direction, Kind, Library, libraries, library};
use fastrand::Rng;
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::frontend::{CallParts, CallResult};
use vhost_cuda_tests::stack::missing_library;
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{MAX_VARIABLE_VALUE, Opcode};

use crate::calls::{CONTEXT, INVALID_VALUE, NOT_SUPPORTED, Session};
use crate::{Target, attack};

const NOT_FOUND: i32 = 500;
const ILLEGAL_ADDRESS: i32 = 700;
/// Room in bytes for the answers of most calls.
const ROOM: u64 = 4096;
/// Names that the tests give to handles.
const FIRST: u64 = 0x20_0000;
/// The maximum size of a block that the front-end sends, in bytes.
const MAX_BLOCK: usize = 60_000;
/// Calls of each function by [`random_blocks`].
const RANDOM_ROUNDS: usize = 4;
/// `CUBLAS_STATUS_NOT_INITIALIZED`
const NOT_INITIALIZED: u64 = 1;
/// `ncclSystemError`, `ncclInvalidArgument`
const NCCL_SYSTEM_ERROR: u64 = 2;
const NCCL_INVALID_ARGUMENT: u64 = 4;
/// `CURAND_STATUS_NOT_INITIALIZED`
const GENERATOR_NOT_INITIALIZED: u64 = 101;

/// A test and its name.
pub type Test = (&'static str, fn(&mut Target) -> Result<()>);

pub fn collect(suite: &mut Suite) {
    const TESTS: &[Test] = &[
        ("unknown_numbers_and_digests", unknown_numbers),
        ("blocks_of_wrong_length", blocks_of_wrong_length),
        ("counts_that_overflow", counts_that_overflow),
        ("forged_handles", forged_handles),
        ("scalars_against_the_pointer_mode", scalars_against_the_mode),
        ("slots_that_no_kind_admits", odd_slots),
    ];
    attack(suite, "vendor::forged_variables", forged_variables);
    let missing = if is_emulated() { None } else { missing_library(&["libcurand.so.10"]) };
    let name = "vendor::generators_of_host_memory";
    match &missing {
        Some(why) => suite.skip(name, why),
        None => attack(suite, name, generators_of_host_memory),
    }
    let missing = if is_emulated() { None } else { missing_library(&["libcublas.so.13", "libcublas.so.12"]) };
    for (name, body) in TESTS {
        let name = format!("vendor::{name}");
        match &missing {
            Some(why) => suite.skip(name, why),
            None => attack(suite, &name, *body),
        }
    }
    let of_emulator: &[Test] = &[
        ("random_blocks", random_blocks),
        ("forged_ids", forged_ids),
        ("forged_objects", forged_objects),
        ("measured_lengths", lengths::measured_lengths),
        ("addresses_of_variant_packs", lengths::addresses_of_packs),
        ("noted_lengths", notes::noted_lengths),
        ("numbers_that_lead_out_of_arrays", notes::out_of_arrays),
    ];
    for (name, body) in of_emulator {
        let name = format!("vendor::{name}");
        if is_emulated() {
            attack(suite, &name, *body);
        } else {
            suite.skip(name, "NVIDIA's libraries may crash at arguments that make no sense");
        }
    }
}

/// Opens a library.
pub fn open(name: &str) -> CallParts {
    let (number, _) = library(name).expect("a library of the rows");
    open_as(number, &[])
}

/// Opens the library of that number, and asks which of its functions have these digests.
fn open_as(number: u32, digests: &[u8]) -> CallParts {
    let words = [number.to_le_bytes(), 13_u32.to_le_bytes()].concat();
    CallParts::new(Opcode::vendor_load, &words).context(CONTEXT).bulk(digests)
}

/// A call of the function of that number with a block.
fn call_of(number: u32, function: u32, block: &[u8]) -> CallParts {
    let args = [number.to_le_bytes(), function.to_le_bytes()].concat();
    CallParts::new(Opcode::vendor_call, &args).context(CONTEXT).bulk(block)
}

/// A call of a function by its name, with slots and nothing else.
pub fn call(library_name: &str, function: &str, slots: &[u64], data: &[u64]) -> CallParts {
    let (number, rows) = library(library_name).expect("a library of the rows");
    let function =
        rows.functions.iter().find(|known| known.name == function).expect("a function of the rows");
    let block: Vec<u8> = slots.iter().chain(data).flat_map(|word| word.to_le_bytes()).collect();
    call_of(number, function.number, &block)
}

/// The functions that cross, with their numbers.
fn forwarded(rows: &Library) -> impl Iterator<Item = (u32, &str, &Call)> {
    rows.functions.iter().filter_map(|function| match &function.body {
        Body::Forward(call) => Some((function.number, function.name, *call)),
        _ => None,
    })
}

/// Opens all libraries that the host has, and returns their numbers.
fn open_all(session: &mut Session) -> Result<Vec<(u32, &'static Library)>> {
    let mut opened = Vec::new();
    for (number, rows) in (0..).zip(libraries()) {
        let answer = session.expect(&open_as(number, &[]), &[0, NOT_FOUND])?;
        if answer.result == 0 {
            opened.push((number, rows));
        }
    }
    ensure!(opened.iter().any(|(_, rows)| rows.name == "cublas"), "the host has no cuBLAS");
    Ok(opened)
}

/// Returns the result of the library's function.
fn status(answer: &CallResult) -> Result<u64> {
    let bytes = answer.bulk.first_chunk::<SLOT>().context("an answer without a status")?;
    Ok(u64::from_le_bytes(*bytes) & 0xffff_ffff)
}

/// Makes a call that reaches the library, and checks the library's status.
fn expect_status(session: &mut Session, parts: CallParts, wanted: u64) -> Result<()> {
    let answer = session.expect(&parts.wants(ROOM), &[0])?;
    let got = status(&answer)?;
    ensure!(got == wanted, "status {got}, not {wanted}");
    Ok(())
}

/// Ids of communicators that contain descriptors of the worker, as the emulator's handles for memory do, or invalid
/// ones.
fn forged_ids(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    session.expect(&open("nccl"), &[0])?;
    let mut id = [0_u8; 128];
    let join = |id: &[u8; 128]| {
        let words: Vec<u64> =
            id.as_chunks::<SLOT>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        call("nccl", "ncclCommInitRank", &[FIRST, 1, PRESENT, 0], &words)
    };
    expect_status(&mut session, join(&id), NCCL_INVALID_ARGUMENT)?;
    id[..8].copy_from_slice(b"cudanccl");
    expect_status(&mut session, join(&id), NCCL_SYSTEM_ERROR)?;
    id[8..16].copy_from_slice(b"cudaemu\x01");
    for descriptor in 0..64_u8 {
        (id[56], id[60]) = (descriptor, 1);
        expect_status(&mut session, join(&id), NCCL_SYSTEM_ERROR)?;
    }
    session.greet()
}

fn unknown_numbers(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for number in [COUNT as u32, 100, i32::MAX as u32, u32::MAX] {
        session.expect(&open_as(number, &[]), &[NOT_FOUND])?;
        session.expect(&call_of(number, 0, &[0; 64]).wants(ROOM), &[NOT_FOUND])?;
    }
    let (cublas, rows) = library("cublas").context("rows")?;
    let digests: Vec<u8> = rows.digests().flat_map(u64::to_le_bytes).collect();
    let bits = rows.digests().count().div_ceil(8);
    // Digests that are not complete, and answers without room.
    for (digests, room) in [(&digests[..7], bits), (&digests[..], 0), (&digests[..], bits - 1)] {
        session.expect(&open_as(cublas, digests).wants(room as u64), &[INVALID_VALUE])?;
    }
    let mut other = digests.clone();
    other[8 * 9] ^= 1;
    let long = [&digests[..], &[0xff; 8 * 100]].concat();
    for (digests, wrong) in [(&digests, None), (&other, Some(9)), (&long, None)] {
        let answer = session.expect(&open_as(cublas, digests).wants(ROOM), &[0])?;
        ensure!(answer.bulk.len() == (digests.len() / 8).div_ceil(8), "{} bytes of bits", answer.bulk.len());
        for number in 0..digests.len() / 8 {
            let same = answer.bulk[number / 8] >> (number % 8) & 1 != 0;
            let known = rows.numbered(number as u32).is_some() && wrong != Some(number);
            ensure!(same == known, "function {number}: {same}");
        }
    }
    for (number, rows) in open_all(&mut session)? {
        for function in [rows.functions.len() as u32, 1 << 20, u32::MAX] {
            session.expect(&call_of(number, function, &[0; 64]).wants(ROOM), &[INVALID_VALUE])?;
        }
        for (function, row) in (0..).zip(rows.functions) {
            if !matches!(row.body, Body::Forward(_)) {
                session.expect(&call_of(number, function, &[]).wants(ROOM), &[NOT_SUPPORTED])?;
            }
        }
    }
    session.greet()
}

/// Variables that would refer to files or code on the host, or fill the worker's memory.
fn forged_variables(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let record = |bytes: &[u8]| CallParts::new(Opcode::vendor_environment, &[]).bulk(bytes);
    let long = format!("NCCL_DEBUG={}\0", "x".repeat(MAX_VARIABLE_VALUE + 1));
    let many = "NCCL_DEBUG=1\0".repeat(MAX_BLOCK / 13);
    for bad in [
        "LD_PRELOAD=evil.so\0",
        "PATH=\0",
        "NCCL_NET_PLUGIN=evil\0",
        "NCCL_DEBUG_FILE=log\0",
        "NCCL_TOPO_FILE=topology\0",
        "CUDNN_LOGDEST_DBG=stdout\0",
        "CUBLAS_LOGDEST_DBG=stdout\0",
        "CUBLASLT_LOG_FILE=log\0",
        "CUDA_VISIBLE_DEVICES=0\0",
        "NCCL_DEBUG\0",
        "NCCL_DEBUG=INFO",
        "\0",
        "NCCL_DEBUG=INFO\0NCCL_DEBUG=INFO\0",
        "NCCL_DEBUG=/etc/passwd\0",
        "NCCL_DEBUG=\u{1b}[2J\0",
        "NCCL_DEBUG=%s%n\0",
        "NCCL_DEBUG=INFO\0LD_PRELOAD=evil.so\0",
        &long,
        &many,
    ] {
        let shown = &bad[..bad.len().min(60)];
        session.expect(&record(bad.as_bytes()), &[INVALID_VALUE]).with_context(|| format!("{shown:?}"))?;
    }
    session.expect(&record(b""), &[0])?;
    // Each record replaces the last one, as often as the guest likes.
    for value in 0..1000 {
        session.expect(&record(format!("NCCL_NTHREADS={value}\0").as_bytes()), &[0])?;
    }
    session.greet()
}

/// Blocks of zeros: a block without exactly the row's slots is refused, and so is one with data after it.
fn blocks_of_wrong_length(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for (number, rows) in open_all(&mut session)? {
        for (function, name, call) in forwarded(rows) {
            let right = call.parameters.len() * SLOT;
            let shorter = [0, 1, right.saturating_sub(SLOT), right.saturating_sub(1)];
            let wrong = shorter.into_iter().filter(|bytes| *bytes < right).chain([right + 1, right + SLOT]);
            for bytes in wrong.chain([MAX_BLOCK]) {
                let parts = call_of(number, function, &vec![0; bytes]).wants(ROOM);
                session
                    .expect(&parts, &[INVALID_VALUE, NOT_FOUND])
                    .with_context(|| format!("{name}: {bytes}"))?;
            }
        }
    }
    session.greet()
}

/// Arrays whose length is a number of the guest's: the data that they need is not there.
fn counts_that_overflow(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let mut tried = 0;
    for (number, rows) in open_all(&mut session)? {
        for (function, name, call) in forwarded(rows) {
            let counted = |kind: &Kind| match kind {
                Kind::Host(host) => host.count.is_some() && host.direction.reads(),
                _ => false,
            };
            if !call.parameters.iter().any(|parameter| counted(&parameter.kind)) {
                continue;
            }
            for value in [u64::MAX >> 1, u64::from(i32::MAX as u32), 1 << 31, 1 << 32, 9_000_000] {
                let slot = |kind: &Kind| match kind {
                    Kind::Value(number) if !number.is_float() => value,
                    Kind::Host(_) => PRESENT,
                    _ => 0,
                };
                let slots = call.parameters.iter().map(|parameter| slot(&parameter.kind));
                let block: Vec<u8> = slots.flat_map(u64::to_le_bytes).collect();
                let parts = call_of(number, function, &block).wants(ROOM);
                let answer = session.frontend.call(session.id, &parts).with_context(|| name.to_owned())?;
                let refused = answer.result != 0 || status(&answer)? != rows.statuses.success as u64;
                ensure!(refused, "{name} has accepted {value} elements that are not there");
                tried += 1;
            }
        }
    }
    ensure!(tried > 0, "no function has an array");
    session.greet()
}

fn forged_handles(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let opened = open_all(&mut session)?;
    let [ended, alive] = [FIRST, FIRST + 16];
    for handle in [ended, alive] {
        expect_status(&mut session, call("cublas", "cublasCreate_v2", &[handle], &[]), 0)?;
    }
    // The same name twice.
    session.expect(&call("cublas", "cublasCreate_v2", &[alive], &[]).wants(ROOM), &[INVALID_VALUE, 400])?;
    expect_status(&mut session, call("cublas", "cublasDestroy_v2", &[ended], &[]), 0)?;
    for forged in [0, 1, ended, alive + 1, alive + 16, CONTEXT, session.memory, u64::MAX] {
        let destroy = call("cublas", "cublasDestroy_v2", &[forged], &[]);
        expect_status(&mut session, destroy, NOT_INITIALIZED)?;
        let set = call("cublas", "cublasSetMathMode", &[forged, 0], &[]);
        expect_status(&mut session, set, NOT_INITIALIZED)?;
    }
    // Handles of other libraries and of other kinds.
    for (number, rows) in opened.iter().filter(|(_, rows)| !["cublas", "cublasLt"].contains(&rows.name)) {
        for (function, name, of_row) in forwarded(rows) {
            let Some(Kind::Handle { nullable: false, .. } | Kind::End(_)) =
                of_row.parameters.first().map(|parameter| &parameter.kind)
            else {
                continue;
            };
            let mut slots = vec![0; of_row.parameters.len()];
            slots[0] = alive;
            let block: Vec<u8> = slots.into_iter().flat_map(u64::to_le_bytes).collect();
            let parts = call_of(*number, function, &block).wants(ROOM);
            let answer = session.expect(&parts, &[0, INVALID_VALUE, 400, NOT_FOUND, NOT_SUPPORTED])?;
            let refused = answer.result != 0 || status(&answer)? != rows.statuses.success as u64;
            ensure!(refused, "{name} has accepted a handle of cuBLAS");
        }
    }
    // Streams that there are not.
    for stream in [0x123_4560, alive, u64::MAX] {
        let set = call("cublas", "cublasSetStream_v2", &[alive, stream], &[]).wants(ROOM);
        session.expect(&set, &[400, INVALID_VALUE])?;
    }
    expect_status(&mut session, call("cublas", "cublasDestroy_v2", &[alive], &[]), 0)?;
    session.greet()
}

fn scalars_against_the_mode(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    open_all(&mut session)?;
    let (handle, memory) = (FIRST, session.memory);
    let scale =
        |alpha: u64, data: &[u64]| call("cublas", "cublasSscal_v2", &[handle, 4, alpha, memory, 1], data);
    let norm = |result: u64| call("cublas", "cublasSnrm2_v2", &[handle, 4, memory, 1, result], &[]);
    let one = u64::from(1.0_f32.to_bits());
    expect_status(&mut session, call("cublas", "cublasCreate_v2", &[handle], &[]), 0)?;
    expect_status(&mut session, scale(PRESENT, &[one]), 0)?;
    expect_status(&mut session, norm(PRESENT), 0)?;
    // The library would read or write these addresses in the worker.
    for address in [2, memory, 0x1000, u64::MAX] {
        session.expect(&scale(address, &[]).wants(ROOM), &[INVALID_VALUE])?;
        session.expect(&norm(address).wants(ROOM), &[INVALID_VALUE])?;
    }
    let mode = |value| call("cublas", "cublasSetPointerMode_v2", &[handle, value], &[]);
    expect_status(&mut session, mode(1), 0)?;
    expect_status(&mut session, scale(memory, &[]), 0)?;
    expect_status(&mut session, norm(memory + 64), 0)?;
    // And the GPU would follow these.
    session.expect(&scale(PRESENT, &[one]).wants(ROOM), &[INVALID_VALUE])?;
    session.expect(&norm(PRESENT).wants(ROOM), &[INVALID_VALUE])?;
    // Modes that there are not change nothing.
    let wrong = session.expect(&mode(7).wants(ROOM), &[0])?;
    ensure!(status(&wrong)? != 0, "a pointer mode of 7");
    expect_status(&mut session, scale(memory, &[]), 0)?;
    session.greet()
}

/// A generator of host memory never gets an address of the guest's, and results have a limit.
fn generators_of_host_memory(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let memory = session.memory;
    let [device, host] = [FIRST, FIRST + 16];
    let of = |name: &str, slots: &[u64]| call("curand", name, slots, &[]);
    session.expect(&open("curand"), &[0])?;
    expect_status(&mut session, of("curandCreateGeneratorHost", &[host, 101]), 0)?;
    expect_status(&mut session, of("curandGenerate@Host", &[host, PRESENT, 16]), 0)?;
    // Rows of the other kind, which would have the worker write to the address.
    for address in [memory, 0x1000, PRESENT, u64::MAX] {
        let fill = of("curandGenerate", &[host, address, 16]);
        expect_status(&mut session, fill, GENERATOR_NOT_INITIALIZED)?;
    }
    expect_status(&mut session, of("curandDestroyGenerator", &[host]), GENERATOR_NOT_INITIALIZED)?;
    for address in [memory, 2, u64::MAX] {
        session.expect(&of("curandGenerate@Host", &[host, address, 16]).wants(ROOM), &[INVALID_VALUE])?;
    }
    for count in [1 << 24, 1 << 32, 1 << 61, 1 << 62, u64::MAX] {
        let fill = of("curandGenerateUniform@Host", &[host, PRESENT, count]);
        session.expect(&fill.wants(ROOM), &[INVALID_VALUE])?;
    }
    // NVIDIA's library creates the other kind of generator on its own GPUs only.
    if is_emulated() {
        expect_status(&mut session, of("curandCreateGenerator", &[device, 101]), 0)?;
        let fill = of("curandGenerate@Host", &[device, PRESENT, 16]);
        expect_status(&mut session, fill, GENERATOR_NOT_INITIALIZED)?;
        expect_status(&mut session, of("curandDestroyGenerator@Host", &[device]), GENERATOR_NOT_INITIALIZED)?;
    }
    expect_status(&mut session, of("curandDestroyGenerator@Host", &[host]), 0)?;
    expect_status(&mut session, of("curandGenerate@Host", &[host, PRESENT, 16]), GENERATOR_NOT_INITIALIZED)?;
    session.greet()
}

/// Slots of host memory that are neither there nor null, and texts that are longer than their block.
fn odd_slots(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for (number, rows) in open_all(&mut session)? {
        for (function, name, call) in forwarded(rows) {
            let odd = call
                .parameters
                .iter()
                .position(|parameter| matches!(parameter.kind, Kind::Host(_) | Kind::Text));
            let Some(odd) = odd else { continue };
            for value in [2, 0x7000, u64::MAX, u64::MAX - 1, 1 << 40] {
                let mut slots = vec![0; call.parameters.len()];
                slots[odd] = value;
                let block: Vec<u8> = slots.into_iter().flat_map(u64::to_le_bytes).collect();
                let parts = call_of(number, function, &block).wants(ROOM);
                let answer = session.frontend.call(session.id, &parts).with_context(|| name.to_owned())?;
                let refused = answer.result != 0 || status(&answer)? != rows.statuses.success as u64;
                ensure!(refused, "{name} has accepted a slot of {value:#x}");
            }
        }
    }
    session.greet()
}

/// A slot for a parameter: mostly one that makes sense.
fn random_slot(random: &mut Rng, kind: &Kind, handles: &[u64], memory: u64) -> u64 {
    let address = |random: &mut Rng| match random.u8(..8) {
        0 => 0,
        1 => random.u64(..),
        2 => memory + random.u64(..8192),
        _ => memory,
    };
    match kind {
        _ if random.u8(..40) == 0 => random.u64(..),
        Kind::Value(number) if number.is_float() => random.u64(..),
        Kind::Value(_) => match random.u8(..12) {
            0 => u64::MAX,
            1 => 1 << 31,
            2 => u64::from(i32::MAX as u32),
            3 => random.u64(..),
            4 => 64 + random.u64(..64),
            _ => random.u64(..5),
        },
        Kind::Pointer => address(random),
        Kind::Stream | Kind::InStream => random.u64(..3),
        Kind::Handle { kind, .. } | Kind::End(kind) => handles.get(*kind).copied().unwrap_or(0),
        Kind::New(_) => FIRST + 0x1_0000 + 16 * random.u64(..512),
        Kind::Noted(_) | Kind::Measured(_) => random.u64(..5),
        Kind::Host(_)
        | Kind::Allocated { .. }
        | Kind::Arrays { .. }
        | Kind::Scaling
        | Kind::Text
        | Kind::Scratch(_)
        | Kind::Structure(_)
        | Kind::Table(_) => u64::from(random.u8(..8) != 0),
        Kind::Graph => random.u64(..3),
        Kind::Scalar { .. } | Kind::DescribedScalar { .. } | Kind::Placed { .. } => match random.u8(..4) {
            0 => address(random),
            _ => PRESENT,
        },
        Kind::Described { .. } | Kind::OutStream => 0,
    }
}

/// The data that belongs to slots, as far as it can be sent.
fn random_data(random: &mut Rng, rows: &Library, call: &Call, slots: &[u64]) -> Vec<u8> {
    let mut data = Vec::new();
    for index in 0..slots.len() {
        if call.direction(index).is_some_and(Direction::reads) {
            let bytes = call.memory_bytes(rows, index, slots).map_or(0, padded).min(MAX_BLOCK - data.len());
            data.extend((0..bytes).map(|_| if random.bool() { 0 } else { random.u8(..4) }));
        }
    }
    if random.u8(..16) == 0 {
        data.truncate(random.usize(..=data.len()));
    }
    data
}

/// Every function of every library, several times, with deterministic blocks. Any answer is right, but there must be one.
fn random_blocks(target: &mut Target) -> Result<()> {
    let mut random = Rng::with_seed(36);
    let mut session = Session::open(target)?;
    for (number, rows) in open_all(&mut session)? {
        let mut handles = make_handles(&mut session, number, rows, 0)?;
        let mut generation = 0;
        for (function, name, call) in forwarded(rows) {
            for _ in 0..RANDOM_ROUNDS {
                let memory = session.memory;
                let slots: Vec<u64> = call
                    .parameters
                    .iter()
                    .map(|parameter| random_slot(&mut random, &parameter.kind, &handles, memory))
                    .collect();
                let data = random_data(&mut random, rows, call, &slots);
                let block: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).chain(data).collect();
                let room = if random.u8(..4) == 0 { 0 } else { ROOM };
                let parts = call_of(number, function, &block).wants(room);
                let answer = session
                    .frontend
                    .call(session.id, &parts)
                    .with_context(|| format!("{name} with {slots:x?} is not answered"))?;
                if answer.result == 0 {
                    continue;
                }
                session.greet().with_context(|| format!("after {name} with {slots:x?}"))?;
                // An illegal address is the end of a context, as on a GPU.
                if answer.result == ILLEGAL_ADDRESS || is_poisoned(&mut session)? {
                    let id = session.id;
                    session.frontend.close(id)?;
                    session.open_another()?;
                    session.expect(&open_as(number, &[]), &[0])?;
                    generation += 1;
                    handles = make_handles(&mut session, number, rows, generation)?;
                }
            }
        }
    }
    session.greet()
}

/// Contents of cuSPARSELt's objects that no program creates: objects that were never created, inconsistent
/// attributes, and more objects than a worker keeps.
fn forged_objects(target: &mut Target) -> Result<()> {
    const INVALID: u64 = 3;
    let mut random = Rng::with_seed(37);
    let mut session = Session::open(target)?;
    let (_, rows) = library("cusparseLt").context("rows")?;
    session.expect(&open("cusparseLt"), &[0])?;
    let (handle, memory) = (FIRST, session.memory);
    expect_status(&mut session, call("cusparseLt", "cusparseLtInit", &[handle], &[]), 0)?;
    let words = |bytes: &[u8]| -> Vec<u64> {
        bytes.as_chunks::<SLOT>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    for (_, name, of_row) in forwarded(rows) {
        let kind = of_row.parameters.iter().find_map(|parameter| match parameter.kind {
            Kind::Described { kind, .. } => Some(kind),
            _ => None,
        });
        let Some(kind) = kind else { continue };
        let bytes = rows.descriptors[kind].crossing_bytes;
        let mut attempt = |contents: &[u8], lie: u64, number: u64| -> Result<CallResult> {
            let slot = |kind: &Kind| match kind {
                Kind::Handle { .. } => handle,
                Kind::Described { kind, .. } => described(rows, *kind, contents) ^ lie,
                Kind::Pointer => memory,
                Kind::Value(_) => number,
                _ => 0,
            };
            let slots: Vec<u64> = of_row.parameters.iter().map(|parameter| slot(&parameter.kind)).collect();
            let parts = call("cusparseLt", name, &slots, &words(contents)).wants(ROOM);
            session.frontend.call(session.id, &parts).with_context(|| name.to_owned())
        };
        let never_made = attempt(&vec![0; bytes], 0, 0)?;
        ensure!(never_made.result == 0 && status(&never_made)? == INVALID, "{name}: {never_made:?}");
        ensure!(attempt(&vec![0; bytes], 1 << 17, 0)?.result == INVALID_VALUE, "{name}: a lie about scalars");
        if of_row.parameters.iter().any(|parameter| parameter.kind == Kind::InStream) {
            for streams in [2, i32::MAX as u64, u64::MAX] {
                let refused = attempt(&vec![0; bytes], 0, streams)?.result == INVALID_VALUE;
                ensure!(refused, "{name}: {streams} streams where one lies");
            }
        }
        for _ in 0..20 {
            let mut contents: Vec<u8> =
                (0..bytes).map(|_| if random.bool() { random.u8(..4) } else { random.u8(..) }).collect();
            set_masks(rows, kind, &mut contents);
            let answer = attempt(&contents, 0, 0)?;
            let refused = answer.result != 0 || status(&answer)? != 0;
            ensure!(refused, "{name} has accepted {contents:x?}");
        }
    }
    for columns in 1..=300_u64 {
        let mat = rows.descriptors.iter().position(|kind| kind.name == "mat").context("a kind")?;
        let mut contents = vec![0; rows.descriptors[mat].bytes];
        rows.descriptors[mat].make(&[16, 16 * columns, 16 * columns, 16, 2, 2], &mut contents);
        let slots = [handle, described(rows, mat, &contents)];
        let make = call("cusparseLt", "cusparseLtDenseDescriptorInit", &slots, &words(&contents));
        expect_status(&mut session, make, 0)?;
    }
    expect_status(&mut session, call("cusparseLt", "cusparseLtDestroy", &[handle], &[]), 0)?;
    session.greet()
}

/// Marks all attributes of a descriptor and of its parts as set.
fn set_masks(rows: &Library, kind: usize, contents: &mut [u8]) {
    let descriptor = &rows.descriptors[kind];
    contents[..SLOT].fill(0xff);
    for index in 0..descriptor.parts.len() {
        let part = descriptor.part(rows.descriptors, index);
        set_masks(rows, descriptor.parts[index].kind, &mut contents[part]);
    }
}

fn is_poisoned(session: &mut Session) -> Result<bool> {
    let wait = CallParts::new(Opcode::cuCtxSynchronize, &[]).context(CONTEXT);
    Ok(session.frontend.call(session.id, &wait)?.result != 0)
}

/// One handle of each kind that can be made from nothing but small numbers; 0 for the others.
fn make_handles(session: &mut Session, number: u32, rows: &Library, generation: u64) -> Result<Vec<u64>> {
    let mut handles = vec![0; rows.handles.len()];
    for (function, _, call) in forwarded(rows) {
        let [parameter, rest @ ..] = call.parameters else { continue };
        let Kind::New(kind) = parameter.kind else { continue };
        if handles[kind] != 0 || rest.iter().any(|more| !matches!(more.kind, Kind::Value(_))) {
            continue;
        }
        let id = FIRST + 0x100_0000 * (generation + 1) + 0x1000 * u64::from(number) + 16 * kind as u64;
        let mut slots = vec![100; call.parameters.len()];
        slots[0] = id;
        let block: Vec<u8> = slots.into_iter().flat_map(u64::to_le_bytes).collect();
        let parts = call_of(number, function, &block).wants(ROOM);
        let answer = session.frontend.call(session.id, &parts)?;
        if answer.result == 0 && status(&answer)? == rows.statuses.success as u64 {
            handles[kind] = id;
        }
    }
    Ok(handles)
}
