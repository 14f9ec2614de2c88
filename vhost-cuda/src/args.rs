// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand, ValueEnum};
use vhost_cuda_common::args::{Sandbox, WorkerArgs};

use crate::guest::memory::GuestPages;
use crate::shares::users::Users;
use crate::socket::Address;

/// Executes the CUDA calls of virtual machines (and of processes that use vhost-user themselves) on this host's GPU,
/// or on its CPU with the emulator.
#[derive(Clone, Debug, Parser)]
#[command(
    version,
    name = "vhost-user-cuda",
    args_override_self = true,
    after_help = "--help lists all options.",
    after_long_help = ""
)]
pub struct Args {
    #[command(subcommand)]
    /// Other modes of the same binary.
    pub mode: Option<Mode>,
    #[command(flatten)]
    /// The daemon's own options.
    pub daemon: DaemonArgs,
}

/// Options of the daemon.
#[derive(Clone, Debug, ClapArgs)]
pub struct DaemonArgs {
    /// Listen on this unix socket. A stale socket at the path is replaced.
    #[arg(short, long, value_name = "PATH")]
    pub socket_path: Option<PathBuf>,

    /// Listen on this inherited, already listening unix socket instead.
    #[arg(long, hide_short_help = true, value_name = "N", conflicts_with = "socket_path")]
    pub fd: Option<i32>,

    /// The file that workers lock while they live. The next daemon on the socket waits for it. It must outlive the
    /// daemon, and its folder must be writable. Default: the socket's path with the suffix `.workers`.
    #[arg(long, hide_short_help = true, value_name = "PATH")]
    pub workers_lock: Option<PathBuf>,

    /// The libcuda.so.1 that executes the calls: `auto` (NVIDIA's if /dev/nvidiactl exists, otherwise the emulator),
    /// `emulated` (the file in VHOST_CUDA_EMULATOR, otherwise ../emulator/libcuda.so.1 beside this program), or a
    /// path.
    #[arg(long, value_name = "auto|emulated|PATH", default_value = "auto")]
    pub device: String,

    /// Folders of NVIDIA's libraries (libcublas.so.13, libcudnn.so.9, …) that guest programs use, separated by
    /// colons. They are searched first, before the folders of the dynamic linker and of NVIDIA's packages. With the
    /// emulator: the folders of the CPU's versions, by default ../emulator/libraries beside this program.
    #[arg(long, value_name = "DIR[:DIR…]", value_delimiter = ':')]
    pub libraries: Vec<PathBuf>,

    /// Let workers create the sockets that NCCL needs between processes of a guest. The sockets reach only the
    /// workers of this daemon, so namespaces are required.
    #[arg(long, hide_short_help = true)]
    pub nccl: bool,

    /// Request queues that the device offers (1 to 16).
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub num_queues: u32,

    /// The number of workers kept ready with a CUDA context, so that a program in the guest does not wait for one (0
    /// to 32). Each waiting worker holds GPU memory; the log reports the amount.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=32))]
    pub warm_workers: u32,

    /// The maximum number of sessions (processes that use CUDA) of one virtual machine at once (1 to 1024).
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_sessions: u32,

    /// The maximum number of sessions of one user of a virtual machine, other than its root, at once. Default: half
    /// of `--max-sessions`, so that one user cannot block the others.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_user_sessions: Option<u32>,

    /// Sessions that a virtual machine may open per second (1 to 1000), after `--max-sessions` of them at once. More wait: each one
    /// takes a new worker, whose start holds locks of NVIDIA's driver.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub session_rate: u32,

    /// The number of threads that each session's worker uses for large copies of pageable memory (1 to 64). Default:
    /// half of the CPUs, at most 4.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub copy_threads: Option<u32>,

    /// `off` turns off all that makes calls faster in the workers: prepared launches, waiting words, and memory and objects that are
    /// kept for reuse. Results are the same. To find faults, together with VIRTIO_CUDA_SPEED=off in the guest.
    #[arg(long, hide_short_help = true, value_enum, value_name = "on|off", default_value = "on")]
    pub speed: Speed,

