// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Encodes the arguments of a C function in a block ([`cuda_library_rows::block`]), and decodes results into the
//! program's memory.

use cuda_library_rows::block::{
    BadSize, MAX_BYTES, MAX_TEXT, PRESENT, SCALING_BYTES, SLOT, described, padded, scalars,
};
use cuda_library_rows::{Asked, Call, Direction, Element, Host, Kind, Library, Measure, Note, Number};

use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::answers::table;
use crate::handles::crossing;
use crate::proven::Key;

/// Slots of a call, and behind them the data of its block; most calls need no allocation.
pub type Slots = SmallVec<[u64; 32]>;
// The words of a block are sent as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"));
/// `CUDNN_TYPE_VOID_PTR`
const ADDRESSES: i128 = 6;

/// A call before it is encoded: the function's row, and the arguments that the program passed.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// Number of the library.
    pub number: u32,
    /// Rows of the library.
    pub library: &'static Library,
    /// Row of the function.
    pub call: &'static Call,
    /// The program's arguments, in C order.
    pub given: &'a [u64],
}

impl Arguments<'_> {
    /// Fills `slots`, which are empty, with those to send. Scalars are in device memory if `device_scalars` is set.
    /// `new_handle` allocates a handle of a kind, `noted` returns a number that was stored for one, and `asked` one that
    /// the library knows.
    ///
    /// # Safety
    ///
    /// Texts, descriptors, pointers to streams, and arrays that are added up satisfy NVIDIA's manual.
    pub unsafe fn slots(
        &self,
        device_scalars: bool,
        new_handle: impl Fn(usize) -> u64,
        noted: impl Fn(Note) -> Option<i64>,
        asked: impl Fn(&Asked) -> Option<i64>,
        slots: &mut Slots,
    ) {
        slots.extend_from_slice(self.given);
        for &index in self.call.roles.encoded {
            let Some(&given) = self.given.get(index) else { continue };
            slots[index] = match &self.call.parameters[index].kind {
                Kind::Host(_)
                | Kind::Scaling
                | Kind::Scratch(_)
                | Kind::Table(_)
                | Kind::Arrays { .. }
                | Kind::Allocated { .. }
                    if given != 0 =>
                {
                    PRESENT
                }
                Kind::Structure(_) => PRESENT,
                // Without a stored number the worker refuses the call, whatever the slot contains.
                Kind::Noted(note) => noted(*note).unwrap_or(-1) as u64,
                // If the library does not answer the guest, it does not answer the worker.
                Kind::Measured(Measure::Asked(number)) => asked(number).unwrap_or(-1) as u64,
                Kind::Measured(Measure::Sum(array)) => {
                    // SAFETY: the array is as long as its row says ("Safety" of this function).
                    let sum = unsafe { self.sum(*array, slots) };
                    sum as u64
                }
                Kind::Placed { place, .. }
                    if given != 0 && self.call.is_in_host_memory(*place, self.given) =>
                {
                    PRESENT
                }
                Kind::Scalar { .. } if given != 0 && !device_scalars => PRESENT,
                Kind::New(kind) => self.crossing(*kind, new_handle(*kind)),
                Kind::Handle { kind, .. } | Kind::End(kind) if given != 0 => self.crossing(*kind, given),
                Kind::OutStream => 0,
                Kind::Described { kind, .. } if given != 0 => {
                    let descriptor = &self.library.descriptors[*kind];
                    let mut contents: SmallVec<[u8; 256]> = smallvec::smallvec![0; descriptor.bytes];
                    let start = given as *const u8;
                    // SAFETY: `given` is a descriptor of this kind ("Safety" of this function), whose size in the library's
                    // table is that of the copy.
                    unsafe { std::ptr::copy_nonoverlapping(start, contents.as_mut_ptr(), contents.len()) };
                    described(self.library, *kind, &contents)
                }
                // SAFETY: not null, so the address of a stream ("Safety" of this function).
                Kind::InStream if given != 0 => unsafe { (given as *const u64).read_unaligned() },
                Kind::DescribedScalar { descriptor, is_beta } if given != 0 => {
                    let scalars = slots.get(*descriptor).and_then(|slot| scalars(*slot));
                    let host = |is_beta: bool| {
                        scalars.is_none_or(
                            |scalars| if is_beta { scalars.host_beta } else { scalars.host_alpha },
                        )
                    };
                    if host(*is_beta) { PRESENT } else { given }
                }
                // SAFETY: not null, and the row says text, so a C string ("Safety" of this function).
                Kind::Text if given != 0 => 1 + unsafe { libc::strnlen(given as *const _, MAX_TEXT) } as u64,
                _ => given,
            };
        }
    }

    /// Returns the sum of the numbers in an array, given the slots before that of the sum.
    ///
    /// # Safety
    ///
    /// The array is as long as its row says.
    unsafe fn sum(&self, array: usize, slots: &[u64]) -> i64 {
        // `write` refuses an array that is too long.
        let bytes = self.call.memory_bytes(self.library, array, slots).unwrap_or(0);
        let start = self.given[array] as *const i32;
        // SAFETY: not null where there are bytes, and as long by this function's contract.
        let number = |index| i64::from(unsafe { start.add(index).read_unaligned() });
        (0..bytes / size_of::<i32>()).map(number).sum()
    }

    fn crossing(&self, kind: usize, handle: u64) -> u64 {
        crossing(self.number, self.library.handles[kind].is_int, handle)
    }

    /// Appends the memory that the library reads to `slots`, which become the block. That memory is also added to the
    /// key, so that calls which the library may treat differently have different keys.
    ///
    /// # Safety
    ///
    /// `slots` were made of these arguments, which point to memory as NVIDIA's manual requires.
    pub unsafe fn write(&self, slots: &mut Slots, key: &mut Key) -> Result<(), BadSize> {
        for &index in self.call.roles.reads {
            let address = self.given.get(index).copied().ok_or(BadSize)?;
            let bytes = self.call.memory_bytes(self.library, index, slots)?;
            let start = slots.len();
            if start * SLOT + padded(bytes) > MAX_BYTES {
                return Err(BadSize);
            }
            let kind = &self.call.parameters[index].kind;
            if let Kind::Scalar { .. } = kind
                && bytes <= SLOT
            {
                if bytes > 0 {
                    // SAFETY: not null, and the row says a number of so many bytes ("Safety" of this function).
                    slots.push(unsafe { number_at(address, bytes) });
                    key.add_scalars(&slots[start..]);
                }
                continue;
            }
            slots.resize(start + padded(bytes) / SLOT, 0);
            // A float may be at the end of its page; an access that is aligned to 8 bytes stays within one page.
            if let Kind::Arrays { arrays, .. } = kind {
                let arrays = if bytes > 0 { self.call.count(arrays, slots)? } else { 0 };
                let data = &mut slots[start..];
                // SAFETY: the row says the address of so many addresses ("Safety" of this function).
                unsafe { gather(address, arrays, &mut data.as_mut_bytes()[..bytes]) };
                key.add_words(data);
                continue;
            }
            let readable = match kind {
                Kind::Scaling if bytes > 0 && address % SCALING_BYTES as u64 != 0 => SCALING_BYTES / 2,
                Kind::Host(Host { element: Element::Sized { .. }, .. }) if bytes > 0 => {
                    // SAFETY: not null, and the row says a structure that starts with its length ("Safety" of this
                    // function).
                    let length = unsafe { (address as *const u64).read_unaligned() };
                    usize::try_from(length).unwrap_or(bytes).min(bytes)
                }
                Kind::Described { kind, .. } if bytes > 0 => self.library.descriptors[*kind].bytes,
                _ => bytes,
            };
            let has_addresses = matches!(kind, Kind::Host(Host { element: Element::ByAttribute { kind: index, .. }, .. })
                if self.call.integer(*index, slots) == Some(ADDRESSES));
            let data = &mut slots[start..];
            // SAFETY: the row says that the library reads that many bytes at the address ("Safety" of this function),
            // which is not null where `bytes` is not 0. A factor of cuDNN's may be a float whose next four bytes are
            // another's, but they are there.
            unsafe {
                let place = data.as_mut_bytes().as_mut_ptr();
                std::ptr::copy_nonoverlapping(address as *const u8, place, readable);
            }
            match kind {
                Kind::Host(_) if has_addresses => key.add_addresses(data.iter().copied()),
                Kind::Host(_) | Kind::Text => key.add_words(data),
                Kind::Described { kind, .. } if bytes > 0 => {
                    // SAFETY: the block has the contents of a descriptor of this kind ("Safety" of this function).
                    unsafe { self.add_other(*kind, data.as_mut_bytes()) };
                    let mut contents: SmallVec<[u64; 64]> = SmallVec::from_slice(data);
                    let all = &self.library.descriptors;
                    all[*kind].forget_addresses(all, contents.as_mut_bytes());
                    key.add_words(&contents);
                }
                _ => key.add_scalars(data),
            }
        }
        Ok(())
    }

    /// Appends the contents of the descriptor whose address is an attribute, and clears the address.
    ///
    /// # Safety
    ///
    /// The attribute is null or the address of a descriptor.
    unsafe fn add_other(&self, kind: usize, contents: &mut [u8]) {
        let all = &self.library.descriptors;
        let Some((index, other)) = all[kind].other() else { return };
        let Some(address) = all[kind].value(index, contents).filter(|address| *address != 0) else { return };
        let start = all[kind].bytes;
        let place = &mut contents[start..start + all[other].bytes];
        // SAFETY: not null, so a descriptor of that kind by this function's contract; `place` is as long as its
        // contents.
        unsafe {
            std::ptr::copy_nonoverlapping(address as *const u8, place.as_mut_ptr(), place.len());
        }
        all[kind].set(index, PRESENT, contents);
    }

    /// Stores the results after the first slot of `block` in the program's memory. If the call failed, only memory that
    /// it may have changed is written.
    ///
    /// # Safety
    ///
    /// The contract of [`Self::write`].
    pub unsafe fn read(&self, slots: &[u64], block: &[u8], succeeded: bool) -> Result<(), BadSize> {
        let mut rest = block.get(SLOT..).ok_or(BadSize)?;
        let mut written = Slots::from_elem(0, self.given.len());
        for &index in self.call.roles.writes {
            let address = self.given.get(index).copied().ok_or(BadSize)?;
            let bytes = self.call.memory_bytes(self.library, index, slots)?;
            let (data, later) = rest.split_at_checked(padded(bytes)).ok_or(BadSize)?;
            rest = later;
            written[index] = first_word(data);
            // Output-only memory is not returned after a failure, because the library need not have written it.
            if !succeeded && self.call.direction(index) == Some(Direction::Out) {
                continue;
            }
            if let Kind::Allocated { element, count, .. } = &self.call.parameters[index].kind {
                let count = count.map(|count| Number::I32.integer(written[count]).unwrap_or(0));
                let bytes = match count {
                    Some(count) => usize::try_from(count).map_err(|_| BadSize)? * element.bytes(),
                    None => bytes,
                };
                // SAFETY: the row says a place for an address ("Safety" of this function); the slot says that it is
                // not null, or there are no bytes.
                if let Some(place) = unsafe { (address as *mut u64).as_mut() } {
                    *place = allocated(data.get(..bytes).ok_or(BadSize)?).ok_or(BadSize)?;
                }
                continue;
            }
            if let Kind::Table(_) = self.call.parameters[index].kind {
                let table = table(&data[..bytes]).ok_or(BadSize)?;
                // SAFETY: the row says a place for an address ("Safety" of this function); the slot says that it is
                // not null, or there are no bytes.
                if let Some(place) = unsafe { (address as *mut u64).as_mut() } {
                    *place = table;
                }
                continue;
            }
            // SAFETY: the row says that the library writes that many bytes at the address ("Safety" of this
            // function), which is not null where `bytes` is not 0.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), address as *mut u8, bytes) };
        }
        Ok(())
    }
}

