// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings of all daemons, and the options of each.

use std::path::PathBuf;
use std::time::Duration;

use crate::cdi::Specs;
use crate::folder::Folder;
use crate::owner::Owner;

/// The settings of all daemons.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program.
    pub program: PathBuf,
    /// Text of options for each, in TOML.
    pub options: String,
    /// The arbiter's socket, if GPU time is shared by weights.
    pub arbiter: Option<PathBuf>,
    /// The time for which an owner may be missing in the kubelet's list.
    pub grace: Duration,
    /// The folder of the guest's libraries on the node.
    pub libraries: PathBuf,
    /// Files for container runtimes, if owners are claims and not containers with shards.
    pub specs: Option<Specs>,
}

impl Settings {
    /// The text of the options of an owner's daemon.
    pub fn text(&self, folder: &Folder, owner: &Owner) -> String {
        let name = owner.name();
        let text = |path: PathBuf| quoted(&path.to_string_lossy());
        let mut lines = vec![
            format!("# {name} of Kubernetes; vhost-cuda-plugin removes this file."),
            self.options.clone(),
            format!("socket-path = {}", text(folder.socket(&name))),
            format!("workers-lock = {}", text(folder.workers_lock(&name))),
            format!("metrics = {}", text(folder.metrics(&name))),
            format!("gpus = {}", quoted(owner.gpu())),
            format!("memory = \"{}\"", owner.memory()),
        ];
        if let Some(arbiter) = &self.arbiter {
            lines.push(format!("arbiter = {}", text(arbiter.clone())));
            lines.push(format!("share = {}", owner.weight()));
        }
        lines.join("\n") + "\n"
    }
}

/// A basic string of TOML. Control characters do not come up in paths that clap and `Folder` accept; they are escaped all the
/// same.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted += &format!("\\u{:04X}", u32::from(control)),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}
