// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `ioctl` commands that NVIDIA's library may use. NVIDIA's kernel modules are the wall between virtual machines, so these
//! are the commands that computing needs, and no others of the same devices: their tools read and write other processes' memory,
//! and one command wraps any other.

/// The type of commands of the GPUs' nodes ('F'; `NV_IOCTL_MAGIC` of NVIDIA's open kernel modules).
const FRONT_END: u64 = 0x46 << 8;
/// The type of commands of /dev/nvidia-modeset ('m').
const MODESET: u64 = 0x6d << 8;
/// The type of commands of WSL's /dev/dxg ('G').
const DXG: u64 = 0x47 << 8;

/// The bits of a command that are its type, and those that are type and number. The others are direction and size of the argument.
pub const TYPE_BITS: u64 = 0xff << 8;
pub const NUMBER_BITS: u64 = 0xffff;

/// Numbers of front-end commands (`nv-ioctl-numbers.h`, `nv_escape.h`). Among those that are missing: 0xd3 carries another command
/// in its argument.
const FRONT_END_NUMBERS: [u64; 18] = [
    0x27, // NV_ESC_RM_ALLOC_MEMORY
    0x29, // NV_ESC_RM_FREE
    0x2a, // NV_ESC_RM_CONTROL
    0x2b, // NV_ESC_RM_ALLOC
    0x34, // NV_ESC_RM_DUP_OBJECT
    0x35, // NV_ESC_RM_SHARE
    0x4a, // NV_ESC_RM_VID_HEAP_CONTROL
    0x4e, // NV_ESC_RM_MAP_MEMORY
    0x4f, // NV_ESC_RM_UNMAP_MEMORY
    0x5e, // NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO
    0xc8, // NV_ESC_CARD_INFO
    0xc9, // NV_ESC_REGISTER_FD
    0xce, // NV_ESC_ALLOC_OS_EVENT
    0xcf, // NV_ESC_FREE_OS_EVENT
    0xd2, // NV_ESC_CHECK_VERSION_STR
    0xd4, // NV_ESC_ATTACH_GPUS_TO_FD
    0xd6, // NV_ESC_SYS_PARAMS
    0xda, // NV_ESC_WAIT_OPEN_COMPLETE
];

/// Commands of /dev/nvidia-uvm, which are plain numbers (`uvm_ioctl.h`, `uvm_linux_ioctl.h`).
pub const UVM: [u64; 30] = [
    23,          // UVM_CREATE_RANGE_GROUP
    24,          // UVM_DESTROY_RANGE_GROUP
    25,          // UVM_REGISTER_GPU_VASPACE
    26,          // UVM_UNREGISTER_GPU_VASPACE
    27,          // UVM_REGISTER_CHANNEL
    28,          // UVM_UNREGISTER_CHANNEL
    29,          // UVM_ENABLE_PEER_ACCESS
    30,          // UVM_DISABLE_PEER_ACCESS
    31,          // UVM_SET_RANGE_GROUP
    33,          // UVM_MAP_EXTERNAL_ALLOCATION
    34,          // UVM_FREE
    37,          // UVM_REGISTER_GPU
    38,          // UVM_UNREGISTER_GPU
    39,          // UVM_PAGEABLE_MEM_ACCESS
    42,          // UVM_SET_PREFERRED_LOCATION
    43,          // UVM_UNSET_PREFERRED_LOCATION
    45,          // UVM_DISABLE_READ_DUPLICATION
    47,          // UVM_UNSET_ACCESSED_BY
    51,          // UVM_MIGRATE
    53,          // UVM_MIGRATE_RANGE_GROUP
    65,          // UVM_MAP_DYNAMIC_PARALLELISM_REGION
    66,          // UVM_UNMAP_EXTERNAL
    68,          // UVM_ALLOC_SEMAPHORE_POOL
    70,          // UVM_PAGEABLE_MEM_ACCESS_ON_GPU
    72,          // UVM_VALIDATE_VA_RANGE
    73,          // UVM_CREATE_EXTERNAL_RANGE
    74,          // UVM_MAP_EXTERNAL_SPARSE
    75,          // UVM_MM_INITIALIZE
    0x3000_0001, // UVM_INITIALIZE
    0x3000_0002, // UVM_DEINITIALIZE
];

/// Returns types and numbers of commands of the GPUs' nodes.
pub fn of_gpus() -> impl Iterator<Item = u64> {
    FRONT_END_NUMBERS.into_iter().map(|number| FRONT_END | number)
}

/// Returns the types of commands of further nodes, where they exist.
pub fn of_other_nodes(exists: impl Fn(&str) -> bool) -> impl Iterator<Item = u64> {
    let nodes = [("/dev/nvidia-modeset", MODESET), ("/dev/dxg", DXG)];
    nodes.into_iter().filter(move |(node, _)| exists(node)).map(|(_, kind)| kind)
}
