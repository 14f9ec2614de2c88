// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Malformed calls in well-formed requests: the worker answers and survives any payload.

use anyhow::{Context, Result, anyhow, bail, ensure};
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::frontend::{CallParts, CallResult, FakeFrontend, parse_result};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::table::ROWS;
use virtio_cuda_protocol::cuda::{
    Box3, CALL_CORRELATION_BITS, CALL_CORRELATION_SHIFT, CALL_IN_INLINE, CALL_OUT_INLINE, CALL_TABLE_VERSION,
    COPY_DEVICE, CallHeader, CopyEnd, DevicePtr, JitOptions, OLDEST_CALL_TABLE_VERSION, Opcode, WINDOW_BASE,
    Wire, Writer,
};
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_OK};

use crate::{Target, attack};

pub const INVALID_VALUE: i32 = 1;
/// `CUDA_ERROR_ILLEGAL_STATE`
pub const ILLEGAL_STATE: i32 = 401;
const INVALID_IMAGE: i32 = 200;
const INVALID_CONTEXT: i32 = 201;
const INVALID_HANDLE: i32 = 400;
const NOT_FOUND: i32 = 500;
const SYSTEM_DRIVER_MISMATCH: i32 = 803;
pub const NOT_SUPPORTED: i32 = 801;
/// The name of the context of sessions.
pub const CONTEXT: u64 = 0x1000;

pub fn collect(suite: &mut Suite) {
    attack(suite, "calls::payloads_too_short_for_a_header", short_payloads);
    attack(suite, "calls::headers_that_lie", headers_that_lie);
    attack(suite, "calls::unknown_opcodes", unknown_opcodes);
    attack(suite, "calls::arguments_too_short_or_long", arguments_of_wrong_length);
    attack(suite, "calls::arguments_of_any_bytes", arguments_of_any_bytes);
    attack(suite, "calls::forged_handles", forged_handles);
    attack(suite, "calls::forged_contexts", forged_contexts);
    attack(suite, "calls::forged_device_pointers", forged_device_pointers);
    attack(suite, "calls::ranges_over_an_allocation", ranges_over_an_allocation);
    attack(suite, "calls::addresses_in_images", addresses_in_images);
    attack(suite, "calls::another_call_table", another_call_table);
    attack(suite, "calls::forged_measurements", forged_measurements);
    attack(suite, "calls::options_that_no_list_has", options_that_no_list_has);
}

/// A session with a context and the memory that it may use.
pub struct Session {
    /// Its machine.
    pub frontend: FakeFrontend,
    /// Its name.
    pub id: u64,
    /// 4096 bytes.
    pub memory: u64,
}

impl Session {
    pub fn open(target: &Target) -> Result<Self> {
        let mut frontend = target.connect()?;
        let id = frontend.open_session()?;
        Self::on(frontend, id)
    }

    /// A session that is open already.
    pub fn on(frontend: FakeFrontend, id: u64) -> Result<Self> {
        let mut session = Self { frontend, id, memory: 0 };
        session.begin()?;
        Ok(session)
    }

    /// Opens another session of the same machine, which is used from then on. Returns the name of the last one.
    pub fn open_another(&mut self) -> Result<u64> {
        let opened = self.frontend.open()?;
        ensure!(opened.status == REPLY_OK, "open was answered with status {}", opened.status);
        let id = u64::from_le_bytes(opened.payload[..].try_into().context("A malformed reply to open")?);
        let last = std::mem::replace(&mut self.id, id);
        self.begin()?;
        Ok(last)
    }

    /// Makes the first calls of a session.
    pub fn begin(&mut self) -> Result<()> {
        self.greet()?;
        let retain = [0u32.to_le_bytes().as_slice(), &CONTEXT.to_le_bytes()].concat();
        self.expect(&CallParts::new(Opcode::cuDevicePrimaryCtxRetain, &retain), &[0])?;
        let answer = self.expect(&in_context(Opcode::cuMemAlloc_v2, &[4096]), &[0])?;
        self.memory = u64::from_le_bytes(answer.results[..].try_into().context("A device pointer")?);
        Ok(())
    }

