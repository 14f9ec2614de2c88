// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The authority of the kubelet's requests. Before Kubernetes 1.26 it is the path of our socket
//! (<https://github.com/kubernetes/kubernetes/pull/112597>). HTTP does not allow that, and our HTTP library refuses the requests.
//! This puts a valid one in its place before the library sees the bytes. They are HTTP/2 (RFC 9113) with headers in HPACK
//! (RFC 7541). Bytes that this does not understand pass unchanged, for the library to refuse.

/// The first bytes of a connection.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
/// The default of SETTINGS_MAX_FRAME_SIZE, which the library does not raise. Limits the memory for a connection.
const MAX_FRAME: usize = 16_384;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// `:authority` in HPACK's static table.
const AUTHORITY: usize = 1;
/// Shorter than any path of a socket here. So the library's table of headers never has less room than the kubelet assumes, and
/// the numbers of its entries stay right.
const REPLACEMENT: &[u8] = b"localhost";

/// A frame is larger than HTTP/2 allows here.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("A frame of {0} bytes: the maximum is {MAX_FRAME}")]
pub struct TooLarge(usize);

/// The bytes of one connection, in the direction of the server.
#[derive(Debug, Default)]
pub struct Filter {
    preface: usize,
    pending: Vec<u8>,
}

impl Filter {
    /// Takes bytes from the kubelet. Appends bytes for the server to `out`: whole frames.
    ///
    /// Errors: a frame is too large. The connection cannot go on.
    pub fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), TooLarge> {
        if self.preface < PREFACE {
            let first = input.len().min(PREFACE - self.preface);
            out.extend_from_slice(&input[..first]);
            self.preface += first;
            input = &input[first..];
        }
        self.pending.extend_from_slice(input);
        let mut at = 0;
        while let Some(head) = self.pending.get(at..at + FRAME_HEADER) {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            if length > MAX_FRAME {
                return Err(TooLarge(length));
            }
            let Some(frame) = self.pending.get(at..at + FRAME_HEADER + length) else { break };
            match (frame[3] == HEADERS).then(|| with_authority(frame)).flatten() {
                Some(changed) => out.extend_from_slice(&changed),
                None => out.extend_from_slice(frame),
            }
            at += frame.len();
        }
        self.pending.drain(..at);
        Ok(())
    }
}

/// A frame of headers with another authority, if it has one.
fn with_authority(frame: &[u8]) -> Option<Vec<u8>> {
    let (head, payload) = frame.split_at_checked(FRAME_HEADER)?;
    let flags = head[4];
    let padding = if flags & PADDED == 0 { 0 } else { usize::from(*payload.first()?) };
    let start = usize::from(flags & PADDED != 0) + if flags & PRIORITY == 0 { 0 } else { 5 };
    let block = payload.get(start..payload.len().checked_sub(padding)?)?;
    let value = authority(block)?;
    let mut changed = head.to_vec();
    changed.extend_from_slice(&payload[..start]);
    changed.extend_from_slice(&block[..value.start]);
    // Its length, without the bit of Huffman's code.
    changed.push(REPLACEMENT.len() as u8);
    changed.extend_from_slice(REPLACEMENT);
    changed.extend_from_slice(&block[value.end..]);
    changed.extend_from_slice(&payload[start + block.len()..]);
    let length = u32::try_from(changed.len() - FRAME_HEADER).ok()?;
    changed[..3].copy_from_slice(&length.to_be_bytes()[1..]);
    (length as usize <= MAX_FRAME).then_some(changed)
}

/// The place of the authority's value in a block of headers, its length included, if it is a literal.
fn authority(block: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut at = 0;
    while at < block.len() {
        let first = block[at];
        let (prefix, is_literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            // A new size of the table.
            0x20.. => (5, false),
            _ => (4, true),
        };
        let index = integer(block, &mut at, prefix)?;
        if !is_literal {
            continue;
        }
        if index == 0 {
            skip_string(block, &mut at)?;
        }
        let start = at;
        skip_string(block, &mut at)?;
        if index == AUTHORITY {
            return Some(start..at);
        }
    }
    None
}

fn skip_string(block: &[u8], at: &mut usize) -> Option<()> {
    let length = integer(block, at, 7)?;
    *at = at.checked_add(length).filter(|end| *end <= block.len())?;
    Some(())
}

/// Reads an integer with a prefix of so many bits (RFC 7541, 5.1). Those of more than three bytes do not fit into a frame.
fn integer(block: &[u8], at: &mut usize, prefix: u32) -> Option<usize> {
    let mask = (1_usize << prefix) - 1;
    let mut value = usize::from(*block.get(*at)?) & mask;
    *at += 1;
    if value < mask {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame: its type, its flags and its payload.
    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// POST, http, a path, the authority with that value, and a header with a name of its own.
    fn headers(authority: &[u8]) -> Vec<u8> {
        let path = b"/v1beta1.DevicePlugin/ListAndWatch";
        let path = [&[0x83, 0x86, 0x45, path.len() as u8], &path[..]].concat();
        [&path[..], &[0x41, authority.len() as u8], authority, b"\x40\x02te\x08trailers\xbe"].concat()
    }

    fn filtered(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut filter, mut out) = (Filter::default(), Vec::new());
        for piece in pieces {
            filter.push(piece, &mut out).unwrap();
        }
        out
    }

    #[test]
    fn paths_are_replaced_however_the_bytes_arrive() {
        let path = b"/var/lib/kubelet/device-plugins/vhost-cuda.io_shard.sock";
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
        let others = [frame(4, 0, &[]), frame(0, 1, b"\0\0\0\0\0")];
        let sent = [preface, &others[0], &frame(1, 4, &headers(path)), &others[1]].concat();
        let expected = [preface, &others[0], &frame(1, 4, &headers(REPLACEMENT)), &others[1]].concat();
        assert_eq!(filtered(&[&sent]), expected);
        assert_eq!(filtered(&sent.chunks(1).collect::<Vec<_>>()), expected);
        // With padding and a priority.
        let around = |block: &[u8]| [&[3, 0, 0, 0, 0, 9], block, &[0; 3]].concat();
        let sent = [preface, &frame(1, 0x2c, &around(&headers(path)))].concat();
        assert_eq!(filtered(&[&sent]), [preface, &frame(1, 0x2c, &around(&headers(REPLACEMENT)))].concat());
    }

    #[test]
    fn what_is_not_understood_passes() {
        let mut random = 1_u64;
        for length in (0..400).chain([MAX_FRAME]) {
            let mut next = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 56) as u8
            };
            let block: Vec<u8> = (0..length).map(|_| next()).collect();
            let sent = [vec![0; PREFACE], frame(1, next(), &block), frame(6, 0, b"ping")].concat();
            let out = filtered(&[&sent]);
            assert!(out.ends_with(&frame(6, 0, b"ping")), "{length}");
        }
        for bad in [&b"\x41"[..], b"\x41\x05abc", b"\x41\xff\xff\xff\xff\xff", b"\x00\x7f\x80"] {
            let sent = [vec![0; PREFACE], frame(1, 4, bad)].concat();
            assert_eq!(filtered(&[&sent]), sent);
        }
    }

    #[test]
    fn large_frames_end_the_connection() {
        let (mut filter, mut out) = (Filter::default(), vec![]);
        filter.push(&[0; PREFACE], &mut out).unwrap();
        assert_eq!(filter.push(&[0, 0x40, 1, 0, 0, 0, 0, 0, 0], &mut out), Err(TooLarge(MAX_FRAME + 1)));
    }
}
