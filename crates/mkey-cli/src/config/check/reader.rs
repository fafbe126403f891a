//! Configurations of the vendors, line by line. Unknown lines say nothing; no line is an error.

use super::told::{Port, Told};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A line and the views or modes that it stands in, outermost first.
struct Placed<'a> {
    within: Vec<&'a str>,
    words: Vec<&'a str>,
}

impl Placed<'_> {
    /// What follows `view` in the innermost line that starts with it, as in `interface` `eth1`.
    fn within(&self, view: &str) -> Option<&str> {
        let found = self.within.iter().rev().find_map(|line| line.strip_prefix(view));
        found.map(str::trim)
    }

    /// Whether the line has these words at its beginning.
    fn is(&self, words: &[&str]) -> bool {
        self.words.get(..words.len()).is_some_and(|begin| begin == words)
    }

    /// The word at this place as a number.
    fn number(&self, at: usize) -> Option<u8> {
        self.words.get(at)?.parse().ok()
    }

    /// All numbers of the words from this place on: `24-31,48`, `24 to 31`, `3 5`.
    fn numbers(&self, from: usize) -> BTreeSet<u8> {
        let text = self.words.get(from..).unwrap_or_default().join(" ").replace(" to ", "-");
        numbers(&text)
    }
}

/// The numbers of a list with ranges.
fn numbers(text: &str) -> BTreeSet<u8> {
    let mut all = BTreeSet::new();
    for part in text.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u8>(), last.parse::<u8>()) {
            all.extend(first..=last);
        }
    }
    all
}

/// The lines of a configuration whose views are shown by indentation. Comments are left out.
fn placed(text: &str) -> impl Iterator<Item = Placed<'_>> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    text.lines().filter_map(move |line| {
        let line = line.trim_end();
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with(['#', '!']) {
            return None;
        }
        let indent = line.len() - trimmed.len();
        open.retain(|(outer, _)| *outer < indent);
        let within = open.iter().map(|(_, line)| *line).collect();
        open.push((indent, trimmed));
        Some(Placed { within, words: trimmed.split_whitespace().collect() })
    })
}

/// What is said for the port that a line stands in, or for all.
fn port<'t>(told: &'t mut Told, line: &Placed<'_>) -> &'t mut Port {
    match line.within("interface ") {
        Some(name) => told.ports.entry(name.to_owned()).or_default(),
        None => &mut told.everywhere,
    }
}

pub(super) fn comware(text: &str, told: &mut Told) {
    // Tables of WRED, by name: the queues with ECN.
    let mut tables: BTreeMap<String, BTreeSet<u8>> = BTreeMap::new();
    let mut applied: Vec<(Option<String>, String)> = Vec::new();
    for line in placed(text) {
        if line.is(&["import"]) && line.within("qos map-table dscp-dot1p").is_some() {
            let at = line.words.iter().position(|word| *word == "export");
            if let Some((at, to)) = at.and_then(|at| Some((at, line.number(at + 1)?))) {
                let from = line.words.get(1..at).unwrap_or_default().join(" ").replace(" to ", "-");
                told.dscp.extend(numbers(&from).into_iter().map(|dscp| (dscp, to)));
            }
        } else if line.is(&["priority-flow-control", "no-drop", "dot1p"]) {
            port(told, &line).pfc.extend(line.numbers(3));
        } else if line.is(&["priority-flow-control", "deadlock"]) {
            told.watchdog = true;
        } else if line.words == ["priority-flow-control", "enable"]
            || line.words == ["priority-flow-control", "auto"]
        {
            port(told, &line).pfc_on = true;
        } else if line.words == ["qos", "trust", "dscp"] {
            port(told, &line).trust_dscp = true;
        } else if line.is(&["qos", "wred", "queue"]) && line.words.get(4) == Some(&"ecn") {
            port(told, &line).ecn.extend(line.number(3));
        } else if line.is(&["queue"]) && line.words.get(2) == Some(&"ecn") {
            if let Some(table) = line.within("qos wred queue table ") {
                tables.entry(table.to_owned()).or_default().extend(line.number(1));
            }
        } else if line.is(&["qos", "wred", "apply"]) {
            let name = line.words.get(3).copied().unwrap_or_default().to_owned();
            applied.push((line.within("interface ").map(str::to_owned), name));
        } else if line.words == ["flow-control"] || line.is(&["flow-control", "receive", "enable"])
        {
            port(told, &line).pause = true;
        }
    }
    for (name, table) in applied {
        let queues = tables.get(&table).cloned().unwrap_or_default();
        match name {
            Some(name) => told.ports.entry(name).or_default().ecn.extend(queues),
            None => told.everywhere.ecn.extend(queues),
        }
    }
}