    pub fn greet(&mut self) -> Result<()> {
        let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
        let answer = self.frontend.call(self.id, &hello).context("The session does not answer any more")?;
        ensure!(answer.result == 0, "session_hello answered {}", answer.result);
        Ok(())
    }

    pub fn expect(&mut self, parts: &CallParts, allowed: &[i32]) -> Result<CallResult> {
        let name = Opcode::from_u32(parts.opcode).map_or("an unknown call", Opcode::name);
        let answer = self.frontend.call(self.id, parts).with_context(|| name.to_owned())?;
        if !allowed.contains(&answer.result) {
            bail!("{name}{:02x?} answered {}, not one of {allowed:?}", parts.args, answer.result);
        }
        ensure!(answer.result == 0 || answer.results.is_empty(), "{name}: an error with results");
        Ok(answer)
    }

    /// A payload may be refused below CUDA (the request is invalid) or by CUDA's code for a bad value.
    fn expect_refused(&mut self, what: &str, payload: &[u8]) -> Result<()> {
        let reply = self.frontend.carry(self.id, payload, [&[], &[]]).with_context(|| what.to_owned())?;
        match reply.status {
            REPLY_INVALID => Ok(()),
            REPLY_OK => {
                let answer = parse_result(&reply.payload).with_context(|| what.to_owned())?;
                ensure!(answer.result == INVALID_VALUE, "{what}: answered {}", answer.result);
                Ok(())
            }
            status => bail!("{what}: status {status}"),
        }
    }
}

/// A value as it lies in arguments.
pub fn encoded<T: Wire>(value: &T) -> Result<Vec<u8>> {
    let mut room = [0; 256];
    let mut writer = Writer::new(&mut room);
    value.put(&mut writer).map_err(|_| anyhow!("Too long"))?;
    let used = writer.used();
    Ok(room[..used].to_vec())
}

/// A copy of a box in the session's context.
fn box_copy(dst: CopyEnd, src: CopyEnd, size: Box3) -> Result<CallParts> {
    let args = [encoded(&dst)?, encoded(&src)?, encoded(&size)?, encoded(&0u64)?].concat();
    Ok(CallParts::new(Opcode::memcpy_box, &args).context(CONTEXT))
}

/// A call with 64-bit arguments in the session's context.
pub fn in_context(opcode: Opcode, words: &[u64]) -> CallParts {
    let args: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    CallParts::new(opcode, &args).context(CONTEXT)
}

fn short_payloads(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
    let whole = hello.payload(&hello.header());
    for bytes in 0..whole.len() {
        session.expect_refused(&format!("{bytes} bytes of a call"), &whole[..bytes])?;
    }
    session.expect_refused("one byte too many", &[whole, vec![0]].concat())?;
    session.greet()
}

fn headers_that_lie(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let copy = in_context(Opcode::cuMemcpyHtoD_v2, &[session.memory, 0]).bulk(&[7; 64]);
    let good = copy.header();
    let lies = [
        CallHeader { args_bytes: u32::MAX, ..good },
        CallHeader { args_bytes: 17, ..good },
        CallHeader { args_bytes: 0, ..good },
        CallHeader { bulk_in_bytes: u64::MAX, ..good },
        CallHeader { bulk_in_bytes: 1 << 40, ..good },
        CallHeader { bulk_in_bytes: 65, ..good },
        CallHeader { bulk_in_bytes: 63, ..good },
        CallHeader { flags: u32::MAX, ..good },
        CallHeader { flags: good.flags | 1 << 3, ..good },
        CallHeader { flags: good.flags | 1 << (CALL_CORRELATION_SHIFT - 1), ..good },
        // The flags announce bulk input in pages, and there are none.
        CallHeader { flags: CALL_OUT_INLINE, ..good },
    ];
    for header in lies {
        session.expect_refused(&format!("{header:?}"), &copy.payload(&header))?;
    }
    let read = in_context(Opcode::cuMemcpyDtoH_v2, &[session.memory]).wants(64);
    let good = read.header();
    let lies = [
        // Inline output is bounded by what a reply can hold.
        CallHeader { bulk_out_bytes: u64::MAX, ..good },
        CallHeader { bulk_out_bytes: 1 << 40, ..good },
        CallHeader { bulk_out_bytes: u64::from(session.frontend.config.max_payload_bytes) + 1, ..good },
        // Output into pages, and there are none.
        CallHeader { flags: CALL_IN_INLINE, ..good },
    ];
    for header in lies {
        session.expect_refused(&format!("{header:?}"), &read.payload(&header))?;
    }
    session.greet()
}

