// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A QEMU, a daemon or the connection ends at a random moment of a migration. Afterwards one machine runs, with everything, or the source was
//! lost as a whole. Nothing is left of it in the other daemon.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use vhost_cuda_tests::control::Control;
use vhost_cuda_tests::daemon::{end_of_log, workers_of};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::paths::Paths;
use xtask::vm::{Destination, Survivor, Vm};

use super::{MOVED, OwnProgram, WORK, expect_good, leave_host, small};
use crate::life::{kernel_log_is_clean, wait_until};
use crate::{boot, configure, logs_of};

/// Migrations in which something ends.
const ROUNDS: u64 = 5;
/// The bytes at the end of a migration among which something ends in every second round: the machine stands still then.
const TAIL: u64 = 24 << 20;
/// The maximum time in microseconds between these bytes and the end.
const MAX_DELAY: u64 = 400_000;
/// The bytes that pass a link at once.
const PIECE: usize = 16 << 10;
/// The time between two looks at a link.
const LOOK: Duration = Duration::from_millis(1);
/// The error of a call whose session is lost.
const LOST: &str = "cudaErrorDevicesUnavailable";
/// The message of a program that has lost its session, and reads managed memory before its next call. The contents were on the GPU.
const LOST_MANAGED: &str = "not so: managed_";

/// The part that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Source,
    Destination,
    SourceDaemon,
    DestinationDaemon,
    Link,
}

const VICTIMS: [Victim; 5] =
    [Victim::Source, Victim::Destination, Victim::SourceDaemon, Victim::DestinationDaemon, Victim::Link];

/// The machine after a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It runs at the destination.
    Went,
    /// It runs at the source.
    Stayed,
    /// It has ended with its QEMU.
    Ended,
}

pub fn collect(suite: &mut Suite) {
    suite.test("moved::parts_end_at_random_moments", parts_end_at_random_moments);
}

fn parts_end_at_random_moments(kit: &Kit) -> Result<()> {
    let (rounds, seed) = (effort::rounds(ROUNDS)?, effort::seed()?.unwrap_or(55));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pair = Pair::new(kit)?;
    let mut victims = Vec::new();
    let mut counts = BTreeMap::<_, u64>::new();
    for number in 0..rounds {
        if victims.is_empty() {
            victims = VICTIMS.to_vec();
            random.shuffle(&mut victims);
        }
        let victim = victims.pop().context("no victim")?;
        let begin = if random.bool() { 0 } else { pair.length.saturating_sub(TAIL) };
        let at = random.u64(begin..=pair.length);
        let delay = Duration::from_micros(random.u64(..MAX_DELAY) * u64::from(random.bool()));
        let context = || format!("round {number} of seed {seed}: {victim:?} {delay:?} after {at} bytes");
        let begun = Instant::now();
        let (fate, has_all) = pair.round(kit, victim, at, delay).with_context(context)?;
        let (after, took) = (pair.length, begun.elapsed().as_secs_f64());
        println!("{}: {fate:?}, with everything: {has_all}; {after} bytes, {took:.1} s", context());
        *counts.entry((victim, fate, has_all)).or_default() += 1;
    }
    for ((victim, fate, has_all), count) in counts {
        let programs = if has_all { "with everything" } else { "its sessions are lost" };
        eprintln!("{victim:?}: {fate:?}, {programs}: {count}");
    }
    pair.end(kit)
}

/// A daemon, whose machines come and go.
struct Place {
    name: String,
    control: Control,
    /// The daemon, while it has no machine.
    left: Option<Survivor>,
    /// Its open files without a machine.
    files: Option<usize>,
}

/// Two daemons, and a machine at one of them.
struct Pair {
    folder: TempDir,
    paths: Paths,
    places: [Place; 2],
    /// The index of the place with the machine.
    at: usize,
    vm: Option<Vm>,
    /// The machine that was saved, whose QEMU has ended.
    origin: Vm,
    /// The length of a migration in bytes.
    length: u64,
}

impl Pair {
    /// Boots a machine, and saves it to a file, from which it begins in each round without one.
    fn new(kit: &Kit) -> Result<Self> {
        let (folder, paths) = (tempfile::tempdir()?, Paths::discover()?);
        let origin = boot("killed-origin", small)?;
        leave_host(kit, &origin)?;
        start(&origin)?;
        let file = folder.path().join("machine");
        origin.send(&format!("file:{}", file.display()))?;
        kill(origin.qemu_id());
        let place = |number: usize| Place {
            name: format!("killed-{number}"),
            control: Control::at(&folder.path().join(format!("control-{number}"))),
            left: None,
            files: None,
        };
        let (places, length) = ([place(0), place(1)], fs::metadata(&file)?.len());
        Ok(Self { folder, paths, places, at: 0, vm: None, origin, length })
    }

