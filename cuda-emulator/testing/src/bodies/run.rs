// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes a kernel, and looks whether it has written where it may not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use cuda_emulator::execute::Printf;
use cuda_emulator::launch::{Launch, launch};
use cuda_emulator::memory::Memory;
use cuda_emulator::program::Program;

use super::generator::Kernel;

/// Bytes of the kernel's memory.
const BYTES: u64 = 4096;
/// Host memory that no kernel may reach, and memory of another device.
const CANARY: u64 = 0x5ca1_ab1e_0ddb_a11d;
/// A kernel that has not ended by then is cancelled: its loops are bounded, but a barrier may wait.
const PATIENCE: Duration = Duration::from_millis(200);

/// Runs `kernel`. Panics if it wrote to memory that is not its device's.
pub fn run(kernel: &Kernel) {
    let text = kernel.text();
    let Ok(program) = Program::load(&text) else { return };
    let (Ok(memory), Ok(other)) = (Memory::new(1 << 30), Memory::new(1 << 30)) else { return };
    let canary = vec![CANARY; BYTES as usize / 8];
    let foreign = other.allocate(BYTES, 256).unwrap();
    other.fill(foreign, &[0x5c], BYTES).unwrap();
    let freed = memory.allocate(BYTES, 256).unwrap();
    let valid = memory.allocate(BYTES, 256).unwrap();
    memory.free(freed);
    let globals = &program.globals;
    let addresses: Vec<u64> = globals.iter().map(|g| memory.allocate(g.bytes, g.align).unwrap()).collect();
    for (index, address) in addresses.iter().enumerate() {
        memory.write(*address, &program.image(index, &addresses)).unwrap();
    }
    let params: Vec<u8> =
        [valid, canary.as_ptr() as u64, freed, foreign].iter().flat_map(|p| p.to_le_bytes()).collect();
    let (cancel, printf) = (AtomicBool::new(false), Printf::default());
    let (grid, block) = kernel.shape();
    let (done, ended) = mpsc::channel::<()>();
    let cancelled = &cancel;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                cancelled.store(true, Ordering::Relaxed);
            }
        });
        let _ = launch(&Launch {
            program: &program,
            kernel: &program.kernels["k"],
            global_addresses: &addresses,
            grid,
            block,
            dynamic_shared: 256,
            params: &params,
            memory: &memory,
            printf: &printf,
            cooperative: kernel.is_cooperative(),
            cluster: None,
            cancel: &cancel,
            workers: 2,
            multiprocessors: 16,
            stack_bytes: 1024,
            grid_id: 1,
            device: &(),
        });
        drop(done);
    });
    assert!(canary.iter().all(|word| *word == CANARY), "host memory was written by\n{text}");
    let mut bytes = vec![0; BYTES as usize];
    other.read(foreign, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0x5c), "another device's memory was written by\n{text}");
}
