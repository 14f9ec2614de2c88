// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The table of programs in the guest.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::cases::{CASES, Case, Stdout, Weight};
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::fatbin;
use vhost_cuda_tests::running::Outcome;
use vhost_cuda_tests::stack::{Route, Way, missing_library};
use vhost_cuda_tests::suite::{Kit, Suite};
use vhost_cuda_tests::variant::Variant;
use vhost_cuda_tests::verdict::{self, Answering};
use xtask::vm::{GuestCommand, Vm};

use crate::{LIMIT, SharedVm, outcome, run};

pub fn collect(suite: &mut Suite, shared: &SharedVm) {
    let vm = shared.clone();
    suite.test("guest::boots_with_module_and_device", move |_| vm.with(boots));
    let vm = shared.clone();
    suite.test("guest::fat_binary_arrives_byte_for_byte", move |kit| {
        vm.with(|vm| fat_binary_arrives_byte_for_byte(kit, vm))
    });
    let vm = shared.clone();
    suite.test("guest::driver_counts", move |kit| vm.with(|vm| driver_counts(kit, vm)));
    for case in CASES {
        let name = format!("guest::{}", case.name);
        if case.weight == Weight::Huge && free_gib() < 12 {
            suite.skip(name, "needs 12 GiB of free memory");
            continue;
        }
        let on_gpu = || {
            let why = || case.not_on_gpus.map(str::to_owned);
            if is_emulated() { None } else { why().or_else(|| missing_library(case.library)) }
        };
        if let Some(why) = suite.kit().programs.missing(case.program).or_else(on_gpu) {
            suite.skip(name, &why);
            continue;
        }
        let vm = shared.clone();
        suite.test(name, move |kit| vm.with(|vm| check(kit, vm, case)));
    }
}

/// The worker loads the program's registered container exactly as it lies in the executable.
fn fat_binary_arrives_byte_for_byte(kit: &Kit, vm: &Vm) -> Result<()> {
    let program = kit.programs.get("vector_add")?;
    let command = GuestCommand::new(&program).environment("VIRTIO_CUDA_LOG", "debug");
    let outcome = run(vm, &command)?;
    outcome.expect_exit(0)?;
    let hashes = fatbin::hashes(&program)?;
    let said = hashes.iter().find(|hash| outcome.stderr.contains(*hash));
    let said = said.with_context(|| format!("The guest logs none of {hashes:?}\n{outcome}"))?;
    ensure!(vm.daemon().log()?.contains(said), "the worker's log does not have {said}");
    Ok(())
}

/// The driver's counters in sysfs, over a program that pins.
fn driver_counts(kit: &Kit, vm: &Vm) -> Result<()> {
    const NAMES: [&str; 7] =
        ["requests", "kicks", "interrupts", "pinned_pages", "pin_ns", "unpin_ns", "bulk_wait_ns"];
    let read = || -> Result<Vec<u64>> {
        let files = NAMES.map(|name| format!("/sys/class/misc/virtio-cuda/statistics/{name}"));
        let text = vm.shell(&format!("cat {}", files.join(" ")))?;
        text.lines().map(|line| line.parse().with_context(|| format!("`{line}` is no count"))).collect()
    };
    let before = read()?;
    run(vm, &GuestCommand::new(kit.programs.get("copies")?).arguments(["8388611"]))?.expect_exit(0)?;
    let after = read()?;
    for ((name, before), after) in NAMES.iter().zip(&before).zip(&after) {
        ensure!(after > before, "{name} was {before} and is {after}");
    }
    Ok(())
}

fn free_gib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("MemAvailable:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 20
}

fn boots(vm: &Vm) -> Result<()> {
    ensure!(vm.problems().is_empty(), "{:?}\n{}", vm.problems(), vm.kernel_log()?);
    let node = vm.shell("stat -c '%a %F' /dev/virtio-cuda")?;
    ensure!(node.trim() == "666 character special file", "{node}");
    let modules = vm.shell("cat /proc/modules")?;
    ensure!(modules.contains("virtio_cuda"), "{modules}");
    let interrupts = vm.shell("cat /proc/interrupts")?;
    ensure!(interrupts.contains("virtio"), "{interrupts}");
    Ok(())
}

fn check(kit: &Kit, vm: &Vm, case: &'static Case) -> Result<()> {
    let program = kit.programs.get(case.program)?;
    let started = Instant::now();
    let mut running = Vec::new();
    for index in 0..case.at_once {
        let mut command = if Variant::is_static(case.program) {
            GuestCommand::new(kit.stack.launcher()).arguments([&program])
        } else {
            GuestCommand::new(&program)
        };
        command = command.arguments(case.args.iter().copied());
        if case.at_once > 1 {
            command = command.arguments([(index + 1).to_string()]);
        }
        let process = vm.start(&command)?;
        let input = process.input();
        input.write(case.stdin.as_bytes())?;
        input.close()?;
        running.push(process);
    }
    for process in running {
        let outcome = outcome(process.output(Some(LIMIT))?, started.elapsed());
        verdict::check(case, &outcome, Answering::behind_daemons())?;
        if case.stdout == Stdout::OfDevice {
            same_as_without_guest(kit, case, &outcome)?;
        }
        for text in case.diagnostics_have.iter().filter(|_| is_emulated()) {
            let log = vm.daemon().log()?;
            let said = log.contains(text) || outcome.stderr.contains(text);
            ensure!(said, "nobody says `{text}`\n{outcome}\n--- daemon\n{log}");
        }
    }
    Ok(())
}

/// The device describes itself as it does without a guest in between.
fn same_as_without_guest(kit: &Kit, case: &Case, outcome: &Outcome) -> Result<()> {
    let way = if is_emulated() { Way::Emulator } else { Way::Native };
    let route = Route::open(way, &kit.stack, &kit.programs)?;
    let program = kit.programs.get(case.program)?;
    let direct = vhost_cuda_tests::running::run(&mut route.command(&program), case.stdin, LIMIT)?;
    ensure!(direct.stdout == outcome.stdout, "without guest:\n{direct}\nin the guest:\n{outcome}");
    Ok(())
}
