// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The device plugin of Kubernetes with a kubelet of our own, real daemons and programs. A real kubelet is in
//! `cargo xtask test --level kubernetes`.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mock_kubelet::{Checkpoint, MockKubelet, Pod};
use vhost_cuda_tests::arbiter::Arbiter;
use vhost_cuda_tests::effort;
use vhost_cuda_tests::plugin::Plugin;
use vhost_cuda_tests::running::{Outcome, Running};
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::LIMIT;

type Test = fn(&Kit) -> Result<()>;

/// Device memory per shard. A program that allocates [`LARGE`] bytes needs two.
const SHARD: [&str; 2] = ["--shard-memory", "16M"];
const LARGE: &str = "20000000";
const USUAL_ROUNDS: u64 = 15;
/// The maximum time for the plugin, its daemons and their workers to begin or to end. They share the processors with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pods at once in the test of kills, at most.
const PODS: usize = 4;

pub fn collect(suite: &mut Suite) {
    let tests: [(&str, Test); 8] = [
        ("pods_have_their_shards", pods_have_their_shards),
        ("shards_are_weights", shards_are_weights),
        ("what_a_node_does_not_have_is_refused", what_a_node_does_not_have_is_refused),
        ("a_daemon_that_does_not_start_is_reported", a_daemon_that_does_not_start_is_reported),
        ("pods_outlive_the_plugin", pods_outlive_the_plugin),
        ("pods_outlive_the_kubelet", pods_outlive_the_kubelet),
        ("daemons_are_started_again", daemons_are_started_again),
        ("random_kills_leave_nothing", random_kills_leave_nothing),
    ];
    for (name, test) in tests {
        let name = format!("kubernetes::{name}");
        if suite.kit().stack.plugin().exists() {
            suite.test(name, test);
        } else {
            suite.skip(name, "this bundle has no vhost-cuda-plugin");
        }
    }
}

/// A node: a plugin with these GPUs, and its kubelet.
fn node(kit: &Kit, gpus: &[&str], arguments: &[&str]) -> Result<(Plugin, MockKubelet)> {
    let plugin = Plugin::start(&kit.stack, gpus, &[&SHARD, arguments].concat())?;
    let kubelet = MockKubelet::start(&plugin.kubelet(), Checkpoint::new())?;
    kubelet.wait_for_plugin(0, PATIENCE).with_context(|| plugin.log())?;
    Ok((plugin, kubelet))
}

fn start(kit: &Kit, plugin: &Plugin, pod: &Pod, program: &str, arguments: &[&str]) -> Result<Running> {
    Running::start(plugin.command(pod, &kit.programs.get(program)?)?.args(arguments), "")
}

fn finish(kit: &Kit, plugin: &Plugin, pod: &Pod, program: &str, arguments: &[&str]) -> Result<Outcome> {
    start(kit, plugin, pod, program, arguments)?.finish(LIMIT)
}

fn pods_have_their_shards(kit: &Kit) -> Result<()> {
    let (plugin, kubelet) = node(kit, &["0=64M"], &[])?;
    let devices = kubelet.wait_for_plugin(0, PATIENCE)?;
    ensure!(devices.len() == 4, "{devices:?}");
    let small = kubelet.admit("small", 1)?;
    let large = kubelet.admit("large", 2)?;
    finish(kit, &plugin, &small, "add_one", &[])?.expect_exit(0)?;
    let outcome = finish(kit, &plugin, &small, "copy_until_error", &[LARGE])?;
    ensure!(outcome.stderr.contains("error 2 (cudaErrorMemoryAllocation)"), "{outcome}");
    let copying = start(kit, &plugin, &large, "copy_until_error", &[LARGE])?;
    copying.wait_for_stdout("copying", LIMIT)?;
    let error = kubelet.admit("third", 2).err().context("more shards than there are")?.to_string();
    ensure!(error.contains("1 are free"), "{error}");
    // The small one ends: the other one's program goes on.
    kubelet.end_pod("small");
    plugin.wait_until("one daemon is left", PATIENCE, |plugin| plugin.daemons().len() == 1)?;
    let third = kubelet.admit("third", 2)?;
    finish(kit, &plugin, &third, "add_one", &[])?.expect_exit(0)?;
    copying.signal(libc::SIGKILL);
    copying.finish(PATIENCE)?;
    for pod in ["large", "third"] {
        kubelet.end_pod(pod);
    }
    plugin.wait_until_empty(PATIENCE)
}

