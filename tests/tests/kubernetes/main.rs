// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The device plugin in a cluster of Kubernetes 1.20, with real daemons and the emulator. All tests share the cluster.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::arbiter::Arbiter;
use vhost_cuda_tests::cluster::{Cluster, KUBELET, enter_namespaces};
use vhost_cuda_tests::image;
use vhost_cuda_tests::metrics::{page, values};
use vhost_cuda_tests::plugin::Plugin;
use vhost_cuda_tests::suite::{self, Kit, Suite};

const RESOURCE: &str = "vhost-cuda.io/shard";
/// The GPUs of the node, and the memory of a shard: four shards each.
const GPUS: [&str; 2] = ["0=64M", "1=64M"];
const SHARD: [&str; 2] = ["--shard-memory", "16M"];
/// Shards of the node.
const SHARDS: u64 = 8;
/// The maximum time for daemons to begin or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pods one after the other.
const PODS: usize = 50;
/// Seconds for which two pods are charged before their shares are compared. How long that takes depends on what else the
/// processors do, the shares do not.
const START: f64 = 3.0;
const COMPETITION: f64 = 12.0;
/// The seconds for which a pod is charged while others compete.
const CONTENDED: &str = "vhost_cuda_gpu_contended_seconds_total";

/// The node with its plugin.
struct Site {
    cluster: Cluster,
    plugin: Plugin,
    _arbiter: Arbiter,
}

type Test = fn(&Kit, &mut Site) -> Result<()>;

fn main() -> ExitCode {
    // A list of tests needs no cluster.
    if !env::args().any(|argument| argument == "--list")
        && let Err(error) = enter_namespaces()
    {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    suite::run_in_order("kubernetes", |suite| {
        collect(suite);
        Ok(())
    })
}

fn collect(suite: &mut Suite) {
    let site = Arc::new(Mutex::new(None));
    let tests: [(&str, Test); 8] = [
        ("a_pod_runs_a_program", a_pod_runs_a_program),
        ("two_pods_share_a_gpu_by_weight", two_pods_share_a_gpu_by_weight),
        ("too_many_shards_are_refused_with_an_event", too_many_shards_are_refused_with_an_event),
        ("fifty_pods_one_after_the_other", fifty_pods_one_after_the_other),
        ("a_pod_outlives_the_plugin", a_pod_outlives_the_plugin),
        ("a_pod_outlives_the_kubelet", a_pod_outlives_the_kubelet),
        ("the_manifests_are_valid", the_manifests_are_valid),
        ("nothing_is_left", nothing_is_left),
    ];
    for (name, test) in tests {
        let site = site.clone();
        suite.test(name, move |kit| {
            let mut site = site.lock().unwrap_or_else(PoisonError::into_inner);
            let site = match &mut *site {
                Some(site) => site,
                empty => empty.insert(Site::start(kit)?),
            };
            test(kit, site).with_context(|| site.plugin.log())
        });
    }
}

impl Site {
    fn start(kit: &Kit) -> Result<Self> {
        let programs = kit.stack.kubernetes();
        ensure!(
            programs.exists(),
            "{} is missing: run cargo xtask test --level kubernetes",
            programs.display()
        );
        let arbiter = Arbiter::start(&kit.stack)?;
        let socket = arbiter.options(1)?.swap_remove(1);
        let plugin = Plugin::start(&kit.stack, &GPUS, &[&SHARD[..], &["--arbiter", &socket]].concat())?;
        let mut contents: Vec<PathBuf> =
            ["libcuda.so.1", "libcudart.so.13"].map(|name| kit.stack.guest_libraries().join(name)).into();
        for program in ["add_one", "compete", "copy_until_error"] {
            contents.push(kit.programs.get(program)?);
        }
        let started = Instant::now();
        let cluster = Cluster::start(&programs.canonicalize()?, &plugin.kubelet(), &contents)?;
        println!("the node is ready after {:.0?}", started.elapsed());
        let site = Self { cluster, plugin, _arbiter: arbiter };
        site.wait_for_shards()?;
        Ok(site)
    }

    fn wait_for_shards(&self) -> Result<()> {
        let has_shards = |cluster: &Cluster| cluster.allocatable(RESOURCE) == Some(SHARDS);
        self.cluster.wait("the node has its shards", has_shards).with_context(|| self.plugin.log())
    }

    /// Creates a pod that has `shards` and runs a command.
    fn create(&self, pod: &str, shards: u64, command: &str) -> Result<()> {
        self.cluster.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}}}\nspec:\n  restartPolicy: Never\n  hostNetwork: true\n  \
             terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {image}\n    \
             command: [sh, -c, \"{command}\"]\n    resources: {{limits: {{{RESOURCE}: {shards}}}}}\n",
            image = image::NAME
        ))
    }

    fn wait_for_phase(&self, pod: &str, phase: &str) -> Result<()> {
        let reached = |cluster: &Cluster| [phase, "Failed"].contains(&&*cluster.phase(pod));
        self.cluster.wait(&format!("{pod} is {phase}"), reached)?;
        let now = self.cluster.phase(pod);
        ensure!(now == phase, "{pod} is {now}\n{}\n{}", self.logs(pod), self.cluster.events(pod));
        Ok(())
    }

    fn wait_for_output(&self, pod: &str, text: &str) -> Result<()> {
        self.wait_for_phase(pod, "Running")?;
        self.cluster.wait(&format!("{pod} prints {text}"), |_| self.logs(pod).contains(text))
    }

    fn logs(&self, pod: &str) -> String {
        self.cluster.kubectl(&["logs", pod]).unwrap_or_default()
    }

    /// Deletes a pod, and waits until its daemon has ended.
    fn delete(&self, pod: &str, daemons: usize) -> Result<()> {
        self.cluster.kubectl(&["delete", "pod", pod])?;
        self.wait_for_daemons(daemons)
    }

    fn wait_for_daemons(&self, count: usize) -> Result<()> {
        let what = format!("there are {count} daemons");
        self.plugin.wait_until(&what, PATIENCE, |plugin| plugin.daemons().len() == count)
    }
}

