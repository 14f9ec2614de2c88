// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Forged queries of NVIDIA's management library: functions outside of the table of getters, inputs that its rows do
//! not allow, and results that do not fit are refused, with a library and without.

use anyhow::{Result, ensure};
use vhost_cuda_tests::frontend::{CallParts, CallResult};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{Getter, Opcode};

use crate::calls::{INVALID_VALUE, NOT_SUPPORTED, Session};
use crate::{Target, attack};

const INVALID_DEVICE: i32 = 101;
/// Enough for any row's results.
const ROOM: u64 = 8192;

pub fn collect(suite: &mut Suite) {
    attack(suite, "management::getters_that_there_are_not", unknown_getters);
    attack(suite, "management::inputs_that_no_row_admits", forged_inputs);
}

fn get(device: u32, getter: u32, inputs: [u64; 3]) -> CallParts {
    let mut args = [device.to_le_bytes(), getter.to_le_bytes()].concat();
    args.extend(inputs.iter().flat_map(|input| input.to_le_bytes()));
    CallParts::new(Opcode::nvml_get, &args)
}

fn expect(session: &mut Session, parts: CallParts, allowed: &[i32]) -> Result<CallResult> {
    session.expect(&parts.wants(ROOM), allowed)
}

fn unknown_getters(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for forged in [0x17, 0x1f, 0x5d, 0x6a, 0xff, 0x100, 0x8000_0000, u32::MAX] {
        ensure!(Getter::of(forged).is_none(), "{forged:#x} is a getter's number: choose another");
        expect(&mut session, get(0, forged, [0; 3]), &[INVALID_VALUE])?;
    }
    for device in [64, 0x8000_0000, u32::MAX] {
        expect(&mut session, get(device, 0, [0; 3]), &[INVALID_DEVICE])?;
    }
    session.greet()
}

fn forged_inputs(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for getter in Getter::all() {
        for inputs in [[u64::MAX; 3], [0, 0, u64::MAX], [0, 1 << 32, 0], [1 << 32, 0, 0], [1, 0, 0], [0; 3]] {
            let admitted = getter.check(inputs).is_ok();
            let allowed: &[i32] = if admitted { &[0, NOT_SUPPORTED] } else { &[INVALID_VALUE] };
            let answer = expect(&mut session, get(0, getter.number, inputs), allowed)?;
            let whole = answer.bulk.len() == getter.bytes();
            ensure!(answer.result != 0 || whole, "{}: {} bytes", getter.name, answer.bulk.len());
        }
        let short = get(0, getter.number, [0; 3]).wants(getter.bytes() as u64 - 1);
        session.expect(&short, &[INVALID_VALUE])?;
    }
    session.greet()
}
