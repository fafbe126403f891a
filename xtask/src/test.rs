//! `cargo xtask test`: every test, part by part.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::exit::{Exit, in_ci};
use crate::part::{Part, Report};
use crate::parts::PARTS;
use crate::summary::{self, Row};
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                    every part
  cargo xtask test --list             what the parts are
  cargo xtask test --only unit        one part; may be given more than once
  cargo xtask test --skip gates       all but one; it is reported as skipped

The parts run one after the other and do not stop at a failure. The last line counts tests; a
part that is no test run counts as one for each of its checks. Exit status: 0 all passed, 1
something failed, 3 something was skipped. With CI set in the environment a skip is a failure,
and what a part builds in a folder of its own is removed after it.")]
pub struct Args {
    /// Run only this part
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Leave this part out
    #[arg(long, value_name = "PART")]
    skip: Vec<String>,
    /// List the parts
    #[arg(long)]
    list: bool,
}

pub fn run(workspace: &Workspace, args: &Args) -> Result<Exit> {
    if args.list {
        for part in PARTS {
            println!("{:<16} {}", part.name, part.about);
        }
        return Ok(Exit::Well);
    }
    let mut rows = Vec::new();
    for (part, left_out) in chosen(PARTS, &args.only, &args.skip)? {
        println!("\n=== {}: {}", part.name, part.about);
        let begun = Instant::now();
        let report = if left_out {
            Report::skipped("left out by --skip".into())
        } else {
            part.run(workspace)
        };
        if in_ci() {
            remove_apart(workspace.target())?;
        }
        let took = if left_out { Duration::ZERO } else { begun.elapsed() };
        println!("=== {}: {:?} after {:.1} s", part.name, report.verdict(), took.as_secs_f64());
        rows.push(Row { name: part.name, took, report });
    }
    print!("\n{}", summary::table(&rows));
    Ok(summary::exit(&rows, in_ci()))
}

/// Removes the target folders within the target folder: built with flags of their part's own, they
/// serve no other. All of them together do not fit on a small disk.
fn remove_apart(target: &Path) -> Result<()> {
    let entries = fs::read_dir(target);
    for entry in entries.with_context(|| format!("cannot read {}", target.display()))? {
        let folder = entry?.path();
        // Cargo marks its target folders so.
        if folder.join("CACHEDIR.TAG").is_file() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    Ok(())
}

/// The parts to show, in order, each with whether it is left out.
fn chosen<'a>(
    parts: &'a [Part],
    only: &[String],
    skip: &[String],
) -> Result<Vec<(&'a Part, bool)>> {
    for name in only.iter().chain(skip) {
        if !parts.iter().any(|part| part.name == name) {
            let names: Vec<_> = parts.iter().map(|part| part.name).collect();
            bail!("no part is called `{name}`; the parts are {}", names.join(", "));
        }
    }
    let wanted = |part: &&Part| only.is_empty() || only.iter().any(|name| name == part.name);
    let left_out = |part: &Part| skip.iter().any(|name| name == part.name);
    Ok(parts.iter().filter(wanted).map(|part| (part, left_out(part))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Work;

    const ABC: &[Part] = &[
        Part { name: "a", about: "", work: Work::Checks(&[]) },
        Part { name: "b", about: "", work: Work::Checks(&[]) },
        Part { name: "c", about: "", work: Work::Checks(&[]) },
    ];

    fn names(only: &[&str], skip: &[&str]) -> Result<Vec<(&'static str, bool)>> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.into()).collect::<Vec<_>>();
        let parts = chosen(ABC, &owned(only), &owned(skip))?;
        Ok(parts.into_iter().map(|(part, left_out)| (part.name, left_out)).collect())
    }

    #[test]
    fn only_folders_that_cargo_built_into_are_removed() {
        let target = tempfile::tempdir().unwrap();
        for name in ["loom/debug", "debug/deps", "tools"] {
            fs::create_dir_all(target.path().join(name)).unwrap();
        }
        for tag in ["CACHEDIR.TAG", "loom/CACHEDIR.TAG"] {
            fs::write(target.path().join(tag), "").unwrap();
        }
        remove_apart(target.path()).unwrap();
        assert!(!target.path().join("loom").exists());
        assert!(target.path().join("debug/deps").exists() && target.path().join("tools").exists());
    }

    #[test]
    fn all_parts_run_by_default() {
        assert_eq!(names(&[], &[]).unwrap(), [("a", false), ("b", false), ("c", false)]);
    }

    #[test]
    fn only_narrows_and_skip_shows_what_it_left_out() {
        assert_eq!(names(&["c", "a"], &[]).unwrap(), [("a", false), ("c", false)]);
        assert_eq!(names(&[], &["b"]).unwrap(), [("a", false), ("b", true), ("c", false)]);
        assert_eq!(names(&["b"], &["b"]).unwrap(), [("b", true)]);
    }

    #[test]
    fn an_unknown_part_is_an_error_that_lists_the_parts() {
        let error = names(&[], &["d"]).unwrap_err().to_string();
        assert_eq!(error, "no part is called `d`; the parts are a, b, c");
    }
}
