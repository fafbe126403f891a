//! What differs between hosts that should be alike, who is the odd one, and what to mend where.

use super::read::{Host, Skipped};
use crate::doctor::finding::Status;
use crate::doctor::report::{Mend, exit_code};
use serde::Serialize;
use std::collections::BTreeMap;

/// What came of comparing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// What it is told by among other JSON files.
    pub kind: &'static str,
    /// The version of this form.
    pub schema: u32,
    /// The hosts.
    pub hosts: Vec<String>,
    /// Files that were not compared.
    pub skipped: Vec<Skipped>,
    /// What differs.
    pub differences: Vec<Difference>,
    /// What to mend where, failures first.
    pub mends: Vec<ToMend>,
}

/// Something that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The check.
    pub code: String,
    /// Of what.
    pub subject: String,
    /// Which of its values; empty if whole checks are missing.
    pub value: String,
    /// The value of most hosts, if there is one; nothing stands for a value that is not there.
    pub majority: Option<Share>,
    /// The hosts that have another one; all of them if there is no majority.
    pub odd: Vec<Odd>,
}

/// A value and how many hosts have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The value.
    pub value: Option<String>,
    /// How many hosts have it.
    pub hosts: u64,
}

/// A host with a value that most have not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Odd {
    /// The host.
    pub host: String,
    /// Its value.
    pub value: Option<String>,
}

/// Something to mend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToMend {
    /// How bad it is.
    pub status: Status,
    /// The check.
    pub code: String,
    /// Of what.
    pub subject: String,
    /// What was found, of the first host.
    pub found: String,
    /// Where.
    pub hosts: Vec<String>,
    /// What mends it there.
    pub mend: Vec<Mend>,
}

impl Merged {
    /// 0: all hosts are alike and well; 1: they differ, have warnings, or files were skipped; 2: a
    /// host has failures.
    pub fn exit_code(&self) -> u8 {
        let odd = u8::from(!self.differences.is_empty() || !self.skipped.is_empty());
        exit_code(self.mends.iter().map(|mend| mend.status)).max(odd)
    }
}

/// Compares hosts.
pub fn compare(hosts: &[Host], skipped: Vec<Skipped>) -> Merged {
    Merged {
        kind: "mkey-doctor-merge",
        schema: 1,
        hosts: hosts.iter().map(|host| host.name.clone()).collect(),
        skipped,
        differences: differences(hosts),
        mends: mends(hosts),
    }
}

/// The name of a value: the check's code, its subject, and its own.
type Key = (String, String, String);

fn differences(hosts: &[Host]) -> Vec<Difference> {
    let mut table = BTreeMap::<Key, BTreeMap<usize, String>>::new();
    for (number, host) in hosts.iter().enumerate() {
        for check in &host.checks {
            // A counter that shows trouble is no setting: it is among what is to be mended.
            for (name, value) in &check.values {
                let key = (check.code.clone(), check.subject.clone(), name.clone());
                table.entry(key).or_default().insert(number, value.clone());
            }
        }
    }
    let of = |((code, subject, value), by_host): (Key, BTreeMap<usize, String>)| {
        let values: Vec<Option<&String>> = (0..hosts.len()).map(|n| by_host.get(&n)).collect();
        let (majority, odd) = judge(&values)?;
        let odd = odd.into_iter().filter_map(|(number, value)| {
            Some(Odd { host: hosts.get(number)?.name.clone(), value: value.cloned() })
        });
        Some(Difference { code, subject, value, majority, odd: odd.collect() })
    };
    let all: Vec<Difference> = table.into_iter().filter_map(of).collect();
    joined(all)
}

/// The value of most, and who has another; `None` if all have the same.
type Judged<'v> = (Option<Share>, Vec<(usize, Option<&'v String>)>);

fn judge<'v>(values: &[Option<&'v String>]) -> Option<Judged<'v>> {
    let mut counts = BTreeMap::<Option<&String>, u64>::new();
    for value in values {
        *counts.entry(*value).or_default() += 1;
    }
    if counts.len() < 2 {
        return None;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    // More than half; else nobody is the odd one.
    let usual = counts.iter().find(|(_, count)| **count == most && most * 2 > values.len() as u64);
    let numbered = values.iter().copied().enumerate();
    Some(match usual {
        Some((usual, hosts)) => {
            let odd = numbered.filter(|(_, value)| value != usual).collect();
            (Some(Share { value: usual.cloned(), hosts: *hosts }), odd)
        }
        None => (None, numbered.collect()),
    })
}

/// Where hosts lack a check as a whole, one difference stands for all its values.
fn joined(all: Vec<Difference>) -> Vec<Difference> {
    let lacks = |difference: &Difference| {
        difference.odd.iter().all(|odd| odd.value.is_none())
            || difference.majority.as_ref().is_some_and(|share| share.value.is_none())
    };
    let mut joined: Vec<Difference> = Vec::new();
    for difference in all {
        let same = joined.iter_mut().find(|known| {
            lacks(known)
                && lacks(&difference)
                && known.code == difference.code
                && known.subject == difference.subject
                && known.odd.iter().map(|o| &o.host).eq(difference.odd.iter().map(|o| &o.host))
        });
        match same {
            Some(known) => {
                known.value.push_str(", ");
                known.value.push_str(&difference.value);
            }
            None => joined.push(difference),
        }
    }
    joined
}

fn mends(hosts: &[Host]) -> Vec<ToMend> {
    // Hosts that were started in different ways are mended in different ways.
    let mut table = BTreeMap::<(Status, &str, &str, &[Mend]), ToMend>::new();
    for host in hosts {
        for check in &host.checks {
            if !check.status.is_bad() {
                continue;
            }
            let key = (check.status, &*check.code, &*check.subject, &*check.mend);
            let entry = table.entry(key).or_insert_with(|| ToMend {
                status: check.status,
                code: check.code.clone(),
                subject: check.subject.clone(),
                found: check.found.clone(),
                hosts: Vec::new(),
                mend: check.mend.clone(),
            });
            entry.hosts.push(host.name.clone());
        }
    }
    table.into_values().collect()
}
