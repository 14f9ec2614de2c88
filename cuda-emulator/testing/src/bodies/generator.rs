// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels that load and do something, mostly with memory: instructions from a list, with operands of the right type and any
//! value. Each backward branch takes from a counter, so all loops end.

use arbitrary::Arbitrary;

use super::templates::{IMMEDIATES, OFFSETS, TEMPLATES};

/// The maximum number of instructions of a kernel.
const MAX_STEPS: usize = 80;
/// Labels, spread over the instructions.
const LABELS: usize = 6;
/// Registers of each kind that steps use.
const REGISTERS: u16 = 8;

/// A kernel and the shape in which it is launched.
#[derive(Debug, Arbitrary)]
pub struct Kernel {
    shape: [u8; 2],
    cooperative: bool,
    /// Indices into [`STARTS`]: the first values of the address registers.
    starts: [u8; 8],
    steps: Vec<Step>,
}

#[derive(Debug, Arbitrary)]
struct Step {
    template: u16,
    operands: [u16; 6],
    guard: u8,
}

/// The values that an address register may hold at first.
const STARTS: [&str; 12] = [
    "ld.param.u64 {d}, [p0];",
    "ld.param.u64 {d}, [p0]; mad.wide.u32 {d}, %r0, 4, {d};",
    "ld.param.u64 {d}, [p0]; mad.wide.u32 {d}, %r0, 16, {d};",
    "ld.param.u64 {d}, [p0]; add.u64 {d}, {d}, 4092;",
    "ld.param.u64 {d}, [p1];",
    "ld.param.u64 {d}, [p2];",
    "ld.param.u64 {d}, [p3];",
    "mov.u64 {d}, sh; cvta.shared.u64 {d}, {d};",
    "mov.u64 {d}, lo; cvta.local.u64 {d}, {d};",
    "mov.u64 {d}, variable;",
    "mov.u64 {d}, 0;",
    "mov.u64 {d}, -16;",
];

const PROLOGUE: &str = "\
.version 8.8
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 dyn[];
.visible .global .align 16 .b8 variable[64];
.const .align 16 .b8 fixed[64];
.func (.param .b32 out) callee(.param .b32 count, .param .b64 ptr)
{
.reg .b32 %r<4>; .reg .b64 %d<2>; .reg .pred %p;
.local .align 16 .b8 frame[32];
ld.param.u32 %r0, [count]; ld.param.u64 %d0, [ptr];
and.b32 %r1, %r0, 7; st.local.u32 [frame+4], %r0;
setp.eq.u32 %p, %r1, 0; mov.u32 %r2, 1;
@%p bra DONE;
{ .param .b32 x; .param .b64 y; .param .b32 z;
sub.u32 %r1, %r0, 1; st.param.b32 [x], %r1; st.param.b64 [y], %d0;
call.uni (z), callee, (x, y); ld.param.b32 %r2, [z]; }
DONE: ld.local.u32 %r3, [frame+4]; add.u32 %r2, %r2, %r3;
st.param.b32 [out], %r2; ret;
}
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)
{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<12>; .reg .b64 %d<9>; .reg .f32 %f<9>; .reg .f64 %g<9>;
.reg .b32 %fuel; .reg .pred %more;
.shared .align 16 .b8 sh[512];
.local .align 16 .b8 lo[256];
mov.u32 %fuel, 40; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %laneid; mov.u32 %r3, -1;
mov.u32 %r4, 7; mov.u32 %r5, sh; mov.u32 %r6, dyn; mov.u32 %r7, lo;
setp.lt.u32 %p0, %r0, 5; setp.ge.u32 %p1, %r2, 16; setp.eq.u32 %p2, %r1, 0;
";

impl Kernel {
    /// Grid and block.
    pub fn shape(&self) -> ([u32; 3], [u32; 3]) {
        let [grid, block] = self.shape.map(u32::from);
        ([grid % 3 + 1, 1, 1], [block % 96 + 1, 1, 1])
    }

    pub fn is_cooperative(&self) -> bool {
        self.cooperative
    }

    /// The module.
    pub fn text(&self) -> String {
        let mut text = PROLOGUE.to_owned();
        for (index, start) in self.starts.iter().enumerate() {
            let line = STARTS[usize::from(*start) % STARTS.len()].replace("{d}", &format!("%d{index}"));
            text += &line;
            text.push('\n');
        }
        let steps = &self.steps[..self.steps.len().min(MAX_STEPS)];
        let distance = steps.len() / LABELS + 1;
        let mut labels = 0;
        for (index, step) in steps.iter().enumerate() {
            if index % distance == 0 {
                text += &format!("L{labels}:\n");
                labels += 1;
            }
            text += &step.line();
            text.push('\n');
        }
        for label in labels..LABELS {
            text += &format!("L{label}:\n");
        }
        text + "ret;\n}\n"
    }
}

impl Step {
    fn line(&self) -> String {
        let template = TEMPLATES[usize::from(self.template) % TEMPLATES.len()];
        let mut line = String::new();
        // Guards are for single instructions.
        if self.guard & 3 == 3 && template.matches(';').count() == 1 && !template.contains(['{', ':']) {
            line += &format!("@%p{} ", self.guard >> 2 & 7);
        }
        let mut operands = self.operands.iter().cycle();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('$') {
            line += before;
            let number = *operands.next().unwrap_or(&0);
            let kind = after.chars().next().unwrap_or('$');
            rest = &after[kind.len_utf8()..];
            line += &match kind {
                'r' | 'd' | 'f' | 'g' | 'h' | 'p' => format!("%{kind}{}", number % REGISTERS),
                'i' => IMMEDIATES[usize::from(number) % IMMEDIATES.len()].to_owned(),
                'n' => (number % 32).to_string(),
                'o' => OFFSETS[usize::from(number) % OFFSETS.len()].to_owned(),
                'L' => format!("L{}", usize::from(number) % LABELS),
                other => other.to_string(),
            };
        }
        line + rest
    }
}