/// Returns a number that the library has written, zero-extended.
pub fn first_word(data: &[u8]) -> u64 {
    data.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns a number of up to 8 bytes, zero-extended.
///
/// # Safety
///
/// `address` has that many readable bytes.
unsafe fn number_at(address: u64, bytes: usize) -> u64 {
    // SAFETY: so many bytes are readable by this function's contract.
    unsafe {
        match bytes {
            4 => (address as *const u32).read_unaligned().into(),
            8 => (address as *const u64).read_unaligned(),
            _ => {
                let mut number = [0; SLOT];
                std::ptr::copy_nonoverlapping(address as *const u8, number.as_mut_ptr(), bytes);
                u64::from_le_bytes(number)
            }
        }
    }
}

/// Fills `contents` from `arrays` arrays of equal length.
///
/// # Safety
///
/// `address` points to that many addresses of arrays of that length.
unsafe fn gather(address: u64, arrays: usize, contents: &mut [u8]) {
    let each = contents.len().checked_div(arrays).unwrap_or(0);
    for (index, piece) in contents.chunks_exact_mut(each.max(1)).enumerate() {
        // SAFETY: `# Safety` promises addresses of `arrays` arrays, each as long as a piece; there are no more pieces.
        unsafe {
            let array = (address as *const *const u8).add(index).read_unaligned();
            std::ptr::copy_nonoverlapping(array, piece.as_mut_ptr(), piece.len());
        }
    }
}

/// Allocates memory with these contents, which the program frees. `None` if the allocation fails.
fn allocated(contents: &[u8]) -> Option<u64> {
    // SAFETY: any length may be asked for.
    let memory = unsafe { libc::malloc(contents.len().max(1)) };
    if memory.is_null() {
        return None;
    }
    // SAFETY: the memory is new, and as long.
    unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), memory.cast(), contents.len()) };
    Some(memory as u64)
}

