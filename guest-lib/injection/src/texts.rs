// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The texts of NVTX: names of marks, ranges, domains and categories, and the numbers beside them.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vhost_cuda_profile::event::{Event, Kind, Nvtx};
use vhost_cuda_profile::names::{MAX_BYTES, clean};

/// `nvtxMessageType_t`
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;
/// The maximum numbers of registered texts and domains, and of categories. Limit the program's memory.
const MAX_TEXTS: usize = 1 << 16;
const MAX_CATEGORIES: usize = 1 << 12;

/// `nvtxEventAttributes_v2`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const _: () = assert!(size_of::<Attributes>() == 48 && offset_of!(Attributes, message) == 40);

/// A mark or range: its name, and what else NVTX says of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Text {
    pub name: String,
    pub nvtx: Option<Box<Nvtx>>,
}

impl Text {
    /// Returns its event.
    pub fn event(self, kind: Kind, row: u32, time: [u64; 2]) -> Event {
        Event { nvtx: self.nvtx, ..Event::new(kind, self.name, row, time) }
    }
}

impl From<String> for Text {
    fn from(name: String) -> Self {
        Self { name, nvtx: None }
    }
}

/// The texts that the program has registered, and the names of its domains. The handle of each is its index plus one.
#[derive(Debug, Default)]
struct Named {
    /// Registered texts, and names of domains.
    texts: Vec<String>,
    /// Names of categories, by domain and number.
    categories: HashMap<(usize, u32), String>,
}

static NAMED: Mutex<Option<Named>> = Mutex::new(None);

fn named() -> MutexGuard<'static, Option<Named>> {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Named {
    fn text(&self, handle: usize) -> Option<&String> {
        self.texts.get(handle.checked_sub(1)?)
    }
}

/// Keeps a text or the name of a domain. Returns its handle. Those that find no room share a handle without a text.
pub fn register(text: String) -> *mut c_void {
    let mut named = named();
    let texts = &mut named.get_or_insert_default().texts;
    let has_room = texts.len() < MAX_TEXTS;
    if has_room {
        texts.push(text);
    }
    std::ptr::without_provenance_mut(texts.len() + usize::from(!has_room))
}

/// Names a category of a domain, of the default one if that is NULL.
pub fn name_category(domain: *mut c_void, category: u32, name: String) {
    let mut named = named();
    let categories = &mut named.get_or_insert_default().categories;
    if categories.len() < MAX_CATEGORIES {
        categories.insert((domain.addr(), category), name);
    }
}

/// Returns a text of the program.
///
/// # Safety
///
/// `text` is NULL or a C string.
pub unsafe fn narrow(text: *const c_char) -> String {
    if text.is_null() {
        return "?".into();
    }
    // SAFETY: a C string by this function's contract, which is read no further than its NUL.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), libc::strnlen(text, MAX_BYTES)) };
    clean(&String::from_utf8_lossy(bytes))
}

/// Returns a wide text of the program.
///
/// # Safety
///
/// `text` is NULL or a string of `wchar_t` with a NUL.
pub unsafe fn wide(text: *const u32) -> String {
    // SAFETY: not read behind the NUL, by this function's contract.
    let letters =
        (0..MAX_BYTES).map(|at| unsafe { text.add(at).read_unaligned() }).take_while(|letter| *letter != 0);
    match text.is_null() {
        true => "?".into(),
        false => clean(&letters.map(|letter| char::from_u32(letter).unwrap_or('?')).collect::<String>()),
    }
}

