// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses to memory by addresses and immediates near all limits: the interpreter and translated code do the same.

use std::sync::atomic::AtomicBool;

use arbitrary::{Arbitrary, Unstructured};
use cuda_emulator::execute::Printf;
use cuda_emulator::launch::{Launch, launch};
use cuda_emulator::memory::Memory;
use cuda_emulator::program::{Program, Translation};

/// Bytes of the global memory that is accessed, and of what each thread has read.
const BYTES: u64 = 64 << 10;
const RESULT_BYTES: u64 = 64;
/// Bytes of local memory.
const LOCAL_BYTES: u32 = 64;
/// Where lane 0 of the first execution is: with steps of usual size, all lanes are inside.
const MIDDLE: u64 = 16 << 10;

/// The address of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum Space {
    /// Global memory.
    Global,
    /// The same by a generic address.
    Generic,
    /// Shared memory, by a register of 64 bits.
    Shared,
    /// Shared memory, by a register of 32 bits.
    SharedShort,
    /// Shared memory by a generic address.
    SharedGeneric,
    /// Local memory, by a register of 64 bits.
    Local,
    /// Local memory, by a register of 32 bits.
    LocalShort,
}

/// The instruction of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum Operation {
    /// `ld`
    Load,
    /// `st`
    Store,
    /// `atom.add`, of 32 or 64 bits.
    Atomic,
    /// `ldmatrix`
    Matrix,
}

/// The pattern of the lanes' addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum Lanes {
    /// All are the same.
    Same,
    /// Each is a step further.
    Steps,
    /// By steps, in another order.
    Scattered,
}

/// An access, which is executed three times: of global memory first where it is valid, if its steps are not too large.
#[derive(Debug, Clone)]
pub struct Access {
    /// The address.
    pub space: Space,
    /// The instruction.
    pub operation: Operation,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub bytes: u32,
    /// Elements: 1, 2 or 4.
    pub count: u32,
    /// The immediate.
    pub imm: i64,
    /// The distance of a second access with the same register.
    pub second: Option<i64>,
    /// Where lane 0 is, immediate included, from the start of the memory.
    pub start: u64,
    /// From lane to lane, in bytes.
    pub stride: u64,
    /// The pattern of the lanes' addresses.
    pub lanes: Lanes,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Threads, in two dimensions, at most 32.
    pub threads: [u32; 2],
    /// Only every third thread does it.
    pub guarded: bool,
}

/// Immediates, as distances from values at which sums wrap around.
const LIMITS: [i64; 9] = [0, 0, 1 << 31, -(1 << 31), 1 << 32, 1 << 20, i64::MAX, i64::MIN, i64::MAX / 32];

fn near(limits: &[i64], choices: &mut Unstructured<'_>) -> arbitrary::Result<i64> {
    let limit = *choices.choose(limits)?;
    Ok(limit.wrapping_add(i64::from(choices.arbitrary::<i8>()?)))
}

impl<'a> Arbitrary<'a> for Access {
    fn arbitrary(choices: &mut Unstructured<'a>) -> arbitrary::Result<Access> {
        let space = choices.arbitrary()?;
        let shared = if choices.arbitrary()? { choices.int_in_range(0..=16)? } else { 4096 };
        let end = match space {
            Space::Global | Space::Generic => BYTES,
            Space::Local | Space::LocalShort => LOCAL_BYTES.into(),
            _ => shared.into(),
        };
        let stride = match choices.int_in_range(0..=3)? {
            0 => choices.int_in_range(0..=1024)?,
            1 => 1 << choices.int_in_range(0..=63)?,
            2 => (1_u64 << choices.int_in_range(0..=63)?).wrapping_add(16),
            _ => *choices.choose(&[1, 2, 4, 8, 16])?,
        };
        Ok(Access {
            space,
            operation: choices.arbitrary()?,
            bytes: *choices.choose(&[1, 2, 4, 8])?,
            count: *choices.choose(&[1, 2, 4])?,
            imm: near(&LIMITS, choices)?,
            second: if choices.arbitrary()? { Some(near(&[0, 0, 256, 1 << 16], choices)?) } else { None },
            start: near(&[0, 0, end as i64, MIDDLE as i64, 1 << 31, i64::MAX], choices)? as u64,
            stride,
            lanes: choices.arbitrary()?,
            shared,
            threads: *choices.choose(&[[32, 1], [16, 2], [8, 4], [20, 1], [5, 5]])?,
            guarded: choices.arbitrary()?,
        })
    }
}

impl Access {
    fn is_short(&self) -> bool {
        matches!(self.space, Space::SharedShort | Space::LocalShort)
    }

