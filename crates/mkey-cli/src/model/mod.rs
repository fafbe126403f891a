//! `mkey model`: what registration costs as a formula, fitted to a sweep.
//!
//! * [`args`]: what is asked. [`mod@check`]: whether a file can be a sweep. [`mod@fit`]: lines and intervals, pure. [`analyse`]: from a sweep to
//!   a [`report`], which [`text`] prints.

pub mod analyse;
pub mod args;
pub mod check;
pub mod fit;
pub mod report;
pub mod text;

use crate::bench::outputs::{Outputs, check_apart};
use crate::bench::registration;
use crate::bench::registration::report::{SCHEMA, Sweep};
use crate::bench::registration::sweep::Effort;
use crate::exit::End;
use crate::html;
use crate::input;
use args::ModelArgs;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::Path;

/// No sweep is as long as this, in bytes.
const LONGEST: u64 = 16 << 20;

/// Measures or reads a sweep, fits, and writes what was asked for.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &ModelArgs) -> Result<(), End> {
    // A model has no rows.
    let outputs = Outputs { json: args.json.clone(), csv: None };
    outputs.check_with(&args.html)?;
    if let Some(from) = &args.from {
        let outputs = [("--json", args.json.as_deref()), ("--html", args.html.as_deref())];
        check_apart(outputs, from)?;
    }
    let (sweep, from) = match &args.from {
        Some(path) => (read(path)?, name(path)),
        None => {
            let sweep = registration::take(&args.sweep, Effort::Time(args.time))?;
            (sweep, "a sweep of its own".to_owned())
        }
    };
    let model = analyse::model(sweep, from, &args.predict);
    let written = outputs.write(&model, || Ok(Vec::new()), || text::model(&model));
    html::write(&args.html, || html::model::page(&model))?;
    written?;
    if model.fits.iter().all(|fit| fit.fitted().is_none()) {
        return Err(End::failed("not one kind of page could be fitted"));
    }
    Ok(())
}

/// Where a sweep is read from, for people.
fn name(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        check::printable(&path.display().to_string())
    }
}

/// Reads a sweep; "-" is standard input.
fn read(path: &Path) -> Result<Sweep, End> {
    let name = name(path);
    let text = input::read(path, &name, LONGEST, "sweep")?;
    parse(&text).map_err(|why| End::failed(format!("{name}: {why}")))
}

/// A model, as far as it is read: what was fitted is fitted anew.
#[derive(Deserialize)]
struct Modelled {
    sweep: Sweep,
}

/// A sweep, or that of a model.
fn parse(text: &[u8]) -> Result<Sweep, String> {
    const MEND: &str = "mkey bench registration --json FILE writes one";
    #[derive(Deserialize)]
    struct Kind {
        sweep: Option<IgnoredAny>,
    }
    let not = |error: serde_json::Error| {
        // The error may quote the file.
        format!("not a sweep ({}); {MEND}", check::printable(&error.to_string()))
    };
    let kind: Kind = serde_json::from_slice(text).map_err(not)?;
    let sweep = if kind.sweep.is_some() {
        serde_json::from_slice(text).map(|Modelled { sweep }| sweep)
    } else {
        serde_json::from_slice(text)
    };
    let sweep: Sweep = sweep.map_err(not)?;
    if sweep.schema != SCHEMA {
        let version = sweep.schema;
        return Err(format!("a sweep of version {version}, not {SCHEMA}; {MEND}"));
    }
    check::check(&sweep).map_err(|why| format!("no sweep can be this: {why}"))?;
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
    fn the_sweep_of_a_model_is_taken() {
        let sweep = sample::sweep();
        let model = analyse::model(sweep.clone(), "a test".to_owned(), &[64 << 30]);
        assert_eq!(parse(&serde_json::to_vec(&model).unwrap()), Ok(sweep));
    }

    #[test]
    fn standard_input_is_named() {
        assert_eq!(name(Path::new("-")), "standard input");
        assert_eq!(name(Path::new("sweep.json")), "sweep.json");
    }

    #[test]
    fn what_can_not_be_measured_is_refused_and_no_error_repeats_escapes() {
        let mut sweep = sample::sweep();
        sweep.rows[0].page_bytes = 0;
        let why = parse(&serde_json::to_vec(&sweep).unwrap()).unwrap_err();
        assert_eq!(why, "no sweep can be this: row 1: page_bytes 0 is no size of a page");
        let text = serde_json::to_string(&sample::sweep()).unwrap();
        let escape = text.replacen("\"syscall\"", "\"\\u001b[31m\"", 1);
        assert_ne!(escape, text);
        let why = parse(escape.as_bytes()).unwrap_err();
        assert!(why.contains("[31m") && !why.contains('\x1b'), "{why:?}");
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