fn unknown_opcodes(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for opcode in [0, 0x00fe, 0x00ff, 0x0100, 0x7fff, 0xffff, 0x10001, u32::MAX] {
        let parts = CallParts { opcode, thread: 1, ..Default::default() };
        session.expect(&parts, &[NOT_SUPPORTED])?;
        session.expect(&parts.bulk(&[1; 1000]).wants(1000), &[NOT_SUPPORTED])?;
    }
    session.greet()
}

fn arguments_of_wrong_length(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    // Those of lanes are answered before they come to an executor: see `lanes`.
    for row in ROWS.iter().filter(|row| row.name != "session_wait") {
        let right = row.input_bytes;
        for bytes in (0..right).chain([right + 1, right + 8, 60_000]) {
            let parts = CallParts {
                opcode: row.opcode,
                thread: 1,
                context: CONTEXT,
                args: vec![0; bytes],
                ..Default::default()
            };
            session.expect(&parts, &[INVALID_VALUE])?;
        }
    }
    session.greet()
}

/// Deterministic bytes: the worker may return any result, but it must answer, and survive.
fn arguments_of_any_bytes(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let mut random = fastrand::Rng::with_seed(20);
    for row in ROWS {
        let ends_session = [
            "session_hello",
            "session_thread_exit",
            // These wait, and have their own tests.
            "session_next_callback",
            "session_wait",
            "session_order",
            "cuDevicePrimaryCtxReset_v2",
            "cuDevicePrimaryCtxRelease_v2",
        ];
        if ends_session.contains(&row.name) {
            continue;
        }
        for round in 0..24 {
            let fill = |random: &mut fastrand::Rng| match round {
                0 => 0,
                1 => 0xff,
                2 => 0x7f,
                3 => 0x80,
                _ if random.bool() => 0,
                _ => random.u8(..),
            };
            let args = (0..row.input_bytes).map(|_| fill(&mut random)).collect();
            let bulk = if round % 2 == 0 { Vec::new() } else { vec![random.u8(..); random.usize(..600)] };
            let parts = CallParts {
                opcode: row.opcode,
                thread: random.u32(1..4),
                context: if round % 3 == 0 { 0 } else { CONTEXT },
                args,
                bulk,
                bulk_out_bytes: random.u64(..2000),
                internal: random.bool(),
            };
            let reply = session.frontend.carry(session.id, &parts.payload(&parts.header()), [&[], &[]])?;
            ensure!(
                [REPLY_OK, REPLY_INVALID].contains(&reply.status),
                "{}: status {}: {parts:02x?}",
                row.name,
                reply.status
            );
        }
        session.greet().with_context(|| format!("after {}", row.name))?;
    }
    Ok(())
}

