//! rdma-core's own tests, as Debian packages them: both sides of each are in one process.

use crate::common::skipped;
use crate::pair::HugePages;
use crate::{ended, mkey_run, page};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where Debian has the tests, some of them compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";
/// The interpreter that has pyverbs.
pub const PYTHON: &str = "/usr/bin/python3";
/// Tests that pass at least.
const AT_LEAST: usize = 125;
/// Tests that there are in version 44, which the page tells of.
const OF: usize = 273;

/// How they are run, in their folder. Warnings of the interpreter would stand in the middle of results.
pub const RUN: [&str; 5] = [PYTHON, "-W", "ignore", "tests/run_tests.py", "-v"];

/// Runs them in a folder, where they are put before. None may fail.
pub fn all_pass(mut command: Command, folder: &Path) -> BTreeMap<String, Group> {
    unpack(folder);
    // What they print of themselves is on standard error.
    let (code, stdout, stderr) = ended(command.current_dir(folder));
    let (groups, bad) = read(&stderr);
    assert!(bad.is_empty() && code == 0, "{bad:?}\n{stdout}\n{stderr}");
    let (passed, left_out) = counted(&groups);
    assert!(stderr.contains(&format!("Ran {} tests", passed + left_out)), "{stderr}");
    assert!(passed >= AT_LEAST, "{passed} passed\n{stderr}");
    groups
}

/// How many passed, and how many were left out.
fn counted(groups: &BTreeMap<String, Group>) -> (usize, usize) {
    let passed = groups.values().map(|group| group.passed).sum();
    (passed, groups.values().flat_map(|group| group.skipped.values()).sum())
}

/// What became of the tests of one file.
#[derive(Default)]
pub struct Group {
    pub passed: usize,
    /// By the reason.
    pub skipped: BTreeMap<String, usize>,
}

#[test]
fn rdma_core_s_own_tests_pass() {
    let test = "rdma_core_s_own_tests_pass";
    if !is_here(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Some tests register such pages.
    let pages = HugePages::reserve(test);
    let run = [&["--only"], &RUN[..]].concat();
    let groups = all_pass(mkey_run(&run), folder.path());
    println!("{}", text(&groups));
    let (passed, left_out) = counted(&groups);
    if passed + left_out != OF {
        return skipped(test, "the page tells of another version's tests");
    }
    if pages.is_some() {
        page::compare("rdma-core's own tests", &table(&groups));
    }
}

/// Whether the tests are installed, with what they use; if not, `test` is noted as skipped.
pub fn is_here(test: &str) -> bool {
    if !Path::new(TESTS).join("run_tests.py").exists() {
        skipped(test, "rdma-core is not installed");
        return false;
    }
    let pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs.device"]).output();
    let found = pyverbs.is_ok_and(|output| output.status.success());
    if !found {
        skipped(test, "python3-pyverbs is not installed");
    }
    found
}

/// Copies the tests, uncompressed.
pub fn unpack(folder: &Path) {
    let script = "mkdir tests && for file in \"$0\"/*; do case $file in \
                  *.gz) name=${file##*/}; gzip -dc \"$file\" > \"tests/${name%.gz}\" ;; \
                  *.py) cp \"$file\" tests ;; esac; done";
    let status = Command::new("sh").args(["-ec", script, TESTS]).current_dir(folder).status();
    assert!(status.unwrap().success());
    assert!(fs::exists(folder.join("tests/base.py")).unwrap());
}

/// The groups, and the tests that failed. A test is a line `NAME (tests.GROUP.CLASS.NAME)`, which
/// may be followed by a line of words, and ends with ` ... RESULT`.
pub fn read(text: &str) -> (BTreeMap<String, Group>, Vec<String>) {
    let (mut groups, mut bad) = (BTreeMap::<String, Group>::new(), Vec::new());
    let mut name = String::new();
    for line in text.lines() {
        if let Some((_, after)) = line.split_once("(tests.")
            && let Some((within, _)) = after.split_once(')')
        {
            name = within.to_owned();
        }
        let Some((_, result)) = line.rsplit_once(" ... ") else { continue };
        let file = name.split('.').next().unwrap_or_default();
        let group = groups.entry(file.to_owned()).or_default();
        match result {
            "ok" => group.passed += 1,
            _ => match result.strip_prefix("skipped ") {
                Some(why) => {
                    let why = why.trim_matches(['\'', '"']).to_owned();
                    *group.skipped.entry(why).or_default() += 1;
                }
                None => bad.push(format!("{name}: {result}")),
            },
        }
    }
    (groups, bad)
}

/// As printed.
fn text(groups: &BTreeMap<String, Group>) -> String {
    let mut text = String::new();
    for (name, group) in groups {
        let left_out: usize = group.skipped.values().sum();
        text.push_str(&format!("{name:24} {:4} passed {left_out:4} skipped\n", group.passed));
        for (why, count) in &group.skipped {
            text.push_str(&format!("{:24} {count:4} {why}\n", ""));
        }
    }
    text
}

/// As on the page.
fn table(groups: &BTreeMap<String, Group>) -> String {
    let mut text = "| tests | passed | skipped | why |\n|---|---|---|---|\n".to_owned();
    let (mut passed, mut all_left_out) = (0, 0);
    for (name, group) in groups {
        let left_out: usize = group.skipped.values().sum();
        (passed, all_left_out) = (passed + group.passed, all_left_out + left_out);
        let why: Vec<_> =
            group.skipped.iter().map(|(why, count)| format!("{count}: {why}")).collect();
        let why = why.join("; ");
        text.push_str(&format!("| `{name}` | {} | {left_out} | {why} |\n", group.passed));
    }
    text.push_str(&format!("| all | {passed} | {all_left_out} | |\n"));
    text
}