fn a_pod_runs_a_program(_: &Kit, site: &mut Site) -> Result<()> {
    site.create("one", 2, "env; ls -l /run/vhost-cuda; add_one && echo right")?;
    site.wait_for_phase("one", "Succeeded")?;
    let printed = site.logs("one");
    for text in
        ["VIRTIO_CUDA_SOCKET=/run/vhost-cuda/vhost.sock", "LD_LIBRARY_PATH=/usr/lib/vhost-cuda", "right"]
    {
        ensure!(printed.contains(text), "no `{text}` in\n{printed}");
    }
    // The pod has ended, and still exists.
    site.wait_for_daemons(0)?;
    site.create("memory", 1, "copy_until_error 20000000")?;
    site.cluster.wait("it has ended", |cluster| cluster.phase("memory") == "Failed")?;
    let printed = site.logs("memory");
    ensure!(printed.contains("error 2 (cudaErrorMemoryAllocation)"), "{printed}");
    site.delete("memory", 0)?;
    site.delete("one", 0)
}

fn two_pods_share_a_gpu_by_weight(_: &Kit, site: &mut Site) -> Result<()> {
    for (pod, shards) in [("three", 3), ("one", 1)] {
        site.create(pod, shards, "exec compete 3600 long")?;
        site.wait_for_phase(pod, "Running")?;
    }
    for pod in ["three", "one"] {
        site.wait_for_output(pod, "\n")?;
    }
    let mut names: Vec<String> = site.plugin.daemons().into_iter().map(|(name, _)| name).collect();
    names.sort();
    ensure!(names == ["0-0", "0-3"], "not one GPU: {names:?}");
    // The pod that was created first has the first shards.
    let charged = || -> Result<[f64; 2]> {
        let seconds = |name| -> Result<f64> {
            Ok(values(&page(&site.plugin.metrics(name), "/metrics")?, CONTENDED).iter().sum())
        };
        Ok([seconds("0-0")?, seconds("0-3")?])
    };
    let wait_for = |total: f64| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let [three, one] = charged()?;
            if three + one > total {
                return Ok([three, one]);
            }
            ensure!(Instant::now() < deadline, "charged within {PATIENCE:?}: {three:.2} s and {one:.2} s");
            thread::sleep(Duration::from_millis(100));
        }
    };
    // Kernels are slow until the emulator has translated them.
    let before = wait_for(START)?;
    let after = wait_for(START + COMPETITION)?;
    let [three, one] = [0, 1].map(|at| after[at] - before[at]);
    println!("GPU time with 3 shards and with 1, in competition: {three:.2} s and {one:.2} s");
    // The level `integration` compares shares closely (`shares_follow_weights`). Here etcd, apiserver and others take processors
    // from the emulator, so that the pod with more shards does not always have work ready, and the other one takes its turns.
    ensure!((1.2..4.5).contains(&(three / one)), "{three:.2} s and {one:.2} s for weights 3:1");
    site.delete("three", 1)?;
    site.delete("one", 0)
}