fn shards_are_weights(kit: &Kit) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let socket = arbiter.options(1)?.swap_remove(1);
    let (plugin, kubelet) = node(kit, &["0=64M"], &["--arbiter", &socket])?;
    for (pod, count) in [("one", 1), ("three", 3)] {
        let pod = kubelet.admit(pod, count)?;
        let options = plugin.options_of(&pod)?;
        ensure!(options.contains(&format!("\nshare = {count}\n")), "{options}");
        ensure!(options.contains(&format!("\nmemory = \"{}\"\n", count << 24)), "{options}");
        // A daemon that does not find its arbiter says so at its end only; this one has work for its turns.
        finish(kit, &plugin, &pod, "compete", &["0.1"])?.expect_exit(0)?;
    }
    let found = |plugin: &Plugin| {
        let logs = plugin.daemons().into_iter().map(|(name, _)| plugin.run().join(name).join("daemon.log"));
        logs.filter(|log| fs::read_to_string(log).is_ok_and(|log| log.contains("GPU time is shared by")))
            .count()
    };
    plugin.wait_until("both daemons find the arbiter", PATIENCE, |plugin| found(plugin) == 2)
}

fn what_a_node_does_not_have_is_refused(kit: &Kit) -> Result<()> {
    let (plugin, kubelet) = node(kit, &["0=64M", "1=48M"], &[])?;
    let error = kubelet.admit("too-large", 5).err().context("five of four were given")?.to_string();
    ensure!(error.contains("several GPUs (0, 1)") && error.contains("up to 4 shards each"), "{error}");
    let long = "x".repeat(1 << 20);
    for bad in [&["0-4"][..], &["0-0", "0-0"], &["../../etc-0"], &[&long], &[]] {
        let ids: Vec<String> = bad.iter().map(|id| (*id).to_owned()).collect();
        ensure!(kubelet.give("bad", &ids).is_err(), "{ids:?} were given");
    }
    // As many as fit come from one GPU, the fullest.
    let pod = kubelet.admit("three", 3)?;
    ensure!(pod.ids.iter().all(|id| id.starts_with("1-")), "{:?}", pod.ids);
    finish(kit, &plugin, &pod, "add_one", &[])?.expect_exit(0)?;
    kubelet.end_pod("three");
    plugin.wait_until_empty(PATIENCE)
}

fn a_daemon_that_does_not_start_is_reported(kit: &Kit) -> Result<()> {
    // The arbiter's path needs a quote in the file of options.
    let (mut plugin, kubelet) = node(kit, &["0=64M"], &["--arbiter", "/nowhere/\""])?;
    kubelet.admit("pod", 1)?;
    kubelet.end_pod("pod");
    plugin.wait_until_empty(PATIENCE)?;
    plugin.stop()?;
    fs::write(plugin.run().with_file_name("options.toml"), "allow-root = true\nmemroy = \"1G\"\n")?;
    plugin.launch()?;
    kubelet.wait_for_plugin(1, PATIENCE)?;
    let error = kubelet.admit("pod", 1).err().context("its options are wrong")?.to_string();
    ensure!(error.contains("ended at once") && error.contains("--memroy"), "{error}");
    plugin.wait_until_empty(PATIENCE)
}

fn pods_outlive_the_plugin(kit: &Kit) -> Result<()> {
    let (mut plugin, kubelet) = node(kit, &["0=64M"], &[])?;
    let (stays, ends) = (kubelet.admit("stays", 2)?, kubelet.admit("ends", 1)?);
    let copying = start(kit, &plugin, &stays, "copy_until_error", &[LARGE])?;
    copying.wait_for_stdout("copying", LIMIT)?;
    let daemons = plugin.settled(2, PATIENCE)?;
    plugin.kill();
    kubelet.end_pod("ends");
    // A plugin of its own folder and kubelet, which runs: a second one does not start.
    plugin.launch()?;
    kubelet.wait_for_plugin(1, PATIENCE)?;
    let left = plugin.settled(1, PATIENCE)?;
    ensure!(daemons.contains(&left[0]), "another daemon: {daemons:?}, {left:?}");
    ensure!(!ends.ids.is_empty() && plugin.stop()?.success(), "{}", plugin.log());
    plugin.launch()?;
    kubelet.wait_for_plugin(2, PATIENCE)?;
    // A container of the same pod starts again.
    kubelet.start_container(&stays)?;
    let left = plugin.settled(1, PATIENCE)?;
    ensure!(daemons.contains(&left[0]), "another daemon: {daemons:?}, {left:?}");
    copying.signal(libc::SIGTERM);
    let outcome = copying.finish(PATIENCE)?;
    ensure!(outcome.stderr.is_empty(), "the program had an error\n{outcome}");
    kubelet.end_pod("stays");
    plugin.wait_until_empty(PATIENCE)
}

