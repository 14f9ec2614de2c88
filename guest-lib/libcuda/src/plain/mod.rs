// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Entry points of rows with an `entry` clause, which the row describes completely (`entries`), and what converts their
//! inputs and results.

mod entries;

use virtio_cuda_client::protocol::*;
use virtio_cuda_client::{Call, CudaError};

use crate::entry::Api;
use crate::ffi::In;
use crate::handles::{Kind, check};
use crate::texture::reference::{surface, texture};
pub(crate) use entries::ENTRY_POINTS;

/// An input of a row as a C parameter.
pub trait Input: Sized {
    /// The C type.
    type C: Copy;
    /// For the first input: checks it before anything else.
    fn check(_given: Self::C, _api: Api) -> Result<(), CudaError> {
        Ok(())
    }
    /// For the first input: starts the call, in its context.
    fn call(_given: Self::C, api: Api) -> Result<Call<'static>, CudaError> {
        Ok(api.call())
    }
    /// Converts the value for the wire.
    fn take(given: Self::C, api: Api) -> Result<Self, CudaError>;
}

/// A value that is the same in C and on the wire. Calls without an object need a current context.
pub trait Scalar: Copy {}

impl<T: Scalar> Input for T {
    type C = T;
    fn call(_: T, api: Api) -> Result<Call<'static>, CudaError> {
        api.in_context()
    }
    fn take(given: T, _: Api) -> Result<T, CudaError> {
        Ok(given)
    }
}

impl<T: Scalar> Output for T {
    type C = T;
    fn give(self, _: Api) -> T {
        self
    }
}

impl Scalar for i32 {}
impl Scalar for u32 {}
impl Scalar for u64 {}
impl Scalar for f32 {}

// The worker checks these handles, whose calls work without a current context.
impl Input for DevicePtr {
    type C = u64;
    fn take(given: u64, _: Api) -> Result<Self, CudaError> {
        Ok(Self(given))
    }
}

impl Input for AllocationId {
    type C = u64;
    fn take(given: u64, _: Api) -> Result<Self, CudaError> {
        Ok(Self(given))
    }
}

/// Implements handles that the worker checks, as far as they are of the right kind.
macro_rules! handles_of {
    ($($name:ident: $kind:ident),*) => { $(
        impl Input for $name {
            type C = u64;
            fn take(given: u64, _: Api) -> Result<$name, CudaError> {
                check(Kind::$kind, given)?;
                Ok($name(given))
            }
        }
    )* };
}
handles_of!(LibraryId: Library, GraphId: Graph, GraphNodeId: Node, GraphExecId: Exec);

impl Input for FunctionId {
    type C = u64;
    fn call(_: u64, api: Api) -> Result<Call<'static>, CudaError> {
        api.in_context()
    }
    fn take(given: u64, _: Api) -> Result<Self, CudaError> {
        Ok(Self(given))
    }
}

impl Input for StreamId {
    type C = u64;
    fn call(given: u64, api: Api) -> Result<Call<'static>, CudaError> {
        api.in_context_of(given)
    }
    fn take(given: u64, api: Api) -> Result<Self, CudaError> {
        api.stream(given)
    }
}

impl Input for UserObjectId {
    type C = u64;
    fn take(given: u64, _: Api) -> Result<Self, CudaError> {
        if given == 0 { Err(CudaError::INVALID_VALUE) } else { Ok(Self(given)) }
    }
}

impl Input for DeviceOrdinal {
    type C = i32;
    fn take(given: i32, api: Api) -> Result<Self, CudaError> {
        Ok(api.driver.devices.check(given)?.on_wire())
    }
}

impl Input for ArrayId {
    type C = u64;
    fn take(given: u64, api: Api) -> Result<Self, CudaError> {
        api.driver.arrays.check(given)?;
        Ok(Self(given))
    }
}

impl Input for MipmappedArrayId {
    type C = u64;
    fn take(given: u64, api: Api) -> Result<Self, CudaError> {
        api.driver.arrays.check_mipmap(given)?;
        Ok(Self(given))
    }
}

// Calls of references run in the reference's context.
impl Input for TexRefId {
    type C = u64;
    fn check(given: u64, api: Api) -> Result<(), CudaError> {
        texture(api, given).map(drop)
    }
    fn call(given: u64, api: Api) -> Result<Call<'static>, CudaError> {
        Ok(texture(api, given)?.0)
    }
    fn take(given: u64, _: Api) -> Result<Self, CudaError> {
        Ok(Self(given))
    }
}

impl Input for SurfRefId {
    type C = u64;
    fn check(given: u64, api: Api) -> Result<(), CudaError> {
        surface(api, given).map(drop)
    }
    fn call(given: u64, api: Api) -> Result<Call<'static>, CudaError> {
        Ok(surface(api, given)?.0)
    }
    fn take(given: u64, _: Api) -> Result<Self, CudaError> {
        Ok(Self(given))
    }
}

impl Input for [f32; 4] {
    type C = In<[f32; 4]>;
    fn take(given: In<[f32; 4]>, _: Api) -> Result<Self, CudaError> {
        given.get()
    }
}

/// A result of a row as the program gets it.
pub trait Output {
    /// The type that the program's pointer points to.
    type C;
    /// Converts the value for the program.
    fn give(self, api: Api) -> Self::C;
}

impl<T, const N: usize> Output for [T; N] {
    type C = Self;
    fn give(self, _: Api) -> Self {
        self
    }
}

// The program gets these handles as they are.
impl Output for ArrayId {
    type C = u64;
    fn give(self, _: Api) -> u64 {
        self.0
    }
}

impl Output for MipmappedArrayId {
    type C = u64;
    fn give(self, _: Api) -> u64 {
        self.0
    }
}

impl Output for GraphId {
    type C = u64;
    fn give(self, _: Api) -> u64 {
        self.0
    }
}

impl Output for DevicePtr {
    type C = u64;
    fn give(self, api: Api) -> u64 {
        api.program_address(self.0)
    }
}
