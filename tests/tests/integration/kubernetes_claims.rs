// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The driver of Kubernetes' dynamic resource allocation, with a kubelet and an apiserver of our own, real daemons and programs.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mock_kubelet::{Claim, Claims, Cluster, Pod, injected};
use serde_json::{Value, json};
use vhost_cuda_tests::arbiter::Arbiter;
use vhost_cuda_tests::effort;
use vhost_cuda_tests::plugin::Plugin;
use vhost_cuda_tests::running::{Outcome, Running};
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::LIMIT;

type Test = fn(&Kit) -> Result<()>;

const NODE: &str = "node-1";
const SLICE: &str = "/apis/resource.k8s.io/v1/resourceslices/node-1-vhost-cuda.io";
/// A program that allocates [`LARGE`] bytes needs more than 16 MiB.
const LARGE: &str = "20000000";
const USUAL_ROUNDS: u64 = 15;
/// The maximum time for the driver, its daemons and their workers to begin or to end. They share the processors with other tests.
const PATIENCE: Duration = Duration::from_secs(180);
/// Claims at once in the test of kills, at most.
const CLAIMS: usize = 4;

pub fn collect(suite: &mut Suite) {
    let tests: [(&str, Test); 7] = [
        ("claims_have_memory_and_weight", claims_have_memory_and_weight),
        ("devices_are_published", devices_are_published),
        ("wrong_claims_are_refused", wrong_claims_are_refused),
        ("a_gpu_is_not_given_twice", a_gpu_is_not_given_twice),
        ("claims_outlive_the_driver", claims_outlive_the_driver),
        ("random_kills_leave_no_claim", random_kills_leave_no_claim),
        ("a_daemon_becomes_a_device", a_daemon_becomes_a_device),
    ];
    for (name, test) in tests {
        let name = format!("kubernetes_claims::{name}");
        if suite.kit().stack.plugin().exists() {
            suite.test(name, test);
        } else {
            suite.skip(name, "this bundle has no vhost-cuda-plugin");
        }
    }
}

/// A node: a driver with these GPUs, the apiserver, and the kubelet.
fn node(kit: &Kit, gpus: &[&str], arguments: &[&str]) -> Result<(Plugin, Cluster, Claims)> {
    let arguments = [&["--shard-memory", "16M"], arguments].concat();
    let (plugin, cluster) = Plugin::for_claims(&kit.stack, NODE, gpus, &arguments)?;
    cluster.put("/api/v1/nodes/node-1", r#"{"metadata":{"uid":"node-uid"}}"#)?;
    let kubelet = Claims::new(&plugin.kubelet())?;
    let driver = kubelet.wait_for_driver(PATIENCE).with_context(|| plugin.log())?;
    ensure!(driver == "vhost-cuda.io", "{driver}");
    Ok((plugin, cluster, kubelet))
}

/// The claim with that number.
fn claim(number: u64) -> Claim {
    let uid = format!("5e0a2b1c-0000-4000-8000-{number:012}");
    Claim { namespace: "default".into(), uid, name: format!("claim.{number}") }
}

fn path(claim: &Claim) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", claim.namespace, claim.name)
}

/// A claim as the scheduler leaves it: a GPU's memory and weight, for the alternative `large` of the request `gpu`.
fn allocated(claim: &Claim, gpu: u32, memory: &str, weight: &str) -> Value {
    json!({
        "metadata": { "name": claim.name, "uid": claim.uid },
        "status": { "allocation": { "devices": { "results": [
            { "request": "nic", "driver": "nic.example.org", "pool": "x", "device": "y" },
            {
                "request": "gpu/large", "driver": "vhost-cuda.io", "pool": NODE, "device": format!("gpu-{gpu}"),
                "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
                "consumedCapacity": { "memory": memory, "weight": weight },
            },
        ] } } },
    })
}

/// Allocates a claim at the apiserver, and has it prepared. Returns the container that uses it.
fn prepare(plugin: &Plugin, cluster: &Cluster, kubelet: &Claims, claim: &Claim, memory: &str) -> Result<Pod> {
    cluster.put(&path(claim), allocated(claim, 0, memory, "25").to_string())?;
    container(plugin, kubelet, claim)
}

fn container(plugin: &Plugin, kubelet: &Claims, claim: &Claim) -> Result<Pod> {
    let device = kubelet.prepare_one(claim).with_context(|| plugin.log())?;
    ensure!(device.request_names == ["gpu"] && device.pool_name == NODE, "{device:?}");
    let [id] = &device.cdi_device_ids[..] else { anyhow::bail!("{device:?}") };
    injected(&plugin.cdi(), id)
}

