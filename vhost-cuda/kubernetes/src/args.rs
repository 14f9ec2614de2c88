// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use log::LevelFilter;

use crate::bytes;
use crate::gpus::Gpu;
use crate::owner::CLAIM;

/// Gives fractions of GPUs to pods of Kubernetes: a device plugin of the kubelet, or a driver of dynamic resource allocation (DRA).
/// It starts a vhost-user-cuda daemon for each container, or for each claim.
#[derive(Clone, Debug, Parser)]
#[command(name = "vhost-cuda-plugin", version, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Something else to do.
    #[command(subcommand)]
    pub action: Option<Action>,
    /// The name of the resource. One unit is a shard of a GPU.
    #[arg(long, value_name = "NAME", default_value = "vhost-cuda.io/shard", value_parser = resource)]
    pub resource: String,
    /// Device memory of a shard, in bytes (with the suffix K, M or G).
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = bytes::parse)]
    pub shard_memory: u64,
    /// A GPU, by its number or UUID of `nvidia-smi -L`, and the device memory to give out, as `0=80G`. Default: all GPUs that
    /// nvidia-smi lists, with all their memory.
    #[arg(long = "gpu", value_name = "ID=BYTES")]
    pub gpus: Vec<Gpu>,
    /// The socket of the node's arbiter. Pods then share the time of a GPU by their shards.
    #[arg(long, value_name = "PATH")]
    pub arbiter: Option<PathBuf>,
    /// The daemon.
    #[arg(long, value_name = "PATH", default_value = "/usr/bin/vhost-user-cuda")]
    pub daemon: PathBuf,
    /// A file with options of all daemons, in the form of their `--config`.
    #[arg(long, value_name = "FILE")]
    pub daemon_options: Option<PathBuf>,
    /// The folder of the guest's libraries, on the node. It is mounted into containers.
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/vhost-cuda")]
    pub guest_libraries: PathBuf,
    /// The folder for the daemons' sockets and options. It must have the same path on the node and for this program.
    #[arg(long, value_name = "DIR", default_value = "/run/vhost-cuda-plugin")]
    pub folder: PathBuf,
    /// The kubelet's folder.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet: PathBuf,
    /// End a daemon when the kubelet has not listed its pod for this time, in seconds (1 to 3600).
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = grace)]
    pub grace: Duration,
    /// Serve claims of dynamic resource allocation (Kubernetes 1.34 or later) instead of shards; NODE is the name of this node. A
    /// claim has the memory and the weight that it asks for; --shard-memory is its default.
    #[arg(long, value_name = "NODE", value_parser = node, conflicts_with_all = ["resource", "grace"])]
    pub dra: Option<String>,
    /// With --dra: kubectl, which reads claims and publishes the devices of this node. KUBECONFIG, or the pod's service account,
    /// says how it reaches the apiserver.
    #[arg(long, value_name = "PATH", default_value = "/usr/bin/kubectl")]
    pub kubectl: PathBuf,
    /// With --dra: the folder of the Container Device Interface, on the node.
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi: PathBuf,
    /// The level of messages on stderr: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LevelFilter,
}

/// Something else to do than to serve the kubelet.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Make a daemon a device of the Container Device Interface, for containers without Kubernetes: `podman run --device
    /// vhost-cuda.io/share=NAME`
    Cdi(CdiArgs),
}

/// Options of `cdi`.
#[derive(Clone, Debug, ClapArgs)]
pub struct CdiArgs {
    /// The name of the device: letters, digits and hyphens
    #[arg(value_name = "NAME", value_parser = device)]
    pub name: String,
    /// The socket of the daemon. Default: /run/vhost-user-cuda/NAME.sock, that of the packaged unit
    #[arg(long, value_name = "PATH", conflicts_with = "remove")]
    pub socket: Option<PathBuf>,
    /// The folder of the guest's libraries
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/vhost-cuda")]
    pub guest_libraries: PathBuf,
    /// The folder of the Container Device Interface. That of devices that stay over restarts is /etc/cdi
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi: PathBuf,
    /// Remove the device; it is no error if there is none
    #[arg(long)]
    pub remove: bool,
}

/// Parses the name of a device. Those of claims belong to the driver.
fn device(text: &str) -> Result<String, String> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if text.starts_with(CLAIM) {
        return Err(format!("names that begin with `{CLAIM}` are those of claims of Kubernetes"));
    }
    let ends = [text.bytes().next(), text.bytes().last()];
    let has_ends = ends.into_iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()));
    if has_ends && text.len() <= 63 && text.bytes().all(is_inside) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a name of up to 63 letters, digits and hyphens"))
    }
}

/// Parses the name of an extended resource: a domain, a slash, and a name. The kubelet refuses others without saying why.
fn resource(text: &str) -> Result<String, String> {
    let is_word = |word: &str| {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = word.as_bytes();
        let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        bytes.len() <= 63 && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inside)
    };
    match text.split_once('/') {
        Some((domain, name)) if is_word(domain) && is_word(name) && !domain.contains("kubernetes.io") => {
            Ok(text.to_owned())
        }
        _ => Err(format!("`{text}` is not the name of an extended resource, as example.org/shard")),
    }
}

/// Parses the name of a node, which is a part of paths at the apiserver.
fn node(text: &str) -> Result<String, String> {
    let is_inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_inside);
    if text.len() <= 200 && text.split('.').all(is_part) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not the name of a node"))
    }
}

/// Parses a time in whole seconds.
fn grace(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| format!("`{text}` is not a number of seconds, 1 to 3600"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn names_of_resources_are_checked() {
        assert!(resource("vhost-cuda.io/shard").is_ok());
        for bad in ["shard", "/shard", "a.b/", "a.b/c/d", "a b/c", "x.kubernetes.io/shard", "a.b/-c"] {
            assert!(resource(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_nodes_are_checked() {
        assert!(node("127.0.0.1").is_ok() && node("gpu-1.example.org").is_ok());
        for bad in ["", "a/b", "../x", "a?b", "A", &"x".repeat(201)] {
            assert!(node(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_devices_are_checked() {
        assert!(device("vm1").is_ok());
        for bad in ["", "-", "a/b", "../x", "claim-1", "a b", &"x".repeat(64)] {
            assert!(device(bad).is_err(), "{bad}");
        }
        let parse = |words: &str| Args::try_parse_from(words.split(' '));
        assert!(parse("x cdi vm1 --socket /run/s").is_ok() && parse("x --dra node-1").is_ok());
        for bad in
            ["x cdi", "x cdi vm1 --remove --socket /run/s", "x --dra node-1 cdi vm1", "x --dra n --grace 3"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_bounds() {
        assert_eq!(grace("30"), Ok(Duration::from_secs(30)));
        for bad in ["0", "3601", "-1", "1.5", ""] {
            assert!(grace(bad).is_err(), "{bad}");
        }
    }
}