pub(super) fn vrp(text: &str, told: &mut Told) {
    for line in placed(text) {
        if line.is(&["priority"]) && line.within("dcb pfc").is_some() {
            if line.words.len() == 2 {
                told.everywhere.pfc.extend(line.number(1));
            } else if line.words.iter().any(|word| word.starts_with("deadlock")) {
                told.watchdog = true;
            }
        } else if line.is(&["ip-dscp-inbound"]) && line.words.get(2) == Some(&"phb") {
            let queue = line.words.get(3).and_then(|phb| queue_of(phb));
            told.dscp.extend(line.number(1).zip(queue));
        } else if line.is(&["dcb", "pfc", "enable"]) {
            port(told, &line).pfc_on = true;
        } else if line.is(&["dcb", "pfc", "deadlock"]) || line.is(&["port", "pfc-deadlock"]) {
            told.watchdog = true;
        } else if line.words == ["trust", "dscp"] {
            port(told, &line).trust_dscp = true;
        } else if line.is(&["qos", "queue"]) && line.words.get(3) == Some(&"ecn") {
            port(told, &line).ecn.extend(line.number(2));
        } else if line.words == ["flow-control"] {
            port(told, &line).pause = true;
        }
    }
}

/// The queue of a per-hop behaviour.
fn queue_of(phb: &str) -> Option<u8> {
    let names = ["be", "af1", "af2", "af3", "af4", "ef", "cs6", "cs7"];
    names.iter().position(|name| *name == phb).and_then(|at| u8::try_from(at).ok())
}

pub(super) fn nxos(text: &str, told: &mut Told) {
    let mut classes: BTreeMap<String, BTreeSet<u8>> = BTreeMap::new();
    let mut groups: Vec<(String, u8)> = Vec::new();
    for line in placed(text) {
        if line.is(&["match", "dscp"]) {
            if let Some(class) = line.within("class-map type qos ") {
                classes.entry(last_word(class)).or_default().extend(line.numbers(2));
            }
        } else if line.is(&["set", "qos-group"]) {
            let class = line.within("class ").map(last_word);
            groups.extend(class.zip(line.number(2)));
        } else if line.is(&["pause", "pfc-cos"]) {
            let group = line.within("class type network-qos c-8q-nq").and_then(|n| n.parse().ok());
            for cos in line.numbers(2) {
                told.everywhere.pfc.insert(cos);
                let group: Option<u8> = group;
                if let Some(group) = group.filter(|group| *group != cos) {
                    told.odd.push(format!("class c-8q-nq{group} pauses pfc-cos {cos}: qos-group, network-qos class and pfc-cos have to have one number"));
                }
            }
        } else if line.is(&["random-detect"]) && line.words.contains(&"ecn") {
            let queue = line.within("class type queuing c-out-8q-q").and_then(|n| n.parse().ok());
            let queue: Option<u8> = queue;
            told.everywhere.ecn.extend(queue);
        } else if line.is(&["priority-flow-control", "mode"]) {
            port(told, &line).pfc_on |= matches!(line.words.get(2), Some(&"on" | &"auto"));
        } else if line.is(&["priority-flow-control", "watch-dog-interval", "on"]) {
            told.watchdog = true;
        } else if line.is(&["service-policy", "type", "qos", "input"]) {
            port(told, &line).trust_dscp = true;
        } else if line.is(&["flowcontrol"]) && line.words.last() == Some(&"on") {
            port(told, &line).pause = true;
        }
    }
    for (class, group) in groups {
        let dscps = classes.get(&class).into_iter().flatten();
        told.dscp.extend(dscps.map(|dscp| (*dscp, group)));
    }
}

fn last_word(text: &str) -> String {
    text.split_whitespace().last().unwrap_or_default().to_owned()
}