fn start(kit: &Kit, plugin: &Plugin, pod: &Pod, program: &str, arguments: &[&str]) -> Result<Running> {
    Running::start(plugin.command(pod, &kit.programs.get(program)?)?.args(arguments), "")
}

fn finish(kit: &Kit, plugin: &Plugin, pod: &Pod, program: &str, arguments: &[&str]) -> Result<Outcome> {
    start(kit, plugin, pod, program, arguments)?.finish(LIMIT)
}

fn claims_have_memory_and_weight(kit: &Kit) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let socket = arbiter.options(1)?.swap_remove(1);
    let (plugin, cluster, kubelet) = node(kit, &["0=64M"], &["--arbiter", &socket])?;
    let (small, large) = (claim(1), claim(2));
    let pod = prepare(&plugin, &cluster, &kubelet, &small, "16Mi")?;
    let options = plugin.options_of(&pod)?;
    ensure!(options.contains("\nmemory = \"16777216\"\n") && options.contains("\nshare = 25\n"), "{options}");
    finish(kit, &plugin, &pod, "add_one", &[])?.expect_exit(0)?;
    let outcome = finish(kit, &plugin, &pod, "copy_until_error", &[LARGE])?;
    ensure!(outcome.stderr.contains("error 2 (cudaErrorMemoryAllocation)"), "{outcome}");
    let other = prepare(&plugin, &cluster, &kubelet, &large, "48Mi")?;
    let copying = start(kit, &plugin, &other, "copy_until_error", &[LARGE])?;
    copying.wait_for_stdout("copying", LIMIT)?;
    // Again, as after a restart of the kubelet: the same daemon.
    let daemons = plugin.settled(2, PATIENCE)?;
    container(&plugin, &kubelet, &small)?;
    ensure!(plugin.settled(2, PATIENCE)? == daemons, "{:?} instead of {daemons:?}", plugin.daemons());
    // The end is exact: nothing is left when the answer comes.
    kubelet.unprepare(std::slice::from_ref(&small))?;
    let left = plugin.daemons();
    ensure!(left.iter().all(|(name, _)| name.ends_with(&large.uid)), "{left:?}");
    ensure!(fs::read_dir(plugin.cdi())?.count() == 1, "a file of the claim is left");
    kubelet.unprepare(std::slice::from_ref(&small))?;
    copying.signal(libc::SIGTERM);
    let outcome = copying.finish(PATIENCE)?;
    ensure!(outcome.stderr.is_empty(), "the program had an error\n{outcome}");
    kubelet.unprepare(&[large, small])?;
    plugin.wait_until_empty(PATIENCE)
}

fn devices_are_published(kit: &Kit) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let socket = arbiter.options(1)?.swap_remove(1);
    let (mut plugin, cluster, _kubelet) = node(kit, &["0=64M", "GPU-aB=1G"], &["--arbiter", &socket])?;
    let slice = || cluster.get(SLICE);
    plugin.wait_until("the slice is there", PATIENCE, |_| slice().is_some())?;
    let first = slice().context("the slice is not there")?;
    let spec = &first["spec"];
    ensure!(first["metadata"]["ownerReferences"][0]["uid"] == "node-uid", "{first}");
    let pool = json!({ "name": NODE, "generation": 1, "resourceSliceCount": 1 });
    ensure!(spec["driver"] == "vhost-cuda.io" && spec["nodeName"] == NODE && spec["pool"] == pool, "{first}");
    let names: Vec<_> = (0..2).map(|at| spec["devices"][at]["name"].clone()).collect();
    ensure!(names == ["gpu-0", "gpu-ab"], "{first}");
    let device = &spec["devices"][1];
    ensure!(device["allowMultipleAllocations"] == true, "{first}");
    ensure!(device["attributes"]["id"]["string"] == "GPU-aB", "{first}");
    ensure!(device["capacity"]["memory"]["value"] == "1Gi", "{first}");
    ensure!(device["capacity"]["memory"]["requestPolicy"]["default"] == "16Mi", "{first}");
    ensure!(device["capacity"]["weight"]["value"] == "100", "{first}");
    // The kubelet removes slices when it starts.
    cluster.delete(SLICE)?;
    plugin.wait_until("the slice is there again", PATIENCE, |_| slice().is_some())?;
    // A slice of another plugin: it has a GPU that is no longer there.
    plugin.stop()?;
    let mut old = first.clone();
    old["metadata"]["resourceVersion"] = json!("7");
    old["spec"]["devices"][0]["name"] = json!("gpu-7");
    old["spec"]["pool"]["generation"] = json!(41);
    cluster.put(SLICE, old.to_string())?;
    plugin.launch()?;
    let generation =
        |slice: Option<Value>| slice.and_then(|slice| slice["spec"]["pool"]["generation"].as_i64());
    plugin.wait_until("the slice is replaced", PATIENCE, |_| generation(slice()) == Some(42))?;
    let slice = slice().context("the slice is not there")?;
    ensure!(slice["spec"]["devices"] == first["spec"]["devices"], "{slice}");
    ensure!(slice["metadata"]["resourceVersion"] == "7", "{slice}");
    Ok(())
}

