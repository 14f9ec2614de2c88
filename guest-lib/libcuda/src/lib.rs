// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `libcuda.so.1` for guests: the CUDA driver API over virtio-cuda.
//!
//! This library handles many calls locally. Device properties are cached, contexts and their stacks are local, handles
//! are created here, and tables of memory classify host and device addresses. Each of the other calls is one row of the
//! call table. [`entry_points!`] defines the entry points; a name of the driver API without one returns
//! `CUDA_ERROR_NOT_SUPPORTED`.

mod answer;
mod api;
mod array;
mod context;
mod device;
mod driver;
mod entry;
mod event;
mod external;
mod ffi;
mod graph;
mod handles;
mod ipc;
mod jit;
mod launch;
mod local;
mod memory;
mod module;
mod names;
mod occupancy;
mod old_launch;
mod plain;
mod pool;
mod state;
mod stream;
mod texture;
mod tokens;
mod trace;
mod vmm;
mod wire;
mod work;

/// Returns every entry point that this library defines.
fn all_entry_points() -> impl Iterator<Item = &'static entry::EntryPoint> {
    [
        array::ENTRY_POINTS,
        array::map::ENTRY_POINTS,
        stream::callback::ENTRY_POINTS,
        stream::capture::ENTRY_POINTS,
        context::checkpoint::ENTRY_POINTS,
        context::ENTRY_POINTS,
        context::core_dump::ENTRY_POINTS,
        device::ENTRY_POINTS,
        event::ENTRY_POINTS,
        external::memory::ENTRY_POINTS,
        external::semaphore::ENTRY_POINTS,
        module::function::ENTRY_POINTS,
        graph::exec::ENTRY_POINTS,
        graph::node::ENTRY_POINTS,
        graph::semaphore::ENTRY_POINTS,
        graph::structure::ENTRY_POINTS,
        graph::user_object::ENTRY_POINTS,
        context::green::ENTRY_POINTS,
        local::init::ENTRY_POINTS,
        names::private_tables::ENTRY_POINTS,
        ipc::ENTRY_POINTS,
        launch::ENTRY_POINTS,
        module::library::ENTRY_POINTS,
        module::link::ENTRY_POINTS,
        local::logs::ENTRY_POINTS,
        memory::alloc::ENTRY_POINTS,
        memory::copy::batch::ENTRY_POINTS,
        memory::copy::api::ENTRY_POINTS,
        memory::boxes::array_api::ENTRY_POINTS,
        memory::boxes::api::ENTRY_POINTS,
        memory::host::ENTRY_POINTS,
        memory::managed::ENTRY_POINTS,
        memory::pointer::ENTRY_POINTS,
        memory::residency::ENTRY_POINTS,
        memory::set::ENTRY_POINTS,
        module::ENTRY_POINTS,
        occupancy::ENTRY_POINTS,
        old_launch::ENTRY_POINTS,
        context::peer::ENTRY_POINTS,
        plain::ENTRY_POINTS,
        pool::ENTRY_POINTS,
        names::proc_address::ENTRY_POINTS,
        texture::reference::ENTRY_POINTS,
        local::results::ENTRY_POINTS,
        stream::ENTRY_POINTS,
        texture::tensor_map::ENTRY_POINTS,
        texture::ENTRY_POINTS,
        vmm::ENTRY_POINTS,
        stream::values::ENTRY_POINTS,
    ]
    .into_iter()
    .flatten()
}
