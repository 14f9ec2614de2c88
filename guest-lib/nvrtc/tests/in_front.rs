// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stand-ins for NVIDIA's libraries, and the results that a program gets through ours. Each test runs a separate
//! process, because the libraries and the device are cached per process.

use std::env;
use std::ffi::{CStr, c_char};
use std::path::Path;
use std::process::Command;
use std::ptr;

use nvrtc::plain;

/// The output of the compilers below. Both have a NUL; machine code continues after it.
const PTX: &str = "PTX";
const MACHINE_CODE: &str = "CUBIN\0CUBIN";

/// Kinds of inputs for the linker: nvJitLinkInputType's, and one that the linker below refuses.
const INPUT_CUBIN: i32 = 1;
const INPUT_PTX: i32 = 2;
const REFUSED: i32 = 0;

/// Compilers that store their last options. The linker has PTX only if it was requested.
const COMPILERS: &str = r#"
#include <dlfcn.h>
#include <string.h>
int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = dlopen("libnvrtc-builtins.so.13.0", RTLD_NOW) ? 1 : 0;
    return 0;
}
static int real;
int nvrtcCompileProgram(void *program, int count, const char **options) {
    real = count == 1 && !strcmp(options[0], "-arch=sm_90");
    return 0;
}
int nvrtcGetCUBINSize(void *program, size_t *size) { *size = real ? 12 : 0; return 0; }
int nvrtcGetCUBIN(void *program, char *code) { memcpy(code, "CUBIN\0CUBIN", 12); return 0; }
int nvrtcGetPTXSize(void *program, size_t *size) { *size = 4; return 0; }
int nvrtcGetPTX(void *program, char *code) { memcpy(code, "PTX", 4); return 0; }

static int ptx;
int nvJitLinkCreate(void **linker, unsigned count, const char **options) {
    static char handles[16], made;
    ptx = 0;
    for (unsigned i = 0; i < count; i++) ptx |= !strcmp(options[i], "-ptx");
    *linker = &handles[made++ % 16];
    return 0;
}
int nvJitLinkAddData(void *linker, int kind, const void *data, size_t size, const char *name) { return kind ? 0 : 4; }
int nvJitLinkAddFile(void *linker, int kind, const char *file) { return 0; }
int nvJitLinkDestroy(void **linker) { *linker = 0; return 0; }
int nvJitLinkGetLinkedCubinSize(void *linker, size_t *size) { *size = 12; return ptx ? 6 : 0; }
int nvJitLinkGetLinkedCubin(void *linker, char *code) { memcpy(code, "CUBIN\0CUBIN", 12); return ptx ? 6 : 0; }
int nvJitLinkGetLinkedPtxSize(void *linker, size_t *size) { *size = 4; return ptx ? 0 : 3; }
int nvJitLinkGetLinkedPtx(void *linker, char *code) { memcpy(code, "PTX", 4); return ptx ? 0 : 3; }
"#;

fn driver(uuid: &str) -> String {
    format!(
        r#"
#include <string.h>
static int initialised;
int cuInit(unsigned flags) {{ initialised = 1; return 0; }}
int cuDeviceGet(int *device, int ordinal) {{ *device = ordinal; return initialised ? 0 : 3; }}
int cuDeviceGetUuid_v2(char *uuid, int device) {{ memcpy(uuid, "{uuid}\0\0\0\0", 16); return 0; }}
"#
    )
}

fn compile(folder: &Path, library: &str, source: &str) {
    let file = folder.join(format!("{library}.c"));
    std::fs::write(&file, source).unwrap();
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", &format!("-Wl,-soname,{library}"), "-o"])
        .arg(folder.join(library))
        .arg(&file)
        .output()
        .expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `child` in a process that finds these libraries, and a driver whose device has this UUID.
fn with_device(uuid: Option<&str>, child: &str) {
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "libnvrtc.so.13", COMPILERS);
    compile(folder.path(), "libnvJitLink.so.13", COMPILERS);
    if let Some(uuid) = uuid {
        compile(folder.path(), "libcuda.so.1", &driver(uuid));
    }
    run(child, folder.path(), None);
}