fn wrong_claims_are_refused(kit: &Kit) -> Result<()> {
    let (plugin, cluster, kubelet) = node(kit, &["0=64M"], &[])?;
    let claim = claim(1);
    let refused = |claim: &Claim, why: &str| -> Result<()> {
        let answers = kubelet.prepare(std::slice::from_ref(claim)).with_context(|| plugin.log())?;
        let error = answers[&claim.uid].as_ref().err().context("it was prepared")?;
        ensure!(error.contains(why), "`{error}` instead of `{why}`");
        ensure!(error.len() < 2000, "an error of {} bytes", error.len());
        plugin.wait_until_empty(PATIENCE)
    };
    refused(&claim, "does not exist")?;
    let good = allocated(&claim, 0, "16Mi", "25");
    let result = "/status/allocation/devices/results/1";
    let cases: [(&str, &str, Value, &str); 14] = [
        (result, "pool", json!("node-2"), "not of node-1"),
        (result, "device", json!("gpu-1"), "no device `gpu-1`"),
        (result, "device", json!("../../0"), "no device"),
        (result, "driver", json!("other"), "no device of vhost-cuda.io"),
        (result, "request", json!("a\nb"), "not the name of a request"),
        (result, "adminAccess", json!(true), "administrators"),
        (result, "consumedCapacity", json!({ "memory": "1.5Mi" }), "not a whole number"),
        (result, "consumedCapacity", json!({ "memory": "1" }), "not a multiple"),
        (result, "consumedCapacity", json!({ "memory": "65Mi" }), "not a multiple"),
        (result, "consumedCapacity", json!({ "memory": "9999999Ei" }), "not a whole number"),
        (result, "consumedCapacity", json!({ "memory": "1Mi", "weight": "101" }), "not a weight"),
        ("/status", "allocation", Value::Null, "not allocated"),
        ("/metadata", "uid", json!("another"), "another one with its name"),
        (
            "/status/allocation/devices",
            "config",
            json!([{ "opaque": { "driver": "vhost-cuda.io" } }]),
            "parameters",
        ),
    ];
    for (at, key, value, why) in cases {
        let mut object = good.clone();
        object.pointer_mut(at).context("no such place")?[key] = value;
        cluster.put(&path(&claim), object.to_string())?;
        refused(&claim, why).with_context(|| object.to_string())?;
    }
    let mut object = good.clone();
    let results =
        object["status"]["allocation"]["devices"]["results"].as_array_mut().context("no results")?;
    results.push(results[1].clone());
    cluster.put(&path(&claim), object.to_string())?;
    refused(&claim, "several devices")?;
    for object in ["", "[]", "{}", "\u{0}", &"[".repeat(100_000)] {
        cluster.put(&path(&claim), object)?;
        refused(&claim, "no claim")?;
    }
    cluster.put(&path(&claim), vec![b' '; 3 << 20])?;
    refused(&claim, "larger than")?;
    let long = "x".repeat(1 << 20);
    for name in ["", "..", "a/../b", "A", "a?b", "-f", &long] {
        if name != "-f" {
            refused(&Claim { namespace: name.into(), ..claim.clone() }, "not the name of a namespace")?;
        }
        let why = if name == "-f" { "does not exist" } else { "not the name of a claim" };
        refused(&Claim { name: name.into(), ..claim.clone() }, why)?;
    }
    for uid in ["", "..", "../../../../../../../../../../../etcx", &long] {
        refused(&Claim { uid: uid.into(), ..claim.clone() }, "not the UID")?;
        ensure!(kubelet.unprepare(&[Claim { uid: uid.into(), ..claim.clone() }]).is_err(), "{uid:.50}");
    }
    let many: Vec<Claim> = (0..65).map(self::claim).collect();
    ensure!(kubelet.prepare(&many).is_err() && kubelet.unprepare(&many).is_err(), "65 claims at once");
    cluster.set_reachable(false)?;
    refused(&claim, "Unable to connect")?;
    cluster.set_reachable(true)?;
    // Where the cluster gives devices as a whole, the claim has all of it.
    let mut object = good;
    object.pointer_mut(result).context("no result")?["consumedCapacity"] = json!({});
    cluster.put(&path(&claim), object.to_string())?;
    let pod = container(&plugin, &kubelet, &claim)?;
    let options = plugin.options_of(&pod)?;
    ensure!(options.contains("\nmemory = \"67108864\"\n"), "{options}");
    kubelet.unprepare(&[claim])?;
    plugin.wait_until_empty(PATIENCE)
}

