// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line. Names nothing but clap, so that other tools may include this file.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Executes the CUDA calls of virtual machines (and of processes that speak vhost-user themselves) on this
/// host's GPU, or on its CPU with the emulator.
#[derive(Clone, Debug, Parser)]
#[command(version, name = "vhost-user-cuda")]
pub struct Args {
    #[command(subcommand)]
    /// Hidden modes of the same binary.
    pub mode: Option<Mode>,
    #[command(flatten)]
    /// The daemon's own options.
    pub daemon: DaemonArgs,
}

/// Options of the daemon.
#[derive(Clone, Debug, ClapArgs)]
pub struct DaemonArgs {
    /// Listen on this unix socket (an old one of that name is replaced).
    #[arg(short, long, value_name = "PATH")]
    pub socket_path: Option<PathBuf>,

    /// Listen on this inherited, already listening unix socket instead.
    #[arg(long, value_name = "N", conflicts_with = "socket_path")]
    pub fd: Option<i32>,

    /// The libcuda.so.1 that executes the calls: `auto` (NVIDIA's if /dev/nvidiactl exists, else the emulator),
    /// `emulated` (the file VHOST_CUDA_EMULATOR names, else ../emulator/libcuda.so.1 beside this program), or a path.
    #[arg(long, value_name = "auto|emulated|PATH", default_value = "auto")]
    pub device: String,

    /// Request queues that the device offers (1 to 16).
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub num_queues: u32,

    /// Workers kept ready with a CUDA context, so that a program in the guest need not wait for one (0 to 32).
    /// Each holds GPU memory while it waits: the log says how much.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=32))]
    pub warm_workers: u32,

    /// Sessions (processes that use CUDA) that one virtual machine may have at once (1 to 1024).
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_sessions: u32,

    /// Sessions that one user of a virtual machine, other than its root, may have at once. Default: half of
    /// `--max-sessions`, so that one user cannot keep the others from CUDA.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_user_sessions: Option<u32>,

    /// Threads that each session's worker uses for large copies of ordinary memory (1 to 64). Default: half of the
    /// CPUs, at most 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub copy_threads: Option<u32>,

    /// Most device memory that one session may allocate, in bytes (K, M and G may follow). Default: no limit.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory_limit: Option<u64>,

    /// Memory for device code that was loaded before, so that the next process need not send it again, in bytes
    /// (K, M and G may follow; 0 for none).
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_bytes)]
    pub image_cache: u64,

    /// What a worker may ask the kernel for while it serves a session. `seccomp`: what executing CUDA takes, anything
    /// else ends it; `refuse`: anything else fails; `log`: the kernel's log says what that would be; `auto`: `seccomp`
    /// with the emulator, else `refuse`.
    #[arg(
        long,
        value_enum,
        value_name = "auto|seccomp|refuse|log|off",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub sandbox: Sandbox,

    /// Print what this backend offers, as JSON (vhost-user backend program conventions), and exit.
    #[arg(long)]
    pub print_capabilities: bool,

    /// Messages on stderr: off, error, warn, info, debug or trace. Nothing that a guest controls is logged
    /// above debug, except the name of a program whose session ends (info).
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

/// Whether and how the system calls of workers are filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sandbox {
    /// The sternest that what executes the calls is known to bear.
    Auto,
    /// Filtered: others end the worker.
    Seccomp,
    /// Filtered: others fail with EPERM.
    Refuse,
    /// Allowed all, and logged by the kernel where they would not be.
    Log,
    /// Not filtered.
    Off,
}

impl Sandbox {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Seccomp => "seccomp",
            Self::Refuse => "refuse",
            Self::Log => "log",
            Self::Off => "off",
        }
    }
}

/// Hidden modes of the binary.
#[derive(Clone, Debug, Subcommand)]
pub enum Mode {
    /// One worker process. Started by the daemon only.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// Options of a worker, chosen by the daemon.
#[derive(Clone, Debug, ClapArgs)]
pub struct WorkerArgs {
    /// The socket to the daemon.
    #[arg(long)]
    pub link_fd: i32,
    /// The socket to the daemon's exchange.
    #[arg(long)]
    pub exchange_fd: i32,
    /// The socket to the daemon's cache of images.
    #[arg(long)]
    pub images_fd: i32,
    /// The libcuda to load.
    #[arg(long)]
    pub library: PathBuf,
    /// Most device memory of the session, in bytes.
    #[arg(long)]
    pub memory_limit: Option<u64>,
    /// Say how much GPU memory the context takes, and so many of them.
    #[arg(long, value_name = "N")]
    pub announce_memory: Option<u32>,
    /// Threads for large copies.
    #[arg(long, default_value_t = 1)]
    pub copy_threads: u32,
    /// What it may ask the kernel for.
    #[arg(long, value_enum, default_value = "auto")]
    pub sandbox: Sandbox,
    /// The library is the emulator.
    #[arg(long)]
    pub emulated: bool,
    /// Level of the worker's messages.
    #[arg(long, default_value = "info")]
    pub worker_log_level: String,
}

/// A byte count with an optional K, M or G (powers of 1024).
fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("`{text}` is not a number of bytes, as 512M or 8G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is more than 2^64 bytes"))
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
    fn silly_numbers_of_warm_workers_are_refused() {
        let parsed = |count| Args::try_parse_from(["vhost-user-cuda", &format!("--warm-workers={count}")]);
        assert_eq!(parsed("32").map(|args| args.daemon.warm_workers).ok(), Some(32));
        for silly in ["33", "-1", "1e3", "many"] {
            let error = parsed(silly).expect_err(silly).to_string();
            assert!(error.contains("warm-workers"), "{error}");
        }
    }

    #[test]
    fn sandboxes_are_called_what_they_are_called() {
        for &sandbox in Sandbox::value_variants() {
            assert_eq!(Sandbox::from_str(sandbox.name(), false), Ok(sandbox));
        }
    }

    #[test]
    fn byte_counts_take_a_suffix() {
        assert_eq!(parse_bytes("8G"), Ok(8 << 30));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert!(parse_bytes("G").is_err());
        assert!(parse_bytes("99999999999G").is_err());
    }
}
