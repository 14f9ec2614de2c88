// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use log::LevelFilter;

use crate::bytes;
use crate::gpus::Gpu;

/// Gives fractions of GPUs to pods of Kubernetes: a device plugin of the kubelet, which starts a vhost-user-cuda daemon for each
/// container.
#[derive(Clone, Debug, Parser)]
#[command(name = "vhost-cuda-plugin", version)]
pub struct Args {
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
    /// The level of messages on stderr: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LevelFilter,
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
    fn times_have_bounds() {
        assert_eq!(grace("30"), Ok(Duration::from_secs(30)));
        for bad in ["0", "3601", "-1", "1.5", ""] {
            assert!(grace(bad).is_err(), "{bad}");
        }
    }
}