fn a_gpu_is_not_given_twice(kit: &Kit) -> Result<()> {
    let (plugin, cluster, kubelet) = node(kit, &["0=64M", "1=64M"], &[])?;
    let claims: Vec<Claim> = (0..3).map(claim).collect();
    for (claim, gpu) in claims.iter().zip([0, 0, 1]) {
        cluster.put(&path(claim), allocated(claim, gpu, "48Mi", "1").to_string())?;
    }
    let answers = kubelet.prepare(&claims).with_context(|| plugin.log())?;
    ensure!(answers[&claims[0].uid].is_ok() && answers[&claims[2].uid].is_ok(), "{answers:?}");
    let error = answers[&claims[1].uid].as_ref().err().context("both were prepared")?;
    ensure!(error.contains("50331648 of them are in use"), "{error}");
    kubelet.unprepare(&claims[..1])?;
    let pod = container(&plugin, &kubelet, &claims[1])?;
    finish(kit, &plugin, &pod, "add_one", &[])?.expect_exit(0)?;
    kubelet.unprepare(&claims)?;
    plugin.wait_until_empty(PATIENCE)
}

fn claims_outlive_the_driver(kit: &Kit) -> Result<()> {
    let (mut plugin, cluster, kubelet) = node(kit, &["0=64M"], &[])?;
    let (stays, ends) = (claim(1), claim(2));
    let pod = prepare(&plugin, &cluster, &kubelet, &stays, "32Mi")?;
    prepare(&plugin, &cluster, &kubelet, &ends, "16Mi")?;
    let copying = start(kit, &plugin, &pod, "copy_until_error", &[LARGE])?;
    copying.wait_for_stdout("copying", LIMIT)?;
    let daemons = plugin.settled(2, PATIENCE)?;
    plugin.kill();
    ensure!(kubelet.unprepare(std::slice::from_ref(&ends)).is_err(), "who has answered?");
    plugin.launch()?;
    kubelet.wait_for_driver(PATIENCE)?;
    ensure!(plugin.settled(2, PATIENCE)? == daemons, "{:?} instead of {daemons:?}", plugin.daemons());
    kubelet.unprepare(&[ends])?;
    // What the driver has prepared, it knows without the apiserver. The kubelet's socket is made again if it is removed.
    cluster.set_reachable(false)?;
    fs::remove_dir_all(plugin.kubelet().join("plugins"))?;
    fs::remove_dir_all(plugin.cdi())?;
    plugin.wait_until("the driver serves again", PATIENCE, |_| kubelet.prepare(&[]).is_ok())?;
    let again = container(&plugin, &kubelet, &stays)?;
    ensure!(again.container == pod.container, "{again:?} instead of {pod:?}");
    ensure!(
        daemons.contains(&plugin.settled(1, PATIENCE)?[0]),
        "another daemon: {daemons:?}, {:?}",
        plugin.daemons()
    );
    // Asked to end, the driver goes away for the kubelet; claims stay.
    ensure!(plugin.stop()?.success(), "{}", plugin.log());
    ensure!(fs::read_dir(plugin.kubelet().join("plugins_registry"))?.count() == 0, "the socket is left");
    copying.signal(libc::SIGTERM);
    let outcome = copying.finish(PATIENCE)?;
    ensure!(outcome.stderr.is_empty(), "the program had an error\n{outcome}");
    // The node restarts: neither daemons nor files. The kubelet has its checkpoint, and prepares the claim again.
    plugin.daemons().iter().for_each(|(_, pid)| kill(*pid));
    plugin.wait_until("all processes have ended", PATIENCE, |plugin| plugin.users_of_files().is_empty())?;
    fs::remove_dir_all(plugin.run())?;
    fs::remove_dir_all(plugin.cdi())?;
    cluster.set_reachable(true)?;
    plugin.launch()?;
    kubelet.wait_for_driver(PATIENCE)?;
    let pod = container(&plugin, &kubelet, &stays)?;
    finish(kit, &plugin, &pod, "add_one", &[])?.expect_exit(0)?;
    kubelet.unprepare(&[stays])?;
    plugin.wait_until_empty(PATIENCE)
}

