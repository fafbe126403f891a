//! Makes `docs/conformance.md` by running all rule tests over the software RNIC: prints it, or
//! with `--write` puts it in its place.

use mkey_conformance::soft::{self, Soft};
use mkey_conformance::{document, rules};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let page = document::document(&soft::name(), &rules::all(), Soft::new);
    if !std::env::args().any(|argument| argument == "--write") {
        print!("{page}");
        return ExitCode::SUCCESS;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    match std::fs::write(&path, page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
