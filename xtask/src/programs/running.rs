// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::table::Program;
use crate::build::Stack;
use crate::conformance::{Way, execute};
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::process::last_line;
use crate::run::passed_environment;
use crate::virtio_user::VirtioUser;
use crate::vm::{GuestCommand, Vm, VmConfig};

/// Asks Python where the packages of NVIDIA's libraries are.
const FIND_LIBRARIES: &str = "import glob, os\ntry:\n    import nvidia\n    for path in nvidia.__path__:\n        \
                              print('\\n'.join(sorted(glob.glob(os.path.join(path, '*', 'lib')))))\n\
                              except ImportError:\n    pass";

/// Prints those of some modules that Python has.
const FIND_MODULES: &str = "import importlib.util, sys\n\
                            for name in sys.argv[1:]:\n    try:\n        \
                            if importlib.util.find_spec(name): print(name)\n    \
                            except ImportError:\n        pass";

/// Daemon and guest, ready for programs.
pub struct Runner {
    paths: Paths,
    python: PathBuf,
    folder: PathBuf,
    limit: Duration,
    beside: Option<VirtioUser>,
    vm: Option<Vm>,
}

/// Options of a run.
pub struct Plan<'a> {
    /// The GPU of our ways.
    pub device: &'a str,
    /// The Python that runs the programs.
    pub python: &'a Path,
    /// The folders of NVIDIA's libraries; empty: those of Python.
    pub libraries: &'a [PathBuf],
    /// The folder of the programs.
    pub folder: &'a Path,
    /// Time limit per program.
    pub limit: Duration,
    /// The guest's memory.
    pub memory: &'a str,
    /// Its processors.
    pub cpus: u32,
}

impl Runner {
    /// Starts what `ways` need.
    pub fn new(paths: &Paths, ways: &[Way], plan: &Plan<'_>, logs: &Path) -> Result<Self> {
        let found =
            if plan.libraries.is_empty() { libraries_of(plan.python)? } else { plan.libraries.to_vec() };
        let mut daemon = DaemonConfig::new(Device(plan.device.to_owned()));
        daemon.add_libraries(&found);
        let beside = ways.contains(&Way::VirtioUser).then(|| VirtioUser::start(paths, daemon.clone(), logs));
        let vm = ways.contains(&Way::Vm).then(|| {
            let mut config = VmConfig::new(Device(plan.device.to_owned()));
            config.cpus = plan.cpus;
            config.memory = plan.memory.to_owned();
            config.daemon.arguments.extend(daemon.arguments.iter().cloned());
            config.daemon.queues = plan.cpus.clamp(1, 16);
            Vm::boot(paths, config, logs)
        });
        Ok(Self {
            paths: paths.clone(),
            python: plan.python.to_owned(),
            folder: plan.folder.to_owned(),
            limit: plan.limit,
            beside: beside.transpose()?,
            vm: vm.transpose()?,
        })
    }

    /// Runs a program. Returns its output, or the reason of its failure.
    pub fn run(&self, way: Way, program: &Program, arguments: &[OsString]) -> Result<Result<String, String>> {
        let file = self.folder.join(&program.file);
        let outcome = match way {
            Way::Vm => {
                let vm = self.vm.as_ref().context("The guest was not started")?;
                let command = GuestCommand::new(Stack::new(&self.paths).launcher())
                    .arguments([self.python.as_os_str(), file.as_os_str()])
                    .arguments(arguments)
                    .whole_environment(passed_environment(&self.paths))
                    .directory(&self.folder)
                    .limit(self.limit);
                let output = vm.run(&command)?;
                (Some(output.status), String::from_utf8_lossy(&output.stdout).into_owned(), output.stderr)
            }
            Way::Native | Way::VirtioUser => {
                let mut command = match &self.beside {
                    Some(beside) if way == Way::VirtioUser => {
                        let mut command = beside.command(&self.paths, Stack::new(&self.paths).launcher());
                        command.arg(&self.python);
                        command
                    }
                    _ => {
                        let mut command = Command::new(&self.python);
                        command.env_clear().envs(passed_environment(&self.paths));
                        command
                    }
                };
                command.arg(&file).args(arguments).current_dir(&self.folder);
                let outcome = execute(command, self.limit)?;
                (outcome.status, outcome.stdout, outcome.stderr.into_bytes())
            }
            _ => bail!("Programs run on the ways native, virtio-user and vm only"),
        };
        let (status, stdout, stderr) = outcome;
        let log = self.folder.join(format!("{}-{}.log", program.name, way.name()));
        fs::write(&log, [stdout.as_bytes(), &stderr].concat())?;
        Ok(match status {
            Some(0) => Ok(stdout),
            Some(status) => {
                // For Python it is the error.
                let stderr = String::from_utf8_lossy(&stderr);
                let line = last_line(&stderr).map_or_else(String::new, |line| format!(": {line}"));
                Err(format!("ended with {status}{line}; see {}", log.display()))
            }
            None => Err(format!("took more than {} s; see {}", self.limit.as_secs(), log.display())),
        })
    }

    /// Ends daemon and guest.
    pub fn stop(self) -> Result<()> {
        if let Some(vm) = self.vm {
            vm.shut_down()?;
        }
        self.beside.map_or(Ok(()), VirtioUser::stop)
    }
}

/// Removes and reports the programs whose module does not exist, or whose input is not among `inputs`.
pub fn leave_out(
    programs: &mut Vec<Program>,
    python: &Path,
    inputs: &BTreeMap<String, PathBuf>,
) -> Result<()> {
    let modules = programs.iter().filter_map(|program| program.module.as_deref());
    let output = Command::new(python).args(["-c", FIND_MODULES]).args(modules).output();
    let output = output.with_context(|| format!("Cannot start {}", python.display()))?;
    let output = String::from_utf8_lossy(&output.stdout);
    let found: Vec<&str> = output.lines().collect();
    programs.retain(|Program { name, module, input, .. }| {
        let absent = module.as_ref().filter(|module| !found.contains(&module.as_str()));
        let unset = input.as_ref().filter(|_| !inputs.contains_key(name));
        if let Some(module) = absent {
            eprintln!("{name} is left out: {} has no module {module}", python.display());
        } else if let Some(input) = unset {
            eprintln!("{name} is left out: --input {name}=PATH names {input}");
        }
        absent.is_none() && unset.is_none()
    });
    Ok(())
}

/// Returns the folders of NVIDIA's libraries that were installed with pip.
pub fn libraries_of(python: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new(python).args(["-c", FIND_LIBRARIES]).output();
    let output = output.with_context(|| format!("Cannot start {}", python.display()))?;
    let output = String::from_utf8_lossy(&output.stdout);
    Ok(output.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_absent_packages_are_left_out() {
        let program = |name: &str, module: Option<&str>, input: Option<&str>| Program {
            name: name.to_owned(),
            file: String::new(),
            what: String::new(),
            module: module.map(str::to_owned),
            input: input.map(str::to_owned),
            reference: false,
            arguments: Vec::new(),
            known: false,
        };
        let mut programs = vec![
            program("there", Some("json"), None),
            program("named", Some("json"), Some("a file")),
            program("not named", Some("json"), Some("a file")),
            program("absent", Some("vhost_cuda_no_such_module"), None),
            program("absent with its package", Some("vhost_cuda_no_such_package.module"), None),
            program("in a package", Some("json.decoder"), None),
            program("of no module", None, None),
        ];
        let inputs = [("named".to_owned(), PathBuf::from("/"))].into();
        leave_out(&mut programs, Path::new("python3"), &inputs).unwrap();
        let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["there", "named", "in a package", "of no module"]);
    }
}
