// SPDX-License-Identifier: Apache-2.0 OR MIT

//! CUDA's environment variables with several devices, which few machines have (what holds on
//! one device is in the program `environment`). Always with the emulator.

use std::process::Command;

use anyhow::{Result, ensure};
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::running::{Outcome, run};
use vhost_cuda_tests::stack::{Route, Way};
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, route};

/// Devices that tests tell apart by their memory.
const THREE_DEVICES: [(&str, &str); 2] =
    [("CUDA_EMULATOR_DEVICES", "3"), ("CUDA_EMULATOR_MEMORY", "1G,2G,3G")];
/// The UUID of the emulator's second device.
const SECOND_UUID: &str = "GPU-43554441-2d45-6d75-6c61-746f72000001";
/// Values of `CUDA_VISIBLE_DEVICES`, and the memory of the devices that the program then sees, in GiB.
const CHOICES: [(&str, &[u32]); 6] = [
    ("0,1,2", &[1, 2, 3]),
    ("2,0", &[3, 1]),
    ("1", &[2]),
    ("1,-1,0", &[2]),
    (SECOND_UUID, &[2]),
    (NAMED_TWICE, &[]),
];
/// A list in which a device comes twice.
const NAMED_TWICE: &str = "1,2,1";
/// Programs that identify devices in many ways.
const PROGRAMS: [&str; 11] = [
    "virtual_memory",
    "pools",
    "host_pools",
    "driver_api",
    "graph_objects",
    "managed_memory",
    "managed_moves",
    "green_contexts",
    "context_holders",
    "sharing",
    "several_devices",
];

/// Adds the tests.
pub fn collect(suite: &mut Suite) {
    suite.test("programs_see_the_devices_that_they_choose", programs_see_the_devices_that_they_choose);
    suite.test("the_emulator_alone_hides_devices", the_emulator_alone_hides_devices);
    suite.test("programs_work_with_the_second_device_alone", programs_work_with_the_second_device_alone);
    suite.test("the_management_library_sees_all_devices", the_management_library_sees_all_devices);
    suite.test("the_daemons_variables_do_not_steer_programs", the_daemons_variables_do_not_steer_programs);
    suite.test("the_operator_chooses_devices", the_operator_chooses_devices);
    suite.test("priorities_of_nodes_are_chosen", priorities_of_nodes_are_chosen);
    suite.test("failed_calls_are_logged", failed_calls_are_logged);
    suite.test("private_mappings_are_registered_to_be_read", private_mappings_are_registered_to_be_read);
}

fn emulated(variables: &[(&str, &str)]) -> DaemonOptions {
    let environment = variables.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    DaemonOptions { device: "emulated".into(), environment, ..Default::default() }
}

fn command(kit: &Kit, route: &Route, program: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = route.command(&kit.programs.get(program)?);
    command.args(arguments);
    Ok(command)
}

/// NVIDIA's driver does not return from these calls, so that there is no native answer to compare with.
fn private_mappings_are_registered_to_be_read(kit: &Kit) -> Result<()> {
    let route = route(kit, &emulated(&[]))?;
    let outcome = run(&mut command(kit, &route, "registered_files", &["all"])?, "", LIMIT)?;
    outcome.expect_exit(0)?;
    for line in ["private, read-only, flags 8: 0", "private, writable, flags 8: 0"] {
        ensure!(outcome.stdout.lines().any(|found| found == line), "{outcome}");
    }
    Ok(())
}

fn list(devices: &[u32]) -> String {
    let lines = devices.iter().enumerate().map(|(at, gib)| format!("device {at}: {} MiB\n", gib << 10));
    lines.collect::<String>() + "every device: right\n"
}

/// The program lists devices with this memory. None of them is an error, and so is one that is named twice.
fn expect_devices(outcome: &Outcome, value: &str, devices: &[u32]) -> Result<()> {
    if devices.is_empty() {
        let error =
            if value == NAMED_TWICE { "101 (cudaErrorInvalidDevice)" } else { "100 (cudaErrorNoDevice)" };
        ensure!(outcome.stderr.contains(&format!("error {error}")), "{value}: {outcome}");
        return outcome.expect_exit(1);
    }
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout == list(devices), "{outcome}");
    Ok(())
}

