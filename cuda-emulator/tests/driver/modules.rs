// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modules and libraries: variables, kernels, life times.

use std::ptr::null_mut;

use crate::cu::{self, Opaque, PTX, cu, download, function, launch};

const SUCCESS: i32 = 0;
const INVALID_VALUE: i32 = 1;
const INVALID_HANDLE: i32 = 400;
const NOT_FOUND: i32 = 500;
const NOT_PERMITTED: i32 = 800;

fn load_library() -> Opaque {
    cu::use_primary_context();
    let mut library = null_mut();
    let none = null_mut();
    let loaded = cu!(cuLibraryLoadData(
        &mut library,
        PTX.as_ptr().cast(),
        none,
        null_mut(),
        0,
        null_mut(),
        null_mut(),
        0
    ));
    assert_eq!(loaded, SUCCESS);
    library
}

#[test]
fn a_modules_variables_have_their_values_and_keep_them() {
    let module = cu::load_module();
    let (mut counter, mut managed, mut bytes) = (0, 0, 0);
    assert_eq!(cu!(cuModuleGetGlobal_v2(&mut counter, &mut bytes, module, c"counter".as_ptr())), SUCCESS);
    assert_eq!(bytes, 4);
    assert_eq!(
        cu!(cuModuleGetGlobal_v2(&mut managed, &mut bytes, module, c"managed_counter".as_ptr())),
        SUCCESS
    );
    assert_eq!(launch(function(module, "count"), 2, 32, 0, null_mut()), SUCCESS);
    assert_eq!(download::<i32>(counter, 1), [5 + 64]);
    // SAFETY: a managed variable is host memory as well; the copy above has waited for the kernel.
    assert_eq!(unsafe { (managed as *const i32).read_volatile() }, 77 + 64);
    assert_eq!(cu!(cuModuleGetGlobal_v2(&mut counter, &mut bytes, module, c"missing".as_ptr())), NOT_FOUND);
    assert_eq!(cu!(cuModuleGetGlobal_v2(null_mut(), null_mut(), module, c"counter".as_ptr())), INVALID_VALUE);
}

#[test]
fn handles_die_with_their_module() {
    let module = cu::load_module();
    let count = function(module, "count");
    assert_eq!(function(module, "count"), count);
    let mut missing = null_mut();
    assert_eq!(cu!(cuModuleGetFunction(&mut missing, module, c"missing".as_ptr())), NOT_FOUND);
    assert_eq!(cu!(cuModuleUnload(module)), SUCCESS);
    assert_eq!(cu!(cuModuleUnload(module)), INVALID_HANDLE);
    assert_eq!(launch(count, 1, 1, 0, null_mut()), INVALID_HANDLE);
    assert_eq!(cu!(cuModuleGetFunction(&mut missing, module, c"count".as_ptr())), INVALID_HANDLE);
}

#[test]
fn kernels_launch_as_functions_in_every_context() {
    let library = load_library();
    let (mut kernel, mut function) = (null_mut(), null_mut());
    assert_eq!(cu!(cuLibraryGetKernel(&mut kernel, library, c"count".as_ptr())), SUCCESS);
    assert_eq!(cu!(cuKernelGetFunction(&mut function, kernel)), SUCCESS);
    assert_ne!(kernel, function);
    // The settings of a kernel apply to its functions.
    let mut value = 0;
    assert_eq!(cu!(cuKernelSetAttribute(8, 1000, kernel, 0)), SUCCESS);
    assert_eq!(cu!(cuFuncGetAttribute(&mut value, 8, function)), SUCCESS);
    assert_eq!(value, 1000);
    let (mut managed, mut same, mut bytes) = (0, 0, 0);
    assert_eq!(
        cu!(cuLibraryGetManaged(&mut managed, &mut bytes, library, c"managed_counter".as_ptr())),
        SUCCESS
    );
    assert_eq!(cu!(cuLibraryGetGlobal(&mut same, &mut bytes, library, c"managed_counter".as_ptr())), SUCCESS);
    assert_eq!(managed, same);

    let mut other = null_mut();
    let counter_here = || {
        let (mut counter, mut bytes) = (0, 0);
        assert_eq!(cu!(cuLibraryGetGlobal(&mut counter, &mut bytes, library, c"counter".as_ptr())), SUCCESS);
        counter
    };
    let first = counter_here();
    assert_eq!(launch(kernel, 1, 10, 0, null_mut()), SUCCESS);
    assert_eq!(launch(function, 1, 10, 0, null_mut()), SUCCESS);
    assert_eq!(download::<i32>(first, 1), [25]);
    // Another context has variables of its own, except for managed ones.
    assert_eq!(cu!(cuCtxCreate_v2(&mut other, 0, 0)), SUCCESS);
    let second = counter_here();
    assert_ne!(first, second);
    assert_eq!(launch(kernel, 1, 1, 0, null_mut()), SUCCESS);
    assert_eq!(launch(function, 1, 1, 0, null_mut()), INVALID_HANDLE);
    assert_eq!(download::<i32>(second, 1), [6]);
    assert_eq!(download::<i32>(managed, 1), [77 + 21]);

    assert_eq!(cu!(cuLibraryUnload(library)), SUCCESS);
    assert_eq!(cu!(cuLibraryUnload(library)), INVALID_HANDLE);
    assert_eq!(launch(kernel, 1, 1, 0, null_mut()), INVALID_HANDLE);
}

