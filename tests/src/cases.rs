// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The table of programs: what runs, and what must come out, on every level alike.

use include_dir::{Dir, include_dir};
use virtio_cuda_protocol::cuda::OLDEST_CALL_TABLE_VERSION;

/// In the test binaries, so that they run on machines without the sources.
static EXPECTED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/expected");

/// A part of the stack. In a pair of releases, one part is of this release and the other one of the release before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The guest's libraries.
    Guest,
    /// The daemon and its workers.
    Daemon,
}

/// One run of a program of `tests/cuda`.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Unique; see [`Case::expected_stdout`].
    pub name: &'static str,
    /// File (without its extension) or folder in `tests/cuda`, and perhaps a [`crate::variant::Variant`].
    pub program: &'static str,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// Its standard input.
    pub stdin: &'static str,
    /// Expected exit status.
    pub exit: i32,
    /// The reference of the standard output.
    pub stdout: Stdout,
    /// Must occur in the standard error.
    pub stderr_has: &'static [&'static str],
    /// Must occur in the standard error or in the daemon's log; the emulator only.
    pub diagnostics_have: &'static [&'static str],
    /// Processes started at the same time.
    pub at_once: usize,
    /// The memory or time that the case takes; small machines leave heavy cases out.
    pub weight: Weight,
    /// Names of a library of NVIDIA's. A GPU needs one of them; the emulator has its own.
    pub library: &'static [&'static str],
    /// The reason for not running it on GPUs.
    pub not_on_gpus: Option<&'static str>,
    /// The version of the call table that has all of its calls. With an older release, they may answer that they are not
    /// supported.
    pub since: u32,
    /// The part that must not be of the release before (`tests/release-before`): that one lacks what no version of the call table
    /// says, or has a fault.
    pub newer: Option<Part>,
}

/// The reference of a case's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdout {
    /// The same bytes everywhere.
    Expected,
    /// It describes the device: the same as natively, where the device is the same.
    OfDevice,
    /// The number of rules, after a line for each rule that does not hold.
    Rules,
    /// As `Rules` through our driver library. The emulator alone answers some calls otherwise.
    RulesOfLibrary,
}

/// The memory or time that a case takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Takes at most seconds, also in an emulated VM.
    Light,
    /// Up to 1 GiB of memory or a minute on an emulated VM.
    Heavy,
    /// Several GiB of memory.
    Huge,
}

impl Case {
    /// A program without arguments whose output is the same everywhere.
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            program: name,
            args: &[],
            stdin: "",
            exit: 0,
            stdout: Stdout::Expected,
            stderr_has: &[],
            diagnostics_have: &[],
            at_once: 1,
            weight: Weight::Light,
            library: &[],
            not_on_gpus: None,
            since: OLDEST_CALL_TABLE_VERSION,
            newer: None,
        }
    }

    /// The text of `tests/expected/NAME.txt`. A case that is named by its variant (`NAME_static_cuda12`) has a file of its
    /// own only where the runtimes differ.
    pub fn expected_stdout(&self) -> Option<&'static str> {
        // The runtime of 11 answers as that of 12.
        let older = ["_cuda12", "_cuda11"].iter().find_map(|version| self.name.strip_suffix(version));
        let without = older.unwrap_or(self.name);
        let way = ["_static", "_stripped"].iter().find_map(|way| without.strip_suffix(way));
        let plain = way.unwrap_or(without);
        let shared_12 = format!("{plain}_cuda12");
        let of_12 = older.is_some().then_some(shared_12.as_str());
        let names = [Some(self.name), of_12, Some(plain)];
        let files = names.into_iter().flatten().map(|name| EXPECTED.get_file(format!("{name}.txt")));
        files.flatten().next()?.contents_utf8()
    }

    const fn of(name: &'static str, program: &'static str, args: &'static [&'static str]) -> Self {
        Self { program, args, ..Self::new(name) }
    }
}

/// A program that is compiled in another way than usual (`NAME@VARIANT`).
const fn of_variant(name: &'static str, program: &'static str) -> Case {
    Case { program, ..Case::new(name) }
}