fn programs_see_the_devices_that_they_choose(kit: &Kit) -> Result<()> {
    let route = route(kit, &emulated(&THREE_DEVICES))?;
    for (value, devices) in CHOICES {
        for order in ["FASTEST_FIRST", "PCI_BUS_ID"] {
            let mut command = command(kit, &route, "several_devices", &["list"])?;
            command.env("CUDA_VISIBLE_DEVICES", value).env("CUDA_DEVICE_ORDER", order);
            expect_devices(&run(&mut command, "", LIMIT)?, value, devices)?;
        }
    }
    Ok(())
}

fn the_emulator_alone_hides_devices(kit: &Kit) -> Result<()> {
    let route = Route::open(Way::Emulator, &kit.stack, &kit.programs)?;
    for (value, devices) in CHOICES {
        let mut command = command(kit, &route, "several_devices", &["list"])?;
        command.envs(THREE_DEVICES).env("CUDA_VISIBLE_DEVICES", value);
        expect_devices(&run(&mut command, "", LIMIT)?, value, devices)?;
    }
    Ok(())
}

/// A number that crosses without being converted means the hidden device.
fn programs_work_with_the_second_device_alone(kit: &Kit) -> Result<()> {
    let route = route(kit, &emulated(&[("CUDA_EMULATOR_DEVICES", "2")]))?;
    for name in PROGRAMS {
        let case = case(name);
        let mut command = command(kit, &route, case.program, case.args)?;
        let outcome = run(command.env("CUDA_VISIBLE_DEVICES", "1"), case.stdin, LIMIT)?;
        outcome.expect_exit(case.exit)?;
        ensure!(Some(&outcome.stdout[..]) == case.expected_stdout(), "{name}: {outcome}");
    }
    Ok(())
}

fn the_management_library_sees_all_devices(kit: &Kit) -> Result<()> {
    let route = route(kit, &emulated(&THREE_DEVICES))?;
    let mut command = command(kit, &route, "environment", &["management"])?;
    let outcome = run(command.env("CUDA_VISIBLE_DEVICES", "1"), "", LIMIT)?;
    ensure!(outcome.stdout == "NVML devices 3\n", "{outcome}");
    Ok(())
}

fn the_daemons_variables_do_not_steer_programs(kit: &Kit) -> Result<()> {
    let variables =
        [("CUDA_DISABLE_PTX_JIT", "1"), ("CUDA_LAUNCH_BLOCKING", "1"), ("CUDA_MODULE_LOADING", "EAGER")];
    let route = route(kit, &emulated(&variables))?;
    let outcome = run(&mut command(kit, &route, "environment", &["ptx"])?, "", LIMIT)?;
    ensure!(outcome.stdout == "PTX 0\n", "{outcome}");
    Ok(())
}

fn the_operator_chooses_devices(kit: &Kit) -> Result<()> {
    let [count, memory] = THREE_DEVICES;
    let route = route(kit, &emulated(&[count, memory, ("CUDA_VISIBLE_DEVICES", "2,1")]))?;
    expect_devices(&run(&mut command(kit, &route, "several_devices", &["list"])?, "", LIMIT)?, "", &[3, 2])?;
    let mut command = command(kit, &route, "several_devices", &["list"])?;
    expect_devices(&run(command.env("CUDA_VISIBLE_DEVICES", "1"), "", LIMIT)?, "1", &[2])
}

fn priorities_of_nodes_are_chosen(kit: &Kit) -> Result<()> {
    let route = Route::through(&kit.stack, Daemon::start(&kit.stack, &emulated(&[]))?);
    for (value, flags) in [("0", 0), ("1", 8)] {
        let mut command = command(kit, &route, "environment", &["flags"])?;
        let outcome = run(command.env("CUDA_GRAPHS_USE_NODE_PRIORITY", value), "", LIMIT)?;
        ensure!(outcome.stdout == format!("graph flags {flags}\n"), "{outcome}");
    }
    Ok(())
}

fn failed_calls_are_logged(kit: &Kit) -> Result<()> {
    let route = route(kit, &emulated(&[]))?;
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let start = |value: &std::ffi::OsStr| {
        let mut command = command(kit, &route, "unknown_kernel", &[])?;
        run(command.env("CUDA_LOG_FILE", value), "", LIMIT)
    };
    start(log.as_os_str())?.expect_exit(case("unknown_kernel").exit)?;
    let text = std::fs::read_to_string(&log)?;
    let is_line = |line: &str| line.contains("][CUDA][E][cu") && line.contains("CUDA_ERROR_");
    ensure!(!text.is_empty() && text.lines().all(is_line), "{text}");
    let outcome = start("stderr".as_ref())?;
    ensure!(outcome.stderr.lines().any(is_line), "{outcome}");
    Ok(())
}
