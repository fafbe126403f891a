//! Mistakes in the life of memory and keys, in words: what was done, where, and what it goes against.

use super::ground::Ground;
use super::places::Place;
use crate::bench::units::{size, time};
use crate::lang::Lang;
use mkey_trace::format::{Finding, Recording, Wrong};
use serde::Serialize;

/// A mistake, at one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lifetime {
    /// What was wrong.
    pub wrong: Wrong,
    /// In words.
    pub what: String,
    /// The number of the process.
    pub pid: u32,
    /// When it was first.
    pub at: u64,
    /// How often.
    pub times: u64,
    /// How long the region was registered after that, ns; `None`: to the end.
    pub kept_ns: Option<u64>,
    /// Whether no work but receives ever named the region: none else was in flight.
    pub only_received: bool,
    /// Memory and key; relative.
    pub addr: u64,
    /// See `addr`.
    pub len: u64,
    /// See `addr`.
    pub key: u32,
    /// Where it was done.
    pub place: Place,
    /// Where what it goes against was done: the registration, or of a key used after it the deregistration.
    pub before: Place,
}

/// All of them, those that happened most first.
pub fn all(ground: &Ground<'_>, lang: Lang) -> Vec<Lifetime> {
    let mut all: Vec<Lifetime> =
        ground.recording.findings.iter().map(|finding| one(ground, finding, lang)).collect();
    all.sort_by(|a, b| (a.wrong, b.times, a.at).cmp(&(b.wrong, a.times, b.at)));
    all
}

fn one(ground: &Ground<'_>, finding: &Finding, lang: Lang) -> Lifetime {
    let recording = ground.recording;
    let process = Recording::by_id(&recording.processes, finding.process);
    let region = finding.region.and_then(|id| Recording::by_id(&recording.regions, id));
    let place = ground.places.of(finding.stack);
    let mut before = ground.places.of(finding.before);
    if before.at.is_empty()
        && let Some(region) = region
    {
        let ended = finding.wrong == Wrong::KeyAfterDereg;
        before = ground.places.of(if ended { region.dereg_stack } else { region.reg_stack });
    }
    let (addr, len) =
        region.map_or((finding.addr, finding.len), |region| (region.addr, region.len));
    let queue = finding.queue.and_then(|id| Recording::by_id(&recording.queues, id));
    let kept_ns = region.and_then(|region| region.to).map(|to| to.saturating_sub(finding.at));
    let said = Said {
        kept_ns,
        memory: format!("{addr:#x} ({})", size(len)),
        key: format!("{:#x}", finding.key),
        queue: queue.map_or_else(String::new, |queue| format!("{:#x}", queue.number)),
        here: at(&place, lang),
        there: at(&before, lang),
        part: format!("{:#x} ({})", finding.addr, size(finding.len)),
        times: finding.times,
    };
    Lifetime {
        wrong: finding.wrong,
        what: match (process.filter(|_| recording.processes.len() > 1), lang) {
            (None, _) => said.words(finding.wrong, lang),
            (Some(process), Lang::En) => {
                format!("process {}: {}", process.pid, said.words(finding.wrong, lang))
            }
            (Some(process), Lang::Zh) => {
                format!("进程 {}：{}", process.pid, said.words(finding.wrong, lang))
            }
        },
        pid: process.map_or(0, |process| process.pid),
        at: finding.at,
        times: finding.times,
        kept_ns,
        only_received: region.is_some_and(|region| {
            region.recvs > 0 && region.sends == 0 && region.writes == 0 && region.reads == 0
        }),
        addr: finding.addr,
        len: finding.len,
        key: finding.key,
        place,
        before,
    }
}

fn at(place: &Place, lang: Lang) -> String {
    if place.at.is_empty() {
        lang.pick("a place that is not known", "未知位置").to_owned()
    } else {
        place.at.clone()
    }
}

/// What the words are made of.
struct Said {
    memory: String,
    key: String,
    queue: String,
    here: String,
    there: String,
    part: String,
    times: u64,
    kept_ns: Option<u64>,
}

impl Said {
    /// How long the region was registered after its memory had gone.
    fn kept(&self, lang: Lang) -> String {
        match (self.kept_ns, lang) {
            (Some(ns), Lang::En) => format!("which it was for another {}", time(ns as f64)),
            (Some(ns), Lang::Zh) => format!("此后仍注册 {}", time(ns as f64)),
            (None, Lang::En) => "which it was to the end".to_owned(),
            (None, Lang::Zh) => "且直到结束仍注册".to_owned(),
        }
    }

