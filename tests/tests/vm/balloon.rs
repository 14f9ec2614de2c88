// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The host takes memory from the guest and returns it while copies run: in bulk by the balloon, and page by page as
//! the guest frees it (virtio 1.3, section 5.5.6.7, free page reporting). QEMU drops this memory from the memory
//! file. So a page that the daemon or the GPU still holds no longer belongs to the guest.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::setup::kernel::Flavour;
use xtask::vm::Vm;

use crate::life::{expect_good, kernel_log_is_clean, nothing_has_leaked};
use crate::{boot, guest_kernel};

/// The guest's memory, and the part that it keeps.
const WHOLE: u64 = 1 << 30;
const LEFT: u64 = 384 << 20;
/// A distribution's kernel takes more for itself, and so does one with checks: Debian 13's kills the program at 384 MiB, and the
/// debug kernel in every third run.
const LEFT_TO_OTHERS: u64 = 512 << 20;
/// The minimum number of times that memory is taken and returned while a program runs.
const ROUNDS: u32 = 2;
/// The maximum time that the guest may take for one of them; not all may be there while programs use it.
const MOVE: Duration = Duration::from_secs(20);
/// Programs that copy repeatedly, also from memory that they free and allocate again.
const PROGRAMS: [&str; 3] = ["reused_buffers", "registered_memory", "copies_64m"];

pub fn collect(suite: &mut Suite) {
    suite.test("balloon::copies_while_memory_goes_and_comes", copies_while_memory_goes_and_comes);
}

fn copies_while_memory_goes_and_comes(kit: &Kit) -> Result<()> {
    let vm = boot("balloon", |config| {
        config.memory = format!("{}M", WHOLE >> 20);
        let balloon = ["-device", "virtio-balloon-pci,id=balloon,free-page-reporting=on"];
        config.qemu_arguments.extend(balloon.map(String::from));
    })?;
    ensure!(vm.memory()? == WHOLE, "the guest has {} bytes", vm.memory()?);
    let kernel = guest_kernel()?;
    let left = if kernel.release().is_some() || kernel == Flavour::Debug { LEFT_TO_OTHERS } else { LEFT };
    for name in PROGRAMS {
        let (rounds, least) = thread::scope(|scope| {
            let program = scope.spawn(|| expect_good(kit, &vm, name));
            let moved = go_and_come(&vm, left, || program.is_finished());
            program.join().map_err(|_| anyhow::anyhow!("The program's thread panicked"))??;
            moved
        })
        .with_context(|| format!("{name}, while memory went and came"))?;
        ensure!(least <= left, "the guest kept {least} bytes, {rounds} rounds");
    }
    kernel_log_is_clean(kit, &vm)?;
    nothing_has_leaked(kit, &vm)?;
    vm.shut_down()
}

/// Takes memory and returns it, until `done` and [`ROUNDS`] times. Returns the number of times, and the minimum size
/// that was left.
fn go_and_come(vm: &Vm, left: u64, done: impl Fn() -> bool) -> Result<(u32, u64)> {
    let (mut rounds, mut least) = (0, WHOLE);
    while rounds < ROUNDS || !done() {
        resize(vm, left)?;
        least = least.min(vm.memory()?);
        resize(vm, WHOLE)?;
        rounds += 1;
    }
    ensure!(vm.memory()? == WHOLE, "the guest did not take its memory back");
    Ok((rounds, least))
}

/// Requests this size from the guest and waits until the guest has it, at most [`MOVE`].
fn resize(vm: &Vm, bytes: u64) -> Result<()> {
    vm.ask_for_memory(bytes)?;
    let deadline = Instant::now() + MOVE;
    while vm.memory()? != bytes && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
