// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Programs with NVIDIA's static runtime, and programs that contain NVIDIA's libraries, through the launcher. The
//! table of programs (`…_static`) has the ways of linking. This tests cases that the table cannot express.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cuda_runtime_signatures::Sections;
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::program::NVCC_VARIABLE;
use vhost_cuda_tests::running::{Outcome, run};
use vhost_cuda_tests::stack::{Route, native_runtimes};
use vhost_cuda_tests::suite::{Kit, Suite};

use super::LIMIT;

/// The public names of a runtime, one per line.
const NAMES: &str = include_str!("../../../guest-lib/libcudart/names/13.0.txt");
/// `PR_SET_MDWE` and its flag `PR_MDWE_REFUSE_EXEC_GAIN` (prctl(2), since Linux 6.3).
const MDWE: (libc::c_int, libc::c_ulong) = (65, 1);
/// A user and group that own nothing.
const NOBODY: u32 = 65534;

pub fn collect(suite: &mut Suite) {
    with_program(suite, "plugins_of_both_versions", "sum@static-plugin", plugins_of_both_versions);
    suite.test("static_runtimes::memory_deny_write_execute", memory_deny_write_execute);
    with_program(
        suite,
        "unknown_runtimes_are_named",
        "vector_add@static-stripped",
        unknown_runtimes_are_named,
    );
    suite.test("static_runtimes::setuid_programs_ignore_it", setuid_programs_ignore_it);
    suite.test("static_runtimes::explicit_loader", explicit_loader);
    suite.test("static_runtimes::other_functions_of_these_names", other_functions_of_these_names);
    suite.test("static_runtimes::launcher_as_a_command", launcher_as_a_command);
    if native_runtimes(&suite.kit().programs).is_empty() {
        for test in ["ours_win_over_rpath_and_paths", "copies_in_wheels"] {
            suite.skip(format!("static_runtimes::{test}"), "NVIDIA's libcudart.so.13 is not here");
        }
    } else {
        suite.test("static_runtimes::ours_win_over_rpath_and_paths", ours_win_over_rpath_and_paths);
        suite.test("static_runtimes::copies_in_wheels", copies_in_wheels);
    }
    if std::env::var_os(NVCC_VARIABLE).is_some() {
        suite.test("static_runtimes::settings_for_compilers", settings_for_compilers);
    } else {
        suite.skip("static_runtimes::settings_for_compilers", "there is no compiler here");
    }
}

/// A test that needs a program which a folder of finished ones may lack.
fn with_program(suite: &mut Suite, test: &str, program: &str, body: fn(&Kit) -> Result<()>) {
    let name = format!("static_runtimes::{test}");
    match suite.kit().programs.missing(program) {
        Some(why) => suite.skip(name, &why),
        None => suite.test(name, body),
    }
}

fn route(kit: &Kit) -> Result<Route> {
    Ok(Route::through(&kit.stack, Daemon::start(&kit.stack, &DaemonOptions::default())?))
}

/// `program`, started by the launcher as a person would.
fn launched(kit: &Kit, route: &Route, program: &Path) -> Command {
    let mut command = route.command(&kit.stack.launcher());
    // The launcher alone has to do.
    command.env_remove("LD_LIBRARY_PATH").arg(program);
    command
}

fn expect_output(outcome: &Outcome, name: &str) -> Result<()> {
    outcome.expect_exit(0)?;
    let expected = case(name).expected_stdout().context("The case has an expected output")?;
    ensure!(outcome.stdout == expected, "{name} prints something else\n{outcome}");
    Ok(())
}

/// A program and libraries that it loads later, each with its own static runtime, of two major versions; by two
/// threads at once.
fn plugins_of_both_versions(kit: &Kit) -> Result<()> {
    let route = route(kit)?;
    let mut plugins = vec!["vector_add@static-plugin", "sum@static-plugin"];
    let of_12 = "reduction@static-plugin-12";
    if kit.programs.missing(of_12).is_none() {
        plugins.push(of_12);
    }
    for host in ["load_plugin", "load_plugin@static"] {
        let mut command = launched(kit, &route, &kit.programs.get(host)?);
        let mut lines = Vec::new();
        for plugin in &plugins {
            command.arg(kit.programs.get(plugin)?);
            let source = plugin.split('@').next().unwrap_or_default();
            let expected = case(source).expected_stdout().context("The case has an expected output")?;
            // Once alone and twice at the same time.
            lines.extend(expected.lines().flat_map(|line| [line; 3]));
        }
        lines.push("own kernel: 42");
        let outcome = run(&mut command, "", LIMIT)?;
        outcome.expect_exit(0)?;
        let mut printed: Vec<&str> = outcome.stdout.lines().collect();
        printed.sort_unstable();
        lines.sort_unstable();
        ensure!(printed == lines, "{host}: expected {lines:?}\n{outcome}");
    }
    Ok(())
}

