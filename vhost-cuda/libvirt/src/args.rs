// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Attaches the CUDA device of vhost-user-cuda to a domain of libvirt, or detaches it. The domain must be shut off.
#[derive(Clone, Debug, Parser)]
#[command(version, name = "vhost-cuda-libvirt")]
pub struct Args {
    /// The libvirt to connect to, as for `virsh --connect`. Default: virsh's own
    #[arg(short, long, value_name = "URI", global = true)]
    pub connect: Option<String>,
    /// Attach, detach, or act as KubeVirt's hook.
    #[command(subcommand)]
    pub action: Action,
}

/// The action on a domain.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Attach the device. A domain that has it already gets the new options
    Attach(AttachArgs),
    /// Remove everything that `attach` has added, and nothing else
    Detach(DetachArgs),
    /// KubeVirt's hook: print the XML of a domain with the device. It is the default if the program is called by the name
    /// `onDefineDomain`
    OnDefineDomain(HookArgs),
}

/// The name by which KubeVirt's sidecar-shim calls its hook.
const HOOK: &str = "onDefineDomain";

/// The words of a command line, with the action that the name of the program stands for.
pub fn words(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<_> = words.collect();
    if words.first().is_some_and(|name| Path::new(name).file_name().is_some_and(|name| name == HOOK)) {
        words.insert(1, "on-define-domain".into());
    }
    words
}

/// The domain, and the destination of the result.
#[derive(Clone, Debug, ClapArgs)]
pub struct Target {
    /// Name or UUID of the domain
    #[arg(value_name = "DOMAIN", required_unless_present = "file")]
    pub domain: Option<String>,
    /// Change the XML in this file (`-`: standard input) and print it. Neither libvirt nor this host is asked
    #[arg(long, value_name = "FILE", conflicts_with_all = ["domain", "print"])]
    pub file: Option<PathBuf>,
    /// Print the new XML and do not define the domain again
    #[arg(long)]
    pub print: bool,
}

/// Options of `attach`.
#[derive(Clone, Debug, ClapArgs)]
pub struct AttachArgs {
    /// The domain.
    #[command(flatten)]
    pub target: Target,
    /// The socket of the domain's daemon. Default: /run/vhost-user-cuda/NAME.sock with the domain's name
    #[arg(short, long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Request queues.
    #[command(flatten)]
    pub queues: Queues,
    /// The QEMU of the domain. Default: the one that it has if that knows the device, else the one of the package
    /// vhost-cuda-qemu
    #[arg(long, value_name = "PATH")]
    pub emulator: Option<PathBuf>,
}

/// The number of queues.
#[derive(Clone, Debug, ClapArgs)]
pub struct Queues {
    /// Request queues (1 to 16); the daemon's `--num-queues`
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub num_queues: u32,
}

/// Options of `on-define-domain`. Paths are those in the container of QEMU.
#[derive(Clone, Debug, ClapArgs)]
pub struct HookArgs {
    /// The virtual machine as an object of KubeVirt. It is not read
    #[arg(long, value_name = "JSON")]
    pub vmi: Option<String>,
    /// The XML of its domain. Linux limits an argument to 128 KiB
    #[arg(long, value_name = "XML")]
    pub domain: String,
    /// The socket of the daemon. Default: the one that vhost-cuda-plugin mounts into containers
    #[arg(short, long, value_name = "PATH", default_value = "/run/vhost-cuda/vhost.sock")]
    pub socket: PathBuf,
    /// Request queues.
    #[command(flatten)]
    pub queues: Queues,
    /// The QEMU of the domain. Default: the one that it has
    #[arg(long, value_name = "PATH")]
    pub emulator: Option<PathBuf>,
}

/// Options of `detach`.
#[derive(Clone, Debug, ClapArgs)]
pub struct DetachArgs {
    /// The domain.
    #[command(flatten)]
    pub target: Target,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_name_of_the_hook_is_an_action() {
        let of = |line: &str| words(line.split(' ').map(OsString::from));
        let hook = Args::try_parse_from(of("/usr/bin/onDefineDomain --vmi {} --domain <domain/>")).unwrap();
        assert!(matches!(hook.action, Action::OnDefineDomain(args) if args.domain == "<domain/>"));
        assert!(Args::try_parse_from(of("x on-define-domain --domain <domain/> --socket /s")).is_ok());
        assert!(Args::try_parse_from(of("/usr/bin/onDefineDomain --vmi {}")).is_err());
        assert_eq!(of("/usr/bin/onDefineDomain/x attach vm1").len(), 3);
    }

    #[test]
    fn a_domain_or_a_file_is_named() {
        let parse = |words: &str| Args::try_parse_from(words.split(' '));
        for good in ["x attach vm1", "x attach --file a.xml", "x -c qemu:///session detach vm1 --print"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["x attach", "x attach vm1 --file a.xml", "x attach vm1 --num-queues 17", "x detach"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
