// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The linked library as programs use it. A C program registers kernels as nvcc's constructors do. A fake driver
//! records the calls that it receives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A directory with `libcudart.so.13`, `driver/libcuda.so.1` and `program`.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("semantics-{}", std::process::id()));
        fs::create_dir_all(folder.join("driver")).unwrap();
        let map = format!("-Wl,--version-script={HERE}/libcudart.so.13.map");
        let mut link = cc(&folder.join("libcudart.so.13"));
        link.args(["-shared", "-Wl,--whole-archive"]).arg(archive()).arg("-Wl,--no-whole-archive");
        link.args([
            map.as_str(),
            "-Wl,-soname,libcudart.so.13",
            "-Wl,--gc-sections",
            "-ldl",
            "-lpthread",
            "-lm",
        ]);
        run(&mut link);
        let mut driver = cc(&folder.join("driver/libcuda.so.1"));
        run(driver.args(["-shared", "-fPIC", "-O1", "-w", &format!("{HERE}/tests/fake/libcuda.c")]));
        let mut program = cc(&folder.join("program"));
        program.args(["-O1", &format!("{HERE}/tests/fake/program.c")]).arg(folder.join("libcudart.so.13"));
        run(program.args(["-lpthread"]));
        folder
    })
}

fn cc(output: &Path) -> Command {
    let mut command = Command::new("cc");
    command.arg("-o").arg(output);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The static library of this build, which Cargo puts beside the test program.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found =
        fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("liblibcudart-") && name.ends_with(".a")
        });
    found
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .expect("Cargo builds the static library")
}

/// The output of the program, and its driver calls (without the many cuCtxGetCurrent).
struct Outcome {
    printed: Vec<String>,
    driver: Vec<String>,
}

fn program(test: &str, environment: &[(&str, &str)]) -> Outcome {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = built();
    let log = folder.join(format!("driver-{number}.log"));
    let no_driver = environment.contains(&("NO_DRIVER", "1"));
    let path =
        if no_driver { folder.display().to_string() } else { format!("{0}:{0}/driver", folder.display()) };
    let mut command = Command::new(folder.join("program"));
    command.arg(test).env("LD_LIBRARY_PATH", path).env("FAKE_LOG", &log).envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{test}: {:?} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let lines =
        |text: String| text.lines().map(str::to_owned).filter(|line| line != "cuCtxGetCurrent").collect();
    Outcome {
        printed: lines(String::from_utf8(output.stdout).unwrap()),
        driver: lines(fs::read_to_string(log).unwrap_or_default()),
    }
}

/// Removes the program's managed variable, whose allocation adds driver calls at the start.
const PLAIN: (&str, &str) = ("NO_MANAGED", "1");
const START: [&str; 2] = ["cuInit 0", "cuDeviceGetCount"];
const BIND: [&str; 2] = ["cuDevicePrimaryCtxRetain 0", "cuCtxSetCurrent 0"];
const LOAD: &str = "cuLibraryLoadData jit 0 options 1 1=1";

fn joined<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

#[test]
fn constructors_do_not_touch_the_driver() {
    let outcome = program("nothing", &[]);
    assert!(outcome.driver.is_empty(), "{:?}", outcome.driver);
}

#[test]
fn versions_need_no_driver() {
    let outcome = program("versions", &[("NO_DRIVER", "1")]);
    assert_eq!(outcome.printed, ["cudaRuntimeGetVersion(&n) 0", "13000", "cudaDriverGetVersion(&n) 0", "0"]);
    let outcome = program("versions", &[("FAKE_VERSION", "13020")]);
    assert_eq!(outcome.printed[3], "13020");
    assert!(outcome.driver.is_empty(), "{:?}", outcome.driver);
}

fn assert_latched(environment: &[(&str, &str)], code: u32) {
    let expected = [
        format!("last {code} {code} {code}"),
        format!("cudaGetDeviceCount(&n) {code}"),
        "-7".to_owned(),
        format!("cudaMalloc(&p, 1) {code}"),
        format!("launch {code}"),
        format!("last {code} {code} {code}"),
        "cudaDriverGetVersion(&n) 0".to_owned(),
    ];
    assert_eq!(program("latched", environment).printed, expected);
}

#[test]
fn a_failed_start_is_the_answer_to_every_call() {
    assert_latched(&[("NO_DRIVER", "1")], 35);
    assert_latched(&[("FAKE_VERSION", "12080")], 35);
    assert_latched(&[("FAKE_FAIL", "cuInit=100")], 100);
    assert_latched(&[("FAKE_FAIL", "cuInit=999")], 999);
    assert_latched(&[("FAKE_FAIL", "cuDeviceGetCount=1")], 3);
}

