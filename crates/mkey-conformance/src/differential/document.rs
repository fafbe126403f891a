//! The page: what programs do, and in what each device differs.
//!
//! Its first part is made on any machine; a section is made where the device is.

use super::campaign::{Campaign, Tally};
use super::deviations::{Deviation, Linux};
use super::offer::LEFT_OUT;
use super::program::Kind;
use super::trace::errno_name;
use mkey_core::status::WcStatus;
use std::fmt::Write;

/// The first part, of a campaign over two software RNICs.
pub fn front(campaign: &Campaign, tally: &Tally) -> String {
    let (first, last) = (campaign.first, campaign.first + campaign.programs - 1);
    let mut text = format!(
        "# The same programs on two devices

Random programs of verbs run on the software RNIC and on another device, step by step: register,
re-register, deregister, allocate, free, bind, invalidate, change states, post and poll, with
mistakes made on purpose. After each step all that it began is waited for, and this is compared:

- what the verb answered, and how many work requests of a chain were posted;
- the completions of all four queues: their order, statuses, opcodes, lengths, immediate data and
  invalidated keys;
- the states of both queue pairs;
- every byte of the memory that is registered.

What differs is an entry of the table of the device, narrow enough to say which work request shows
it, or it is a bug. Where the devices have parted (their states or bytes differ from there on) the
rest of the program is not compared. A difference that is not known is looked at again, with more
patience; if it stays, the test fails and prints the smallest program that was found to show it.

This page is made by running the programs: `tools/differential/document`. A test compares it.

## To run more, and to run one again

```
cargo build -p mkey-conformance --bin differential
cargo xtask vm run --kernel 7 -- target/debug/differential --programs 10000 --seed 50000
cargo xtask vm run --kernel 7 -- target/debug/differential --replay FILE
```

FILE is what was printed of a difference: a line of JSON for each step; lines that begin with # are
left out. `--print --seed N` prints the program N, `--device soft` compares two software RNICs.

## What the programs do

Programs {first} to {last}, with nothing left out, on the software RNIC: {steps} steps.

| verb | answers |
|---|---|
",
        steps = tally.steps
    );
    for kind in VERBS {
        let of = tally.answers.iter().filter(|((of, _), _)| of == kind);
        let answers = of.map(|((_, errno), count)| (errno_name(*errno), *count));
        let _ = writeln!(text, "| {kind:?} | {} |", counted(answers));
    }
    text.push_str(
        "\n| work request | refused at posting | completions (none if unsignaled and successful) |\n\
         |---|---|---|\n",
    );
    for kind in WORK {
        let refused = tally.answers.iter().filter(|((of, errno), _)| of == kind && *errno != 0);
        let refused = refused.map(|((_, errno), count)| (errno_name(*errno), *count));
        let ended = tally.completions.iter().filter(|((of, _), _)| of == kind).map(word);
        let _ = writeln!(text, "| {kind:?} | {} | {} |", counted(refused), counted(ended));
    }
    text
}

/// The section of a device with this driver in this kernel, whose deviations `table` has.
pub fn section(driver: &str, release: &str, table: &[Deviation], tally: &Tally) -> String {
    let line = Linux::of(release);
    let Tally { programs, steps, whole, unsteady, .. } = tally;
    let mut text = format!(
        "{}\n\nKernel {release}. {programs} programs: {steps} steps were compared, {whole} programs \
         to their end, the\nothers until the devices parted by a known deviation. {unsteady} showed \
         a difference that was not there\nwhen they ran again with more patience.\n\n\
         | rule | of | software RNIC; device | programs | why |\n|---|---|---|---|---|\n",
        heading(driver, line)
    );
    for (at, deviation) in table.iter().enumerate() {
        let count = tally.deviations.get(&at).copied().unwrap_or(0);
        let Deviation { rule, seen, why, parts, .. } = deviation;
        let parts = if *parts { "" } else { "; the rest is the same" };
        let _ = writeln!(text, "| {rule} | {} | {seen}{parts} | {count} | {why} |", of(deviation));
    }
    let left_out: Vec<_> = LEFT_OUT.iter().filter(|left| left.driver == driver).collect();
    if !left_out.is_empty() {
        text.push_str("\nThe programs leave out:\n\n");
    }
    for left in left_out {
        let _ = writeln!(text, "- {}: {}.", left.words, left.why);
    }
    text
}

