//! The instruction-count gates of the software RNIC: what `cargo xtask gates` runs under callgrind.
//!
//! A gate is one scenario below and one line in `gates/limits.toml`.

#[path = "../../../mkey-core/examples/gates/harness.rs"]
mod harness;
mod posting;

use harness::Scenario;

/// Every scenario.
const SCENARIOS: &[Scenario] = &[
    Scenario { name: "write_8_post_poll", setup: posting::write_8_post_poll },
    Scenario { name: "window_post_poll", setup: posting::window_post_poll },
    Scenario { name: "reg_mr_where_pinned", setup: posting::reg_mr_where_pinned },
];

fn main() -> std::process::ExitCode {
    harness::main(SCENARIOS)
}