/// In each round a claim begins or ends, or a daemon or the driver is killed, at a random moment.
fn random_kills_leave_no_claim(kit: &Kit) -> Result<()> {
    let (rounds, seed) = (effort::rounds(USUAL_ROUNDS)?, effort::seed()?.unwrap_or(56));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut plugin, cluster, kubelet) = node(kit, &["0=64M"], &[])?;
    let mut claims: Vec<(Claim, Option<Running>)> = Vec::new();
    for round in 0..rounds {
        let what = random.u32(..5);
        let step = || format!("round {round} of seed {seed}, step {what}");
        match what {
            0 if claims.len() < CLAIMS => {
                kubelet.wait_for_driver(PATIENCE).with_context(step)?;
                let claim = claim(round);
                let pod = prepare(&plugin, &cluster, &kubelet, &claim, "16Mi").with_context(step)?;
                claims.push((
                    claim,
                    Some(start(kit, &plugin, &pod, "copy_until_error", &[]).with_context(step)?),
                ));
            }
            // A pod ends: its program is killed before the kubelet ends its claim. The driver may just have been killed.
            0 | 1 if !claims.is_empty() => {
                let at = random.usize(..claims.len());
                let (claim, program) = &mut claims[at];
                drop(program.take());
                let claim = claim.clone();
                if kubelet.unprepare(std::slice::from_ref(&claim)).is_ok() {
                    claims.retain(|(other, _)| *other != claim);
                }
            }
            2 => {
                if let Some((_, pid)) = random.choice(plugin.daemons()) {
                    kill(pid);
                }
            }
            3 => {
                plugin.kill();
                plugin.launch()?;
            }
            _ => std::thread::sleep(Duration::from_millis(random.u64(..300))),
        }
    }
    kubelet.wait_for_driver(PATIENCE)?;
    for (claim, program) in claims {
        drop(program);
        kubelet.unprepare(&[claim]).with_context(|| plugin.log())?;
    }
    plugin.wait_until_empty(PATIENCE)
}

/// `vhost-cuda-plugin cdi`, for containers without Kubernetes.
fn a_daemon_becomes_a_device(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (socket, cdi) = (folder.path().join("socket"), folder.path().join("cdi"));
    fs::write(&socket, "")?;
    let run = |arguments: &[&str]| -> Result<std::process::Output> {
        let mut command = std::process::Command::new(kit.stack.plugin());
        command.args(["cdi", "vm1", "--cdi"]).arg(&cdi).args(arguments);
        command.arg("--guest-libraries").arg(kit.stack.guest_libraries());
        Ok(command.output()?)
    };
    let printed = run(&["--socket", &socket.to_string_lossy()])?;
    ensure!(printed.status.success() && printed.stdout == b"vhost-cuda.io/share=vm1\n", "{printed:?}");
    let pod = injected(&cdi, "vhost-cuda.io/share=vm1")?;
    let inside = pod.variable("VIRTIO_CUDA_SOCKET").context("no socket")?;
    let mount = pod.container.mounts.iter().find(|mount| mount.container_path == inside);
    ensure!(mount.is_some_and(|mount| socket.as_os_str() == &*mount.host_path), "{pod:?}");
    for _ in 0..2 {
        ensure!(run(&["--remove"])?.status.success() && fs::read_dir(&cdi)?.count() == 0, "it is left");
    }
    for wrong in ["/nowhere/socket", "socket"] {
        ensure!(!run(&["--socket", wrong])?.status.success(), "{wrong}");
    }
    Ok(())
}

fn kill(pid: u32) {
    // SAFETY: plain system call. The process was a daemon of this test a moment ago.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}