    fn words(&self, wrong: Wrong, lang: Lang) -> String {
        let Self { memory, key, queue, here, there, part, .. } = self;
        let region = match lang {
            Lang::En => format!("region {memory}, registered at {there},"),
            Lang::Zh => format!("区域 {memory}（在 {there} 注册）"),
        };
        let on = match (queue.is_empty(), lang) {
            (true, _) => String::new(),
            (false, Lang::En) => format!(" on queue pair {queue}"),
            (false, Lang::Zh) => format!("（QP {queue}）"),
        };
        let words = match (wrong, lang) {
            (Wrong::DeregInFlight, Lang::En) => format!(
                "{region} was deregistered at {here} while work that names it was in flight{on}"
            ),
            (Wrong::DeregInFlight, Lang::Zh) => {
                format!("{region}在 {here} 被注销，而使用它的请求尚未完成{on}")
            }
            (Wrong::KeyAfterDereg, Lang::En) => format!(
                "key {key} was used at {here}{on}; its region {memory} had been deregistered at {there}"
            ),
            (Wrong::KeyAfterDereg, Lang::Zh) => {
                format!("键 {key} 在 {here} 被使用{on}，而其区域 {memory} 已在 {there} 注销")
            }
            (Wrong::FreedRegistered, Lang::En) => {
                format!("{region} was freed at {here} while registered, {}", self.kept(lang))
            }
            (Wrong::FreedRegistered, Lang::Zh) => {
                format!("{region}在仍注册时于 {here} 被 free，{}", self.kept(lang))
            }
            (Wrong::UnmappedRegistered, Lang::En) => format!(
                "{region} was unmapped at {here} while registered, {}: a NIC goes on with the old pages",
                self.kept(lang)
            ),
            (Wrong::UnmappedRegistered, Lang::Zh) => {
                format!(
                    "{region}在仍注册时于 {here} 被 munmap，{}：网卡会继续使用旧页",
                    self.kept(lang)
                )
            }
            (Wrong::GoneInFlight, Lang::En) => format!(
                "memory {part} of {region} was freed or unmapped at {here} while work that names it was in flight{on}"
            ),
            (Wrong::GoneInFlight, Lang::Zh) => {
                format!("{region}中的 {part} 在 {here} 被释放或 munmap，而使用它的请求尚未完成{on}")
            }
            (Wrong::ReceivedTwice, Lang::En) => format!(
                "memory {part} of {region} was posted for receive at {here}{on} while an earlier receive into it was in flight"
            ),
            (Wrong::ReceivedTwice, Lang::Zh) => {
                format!(
                    "{region}中的 {part} 在 {here} 再次被投递用于接收{on}，而先前的接收尚未完成"
                )
            }
            (Wrong::Outside, Lang::En) => format!(
                "work posted at {here}{on} named {part} with key {key}: that reaches beyond region {memory}, registered at {there}"
            ),
            (Wrong::Outside, Lang::Zh) => {
                format!("在 {here} 投递的请求{on}以键 {key} 使用了 {part}，不在{region}之内")
            }
        };
        match (self.times, lang) {
            (0 | 1, _) => words,
            (times, Lang::En) => format!("{words}; {times} times"),
            (times, Lang::Zh) => format!("{words}；共 {times} 次"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;

    const ALL: [Wrong; 7] = [
        Wrong::DeregInFlight,
        Wrong::KeyAfterDereg,
        Wrong::FreedRegistered,
        Wrong::UnmappedRegistered,
        Wrong::GoneInFlight,
        Wrong::ReceivedTwice,
        Wrong::Outside,
    ];

    #[test]
    fn each_mistake_names_both_places_in_both_languages() {
        let mut builder = Builder::new();
        let (done, before) = (builder.place("g", 40), builder.place("f", 12));
        builder.region(0x4000, 65536, 0, 1, before);
        for wrong in ALL {
            builder.recording.findings.push(Finding {
                process: 1,
                wrong,
                region: Some(1),
                stack: done,
                before,
                times: 3,
                key: 0x77,
                addr: 0x4000,
                len: 65536,
                ..Finding::default()
            });
        }
        for lang in [Lang::En, Lang::Zh] {
            let told = all(&Ground::new(&builder.recording), lang);
            assert_eq!(told.len(), ALL.len());
            for one in told {
                for word in ["g main.c:40", "f main.c:12", "0x4000 (64 KiB)"] {
                    assert!(one.what.contains(word), "{}", one.what);
                }
            }
        }
    }

    #[test]
    fn where_nothing_was_recorded_before_the_region_tells_it() {
        let mut builder = Builder::new();
        let (register, end) = (builder.place("reg", 1), builder.place("end", 2));
        builder.region(0, 4096, 0, 1, register);
        builder.dereg(5, 1, end);
        for wrong in [Wrong::FreedRegistered, Wrong::KeyAfterDereg] {
            let finding = Finding { process: 9, wrong, region: Some(1), ..Finding::default() };
            builder.recording.findings.push(finding);
        }
        let told = all(&Ground::new(&builder.recording), Lang::En);
        let before: Vec<_> = told.iter().map(|one| one.before.at.as_str()).collect();
        assert_eq!(before, ["end main.c:2", "reg main.c:1"]);
        assert!(told[0].what.contains("a place that is not known"), "{}", told[0].what);
    }
}
