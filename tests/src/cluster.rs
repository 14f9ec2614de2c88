// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A cluster of Kubernetes with one node, on 127.0.0.1: etcd, apiserver, controller manager, scheduler, containerd and kubelet.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::image;
use crate::running::{Outcome, run};

/// Time limit for each part to answer.
const PATIENCE: Duration = Duration::from_secs(180);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(300);
/// The name and the address of the node.
pub const NODE: &str = "127.0.0.1";
/// The folder that is compiled into the kubelet, for sockets of plugins.
pub const KUBELET: &str = "/var/lib/kubelet";
/// The kubelet's folders of logs, which are compiled into it.
const LOGS: [&str; 2] = ["/var/log/pods", "/var/log/containers"];
/// The parent of the control groups of containerd's containers.
const CGROUP: &str = "k8s.io";

/// A running cluster. It belongs to namespaces of its own ([`enter_namespaces`]), and ends with them.
pub struct Cluster {
    programs: PathBuf,
    folder: TempDir,
    parts: Vec<Child>,
    kubelet: Child,
}

/// Executes this program again as the first process of namespaces of its own (processes, mounts, network), where it goes on.
/// All that it starts ends with it.
///
/// Errors: this user may not make namespaces.
pub fn enter_namespaces() -> Result<()> {
    if std::process::id() == 1 {
        for command in ["mount --make-rprivate /", "ip link set lo up"] {
            let mut words = command.split(' ');
            // Not every machine has `ip`. The other one is Debian's busybox, which all builds need.
            let program = words.next().unwrap_or_default();
            let mut with_busybox = Command::new("busybox");
            with_busybox.arg(program).args(words.clone());
            let done = Command::new(program).args(words).status();
            if !done.is_ok_and(|status| status.success()) {
                let status = with_busybox.status().with_context(|| format!("Cannot run {command}"))?;
                ensure!(status.success(), "{command}: {status}");
            }
        }
        return Ok(());
    }
    // Files can be removed when containers and their mounts have ended with the namespaces.
    let folder = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
    let made: Vec<&str> =
        [KUBELET].into_iter().chain(LOGS).filter(|place| !Path::new(place).exists()).collect();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).env("TMPDIR", folder.path());
    let status = unshare.status().context("Cannot run unshare")?;
    remove_groups();
    for place in made {
        // A place for a mount, which was empty below it.
        let _ = fs::remove_dir(place);
    }
    folder.close().context("Cannot remove the cluster's files")?;
    std::process::exit(status.code().unwrap_or(1));
}

/// Removes the control groups of containers that have ended. Groups with processes stay.
fn remove_groups() {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    for group in hierarchies.chain([root.to_path_buf()]).map(|hierarchy| hierarchy.join(CGROUP)) {
        for container in fs::read_dir(&group).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(container.path());
        }
        let _ = fs::remove_dir(group);
    }
}

impl Cluster {
    /// Starts one from `programs` (`cargo xtask setup --only kubernetes`), with `kubelet` as the kubelet's folder. Returns when
    /// the node is ready.
    pub fn start(programs: &Path, kubelet: &Path, contents: &[PathBuf]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-cluster-").tempdir()?;
        let at = folder.path();
        for name in ["log", "cni"] {
            fs::create_dir(at.join(name))?;
        }
        bind(kubelet, KUBELET)?;
        for logs in LOGS {
            bind(&at.join(logs.trim_start_matches('/')), logs)?;
        }
        for (name, text) in files(programs, at) {
            fs::write(at.join(name), text)?;
        }
        let key = ["genrsa", "-out"];
        let made = run(Command::new("openssl").args(key).arg(at.join("sa.key")), "", PATIENCE)?;
        made.expect_exit(0)?;
        let mut parts = vec![part(programs, at, "etcd", &etcd(at))?];
        parts.push(part(programs, at, "kube-apiserver", &apiserver(at))?);
        parts.push(part(
            programs,
            at,
            "containerd",
            &["--config".into(), text(&at.join("containerd.toml"))],
        )?);
        let kubelet = part(programs, at, "kubelet", &kubelet_arguments(at))?;
        let mut cluster = Self { programs: programs.to_path_buf(), folder, parts, kubelet };
        cluster.wait("the apiserver is ready", |cluster| {
            cluster.kubectl(&["get", "--raw", "/readyz"]).is_ok()
        })?;
        for name in ["kube-controller-manager", "kube-scheduler"] {
            let started = part(programs, cluster.folder.path(), name, &controller(cluster.folder.path()))?;
            cluster.parts.push(started);
        }
        let image = image::write(&cluster.folder.path().join("image"), programs, contents)?;
        let socket = text(&cluster.folder.path().join("containerd.sock"));
        let import = ["-a", &socket, "-n", "k8s.io", "image", "import", &text(&image)].map(str::to_owned);
        cluster.wait("containerd has the image", |cluster| {
            let mut ctr = Command::new(cluster.programs.join("root/usr/bin/ctr"));
            run(ctr.args(&import), "", PATIENCE).is_ok_and(|outcome| outcome.expect_exit(0).is_ok())
        })?;
        cluster.wait("the node is ready", |cluster| {
            cluster.kubectl(&["get", "nodes"]).is_ok_and(|nodes| nodes.contains(" Ready "))
        })?;
        Ok(cluster)
    }

