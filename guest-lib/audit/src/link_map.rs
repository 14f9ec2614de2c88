// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dynamic linker's description of an object (`struct link_map` of link.h).

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The public part of `struct link_map`.
#[repr(C)]
pub struct LinkMap {
    /// Difference between the addresses in the file and those in memory.
    l_addr: usize,
    /// The file, as the dynamic linker opened it; empty for the program.
    l_name: *const c_char,
    /// The dynamic section in memory.
    l_ld: *const c_void,
    l_next: *const LinkMap,
    l_prev: *const LinkMap,
}

/// A mapped object.
pub struct Object<'a> {
    map: &'a LinkMap,
    name: &'a [u8],
}

impl<'a> Object<'a> {
    /// The object that `map` describes.
    ///
    /// # Safety
    ///
    /// `map` is the dynamic linker's own and stays for `'a`, so that its name ends with a NUL.
    pub unsafe fn new(map: &'a LinkMap) -> Self {
        let name =
            // SAFETY: `# Safety` promises that the name, which is not null, ends with a NUL and stays for `'a`.
            if map.l_name.is_null() { &[][..] } else { unsafe { CStr::from_ptr(map.l_name) }.to_bytes() };
        Self { map, name }
    }

    /// Returns the path that the dynamic linker knows; `None` for the program, and for objects that the kernel maps.
    pub fn name(&self) -> Option<&Path> {
        self.name.contains(&b'/').then(|| Path::new(OsStr::from_bytes(self.name)))
    }

    /// Returns the difference between the addresses in the file and those in memory.
    pub fn base(&self) -> usize {
        self.map.l_addr
    }

    /// Returns the file that was mapped; `None` for objects that the kernel maps.
    pub fn file(&self) -> Option<PathBuf> {
        if let Some(name) = self.name() {
            return Some(name.to_owned());
        }
        if !self.name.is_empty() || !self.map.l_prev.is_null() {
            return None;
        }
        // SAFETY: getauxval takes no memory.
        if unsafe { libc::getauxval(libc::AT_BASE) } != 0 {
            // This link works even after the program was replaced or removed.
            return Some("/proc/self/exe".into());
        }
        // The dynamic linker was started as a command, with the program as its argument.
        mapped_file(&fs::read("/proc/self/maps").ok()?, self.map.l_ld as usize)
    }
}

/// Returns the file that is mapped at `address`, from the text of `/proc/self/maps` (proc_pid_maps(5)).
fn mapped_file(maps: &[u8], address: usize) -> Option<PathBuf> {
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        let path = &line[line.iter().position(|byte| *byte == b'/')?..];
        let range = str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        (number(start)?..number(end)?).contains(&address).then(|| OsStr::from_bytes(path).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_file_at_an_address() {
        let maps = b"1000-2000 r--p 00000000 fe:00 7   /bin/a program\n2000-3000 rw-p 0 00:00 0\n3000-4000 r-xp 0 fe:00 8  /lib/b.so\n";
        assert_eq!(mapped_file(maps, 0x1fff), Some("/bin/a program".into()));
        assert_eq!(mapped_file(maps, 0x2000), None);
        assert_eq!(mapped_file(maps, 0x3000), Some("/lib/b.so".into()));
        assert_eq!(mapped_file(b"garbage /x", 0), None);
    }

    #[test]
    fn objects_of_the_kernel_have_no_file() {
        let map = LinkMap {
            l_addr: 0,
            l_name: c"linux-vdso.so.1".as_ptr(),
            l_ld: std::ptr::null(),
            l_next: std::ptr::null(),
            l_prev: std::ptr::null(),
        };
        // SAFETY: the name is a constant.
        let object = unsafe { Object::new(&map) };
        assert!(object.name().is_none() && object.file().is_none());
    }
}