#[test]
fn the_last_error_is_the_threads_and_stays_until_read() {
    let printed = program("last", &[PLAIN, ("FAKE_FAIL", "cuStreamQuery=600")]).printed;
    let expected = [
        "cudaMalloc(0, 1) 1",
        "cudaMalloc(&p, 1) 0",
        "last 0 0 0",
        "cudaMalloc(&p, 8) 0",
        "last 1 1 0",
        "cudaStreamQuery(0) 600",
        "last 0 0 0",
    ];
    assert_eq!(printed, expected);
}

#[test]
fn a_module_is_loaded_once_and_a_kernel_found_once() {
    let outcome = program("launch", &[PLAIN]);
    let launch = |kernel: usize| format!("cuLaunchKernel {kernel} grid 1 2 3 block 4 5 6 shared 7 stream 8");
    let (one, three) = (launch(3), launch(5));
    let steps = joined(&[
        &START,
        &[LOAD, "cuLibraryGetKernel one"],
        &BIND,
        &[&one, &one, "cuLibraryGetKernel three", &three],
        &["cuLaunchKernel 3 grid 1 1 1 block 1 1 1 shared 0 stream 0"],
        &["cuLibraryGetGlobal variable", "cuMemcpyHtoD_v2 4", "cuLibraryGetGlobal variable"],
        &["cuLibraryUnload"],
    ]);
    assert_eq!(outcome.driver, steps);
    assert_eq!(outcome.printed[..3], ["launch 0", "launch 0", "launch 0"]);
    let copies: Vec<_> = outcome.printed[4..].iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(copies, ["0", "1", "13"]);
}

#[test]
fn a_module_that_does_not_load_fails_every_launch_without_asking_again() {
    let outcome = program("launch", &[PLAIN, ("FAKE_FAIL", "cuLibraryLoadData=209")]);
    assert_eq!(outcome.driver, joined(&[&START, &[LOAD], &BIND]));
    assert_eq!(outcome.printed[..3], ["launch 209", "launch 209", "launch 209"]);
    assert!(
        outcome.printed[3].ends_with(" 209") && outcome.printed[4].ends_with(" 209"),
        "{:?}",
        outcome.printed
    );
}

#[test]
fn a_missing_kernel_is_the_drivers_error() {
    let outcome = program("launch", &[PLAIN, ("FAKE_FAIL", "cuLibraryGetKernel=500")]);
    assert_eq!(outcome.printed[..3], ["launch 500", "launch 500", "launch 500"]);
}

#[test]
fn names_after_13_0_need_a_newer_driver() {
    let outcome = program("newer", &[PLAIN]);
    let (last, calls) = outcome.printed.split_last().unwrap();
    assert_eq!(calls.len(), 7);
    assert!(calls.iter().all(|line| line.ends_with(" 36")), "{calls:?}");
    assert_eq!(last, "last 36 36 0");
}

#[test]
fn execution_contexts_are_the_primary_and_green_ones() {
    let outcome = program("execution", &[PLAIN]);
    let codes: Vec<_> = outcome.printed.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    let (primary, green) = (["0", "0", "1", "0", "1"], ["0", "0", "1", "0", "0", "1", "0", "1", "0", "1"]);
    assert_eq!(codes, [&primary[..], &green[..]].concat());
    let steps = [
        &START[..],
        &["cuDevicePrimaryCtxRetain 1", "cuCtxGetDevice_v2"],
        &["cuCtxPushCurrent_v2 1", "cuStreamCreateWithPriority 0 -1", "cuCtxPopCurrent_v2"],
        &["cuDeviceGetDevResource 1 1", "cuDevResourceGenerateDesc 1", "cuGreenCtxCreate 1 1"],
        &["cuCtxFromGreenCtx 1", "cuGreenCtxStreamCreate 1 1 -1", "cuCtxSynchronize_v2 5"],
        &["cuGreenCtxDestroy 1"],
    ];
    assert_eq!(outcome.driver, joined(&steps));
}

#[test]
fn eager_loading_happens_with_the_first_context() {
    let outcome = program("devices", &[PLAIN, ("FAKE_EAGER", "1")]);
    assert!(outcome.driver.iter().any(|line| line == LOAD), "{:?}", outcome.driver);
    let outcome = program("devices", &[PLAIN]);
    assert!(!outcome.driver.iter().any(|line| line == LOAD), "{:?}", outcome.driver);
}

#[test]
fn managed_variables_have_addresses_after_the_first_call() {
    let outcome = program("managed", &[]);
    assert_eq!(outcome.driver[..4], joined(&[&START, &[LOAD, "cuLibraryGetManaged shared"]]));
    assert_eq!(outcome.printed[1], "1");
    assert!(
        outcome.printed[4].ends_with(" 0"),
        "a managed variable is a symbol by its own address: {:?}",
        outcome.printed
    );
}