/// The section of the driver in kernels of this line, as it is on a page.
pub fn section_of<'a>(page: &'a str, driver: &str, line: Linux) -> Option<&'a str> {
    let begin = page.find(&heading(driver, line))?;
    let section = page.get(begin..)?;
    Some(section.split_once("\n## ").map_or(section, |(section, _)| section).trim_end())
}

/// A section without its numbers, which vary from run to run.
pub fn without_numbers(section: &str) -> String {
    let mut text = String::new();
    for line in section.trim_end().lines() {
        // The release is that of the kernel that was booted.
        let line = if line.starts_with("Kernel ") { "Kernel" } else { line };
        let cells = line.split(" | ").map(|cell| match cell.parse::<u64>() {
            Ok(0) | Err(_) => cell,
            Ok(_) => "met",
        });
        text.push_str(&cells.collect::<Vec<_>>().join(" | "));
        text.push('\n');
    }
    text
}

/// The verbs of the control path, and the posting of receives.
const VERBS: &[Kind] = &[
    Kind::Register,
    Kind::Reregister,
    Kind::Deregister,
    Kind::Allocate,
    Kind::Free,
    Kind::Modify,
    Kind::Connect,
    Kind::Receive,
    Kind::CleanUp,
];

const WORK: &[Kind] = &[
    Kind::Send,
    Kind::SendInv,
    Kind::Write,
    Kind::WriteImm,
    Kind::Read,
    Kind::Atomic,
    Kind::Bind1,
    Kind::Bind2,
    Kind::LocalInv,
    Kind::Receive,
];

fn heading(driver: &str, line: Linux) -> String {
    format!("## {driver} in {}", line.name())
}

fn of(deviation: &Deviation) -> String {
    let kinds: Vec<_> = deviation.of.iter().map(|kind| format!("{kind:?}")).collect();
    let mut text = if kinds.len() == 9 { "all sends".to_owned() } else { kinds.join(", ") };
    if !deviation.with.is_empty() {
        let _ = write!(text, " {}", deviation.with);
    }
    text
}

fn word((&(_, status), &count): (&(Kind, u32), &u64)) -> (String, u64) {
    let status = WcStatus::from_u32(status).unwrap_or(WcStatus::GeneralErr);
    (status.to_string(), count)
}

fn counted(what: impl Iterator<Item = (String, u64)>) -> String {
    what.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::deviations::{self, RXE};
    use super::*;

    #[test]
    fn a_section_is_found_on_the_page_and_compared_but_for_its_numbers() {
        let mut tally = Tally { programs: 10, steps: 200, whole: 8, ..Tally::default() };
        tally.deviations.insert(0, 7);
        let [six, seven] = [Linux::V6, Linux::V7].map(|line| deviations::of(RXE, line));
        let (old, new) = ("6.1.0-50-amd64", "7.3.4+deb13-amd64");
        let sections = [section("rxe", old, &six, &tally), section("rxe", new, &seven, &tally)];
        let page = format!("{}\n{}\n{}", front(&Campaign::USUAL, &tally), sections[0], sections[1]);
        let found = |line| section_of(&page, "rxe", line).expect("it is there");
        assert_eq!(found(Linux::V6), sections[0].trim_end());
        assert_eq!(found(Linux::V7), sections[1].trim_end());
        assert_eq!(section_of(&page, "mlx5", Linux::V7), None);

        tally.deviations.insert(0, 9);
        tally.steps = 190;
        let again = section("rxe", "6.1.0-51-amd64", &six, &tally);
        assert_ne!(found(Linux::V6), again.trim_end());
        assert_eq!(without_numbers(found(Linux::V6)), without_numbers(&again));
        // Whether a deviation is met at all is compared.
        tally.deviations.clear();
        let never = section("rxe", old, &six, &tally);
        assert_ne!(without_numbers(found(Linux::V6)), without_numbers(&never));
        assert_ne!(without_numbers(found(Linux::V6)), without_numbers(found(Linux::V7)));
    }
}