    /// GPUs that guests may use: numbers as in `nvidia-smi -L`, or UUIDs (also of MIG devices), separated by commas.
    /// Default: all.
    #[arg(long, value_name = "LIST", value_parser = parse_gpus)]
    pub gpus: Option<String>,

    /// The weight of this daemon's virtual machine when several compete for GPU time (1 to 10000). Needs `--arbiter`.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "arbiter",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub share: u32,

    /// Share GPU time with the other virtual machines whose daemons are connected to the arbiter on this unix socket
    /// (`vhost-user-cuda arbiter`), and with `--suspend-after` make room for each other's device memory. Default: GPU time is not
    /// shared by weights.
    #[arg(long, value_name = "PATH")]
    pub arbiter: Option<PathBuf>,

    /// End a session when a kernel, a graph or a call of NVIDIA's libraries runs on the GPU for longer than this, in
    /// seconds (0.1 to 86400). Its program gets `cudaErrorLaunchTimeout`. Default: no limit.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub time_limit: Option<Duration>,

    /// The maximum device memory of one virtual machine, in bytes (with the suffix K, M or G). It covers all its
    /// sessions together, with the context of each session but the first. Default: no limit.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<u64>,

    /// The maximum device memory of one session besides its context, in bytes (with the suffix K, M or G). Default:
    /// only the limit of the virtual machine.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, alias = "memory-limit")]
    pub session_memory: Option<u64>,

    /// The maximum host memory of the workers of one virtual machine, in bytes (with the suffix K, M or G). Needs
    /// `--cgroup`. Default: no limit.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub host_memory: Option<u64>,

    /// The weight of the CPU time of one virtual machine's workers, of 100 for other groups beside its own (1 to 10000).
    /// Needs `--cgroup`. Default: 100.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub cpu_weight: Option<u32>,

    /// The place of the workers' control groups, one per virtual machine: under this folder of a cgroup v2 hierarchy,
    /// under the daemon's own group (`auto`, if it has been delegated to the daemon), or none (`none`).
    #[arg(long, hide_short_help = true, value_name = "auto|none|PATH", default_value = "auto")]
    pub cgroup: String,

    /// Serve one front-end at a time, and refuse others meanwhile. `--single=false`: several front-ends, which have
    /// limits of their own and trust each other (see the threat model).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub single: bool,

    /// Read options from this TOML file: `memory = "40G"` is `--memory 40G`. The command line takes precedence.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The size of the cache for device code, so that the next process that loads it does not send it again, in bytes
    /// (with the suffix K, M or G; 0 disables the cache).
    #[arg(long, hide_short_help = true, value_name = "BYTES", default_value = "256M", value_parser = parse_bytes)]
    pub image_cache: u64,

    /// The system call filter of a worker while it serves a session. `seccomp`: any call that CUDA does not need ends
    /// the worker; `refuse`: such a call fails; `log`: such a call is only reported in the kernel's log; `auto`:
    /// `seccomp` with the emulator, otherwise `refuse`.
    #[arg(
        long,
        hide_short_help = true,
        value_enum,
        value_name = "auto|seccomp|refuse|log|off",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub sandbox: Sandbox,

    /// PID, mount, network and IPC namespaces for the workers. `auto`: if this host lets the daemon create them;
    /// `require`: the daemon does not start without them; `off`: none. `--sandbox off` implies none.
    #[arg(
        long,
        hide_short_help = true,
        value_enum,
        value_name = "auto|require|off",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub namespaces: Namespaces,

    /// The memory of its virtual machine that a worker can map. `named`: only pages that the session's own process
    /// has named, each time with the daemon's permission, and for writing only those that it may write; `all`: all of
    /// it, once, for reading and writing; `auto`: `named` where this host and the machine's memory allow it (not with
    /// hugetlbfs, nor with `--sandbox off`).
    #[arg(
        long,
        hide_short_help = true,
        value_enum,
        value_name = "auto|named|all",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub guest_pages: GuestPages,

