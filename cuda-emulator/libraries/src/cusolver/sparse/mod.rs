// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuSOLVER's sparse functions (chapter 2.5 of NVIDIA's manual) and its refactorization. Those named `Host` have all arrays in host
//! memory. The others read and write device memory in the handle's stream and wait for it.

pub(crate) mod handle;
pub(crate) mod low_level;
pub(crate) mod order;
pub(crate) mod refactor;
pub(crate) mod solve;

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use cuda_program::Library;

use super::{EXECUTION_FAILED, INVALID_VALUE, Status, size};
use crate::handles::Handle;
use crate::memory::{Array, pointer};
use crate::numbers::{C64, Type, TypedAddress};
use crate::sparse::matrix::Csr;
use crate::stream::{self, Fault, Stream};

/// The memory of a function's arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The caller's, as long as NVIDIA's manual demands.
    Host,
    /// Device memory, which is accessed in that stream.
    Device(Stream),
}

impl Place {
    /// Calls `body` in the stream and waits for it.
    fn run<T: Send + 'static>(
        self,
        body: impl Fn(Self) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<T, Status> {
        let Self::Device(stream) = self else { return body(self).map_err(|Fault| EXECUTION_FAILED) };
        stream::result_of(stream, move || body(self)).map_err(|_| EXECUTION_FAILED)
    }

    /// Numbers of 32 bits.
    fn integers(self, address: usize, count: usize) -> Result<Vec<i32>, Fault> {
        let start: *const i32 = match self {
            Self::Host => address as *const i32,
            Self::Device(_) => pointer(address, count)?,
        };
        // SAFETY: so many numbers of the caller's, or of device memory that was checked.
        Ok((0..count).map(|index| unsafe { start.add(index).read_unaligned() }).collect())
    }

    fn set_integers(self, address: usize, values: &[i32]) -> Result<(), Fault> {
        let start: *mut i32 = match self {
            Self::Host => address as *mut i32,
            Self::Device(_) => pointer(address, values.len())?,
        };
        // SAFETY: room for so many numbers of the caller's, or of device memory that was checked.
        values
            .iter()
            .enumerate()
            .for_each(|(index, value)| unsafe { start.add(index).write_unaligned(*value) });
        Ok(())
    }

    /// Elements of a type.
    fn elements(self, kind: Type, address: usize, count: usize) -> Result<Vec<C64>, Fault> {
        if let Self::Device(_) = self {
            let array = Array::new(kind, address, count)?;
            return Ok((0..count).map(|index| array.get(index)).collect());
        }
        // SAFETY: so many elements of the caller's.
        Ok((0..count).map(|index| unsafe { kind.read(address + index * kind.bytes()) }).collect())
    }

    fn set_elements(self, kind: Type, address: usize, values: &[C64]) -> Result<(), Fault> {
        if let Self::Device(_) = self {
            let array = Array::new(kind, address, values.len())?;
            values.iter().enumerate().for_each(|(index, value)| array.set(index, *value));
            return Ok(());
        }
        for (index, value) in values.iter().enumerate() {
            // SAFETY: room for so many elements of the caller's.
            unsafe { kind.write(address + index * kind.bytes(), *value) };
        }
        Ok(())
    }
}

/// The arguments that describe a matrix.
#[derive(Clone, Copy, Debug)]
struct Given {
    place: Place,
    rows: usize,
    columns: usize,
    count: usize,
    base: i32,
    /// The type and place of the elements, if the function takes them.
    values: Option<TypedAddress>,
    starts: usize,
    indices: usize,
}

impl Given {
    fn new(
        place: Place,
        [rows, columns, count]: [c_int; 3],
        descriptor: Handle,
        values: Option<TypedAddress>,
        [starts, indices]: [usize; 2],
    ) -> Result<Self, Status> {
        let (rows, columns, count) = (size(rows)?, size(columns)?, size(count)?);
        let base = base(descriptor).ok_or(INVALID_VALUE)?;
        let has_null =
            starts == 0 || count > 0 && (indices == 0 || values.is_some_and(|values| values.address == 0));
        if has_null {
            return Err(INVALID_VALUE);
        }
        Ok(Self { place, rows, columns, count, base, values, starts, indices })
    }

    /// Reads the matrix.
    fn load(self) -> Result<Csr, Status> {
        let (starts, indices, values) = self.place.run(move |place| {
            let starts = place.integers(self.starts, self.rows + 1)?;
            let indices = place.integers(self.indices, self.count)?;
            let values = self.values.map(|values| place.elements(values.kind, values.address, self.count));
            Ok((starts, indices, values.transpose()?.unwrap_or_default()))
        })?;
        Csr::new(self.columns, &starts, &indices, values, self.base).ok_or(INVALID_VALUE)
    }
}

/// `cusparseGetMatIndexBase`
type GetBase = extern "C" fn(Handle) -> c_int;

/// Returns the index base of a matrix descriptor. Descriptors belong to cuSPARSE, so this asks its library, which the program has
/// loaded. `None` if the program has not, or for a null descriptor.
fn base(descriptor: Handle) -> Option<i32> {
    static GET: OnceLock<Option<GetBase>> = OnceLock::new();
    let find = || {
        let function = Library::loaded("libcusparse.so.12")?.symbol(c"cusparseGetMatIndexBase")?;
        // SAFETY: the function of this name has this type, and its library stays: the handle of it is never closed.
        Some(unsafe { std::mem::transmute::<*mut c_void, GetBase>(function.as_ptr()) })
    };
    let get = (*GET.get_or_init(find))?;
    (descriptor != 0).then(|| get(descriptor))
}

/// Writes a number to the caller's memory.
fn answer<T>(place: *mut T, value: T) -> Result<(), Status> {
    // SAFETY: the caller gives a place for a number, or null.
    unsafe { place.as_mut() }.map(|place| *place = value).ok_or(INVALID_VALUE)
}

/// Converts an index to the result of the functions for singular matrices.
fn position(index: Option<usize>) -> c_int {
    index.map_or(-1, |index| index as c_int)
}

/// Numbers that are each an index below their count, all different. `None`: they are not.
fn permutation(values: &[i32]) -> Option<Vec<usize>> {
    let mut seen = vec![false; values.len()];
    let index = |value: &i32| {
        let index = usize::try_from(*value).ok()?;
        (!std::mem::replace(seen.get_mut(index)?, true)).then_some(index)
    };
    values.iter().map(index).collect()
}