fn forged_handles(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for forged in [3u64, 0xfff, 0x1000, 0x1234_5678, 0x7fff_ffff_f000, u64::MAX] {
        for opcode in [
            Opcode::cuStreamSynchronize,
            Opcode::cuStreamQuery,
            Opcode::cuStreamDestroy_v2,
            Opcode::cuStreamGetFlags,
            Opcode::cuEventQuery,
            Opcode::cuEventSynchronize,
            Opcode::cuEventDestroy_v2,
            Opcode::cuModuleUnload,
            Opcode::cuLibraryUnload,
            Opcode::cuLibraryGetKernelCount,
        ] {
            session.expect(&in_context(opcode, &[forged]), &[INVALID_HANDLE])?;
        }
        session.expect(
            &in_context(Opcode::cuModuleGetFunction, &[forged, 0x2000]).bulk(b"kernel"),
            &[INVALID_HANDLE],
        )?;
        session.expect(&in_context(Opcode::function_layout, &[forged]).wants(64), &[INVALID_HANDLE])?;
        session.expect(&in_context(Opcode::cuEventElapsedTime_v2, &[forged, forged]), &[INVALID_HANDLE])?;
        // Handles of executable graphs can be the driver's own addresses, and these were not returned by it.
        for opcode in [Opcode::cuGraphLaunch, Opcode::cuGraphUpload] {
            session.expect(&in_context(opcode, &[forged, 0]), &[INVALID_VALUE])?;
        }
        for opcode in [Opcode::cuGraphExecGetFlags, Opcode::cuGraphExecDestroy] {
            session.expect(&in_context(opcode, &[forged]), &[INVALID_VALUE])?;
        }
        let instantiate =
            [&forged.to_le_bytes()[..], &4u64.to_le_bytes(), &0u64.to_le_bytes(), &[1, 0, 0, 0]].concat();
        let instantiate = CallParts::new(Opcode::graph_instantiate_for_device, &instantiate).context(CONTEXT);
        session.expect(&instantiate, &[INVALID_VALUE])?;
        let shape = [1u32, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0];
        let shape: Vec<u8> = shape.iter().flat_map(|word| word.to_le_bytes()).collect();
        let launch = [&forged.to_le_bytes()[..], &0u64.to_le_bytes(), &shape].concat();
        session
            .expect(&CallParts::new(Opcode::cuLaunchKernel, &launch).context(CONTEXT), &[INVALID_HANDLE])?;
    }
    // A stream's name is not an event's, and a name can be used only once.
    let create = [&0x3000u64.to_le_bytes()[..], &1u32.to_le_bytes(), &0i32.to_le_bytes()].concat();
    let create = CallParts::new(Opcode::cuStreamCreateWithPriority, &create).context(CONTEXT);
    session.expect(&create, &[0])?;
    session.expect(&in_context(Opcode::cuEventQuery, &[0x3000]), &[INVALID_HANDLE])?;
    session.expect(&create, &[INVALID_VALUE, INVALID_HANDLE])?;
    session.expect(&in_context(Opcode::cuStreamSynchronize, &[0x3000]), &[0])?;
    session.greet()
}

fn forged_contexts(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for forged in [1u64, 0x1001, 0xdead_beef, u64::MAX] {
        let parts = CallParts::new(Opcode::cuMemAlloc_v2, &4096u64.to_le_bytes()).context(forged);
        session.expect(&parts, &[INVALID_CONTEXT, INVALID_HANDLE])?;
        session
            .expect(&in_context(Opcode::cuCtxDestroy_v2, &[forged]), &[INVALID_CONTEXT, INVALID_HANDLE])?;
    }
    let none = CallParts::new(Opcode::cuMemAlloc_v2, &4096u64.to_le_bytes());
    session.expect(&none, &[INVALID_CONTEXT])?;
    for device in [64u32, 0x8000_0000, u32::MAX] {
        let args = [&device.to_le_bytes()[..], &0x5000u64.to_le_bytes()].concat();
        session.expect(&CallParts::new(Opcode::cuDevicePrimaryCtxRetain, &args), &[101])?;
    }
    session.greet()
}

/// Numbers that are not the session's memory: among them addresses of the worker's own program, stack and
/// libraries, which a device that shares the host's address space would happily read.
fn forged_device_pointers(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let mut forged =
        vec![1, 0x1000, 0x40_0000, WINDOW_BASE, WINDOW_BASE + 4096, 1 << 47, u64::MAX - 15, u64::MAX];
    for worker in target.daemon.workers() {
        let maps = std::fs::read_to_string(format!("/proc/{worker}/maps")).unwrap_or_default();
        let starts = maps.lines().filter_map(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
        forged.extend(starts.filter(|&start| start.abs_diff(session.memory) >= 1 << 30).step_by(5));
    }
    let own = session.memory;
    for address in forged {
        session.expect(&in_context(Opcode::cuMemcpyDtoH_v2, &[address]).wants(16), &[INVALID_VALUE])?;
        session
            .expect(&in_context(Opcode::cuMemcpyHtoD_v2, &[address, 0]).bulk(&[0; 16]), &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuMemcpyDtoD_v2, &[address, own, 16]), &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuMemcpyDtoD_v2, &[own, address, 16]), &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuMemcpyAsync, &[own, address, 16, 0]), &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuMemcpyAsync, &[address, own, 16, 0]), &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuMemFree_v2, &[address]), &[INVALID_VALUE])?;
        let set = [&address.to_le_bytes()[..], &[1], &16u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
        session.expect(&CallParts::new(Opcode::cuMemsetD8Async, &set).context(CONTEXT), &[INVALID_VALUE])?;
    }
    session.greet()
}

