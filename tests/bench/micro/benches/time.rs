// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The time of the pieces on this machine.

use criterion::{Criterion, criterion_group, criterion_main};

fn all(criterion: &mut Criterion) {
    for (name, make) in vhost_cuda_microbench::ALL {
        criterion.bench_function(name, |bencher| bencher.iter(make()));
    }
}

criterion_group!(pieces, all);
criterion_main!(pieces);
