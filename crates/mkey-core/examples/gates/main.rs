//! The instruction-count gates: what `cargo xtask gates` runs under callgrind.
//!
//! A gate is one scenario below and one line in `gates/limits.toml`.

mod engine;
mod harness;

use harness::Scenario;

/// Every scenario.
const SCENARIOS: &[Scenario] = &[
    Scenario { name: "harness_loop", setup: || Box::new(|| ()) },
    Scenario { name: "access_check_hot", setup: engine::access_check_hot },
    Scenario { name: "access_check_window", setup: engine::access_check_window },
    Scenario { name: "access_check_fast_mr", setup: engine::access_check_fast_mr },
    Scenario { name: "window_bind_invalidate", setup: engine::window_bind_invalidate },
    Scenario { name: "fast_mr_64_invalidate", setup: || engine::fast_mr_invalidate(64) },
    Scenario { name: "fast_mr_1_invalidate", setup: || engine::fast_mr_invalidate(1) },
    Scenario { name: "region_register_deregister", setup: engine::region_register_deregister },
];

fn main() -> std::process::ExitCode {
    harness::main(SCENARIOS)
}
