// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes the command line.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result};

use crate::args::{Action, Args, AttachArgs, HookArgs, Target};
use crate::attach::{Device, attach};
use crate::detach::detach;
use crate::host;
use crate::names::{self, child};
use crate::virsh::Virsh;

/// Attaches or detaches, or prints the domain of KubeVirt's hook.
pub fn run(args: &Args) -> Result<()> {
    let virsh = Virsh { connect: args.connect.as_deref() };
    match &args.action {
        Action::Attach(attaching) => {
            let (text, target) = (read(&virsh, &attaching.target)?, &attaching.target);
            let device = device(&text, attaching)?;
            let done = format!("has the device, served at {}", device.socket.display());
            finish(&virsh, target, &text, &attach(&text, &device)?, &done)
        }
        Action::Detach(detaching) => {
            let text = read(&virsh, &detaching.target)?;
            let without = detach(&text)?.unwrap_or_else(|| text.clone());
            finish(&virsh, &detaching.target, &text, &without, "has no device of this program")
        }
        Action::OnDefineDomain(hook) => {
            print!("{}", on_define_domain(hook)?);
            Ok(())
        }
    }
}

/// The domain of KubeVirt's hook with the device. Nothing of this host is asked: it is another container than QEMU's.
fn on_define_domain(args: &HookArgs) -> Result<String> {
    let HookArgs { domain, socket, queues, emulator, .. } = args;
    let (socket, emulator) = (socket.clone(), emulator.clone());
    attach(domain, &Device { socket, queues: queues.num_queues, emulator })
}

/// The domain's XML.
fn read(virsh: &Virsh, target: &Target) -> Result<String> {
    match (&target.file, &target.domain) {
        (Some(file), _) if file == Path::new("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("Cannot read the standard input")?;
            Ok(text)
        }
        (Some(file), _) => {
            fs::read_to_string(file).with_context(|| format!("Cannot read {}", file.display()))
        }
        (None, domain) => {
            let domain = domain.as_deref().context("No domain is named")?;
            virsh.check_shut_off(domain)?;
            virsh.definition(domain)
        }
    }
}

/// The device for the domain of `text`; this host is asked only if the domain is one of its libvirt.
fn device(text: &str, args: &AttachArgs) -> Result<Device> {
    let document = names::parse(text)?;
    let domain = document.root_element();
    let name = names::domain_name(domain).context("The domain has no <name>")?;
    let socket = args.socket.clone().unwrap_or_else(|| host::default_socket(name));
    let mut emulator = args.emulator.clone();
    if args.target.file.is_none() {
        host::check_socket(&socket, name)?;
        // The device that is attached may be what made it need this QEMU.
        let without = detach(text)?;
        let own = own_emulator(without.as_deref().unwrap_or(text))?;
        emulator = host::choose_emulator(own.as_deref(), emulator.as_deref())?;
    }
    Ok(Device { socket, queues: args.queues.num_queues, emulator })
}

/// The QEMU that a domain names.
fn own_emulator(text: &str) -> Result<Option<String>> {
    let document = names::parse(text)?;
    let devices = child(document.root_element(), "devices");
    let emulator = devices.and_then(|devices| child(devices, "emulator")).and_then(|node| node.text());
    Ok(emulator.map(|path| path.trim().to_owned()))
}

/// Prints the new XML, or defines the domain again if it is another one.
fn finish(virsh: &Virsh, target: &Target, before: &str, after: &str, done: &str) -> Result<()> {
    if target.print || target.file.is_some() {
        print!("{after}");
        return Ok(());
    }
    let domain = target.domain.as_deref().unwrap_or_default();
    if before == after {
        println!("Domain {domain} already {done}");
        return Ok(());
    }
    virsh.define(after)?;
    println!("Domain {domain} {done}");
    Ok(())
}