/// Returns what attributes say of a mark or range of a domain, of the default one if that is NULL.
///
/// # Safety
///
/// `attributes` is NULL or attributes of NVTX.
pub unsafe fn text_of(domain: *mut c_void, attributes: *const Attributes) -> Text {
    if attributes.is_null() {
        return "?".to_owned().into();
    }
    // SAFETY: attributes begin with version and size; they have `size` bytes, by this function's contract.
    let attributes = unsafe {
        let size = (&raw const (*attributes).size).read_unaligned();
        if usize::from(size) < size_of::<Attributes>() {
            return "?".to_owned().into();
        }
        attributes.read_unaligned()
    };
    let message = attributes.message;
    let name = match attributes.message_type {
        // SAFETY: a C string, by this function's contract.
        ASCII => Some(unsafe { narrow(message.cast()) }),
        // SAFETY: a wide text, by this function's contract.
        UNICODE => Some(unsafe { wide(message.cast()) }),
        _ => None,
    };
    let payload = payload_of(&attributes);
    let named = named();
    let text = |handle: usize| named.as_ref()?.text(handle).cloned();
    let registered = || (attributes.message_type == REGISTERED).then(|| text(message.addr())).flatten();
    let name = name.or_else(registered).unwrap_or_else(|| "?".into());
    let category = || named.as_ref()?.categories.get(&(domain.addr(), attributes.category)).cloned();
    let category = match attributes.category {
        0 => String::new(),
        number => category().unwrap_or_else(|| number.to_string()),
    };
    let nvtx = Nvtx { domain: text(domain.addr()).unwrap_or_default(), category, payload };
    Text { name, nvtx: (nvtx != Nvtx::default()).then(|| Box::new(nvtx)) }
}

/// Returns the payload by its `nvtxPayloadType_t`; empty for none.
fn payload_of(attributes: &Attributes) -> String {
    let (long, short) = (attributes.payload, attributes.payload as u32);
    match attributes.payload_type {
        1 => long.to_string(),
        2 => long.cast_signed().to_string(),
        3 => f64::from_bits(long).to_string(),
        4 => short.to_string(),
        5 => short.cast_signed().to_string(),
        6 => f32::from_bits(short).to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(message_type: i32, message: *const c_void) -> Attributes {
        Attributes {
            version: 2,
            size: size_of::<Attributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type,
            message,
        }
    }

    fn named(attributes: &Attributes, domain: *mut c_void) -> Text {
        // SAFETY: the message is of the kind that the attributes say, and lives.
        unsafe { text_of(domain, attributes) }
    }

    #[test]
    fn names_are_read_in_all_their_forms() {
        let registered = register("kept".into());
        let wide = [0x61_u32, 0xe9, 0];
        for (kind, message, expected) in [
            (ASCII, c"step\n".as_ptr().cast::<c_void>(), "step?"),
            (UNICODE, wide.as_ptr().cast(), "aé"),
            (REGISTERED, registered.cast_const(), "kept"),
            (REGISTERED, std::ptr::null(), "?"),
            (ASCII, std::ptr::null(), "?"),
            (9, std::ptr::null(), "?"),
        ] {
            let text = named(&attributes(kind, message), std::ptr::null_mut());
            assert_eq!(text, Text::from(expected.to_owned()));
        }
        let short = Attributes { size: 16, ..attributes(ASCII, c"step".as_ptr().cast()) };
        assert_eq!(named(&short, std::ptr::null_mut()).name, "?");
    }

    #[test]
    fn domains_categories_and_payloads_are_read() {
        let (domain, other) = (register("training".into()), register("other".into()));
        name_category(domain, 3, "data".into());
        let mut range = Attributes { category: 3, ..attributes(ASCII, c"step".as_ptr().cast()) };
        let mut told = |domain, payload_type, payload| {
            (range.payload_type, range.payload) = (payload_type, payload);
            *named(&range, domain).nvtx.expect("it has more than a name")
        };
        let nvtx = |domain: &str, category: &str, payload: &str| Nvtx {
            domain: domain.into(),
            category: category.into(),
            payload: payload.into(),
        };
        assert_eq!(told(domain, 1, u64::MAX), nvtx("training", "data", "18446744073709551615"));
        assert_eq!(told(domain, 2, u64::MAX), nvtx("training", "data", "-1"));
        assert_eq!(told(other, 3, 0.5_f64.to_bits()), nvtx("other", "3", "0.5"));
        assert_eq!(told(other, 4, u64::MAX), nvtx("other", "3", "4294967295"));
        assert_eq!(told(other, 5, u64::MAX), nvtx("other", "3", "-1"));
        assert_eq!(told(std::ptr::null_mut(), 6, u64::from(1.5_f32.to_bits())), nvtx("", "3", "1.5"));
        assert_eq!(told(std::ptr::null_mut(), 0, 9), nvtx("", "3", ""));
    }
}