    /// Runs kubectl, and returns what it prints.
    ///
    /// Errors: its exit status is not 0.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let outcome = self.try_kubectl(arguments, "")?;
        outcome.expect_exit(0)?;
        Ok(outcome.stdout)
    }

    /// Gives text to `kubectl apply`.
    pub fn apply(&self, text: &str) -> Result<()> {
        self.try_kubectl(&["apply", "-f", "-"], text)?.expect_exit(0)
    }

    fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<Outcome> {
        let mut command = Command::new(self.programs.join("root/usr/bin/kubectl"));
        command.env("KUBECONFIG", self.folder.path().join("kubeconfig")).env("HOME", self.folder.path());
        run(command.args(arguments), input, PATIENCE)
    }

    /// The number of devices of a resource that the node has for pods.
    pub fn allocatable(&self, resource: &str) -> Option<u64> {
        let path = format!("jsonpath={{.status.allocatable.{}}}", resource.replace('.', "\\."));
        self.kubectl(&["get", "node", NODE, "-o", &path]).ok()?.parse().ok()
    }

    /// The phase of a pod, as `Running`.
    pub fn phase(&self, pod: &str) -> String {
        self.kubectl(&["get", "pod", pod, "-o", "jsonpath={.status.phase}"]).unwrap_or_default()
    }

    /// The events of a pod.
    pub fn events(&self, pod: &str) -> String {
        let of = format!("involvedObject.name={pod}");
        let form = "custom-columns=REASON:.reason,MESSAGE:.message";
        self.kubectl(&["get", "events", "--field-selector", &of, "-o", form]).unwrap_or_default()
    }

    /// Kills the kubelet and starts another one.
    pub fn restart_kubelet(&mut self) -> Result<()> {
        self.kubelet.kill()?;
        self.kubelet.wait()?;
        let at = self.folder.path();
        self.kubelet = part(&self.programs, at, "kubelet", &kubelet_arguments(at))?;
        Ok(())
    }

    /// Waits until `condition` holds.
    pub fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            if Instant::now() > deadline {
                bail!("not within {PATIENCE:?}: {what}\n{}", self.last_words());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The last messages of each part, and the pods.
    fn last_words(&self) -> String {
        let mut words = self.kubectl(&["get", "pods,events"]).unwrap_or_default();
        for log in fs::read_dir(self.folder.path().join("log")).into_iter().flatten().flatten() {
            let text = fs::read(log.path()).unwrap_or_default();
            let end = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned();
            words += &format!("--- {}\n{end}\n", log.file_name().display());
        }
        words
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for part in self.parts.iter_mut().chain([&mut self.kubelet]) {
            let _ = part.kill();
            let _ = part.wait();
        }
    }
}

