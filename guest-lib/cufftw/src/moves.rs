// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Moves elements between the program's arrays and device memory where they are side by side.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Copies the elements of the program's array at `from` to `device`.
///
/// # Safety
///
/// The array at `from` has `layout` and may be read; `device` has room for its elements.
pub unsafe fn upload(driver: &Driver, device: u64, from: usize, layout: &Layout) -> Result {
    if layout.is_packed() {
        // SAFETY: a packed array is as long as its elements, which may be read; the device memory has room.
        return unsafe { driver.copy(device, from as u64, layout.bytes()) };
    }
    let elements = if driver.is_device(from) {
        let array = download_array(driver, from, layout)?;
        // SAFETY: the copy has the array's layout.
        unsafe { gather(array.as_ptr(), layout) }?
    } else {
        // SAFETY: the array may be read by this function's contract.
        unsafe { gather(from as *const u8, layout) }?
    };
    // SAFETY: the device memory has room for the elements.
    unsafe { driver.copy(device, elements.as_ptr() as u64, elements.len()) }
}

/// Copies elements from `device` to the program's array at `to`.
///
/// # Safety
///
/// The array at `to` has `layout` and may be written; the elements are at `device`.
pub unsafe fn download(driver: &Driver, to: usize, device: u64, layout: &Layout) -> Result {
    if layout.is_packed() {
        // SAFETY: a packed array is as long as its elements, and may be written.
        return unsafe { driver.copy(to as u64, device, layout.bytes()) };
    }
    let mut elements = room(layout.bytes())?;
    // SAFETY: `elements` has room for all elements.
    unsafe { driver.copy(elements.as_mut_ptr() as u64, device, elements.len()) }?;
    if !driver.is_device(to) {
        // SAFETY: the array may be written by this function's contract.
        unsafe { scatter(&elements, to as *mut u8, layout) };
        return Ok(());
    }
    let mut array = download_array(driver, to, layout)?;
    // SAFETY: the copy has the array's layout.
    unsafe { scatter(&elements, array.as_mut_ptr(), layout) };
    // SAFETY: the array has this extent and may be written.
    unsafe { driver.copy(to as u64, array.as_ptr() as u64, array.len()) }
}

/// Returns a copy of an array in device memory, with its gaps.
fn download_array(driver: &Driver, from: usize, layout: &Layout) -> Result<Vec<u8>> {
    let mut array = room(layout.extent())?;
    // SAFETY: `array` has that many bytes. The driver knows device memory, and refuses to copy beyond its end.
    unsafe { driver.copy(array.as_mut_ptr() as u64, from as u64, array.len()) }?;
    Ok(array)
}

/// Returns the elements of the array, side by side.
///
/// # Safety
///
/// `array` has `layout` and may be read.
unsafe fn gather(array: *const u8, layout: &Layout) -> Result<Vec<u8>> {
    let mut elements = room(layout.bytes())?;
    layout.runs(|place, before, bytes| {
        // SAFETY: runs are within the array, and within the elements, of which `elements` has all. It is this function's
        // own memory.
        unsafe { array.add(place).copy_to_nonoverlapping(elements.as_mut_ptr().add(before), bytes) };
    });
    Ok(elements)
}

/// Writes the elements of the array.
///
/// # Safety
///
/// `array` has `layout` and may be written. `elements` are as many as its own.
unsafe fn scatter(elements: &[u8], array: *mut u8, layout: &Layout) {
    layout.runs(|place, before, bytes| {
        // SAFETY: runs are within the array, and within its elements, of which `elements` has all.
        unsafe { array.add(place).copy_from_nonoverlapping(elements.as_ptr().add(before), bytes) };
    });
}

/// Returns bytes to write to.
fn room(bytes: usize) -> Result<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| Error::Memory)?;
    room.resize(bytes, 0);
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Axis;

    #[test]
    fn gaps_stay() {
        // Columns 0 and 2 of two rows.
        let axes = [Axis { count: 2, stride: 2 }, Axis { count: 2, stride: 4 }];
        let layout = Layout::new(&axes, 1).expect("it is short");
        let array = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        // SAFETY: the array has this layout.
        let elements = unsafe { gather(array.as_ptr(), &layout) }.expect("it is short");
        assert_eq!(elements, [1, 5, 3, 7]);
        let mut to = [0_u8; 8];
        // SAFETY: the same.
        unsafe { scatter(&elements, to.as_mut_ptr(), &layout) };
        assert_eq!(to, [1, 0, 3, 0, 5, 0, 7, 0]);
    }
}