/// A process that must not make memory executable (systemd's `MemoryDenyWriteExecute=`).
fn memory_deny_write_execute(kit: &Kit) -> Result<()> {
    let route = route(kit)?;
    let mut command = launched(kit, &route, &kit.programs.get("vector_add@static")?);
    let deny = || {
        // SAFETY: prctl with this option takes no memory; between fork and exec nothing else is called.
        match unsafe { libc::prctl(MDWE.0, MDWE.1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(deny) };
    match run(&mut command, "", LIMIT) {
        Ok(outcome) => expect_output(&outcome, "vector_add"),
        // Kernels before 6.3 do not know it.
        Err(error) if format!("{error:#}").contains("Invalid argument") => Ok(()),
        Err(error) => Err(error),
    }
}

/// A runtime without symbols whose code is not a known one's stays as it is. At its first call a line contains the file, and before
/// that, if the log's level is `debug`, how near it is to which release. The rest of such a program is not disturbed.
fn unknown_runtimes_are_named(kit: &Kit) -> Result<()> {
    let route = route(kit)?;
    let program = kit.programs.get("vector_add@static-stripped")?;
    let folder = tempfile::tempdir()?;
    let other = folder.path().join("other");
    with_another_function(&program, &other)?;
    let lines = |outcome: &Outcome, file: &Path, what: &str| {
        let file = file.to_string_lossy().into_owned();
        let is_one =
            |line: &&str| line.starts_with("vhost-cuda: ") && line.contains(&file) && line.contains(what);
        outcome.stderr.lines().filter(is_one).count()
    };
    for (level, near) in [("", 0), ("debug", 1)] {
        let mut command = launched(kit, &route, &other);
        let outcome = run(command.env("VIRTIO_CUDA_LOG", level), "", LIMIT)?;
        outcome.expect_exit(1)?;
        ensure!(lines(&outcome, &other, "of 422 functions are those of CUDA 13.0") == near, "{outcome}");
        ensure!(lines(&outcome, &other, "of a release that vhost-cuda does not know") == 1, "{outcome}");
    }
    // The setting with which only symbols count.
    let outcome = run(launched(kit, &route, &program).env("VHOST_CUDA_AUDIT", "symbols"), "", LIMIT)?;
    outcome.expect_exit(1)?;
    ensure!(lines(&outcome, &program, "without symbols") == 1, "{outcome}");
    // Without the launcher the line suggests the launcher.
    let mut command = route.command(&kit.programs.get("vector_add@static")?);
    let outcome = run(command.env_remove("LD_AUDIT"), "", LIMIT)?;
    outcome.expect_exit(1)?;
    ensure!(outcome.stderr.contains("vhost-cuda-run"), "{outcome}");
    Ok(())
}

/// Copies a program, with a byte changed in a function of its runtime that it does not call.
fn with_another_function(program: &Path, copy: &Path) -> Result<()> {
    let releases = cuda_runtime_signatures::all();
    let file = File::open(program)?;
    let sections = Sections::of(&file).context("its imports do not look like a runtime's")?;
    let found = sections.find(&releases).ok().flatten().context("its runtime is known")?;
    let mut functions = found.found.release.functions.iter().zip(&found.found.places);
    let (function, place) = functions.next_back().context("a release has functions")?;
    let code = &found.code[*place..*place + function.body.size()];
    let mut bytes = fs::read(program)?;
    let at =
        bytes.windows(code.len()).position(|window| window == code).context("the code is in the file")?;
    bytes[at] ^= 0xff;
    fs::write(copy, bytes)?;
    fs::set_permissions(copy, fs::metadata(program)?.permissions())?;
    Ok(())
}

/// A program that changes its user must not load files from its caller's environment (ld.so(8), secure-execution
/// mode).
fn setuid_programs_ignore_it(kit: &Kit) -> Result<()> {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        println!("only root can give a file to somebody else: left out");
        return Ok(());
    }
    let route = route(kit)?;
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("vector_add");
    fs::copy(kit.programs.get("vector_add@static")?, &program)?;
    let command = || launched(kit, &route, &program);
    expect_output(&run(&mut command(), "", LIMIT)?, "vector_add")?;
    if is_without_setuid(folder.path())? {
        println!("files of {} cannot change the user: left out", folder.path().display());
        return Ok(());
    }
    chown(&program, Some(NOBODY), Some(NOBODY))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755))?;
    run(&mut command(), "", LIMIT)?.expect_exit(1)
}

