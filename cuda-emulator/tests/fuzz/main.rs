// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bodies that `cargo xtask fuzz` drives (`cuda-emulator/testing`), with the saved inputs, and with seeded choices and a bound.
//!
//! VHOST_CUDA_TEST_ROUNDS and VHOST_CUDA_TEST_SEED change its length and its inputs. Failing inputs are printed
//! and can be run alone.

mod choices;
mod limits;

use cuda_emulator::fatbin;
use cuda_emulator::program::Program;
use cuda_emulator_testing::bodies;

use choices::{Random, rounds, seed};
use limits::within_limits;
use vhost_cuda_fuzz::{corpus, targets};

#[test]
fn corpora() {
    type Body = fn(&[u8]);
    let bodies: [(&str, Body); 4] = [
        ("execute", bodies::execute),
        ("fatbin", bodies::fatbin),
        ("parse", bodies::parse),
        ("spans", bodies::spans),
    ];
    assert_eq!(
        bodies.map(|(name, _)| name),
        targets::of("emulator"),
        "tests/fuzz/src/targets.rs has the names"
    );
    for (name, body) in bodies {
        corpus::replay(name, body);
    }
}

#[test]
fn texts_crash_no_loader() {
    let sources = choices::texts();
    let mut random = Random::new(seed());
    for round in 0..rounds(1500) {
        let text = choices::changed(&sources, &mut random);
        within_limits(&format!("text of round {round}"), &text, || bodies::parse(&text));
    }
}

#[test]
fn kernels_crash_no_executor() {
    let mut random = Random::new(seed() ^ 1);
    for round in 0..rounds(500) {
        let length = 64 + random.below(1200);
        let bytes = random.bytes(length);
        within_limits(&format!("kernel of round {round}"), &bytes, || bodies::execute(&bytes));
    }
}

#[test]
fn accesses_are_the_same_interpreted_and_translated() {
    let mut random = Random::new(seed() ^ 4);
    for round in 0..rounds(400) {
        let bytes = random.bytes(64);
        within_limits(&format!("access of round {round}"), &bytes, || bodies::spans(&bytes));
    }
}

#[test]
fn most_kernels_load() {
    let mut random = Random::new(seed() ^ 2);
    let (mut made, mut loaded) = (0, 0);
    for _ in 0..200 {
        let Some(text) = bodies::kernel_text(&random.bytes(600)) else { continue };
        made += 1;
        loaded += usize::from(Program::load(&text).is_ok());
    }
    assert!(loaded * 10 > made * 9 && made > 150, "{loaded} of {made} kernels load");
}

/// The memory that a limit counts for a text of PTX is never less than the memory that its variables take.
#[test]
fn no_text_hides_variables() {
    let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
    let (mut random, sources) = (Random::new(seed() ^ 5), choices::texts());
    let (mut loaded, mut counted) = (0, 0);
    for round in 0..rounds(20_000) {
        let text = match round % 8 {
            0 => String::from_utf8_lossy(&choices::changed(&sources, &mut random)).into_owned(),
            _ => format!("{head}{}", choices::declarations(&mut random)),
        };
        let Ok(program) = Program::load(&text) else { continue };
        let own = program.globals.iter().fold(0_u64, |sum, global| sum.saturating_add(global.bytes));
        loaded += 1;
        // Texts of which the counter does not know are refused.
        if let Some(bytes) = fatbin::variables::bytes(text.trim_end_matches('\0')) {
            counted += u64::from(own > 0);
            assert!(own <= bytes, "{own} bytes, of which {bytes} are found in\n{text}");
        }
    }
    assert!(
        loaded * 50 > rounds(20_000) && counted * 200 > rounds(20_000),
        "{loaded} load, {counted} are counted"
    );
}

#[test]
fn images_crash_no_reader() {
    let mut random = Random::new(seed() ^ 3);
    for round in 0..rounds(3000) {
        let length = random.below(900);
        let bytes = random.bytes(length);
        within_limits(&format!("image of round {round}"), &bytes, || bodies::fatbin(&bytes));
    }
}