fn pods_outlive_the_kubelet(kit: &Kit) -> Result<()> {
    let (plugin, kubelet) = node(kit, &["0=64M"], &[])?;
    let pod = kubelet.admit("stays", 2)?;
    let copying = start(kit, &plugin, &pod, "copy_until_error", &[LARGE])?;
    copying.wait_for_stdout("copying", LIMIT)?;
    let daemons = plugin.settled(1, PATIENCE)?;
    let checkpoint = kubelet.kill();
    plugin.wait_until("the plugin notices", PATIENCE, |plugin| {
        plugin.log().contains("no daemon is ended meanwhile")
    })?;
    // A kubelet that has not read its pods yet.
    let kubelet = MockKubelet::start(&plugin.kubelet(), Checkpoint::new())?;
    kubelet.wait_for_plugin(0, PATIENCE)?;
    std::thread::sleep(Duration::from_secs(2));
    let found = plugin.settled(1, PATIENCE)?;
    ensure!(found == daemons, "{found:?} instead of {daemons:?}\n{}", plugin.log());
    drop(kubelet);
    let kubelet = MockKubelet::start(&plugin.kubelet(), checkpoint)?;
    kubelet.wait_for_plugin(0, PATIENCE)?;
    kubelet.start_container(&pod).with_context(|| plugin.log())?;
    let found = plugin.settled(1, PATIENCE)?;
    ensure!(found == daemons, "{found:?} instead of {daemons:?}\n{}", plugin.log());
    let other = kubelet.admit("other", 1)?;
    finish(kit, &plugin, &other, "add_one", &[])?.expect_exit(0)?;
    copying.signal(libc::SIGTERM);
    copying.finish(PATIENCE)?;
    for pod in ["stays", "other"] {
        kubelet.end_pod(pod);
    }
    plugin.wait_until_empty(PATIENCE)
}

fn daemons_are_started_again(kit: &Kit) -> Result<()> {
    let (plugin, kubelet) = node(kit, &["0=64M"], &[])?;
    let pod = kubelet.admit("pod", 1)?;
    let (_, first) = plugin.settled(1, PATIENCE)?[0];
    kill(first);
    let is_other = |plugin: &Plugin| plugin.daemons().iter().any(|(_, pid)| *pid != first);
    plugin.wait_until("another daemon runs", PATIENCE, is_other)?;
    // It may not listen yet; the container of the pod starts again.
    kubelet.start_container(&pod).with_context(|| plugin.log())?;
    finish(kit, &plugin, &pod, "add_one", &[])?.expect_exit(0)?;
    // After a restart of the node there are neither daemons nor files. The kubelet has its checkpoint.
    let ended = plugin.daemons();
    let mut plugin = plugin;
    plugin.kill();
    ended.iter().for_each(|(_, pid)| kill(*pid));
    plugin.wait_until("all processes have ended", PATIENCE, |plugin| plugin.users_of_files().is_empty())?;
    fs::remove_dir_all(plugin.run()).context("Cannot remove the plugin's folder")?;
    plugin.launch()?;
    kubelet.wait_for_plugin(1, PATIENCE)?;
    kubelet.start_container(&pod).with_context(|| plugin.log())?;
    finish(kit, &plugin, &pod, "add_one", &[])?.expect_exit(0)?;
    kubelet.end_pod("pod");
    plugin.wait_until_empty(PATIENCE)
}

/// In each round something begins, ends, or is killed at a random moment: pods, programs, daemons, the plugin and the kubelet.
fn random_kills_leave_nothing(kit: &Kit) -> Result<()> {
    let (rounds, seed) = (effort::rounds(USUAL_ROUNDS)?, effort::seed()?.unwrap_or(56));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut plugin, mut kubelet) = node(kit, &["0=64M", "1=64M"], &[])?;
    let mut pods: Vec<(String, Running)> = Vec::new();
    let mut counts = [0_u64; 6];
    // The registrations before the plugin that runs.
    let mut seen = 0;
    for round in 0..rounds {
        let what = random.usize(..counts.len());
        counts[what] += 1;
        let step = || format!("round {round} of seed {seed}, step {what}");
        match what {
            0 if pods.len() < PODS => {
                kubelet.wait_for_plugin(seen, PATIENCE).with_context(step).with_context(|| plugin.log())?;
                let name = format!("pod-{round}");
                let pod = kubelet.admit(&name, random.usize(1..3)).with_context(step)?;
                let program = start(kit, &plugin, &pod, "copy_until_error", &[]).with_context(step)?;
                pods.push((name, program));
            }
            // A pod ends: its program is killed before the kubelet forgets it.
            0 | 1 if !pods.is_empty() => {
                let (name, program) = pods.swap_remove(random.usize(..pods.len()));
                drop(program);
                kubelet.end_pod(&name);
            }
            2 => {
                if let Some((_, pid)) = random.choice(plugin.daemons()) {
                    kill(pid);
                }
            }
            3 => {
                plugin.kill();
                seen = kubelet.registrations();
                plugin.launch()?;
            }
            4 => {
                kubelet = MockKubelet::start(&plugin.kubelet(), kubelet.kill())?;
                seen = 0;
            }
            _ => std::thread::sleep(Duration::from_millis(random.u64(..300))),
        }
    }
    println!(
        "pods {}, ends {}, daemons {}, plugins {}, kubelets {}",
        counts[0], counts[1], counts[2], counts[3], counts[4]
    );
    for (name, program) in pods {
        drop(program);
        kubelet.end_pod(&name);
    }
    kubelet.wait_for_plugin(seen, PATIENCE)?;
    plugin.wait_until_empty(PATIENCE)
}

fn kill(pid: u32) {
    // SAFETY: plain system call. The process was a daemon of this test a moment ago.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}
