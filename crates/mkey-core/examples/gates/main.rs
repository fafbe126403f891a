//! The instruction-count gates: what `cargo xtask gates` runs under callgrind.
//!
//! A gate is one scenario below and one line in `gates/limits.toml`.

mod engine;
mod harness;

use std::hint::black_box;

use harness::Scenario;

/// Every scenario.
const SCENARIOS: &[Scenario] = &[
    Scenario { name: "harness_loop", setup: harness_loop },
    Scenario { name: "harness_multiply", setup: harness_multiply },
    Scenario { name: "access_check_hot", setup: engine::access_check_hot },
    Scenario { name: "access_check_window", setup: engine::access_check_window },
    Scenario { name: "access_check_frmr", setup: engine::access_check_frmr },
    Scenario { name: "bind_and_invalidate", setup: engine::bind_and_invalidate },
    Scenario { name: "frmr_reg_64_and_inv", setup: engine::frmr_reg_64_and_inv },
    Scenario { name: "frmr_reg_1_and_inv", setup: engine::frmr_reg_1_and_inv },
    Scenario { name: "register_and_deregister", setup: engine::register_and_deregister },
];

fn main() -> std::process::ExitCode {
    harness::main(SCENARIOS)
}

/// The harness by itself: what every other count contains.
fn harness_loop() -> Box<dyn FnMut()> {
    Box::new(|| ())
}

/// A chain of 64 multiplications, so that a count far above the loop's is seen to be right.
fn harness_multiply() -> Box<dyn FnMut()> {
    let mut value = 1_u64;
    Box::new(move || {
        for _ in 0..64 {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
    })
}