/// Begins a link.
pub fn begin_link(session: &mut Session, link: u64) -> Result<()> {
    let arguments = [&link.to_le_bytes()[..], &encoded(&JitOptions::default())?].concat();
    session.expect(&CallParts::new(Opcode::cuLinkCreate_v2, &arguments).context(CONTEXT), &[0]).map(drop)
}

/// A wrapper of a container has the container's address, which the driver follows.
fn addresses_in_images(target: &mut Target) -> Result<()> {
    const LINK: u64 = 0x6000;
    const INPUTS: std::ops::RangeInclusive<u32> = 0..=4;
    let mut session = Session::open(target)?;
    for (version, address) in [(1u32, 0x1000u64), (2, 0x1000), (1, WINDOW_BASE), (1, u64::MAX)] {
        let words = [0x4662_43b1 | u64::from(version) << 32, address, address];
        let wrapper: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for opcode in [Opcode::cuModuleLoadData, Opcode::cuLibraryLoadData] {
            session.expect(&in_context(opcode, &[0x4000]).bulk(&wrapper), &[INVALID_IMAGE])?;
        }
        let options = encoded(&JitOptions::default())?;
        let arguments = [&0x4000u64.to_le_bytes()[..], &options].concat();
        let parts = CallParts::new(Opcode::cuModuleLoadDataEx, &arguments).context(CONTEXT);
        session.expect(&parts.bulk(&wrapper), &[INVALID_IMAGE])?;
        begin_link(&mut session, LINK)?;
        for kind in INPUTS {
            let arguments =
                [&LINK.to_le_bytes()[..], &kind.to_le_bytes(), &0u32.to_le_bytes(), &options].concat();
            let parts = CallParts::new(Opcode::cuLinkAddData_v2, &arguments).context(CONTEXT);
            session.expect(&parts.bulk(&wrapper), &[INVALID_IMAGE])?;
        }
        session.expect(&in_context(Opcode::cuLinkDestroy, &[LINK]), &[0])?;
    }
    session.greet()
}

fn ranges_over_an_allocation(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let own = session.memory;
    let copy = |address: u64| in_context(Opcode::cuMemcpyHtoD_v2, &[address, 0]);
    session.expect(&copy(own).bulk(&[3; 4096]), &[0])?;
    session.expect(&copy(own).bulk(&[3; 4097]), &[INVALID_VALUE])?;
    session.expect(&copy(own + 4090).bulk(&[3; 7]), &[INVALID_VALUE])?;
    session.expect(&copy(own - 1).bulk(&[3; 2]), &[INVALID_VALUE])?;
    session.expect(&in_context(Opcode::cuMemcpyDtoH_v2, &[own + 1]).wants(4096), &[INVALID_VALUE])?;
    let last = session.expect(&in_context(Opcode::cuMemcpyDtoH_v2, &[own + 4095]).wants(1), &[0])?;
    ensure!(last.bulk == [3], "{last:?}");
    for bytes in [4097, 1 << 40, u64::MAX, u64::MAX - own + 1] {
        session.expect(&in_context(Opcode::cuMemcpyDtoD_v2, &[own, own, bytes]), &[INVALID_VALUE])?;
        let set = [&own.to_le_bytes()[..], &[1], &bytes.to_le_bytes(), &0u64.to_le_bytes()].concat();
        session.expect(&CallParts::new(Opcode::cuMemsetD8Async, &set).context(CONTEXT), &[INVALID_VALUE])?;
        let set = [&own.to_le_bytes()[..], &[1, 0, 0, 0], &bytes.to_le_bytes(), &0u64.to_le_bytes()].concat();
        session.expect(&CallParts::new(Opcode::cuMemsetD32Async, &set).context(CONTEXT), &[INVALID_VALUE])?;
    }
    // Pitched boxes: products that overflow, rows that leave the allocation.
    for (pitch, width, height, depth) in [
        (u64::MAX, 16, 2, 1),
        (1 << 32, 16, 1 << 32, 1 << 32),
        (64, 64, 65, 1),
        (64, 65, 1, 1),
        (4096, 1, 2, 1),
        (64, 16, u64::MAX, u64::MAX),
    ] {
        let end = CopyEnd { kind: COPY_DEVICE, address: DevicePtr(own), pitch, height, ..CopyEnd::default() };
        let size = Box3 { width, height, depth };
        session.expect(&box_copy(CopyEnd::default(), end, size)?.wants(1024), &[INVALID_VALUE])?;
        session.expect(&box_copy(end, CopyEnd::default(), size)?.bulk(&[0; 64]), &[INVALID_VALUE])?;
        // A single row has no pitch.
        let refused = if height > 1 { INVALID_VALUE } else { 0 };
        session.expect(&box_copy(end, end, size)?, &[refused])?;
    }
    for bytes in [u64::MAX, 1 << 60, (1 << 47) + 1] {
        session.expect(&in_context(Opcode::cuMemAlloc_v2, &[bytes]), &[2])?;
    }
    session.expect(&in_context(Opcode::cuMemAlloc_v2, &[0]), &[INVALID_VALUE])?;
    session.greet()
}