    /// Starts a QEMU at a place, which takes a machine, and does not run it.
    fn destination(&mut self, number: usize) -> Result<Destination> {
        let place = &mut self.places[number];
        let control = place.control.options();
        let config = configure(|config| {
            small(config);
            config.daemon.arguments.extend(control);
            config.qemu_arguments.push("-S".into());
        })?;
        Destination::start(&self.paths, config, &logs_of(&self.paths, &place.name), place.left.take())
    }

    /// Returns the machine that runs, or starts the one of the file if none does.
    fn machine(&mut self) -> Result<Vm> {
        if let Some(vm) = self.vm.take() {
            return Ok(vm);
        }
        let mut destination = self.destination(self.at)?;
        destination.listen(&format!("file:{}", self.folder.path().join("machine").display()))?;
        destination.arrive(&self.origin)
    }

    /// Migrates the machine while something ends. Returns where it is then, and whether its programs have everything.
    fn round(&mut self, kit: &Kit, victim: Victim, at: u64, delay: Duration) -> Result<(Fate, bool)> {
        let vm = self.machine()?;
        let (here, there) = (self.at, 1 - self.at);
        let mut destination = self.destination(there)?;
        let socket = self.folder.path().join("link");
        let _ = fs::remove_file(&socket);
        destination.listen(&format!("unix:{}", socket.display()))?;
        let link = Link::start(&socket)?;
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| vm.send(&link.address));
            while link.passed() < at && !sending.is_finished() {
                thread::sleep(LOOK);
            }
            thread::sleep(delay);
            match victim {
                Victim::Source => kill(vm.qemu_id()),
                Victim::Destination => kill(destination.qemu_id()),
                Victim::SourceDaemon => lose(vm.daemon().id())?,
                Victim::DestinationDaemon => lose(destination.daemon().id())?,
                Victim::Link => link.cut(),
            }
            sending.join().ok().context("the migration has failed")
        })?;
        // As libvirt does: the destination goes on if the source has sent all, or has ended.
        let may_be_there = sent.is_ok() || (victim == Victim::Source && link.has_begun());
        let fate = if may_be_there && destination.wait().is_ok() {
            Fate::Went
        } else if victim == Victim::Source {
            Fate::Ended
        } else {
            Fate::Stayed
        };
        if sent.is_ok() {
            self.length = link.passed();
        }
        match fate {
            Fate::Went => {
                let (arrived, mut left) = (destination.go_on(&vm)?, vm.crash()?);
                // Not before the machine runs: its driver must see that the daemon has gone (docs/migration.md).
                match victim {
                    Victim::SourceDaemon => left.daemon.restart()?,
                    Victim::DestinationDaemon => arrived.daemon().restart()?,
                    _ => {}
                }
                self.places[here].left = Some(left);
                (self.vm, self.at) = (Some(arrived), there);
            }
            Fate::Stayed => {
                let mut left = destination.crash()?;
                vm.resume()?;
                match victim {
                    Victim::SourceDaemon => vm.daemon().restart()?,
                    Victim::DestinationDaemon => left.daemon.restart()?,
                    _ => {}
                }
                self.places[there].left = Some(left);
                self.vm = Some(vm);
            }
            Fate::Ended => {
                self.places[there].left = Some(destination.crash()?);
                self.places[here].left = Some(vm.crash()?);
            }
        }
        self.places.iter_mut().try_for_each(Place::expect_nothing)?;
        let Some(vm) = &self.vm else { return Ok((fate, false)) };
        let logs = || self.places.each_ref().map(|place| log_of(&self.paths, place)).concat();
        let has_all = end(vm).with_context(|| format!("{fate:?}\n{}", logs()))?;
        let may_be_lost = matches!(victim, Victim::SourceDaemon | Victim::DestinationDaemon);
        ensure!(has_all || may_be_lost, "{fate:?}, and its sessions are lost\n{}", logs());
        expect_good(vm).with_context(logs)?;
        kernel_log_is_clean(kit, vm)?;
        start(vm)?;
        Ok((fate, has_all))
    }

    fn end(mut self, kit: &Kit) -> Result<()> {
        let vm = self.machine()?;
        ensure!(end(&vm)?, "its sessions are lost");
        kernel_log_is_clean(kit, &vm)?;
        vm.shut_down()
    }
}

