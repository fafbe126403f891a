//! The `mkey` command; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mkey_cli::main(std::env::args_os())
}
