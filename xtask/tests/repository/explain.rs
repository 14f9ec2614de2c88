// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask explain` finds the way of functions of every kind.

use std::collections::BTreeSet;
use std::path::Path;

use xtask::explain::{Place, STAGES, places, state};

use crate::root;

/// Functions, and the folders or files in which their ways lead. Ten of each kind of library.
const WAYS: [(&[&str], &[&str]); 5] = [
    (
        &[
            "cudaMalloc",
            "cudaFree",
            "cudaMemcpy",
            "cudaLaunchKernel",
            "cudaStreamCreate",
            "cudaEventRecord",
            "cudaGraphLaunch",
            "cudaGetDeviceProperties",
            "cudaFuncGetAttributes",
            "cudaMallocManaged",
        ],
        &["guest-lib/libcudart/src", "guest-lib/libcudart/names", "tests"],
    ),
    (
        &[
            "cuStreamCreateWithPriority",
            "cuMemAlloc_v2",
            "cuLaunchKernel",
            "cuEventCreate",
            "cuModuleGetFunction",
            "cuGraphInstantiateWithParams",
            "cuMemPoolCreate",
            "cuTexObjectCreate",
            "cuArray3DCreate_v2",
            "cuMemCreate",
        ],
        &["protocol/cuda-abi/src/prototypes", "guest-lib/libcuda/src", "cuda-emulator/src/driver", "tests"],
    ),
    (
        &[
            "cublasSgemm_v2",
            "cublasCreate_v2",
            "cublasLtMatmul",
            "cudnnBackendExecute",
            "cufftExecC2C",
            "curandGenerate",
            "cusolverDnDgetrf",
            "cusparseSpMV",
            "ncclAllReduce",
            "cusparseLtMatmul",
        ],
        &["protocol/libraries/rows", "cuda-emulator/libraries/src", "tests"],
    ),
    (
        &[
            "nvmlInit_v2",
            "nvmlDeviceGetCount_v2",
            "nvmlDeviceGetName",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetUUID",
            "nvmlShutdown",
            "nvmlErrorString",
            "nvmlDeviceGetPciInfo_v3",
            "nvmlSystemGetDriverVersion",
        ],
        &["guest-lib/nvml/names.txt", "guest-lib/nvml/src"],
    ),
    (
        &[
            "cuptiActivityEnable",
            "cuptiActivityFlushAll",
            "cuptiSubscribe",
            "cuptiUnsubscribe",
            "cuptiEnableCallback",
            "cuptiEnableDomain",
            "cuptiGetTimestamp",
            "cuptiGetVersion",
            "cuptiActivityGetNextRecord",
            "cuptiActivityRegisterCallbacks",
        ],
        &["guest-lib/cupti/names.txt", "guest-lib/cupti/src"],
    ),
];

#[test]
fn fifty_names_lead_from_the_guest_to_the_tests() {
    for (names, folders) in WAYS {
        for name in names {
            let places = places(&root(), name).expect("the repository is read");
            let leads = |folder: &&&str| places.iter().any(|place| place.file.starts_with(folder));
            let missing: Vec<_> = folders.iter().filter(|folder| !leads(folder)).collect();
            assert!(missing.is_empty(), "{name} is not in {missing:?}, only in {:?}", files(&places));
        }
    }
}

fn files(places: &[Place]) -> BTreeSet<&Path> {
    places.iter().map(|place| place.file.as_path()).collect()
}

#[test]
fn places_are_in_the_order_of_the_way() {
    let places = places(&root(), "cuStreamCreateWithPriority").expect("the repository is read");
    assert!(
        places.is_sorted_by_key(|place| place.stage) && places.iter().all(|place| place.stage < STAGES.len())
    );
    let is_row = |place: &&Place| place.text.starts_with("0x0601 create cuStreamCreateWithPriority");
    assert_eq!(places.iter().filter(is_row).count(), 1);
    assert!(
        xtask::explain::places(&root(), &format!("cuNoSuch{}", "Function"))
            .is_ok_and(|places| places.is_empty())
    );
}

#[test]
fn rows_say_what_state_calls_make() {
    let states = |name: &str| -> Vec<String> {
        let places = places(&root(), name).expect("the repository is read");
        places.iter().filter_map(|place| state(&place.file, &place.text, name)).collect()
    };
    assert_eq!(states("cublasSgemm_v2"), ["changes contents only"]);
    assert_eq!(states("cuStreamDestroy_v2"), ["ends an object, or gives a hold back"]);
    assert_eq!(states("cuCtxSetLimit"), ["changes a setting, which cuCtxGetLimit returns"]);
    assert_eq!(
        states("cublasSetWorkspace_v2"),
        ["changes a setting that no call returns: \"the library has no getter\""]
    );
}