/// Returns whether set-user-ID bits do nothing at `path` (mount option `nosuid`), or for this process (`no_new_privs`).
fn is_without_setuid(path: &Path) -> Result<bool> {
    // SAFETY: this request takes numbers only.
    if unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } == 1 {
        return Ok(true);
    }
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a NUL and `about` may be written.
    ensure!(unsafe { libc::statvfs(path.as_ptr(), &mut about) } == 0, "{}", std::io::Error::last_os_error());
    Ok(about.f_flag & libc::ST_NOSUID != 0)
}

/// `ld.so PROGRAM`: the kernel has started another file than the program.
fn explicit_loader(kit: &Kit) -> Result<()> {
    let route = route(kit)?;
    let mut command = launched(kit, &route, Path::new("/lib64/ld-linux-x86-64.so.2"));
    command.arg(kit.programs.get("vector_add@static")?);
    expect_output(&run(&mut command, "", LIMIT)?, "vector_add")
}

/// JAX's plugin, for example, has its own functions with the names of a whole runtime, and no runtime.
fn other_functions_of_these_names(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut source = String::from("#include <stdio.h>\n");
    for name in NAMES.lines() {
        writeln!(source, "int {name}(void) {{ return 77; }}")?;
    }
    source.push_str("int main(void) { printf(\"%d\\n\", cudaMalloc() + cudaLaunchKernel()); return 0; }\n");
    let (file, program) = (folder.path().join("program.c"), folder.path().join("program"));
    fs::write(&file, source)?;
    run(Command::new("cc").arg("-w").arg("-O1").arg("-o").arg(&program).arg(&file), "", LIMIT)?
        .expect_exit(0)?;
    let outcome = run(Command::new(kit.stack.launcher()).arg(&program), "", LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout == "154\n", "{outcome}");
    Ok(())
}

/// Exit statuses, standard input, its own options.
fn launcher_as_a_command(kit: &Kit) -> Result<()> {
    let launcher = |arguments: &[&str], input: &str| {
        run(Command::new(kit.stack.launcher()).args(arguments).env_remove("LD_AUDIT"), input, LIMIT)
    };
    let outcome = launcher(&["sh", "-c", "cat; echo \"$LD_AUDIT\"; exit 7"], "input\n")?;
    outcome.expect_exit(7)?;
    let auditor = kit.stack.guest_libraries().join("libvhost-cuda-audit.so").canonicalize()?;
    ensure!(outcome.stdout == format!("input\n{}\n", auditor.display()), "{outcome}");
    // A launcher that a launched program starts adds nothing.
    let own = kit.stack.launcher().display().to_string();
    let outcome = launcher(&[&own, "--print"], "")?;
    ensure!(outcome.stdout == format!("LD_AUDIT={}\n", auditor.display()), "{outcome}");
    launcher(&["no-such-program"], "")?.expect_exit(127)?;
    launcher(&["/etc/passwd"], "")?.expect_exit(126)?;
    let outcome = launcher(&["--help"], "")?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.contains("Usage: vhost-cuda-run"), "{outcome}");
    launcher(&[], "")?.expect_exit(2)
}

/// NVIDIA's `libcudart.so.13`.
fn nvidias_runtime(kit: &Kit) -> Result<PathBuf> {
    let folders = native_runtimes(&kit.programs);
    let file = folders.iter().map(|folder| folder.join("libcudart.so.13")).find(|file| file.exists());
    Ok(file.context("NVIDIA's runtime is in one of its folders")?.canonicalize()?)
}

