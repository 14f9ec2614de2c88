// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The machine changes while a program copies: memory is plugged and unplugged, and the processors stop.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::vm::Vm;

use crate::life::{Copying, expect_good, kernel_log_is_clean, wait_until};
use crate::{LIMIT, boot};

/// Memory that is plugged, in MiB: the section size of x86-64, in which Linux takes it.
const DIMM_MIB: u64 = 128;
const DIMMS: usize = 4;
/// Replacements of the daemon's program.
const REPLACEMENTS: usize = 5;
/// The time for which processors stand still.
const STOPPED: Duration = Duration::from_secs(2);

pub fn collect(suite: &mut Suite) {
    suite.test("changes::memory_in_a_copy", memory_in_a_copy);
    suite.test("changes::stopped_in_a_copy", stopped_in_a_copy);
    suite.test("changes::replaced_in_a_copy", replaced_in_a_copy);
}

/// Each DIMM is a change of the memory table while requests are under way.
fn memory_in_a_copy(kit: &Kit) -> Result<()> {
    let vm = boot("hotplug", |config| {
        config.memory = "1G".into();
        config.plugs = true;
        config.qemu_arguments.extend(["-m", "size=1G,slots=8,maxmem=4G"].map(String::from));
    })?;
    let copying = Copying::start(kit, &vm)?;
    let (before, small) = (files_of_memory(&vm)?, memory_of_guest(&vm)?);
    for dimm in 0..DIMMS {
        vm.plug_memory(dimm, DIMM_MIB << 20).with_context(|| format!("DIMM {dimm}"))?;
        wait_until("the daemon has the new memory", || Ok(files_of_memory(&vm)? == before + dimm + 1))?;
        copying.expect_running()?;
        expect_good(kit, &vm, "copies").with_context(|| format!("after DIMM {dimm}"))?;
    }
    // A kernel without memory hot-plug has no such folder, and keeps plugged memory.
    if vm.shell("test -e /sys/devices/system/memory/auto_online_blocks").is_ok() {
        use_and_return_memory(kit, &vm, &copying, small)?;
    }
    copying.terminate()?;
    expect_good(kit, &vm, "vector_add")?;
    kernel_log_is_clean(kit, &vm)?;
    vm.shut_down()
}

/// The daemon's program is replaced: QEMU and the guest's programs notice nothing.
fn replaced_in_a_copy(kit: &Kit) -> Result<()> {
    let vm = boot("replaced", |_| {})?;
    let copying = Copying::start(kit, &vm)?;
    let daemon = vm.daemon().id().context("the daemon has ended")?;
    let count = |what: &str| Ok::<_, anyhow::Error>(vm.daemon().log()?.matches(what).count());
    let (done, refused) = ("in the place of release", "not replaced: ");
    while count(done)? < REPLACEMENTS {
        let before = count(done)? + count(refused)?;
        ensure!(count(refused)? < 10 * REPLACEMENTS, "it is refused: {}", vm.daemon().log()?);
        // SAFETY: a plain system call; the daemon is our child, and was not waited for.
        unsafe { libc::kill(daemon as libc::pid_t, libc::SIGHUP) };
        let deadline = Instant::now() + LIMIT;
        while count(done)? + count(refused)? == before {
            ensure!(Instant::now() < deadline, "it is neither replaced nor refused: {}", vm.daemon().log()?);
            thread::sleep(Duration::from_millis(20));
        }
        copying.expect_running()?;
        expect_good(kit, &vm, "copies")?;
    }
    copying.terminate()?;
    expect_good(kit, &vm, "vector_add")?;
    kernel_log_is_clean(kit, &vm)?;
    ensure!(!vm.daemon().log()?.contains("front-end disconnected"), "QEMU was disconnected");
    vm.shut_down()
}

/// The memory files that the daemon has mapped.
fn files_of_memory(vm: &Vm) -> Result<usize> {
    let daemon = vm.daemon().id().context("the daemon has ended")?;
    let maps = fs::read_to_string(format!("/proc/{daemon}/maps"))?;
    let files = maps.lines().filter(|line| line.contains("/memfd:memory-backend"));
    let numbers: BTreeSet<&str> = files.filter_map(|line| line.split_whitespace().nth(4)).collect();
    Ok(numbers.len())
}

/// KiB that the guest's kernel uses.
fn memory_of_guest(vm: &Vm) -> Result<u64> {
    let line = vm.shell("grep MemTotal /proc/meminfo")?;
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).context(line)
}

/// The guest's kernel, which had `small` KiB, uses the new memory, and gives it back. Some kernels use it by themselves.
fn use_and_return_memory(kit: &Kit, vm: &Vm, copying: &Copying, small: u64) -> Result<()> {
    vm.shell("for one in /sys/devices/system/memory/memory*/state; do echo online_movable > $one 2>/dev/null || true; done")?;
    let added = DIMM_MIB * DIMMS as u64 * 1024;
    wait_until("the guest uses the new memory", || Ok(memory_of_guest(vm)? >= small + added / 2))?;
    for program in ["copies", "pinned_memory"] {
        expect_good(kit, vm, program)?;
    }
    for dimm in 0..DIMMS {
        vm.ask_for_dimm(dimm)?;
    }
    // The kernel may keep memory that it cannot empty: nothing of it may be wrong either way.
    thread::sleep(Duration::from_secs(3));
    copying.expect_running()?;
    expect_good(kit, vm, "copies")
}

fn stopped_in_a_copy(kit: &Kit) -> Result<()> {
    let vm = boot("stopped", |_| {})?;
    let copying = Copying::start(kit, &vm)?;
    for _ in 0..3 {
        vm.pause()?;
        thread::sleep(STOPPED);
        vm.resume()?;
        copying.expect_running()?;
        expect_good(kit, &vm, "add_one")?;
    }
    copying.terminate()?;
    kernel_log_is_clean(kit, &vm)?;
    vm.shut_down()
}
