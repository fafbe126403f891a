//! The `mkey` command; all of it is in the library.

use mkey_cli::allocations::Counted;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn main() -> ExitCode {
    mkey_cli::main(std::env::args_os())
}