fn run(child: &str, libraries: &Path, named: Option<&Path>) {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", child, "--nocapture"]).env("LD_LIBRARY_PATH", libraries);
    if let Some(named) = named {
        command.env("VHOST_CUDA_COMPILERS", named);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns the result for a program that compiles for `architecture`.
fn compiled(architecture: &CStr) -> String {
    let (options, mut size) = ([architecture.as_ptr()], 0);
    let program = ptr::null_mut();
    // SAFETY: the libraries above take any program, and the buffer has the size that they say.
    unsafe {
        assert_eq!(nvrtc::nvrtcCompileProgram(program, 1, options.as_ptr()), 0);
        assert_eq!(nvrtc::nvrtcGetCUBINSize(program, &mut size), 0);
        let mut code = vec![0_u8; size];
        if size > 0 {
            assert_eq!(nvrtc::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()), 0);
        }
        String::from_utf8(code).unwrap()
    }
}

/// Returns the result for a program that links nothing with `options`.
fn linked(options: &[&CStr]) -> Result<String, i32> {
    linked_inputs(options, &[])
}

/// Returns the result for a program that links inputs of these kinds with `options`.
fn linked_inputs(options: &[&CStr], inputs: &[(i32, &str)]) -> Result<String, i32> {
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let (mut linker, mut size) = (ptr::null_mut(), 0);
    // SAFETY: `options` are C strings that live across the calls; all other places are locals of the sizes that the
    // functions name.
    unsafe {
        assert_eq!(plain::nvJitLinkCreate(&mut linker, options.len() as u32, options.as_ptr()), 0);
        for (kind, text) in inputs {
            let added = plain::nvJitLinkAddData(linker, *kind, text.as_ptr().cast(), text.len(), ptr::null());
            assert_eq!(added, if *kind == REFUSED { 4 } else { 0 });
        }
        let result = plain::nvJitLinkGetLinkedCubinSize(linker, &mut size);
        let mut code = vec![0_u8; size];
        if result == 0 {
            assert_eq!(plain::nvJitLinkGetLinkedCubin(linker, code.as_mut_ptr().cast()), 0);
        }
        assert_eq!(plain::nvJitLinkDestroy(&mut linker), 0);
        if result == 0 { Ok(String::from_utf8(code).unwrap()) } else { Err(result) }
    }
}

#[test]
fn emulated() {
    with_device(Some("CUDA-Emulator"), "ptx_stands_for_machine_code");
}

#[test]
#[ignore = "the test above runs it"]
fn ptx_stands_for_machine_code() {
    assert_eq!(compiled(c"-arch=sm_90"), format!("{PTX}\0"));
    // A program that compiles for a virtual architecture must not get machine code of any kind.
    assert_eq!(compiled(c"-arch=compute_90"), "");
    assert_eq!(linked(&[c"-arch=sm_90", c"-lto"]), Ok(format!("{PTX}\0")));
    // Without LTO-IR there is no PTX,
    let options = [c"-arch=sm_90"];
    assert_eq!(linked(&options), Ok(format!("{MACHINE_CODE}\0")));
    // but what the program has passed, with one NUL at the end, unless there is more to link.
    for text in [".version 8.0", ".version 8.0\0"] {
        assert_eq!(linked_inputs(&options, &[(INPUT_PTX, text)]), Ok(".version 8.0\0".to_owned()));
        assert_eq!(
            linked_inputs(&options, &[(REFUSED, text), (INPUT_PTX, text)]),
            Ok(".version 8.0\0".to_owned())
        );
        for others in [[(INPUT_PTX, text), (INPUT_PTX, text)], [(INPUT_CUBIN, text), (INPUT_PTX, text)]] {
            assert_eq!(linked_inputs(&options, &others), Ok(format!("{MACHINE_CODE}\0")));
        }
    }
    let lto = [c"-arch=sm_90", c"-lto"];
    assert_eq!(linked_inputs(&lto, &[(INPUT_PTX, ".version 8.0")]), Ok(format!("{PTX}\0")));
    // A program that requests PTX must not get machine code.
    assert_eq!(linked(&[c"-arch=sm_90", c"-lto", c"-ptx"]), Err(6));
}

#[test]
fn real() {
    with_device(Some("\\x12\\x34"), "machine_code_stays");
}

#[test]
fn no_driver() {
    with_device(None, "machine_code_stays");
}

#[test]
#[ignore = "the tests above run it"]
fn machine_code_stays() {
    assert_eq!(compiled(c"-arch=sm_90"), format!("{MACHINE_CODE}\0"));
    assert_eq!(compiled(c"-arch=compute_90"), "");
    assert_eq!(linked(&[c"-arch=sm_90", c"-lto"]), Ok(format!("{MACHINE_CODE}\0")));
    assert_eq!(linked_inputs(&[c"-arch=sm_90"], &[(INPUT_PTX, "text")]), Ok(format!("{MACHINE_CODE}\0")));
}

#[test]
fn named() {
    let [elsewhere, empty] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    compile(elsewhere.path(), "libnvrtc.so.13", COMPILERS);
    compile(elsewhere.path(), "libnvrtc-builtins.so.13.0", "int nothing;");
    run("it_finds_what_it_needs", empty.path(), Some(elsewhere.path()));
}

#[test]
#[ignore = "the test above runs it"]
fn it_finds_what_it_needs() {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two ints that may be written.
    assert_eq!(unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) }, 0);
    assert_eq!((major, minor), (13, 1));
}

#[test]
fn no_compiler() {
    let folder = tempfile::tempdir().unwrap();
    run("all_calls_fail", folder.path(), None);
}

#[test]
#[ignore = "the test above runs it"]
fn all_calls_fail() {
    // With an installed toolkit there is an NVRTC.
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two ints that may be written.
    let result = unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) };
    assert!(result == 11 || (result == 0 && major > 0), "{result}");
}
