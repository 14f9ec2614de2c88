// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Values on the wire: each puts and takes its own little-endian bytes on a bounded cursor.

/// The room of a [`Writer`] is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

/// Bytes that are not such a value: too few, or out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Takes values from the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// Takes `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        if n > self.rest.len() {
            return Err(Malformed);
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(head)
    }
    /// Returns the bytes that have not been taken.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// Returns an error if bytes are left.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}

/// Puts values into a byte slice, front to back.
#[derive(Debug)]
pub struct Writer<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl<'a> Writer<'a> {
    /// Writes into `room` from its start.
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, used: 0 }
    }
    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
        let end = self.used.checked_add(bytes.len()).ok_or(Overflow)?;
        self.room.get_mut(self.used..end).ok_or(Overflow)?.copy_from_slice(bytes);
        self.used = end;
        Ok(())
    }
    /// Returns the bytes written so far.
    pub fn written(&self) -> &[u8] {
        &self.room[..self.used]
    }
    /// Returns the number of bytes written so far.
    pub fn used(&self) -> usize {
        self.used
    }
}

/// A value of fixed size on the wire.
pub trait Wire: Sized {
    /// Bytes on the wire.
    const BYTES: usize;
    /// Appends the value.
    fn put(&self, w: &mut Writer<'_>) -> Result<(), Overflow>;
    /// Takes the value.
    fn take(r: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Implements [`Wire`] for numbers, in little-endian order.
macro_rules! wire_integers {
    ($($t:ty),*) => { $(
        impl Wire for $t {
            const BYTES: usize = core::mem::size_of::<$t>();
            fn put(&self, w: &mut Writer<'_>) -> Result<(), Overflow> {
                w.bytes(&self.to_le_bytes())
            }
            fn take(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                let bytes = r.bytes(Self::BYTES)?;
                Ok(<$t>::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?))
            }
        }
    )* };
}
wire_integers!(u8, u16, u32, u64, i32, i64, f32);

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    const BYTES: usize = N * T::BYTES;
    fn put(&self, w: &mut Writer<'_>) -> Result<(), Overflow> {
        self.iter().try_for_each(|value| value.put(w))
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::take(r)?;
        }
        Ok(values)
    }
}

/// Defines structures that cross field by field.
macro_rules! wire_structs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $t:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t,)* }

        impl $crate::cuda::Wire for $name {
            const BYTES: usize = 0 $(+ <$t as $crate::cuda::Wire>::BYTES)*;
            fn put(&self, w: &mut $crate::cuda::Writer<'_>) -> Result<(), $crate::cuda::Overflow> {
                $(self.$field.put(w)?;)*
                Ok(())
            }
            fn take(r: &mut $crate::cuda::Reader<'_>) -> Result<Self, $crate::cuda::Malformed> {
                Ok(Self { $($field: <$t as $crate::cuda::Wire>::take(r)?,)* })
            }
        }
    )* };
}
pub(crate) use wire_structs;

wire_structs! {
    /// Shape of a launch (`CUlaunchConfig`). The kernel's parameters are the bulk input, packed as the
    /// kernel lays them out.
    LaunchShape {
        /// Blocks in x, y, z.
        grid: [u32; 3],
        /// Threads per block in x, y, z.
        block: [u32; 3],
        /// Bytes of dynamic shared memory per block.
        shared_bytes: u32,
        /// `LAUNCH_*` bits.
        flags: u32,
        /// Blocks per cluster in x, y, z; zeros for none.
        cluster: [u32; 3],
        /// Launch priority, if [`LAUNCH_PRIORITY`].
        priority: i32,
    }

    /// Size of a 2D or 3D copy.
    Box3 {
        /// Bytes per row.
        width: u64,
        /// Rows.
        height: u64,
        /// Slices; 1 for a 2D copy.
        depth: u64,
    }

    /// Size and offset of one kernel parameter in the packed parameter block.
    ParamLayout {
        /// Byte offset.
        offset: u32,
        /// Bytes.
        bytes: u32,
    }
}

/// [`LaunchShape::flags`]: all blocks resident at once (`cuLaunchCooperativeKernel`).
pub const LAUNCH_COOPERATIVE: u32 = 1 << 0;
/// [`LaunchShape::flags`]: `priority` is given.
pub const LAUNCH_PRIORITY: u32 = 1 << 1;