fn another_call_table(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    let hello = CallParts::new(Opcode::session_hello, &(CALL_TABLE_VERSION + 1).to_le_bytes());
    let answer = frontend.call(session, &hello)?;
    // It returns its own version, which the library may know, and refuses all other calls.
    let told = answer.results.get(..4) == Some(&CALL_TABLE_VERSION.to_le_bytes());
    ensure!(answer.result == 0 && told, "{answer:?}");
    let log = target.daemon.log();
    ensure!(log.contains(&format!("{}", CALL_TABLE_VERSION + 1)), "the log does not name the other version");
    let call = CallParts::new(Opcode::session_statistics, &[]);
    for version in [0, OLDEST_CALL_TABLE_VERSION - 1, u32::MAX] {
        let hello = CallParts::new(Opcode::session_hello, &version.to_le_bytes());
        ensure!(frontend.call(session, &hello)?.result == 0, "version {version} is not answered");
        ensure!(
            frontend.call(session, &call)?.result == SYSTEM_DRIVER_MISMATCH,
            "version {version} is served"
        );
    }
    for version in OLDEST_CALL_TABLE_VERSION..=CALL_TABLE_VERSION {
        let hello = CallParts::new(Opcode::session_hello, &version.to_le_bytes());
        let answer = frontend.call(session, &hello)?;
        ensure!(answer.results.get(..4) == Some(&version.to_le_bytes()), "version {version}: {answer:?}");
        ensure!(frontend.call(session, &call)?.result == 0, "version {version} is not served");
    }
    Ok(())
}

