// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the emulator, in CPU time: `cargo run --release -p cuda-emulator --example speed [workers [times]]`. With
//! `times`, runs only saxpy, this number of times.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cuda_emulator::execute::Printf;
use cuda_emulator::launch::{Launch, launch};
use cuda_emulator::memory::Memory;
use cuda_emulator::program::Program;

const PTX: &str = include_str!("../tests/data/speed.ptx");

/// The CPU time of this process: other processes do not disturb it.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Bench {
    program: Program,
    memory: Memory,
    workers: usize,
}

impl Bench {
    /// Runs a kernel once to warm up and once to measure.
    fn time(&self, name: &str, grid: [u32; 3], block: [u32; 3], params: &[u8]) -> Duration {
        let printf = Printf::default();
        let cancel = AtomicBool::new(false);
        let task = Launch {
            program: &self.program,
            kernel: &self.program.kernels[name],
            global_addresses: &[],
            grid,
            block,
            dynamic_shared: 0,
            params,
            memory: &self.memory,
            printf: &printf,
            cooperative: false,
            cluster: None,
            cancel: &cancel,
            workers: self.workers,
            multiprocessors: 132,
            stack_bytes: 1024,
            grid_id: 1,
            device: &(),
        };
        launch(&task).unwrap();
        let start = cpu_time();
        launch(&task).unwrap();
        cpu_time() - start
    }

    fn allocate(&self, bytes: u64) -> u64 {
        self.memory.allocate(bytes, 256).unwrap()
    }
}

fn bytes(values: &[u64], ints: &[u32]) -> Vec<u8> {
    let longs = values.iter().flat_map(|value| value.to_le_bytes());
    longs.chain(ints.iter().flat_map(|value| value.to_le_bytes())).collect()
}

fn main() {
    let workers = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let start = cpu_time();
    let program = Program::load(PTX).unwrap();
    println!("load {} lines: {:?}", PTX.lines().count(), cpu_time() - start);
    let bench = Bench { program, memory: Memory::new(8 << 30).unwrap(), workers };

    let n = 1_u32 << 24;
    let (x, y) = (bench.allocate(u64::from(n) * 4), bench.allocate(u64::from(n) * 4));
    // Memory that was never written reads from one page, which is quicker than it should be.
    bench.memory.fill(x, &1.0_f32.to_le_bytes(), u64::from(n)).unwrap();
    bench.memory.fill(y, &1.0_f32.to_le_bytes(), u64::from(n)).unwrap();
    let mut params = 2.0_f32.to_le_bytes().to_vec();
    params.resize(8, 0);
    params.extend(bytes(&[x, y], &[n]));
    let times = std::env::args().nth(2).and_then(|text| text.parse().ok());
    for _ in 0..times.unwrap_or(1) {
        let time = bench.time("saxpy", [n / 256, 1, 1], [256, 1, 1], &params);
        println!("saxpy of {n}: {time:?}, {:.2} GB/s", f64::from(n) * 12.0 / time.as_secs_f64() / 1e9);
    }
    if times.is_some() {
        return;
    }

    let n = 512_u32;
    let matrices: Vec<u64> = (0..3).map(|_| bench.allocate(u64::from(n * n) * 4)).collect();
    let time = bench.time("matmul", [n / 16, n / 16, 1], [16, 16, 1], &bytes(&matrices, &[n]));
    println!("matmul of {n}: {time:?}, {:.2} GFLOP/s", f64::from(n).powi(3) * 2.0 / time.as_secs_f64() / 1e9);

    let (blocks, threads, loops) = (64_u32, 256_u32, 1000_u32);
    let out = bench.allocate(u64::from(blocks * threads) * 4);
    for (name, per_loop) in [("compute", 8.0 * 3.0 + 3.0), ("integers", 8.0 * 6.0 + 3.0)] {
        let time = bench.time(name, [blocks, 1, 1], [threads, 1, 1], &bytes(&[out], &[loops]));
        let count = f64::from(blocks) * f64::from(threads) * f64::from(loops) * per_loop;
        println!("{name}: {time:?}, {:.0} M thread-instructions/s", count / time.as_secs_f64() / 1e6);
    }

    let start = cpu_time();
    let launches = 1000;
    let params = bytes(&[out], &[0]);
    for _ in 0..launches / 2 {
        bench.time("compute", [1, 1, 1], [32, 1, 1], &params);
    }
    println!("launch of one warp: {:?}", (cpu_time() - start) / launches);
}
