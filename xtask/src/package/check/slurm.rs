// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--check=slurm`: jobs of Debian's Slurm, each with a daemon of its own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::host::{Host, wait};
use super::subject::{LIMIT, PRINTED, Subject, steps};
use crate::package::root::Root;
use crate::process::read_lossy;
use crate::program;
use crate::setup::RootKind;

/// A program that prints which allocations succeed.
const ALLOCATE: &str = "xtask/src/package/check/allocate.cu";
const USER: &str = "user1";
const ARBITER: &str = "vhost-user-cuda-arbiter.service";
/// The node's devices: Slurm wants a file for each GPU.
const GPUS: &str = "Name=gpu File=/dev/zero\nName=shard Count=16\n";
/// Slurm asks for control groups even where it uses none, and refuses hosts with both versions.
const CGROUP: &str = "CgroupPlugin=cgroup/v1\n";
const SETTINGS: &str = "SHARD_MEMORY=16M\nARBITER=/run/vhost-user-cuda-arbiter/socket\n";
const OPTIONS: &str = "device = \"emulated\"\nnamespaces = \"require\"\n";
/// Prints the name and the command line of each process. One may end meanwhile.
const PROCESSES: &str = "for process in /proc/[0-9]*; do
    echo $(cat $process/comm) $(tr '\\0' ' ' < $process/cmdline); done 2> /dev/null";
/// The maximum time for the start of a job, with a prolog that starts a daemon.
const JOB_LIMIT: Duration = Duration::from_secs(120);

/// A job of the user.
struct Job<'a> {
    host: &'a Host,
    number: String,
}

/// Runs jobs.
pub fn run(subject: &Subject) -> Result<()> {
    let host = Host::start(subject, RootKind::Slurm, &["vhost-user-cuda"], |root| prepare(subject, root))?;
    fs::copy(&subject.program, host.shared("program"))?;
    let allocate = program::compile(subject.paths, &subject.paths.root.join(ALLOCATE))?;
    fs::copy(allocate, host.shared("allocate"))?;
    fs::write(host.shared("job.sh"), include_str!("job.sh"))?;
    remove_old(&host)?;
    steps(&[
        ("slurm-start", &|| start(&host)),
        ("slurm-shards", &|| shards(&host)),
        ("slurm-gpu", &|| whole_gpu(&host)),
        ("slurm-none", &|| without(&host)),
    ])
}

/// The configuration, a user, and the guest's libraries in a folder: the host's driver would be in their way.
fn prepare(subject: &Subject, root: &Root) -> Result<()> {
    let write = |path: &str, text: &str| {
        fs::write(root.path(path), text).with_context(|| format!("Cannot write {path}"))
    };
    write("etc/hostname", "node1\n")?;
    write("etc/hosts", "127.0.0.1 localhost node1\n")?;
    write("etc/slurm/slurm.conf", include_str!("slurm.conf"))?;
    write("etc/slurm/gres.conf", GPUS)?;
    write("etc/slurm/cgroup.conf", CGROUP)?;
    write("etc/vhost-user-cuda/slurm.conf", SETTINGS)?;
    write("etc/vhost-user-cuda/slurm.toml", OPTIONS)?;
    root.run(["useradd", "--create-home", USER])?;
    for folder in ["slurmctld", "slurmd"] {
        root.run(["install", "-d", "-o", "slurm", &format!("/var/lib/slurm/{folder}")])?;
    }
    fs::copy(subject.package("vhost-cuda-guest")?, root.path("guest.deb"))?;
    root.run(["dpkg-deb", "--extract", "/guest.deb", "/opt/vhost-cuda"])?;
    Ok(fs::remove_file(root.path("guest.deb"))?)
}

/// Removes files of jobs of an earlier check.
fn remove_old(host: &Host) -> Result<()> {
    for file in fs::read_dir(host.shared(""))? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with("end-") || name.starts_with("job-") {
            fs::remove_file(file.path())?;
        }
    }
    // Jobs write their output there.
    host.run(["chmod", "1777", "/srv"]).map(drop)
}

fn start(host: &Host) -> Result<()> {
    host.run(["systemctl", "start", ARBITER, "munge", "slurmctld", "slurmd"])?;
    wait("The node is not idle", LIMIT, || Ok((node_state(host)? == "idle").then_some(())))
}

fn node_state(host: &Host) -> Result<String> {
    host.run(["sinfo", "--noheader", "--format=%T"])
}

/// Runs two jobs at the same time. One ends, the other one is killed.
fn shards(host: &Host) -> Result<()> {
    let (four, two) = (Job::submit(host, Some("shard:4"))?, Job::submit(host, Some("shard:2"))?);
    for (job, shards, memory, fits) in [(&four, 4, "64M", 0), (&two, 2, "32M", 2)] {
        let output = job.ready()?;
        for part in [PRINTED, &format!("48 MiB: {fits}"), "80 MiB: 2", "visible: none", &job.socket()] {
            ensure!(output.contains(part), "Job {} has not printed `{part}`: {output}", job.number);
        }
        let options = host.run(["cat", &job.options()])?;
        for part in [format!("memory = \"{memory}\""), format!("share = {shards}"), "gpus = [0]".to_owned()] {
            ensure!(options.contains(&part), "Job {} has no `{part}`: {options}", job.number);
        }
        let owner = host.run(["stat", "-c", "%a %U", &job.socket()])?;
        ensure!(owner == format!("600 {USER}"), "The socket has mode and owner {owner}");
        let arbiter = host.run(["journalctl", "--no-pager", "-u", ARBITER])?;
        ensure!(arbiter.contains(&format!("weight {shards}")), "The arbiter's log: {arbiter}");
    }
    ensure!(daemons(host)?.len() == 2, "The daemons: {:?}", daemons(host)?);
    four.finish()?;
    four.wait_for_end()?;
    ensure!(daemons(host)?.len() == 1, "The daemons after the first job: {:?}", daemons(host)?);
    host.run(["scancel", "--signal=KILL", "--full", &two.number])?;
    two.wait_for_end()?;
    nothing_is_left(host)
}

