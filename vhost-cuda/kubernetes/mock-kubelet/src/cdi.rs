// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A container runtime's part of the Container Device Interface: it finds a device by its qualified name, and changes containers.
//! It is as strict as the schema of the specification (`schema/defs.json`, version 0.5.0), as far as our files go.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use vhost_cuda_plugin::api::deviceplugin::{ContainerAllocateResponse, Mount};

use crate::Pod;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    cdi_version: String,
    kind: String,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Device {
    name: String,
    container_edits: ContainerEdits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContainerEdits {
    env: Vec<String>,
    mounts: Vec<SpecMount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpecMount {
    host_path: String,
    container_path: String,
    options: Vec<String>,
}

/// The container that has the device with this qualified name, which is in a file of `folder`.
///
/// Errors: no file has it, or a file is not valid. Of two files with the same device, a runtime takes neither.
pub fn injected(folder: &Path, qualified: &str) -> Result<Pod> {
    let (kind, name) = qualified.split_once('=').context("not a qualified name")?;
    let mut found = Vec::new();
    for file in fs::read_dir(folder).with_context(|| format!("No device has the name {qualified}"))? {
        let path = file?.path();
        // Others are not read.
        if path.extension().is_some_and(|extension| extension == "json") {
            let spec: Spec = serde_json::from_slice(&fs::read(&path)?)
                .with_context(|| format!("{} is not valid", path.display()))?;
            check(&spec).with_context(|| format!("{} is not valid", path.display()))?;
            let ours = spec.kind == kind;
            found.extend(spec.devices.into_iter().filter(|device| ours && device.name == name));
        }
    }
    ensure!(found.len() == 1, "{} devices have the name {qualified}", found.len());
    let edits = found.remove(0).container_edits;
    let variable = |text: String| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let mount = |mount: SpecMount| Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        read_only: mount.options.iter().any(|option| option == "ro"),
    };
    let envs: HashMap<_, _> = edits.env.into_iter().filter_map(variable).collect();
    let mounts = edits.mounts.into_iter().map(mount).collect();
    let container =
        ContainerAllocateResponse { envs, mounts, devices: Vec::new(), annotations: HashMap::new() };
    Ok(Pod { ids: vec![qualified.to_owned()], container })
}

/// The rules of the schema that types do not state.
fn check(spec: &Spec) -> Result<()> {
    ensure!(spec.cdi_version == "0.5.0", "cdiVersion {}", spec.cdi_version);
    let (vendor, class) = spec.kind.split_once('/').context("a kind without a class")?;
    let is_word = |word: &str, inside: &[u8]| {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = word.as_bytes();
        ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || inside.contains(byte))
    };
    ensure!(is_word(vendor, b"-_.") && is_word(class, b"-_."), "kind {}", spec.kind);
    ensure!(!spec.devices.is_empty(), "no devices");
    for device in &spec.devices {
        ensure!(is_word(&device.name, b"-_.:"), "device {}", device.name);
        let edits = &device.container_edits;
        for variable in &edits.env {
            ensure!(variable.find('=').is_some_and(|at| at > 0), "variable {variable}");
        }
        for mount in &edits.mounts {
            let paths = [&mount.host_path, &mount.container_path];
            ensure!(paths.iter().all(|path| path.starts_with('/')), "mount {paths:?}");
            ensure!(mount.options.iter().any(|option| option == "rbind"), "options {:?}", mount.options);
        }
    }
    Ok(())
}
