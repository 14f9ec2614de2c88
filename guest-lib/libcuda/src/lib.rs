// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `libcuda.so.1` for guests: the CUDA driver API over virtio-cuda.
//!
//! What this library can answer by itself it does: devices are cached, contexts and their stacks are local,
//! handles are minted here, and the tables of memory tell host from device addresses. The rest is one row of
//! the call table each. An entry point is defined by [`entry_points!`]; a name of the driver API without one
//! answers `CUDA_ERROR_NOT_SUPPORTED`.

mod array;
mod array_map;
mod array_table;
mod bench;
mod callback;
mod capture;
mod checkpoint;
mod context;
mod context_table;
mod core_dump;
mod device;
mod driver;
mod entry;
mod error_log;
mod event;
mod exit;
mod external;
mod ffi;
mod function;
mod function_table;
mod graph;
mod green;
mod host_pool;
mod image;
mod image_code;
mod init;
mod ipc;
mod jit;
mod launch;
mod library;
mod link;
mod logs;
mod memory;
mod module;
mod module_table;
mod occupancy;
mod old_launch;
mod peer;
mod plain;
mod pool;
mod post;
mod private_tables;
mod proc_address;
mod reference;
mod results;
mod states;
mod stream;
mod stream_table;
mod stream_values;
mod tensor_map;
mod texture;
mod unsupported;
mod vendor;
mod vmm;

/// Every entry point that this library defines.
fn all_entry_points() -> impl Iterator<Item = &'static entry::EntryPoint> {
    [
        array::ENTRY_POINTS,
        array_map::ENTRY_POINTS,
        callback::ENTRY_POINTS,
        capture::ENTRY_POINTS,
        checkpoint::ENTRY_POINTS,
        context::ENTRY_POINTS,
        core_dump::ENTRY_POINTS,
        device::ENTRY_POINTS,
        event::ENTRY_POINTS,
        external::memory::ENTRY_POINTS,
        external::semaphore::ENTRY_POINTS,
        function::ENTRY_POINTS,
        graph::exec::ENTRY_POINTS,
        graph::node::ENTRY_POINTS,
        graph::semaphore::ENTRY_POINTS,
        graph::structure::ENTRY_POINTS,
        graph::user_object::ENTRY_POINTS,
        green::ENTRY_POINTS,
        init::ENTRY_POINTS,
        private_tables::ENTRY_POINTS,
        ipc::ENTRY_POINTS,
        launch::ENTRY_POINTS,
        library::ENTRY_POINTS,
        link::ENTRY_POINTS,
        logs::ENTRY_POINTS,
        memory::alloc::ENTRY_POINTS,
        memory::batch::ENTRY_POINTS,
        memory::copy::ENTRY_POINTS,
        memory::copy_array::ENTRY_POINTS,
        memory::copy_box::ENTRY_POINTS,
        memory::host::ENTRY_POINTS,
        memory::managed::ENTRY_POINTS,
        memory::pointer::ENTRY_POINTS,
        memory::set::ENTRY_POINTS,
        module::ENTRY_POINTS,
        occupancy::ENTRY_POINTS,
        old_launch::ENTRY_POINTS,
        peer::ENTRY_POINTS,
        plain::ENTRY_POINTS,
        pool::ENTRY_POINTS,
        proc_address::ENTRY_POINTS,
        reference::ENTRY_POINTS,
        results::ENTRY_POINTS,
        stream::ENTRY_POINTS,
        tensor_map::ENTRY_POINTS,
        texture::ENTRY_POINTS,
        vmm::ENTRY_POINTS,
        stream_values::ENTRY_POINTS,
    ]
    .into_iter()
    .flatten()
}