/// NVIDIA's runtime beside the program, as wheels have it.
fn ours_win_over_rpath_and_paths(kit: &Kit) -> Result<()> {
    let route = route(kit)?;
    let folder = tempfile::tempdir()?;
    let beside = folder.path().join("libcudart.so.13");
    fs::copy(nvidias_runtime(kit)?, &beside)?;
    symlink("libcudart.so.13", folder.path().join("libcudart.so"))?;
    let source = folder.path().join("program.c");
    fs::write(&source, RPATH_PROGRAM)?;
    for tags in ["--disable-new-dtags", "--enable-new-dtags"] {
        let program = folder.path().join(tags);
        let mut cc = Command::new("cc");
        cc.arg("-o").arg(&program).arg(&source).arg("-L").arg(folder.path()).args(["-lcudart", "-ldl"]);
        cc.arg(format!("-Wl,{tags},-rpath,{}", folder.path().display()));
        run(&mut cc, "", LIMIT)?.expect_exit(0)?;
        // The counter-check: without the launcher it is NVIDIA's.
        let without = run(route.command(&program).arg(&beside), "", LIMIT)?;
        ensure!(without.expect_exit(0).is_err(), "NVIDIA's runtime works without NVIDIA's driver\n{without}");
        let mut command = launched(kit, &route, &program);
        for path in [&beside, &folder.path().join("libcudart.so"), &PathBuf::from("libcudart.so.13")] {
            command.arg(path);
        }
        run(&mut command, "", LIMIT)?.expect_exit(0)?;
    }
    Ok(())
}

/// Calls the runtime that it was linked with, and those at the paths that it is given.
const RPATH_PROGRAM: &str = r#"
#include <dlfcn.h>
extern int cudaGetDeviceCount(int *);
int main(int count, char **arguments) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) || devices < 1) return 1;
    for (int i = 1; i < count; i++) {
        void *library = dlopen(arguments[i], RTLD_NOW);
        if (!library) return 2;
        int (*function)(int *) = (int (*)(int *))dlsym(library, "cudaGetDeviceCount");
        if (!function || function(&devices)) return 3;
        if (function != cudaGetDeviceCount) return 4;
    }
    return 0;
}
"#;

/// Copies of the runtime and of the driver's stub whose names have a digest, as torchvision and PyNvVideoCodec have
/// them, and a program that looks for the runtime among its mappings, as vLLM does.
fn copies_in_wheels(kit: &Kit) -> Result<()> {
    let route = route(kit)?;
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("program.c");
    let (runtime, driver) =
        (folder.path().join("libcudart.faf08d9a.so.13"), folder.path().join("libcuda-40d19bb1.so"));
    let library = |file: &Path, text: &str| -> Result<()> {
        fs::write(&source, text)?;
        let name = file.file_name().context("a library has a name")?.to_string_lossy();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(file).arg(&source).arg(format!("-Wl,-soname,{name}"));
        // Its symbols have versions, which the dynamic linker looks for by the name of the copy.
        let versions = folder.path().join("versions");
        fs::write(&versions, "libcudart.so.13 { global: cuda*; };\n")?;
        cc.arg(format!("-Wl,--version-script={}", versions.display()));
        run(&mut cc, "", LIMIT)?.expect_exit(0)
    };
    // The linker takes the name for the program from this file, which NVIDIA's runtime then replaces.
    library(&runtime, "int cudaGetDeviceCount(int *count) { return 1; }")?;
    library(&driver, "int cuInit(unsigned flags) { return 1; }")?;
    fs::write(&source, MAPPINGS_PROGRAM)?;
    let program = folder.path().join("program");
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(&program).arg(&source).args([&runtime, &driver]).arg("-ldl");
    cc.arg(format!("-Wl,-rpath,{}", folder.path().display()));
    run(&mut cc, "", LIMIT)?.expect_exit(0)?;
    fs::copy(nvidias_runtime(kit)?, &runtime)?;
    // The counter-check: without the launcher it is the stub, and NVIDIA's runtime.
    let without = run(&mut route.command(&program), "", LIMIT)?;
    ensure!(without.expect_exit(0).is_err(), "the copies work without the launcher\n{without}");
    run(&mut launched(kit, &route, &program), "", LIMIT)?.expect_exit(0)
}

