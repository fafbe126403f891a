//! Reports read from a folder: of whatever version and length, and whoever put them there.

use crate::bench::outputs::same;
use crate::doctor::finding::Status;
use crate::doctor::report::{KIND, Mend, SCHEMA, printable};
use crate::doctor::texts::Words;
use crate::exit::End;
use crate::input;
use crate::lang::Lang;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// No report is as long as this, in bytes.
const LONGEST: u64 = 16 << 20;
/// More reports than these are not compared at once.
const MOST: usize = 4096;

/// A host, by its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What it is told by: its name; with its file where two reports have the same.
    pub name: String,
    /// What its report says.
    pub checks: Vec<Told>,
}

/// A check in a report. Codes of newer versions are taken as they are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Told {
    /// What was checked.
    pub code: String,
    /// Of what.
    #[serde(default)]
    pub subject: String,
    /// How it came out.
    pub status: Status,
    /// What was found.
    #[serde(default)]
    pub found: String,
    /// How the host is set up.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// What mends it.
    #[serde(default)]
    pub mend: Vec<Mend>,
}

/// A file that was not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its name.
    pub file: String,
    /// Why.
    pub why: String,
}

#[derive(Deserialize)]
struct Raw {
    host: String,
    /// What no verdict can do without and could not be read.
    #[serde(default)]
    unread: Vec<String>,
    checks: Vec<Told>,
}

/// Reads the files of a folder that end in `.json`, in their order.
///
/// # Errors
/// [`End::Failed`] if the folder can not be read.
pub fn folder(folder: &Path, words: &Words, lang: Lang) -> Result<(Vec<Host>, Vec<Skipped>), End> {
    let failed = |why: String| End::Failed(format!("{}: {why}", folder.display()));
    let names = reports_in(folder).map_err(|error| failed(error.to_string()))?;
    let (mut reports, mut skipped) = (Vec::<(String, Raw)>::new(), Vec::new());
    for name in names {
        let read = if reports.len() < MOST {
            one(folder, &name, words, lang)
        } else {
            Err(words.common("skip-many", lang))
        };
        let file = printable(&name.to_string_lossy());
        match read {
            Ok(raw) => reports.push((file, raw)),
            Err(why) => skipped.push(Skipped { file, why: printable(&why) }),
        }
    }
    let mut count = BTreeMap::<String, u64>::new();
    for (_, raw) in &reports {
        *count.entry(printable(&raw.host)).or_default() += 1;
    }
    let host = |(file, raw): (String, Raw)| {
        let name = printable(&raw.host);
        let twice = count.get(&name).is_some_and(|count| *count > 1);
        Host {
            name: if twice { format!("{name} ({file})") } else { name },
            checks: raw.checks.into_iter().map(clean).collect(),
        }
    };
    Ok((reports.into_iter().map(host).collect(), skipped))
}

/// Whether a path is one of the reports in a folder, by whatever name.
pub fn is_one_of(folder: &Path, path: &Path, words: &Words, lang: Lang) -> bool {
    let mut names = reports_in(folder).unwrap_or_default().into_iter();
    names.any(|name| same(&folder.join(&name), path) && one(folder, &name, words, lang).is_ok())
}

/// The names in a folder that end in `.json`, in their order: any that a file may have.
fn reports_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in folder.read_dir()? {
        let name = entry?.file_name();
        if name.as_bytes().ends_with(b".json") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Reads one report; why not, in words.
fn one(folder: &Path, name: &OsStr, words: &Words, lang: Lang) -> Result<Raw, String> {
    let path = folder.join(name);
    let unread = |what: String| words.fill("skip-unread", lang, &[("what", what)]);
    let length = match path.metadata() {
        Ok(data) if data.is_file() => data.len(),
        Ok(_) => return Err(words.common("skip-no-file", lang)),
        Err(error) => return Err(unread(error.to_string())),
    };
    if length > LONGEST {
        return Err(words.common("skip-large", lang));
    }
    let bytes =
        input::read(&path, &name.to_string_lossy(), LONGEST, "report").map_err(
            |end| match end {
                End::Failed(why) => unread(why),
                other => unread(format!("{other:?}")),
            },
        )?;
    #[derive(Deserialize)]
    struct Head {
        kind: String,
        schema: u32,
    }
    let foreign = || words.common("skip-foreign", lang);
    if bytes.is_empty() {
        return Err(words.common("skip-empty", lang));
    }
    let head: Head = serde_json::from_slice(&bytes).map_err(|error| match error.is_eof() {
        true => words.common("skip-cut", lang),
        false => foreign(),
    })?;
    if head.kind != KIND {
        return Err(foreign());
    }
    if head.schema > SCHEMA {
        return Err(words.fill("skip-newer", lang, &[("schema", head.schema.to_string())]));
    }
    let raw: Raw = serde_json::from_slice(&bytes).map_err(|error| unread(error.to_string()))?;
    if !raw.unread.is_empty() {
        let what = [("what", raw.unread.join(", "))];
        return Err(words.fill("skip-no-verdict", lang, &what));
    }
    Ok(raw)
}

/// A check whose texts are fit to be printed.
fn clean(told: Told) -> Told {
    let all = |lines: Vec<String>| lines.iter().map(|line| printable(line)).collect();
    Told {
        code: printable(&told.code),
        subject: printable(&told.subject),
        status: told.status,
        found: printable(&told.found),
        values: told
            .values
            .iter()
            .map(|(name, value)| (printable(name), printable(value)))
            .collect(),
        mend: told
            .mend
            .into_iter()
            .map(|mend| Mend {
                what: printable(&mend.what),
                run: all(mend.run),
                then: all(mend.then),
                edit: all(mend.edit),
            })
            .collect(),
    }
}
