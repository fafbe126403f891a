//! The parts of `cargo xtask test`, in the order in which they run: the quick ones first.
//!
//! A new part is one entry of [`PARTS`]. Its test target, if it has one, is then left out of
//! `unit` by itself.

use anyhow::Result;

use crate::part::{Part, Report, Step, Work};
use crate::workspace::Workspace;
use crate::{asan, audit, broken, coverage, dist, gates, packages, tools, vm};

/// The test target of the part of this name.
const COMPATIBILITY: &str = "compatibility";

/// Every part.
pub const PARTS: &[Part] = &[
    Part {
        name: "fmt",
        about: "the code is formatted",
        work: Work::Checks(&[Step::cargo(&["fmt", "--all", "--check"])]),
    },
    Part {
        name: "deny",
        about: "licences, bans and sources of the dependencies",
        work: Work::Call(audit::deny),
    },
    Part {
        name: "clippy",
        about: "no warning from the compiler or clippy",
        work: Work::Checks(&[
            Step::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
            Step {
                args: &[
                    "clippy",
                    "--package",
                    "mkey-core",
                    "--package",
                    "mkey",
                    "--tests",
                    "--",
                    "-D",
                    "warnings",
                ],
                env: &[("RUSTFLAGS", "--cfg loom")],
                target: Some("loom"),
            },
        ]),
    },
    Part {
        name: "unit",
        about: "unit, property and integration tests of every crate",
        work: Work::Call(unit),
    },
    Part {
        name: COMPATIBILITY,
        about: "programs from their distribution's packages, by `mkey run`",
        work: Work::Call(compatibility),
    },
    Part {
        name: "doc",
        about: "the examples in the documentation",
        work: Work::Tests(&[Step::cargo(&["test", "--workspace", "--doc"])]),
    },
    Part {
        name: "rustdoc",
        about: "the documentation builds without a warning",
        work: Work::Checks(&[Step {
            args: &["doc", "--workspace", "--no-deps", "--all-features"],
            env: &[("RUSTDOCFLAGS", "-D warnings")],
            target: None,
        }]),
    },
    Part {
        name: "dist",
        about: "the packages: made, unpacked or installed elsewhere, and run from there",
        work: Work::Call(dist::part),
    },
    Part {
        name: "fuzz-corpus",
        about: "what the fuzz targets once found",
        work: Work::Tests(&[Step::cargo(&[
            "test",
            "--package",
            "mkey-conformance",
            "--test",
            "fuzz_corpus",
        ])]),
    },
    Part {
        name: "coverage",
        about: "garbage, truncated and spoofed packets reach the code that reads packets",
        work: Work::Call(coverage::part),
    },
    Part {
        name: "loom",
        about: "look-up and revocation under every order of steps",
        work: Work::Tests(&[
            Step {
                args: &["test", "--release", "--package", "mkey-core", "--test", "loom_revocation"],
                env: &[("RUSTFLAGS", "--cfg loom")],
                target: Some("loom"),
            },
            Step {
                args: &["test", "--release", "--package", "mkey", "--lib", "loom_"],
                env: &[("RUSTFLAGS", "--cfg loom")],
                target: Some("loom"),
            },
        ]),
    },
    Part {
        name: "stress",
        about: "no access touches memory after its revocation",
        work: Work::Tests(&[Step::cargo(&[
            "test",
            "--release",
            "--package",
            "mkey-core",
            "--test",
            "revocation_stress",
        ])]),
    },
    Part {
        name: "soak",
        about: "random servers and clients on a device that fails; every use of memory checked",
        work: Work::Tests(&[Step {
            args: &[
                "test",
                "--release",
                "--package",
                "mkey",
                "--test",
                "soak",
                "--",
                "--nocapture",
            ],
            env: &[("MKEY_SOAK_SECONDS", "30")],
            target: None,
        }]),
    },
    Part {
        name: "broken",
        about: "with a protection taken out, the tests that watch over it fail",
        work: Work::Call(broken::part),
    },
    Part {
        name: "asan",
        about: "the crates that hand out memory, under AddressSanitizer",
        work: Work::Call(asan::part),
    },
    Part {
        name: "gates",
        about: "instruction counts within their limits, and a slowed copy of each beyond",
        work: Work::Call(gates::part),
    },
    Part {
        name: "vm",
        about: "kernels with their own RDMA device, in virtual machines",
        work: Work::Call(vm::part),
    },
    Part {
        name: "vm-links",
        about: "packets to and from the kernel's RDMA device, in virtual machines",
        work: Work::Call(vm::links),
    },
];

/// Programs of two processes each, which poll: one after the other, and beside no other test.
fn compatibility(workspace: &Workspace) -> Result<Report> {
    if let Err(error) = packages::get(&[packages::PROGRAMS, packages::CRATES]) {
        println!("{error:#}");
    }
    let mut command = workspace.cargo();
    command.args(["test", "--package", "mkey-cli", "--test", COMPATIBILITY]);
    command.args(["--", "--test-threads=1"]);
    let mut report = Report::default();
    report.tests(workspace, &mut command)?;
    Ok(report)
}

/// All test targets but those that are parts of their own, by nextest where it is installed.
/// Cargo's own runner has no way to leave a target out and runs those, too.
fn unit(workspace: &Workspace) -> Result<Report> {
    // Tests use them; where they cannot be had, those tests say so.
    let groups = [packages::HEADERS, packages::PROGRAMS, packages::CAPTURES, packages::MONITOR];
    if let Err(error) = packages::get(&groups) {
        println!("{error:#}");
    }
    let mut command = workspace.cargo();
    if tools::has_nextest(workspace)? {
        command.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
        let apart = apart(PARTS);
        if !apart.is_empty() {
            let names: Vec<_> = apart.iter().map(|name| format!("binary(#{name})")).collect();
            command.args(["--filterset", &format!("not ({})", names.join(" | "))]);
        }
    } else {
        command.args(["test", "--workspace", "--no-fail-fast"]);
        command.args(["--lib", "--bins", "--tests", "--examples"]);
    }
    let mut report = Report::default();
    report.tests(workspace, &mut command)?;
    Ok(report)
}

/// The test targets, as globs, that the steps of `parts` name with `--test`, and the one that a part calls.
fn apart(parts: &[Part]) -> Vec<&'static str> {
    let mut names = vec![COMPATIBILITY];
    for part in parts {
        let Work::Tests(steps) = part.work else { continue };
        for step in steps {
            let mut args = step.args.iter();
            while args.any(|arg| *arg == "--test") {
                names.extend(args.next());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_distinct_words() {
        for (at, part) in PARTS.iter().enumerate() {
            let word = part.name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            assert!(word && !part.about.is_empty(), "{}", part.name);
            assert!(PARTS.iter().take(at).all(|other| other.name != part.name), "{}", part.name);
        }
    }

    #[test]
    fn the_targets_of_other_parts_are_left_out_of_unit() {
        const FIXTURE: &[Part] = &[
            Part {
                name: "loom",
                about: "",
                work: Work::Tests(&[
                    Step::cargo(&["test", "-p", "a", "--test", "loom*"]),
                    Step::cargo(&["test", "--test", "stress", "--test", "more", "--release"]),
                ]),
            },
            Part { name: "x", about: "", work: Work::Checks(&[Step::cargo(&["--test", "no"])]) },
        ];
        assert_eq!(apart(FIXTURE), ["compatibility", "loom*", "stress", "more"]);
    }
}