#[cfg(test)]
mod tests {
    use cuda_api_description::libraries::library;
    use cuda_library_rows::Body;

    use super::*;

    fn arguments<'a>(row: &str, given: &'a [u64]) -> Arguments<'a> {
        let library: &'static Library =
            Box::leak(Box::new(library(&format!("handle H\n{row}\n"), "").expect(row).library));
        let Body::Forward(call) = &library.functions[0].body else { panic!("{library:?}") };
        Arguments { number: 0, library, call, given }
    }

    /// Returns the slots of a call with scalars in host memory or, if `device_scalars` is set, in device memory. Notes have
    /// the value `noted`.
    ///
    /// # Safety
    ///
    /// The contract of [`Arguments::slots`].
    unsafe fn slots(arguments: &Arguments<'_>, device_scalars: bool, noted: Option<i64>) -> Slots {
        let mut slots = Slots::new();
        // SAFETY: by this function's contract.
        unsafe { arguments.slots(device_scalars, |_| 0, |_| noted, |_| None, &mut slots) };
        slots
    }

    #[test]
    fn arguments_and_answers_cross() {
        let (a, s, mut r) = ([1_i32, 2, 3], 0.5_f32, 0_i64);
        let given =
            [7, 3, a.as_ptr() as u64, &raw const s as u64, &raw mut r as u64, c"text".as_ptr() as u64];
        let arguments = arguments(
            "0 forward f(h: H, n: i32, a: in i32[n], s: scalar f32, r: out i64, t: string) [writes];",
            &given,
        );
        // SAFETY: the addresses are those of locals of the types that the row names.
        let slots = unsafe { slots(&arguments, false, None) };
        assert_eq!(slots[..], [7, 3, PRESENT, PRESENT, PRESENT, 5]);
        let mut block = slots.clone();
        // SAFETY: `given` leads to locals of the types that the row names.
        unsafe { arguments.write(&mut block, &mut Key::new(0, arguments.call, &slots)) }.expect("fits");
        let block = block.as_bytes();
        assert_eq!(block.len(), 6 * 8 + 16 + 8 + 8);
        assert_eq!(block[48..64], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(block[72..], *b"text\0\0\0\0");
        let reply = [0_u64, 42].map(u64::to_le_bytes).concat();
        // SAFETY: `given` leads to locals of the types that the row names.
        unsafe { arguments.read(&slots, &reply, true) }.expect("fits");
        assert_eq!(r, 42);
        // SAFETY: `given` leads to locals of the types that the row names.
        assert_eq!(unsafe { arguments.read(&slots, &reply[..8], true) }, Err(BadSize));
    }

    #[test]
    fn scalars_of_the_device_cross_by_address() {
        let given = [7, 0x7000_0000];
        let arguments = arguments("0 forward f(h: H, s: scalar out f32) [writes];", &given);
        // SAFETY: there is no text.
        let slots = unsafe { slots(&arguments, true, None) };
        assert_eq!(slots[..], given);
        assert_eq!(arguments.call.answer_bytes(arguments.library, &slots), Ok(8));
    }

    #[test]
    fn structures_cross_by_value_and_as_far_as_they_go() {
        let id = [0x5a_u8; 128];
        let config = [24_u64, 1, 2, 3];
        let given = [7, id.as_ptr() as u64, config.as_ptr() as u64, 0x100];
        let arguments = arguments(
            "0 forward f(h: H, id: value bytes 128, c: in? sized 80 null(32,48), w: scratch[16]) [writes];",
            &given,
        );
        // SAFETY: there is no text.
        let slots = unsafe { slots(&arguments, false, None) };
        assert_eq!(slots[..], [7, PRESENT, PRESENT, PRESENT]);
        let mut block = slots.clone();
        // SAFETY: the addresses are those of locals; the structure says that it has 24 bytes.
        unsafe { arguments.write(&mut block, &mut Key::new(0, arguments.call, &slots)) }.expect("fits");
        let block = block.as_bytes();
        assert_eq!(block.len(), 4 * 8 + 128 + 80);
        assert_eq!(block[32..160], id);
        assert_eq!(block[160..184], [24_u64, 1, 2].map(u64::to_le_bytes).concat());
        assert_eq!(block[184..], [0; 56], "what lies behind the structure stays");
    }

    #[test]
    fn a_value_is_placed_where_another_argument_says() {
        let value = 0.5_f64;
        let address = &raw const value as u64;
        for (place, slot) in [(0, address), (1, PRESENT)] {
            let given = [address, place];
            let arguments = arguments("0 forward f(s: placed(n) 8, n: i32) [writes];", &given);
            // SAFETY: there is no text.
            let slots = unsafe { slots(&arguments, false, None) };
            assert_eq!(slots[..], [slot, place]);
        }
    }

    #[test]
    fn what_a_descriptor_points_to_crosses_with_it() {
        let text = "descriptor other 64 init set\nother 0 N 4 0\nother 1 P 8 0 pointer\n\
                    descriptor d 64 init set\nd 0 OTHER 8 0 descriptor:other\n";
        let rows = library("0 forward f(d: described d, s: in stream, n: i32) [writes];\n", text)
            .expect("valid")
            .library;
        let library: &'static Library = Box::leak(Box::new(rows));
        let Body::Forward(call) = &library.functions[0].body else { panic!("{library:?}") };
        let [of_other, of_d] = library.descriptors else { panic!("{library:?}") };
        let (mut other, mut d, stream) = ([0_u8; 64], [0_u8; 64], 0x5000_u64);
        let mut cross = |n: u64, pointer: u64| {
            of_other.set(0, n, &mut other);
            of_other.set(1, pointer, &mut other);
            of_d.set(0, other.as_ptr() as u64, &mut d);
            let given = [d.as_ptr() as u64, &raw const stream as u64, 1];
            let arguments = Arguments { number: 0, library, call, given: &given };
            // SAFETY: both descriptors are locals of these kinds, and the stream is a local.
            let (block, key) = unsafe {
                let mut block = slots(&arguments, false, None);
                let mut key = Key::new(0, call, &block);
                arguments.write(&mut block, &mut key).expect("fits");
                (block, key.get())
            };
            assert_eq!(block[..3], [PRESENT, stream, 1]);
            let block = block.as_bytes();
            assert_eq!(block[3 * 8 + of_d.bytes..], other[..of_other.bytes]);
            assert_eq!(of_d.value(0, &block[3 * 8..]), Some(PRESENT), "no address crosses");
            key
        };
        assert_eq!(cross(1, 0x1000), cross(1, 0x2000));
        assert_ne!(cross(1, 0x1000), cross(2, 0x1000));
    }

    #[test]
    fn a_table_stays_and_is_aligned() {
        let mut place = 0_u64;
        let given = [&raw mut place as u64];
        let arguments = arguments("0 forward f(t: table 16) [writes];", &given);
        let reply = [0_u64, 1, 2].map(u64::to_le_bytes).concat();
        // SAFETY: the address is that of a local with room for an address.
        unsafe { arguments.read(&[PRESENT], &reply, true) }.expect("fits");
        // SAFETY: a table of two numbers, which is never freed.
        assert_eq!(unsafe { *(place as *const [u64; 2]) }, [1, 2]);
        let fresh = std::mem::replace(&mut place, 0);
        // SAFETY: `given` leads to a local with room for an address.
        unsafe { arguments.read(&[PRESENT], &reply, true) }.expect("fits");
        assert_eq!(place, fresh, "the same contents are kept once");
    }

    #[test]
    fn arrays_of_arrays_cross_one_behind_the_other() {
        let arrays = [[1.0_f64, 2.0], [3.0, 4.0], [5.0, 6.0]];
        let addresses = arrays.each_ref().map(|array| array.as_ptr());
        let given = [2, addresses.as_ptr() as u64, 3];
        let arguments = arguments("0 forward f(n: i32, a: in f64[n] each[b], b: i32) [writes];", &given);
        // SAFETY: the addresses are those of locals of the types that the row names.
        let block = unsafe {
            let slots = slots(&arguments, false, None);
            assert_eq!(slots[..], [2, PRESENT, 3]);
            let mut block = slots.clone();
            arguments.write(&mut block, &mut Key::new(0, arguments.call, &slots)).expect("fits");
            block
        };
        assert_eq!(
            block.as_bytes()[24..],
            (1..=6).flat_map(|value| f64::from(value).to_le_bytes()).collect::<Vec<u8>>()
        );
    }

    #[test]
    fn the_program_frees_what_a_library_has_allocated() {
        let (mut count, mut place) = (0_i32, 0_u64);
        let given = [&raw mut count as u64, &raw mut place as u64];
        let arguments = arguments("0 forward f(n: out i32, p: malloc i32[4] of n) [writes];", &given);
        let reply = |count: u64| [0, count, 7 << 32 | 6, 0].map(u64::to_le_bytes).concat();
        // SAFETY: the addresses are those of locals with room for a number and an address.
        let read = |count: u64| unsafe { arguments.read(&[PRESENT, PRESENT], &reply(count), true) };
        read(2).expect("fits");
        // SAFETY: the two numbers that the answer had, in memory of malloc's.
        unsafe {
            assert_eq!(*(place as *const [i32; 2]), [6, 7]);
            libc::free(place as *mut _);
        }
        assert_eq!(count, 2);
        assert_eq!((read(5), read(u64::MAX)), (Err(BadSize), Err(BadSize)), "more than there are");
    }

    #[test]
    fn a_note_is_filled_in() {
        let text = "handle H\n0 forward g(h: H, n: i32) [writes notes(h.n=n)];\n1 forward f(h: H, m: note h.n) [writes];\n";
        let library: &'static Library = Box::leak(Box::new(library(text, "").expect("valid").library));
        let Body::Forward(call) = &library.functions[1].body else { panic!("{library:?}") };
        let arguments = Arguments { number: 0, library, call, given: &[7, 0] };
        for (noted, slot) in [(Some(5), 5), (None, u64::MAX)] {
            // SAFETY: there is no text.
            assert_eq!(unsafe { slots(&arguments, false, noted) }[..], [7, slot]);
        }
    }

    #[test]
    fn addresses_of_variant_packs_are_one_combination() {
        let row = "0 forward f(name: i32, t: i32, n: i64, a: in? attribute(name,t)[n]) [writes];";
        let key = |kind: u64, addresses: [u64; 2]| {
            let given = [1001, kind, 2, addresses.as_ptr() as u64];
            let arguments = arguments(row, &given);
            // SAFETY: the array has two elements.
            unsafe {
                let mut block = slots(&arguments, false, None);
                let mut key = Key::new(0, arguments.call, &block);
                arguments.write(&mut block, &mut key).expect("fits");
                key.get()
            }
        };
        assert_eq!(key(6, [0x1000, 0x2000]), key(6, [0x3000, 0x4000]), "CUDNN_TYPE_VOID_PTR");
        assert_ne!(key(6, [0x1000, 0x2000]), key(6, [0x3000, 0]));
        assert_ne!(key(6, [0x1000, 0x2000]), key(6, [0x3000, 0x4010]), "another alignment");
        assert_ne!(key(3, [0x1000, 0x2000]), key(3, [0x3000, 0x4000]), "CUDNN_TYPE_INT64");
    }

    #[test]
    fn lengths_are_added_up() {
        let (lengths, labels) = ([2_i32, 0, 1], [7_i32, 8, 9]);
        let given = [7, labels.as_ptr() as u64, lengths.as_ptr() as u64, 3, 0];
        let row =
            "0 forward f(h: H, labels: in i32[all], lengths: in i32[n], n: i32, all: sum lengths) [writes];";
        for (lengths, sum, bytes) in [(given[2], 3, 12), (0, 0, 0)] {
            let given = [7, given[1], lengths, 3, 0];
            let arguments = arguments(row, &given);
            // SAFETY: the arguments are as the row describes them.
            let slots = unsafe { slots(&arguments, false, None) };
            assert_eq!(slots[4], sum);
            assert_eq!(arguments.call.memory_bytes(arguments.library, 1, &slots), Ok(bytes));
        }
    }
}
