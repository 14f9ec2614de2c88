// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Modules, libraries, kernels and their attributes.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! module_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Bulk in: the image (fat binary container, cubin or PTX text). Loads it as `module`.
            0x0401 load cuModuleLoadData(module: ModuleId) -> () [other same code_prints];
            /// Unloads a module.
            0x0402 destroy cuModuleUnload(module: ModuleId) -> () [other changes code_prints];
            /// Bulk in: the name. Gives a function of the module the name `function`.
            0x0403 part cuModuleGetFunction(module: ModuleId, function: FunctionId) -> () [other same code] as cuModuleGetFunction(module, name());
            /// Bulk in: the name. Address and size of a variable; `managed` is 1 for a `__managed__` one.
            0x0404 variable cuModuleGetGlobal_v2(module: ModuleId) -> (dptr: DevicePtr, bytes: u64, managed: u32) [other same code];
            /// Bulk in: the image. Loads it as `library`.
            0x0405 load cuLibraryLoadData(library: LibraryId) -> () [other same code_prints];
            /// Unloads a library.
            0x0406 destroy cuLibraryUnload(library: LibraryId) -> () [other changes code_prints];
            /// Bulk in: the name. Gives a kernel of the library the name `kernel`.
            0x0407 part cuLibraryGetKernel(library: LibraryId, kernel: FunctionId) -> () [other same code] as cuLibraryGetKernel(library, name());
            /// Bulk in: the name. Address and size of a variable in the current context; `managed` is 1 for a
            /// `__managed__` one.
            0x0408 variable cuLibraryGetGlobal(library: LibraryId) -> (dptr: DevicePtr, bytes: u64, managed: u32) [other same code];
            /// Bulk in: the name. Address and size of a managed variable.
            0x0409 variable cuLibraryGetManaged(library: LibraryId) -> (dptr: DevicePtr, bytes: u64) [other same code];
            /// Gives the library's module in the current context the name `module`.
            0x040a part cuLibraryGetModule(library: LibraryId, module: ModuleId) -> () [other same code] as cuLibraryGetModule(library);
            /// Returns the number of kernels in the library.
            0x040b forward cuLibraryGetKernelCount(library: LibraryId) -> (count: u32) [other same code] entry first;
            /// Gives the kernel's function in the current context the name `function`.
            0x040c part cuKernelGetFunction(kernel: FunctionId, function: FunctionId) -> () [other same code] as cuKernelGetFunction(kernel);
            /// Bulk out: the layout of the parameters, `count` times two u32 (offset, bytes). An error of the
            /// driver's own means that the function is not usable in the current context.
            0x0410 custom function_layout(function: FunctionId) -> (count: u32) [other same code];
            /// An attribute of a function.
            0x0411 forward cuFuncGetAttribute(attrib: i32, function: FunctionId) -> (value: i32) [other same code];
            /// Sets an attribute of a function.
            0x0412 forward cuFuncSetAttribute(function: FunctionId, attrib: i32, value: i32) -> () [other same code]
                as cuFuncSetAttribute(function, function_attribute(attrib), value);
            /// Sets the preferred cache configuration of a function.
            0x0413 forward cuFuncSetCacheConfig(function: FunctionId, config: i32) -> () [other changes code] entry first;
            /// An attribute of a kernel on a device.
            0x0414 forward cuKernelGetAttribute(attrib: i32, kernel: FunctionId, device: DeviceOrdinal) -> (value: i32) [other same code];
            /// Sets an attribute of a kernel on a device.
            0x0415 forward cuKernelSetAttribute(attrib: i32, value: i32, kernel: FunctionId, device: DeviceOrdinal) -> () [other same code]
                as cuKernelSetAttribute(function_attribute(attrib), value, kernel, device);
            /// Sets the preferred cache configuration of a kernel on a device.
            0x0416 forward cuKernelSetCacheConfig(kernel: FunctionId, config: i32, device: DeviceOrdinal) -> () [other changes code];
            /// Returns the maximum number of a function's blocks per multiprocessor.
            0x0420 forward cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(function: FunctionId, block_threads: i32, dynamic_shared: u64, flags: u32) -> (blocks: i32) [other same code];
            /// Block size of best occupancy for constant dynamic shared memory.
            0x0421 forward cuOccupancyMaxPotentialBlockSizeWithFlags(function: FunctionId, dynamic_shared: u64, block_limit: i32, flags: u32) -> (min_grid: i32, block: i32) [other same code]
                as cuOccupancyMaxPotentialBlockSizeWithFlags(function, no_function(), dynamic_shared, block_limit, flags);
            /// Dynamic shared memory left when `blocks` blocks share a multiprocessor.
            0x0422 forward cuOccupancyAvailableDynamicSMemPerBlock(function: FunctionId, blocks: i32, block_threads: i32) -> (bytes: u64) [other same code];
            /// Bulk in: `attributes` launch attributes. Returns the maximum number of resident clusters of that shape.
            0x0423 forward cuOccupancyMaxActiveClusters(function: FunctionId, shape: LaunchShape, attributes: u32) -> (clusters: i32) [other same code]
                as active_clusters(launch_with(shape, attributes), function);
            /// Bulk in: `attributes` launch attributes. The largest cluster for a launch of that shape.
            0x0424 forward cuOccupancyMaxPotentialClusterSize(function: FunctionId, shape: LaunchShape, attributes: u32) -> (blocks: i32) [other same code]
                as potential_cluster_size(launch_with(shape, attributes), function);
            /// Bulk out: the names of a module's functions, each with its NUL, if there is room for all `bytes`.
            0x0425 custom module_function_names(module: ModuleId) -> (count: u32, bytes: u64) [other same code];
            /// The same for the kernels of a library.
            0x0426 custom library_kernel_names(library: LibraryId) -> (count: u32, bytes: u64) [other same code];
            /// Loads as `module` the image of `bytes` bytes whose BLAKE3 digest is given, if the device still has it:
            /// with `known` 0 nothing was loaded, and `cuModuleLoadData` must follow.
            0x0480 load module_load_known(module: ModuleId, digest: [u8; 32], bytes: u64) -> (known: u32) [other same code_prints];
            /// The same for `cuLibraryLoadData`.
            0x0481 load library_load_known(library: LibraryId, digest: [u8; 32], bytes: u64) -> (known: u32) [other same code_prints];
        } }
    };
}