    /// Allow the daemon to run as root of the host. Workers drop root's privileges in any case, but not its user id.
    #[arg(long)]
    pub allow_root: bool,

    /// Serve GPUs that access pageable memory of their process (HMM, ATS). Kernels of a guest process can then access
    /// the whole memory of its virtual machine.
    #[arg(long, hide_short_help = true)]
    pub allow_pageable_access: bool,

    /// Allow saving, loading or migrating a machine although a session of its programs cannot go along, which is lost then.
    /// Without this option such a machine is refused.
    #[arg(long, hide_short_help = true)]
    pub lose_sessions: bool,

    /// Save the contents of a machine's sessions in folders in this one, and not in the state that the VMM has. Machines that are
    /// loaded from one state share them in host memory: their daemons need the same folder.
    #[arg(long, hide_short_help = true, value_name = "FOLDER")]
    pub contents: Option<PathBuf>,

    /// Serve metrics in Prometheus' text format, at `/metrics`: on this unix socket, or on a port of the loopback
    /// interface.
    #[arg(long, value_name = "PATH|127.0.0.1:PORT")]
    pub metrics: Option<Address>,

    /// Let the daemon's user and root suspend, resume and trace sessions through this unix socket (`vhost-user-cuda ctl`). A
    /// stale socket at the path is replaced.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// Suspend a session that has made no call for this time, in seconds (0.1 to 86400), when another session finds no
    /// device memory, of this daemon or of another one at the same arbiter. The next call that needs the GPU brings it
    /// back. Default: never.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub suspend_after: Option<Duration>,

    /// Suspend a session that has made no call for this time, in seconds (0.1 to 86400), whether or not others need memory.
    /// Default: never.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", value_parser = parse_seconds)]
    pub suspend_idle: Option<Duration>,

    /// The maximum host memory for the contents of suspended sessions, in bytes (with the suffix K, M or G). Default:
    /// half of the memory that the host has available when a session is suspended.
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = parse_bytes)]
    pub suspend_memory: Option<u64>,

    /// Keep so much host memory ready for contents of suspended sessions, in bytes (with the suffix K, M or G), so that no suspension
    /// waits for the kernel to clear pages. All sessions share it by their device memory. It counts for `--suspend-memory`.
    #[arg(long, hide_short_help = true, value_name = "BYTES", default_value = "0", value_parser = parse_bytes)]
    pub suspend_pool: u64,

    /// Keep the contents of a session that has come back in host memory for this time, in seconds (0.1 to 86400; 0: do not), so that
    /// the next suspension copies only what has changed. They end earlier if other sessions need the host memory.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value = "60", value_parser = parse_keeping)]
    pub keep_contents: Duration,

    /// The device memory of a virtual machine that stays on the card although its sessions are idle, in bytes (with the
    /// suffix K, M or G).
    #[arg(long, hide_short_help = true, value_name = "BYTES", default_value = "0", value_parser = parse_bytes)]
    pub suspend_floor: u64,

    /// Suspend all sessions of a virtual machine while it is paused (QEMU's `stop`), and bring them back when it goes on
    /// (`cont`).
    #[arg(long, hide_short_help = true)]
    pub suspend_with_machine: bool,

    /// Print the features of this backend as JSON (vhost-user backend program conventions), and exit.
    #[arg(long, hide_short_help = true)]
    pub print_capabilities: bool,

    /// Go on with the state in this descriptor. Used by the daemon only, when its program is replaced.
    #[arg(long, hide = true, value_name = "N")]
    pub take_over: Option<i32>,

    /// The reason for which the next program did not go on.
    #[arg(long, hide = true, value_name = "TEXT", requires = "take_over")]
    pub take_over_refused: Option<String>,

    /// Check the state in the standard input, and exit. Used by the daemon only.
    #[arg(long, hide = true)]
    pub check_take_over: bool,

    /// The level of messages on stderr: off, error, warn, info, debug or trace. Messages that a guest can repeat are
    /// logged at debug, or in limited number (ends of sessions, with the name of the program, at info).
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

