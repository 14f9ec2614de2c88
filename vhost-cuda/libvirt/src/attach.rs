// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adds the device to a domain's XML.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use roxmltree::Node;

use crate::detach::detach;
use crate::edits::{Edits, escape};
use crate::memory;
use crate::names::{self, CHARDEV, DEVICE, QEMU, QEMU_PREFIX, child};
use crate::record::{Added, Emulator, Record};
use crate::same::same;

/// Milliseconds between two attempts of QEMU to reach a daemon that has ended.
const RECONNECT: u32 = 500;

/// The device to attach.
#[derive(Clone, Debug)]
pub struct Device {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Request queues.
    pub queues: u32,
    /// The QEMU for the domain; None: as it is.
    pub emulator: Option<PathBuf>,
}

/// The domain of `text` with the device. One that was attached before is replaced; the text stays if that changes nothing.
pub fn attach(text: &str, device: &Device) -> Result<String> {
    let Some(without) = detach(text)? else { return add(text, device) };
    let with = add(&without, device)?;
    let unchanged = same(&names::parse(text)?, &names::parse(&with)?);
    Ok(if unchanged { text.to_owned() } else { with })
}

fn add(text: &str, device: &Device) -> Result<String> {
    let document = names::parse(text)?;
    let domain = document.root_element();
    let by_hand = names::arguments(domain).into_iter().find(|(_, value)| value.contains(DEVICE));
    if let Some((_, value)) = by_hand {
        bail!("The domain has the device already, by hand: <qemu:arg value='{value}'/>. Remove it first");
    }
    let (mut edits, mut added) = (Edits::new(text), BTreeSet::new());
    memory::share(domain, &mut edits, &mut added)?;
    let emulator = match &device.emulator {
        Some(emulator) => set_emulator(domain, &mut edits, emulator)?,
        None => None,
    };
    let socket = utf8(&device.socket)?.replace(',', ",,");
    let chardev = format!("socket,id={CHARDEV},path={socket},reconnect-ms={RECONNECT}");
    // As JSON, in which libvirt describes its devices: QEMU makes other ones first, and they would take the addresses of these.
    let option = format!(r#"{{"driver":"{DEVICE}","chardev":"{CHARDEV}","num-queues":{}}}"#, device.queues);
    add_arguments(domain, &mut edits, &mut added, &["-chardev", &chardev, "-device", &option])?;
    let metadata = child(domain, "metadata");
    if metadata.is_none() {
        added.insert(Added::Metadata);
    }
    let record = Record { chardev, device: option, added, emulator }.to_xml();
    match metadata {
        Some(metadata) => edits.append(metadata, &record),
        None => {
            let lines = format!("<metadata>\n  {record}\n</metadata>");
            // libvirt's order.
            let before = ["description", "title", "genid", "uuid", "name"];
            match before.iter().find_map(|name| child(domain, name)) {
                Some(before) => edits.insert_after(before, &lines),
                None => edits.append(domain, &lines),
            }
        }
    }
    Ok(edits.apply())
}

/// Adds words to QEMU's command line.
fn add_arguments(domain: Node, edits: &mut Edits, added: &mut BTreeSet<Added>, words: &[&str]) -> Result<()> {
    let prefix = match domain.lookup_prefix(QEMU) {
        Some(prefix) => prefix,
        None => {
            let other = domain.lookup_namespace_uri(Some(QEMU_PREFIX));
            ensure!(
                other.is_none(),
                "The domain uses the prefix {QEMU_PREFIX}: for {}, not for {QEMU}",
                other.unwrap_or_default()
            );
            added.insert(Added::Namespace);
            edits.add_to_start_tag(domain, &format!(" xmlns:{QEMU_PREFIX}='{QEMU}'"));
            QEMU_PREFIX
        }
    };
    let argument = |word: &&str| format!("<{prefix}:arg value='{}'/>", escape(word));
    let arguments: Vec<String> = words.iter().map(argument).collect();
    match names::command_line(domain) {
        Some(line) => edits.append(line, &arguments.join("\n")),
        None => {
            added.insert(Added::CommandLine);
            let name = format!("{prefix}:commandline");
            edits.append(domain, &format!("<{name}>\n  {}\n</{name}>", arguments.join("\n  ")));
        }
    }
    Ok(())
}

/// Sets `<emulator>`; the change, if it is one.
fn set_emulator(domain: Node, edits: &mut Edits, wanted: &Path) -> Result<Option<Emulator>> {
    let now = utf8(wanted)?.to_owned();
    let devices = child(domain, "devices").context("The domain has no <devices>")?;
    let Some(element) = child(devices, "emulator") else {
        edits.append(devices, &format!("<emulator>{}</emulator>", escape(&now)));
        return Ok(Some(Emulator { before: None, now }));
    };
    let before = element.text().unwrap_or_default().trim().to_owned();
    if before == now {
        return Ok(None);
    }
    edits.replace(element.range(), format!("<emulator>{}</emulator>", escape(&now)));
    Ok(Some(Emulator { before: Some(before), now }))
}

fn utf8(path: &Path) -> Result<&str> {
    ensure!(path.is_absolute(), "{} is not an absolute path, and QEMU runs elsewhere", path.display());
    path.to_str().with_context(|| format!("{} is not UTF-8, which XML needs", path.display()))
}