impl Place {
    /// Waits until the daemon has nothing of a machine, if its QEMU has ended.
    fn expect_nothing(&mut self) -> Result<()> {
        let Some(Survivor { daemon, .. }) = &mut self.left else { return Ok(()) };
        daemon.check()?;
        let pid = daemon.id().context("the daemon has ended")?;
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let most = self.files.unwrap_or(usize::MAX);
        let mut found = String::new();
        wait_until("nothing is left", || {
            let status = self.control.ask(r#"{"do":"status"}"#).unwrap_or_default();
            let files = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
            let workers: Vec<String> = workers_of(pid).into_iter().map(name).collect();
            found = format!("{status}, {files} files of {most}, workers {workers:?}");
            let has_none = status["sessions"].as_array().is_some_and(Vec::is_empty);
            let is_clean = has_none && status["host_memory_used"] == 0 && workers == ["cuda-warm\n"];
            if is_clean && files <= most {
                self.files.get_or_insert(files);
                return Ok(true);
            }
            Ok(false)
        })
        .with_context(|| found.clone())?;
        let log = daemon.log()?;
        ensure!(!log.contains("panicked"), "{log}");
        Ok(())
    }
}

fn log_of(paths: &Paths, place: &Place) -> String {
    let log = fs::read_to_string(logs_of(paths, &place.name).join("daemon.log")).unwrap_or_default();
    format!("--- {}\n{}\n", place.name, end_of_log(&log))
}

/// Kills a process that the harness has started and not waited for.
fn kill(pid: u32) {
    // SAFETY: a plain system call. The process is this one's child, and is waited for later.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

/// Kills a daemon, whose workers must end.
fn lose(daemon: Option<u32>) -> Result<()> {
    let pid = daemon.context("no daemon")?;
    let workers = workers_of(pid);
    kill(pid);
    let has_ended = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z ")
    };
    wait_until("workers of a daemon that was killed have ended", || Ok(workers.iter().all(has_ended)))
}

/// Starts programs that compute until [`end`].
fn start(vm: &Vm) -> Result<()> {
    programs(|name, arguments| OwnProgram::start(vm, name, arguments))?
        .iter()
        .try_for_each(|program| program.expect(vm, "begun"))
}

fn programs(each: impl Fn(&str, &str) -> Result<OwnProgram>) -> Result<[OwnProgram; 2]> {
    Ok([each(WORK, "4 work")?, each(MOVED, "1 managed")?])
}

/// Ends the programs. Returns whether they have found all that they have computed; otherwise all of them have learned that they are lost.
fn end(vm: &Vm) -> Result<bool> {
    let mut right = 0;
    let all = programs(|name, arguments| Ok(OwnProgram::of(name, arguments)))?;
    for program in &all {
        vm.shell(&format!("kill -TERM $(cat {}.pid) 2> /dev/null; true", program.files))?;
        let (status, output) = (program.status(vm)?, program.output(vm)?);
        match status {
            0 if output.contains("\nright") => right += 1,
            0 => bail!("{output}"),
            _ => ensure!(
                output.contains(LOST) || output.contains(LOST_MANAGED),
                "it ended with {status}: {output}"
            ),
        }
    }
    ensure!(right == 0 || right == all.len(), "some programs are lost, and others are not");
    Ok(right > 0)
}

/// A connection by TCP to a socket, which can be cut.
struct Link {
    address: String,
    state: Arc<LinkState>,
}

#[derive(Default)]
struct LinkState {
    passed: AtomicU64,
    has_begun: AtomicBool,
    is_over: AtomicBool,
}

impl Link {
    fn start(to: &Path) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = format!("tcp:{}", listener.local_addr()?);
        let state = Arc::<LinkState>::default();
        let (theirs, to) = (state.clone(), to.to_path_buf());
        thread::spawn(move || theirs.pass(&listener, &to));
        Ok(Self { address, state })
    }

    /// The bytes that have passed to the destination.
    fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::Relaxed)
    }

    /// Returns whether the source has come.
    fn has_begun(&self) -> bool {
        self.state.has_begun.load(Ordering::Relaxed)
    }

    fn cut(&self) {
        self.state.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

impl LinkState {
    fn pass(&self, listener: &TcpListener, to: &PathBuf) -> io::Result<()> {
        let source = loop {
            match listener.accept() {
                Ok((source, _)) => break source,
                Err(_) if self.is_over.load(Ordering::Relaxed) => return Ok(()),
                Err(_) => thread::sleep(LOOK),
            }
        };
        source.set_nonblocking(false)?;
        let destination = UnixStream::connect(to)?;
        self.has_begun.store(true, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !self.is_over.load(Ordering::Relaxed) {
                    thread::sleep(LOOK);
                }
                let _ = source.shutdown(Shutdown::Both);
                let _ = destination.shutdown(Shutdown::Both);
            });
            scope.spawn(|| {
                let _ = io::copy(&mut &destination, &mut &source);
                let _ = source.shutdown(Shutdown::Write);
            });
            let passed = self.pass_on(&source, &destination);
            let _ = destination.shutdown(Shutdown::Write);
            if passed.is_err() {
                // One end has gone, which the other one learns.
                self.is_over.store(true, Ordering::Relaxed);
            }
        });
        Ok(())
    }

    fn pass_on(&self, mut source: &TcpStream, mut destination: &UnixStream) -> io::Result<()> {
        let mut piece = [0; PIECE];
        loop {
            let bytes = source.read(&mut piece)?;
            if bytes == 0 {
                return Ok(());
            }
            destination.write_all(&piece[..bytes])?;
            self.passed.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}
