// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Parts of the path of a call that are measured by themselves.
//!
//! `cargo xtask instructions` counts their instructions under valgrind, which has no noise, and compares with
//! `limits.txt`.

mod codec;
mod lane;

/// A piece of work. Calling it does it once.
pub type Work = Box<dyn FnMut()>;

/// A piece's name, and its constructor.
pub type Piece = (&'static str, fn() -> Work);

/// Every piece.
pub const ALL: &[Piece] = &[
    ("encode_launch", codec::encode_launch),
    ("decode_launch", codec::decode_launch),
    ("encode_copy_4KiB", codec::encode_copy),
    ("decode_copy_4KiB", codec::decode_copy),
    ("decode_result", codec::decode_result),
    ("decode_request_1024_pages", codec::decode_request),
    ("lane_post_200_bytes", lane::post_short),
    ("lane_post_4KiB", lane::post_long),
    ("lane_call_and_reply", lane::call_and_reply),
];

/// The piece of that name.
pub fn find(name: &str) -> Option<Work> {
    ALL.iter().find(|(other, _)| *other == name).map(|(_, make)| make())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_can_be_done_again_and_again() {
        for (name, make) in ALL {
            let mut work = make();
            for _ in 0..2000 {
                work();
            }
            assert!(find(name).is_some());
        }
        assert!(find("nothing").is_none());
    }

    #[test]
    fn every_piece_has_a_limit() {
        let limits = include_str!("../limits.txt");
        for (name, _) in ALL {
            let has = limits.lines().any(|line| line.split_whitespace().next() == Some(name));
            assert!(has, "{name}: run cargo xtask instructions --update");
        }
    }
}