/// All that makes calls faster and that results do not depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Speed {
    /// With it.
    On,
    /// Without it.
    Off,
}

/// The use of namespaces for workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Namespaces {
    /// Used if the host allows them.
    Auto,
    /// Required: the daemon does not start without them.
    Require,
    /// Not used.
    Off,
}

/// Modes of the binary besides the daemon.
#[derive(Clone, Debug, Subcommand)]
pub enum Mode {
    /// Show the sessions of a daemon that serves metrics, and refresh the view.
    Top(TopArgs),
    /// Share GPU time between the virtual machines of a host, by weights.
    Arbiter(ArbiterArgs),
    /// Suspend, resume and trace sessions of a daemon that has a control socket.
    Ctl(CtlArgs),
    /// One worker process. Started by the daemon only.
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// The first process of the workers' PID namespace. Started by the daemon only.
    #[command(hide = true)]
    Keeper,
}

/// Options of `arbiter`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ArbiterArgs {
    /// Listen on this unix socket. A stale socket at the path is replaced. Users who may write to it may join.
    #[arg(short, long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Serve daemons of these users only: numbers and ranges of them, as `0,61184-65519`. Default: all that may write to
    /// the socket.
    #[arg(long, value_name = "LIST")]
    pub users: Option<Users>,
    /// The level of messages: off, error, warn, info, debug or trace.
    #[arg(long = "log-level", value_name = "LEVEL", default_value = "info")]
    pub arbiter_log_level: String,
}

/// Options of `top`.
#[derive(Clone, Debug, ClapArgs)]
pub struct TopArgs {
    /// The daemon's `--metrics`.
    #[arg(value_name = "PATH|127.0.0.1:PORT")]
    pub metrics: Address,
    /// Seconds between two updates.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// The number of updates. Default: unlimited.
    #[arg(long)]
    pub count: Option<u64>,
}

/// Options of `ctl`.
#[derive(Clone, Debug, ClapArgs)]
pub struct CtlArgs {
    /// The daemon's `--control`.
    #[arg(long = "control", value_name = "PATH")]
    pub socket: PathBuf,
    /// Print one JSON object: the daemon's answer as it is, or the tables of `trace`.
    #[arg(long, global = true)]
    pub json: bool,
    /// The request.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// Requests of `ctl`.
#[derive(Clone, Debug, Subcommand)]
pub enum CtlCommand {
    /// Show the sessions, and where their device memory is.
    Status,
    /// Move device memory of sessions to host memory.
    Suspend {
        #[command(flatten)]
        /// The sessions.
        selected: Selected,
        /// The time for work that has begun to end, in seconds (0.1 to 600).
        #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout)]
        timeout: Duration,
        /// Let calls of the program wait until `resume`. Without it, the next call that needs the GPU resumes.
        #[arg(long)]
        hold: bool,
        /// End the driver's contexts and objects of the sessions, too, so that nothing of them is left on the card. Where contents would
        /// be lost, a session is only suspended, and the reason is printed.
        #[arg(long)]
        deep: bool,
    },
    /// Replace the daemon's program by the one that is installed now, while programs run. Options are read again.
    Replace,
    /// Bring device memory of sessions back.
    Resume {
        #[command(flatten)]
        /// The sessions.
        selected: Selected,
        /// The time to wait for room on the card, in seconds (0.1 to 600).
        #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout)]
        timeout: Duration,
    },
    /// Give sessions other worker processes, of the program that runs now, while their programs run. A session that cannot leave its
    /// worker goes on with it, and the reason is printed.
    Renew {
        #[command(flatten)]
        /// The sessions.
        selected: Selected,
        /// The time for work that has begun to end, in seconds (0.1 to 600).
        #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout)]
        timeout: Duration,
    },
    /// Suspend a session, and put its contents into a folder. Host memory is free then. Calls of the program wait until `restore`.
    Save {
        /// The session with this number, as in the log, in metrics and in `status`.
        #[arg(long, value_name = "N")]
        session: u64,
        /// The time for work that has begun to end, in seconds (0.1 to 600).
        #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout)]
        timeout: Duration,
        /// The folder, which must not be there yet.
        folder: PathBuf,
    },
    /// Bring a session back whose contents are in a folder, and remove the folder.
    Restore {
        /// The time to wait for room on the card, in seconds (0.1 to 600).
        #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout)]
        timeout: Duration,
        /// The folder.
        folder: PathBuf,
    },
    /// Record what running programs do, and print tables: kernels, copies, calls, waiting. Programs need no preparation.
    Trace {
        #[command(flatten)]
        /// The sessions. Those that begin meanwhile are recorded, too.
        selected: Selected,
        /// The time to record, in seconds (0.1 to 600).
        #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout)]
        seconds: Duration,
        /// Write a timeline for Perfetto (ui.perfetto.dev) into this file.
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Print the tables as comma-separated values.
        #[arg(long, conflicts_with = "json")]
        csv: bool,
    },
    /// Show the number of calls that would make the objects of sessions again, and the first reason why they do not suffice.
    Recipe {
        #[command(flatten)]
        /// The sessions.
        selected: Selected,
    },
}

/// The sessions of a request.
#[derive(Clone, Copy, Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub struct Selected {
    /// The session with this number, as in the log, in metrics and in `status`.
    #[arg(long, value_name = "N")]
    pub session: Option<u64>,
    /// All sessions of the virtual machine with this number.
    #[arg(long, value_name = "N")]
    pub connection: Option<u64>,
    /// All sessions of the daemon.
    #[arg(long)]
    pub all: bool,
}