pub(super) fn eos(text: &str, told: &mut Told) {
    for line in placed(text) {
        if line.is(&["qos", "map", "dscp"]) {
            let at = line.words.iter().position(|word| *word == "traffic-class");
            if let Some((at, class)) = at.and_then(|at| Some((at, line.number(at + 1)?))) {
                let dscps = line.words.get(3..at.saturating_sub(1)).unwrap_or_default().join(" ");
                told.dscp.extend(numbers(&dscps).into_iter().map(|dscp| (dscp, class)));
            }
        } else if line.words == ["qos", "trust", "dscp"] {
            port(told, &line).trust_dscp = true;
        } else if line.words == ["priority-flow-control", "on"]
            || line.words == ["priority-flow-control", "mode", "on"]
        {
            port(told, &line).pfc_on = true;
        } else if line.is(&["priority-flow-control", "priority"])
            && line.words.last() == Some(&"no-drop")
        {
            port(told, &line).pfc.extend(line.number(2));
        } else if line.is(&["priority-flow-control", "pause", "watchdog"]) {
            told.watchdog = true;
        } else if line.is(&["random-detect", "ecn"]) {
            let queue = line.within("tx-queue ").or_else(|| line.within("uc-tx-queue "));
            let queue: Option<u8> = queue.and_then(|n| n.parse().ok());
            port(told, &line).ecn.extend(queue);
        } else if line.is(&["flowcontrol"]) && line.words.last() == Some(&"on") {
            port(told, &line).pause = true;
        }
    }
}

pub(super) fn cumulus(text: &str, told: &mut Told) {
    for line in placed(text) {
        if line.is(&["nv", "set", "qos", "roce"]) {
            let mode = match line.words.get(4..) {
                Some(["mode", mode]) => Some(*mode),
                // Without a mode, and before a mode is named, it is the lossless one.
                Some([]) if told.profile.is_none() => Some("lossless"),
                _ => None,
            };
            told.profile = mode.map(str::to_owned).or(told.profile.take());
        } else if line.words.last() == Some(&"pfc-watchdog") {
            told.watchdog = true;
        }
    }
}

pub(super) fn onyx(text: &str, told: &mut Told) {
    for line in placed(text) {
        if line.is(&["roce"]) {
            let mode = line.words.get(1).copied().unwrap_or("lossless");
            told.profile = Some(mode.to_owned());
        } else if line.words == ["no", "roce"] {
            told.profile = None;
        } else if line.is(&["dcb", "priority-flow-control", "priority"])
            && line.words.get(4) == Some(&"enable")
        {
            told.everywhere.pfc.extend(line.number(3));
        } else if line.is(&["dcb", "priority-flow-control", "enable"]) {
            told.everywhere.pfc_on = true;
        }
    }
}

pub(super) fn sonic(text: &str, told: &mut Told) -> Result<(), String> {
    let db: Value = serde_json::from_str(text)
        .map_err(|error| format!("no config_db.json ({error}); sudo sonic-cfggen -d --print-data and /etc/sonic/config_db.json are ones"))?;
    let entries = |table: &str| db.get(table).and_then(Value::as_object).into_iter().flatten();
    for (_, map) in entries("DSCP_TO_TC_MAP") {
        for (dscp, class) in map.as_object().into_iter().flatten() {
            let class = class.as_str().and_then(|class| class.parse().ok());
            let class: Option<u8> = class.filter(|class| *class < 8);
            told.dscp.extend(dscp.parse::<u8>().ok().filter(|dscp| *dscp < 64).zip(class));
        }
    }
    for (name, fields) in entries("PORT_QOS_MAP") {
        let field = |name: &str| fields.get(name).and_then(Value::as_str);
        let port = told.ports.entry(name.clone()).or_default();
        if let Some(enabled) = field("pfc_enable") {
            port.pfc_on = true;
            port.pfc.extend(numbers(enabled));
        }
        port.trust_dscp = field("dscp_to_tc_map").is_some();
    }
    for (name, fields) in entries("QUEUE") {
        if fields.get("wred_profile").is_some()
            && let Some((ports, queues)) = name.split_once('|')
        {
            for port in ports.split(',') {
                told.ports.entry(port.to_owned()).or_default().ecn.extend(numbers(queues));
            }
        }
    }
    told.watchdog = entries("PFC_WD").next().is_some();
    Ok(())
}