#[test]
fn managed_variables_wait_for_a_context_when_the_driver_wants_one() {
    let outcome = program("managed", &[("FAKE_MANAGED_NEEDS_CONTEXT", "1")]);
    assert_eq!((outcome.printed[1].as_str(), outcome.printed[3].as_str()), ("0", "1"));
    let outcome = program("init_module", &[("FAKE_MANAGED_NEEDS_CONTEXT", "1")]);
    assert_eq!(outcome.printed, ["1 1"]);
    let outcome = program("init_module", &[("FAKE_FAIL", "cuLibraryLoadData=209")]);
    assert_eq!(outcome.printed, ["0 0"]);
}

#[test]
fn a_context_is_made_only_when_needed_and_follows_the_device() {
    let outcome = program("devices", &[PLAIN]);
    let steps = joined(&[
        &START,
        &["cuDeviceGetAttribute 10 1"],
        &["cuDevicePrimaryCtxRetain 1", "cuCtxSetCurrent 1"],
        &["cuMemAlloc_v2 1"],
    ]);
    assert_eq!(outcome.driver, steps);
    let expected = [
        "cudaDeviceGetAttribute(&n, 10, 1) 0",
        "cudaGetDevice(&n) 0",
        "0",
        "cudaSetDevice(1) 0",
        "cudaSetDevice(1) 0",
        "cudaGetDevice(&n) 0",
        "1",
        "cudaSetDevice(2) 101",
        "cudaMalloc(&p, 1) 0",
    ];
    assert_eq!(outcome.printed, expected);
}

#[test]
fn a_reset_makes_every_thread_bind_the_context_again_and_keeps_kernels() {
    let outcome = program("reset", &[PLAIN]);
    let launch = "cuLaunchKernel 3 grid 1 2 3 block 4 5 6 shared 7 stream 8";
    let steps = joined(&[
        &START,
        &[LOAD, "cuLibraryGetKernel one"],
        &BIND,
        &[launch, "cuDevicePrimaryCtxReset_v2 0"],
        &BIND,
        &[launch, "cuCtxSetCurrent 0", "cuDevicePrimaryCtxReset_v2 0"],
        &BIND,
        &["cuCtxSynchronize", "cuLibraryUnload"],
    ]);
    assert_eq!(outcome.driver, steps);
}

#[test]
fn a_reset_leaves_the_primary_context_where_another_one_is_current() {
    let outcome = program("reset_own", &[PLAIN]);
    let asked = [
        "cuCtxGetDevice",
        "cuDevicePrimaryCtxGetState 0",
        "cuDevicePrimaryCtxRetain 0",
        "cuDevicePrimaryCtxRelease_v2 0",
    ];
    let steps = joined(&[
        &START,
        &["cuDevicePrimaryCtxRetain 0", "cuCtxSetCurrent 6"],
        &asked,
        &["cuCtxSetCurrent 0"],
        &asked,
        &["cuDevicePrimaryCtxReset_v2 0"],
    ]);
    assert_eq!(outcome.driver, steps);
}

#[test]
fn per_thread_variants_name_the_per_thread_stream() {
    let outcome = program("per_thread", &[PLAIN]);
    let steps = [
        "cuMemAlloc_v2 16",
        LOAD,
        "cuLibraryGetKernel one",
        "cuLaunchKernel 3 grid 1 1 1 block 1 1 1 shared 0 stream 2",
        "cuLaunchKernel 3 grid 1 1 1 block 1 1 1 shared 0 stream 5",
        "cuMemcpyHtoDAsync_v2 4 stream 2",
        "cuStreamSynchronize 2",
        "cuMemsetD8Async ff 4 stream 2",
        "cuStreamQuery 2",
        "cuLibraryUnload",
    ];
    assert_eq!(outcome.driver[4..], steps);
}

#[test]
fn what_the_driver_or_this_library_lacks_is_said() {
    let printed = program("missing", &[PLAIN]).printed;
    assert_eq!(printed, ["cudaEventQuery(0) 36", "__cudaGetProcAddress() 0", "last 36 36 0"]);
}

#[test]
fn calls_work_until_the_program_is_unregistered() {
    let outcome = program("exit", &[PLAIN]);
    assert_eq!(
        outcome.printed,
        ["cudaMalloc(&p, 1) 0", "launch 0", "cudaMalloc(&p, 1) 0", "launch 0", "destructor 4"]
    );
    assert_eq!(outcome.driver.last().map(String::as_str), Some("cuLibraryUnload"));
}