/// Parses identifiers of GPUs, for CUDA_VISIBLE_DEVICES.
fn parse_gpus(text: &str) -> Result<String, String> {
    let named = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-/".contains(&byte))
    };
    if text.split(',').all(named) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a list of GPUs, as 0,1 or GPU-0f3b9c1e"))
    }
}

/// Parses a time in seconds, with a fraction.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is not between 0.1 and 86400 seconds"))
}

/// Parses a time that may be 0.
fn parse_keeping(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_seconds(text) }
}

/// Parses the time limit of a request.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    const LIMIT: Duration = Duration::from_secs(600);
    let time = parse_seconds(text)?;
    if time <= LIMIT { Ok(time) } else { Err(format!("`{text}` is more than {} seconds", LIMIT.as_secs())) }
}

/// Parses a byte count with an optional K, M or G (powers of 1024).
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
    fn the_first_page_of_help_is_short() {
        let options = |text: String| text.lines().filter(|line| line.trim_start().starts_with("--")).count();
        let (short, long) = (Args::command().render_help(), Args::command().render_long_help());
        let (short, long) = (options(short.to_string()), options(long.to_string()));
        assert!(short <= 24 && long > short + 10, "{short} of {long} options");
    }

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
    fn limits_have_their_old_name_too() {
        let parsed = |args: &[&str]| {
            let args = [&["vhost-user-cuda"], args].concat();
            Args::try_parse_from(args).map(|args| args.daemon)
        };
        assert_eq!(parsed(&["--memory-limit", "16M"]).unwrap().session_memory, Some(16 << 20));
        // The last one takes effect: those of a configuration file come first.
        let twice = parsed(&["--session-memory=1G", "--memory=2G", "--memory-limit", "16M"]).unwrap();
        assert_eq!((twice.session_memory, twice.memory), (Some(16 << 20), Some(2 << 30)));
        assert!(parsed(&[]).unwrap().single && parsed(&["--single"]).unwrap().single);
        assert!(!parsed(&["--single", "--single=false"]).unwrap().single);
        assert_eq!(parsed(&["--gpus", "0,GPU-1a"]).unwrap().gpus.as_deref(), Some("0,GPU-1a"));
        for bad in ["", "0,", "0 1", "$HOME"] {
            assert!(parsed(&["--gpus", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_bounds() {
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        for bad in ["0", "0.05", "-1", "1e6", "NaN", "inf", "2 s", ""] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
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
