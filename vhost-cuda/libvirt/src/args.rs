// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Attaches the CUDA device of vhost-user-cuda to a domain of libvirt, or detaches it. The domain must be shut off.
#[derive(Clone, Debug, Parser)]
#[command(version, name = "vhost-cuda-libvirt")]
pub struct Args {
    /// The libvirt to connect to, as for `virsh --connect`. Default: virsh's own
    #[arg(short, long, value_name = "URI", global = true)]
    pub connect: Option<String>,
    /// Attach or detach.
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
    /// Request queues (1 to 16); the daemon's `--num-queues`
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub num_queues: u32,
    /// The QEMU of the domain. Default: the one that it has if that knows the device, else the one of the package
    /// vhost-cuda-qemu
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