/// Calls the runtime that it was linked with, and those that it finds in `/proc/self/maps` and by `dl_iterate_phdr`.
const MAPPINGS_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
extern int cudaGetDeviceCount(int *);
extern int cuInit(unsigned);
static char path[4096];
static int names_runtime(struct dl_phdr_info *object, size_t size, void *found) {
    const char *name = strrchr(object->dlpi_name, '/');
    if (!name || strncmp(name, "/libcudart", 10)) return 0;
    if (strlen(object->dlpi_name) < sizeof path) strcpy(path, object->dlpi_name);
    ++*(int *)found;
    return 0;
}
static int works(void) {
    int devices = 0;
    void *library = dlopen(path, RTLD_NOW);
    if (!library) return 0;
    int (*function)(int *) = (int (*)(int *))dlsym(library, "cudaGetDeviceCount");
    return function == cudaGetDeviceCount && !function(&devices) && devices > 0;
}
int main(void) {
    int devices = 0, found = 0;
    char line[8192];
    if (cuInit(0)) return 1;
    if (cudaGetDeviceCount(&devices) || devices < 1) return 2;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) return 3;
    while (fgets(line, sizeof line, maps)) {
        char *start = strchr(line, '/');
        if (!start || !strstr(line, "libcudart")) continue;
        start[strcspn(start, "\n")] = 0;
        // vLLM refuses files whose name does not begin like this.
        if (strncmp(strrchr(start, '/'), "/libcudart", 10)) return 4;
        if (strlen(start) < sizeof path) strcpy(path, start);
        found = 1;
        break;
    }
    if (!found) return 5;
    if (!works()) return 6;
    found = 0;
    dl_iterate_phdr(names_runtime, &found);
    if (found != 1) return 7;
    return works() ? 0 : 8;
}
"#;

/// For people who compile in the guest: the environment file, and the script in place of the static runtime.
fn settings_for_compilers(kit: &Kit) -> Result<()> {
    let nvcc = PathBuf::from(std::env::var_os(NVCC_VARIABLE).context("there is a compiler")?);
    let libraries =
        nvcc.canonicalize()?.parent().and_then(Path::parent).context("nvcc is in a toolkit")?.join("lib");
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("program.cu");
    fs::write(&source, "int main() { int count; return cudaGetDeviceCount(&count); }\n")?;
    let needs_runtime = |set: &dyn Fn(&mut Command)| -> Result<bool> {
        let program = folder.path().join("program");
        let mut command = Command::new(&nvcc);
        command.arg("-o").arg(&program).arg(&source).arg("-L").arg(&libraries);
        command.env_remove("NVCC_APPEND_FLAGS").env_remove("NVCC_PREPEND_FLAGS");
        set(&mut command);
        run(&mut command, "", LIMIT)?.expect_exit(0)?;
        let dynamic = run(Command::new("readelf").arg("-d").arg(&program), "", LIMIT)?;
        Ok(dynamic.stdout.contains("libcudart.so."))
    };
    ensure!(!needs_runtime(&|_| {})?, "nvcc links the shared runtime by itself");
    let settings = kit.stack.guest_settings();
    let script = settings.join("vhost-cuda.sh");
    let environment = run(
        Command::new("sh")
            .arg("-c")
            .arg(". \"$0\"; . \"$0\"; echo $NVCC_APPEND_FLAGS; echo $LD_AUDIT")
            .arg(&script),
        "",
        LIMIT,
    )?;
    let lines: Vec<&str> = environment.stdout.lines().collect();
    ensure!(lines.len() == 2 && lines[0].starts_with("--cudart=shared"), "{environment}");
    ensure!(lines[1] == "/usr/local/lib/vhost-cuda/libvhost-cuda-audit.so", "{environment}");
    ensure!(
        needs_runtime(&|command| {
            command.env("NVCC_APPEND_FLAGS", "--cudart=shared");
        })?,
        "the environment file changes nothing"
    );
    ensure!(
        needs_runtime(&|command| {
            command.env("NVCC_PREPEND_FLAGS", format!("-L{}", settings.display()));
        })?,
        "the script in place of the static runtime changes nothing"
    );
    Ok(())
}
