//! `mkey model`: what registration costs as a formula, fitted to a sweep.
//!
//! * [`args`]: what is asked. [`mod@fit`]: lines and intervals, pure. [`analyse`]: from a sweep to
//!   a [`report`], which [`text`] prints.

pub mod analyse;
pub mod args;
pub mod fit;
pub mod report;
pub mod text;

use crate::bench::outputs::Outputs;
use crate::bench::registration;
use crate::bench::registration::report::{SCHEMA, Sweep};
use crate::bench::registration::sweep::Effort;
use crate::exit::End;
use crate::html;
use args::ModelArgs;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// No sweep is as long as this, in bytes.
const LONGEST: u64 = 64 << 20;

/// Measures or reads a sweep, fits, and writes what was asked for.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &ModelArgs) -> Result<(), End> {
    // A model has no rows.
    let outputs = Outputs { json: args.json.clone(), csv: None };
    outputs.check()?;
    html::check(&args.html)?;
    let (sweep, from) = match &args.from {
        Some(path) => (read(path)?, path.display().to_string()),
        None => {
            let sweep = registration::take(&args.sweep, Effort::Time(args.time))?;
            (sweep, "a sweep of its own".to_owned())
        }
    };
    let model = analyse::model(sweep, from, &args.predict);
    html::write(&args.html, || html::model::page(&model))?;
    outputs.write(&model, || Ok(Vec::new()), || text::model(&model))?;
    if model.fits.iter().all(|fit| fit.fitted().is_none()) {
        return Err(End::failed("not one kind of page could be fitted"));
    }
    Ok(())
}

/// Reads a sweep; "-" is standard input.
fn read(path: &Path) -> Result<Sweep, End> {
    let name = path.display();
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|error| End::failed(format!("{name}: {error}")))?)
    };
    let mut text = Vec::new();
    let taken = input.take(LONGEST + 1).read_to_end(&mut text);
    taken.map_err(|error| End::failed(format!("{name}: {error}")))?;
    if text.len() as u64 > LONGEST {
        return Err(End::failed(format!("{name}: longer than any sweep")));
    }
    parse(&text).map_err(|why| End::failed(format!("{name}: {why}")))
}

fn parse(text: &[u8]) -> Result<Sweep, String> {
    const MEND: &str = "mkey bench registration --json FILE writes one";
    let sweep: Sweep =
        serde_json::from_slice(text).map_err(|error| format!("not a sweep ({error}); {MEND}"))?;
    if sweep.schema != SCHEMA {
        let version = sweep.schema;
        return Err(format!("a sweep of version {version}, not {SCHEMA}; {MEND}"));
    }
    Ok(sweep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::registration::sample;

    #[test]
    fn a_sweep_comes_back_from_its_json() {
        let sweep = sample::sweep();
        assert_eq!(parse(&serde_json::to_vec(&sweep).unwrap()), Ok(sweep));
    }

    #[test]
    fn what_is_no_sweep_is_told_with_what_writes_one() {
        let mut other = sample::sweep();
        other.schema = 99;
        let other = serde_json::to_vec(&other).unwrap();
        for text in [&b""[..], b"{}", b"[1]", b"\xff\xfe", &other] {
            let why = parse(text).unwrap_err();
            assert!(why.contains("mkey bench registration --json"), "{why}");
        }
        assert!(parse(&other).unwrap_err().contains("version 99"));
    }
}
