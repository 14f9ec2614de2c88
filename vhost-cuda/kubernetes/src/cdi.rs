// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of the Container Device Interface (<https://github.com/cncf-tags/container-device-interface>), by which container runtimes
//! give a daemon to containers. There is a file for each daemon, with one device.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::container::Edits;

/// The version of the specification. All fields here are in it; containerd 1.7, CRI-O 1.23 and Podman 4.1 read it.
const VERSION: &str = "0.5.0";
/// The vendor and the class of all devices.
const KIND: &str = "vhost-cuda.io/share";
/// The beginning and end of names of files. The rest is the name of the device.
const START: &str = "vhost-cuda.io-share-";
const END: &str = ".json";
/// The extension of files that are written.
const UNFINISHED: &str = "json.new";

/// The folder of the files.
#[derive(Clone, Debug)]
pub struct Specs {
    /// Usually `/var/run/cdi`.
    pub folder: PathBuf,
}

impl Specs {
    /// Writes the file of a device, so that other programs see all of it or nothing. A name consists of ASCII letters, digits and
    /// hyphens.
    pub fn write(&self, name: &str, edits: &Edits) -> Result<()> {
        let path = self.path(name);
        let new = path.with_extension(UNFINISHED);
        let written = fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&new, spec(name, edits)))
            .and_then(|()| fs::rename(&new, &path));
        written.with_context(|| format!("Cannot write {}", path.display()))
    }

    /// Removes the file of a device, if there is one.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        remove(&path).with_context(|| format!("Cannot remove {}", path.display()))
    }

    /// Removes the files of devices whose names have this beginning, but those of `kept`.
    pub fn keep(&self, start: &str, kept: &HashSet<String>) -> Result<()> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.with_context(|| format!("Cannot read {}", self.folder.display()))?,
        };
        for entry in entries {
            let file = entry?.file_name();
            let Some(name) = file.to_str().and_then(|name| name.strip_prefix(START)) else { continue };
            let is_kept = name.strip_suffix(END).is_some_and(|name| kept.contains(name));
            if name.starts_with(start) && !is_kept {
                remove(&self.folder.join(&file))?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{START}{name}{END}"))
    }
}

/// The qualified name of a device, by which a container is given it.
pub fn qualified(name: &str) -> String {
    format!("{KIND}={name}")
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The contents of the file of a device.
fn spec(name: &str, edits: &Edits) -> String {
    let mount = |(from, to): &(PathBuf, String)| {
        json!({
            "hostPath": from.to_string_lossy(),
            "containerPath": to,
            "options": ["rbind", "ro", "nosuid", "nodev"],
        })
    };
    let variable = |(name, value): &(&str, String)| format!("{name}={value}");
    let edits = json!({
        "env": edits.variables.each_ref().map(variable),
        "mounts": edits.mounts.each_ref().map(mount),
    });
    let spec = json!({
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [{ "name": name, "containerEdits": edits }],
    });
    format!("{spec:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_and_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let specs = Specs { folder: temporary.path().join("cdi") };
        let files = || {
            let entries = fs::read_dir(&specs.folder).unwrap().flatten();
            let mut files: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            files.sort();
            files
        };
        let edits = Edits::for_folder(Path::new("/run/a \"b\"/guest"), Path::new("/usr/lib/vhost-cuda"));
        specs.keep("claim-", &HashSet::new()).unwrap();
        for name in ["claim-1", "claim-2", "vm1"] {
            specs.write(name, &edits).unwrap();
            specs.write(name, &edits).unwrap();
        }
        let others = ["vhost-cuda.io-share-claim-3.json.new", "nvidia.yaml"];
        for other in others {
            fs::write(specs.folder.join(other), "").unwrap();
        }
        let text = fs::read(specs.folder.join("vhost-cuda.io-share-claim-1.json")).unwrap();
        let spec: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let edits = &spec["devices"][0]["containerEdits"];
        assert_eq!(spec["devices"][0]["name"], "claim-1");
        assert_eq!(edits["env"][0], "VIRTIO_CUDA_SOCKET=/run/vhost-cuda/vhost.sock");
        assert_eq!(edits["mounts"][0]["hostPath"], "/run/a \"b\"/guest");
        specs.keep("claim-", &HashSet::from(["claim-2".to_owned()])).unwrap();
        assert_eq!(
            files(),
            ["nvidia.yaml", "vhost-cuda.io-share-claim-2.json", "vhost-cuda.io-share-vm1.json"]
        );
        specs.remove("claim-2").unwrap();
        specs.remove("claim-2").unwrap();
        assert_eq!(files(), ["nvidia.yaml", "vhost-cuda.io-share-vm1.json"]);
    }
}