    fn is_shared(&self) -> bool {
        matches!(self.space, Space::Shared | Space::SharedShort | Space::SharedGeneric)
    }

    /// The instruction with an immediate.
    fn line(&self, imm: i64) -> String {
        let space = match self.space {
            Space::Global => ".global",
            Space::Generic | Space::SharedGeneric => "",
            Space::Shared | Space::SharedShort => ".shared",
            Space::Local | Space::LocalShort => ".local",
        };
        let guard = if self.guarded { "@%guard " } else { "" };
        let sign = if imm < 0 { "-" } else { "+" };
        let address =
            format!("[{}{sign}{}]", if self.is_short() { "%at" } else { "%addr" }, imm.unsigned_abs());
        let bits = self.bytes * 8;
        let kind = if bits == 64 { "d" } else { "r" };
        let registers = |name: char| match self.count {
            1 => format!("%{name}{kind}0"),
            count => {
                let list: Vec<String> = (0..count).map(|part| format!("%{name}{kind}{part}")).collect();
                format!("{{{}}}", list.join(", "))
            }
        };
        let vector = if self.count == 1 { String::new() } else { format!(".v{}", self.count) };
        match self.operation {
            Operation::Matrix if self.is_shared() && self.space != Space::SharedGeneric => {
                format!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%or0, %or1, %or2, %or3}}, {address};")
            }
            Operation::Load | Operation::Matrix => {
                format!("{guard}ld{space}{vector}.u{bits} {}, {address};", registers('o'))
            }
            Operation::Store => format!("{guard}st{space}{vector}.u{bits} {address}, {};", registers('v')),
            Operation::Atomic if self.bytes == 8 => {
                format!("{guard}atom{space}.add.u64 %od0, {address}, %vd0;")
            }
            Operation::Atomic => format!("{guard}atom{space}.add.u32 %or0, {address}, %vr0;"),
        }
    }

    /// The module.
    fn text(&self) -> String {
        let [x, y] = self.threads;
        let (shared, threads) = (self.shared, x * y);
        let index = match self.lanes {
            Lanes::Same => "mov.u32 %index, 0;",
            Lanes::Steps => "mov.u32 %index, %lane;",
            Lanes::Scattered => "mul.lo.u32 %index, %lane, 7; and.b32 %index, %index, 31;",
        };
        // `%lane` counts in a row alone, so that the lanes of several rows are several groups.
        let address = if self.is_short() {
            let stride = self.stride as u32;
            format!(
                "cvt.u32.u64 %r0, %first; mad.lo.u32 %r0, %index, {stride}, %r0; cvt.u32.u64 %r1, %later;
                 mad.lo.u32 %r1, %index, {stride}, %r1;"
            )
        } else {
            let window = if self.space == Space::SharedGeneric {
                "cvta.shared.u64 %first, %first; cvta.shared.u64 %later, %later;"
            } else {
                ""
            };
            format!(
                "{window} cvt.u64.u32 %d0, %index; mul.lo.u64 %d0, %d0, {}; add.u64 %first, %first, %d0;
                 add.u64 %later, %later, %d0;",
                self.stride
            )
        };
        let choose = if self.is_short() {
            "selp.u32 %at, %r0, %r1, %begins;"
        } else {
            "selp.u64 %addr, %first, %later, %begins;"
        };
        let second = self.second.map_or(String::new(), |distance| self.line(self.imm.wrapping_add(distance)));
        let declared =
            if shared > 0 { format!(".shared .align 16 .b8 sh[{shared}];") } else { String::new() };
        // Bytes of shared memory, before and after.
        let (fill, dump) = if shared > 0 {
            let each = |name: &str, body: &str| {
                format!(
                    "mov.u32 %i, %thread; {name}: setp.ge.u32 %done, %i, {shared}; @%done bra {name}_end;
                     mov.u32 %r2, sh; add.u32 %r2, %r2, %i; {body} add.u32 %i, %i, {threads}; bra {name}; {name}_end:
                     bar.sync 0;"
                )
            };
            let store = "mul.lo.u32 %r3, %i, 37; st.shared.u8 [%r2], %r3;";
            let load = "ld.shared.u8 %r3, [%r2]; cvt.u64.u32 %d1, %i; add.u64 %d1, %d1, %dumped; st.global.u8 [%d1], %r3;";
            (each("FILL", store), each("DUMP", load))
        } else {
            (String::new(), String::new())
        };
        let results: String = (0..4)
            .map(|part| {
                format!(
                    "st.global.u32 [%out+{}], %or{part}; st.global.u64 [%out+{}], %od{part};\n",
                    part * 4,
                    16 + part * 8
                )
            })
            .collect();
        let values: String = (0..4)
            .map(|part| {
                format!(
                    "mad.lo.u32 %vr{part}, %thread, 0x01010101, {part}; cvt.u64.u32 %vd{part}, %vr{part};
                     mov.u32 %or{part}, 7; mov.u64 %od{part}, 7;\n"
                )
            })
            .collect();
        format!(
            ".version 8.8\n.target sm_90\n.address_size 64
            .visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)\n{{
            .reg .pred %guard, %begins, %done; .reg .b32 %i, %lane, %row, %thread, %index, %at;
            .reg .b32 %r<8>; .reg .b32 %vr<4>; .reg .b32 %or<4>;
            .reg .b64 %first, %later, %addr, %out, %dumped; .reg .b64 %d<8>; .reg .b64 %vd<4>; .reg .b64 %od<4>;
            {declared} .local .align 16 .b8 lo[{LOCAL_BYTES}];
            mov.u32 %lane, %tid.x; mov.u32 %row, %tid.y; mad.lo.u32 %thread, %row, {x}, %lane;
            mul.hi.u32 %r4, %thread, 0x55555556; mul.lo.u32 %r4, %r4, 3; setp.eq.u32 %guard, %r4, %thread;
            ld.param.u64 %first, [p0]; ld.param.u64 %later, [p1]; ld.param.u64 %out, [p2]; ld.param.u64 %dumped, [p3];
            mul.wide.u32 %d2, %thread, {RESULT_BYTES}; add.u64 %out, %out, %d2;
            st.local.u32 [lo], %thread; st.local.u32 [lo+60], %lane;
            {values} {index} {address} {fill}
            mov.u32 %i, 0;
            AGAIN: setp.eq.u32 %begins, %i, 0; {choose}
            {}
            {second}
            add.u32 %i, %i, 1; setp.lt.u32 %begins, %i, 3; @%begins bra AGAIN;
            {results} bar.sync 0; {dump}
            ret;\n}}\n",
            self.line(self.imm),
        )
    }

    /// Runs the access both ways. Panics where the results differ; returns the fault's message, or what memory and registers
    /// contain. `None`: the loader refuses it.
    pub fn check(&self) -> Option<Result<Vec<u8>, String>> {
        let text = self.text();
        let mut program = Program::load(&text).ok()?;
        let memory = Memory::new(64 << 20).ok()?;
        let bytes = BYTES + 32 * RESULT_BYTES + u64::from(self.shared).next_multiple_of(16);
        // The addresses before the allocation and behind it are not valid.
        let place = memory.allocate(BYTES, 256).ok()?;
        let results = memory.allocate(bytes - BYTES, 256).ok()?;
        let pattern: Vec<u8> =
            (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let base = match self.space {
            Space::Global | Space::Generic => place,
            _ => 0,
        };
        // Translated code knows a range of global memory only once it was accessed.
        let usual = match self.space {
            Space::Global | Space::Generic => MIDDLE,
            _ => self.start,
        };
        let before = |offset: u64| base.wrapping_add(offset).wrapping_sub(self.imm as u64);
        let params = [before(usual), before(self.start), results, results + 32 * RESULT_BYTES];
        let params: Vec<u8> = params.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut run = |when: Translation| {
            program.translate(when);
            memory.write(place, &pattern).unwrap();
            memory.fill(results, &[0], bytes - BYTES).unwrap();
            let (cancel, printf) = (AtomicBool::new(false), Printf::default());
            let [x, y] = self.threads;
            let ended = launch(&Launch {
                program: &program,
                kernel: &program.kernels["k"],
                global_addresses: &[],
                grid: [1, 1, 1],
                block: [x, y, 1],
                dynamic_shared: 0,
                params: &params,
                memory: &memory,
                printf: &printf,
                cooperative: false,
                cluster: None,
                cancel: &cancel,
                workers: 1,
                multiprocessors: 1,
                stack_bytes: 1024,
                grid_id: 1,
                device: &(),
            });
            let mut contents = vec![0; bytes as usize];
            let (first, second) = contents.split_at_mut(BYTES as usize);
            memory.read(place, first).unwrap();
            memory.read(results, second).unwrap();
            (
                ended.map_err(|fault| format!("{:?} {} {}", fault.thread, fault.ptx_line, fault.message)),
                contents,
            )
        };
        let (interpreted, translated) = (run(Translation::Never), run(Translation::Always));
        assert_eq!(
            interpreted.0, translated.0,
            "the ends of interpreter and translated code differ: {self:?}\n{text}"
        );
        assert!(
            interpreted.1 == translated.1,
            "interpreter and translated code write different bytes: {self:?}\n{text}"
        );
        let (ended, contents) = interpreted;
        Some(ended.map(|()| contents))
    }
}
