// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A device plugin or DRA driver of Kubernetes of a test's own, with the folder of a kubelet.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mock_kubelet::{Cluster, Pod};
use tempfile::TempDir;
use wait_timeout::ChildExt;

use crate::stack::{SOCKET_VARIABLE, Stack};

/// Time limit for the plugin to end when asked.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// The time without a pod after which its daemon ends, in seconds.
const GRACE: &str = "1";
/// Options of all daemons. Containers of tests have no user but root.
const DAEMON_OPTIONS: &str = "allow-root = true\ndevice = \"emulated\"\n";

/// A plugin; killed with the value, and its daemons with it.
pub struct Plugin {
    child: Option<Child>,
    program: PathBuf,
    stack: Stack,
    arguments: Vec<String>,
    devices: usize,
    folder: TempDir,
}

impl Plugin {
    /// Starts one with these GPUs, as `0=64M`, and further arguments. It does not wait for a kubelet.
    pub fn start(stack: &Stack, gpus: &[&str], arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
        Self::start_in(folder, stack, gpus, &[&["--grace", GRACE], arguments].concat())
    }

    /// Starts one for the claims of a node, with an apiserver.
    pub fn for_claims(
        stack: &Stack,
        node: &str,
        gpus: &[&str],
        arguments: &[&str],
    ) -> Result<(Self, Cluster)> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
        let cluster = Cluster::new(&folder.path().join("cluster"))?;
        let (kubectl, cdi) = (cluster.kubectl(), folder.path().join("cdi"));
        let own = ["--dra", node, "--kubectl", &kubectl.to_string_lossy(), "--cdi", &cdi.to_string_lossy()];
        Ok((Self::start_in(folder, stack, gpus, &[&own, arguments].concat())?, cluster))
    }

    fn start_in(folder: TempDir, stack: &Stack, gpus: &[&str], arguments: &[&str]) -> Result<Self> {
        fs::write(folder.path().join("options.toml"), DAEMON_OPTIONS)?;
        let arguments = gpus.iter().flat_map(|gpu| ["--gpu", gpu]).chain(arguments.iter().copied());
        let mut plugin = Self {
            child: None,
            program: stack.plugin(),
            stack: stack.clone(),
            arguments: arguments.map(str::to_owned).collect(),
            devices: gpus.len(),
            folder,
        };
        plugin.launch()?;
        Ok(plugin)
    }

    /// Starts another one in the place of one that was killed or stopped.
    pub fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.path().join("plugin.log"))?;
        let mut command = Command::new(&self.program);
        command.arg("--kubelet").arg(self.kubelet()).arg("--folder").arg(self.run());
        command.arg("--daemon").arg(self.stack.daemon());
        command.arg("--daemon-options").arg(self.folder.path().join("options.toml"));
        command.arg("--guest-libraries").arg(self.stack.guest_libraries());
        command.args(&self.arguments);
        command.env("VHOST_CUDA_EMULATOR", self.stack.emulator());
        command.env("CUDA_EMULATOR_DEVICES", self.devices.to_string());
        command.env_remove("CUDA_VISIBLE_DEVICES");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child =
            Some(command.spawn().with_context(|| format!("Cannot start {}", self.program.display()))?);
        Ok(())
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks it to end and answers how it did.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let mut child = self.child.take().context("The plugin does not run")?;
        // SAFETY: plain system call; the child is not reaped before the wait below.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        let ended = child.wait_timeout(PATIENCE)?;
        ended.with_context(|| format!("The plugin ignores SIGTERM\n{}", self.log()))
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let child = self.child.as_mut().context("The plugin does not run")?;
        child.wait_timeout(PATIENCE)?.context("The plugin does not end")
    }

    /// The folder for the kubelet.
    pub fn kubelet(&self) -> PathBuf {
        self.folder.path().join("kubelet")
    }

    /// The folder of the plugin's daemons.
    pub fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// The folder of files of the Container Device Interface.
    pub fn cdi(&self) -> PathBuf {
        self.folder.path().join("cdi")
    }

    /// The messages of all plugins in this place.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("plugin.log")).unwrap_or_default()
    }

    /// The file with the options of a pod's daemon.
    pub fn options_of(&self, pod: &Pod) -> Result<String> {
        let socket = socket(pod)?;
        let folder = socket.parent().and_then(Path::parent).context("The socket is in no folder")?;
        Ok(fs::read_to_string(folder.join("daemon.toml"))?)
    }

    /// The process ids of the daemons, by the names of their shards.
    pub fn daemons(&self) -> Vec<(String, u32)> {
        let run = self.run();
        let daemon = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            let options = words.iter().skip_while(|word| *word != "--config").nth(1)?;
            let name = Path::new(&**options).strip_prefix(&run).ok()?.parent()?.to_str()?.to_owned();
            Some((name, pid))
        };
        pids().filter_map(daemon).collect()
    }

    /// The daemons, when there are so many: a child that has not executed its own program yet looks like a daemon.
    pub fn settled(&self, count: usize, limit: Duration) -> Result<Vec<(String, u32)>> {
        let found = RefCell::new(Vec::new());
        self.wait_until("the daemons have settled", limit, |plugin| {
            *found.borrow_mut() = plugin.daemons();
            found.borrow().len() == count
        })?;
        let mut daemons = found.into_inner();
        daemons.sort();
        Ok(daemons)
    }

    /// The socket of the metrics of the daemon with that name.
    pub fn metrics(&self, name: &str) -> PathBuf {
        self.run().join(name).join("metrics.sock")
    }

    /// The processes that have files of the plugin's daemons open: daemons and workers.
    pub fn users_of_files(&self) -> Vec<(u32, PathBuf)> {
        let run = self.run();
        let user = |pid: u32| {
            let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
            let mut links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
            Some((pid, links.find(|file| file.starts_with(&run) && *file != run.join("lock"))?))
        };
        pids().filter_map(user).collect()
    }

    /// Waits until no daemon, worker or file of a pod is left.
    pub fn wait_until_empty(&self, limit: Duration) -> Result<()> {
        self.wait_until("nothing is left", limit, |plugin| {
            let files = |folder| fs::read_dir(folder).map_or(0, |files| files.count());
            plugin.daemons().is_empty()
                && plugin.users_of_files().is_empty()
                && (files(plugin.run()), files(plugin.cdi())) == (1, 0)
        })
    }

    /// Waits until `condition` holds.
    pub fn wait_until(&self, what: &str, limit: Duration, condition: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !condition(self) {
            ensure!(
                Instant::now() < deadline,
                "not within {limit:?}: {what}; daemons {:?}, processes {:?}\n{}",
                self.daemons(),
                self.users_of_files(),
                self.log()
            );
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// A command in a pod: it has the environment and the files that the plugin gives to the container, at the node's paths.
    pub fn command(&self, pod: &Pod, program: &Path) -> Result<Command> {
        let libraries = pod.variable("LD_LIBRARY_PATH").context("The container has no LD_LIBRARY_PATH")?;
        let library = pod.on_node(&format!("{libraries}/libcuda.so.1")).context("It has no libraries")?;
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", library.parent().context("It is in no folder")?);
        command.env(SOCKET_VARIABLE, socket(pod)?);
        Ok(command)
    }
}

/// The socket of a pod, on the node.
fn socket(pod: &Pod) -> Result<PathBuf> {
    let socket = pod.variable(SOCKET_VARIABLE).context("The container has no socket")?;
    pod.on_node(socket).with_context(|| format!("{socket} is in no mount of {pod:?}"))
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.kill();
        for (_, pid) in self.daemons() {
            // SAFETY: plain system call. The process has the command line of a daemon in a folder of this test.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        }
    }
}
