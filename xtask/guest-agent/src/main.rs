// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first process of the test guests.
//!
//! Process 1 only reaps orphans and switches the machine off when its child, the actual agent, has ended.

mod commands;
mod machine;

use std::env;
use std::fs::File;
use std::process::Command;

use anyhow::{Context, Result};
use guest_agent::wire::{self, ToGuest, ToHost};

/// The argument that makes a process the agent instead of process 1.
const AGENT: &str = "agent";

fn main() {
    if env::args().nth(1).as_deref() == Some(AGENT) {
        if let Err(error) = serve() {
            eprintln!("guest-agent: {error:#}");
        }
        return;
    }
    if let Err(error) = reap() {
        eprintln!("guest-agent: {error:#}");
    }
    machine::power_off();
}

/// Does the work of process 1 until the agent ends.
fn reap() -> Result<()> {
    machine::mount_system()?;
    let agent = Command::new("/proc/self/exe").arg(AGENT).spawn().context("Cannot start the agent")?;
    loop {
        let (pid, _) = rustix::process::wait(rustix::process::WaitOptions::empty())
            .context("Cannot wait for children")?
            .context("No child has ended")?;
        if pid.as_raw_nonzero().get() as u32 == agent.id() {
            return Ok(());
        }
    }
}

/// Does the agent's work until the host closes the port.
fn serve() -> Result<()> {
    let port = machine::open_port()?;
    let commands = commands::Commands::new(port.try_clone()?);
    commands.send(&ToHost::Ready(machine::prepare()))?;
    let mut reader: File = port;
    loop {
        match wire::receive(&mut reader).context("The host has gone")? {
            ToGuest::Run(id, command) => commands.run(id, command),
            ToGuest::Input(id, bytes) => commands.input(id, bytes),
            ToGuest::Signal(id, number) => commands.signal(id, number),
            ToGuest::PowerOff => return Ok(()),
        }
    }
}