/// Starts a program of the cluster, which logs into a file.
fn part(programs: &Path, folder: &Path, name: &str, arguments: &[String]) -> Result<Child> {
    let places = ["bin", "root/usr/bin", "root/usr/sbin"].map(|place| programs.join(place));
    let program = places.iter().map(|place| place.join(name)).find(|program| program.exists());
    let program = program.with_context(|| format!("{} has no {name}", programs.display()))?;
    let log = File::options().create(true).append(true).open(folder.join("log").join(name))?;
    let path = std::env::join_paths(
        places.iter().map(PathBuf::as_path).chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(Path::new)),
    )?;
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("Cannot start {name}"))
}

fn bind(from: &Path, to: &str) -> Result<()> {
    fs::create_dir_all(from)?;
    fs::create_dir_all(to)?;
    let outcome = run(Command::new("mount").arg("--bind").arg(from).arg(to), "", PATIENCE)?;
    outcome.expect_exit(0)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn etcd(at: &Path) -> Vec<String> {
    let client = "http://127.0.0.1:2379";
    vec![
        format!("--data-dir={}", at.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
    ]
}

fn apiserver(at: &Path) -> Vec<String> {
    let key = at.join("sa.key");
    vec![
        "--etcd-servers=http://127.0.0.1:2379".into(),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--cert-dir={}", at.join("certificates").display()),
        format!("--token-auth-file={}", at.join("tokens").display()),
        "--authorization-mode=AlwaysAllow".into(),
        "--allow-privileged=true".into(),
        "--disable-admission-plugins=ServiceAccount".into(),
        format!("--service-account-key-file={}", key.display()),
        format!("--service-account-signing-key-file={}", key.display()),
        "--service-account-issuer=https://cluster.test".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--endpoint-reconciler-type=none".into(),
    ]
}

fn controller(at: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", at.join("kubeconfig").display()),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        "--port=0".into(),
        format!("--cert-dir={}", at.join("certificates").display()),
    ]
}

fn kubelet_arguments(at: &Path) -> Vec<String> {
    vec![
        format!("--config={}", at.join("kubelet.yaml").display()),
        format!("--kubeconfig={}", at.join("kubeconfig").display()),
        "--container-runtime=remote".into(),
        format!("--container-runtime-endpoint=unix://{}", at.join("containerd.sock").display()),
        format!("--hostname-override={NODE}"),
        format!("--cert-dir={}", at.join("certificates").display()),
    ]
}

/// The configuration: names and contents of files. The settings of containerd and of the kubelet serve machines whose control
/// groups are a container's, without CAP_SYS_RESOURCE.
fn files(programs: &Path, at: &Path) -> [(&'static str, String); 5] {
    let (here, plugins) = (at.display(), programs.join("root/usr/lib/cni"));
    let plugins = plugins.display();
    [
        ("tokens", "secret,admin,admin,system:masters\n".into()),
        (
            "kubeconfig",
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{name: test, cluster: {server: \"https://127.0.0.1:6443\", insecure-skip-tls-verify: true}}]\n\
             users: [{name: admin, user: {token: secret}}]\n\
             contexts: [{name: test, context: {cluster: test, user: admin}}]\n"
                .into(),
        ),
        (
            "cni/10-loopback.conflist",
            r#"{"cniVersion": "0.4.0", "name": "loopback", "plugins": [{"type": "loopback"}]}"#.into(),
        ),
        (
            "containerd.toml",
            format!(
                "version = 2\nroot = \"{here}/containerd\"\nstate = \"{here}/containerd-state\"\n\
                 [grpc]\naddress = \"{here}/containerd.sock\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\nsandbox_image = \"{image}\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"{plugins}\"\nconf_dir = \"{here}/cni\"\n",
                image = image::NAME
            ),
        ),
        (
            "kubelet.yaml",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\naddress: 127.0.0.1\n\
             cgroupsPerQOS: false\nenforceNodeAllocatable: []\ncgroupDriver: cgroupfs\nfailSwapOn: false\n\
             featureGates: {LocalStorageCapacityIsolation: false}\n\
             authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\n\
             authorization: {mode: AlwaysAllow}\nevictionHard: {memory.available: 1Mi}\nsyncFrequency: 5s\n\
             imageGCHighThresholdPercent: 100\n"
                .into(),
        ),
    ]
}