fn too_many_shards_are_refused_with_an_event(_: &Kit, site: &mut Site) -> Result<()> {
    // More than the node has: the scheduler.
    site.create("nine", 9, "true")?;
    let is_told = |cluster: &Cluster| cluster.events("nine").contains(&format!("Insufficient {RESOURCE}"));
    site.cluster.wait("the event of the scheduler", is_told)?;
    // More than a GPU has: the plugin.
    site.create("five", 5, "true")?;
    site.cluster.wait("the pod has failed", |cluster| cluster.phase("five") == "Failed")?;
    let said = "The 5 shards are of several GPUs";
    site.cluster.wait("the event of the plugin", |cluster| cluster.events("five").contains(said))?;
    for pod in ["nine", "five"] {
        println!("{}", site.cluster.events(pod).trim());
        site.delete(pod, 0)?;
    }
    Ok(())
}

fn fifty_pods_one_after_the_other(_: &Kit, site: &mut Site) -> Result<()> {
    let started = Instant::now();
    for number in 0..PODS {
        let pod = format!("pod-{number}");
        site.create(&pod, 1 + number as u64 % 4, "add_one")?;
        site.wait_for_phase(&pod, "Succeeded")?;
        site.cluster.kubectl(&["delete", "pod", "--wait=false", &pod])?;
    }
    println!("{PODS} pods in {:.0?}", started.elapsed());
    site.wait_for_daemons(0)
}

fn a_pod_outlives_the_plugin(_: &Kit, site: &mut Site) -> Result<()> {
    site.create("stays", 2, "copy_until_error")?;
    site.wait_for_output("stays", "copying")?;
    let daemons = site.plugin.daemons();
    site.plugin.kill();
    // The kubelet notices at once, and again when the new one has registered.
    let is_gone = |cluster: &Cluster| cluster.allocatable(RESOURCE) == Some(0);
    site.cluster.wait("the node has no shards", is_gone)?;
    site.plugin.launch()?;
    site.wait_for_shards()?;
    ensure!(site.plugin.daemons() == daemons, "{:?} instead of {daemons:?}", site.plugin.daemons());
    site.create("next", 1, "add_one")?;
    site.wait_for_phase("next", "Succeeded")?;
    ensure!(site.cluster.phase("stays") == "Running", "it has ended: {}", site.logs("stays"));
    site.delete("next", 1)?;
    site.delete("stays", 0)
}

fn a_pod_outlives_the_kubelet(_: &Kit, site: &mut Site) -> Result<()> {
    site.create("stays", 2, "copy_until_error")?;
    site.wait_for_output("stays", "copying")?;
    let daemons = site.plugin.daemons();
    let registered = |plugin: &Plugin| plugin.log().matches("registered vhost-cuda.io").count();
    let before = registered(&site.plugin);
    site.cluster.restart_kubelet()?;
    site.plugin.wait_until("it registers again", PATIENCE, |plugin| registered(plugin) > before)?;
    site.wait_for_shards()?;
    site.create("next", 1, "add_one")?;
    site.wait_for_phase("next", "Succeeded")?;
    ensure!(site.plugin.daemons().contains(&daemons[0]), "{:?} without {daemons:?}", site.plugin.daemons());
    ensure!(site.cluster.phase("stays") == "Running", "it has ended: {}", site.logs("stays"));
    site.delete("next", 1)?;
    site.delete("stays", 0)
}

/// The apiserver checks them against its schema.
fn the_manifests_are_valid(_: &Kit, site: &mut Site) -> Result<()> {
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes");
    // A server's dry run does not create the namespace in which the other objects are.
    site.cluster.apply(&fs::read_to_string(format!("{manifests}/namespace.yaml"))?)?;
    print!("{}", site.cluster.kubectl(&["apply", "--dry-run=server", "--validate=true", "-k", manifests])?);
    let example = format!("{manifests}/examples/pod.yaml");
    print!("{}", site.cluster.kubectl(&["apply", "--dry-run=server", "--validate=true", "-f", &example])?);
    Ok(())
}

fn nothing_is_left(_: &Kit, site: &mut Site) -> Result<()> {
    let pods = site.cluster.kubectl(&["get", "pods", "-o", "name"])?;
    ensure!(pods.is_empty(), "{pods}");
    ensure!(fs::exists(KUBELET)?, "the kubelet has no folder");
    site.plugin.wait_until_empty(PATIENCE)
}