#[test]
fn parameters_and_attributes_are_described() {
    let library = load_library();
    let mut kernel = null_mut();
    assert_eq!(cu!(cuLibraryGetKernel(&mut kernel, library, c"mixed".as_ptr())), SUCCESS);
    let (mut offset, mut size) = (0, 0);
    for (index, expected) in [(0, 8), (8, 1), (16, 24), (40, 4), (44, 2)].into_iter().enumerate() {
        assert_eq!(cu!(cuKernelGetParamInfo(kernel, index, &mut offset, &mut size)), SUCCESS);
        assert_eq!((offset, size), expected);
    }
    assert_eq!(cu!(cuKernelGetParamInfo(kernel, 5, &mut offset, &mut size)), INVALID_VALUE);
    // As NVIDIA's, calls on functions do not take kernels.
    let mut value = 0;
    assert_eq!(cu!(cuFuncGetAttribute(&mut value, 0, kernel)), INVALID_HANDLE);

    let module = cu::load_module();
    let attributes = |name: &str| {
        let function = function(module, name);
        [0, 1, 2, 8].map(|attribute| {
            let mut value = -1;
            assert_eq!(cu!(cuFuncGetAttribute(&mut value, attribute, function)), SUCCESS);
            value
        })
    };
    assert_eq!(attributes("large_static"), [1024, 16384, 16, 32768]);
    assert_eq!(attributes("bounded"), [128, 0, 16, 49152]);
    assert_eq!(cu!(cuFuncGetAttribute(&mut value, 16, function(module, "bounded"))), INVALID_VALUE);
}

#[test]
fn a_librarys_module_is_not_unloaded_alone() {
    let library = load_library();
    let (mut kernel, mut function) = (null_mut(), null_mut());
    assert_eq!(cu!(cuLibraryGetKernel(&mut kernel, library, c"count".as_ptr())), SUCCESS);
    assert_eq!(cu!(cuKernelGetFunction(&mut function, kernel)), SUCCESS);
    let mut module = null_mut();
    assert_eq!(cu!(cuLibraryGetModule(&mut module, library)), SUCCESS);
    assert_eq!(cu!(cuModuleUnload(module)), NOT_PERMITTED);
    assert_eq!(launch(function, 1, 1, 0, null_mut()), SUCCESS);
}

#[test]
fn a_limit_of_registers_is_reported_and_kept() {
    const MAX_REGISTERS: u32 = 0;
    const MAX_THREADS_PER_BLOCK: u32 = 0;
    const NUM_REGS: u32 = 4;
    // 40 values that all live at once.
    let mut text = String::from(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{ .reg .b64 %a; .reg .f32 %f<40>; ld.param.u64 %a, [p];\n",
    );
    (0..40).for_each(|n| text += &format!("ld.global.f32 %f{n}, [%a+{}];\n", 4 * n));
    (0..40).for_each(|n| text += &format!("st.global.f32 [%a+{}], %f{n};\n", 4 * (39 - n)));
    let text = std::ffi::CString::new(text + "ret; }").unwrap();
    cu::use_primary_context();
    let load = |limit: usize| {
        let (mut module, mut options, mut values) =
            (null_mut(), [MAX_REGISTERS], [limit as *mut std::ffi::c_void]);
        let count = u32::from(limit != 0);
        assert_eq!(
            cu!(cuModuleLoadDataEx(
                &mut module,
                text.as_ptr().cast(),
                count,
                options.as_mut_ptr(),
                values.as_mut_ptr()
            )),
            0
        );
        [NUM_REGS, MAX_THREADS_PER_BLOCK].map(|attribute| {
            let mut value = -1;
            assert_eq!(cu!(cuFuncGetAttribute(&mut value, attribute, function(module, "k"))), 0);
            value
        })
    };
    let [free, _] = load(0);
    assert!(free > 32, "{free}");
    assert_eq!(load(32), [32, 1024]);
}