/// A job with a GPU of its own has no limit of memory and no share.
fn whole_gpu(host: &Host) -> Result<()> {
    let job = Job::submit(host, Some("gpu:1"))?;
    let output = job.ready()?;
    for part in [PRINTED, "80 MiB: 0"] {
        ensure!(output.contains(part), "The job has not printed `{part}`: {output}");
    }
    let options = host.run(["cat", &job.options()])?;
    ensure!(!options.contains("memory") && !options.contains("share"), "The job's options: {options}");
    job.finish()?;
    job.wait_for_end()?;
    nothing_is_left(host)
}

/// A job without GPUs has no daemon.
fn without(host: &Host) -> Result<()> {
    let job = Job::submit(host, None)?;
    let output = job.ready()?;
    ensure!(output.contains("socket: none"), "The job has printed: {output}");
    ensure!(daemons(host)?.is_empty(), "The daemons: {:?}", daemons(host)?);
    job.finish()?;
    nothing_is_left(host)
}

/// The units of jobs' daemons that are active.
fn daemons(host: &Host) -> Result<Vec<String>> {
    let units = "vhost-user-cuda@slurm-*.service";
    let list = host.run(["systemctl", "list-units", "--plain", "--no-legend", "--state=active", units])?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// No file, unit or process of a job is left, and Slurm is content with its epilogs.
fn nothing_is_left(host: &Host) -> Result<()> {
    let folders = ["/etc/vhost-user-cuda", "/run/vhost-user-cuda", "/var/lib/private"];
    let find = ["find"].into_iter().chain(folders).chain(["-path", "*slurm-[0-9]*"]);
    let files = host.run(find)?;
    ensure!(files.is_empty(), "The jobs have left: {files}");
    let units = host.run(["systemctl", "list-units", "--all", "--no-legend", "vhost-user-cuda@slurm-*"])?;
    ensure!(units.is_empty(), "The jobs have left units: {units}");
    let processes = host.run(["sh", "-c", PROCESSES])?;
    // The arbiter has the same program. Workers call themselves cuda-….
    let is_daemon = |line: &&str| line.contains("vhost-user-cuda") && !line.contains(" arbiter ");
    let left: Vec<&str> =
        processes.lines().filter(|line| is_daemon(line) || line.starts_with("cuda-")).collect();
    ensure!(left.is_empty(), "The jobs have left processes: {left:?}");
    wait("The node is not idle", LIMIT, || match node_state(host)?.as_str() {
        "idle" => Ok(Some(())),
        "drained" | "draining" | "down" => {
            bail!("Slurm has drained the node: {}", host.run(["sinfo", "-R"])?)
        }
        _ => Ok(None),
    })
}

impl<'a> Job<'a> {
    /// Submits the script with these resources.
    fn submit(host: &'a Host, resources: Option<&str>) -> Result<Self> {
        let gres = resources.map(|resources| format!("--gres={resources}"));
        let mut words = vec!["setpriv", "--reuid", USER, "--regid", USER, "--init-groups"];
        words.extend(["sbatch", "--parsable", "--chdir=/srv", "--output=/srv/job-%j.log"]);
        words.extend(gres.as_deref());
        words.push("/srv/job.sh");
        Ok(Self { host, number: host.run(words)? })
    }

    fn socket(&self) -> String {
        format!("/run/vhost-user-cuda/slurm-{}.sock", self.number)
    }

    fn options(&self) -> String {
        format!("/etc/vhost-user-cuda/slurm-{}.toml", self.number)
    }

    /// Waits until the script has done its work; its output.
    fn ready(&self) -> Result<String> {
        let file = self.host.shared(&format!("job-{}.log", self.number));
        let done = || {
            let text = read_if_there(&file)?;
            Ok(text.contains("job: ready").then_some(text))
        };
        wait("The job is not ready", JOB_LIMIT, done).with_context(|| {
            let run = |words: &[&str]| self.host.run(words.iter().copied()).unwrap_or_default();
            let log = run(&["journalctl", "--no-pager", "--lines=60"]);
            format!(
                "{}\n{log}\n{}",
                run(&["scontrol", "show", "job", &self.number]),
                read_if_there(&file).unwrap_or_default()
            )
        })
    }

    /// Lets the script end.
    fn finish(&self) -> Result<()> {
        Ok(fs::write(self.host.shared(&format!("end-{}", self.number)), "")?)
    }

    /// Waits until the epilog has run.
    fn wait_for_end(&self) -> Result<()> {
        let options = self.options();
        let ended = || Ok(self.host.run(["test", "!", "-e", &options]).is_ok().then_some(()));
        wait("The job's options are still there", JOB_LIMIT, ended)
    }
}

fn read_if_there(file: &Path) -> Result<String> {
    if file.exists() { read_lossy(file) } else { Ok(String::new()) }
}