/// Calls that a driver for GPUs has since CUDA 13.4.
const fn later(name: &'static str, args: &'static [&'static str]) -> Case {
    Case { not_on_gpus: Some("needs a driver of CUDA 13.4"), since: 5, ..Case::of(name, "later_calls", args) }
}

/// The rules of tables (`tests/rules`), which the emulator alone follows, too.
const fn rules(name: &'static str, tables: &'static str) -> Case {
    Case { program: "wrong_calls", stdin: tables, stdout: Stdout::Rules, ..Case::new(name) }
}

/// The rules for which our driver library stands.
const fn rules_of_library(name: &'static str, tables: &'static str, args: &'static [&'static str]) -> Case {
    Case { args, stdout: Stdout::RulesOfLibrary, ..rules(name, tables) }
}

/// A program that uses a library of NVIDIA's.
const fn with_library(name: &'static str, library: &'static [&'static str]) -> Case {
    Case { library, ..Case::new(name) }
}

/// A program of NCCL's ranks. It runs on the emulator only.
const fn ranks(name: &'static str, args: &'static [&'static str]) -> Case {
    let why = Some("NCCL needs a GPU for each rank, and --nccl");
    Case { not_on_gpus: why, library: &["libnccl.so.2"], ..Case::of(name, "nccl_ranks", args) }
}

/// Tables of `tests/rules`, one after the other.
macro_rules! tables {
    ($($name:literal)*) => {
        concat!($(include_str!(concat!("../rules/", $name, ".txt")),)*)
    };
}

/// The tables whose rows are also called in wrong states, and by their names for the per-thread default stream.
const OF_DRIVER: &str = tables!("setup_driver" "setup_states" "driver" "memory" "graphs" "textures");
const OF_RUNTIME: &str = tables!("setup_runtime" "runtime" "runtime_memory" "runtime_graphs");

/// The table for the management library, which the emulator alone does not have.
pub const MANAGEMENT: Case =
    rules_of_library("rules_management", tables!("setup_management" "management"), &[]);

/// Tables whose rows are called with all kinds of wrong values.
pub const ROBUST: &[&str] = &[
    OF_DRIVER,
    OF_RUNTIME,
    tables!("setup_driver" "versions"),
    tables!("setup_runtime" "runtime_12"),
    tables!("setup_runtime" "runtime_11"),
    MANAGEMENT.stdin,
];

/// Every case.
pub const CASES: &[Case] = &[
    Case::new("add_one"),
    Case::new("sum"),
    Case::new("hello_threads"),
    Case::new("device_printf"),
    Case::new("atomic_capabilities"),
    later("later_calls_cliques", &["cliques"]),
    later("later_calls_locations", &["locations"]),
    later("later_calls_nodes", &["nodes"]),
    Case::new("vector_add"),
    Case::new("two_units"),
    Case::new("templates"),
    Case::new("struct_by_value"),
    Case::new("symbols"),
    Case::new("copied_symbols"),
    Case::new("own_variables"),
    Case::new("managed_memory"),
    Case::new("managed_moves"),
    Case::new("managed_in_functions"),
    Case::new("managed_variables"),
    Case::new("managed_modules"),
    Case::new("copies"),
    Case { weight: Weight::Heavy, ..Case::of("copies_64m", "copies", &["67108867"]) },
    Case { weight: Weight::Huge, ..Case::of("copies_512m", "copies", &["536870912"]) },
    Case::new("four_threads"),
    Case::new("threads_share"),
    Case { at_once: 2, ..Case::new("process") },
    Case::new("forks"),
    Case::new("environment"),
    Case::new("several_devices"),
    Case::new("peer_access"),
    Case::new("peer_pools"),
    Case::new("exit_without_free"),
    Case::new("signals"),
    Case::new("illegal_address"),
    Case {
        stderr_has: &[
            "device_assert.cu:7: void check_positive(int): block: [0,0,0], thread: [0,0,0] Assertion `value > 0` failed.",
            "thread: [1,0,0] Assertion `value > 0` failed.",
        ],
        ..Case::new("device_assert")
    },
    Case::new("out_of_memory"),
    Case::new("unknown_kernel"),
    Case::of("corrupt_payload", "corrupt_fatbin", &["payload"]),
    Case::of("corrupt_entries", "corrupt_fatbin", &["entries"]),
    Case::of("corrupt_magic", "corrupt_fatbin", &["magic"]),
    Case { diagnostics_have: &["frobnicate"], ..Case::new("unknown_ptx") },
    Case::new("events_streams"),
    Case::new("graphs"),
    Case::new("capture"),
    Case::new("capture_beside_frees"),
    Case::new("frees_beside_global_capture"),
    Case::new("managed_beside_captures"),
    Case::new("managed_attached"),
    Case::new("managed_advice"),
    Case::new("graph_objects"),
    Case::new("kept_graphs"),
    Case::new("exec_functions"),
    Case::new("conditional_nodes"),
    Case::new("dynamic_parallelism"),
    Case::new("device_graphs"),
    Case::new("tensor_copies"),
    // The emulator of the release before has no wgmma.
    Case { newer: Some(Part::Daemon), ..Case::new("warpgroup_products") },
    // The daemon of the release before gives allocations of the same size one handle.
    Case { newer: Some(Part::Daemon), ..Case::new("sharing") },
    Case { newer: Some(Part::Daemon), ..Case::new("shared_rounds") },
    Case { newer: Some(Part::Daemon), ..Case::of("shared_rounds_events", "shared_rounds", &["events"]) },
    rules("rules_driver", tables!("setup_driver" "driver")),
    rules("rules_memory", tables!("setup_driver" "memory")),
    rules("rules_graphs", tables!("setup_driver" "graphs")),
    rules("rules_textures", tables!("setup_driver" "textures")),
    rules("rules_kinds", tables!("setup_driver" "kinds")),
    rules("rules_runtime", tables!("setup_runtime" "runtime")),
    rules("rules_runtime_memory", tables!("setup_runtime" "runtime_memory")),
    rules("rules_runtime_graphs", tables!("setup_runtime" "runtime_graphs")),
    rules_of_library("rules_copies", tables!("setup_driver" "copies"), &[]),
    rules_of_library("rules_objects", tables!("setup_driver" "objects"), &[]),
    rules_of_library("rules_launches", tables!("setup_driver" "launches"), &[]),
    rules_of_library("rules_nodes", tables!("setup_driver" "nodes"), &[]),
    rules_of_library("rules_addresses", tables!("setup_driver" "addresses"), &[]),
    rules_of_library("rules_versions", tables!("setup_driver" "versions"), &[]),
    rules_of_library("rules_runtime_values", tables!("setup_runtime" "runtime_values"), &[]),
    rules_of_library("rules_runtime_addresses", tables!("setup_runtime" "runtime_addresses"), &[]),
    rules_of_library("rules_runtime_12", tables!("setup_runtime" "runtime_12"), &[]),
    rules_of_library("rules_runtime_11", tables!("setup_runtime" "runtime_11"), &[]),
    rules_of_library("rules_before_init", OF_DRIVER, &["before_init"]),
    rules_of_library("rules_no_context", OF_DRIVER, &["no_context"]),
    rules_of_library("rules_destroyed", OF_DRIVER, &["destroyed"]),
    rules_of_library("rules_after_error", OF_DRIVER, &["after_error"]),
    rules_of_library("rules_per_thread", OF_DRIVER, &["per_thread"]),
    rules_of_library("rules_runtime_after_error", OF_RUNTIME, &["after_error"]),
    rules_of_library("rules_runtime_per_thread", OF_RUNTIME, &["per_thread"]),
    Case::new("host_functions"),
    Case::new("stream_values"),
    Case::new("short_waits"),
    Case::new("repeated_launches"),
    Case::new("serialized_launches"),
    Case::new("captured_graphs"),
    Case::new("graph_values"),
    Case::new("graph_arguments"),
    Case::new("green_contexts"),
    Case::new("old_launches"),
    Case::new("pinned_memory"),
    Case::new("crowds"),
    Case::new("long_host_memory"),
    Case::new("registered_memory"),
    Case::new("mapped_files"),
    Case::new("registered_files"),
    Case::new("host_pointers"),
    Case::new("reused_buffers"),
    Case::new("random_streams"),
    Case::new("implicit_order"),
    Case::new("copies_in_streams"),
    Case::new("batches"),
    Case::new("pitched"),
    Case::new("boxes"),
    Case::new("arrays"),
    Case::new("sparse_arrays"),
    Case::new("compressed_arrays"),
    Case::new("textures"),
    Case::new("texture_references"),
    Case::new("pools"),
    Case::new("stream_allocations"),
    Case::new("device_pools"),
    Case::new("host_pools"),
    Case::new("virtual_memory"),
    Case::new("virtual_host_memory"),
    Case::new("external_memory"),
    Case::new("other_interfaces"),
    Case::new("linker"),
    Case::new("error_semantics"),
    Case { stdout: Stdout::OfDevice, ..Case::new("device_query") },
    Case::new("driver_api"),
    Case::new("driver_details"),
    Case::new("context_holders"),
    Case::new("core_dumps"),
    Case::new("checkpoints"),
    Case::new("function_lists"),
    Case::new("large_image"),
    Case::new("occupancy"),
    Case::new("reduction"),
    Case::new("ranges"),
    Case::new("double_math"),
    Case::new("per_thread_stream"),
    Case::new("versioned_structs"),
    of_variant("versioned_structs_cuda12", "versioned_structs@12"),
    Case::new("versioned_graphs"),
    Case::new("versioned_textures"),
    of_variant("versioned_graphs_cuda12", "versioned_graphs@12"),
    of_variant("per_thread_stream_cuda12", "per_thread_stream@12"),
    of_variant("vector_add_cuda12", "vector_add@12"),
    of_variant("two_units_cuda12", "two_units@12"),
    of_variant("symbols_cuda12", "symbols@12"),
    of_variant("managed_variables_cuda12", "managed_variables@12"),
    of_variant("error_semantics_cuda12", "error_semantics@12"),
    of_variant("pinned_memory_cuda12", "pinned_memory@12"),
    Case { stdout: Stdout::OfDevice, ..of_variant("device_query_cuda12", "device_query@12") },
    of_variant("versioned_structs_cuda11", "versioned_structs@11"),
    of_variant("versioned_graphs_cuda11", "versioned_graphs@11"),
    of_variant("versioned_textures_cuda11", "versioned_textures@11"),
    of_variant("vector_add_cuda11", "vector_add@11"),
    of_variant("two_units_cuda11", "two_units@11"),
    of_variant("symbols_cuda11", "symbols@11"),
    of_variant("managed_variables_cuda11", "managed_variables@11"),
    of_variant("error_semantics_cuda11", "error_semantics@11"),
    of_variant("pinned_memory_cuda11", "pinned_memory@11"),
    Case { stdout: Stdout::OfDevice, ..of_variant("device_query_cuda11", "device_query@11") },
    Case::new("constructors"),
    of_variant("constructors_static", "constructors@static"),
    of_variant("vector_add_static", "vector_add@static"),
    of_variant("vector_add_static_cuda12", "vector_add@static-12"),
    of_variant("vector_add_stripped", "vector_add@static-stripped"),
    of_variant("symbols_stripped", "symbols@static-stripped"),
    of_variant("per_thread_stream_stripped", "per_thread_stream@static-stripped"),
    of_variant("graphs_stripped", "graphs@static-stripped"),
    of_variant("managed_variables_stripped_cuda12", "managed_variables@static-stripped-12"),
    of_variant("symbols_static", "symbols@static-no-pie"),
    of_variant("symbols_static_cuda12", "symbols@static-12"),
    of_variant("managed_variables_static", "managed_variables@static"),
    of_variant("two_units_static", "two_units@static-now"),
    of_variant("device_printf_static", "device_printf@static-cet"),
    of_variant("templates_static", "templates@static-debug"),
    of_variant("reduction_static", "reduction@static-gc"),
    of_variant("per_thread_stream_static", "per_thread_stream@static"),
    of_variant("dynamic_parallelism_static", "dynamic_parallelism@static"),
    of_variant("four_threads_static", "four_threads@static"),
    of_variant("forks_static", "forks@static"),
    of_variant("host_functions_static", "host_functions@static"),
    of_variant("graphs_static", "graphs@static"),
    of_variant("textures_static", "textures@static"),
    of_variant("pinned_memory_static", "pinned_memory@static"),
    of_variant("error_semantics_static", "error_semantics@static"),
    Case { stdout: Stdout::OfDevice, ..of_variant("device_query_static", "device_query@static") },
    with_library("blas", &["libcublas.so.13", "libcublas.so.12"]),
    with_library("blas_more", &["libcublas.so.13", "libcublas.so.12"]),
    with_library("blas_repeated", &["libcublas.so.13", "libcublas.so.12"]),
    with_library("blas_retraced", &["libcublas.so.13", "libcublas.so.12"]),
    with_library("kept_random", &["libcurand.so.10"]),
    with_library("kept_library_graphs", &["libcublas.so.13", "libcublas.so.12"]),
    with_library("blas_banded", &["libcublas.so.13", "libcublas.so.12"]),
    with_library("blas_forms", &["libcublas.so.13", "libcublas.so.12"]),
    with_library("blas_lt", &["libcublasLt.so.13", "libcublasLt.so.12"]),
    with_library("dnn", &["libcudnn.so.9"]),
    // The guest of the release before ends a capture in which a process executes its first graph of cuDNN.
    Case { newer: Some(Part::Guest), ..with_library("dnn_graph", &["libcudnn.so.9"]) },
    with_library("dnn_attention", &["libcudnn.so.9"]),
    with_library("dnn_ctc", &["libcudnn.so.9"]),
    with_library("fft", &["libcufft.so.12", "libcufft.so.11"]),
    with_library("fft_w", &["libcufftw.so.12", "libcufftw.so.11"]),
    Case {
        not_on_gpus: Some("NVIDIA's manual does not say what its library does in these cases"),
        ..with_library("fft_w_layouts", &["libcufftw.so.12", "libcufftw.so.11"])
    },
    with_library("solver", &["libcusolver.so.12", "libcusolver.so.11"]),
    with_library("solver_generic", &["libcusolver.so.12", "libcusolver.so.11"]),
    with_library("solver_sparse", &["libcusolver.so.12", "libcusolver.so.11"]),
    Case {
        not_on_gpus: Some("NVIDIA's cusolverRfBatchAnalyze refuses this matrix, natively, too"),
        library: &["libcusolver.so.12", "libcusolver.so.11"],
        ..Case::of("solver_batch", "solver_sparse", &["batch"])
    },
    with_library("random", &["libcurand.so.10"]),
    with_library("random_numbers", &["libcurand.so.10"]),
    with_library("sparse", &["libcusparse.so.12"]),
    with_library("sparse_matrices", &["libcusparse.so.12"]),
    with_library("sparse_products", &["libcusparse.so.12"]),
    with_library("sparse_vectors", &["libcusparse.so.12"]),
    with_library("sparse_lt", &["libcusparseLt.so.0"]),
    ranks("nccl_one", &["one"]),
    ranks("nccl_two_processes", &["processes", "2"]),
    ranks("nccl_three_processes", &["processes", "3"]),
    ranks("nccl_lost_process", &["lost"]),
    with_library("activities", &["libcupti.so.13", "libcupti.so.12"]),
    // The guest of the release before takes a prepared launch for a graph of the program's.
    Case { newer: Some(Part::Guest), ..with_library("callbacks", &["libcupti.so.13", "libcupti.so.12"]) },
    Case { stdin: "1 2 40000 -5", exit: 7, stderr_has: &["4 values"], ..Case::new("stdin_exit") },
];

/// The case of that name.
///
/// # Panics
///
/// Panics if there is no such case, because the name is a constant of a test.
pub fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case `{name}` in the table"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::Variant;
    use std::collections::HashSet;
    use std::path::Path;
    use virtio_cuda_protocol::cuda::agreed_version;

    #[test]
    fn names_are_unique_and_files_exist() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut names = HashSet::new();
        for case in CASES {
            assert!(names.insert(case.name), "{} occurs twice", case.name);
            let (source, _) = Variant::of(case.program).expect("a known variant");
            let there = ["", ".cu", ".cpp"]
                .iter()
                .any(|end| folder.join("cuda").join(format!("{source}{end}")).exists());
            assert!(there, "tests/cuda has no program {}", case.program);
            assert_eq!(case.expected_stdout().is_some(), case.stdout == Stdout::Expected, "{}", case.name);
            assert!(agreed_version(case.since) == Some(case.since), "{} is of no version", case.name);
        }
    }
}
