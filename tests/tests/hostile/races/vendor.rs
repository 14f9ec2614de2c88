// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles of NVIDIA's libraries.

use cuda_library_rows::block::PRESENT;

use super::kinds::IT;
use super::{Kind, Test};
use crate::calls::Session;
use crate::vendor::{call, open};

pub const ALL: &[Test] = &[("handles_of_libraries", handles)];

fn handles(session: &Session) -> Kind {
    let memory = session.memory;
    let one = u64::from(1.0_f32.to_bits());
    let of = |name: &str, slots: &[u64], data: &[u64]| call("cublas", name, slots, data);
    Kind {
        once: vec![open("cublas")],
        make: vec![of("cublasCreate_v2", &[IT], &[])],
        uses: vec![
            of("cublasSetMathMode", &[IT, 0], &[]),
            of("cublasSetPointerMode_v2", &[IT, 1], &[]),
            of("cublasSetStream_v2", &[IT, 0], &[]),
            of("cublasSscal_v2", &[IT, 4, PRESENT, memory, 1], &[one]),
            of(
                "cublasSgemm_v2",
                &[IT, 0, 0, 4, 4, 4, PRESENT, memory, 4, memory + 64, 4, PRESENT, memory + 128, 4],
                &[one, one],
            ),
        ],
        destroy: of("cublasDestroy_v2", &[IT], &[]),
        ..Kind::default()
    }
}
