// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuProfiler*: accepted without effect, because there is no profiler.

use crate::driver::context;
use crate::driver::result::CuResult;

fn profiler_control() -> CuResult<()> {
    context::current().map(|_| ())
}

crate::driver::ffi::entries! { after_init
    cuProfilerStart => profiler_control();
    cuProfilerStop => profiler_control();
}
