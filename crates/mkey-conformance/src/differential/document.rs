//! The page: what programs do, and in what each device differs.

use super::campaign::{Campaign, Tally};
use super::deviations::{self, Deviation};
use super::offer::LEFT_OUT;
use super::program::Kind;
use super::record::Record;
use super::trace::errno_name;
use mkey_core::status::WcStatus;
use std::fmt::Write;

/// The page of what `tally` shows of the campaign over two software RNICs, and of what is recorded
/// of other devices.
pub fn page(campaign: &Campaign, tally: &Tally, recorded: &[Record]) -> String {
    let mut page = front(campaign, tally);
    recorded.iter().for_each(|record| section(record, &mut page));
    page
}

fn front(campaign: &Campaign, tally: &Tally) -> String {
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
it, or it is a bug. Where the devices have parted, so that states or bytes differ from there on, the
rest of the program is not compared. A difference that is not known is looked at again, with more
patience; if it stays, the test fails and prints the smallest program that was found to show it.

This page is made by running the programs over the software RNIC:
`cargo run -p mkey-conformance --bin differential -- --page --write`. What is said of other devices
is recorded in `crates/mkey-conformance/results`; `cargo xtask test --only vm` runs the first
{programs} programs over soft-RoCE of each of two kernels, and compares. More are run by hand, and
the faster if the command is optimised: an emulated machine does a few dozen of them in a second.

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
        programs = campaign.programs,
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

fn section(record: &Record, page: &mut String) {
    let Record { driver, kernel, programs, steps, whole, unsteady, met } = record;
    let _ = write!(
        page,
        "\n## {driver} in Linux {kernel}\n\n\
         {programs} programs: {steps} steps were compared, {whole} programs to their end, the others \
         until the\ndevices parted by a known deviation. {unsteady} showed a difference that was not \
         there when they ran\nagain with more patience.\n\n\
         | rule | of | software RNIC; {driver} | programs | why |\n|---|---|---|---|---|\n",
    );
    for deviation in deviations::of(driver, kernel) {
        let count = met.get(&deviation.name()).copied().unwrap_or(0);
        let Deviation { rule, seen, why, parts, .. } = &deviation;
        let parts = if *parts { "" } else { "; the rest is the same" };
        let of = deviation.about();
        let _ = writeln!(page, "| {rule} | {of} | {seen}{parts} | {count} | {why} |");
    }
    let left_out: Vec<_> = LEFT_OUT.iter().filter(|left| left.driver == driver).collect();
    if !left_out.is_empty() {
        page.push_str("\nThe programs leave out:\n\n");
    }
    for left in left_out {
        let _ = writeln!(page, "- {}: {}.", left.words, left.why);
    }
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

fn word((&(_, status), &count): (&(Kind, u32), &u64)) -> (String, u64) {
    let status = WcStatus::from_u32(status).unwrap_or(WcStatus::GeneralErr);
    (status.to_string(), count)
}

fn counted(what: impl Iterator<Item = (String, u64)>) -> String {
    what.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_the_deviations_of_its_kernel_with_their_counts() {
        let table = deviations::of("rxe", "6.1.0");
        let mut tally = Tally { programs: 10, steps: 200, whole: 8, ..Tally::default() };
        tally.deviations.insert(0, 7);
        let record = Record::of("rxe", "6.1.0", &table, &tally);
        let page = page(&Campaign::USUAL, &tally, &[record]);
        let section = page.split("\n## ").last().expect("a section");
        assert!(section.starts_with("rxe in Linux 6.1.0\n"), "{section}");
        let lines: Vec<_> = section.lines().filter(|line| line.starts_with("| R-")).collect();
        assert_eq!(lines.len(), table.len());
        assert!(lines[0].contains(" | 7 | ") && lines[1].contains(" | 0 | "), "{lines:?}");
    }
}
