//! The five points of a deployment: switch, NIC, huge pages, memory lock, mappings.

use super::code::Code;
use super::finding::Status;
use super::report::Check;
use super::texts::Words;
use crate::lang::Lang;
use serde::Serialize;

/// A point, and what stands for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Its name: `switch`, `nic`, `huge-pages`, `memlock`, `max-map-count`.
    pub id: &'static str,
    /// In words.
    pub what: String,
    /// Whether it is as it should be.
    pub answer: Answer,
    /// What was found, each with its code.
    pub evidence: Vec<String>,
}

/// Whether a point is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// That can not be seen from here.
    Unseen,
}

impl Answer {
    /// The name of its text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unseen => "unseen",
        }
    }
}

/// The points, by the checks.
pub fn points(checks: &[Check], words: &Words, lang: Lang) -> Vec<Point> {
    let of = |codes: &[Code]| -> Vec<&Check> {
        checks.iter().filter(|check| codes.contains(&check.code)).collect()
    };
    let switch = of(&[Code::TrafficClass, Code::Trust, Code::Pfc, Code::Ecn]);
    let nic =
        of(&[Code::DeviceOpen, Code::Port, Code::DeviceLimits, Code::Resources, Code::RdmaCgroup]);
    let huge = of(&[Code::HugePages, Code::HugePageProbe, Code::HugePagesCgroup]);
    let user = of(&[Code::MemlockUser]);
    // For whom a user was named, that user's limits.
    let memlock = if user.is_empty() { of(&[Code::Memlock, Code::Pinned]) } else { user };
    let maps = of(&[Code::MapCount, Code::ForkProtection]);
    let point = |id, text, answer, of: &[&Check]| Point {
        id,
        what: words.common(text, lang),
        answer,
        evidence: of.iter().map(|check| told(check)).collect(),
    };
    // The host's half can be wrong; that the switch's is right nobody sees here.
    let host_half = if bad(&switch) { Answer::No } else { Answer::Unseen };
    let mut first = point("switch", "point-switch", host_half, &switch);
    first.evidence.push(words.common("switch-unseen", lang));
    vec![
        first,
        point("nic", "point-nic", devices_well(&nic), &nic),
        point("huge-pages", "point-huge-pages", any_huge(&huge), &huge),
        point("memlock", "point-memlock", all_well(&memlock), &memlock),
        point("max-map-count", "point-max-map-count", all_well(&maps), &maps),
    ]
}

fn told(check: &Check) -> String {
    let of = if check.subject.is_empty() { String::new() } else { format!(" {}", check.subject) };
    format!("{}{of}: {}", check.code, check.found)
}

fn bad(checks: &[&Check]) -> bool {
    checks.iter().any(|check| check.status.is_bad())
}

fn good(checks: &[&Check]) -> bool {
    checks.iter().any(|check| check.status == Status::Ok)
}

fn all_well(checks: &[&Check]) -> Answer {
    let unread = checks.iter().any(|check| check.status == Status::NotReadable);
    match (bad(checks), good(checks) && !unread) {
        (true, _) => Answer::No,
        (false, true) => Answer::Yes,
        (false, false) => Answer::Unseen,
    }
}

/// Each device has told its limits and what is in use, and has a port that is up.
fn devices_well(checks: &[&Check]) -> Answer {
    let of = |code| -> Vec<&Check> { checks.iter().copied().filter(|c| c.code == code).collect() };
    let others: Vec<&Check> = checks.iter().copied().filter(|c| c.code != Code::Port).collect();
    let opened = of(Code::DeviceOpen);
    let is_down = |device: &str| {
        let own: Vec<&Check> =
            of(Code::Port).into_iter().filter(|port| device_of(port) == device).collect();
        // One of two may well be without a cable.
        bad(&own) && !good(&own)
    };
    let told = |device: &str| {
        [Code::DeviceLimits, Code::Resources].into_iter().all(|code| {
            of(code).iter().any(|check| check.subject == device && check.status == Status::Ok)
        })
    };
    if bad(&others) || of(Code::Port).into_iter().any(|port| is_down(device_of(port))) {
        return Answer::No;
    }
    let all = !opened.is_empty() && opened.iter().all(|device| told(&device.subject));
    if all { Answer::Yes } else { Answer::Unseen }
}

/// The device that a check of a port is about.
fn device_of(port: &Check) -> &str {
    port.subject.rsplit_once('/').map_or(&port.subject, |(device, _)| device)
}

/// Pages of one size are enough, if they can be had.
fn any_huge(checks: &[&Check]) -> Answer {
    let of = |code| -> Vec<&Check> { checks.iter().copied().filter(|c| c.code == code).collect() };
    let (pools, probes) = (of(Code::HugePages), of(Code::HugePageProbe));
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    match (good(&pools), bad(&pools)) {
        _ if failed || (bad(&probes) && !good(&probes)) => Answer::No,
        (true, _) => Answer::Yes,
        (false, true) => Answer::No,
        (false, false) => Answer::Unseen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: Code, subject: &str, status: Status) -> Check {
        Check {
            code,
            subject: subject.to_owned(),
            status,
            found: String::new(),
            values: Default::default(),
            measured: Default::default(),
            read: Vec::new(),
            why: String::new(),
            mend: Vec::new(),
        }
    }

    #[test]
    fn a_nic_is_well_only_if_it_told_its_limits_and_what_is_in_use() {
        let of = |told: &[(Code, &str, Status)]| {
            let all: Vec<Check> =
                told.iter().map(|(code, subject, status)| check(*code, subject, *status)).collect();
            devices_well(&all.iter().collect::<Vec<_>>())
        };
        let opens = (Code::DeviceOpen, "a", Status::Ok);
        let limits = (Code::DeviceLimits, "a", Status::Ok);
        let used = (Code::Resources, "a", Status::Ok);
        let (up, down) = ((Code::Port, "a/1", Status::Ok), (Code::Port, "a/2", Status::Warn));
        let group = (Code::RdmaCgroup, "a", Status::Ok);
        assert_eq!(of(&[opens, up, down, limits, used, group]), Answer::Yes);
        assert_eq!(of(&[opens, down, limits, used]), Answer::No);
        assert_eq!(of(&[opens, up, limits]), Answer::Unseen);
        // No limit of a control group is no answer of the device.
        let untried = |code| (code, "", Status::NotApplicable);
        let none = [Code::DeviceOpen, Code::DeviceLimits, Code::Resources].map(untried);
        assert_eq!(of(&[&none[..], &[group, up]].concat()), Answer::Unseen);
        assert_eq!(of(&[(Code::DeviceOpen, "a", Status::Fail), up]), Answer::No);
        let other = (Code::DeviceOpen, "b", Status::Ok);
        assert_eq!(of(&[opens, other, limits, used]), Answer::Unseen);
        assert_eq!(of(&[]), Answer::Unseen);
    }
}