/// A profiler that starts twice, numbers its calls with any bits, reads into buffers of any size, and requests names
/// that no kernel has.
fn forged_measurements(target: &mut Target) -> Result<()> {
    /// Bytes of a piece of work, and where its correlation lies.
    const WORK: usize = 128;
    const NUMBER: usize = 4;
    let mut session = Session::open(target)?;
    let start = CallParts::new(Opcode::trace_start, &[]);
    let stop = CallParts::new(Opcode::trace_stop, &[]);
    let clock = CallParts::new(Opcode::trace_clock, &[]);
    let read = CallParts::new(Opcode::trace_read, &[]);
    let name = |number: u32| CallParts::new(Opcode::trace_name, &number.to_le_bytes()).wants(64);
    // The host may have no CUPTI. The emulator has one.
    let without: &[i32] = if is_emulated() { &[0] } else { &[0, NOT_FOUND, NOT_SUPPORTED] };
    session.expect(&stop, &[0])?;
    session.expect(&clock, without)?;
    session.expect(&read.clone().wants(4096), without)?;
    if session.expect(&start, without)?.result != 0 {
        return session.greet();
    }
    session.expect(&start, &[0])?;
    session.expect(&clock, &[0])?;
    let numbers = [1u32, 2, 0x80_0000, (1 << CALL_CORRELATION_BITS) - 1, 1, 0];
    let fill = [&session.memory.to_le_bytes()[..], &[7], &64u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
    let fill = CallParts::new(Opcode::cuMemsetD8Async, &fill).context(CONTEXT);
    for number in numbers {
        let header = fill.header();
        let flags = header.flags | number << CALL_CORRELATION_SHIFT;
        let payload = fill.payload(&CallHeader { flags, ..header });
        let reply = session.frontend.carry(session.id, &payload, [&[], &[]])?;
        ensure!(reply.status == REPLY_OK, "number {number:#x}: status {}", reply.status);
        ensure!(parse_result(&reply.payload)?.result == 0, "number {number:#x} is refused");
    }
    session.expect(&in_context(Opcode::cuStreamSynchronize, &[0]), &[0])?;
    let mut seen = Vec::new();
    for room in [0, 1, WORK - 1, WORK, WORK + 1, 3 * WORK, 20_000, 0, 20_000] {
        let answer = session.expect(&read.clone().wants(room as u64), &[0])?;
        let bytes = answer.bulk.len();
        ensure!(bytes <= room && bytes.is_multiple_of(WORK), "{bytes} bytes in a room of {room}");
        ensure!(answer.results[..8] == (bytes as u64).to_le_bytes(), "the length is not that of the work");
        for work in answer.bulk.chunks_exact(WORK) {
            let number = work[NUMBER..].first_chunk().context("a piece without a number")?;
            seen.push(u32::from_le_bytes(*number));
        }
    }
    if is_emulated() {
        ensure!(seen == numbers, "the work has the numbers {seen:x?}, not {numbers:x?}");
    }
    for number in [0, 1, 2, 1 << 16, u32::MAX - 1, u32::MAX] {
        session.expect(&name(number), &[INVALID_VALUE])?;
    }
    session.expect(&stop, &[0])?;
    session.expect(&stop, &[0])?;
    session.expect(&read.wants(20_000), &[0])?;
    session.greet()
}

/// Options of the compiler that occur twice, of which the driver would take the second with the buffer of the first; and options
/// and attributes whose values could be addresses.
fn options_that_no_list_has(target: &mut Target) -> Result<()> {
    const INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
    const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
    const NO_ATTRIBUTE: i32 = 15;
    let mut session = Session::open(target)?;
    let lists = [
        [(INFO_LOG_BUFFER_SIZE_BYTES, 16), (INFO_LOG_BUFFER_SIZE_BYTES, 1 << 20)],
        [(ERROR_LOG_BUFFER_SIZE_BYTES, 1 << 20), (ERROR_LOG_BUFFER_SIZE_BYTES, 16)],
        [(7, 3), (16, 1)],
        [(7, 3), (200, 1)],
    ];
    for list in lists {
        let mut options = JitOptions { count: list.len() as u32, ..JitOptions::default() };
        for (index, (number, value)) in list.into_iter().enumerate() {
            (options.options[index], options.values[index]) = (number, value);
        }
        let arguments = [&0x4000u64.to_le_bytes()[..], &encoded(&options)?].concat();
        for opcode in [Opcode::cuModuleLoadDataEx, Opcode::cuLinkCreate_v2] {
            let parts = CallParts::new(opcode, &arguments).context(CONTEXT).bulk(b"nonsense\0");
            session.expect(&parts, &[INVALID_VALUE])?;
        }
    }
    let attribute = [&0u64.to_le_bytes()[..], &NO_ATTRIBUTE.to_le_bytes()].concat();
    let parts = CallParts::new(Opcode::cuStreamGetAttribute, &attribute).context(CONTEXT);
    session.expect(&parts, &[INVALID_VALUE])?;
    let value = [&attribute[..], &[0xff; 64]].concat();
    session
        .expect(&CallParts::new(Opcode::cuStreamSetAttribute, &value).context(CONTEXT), &[INVALID_VALUE])?;
    let graph_memory = [0u32.to_le_bytes(), 4u32.to_le_bytes()].concat();
    let parts = CallParts::new(Opcode::cuDeviceGetGraphMemAttribute, &graph_memory).context(CONTEXT);
    session.expect(&parts, &[INVALID_VALUE])?;
    session.greet()
}
