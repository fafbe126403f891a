//! An explanation, put together: what it is, why it happens in order of evidence, what mends it.

use super::evidence::{self, Asked, Verdict};
use super::find::Found;
use super::process::Process;
use super::texts::{Cause, Claim, Entry, Library};
use super::vendor;
use crate::lang::Lang;
use mkey_core::key::Key;
use serde::Serialize;

/// An explanation as programs read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The version of this form.
    pub schema: u32,
    /// The language of the texts.
    pub lang: Lang,
    /// What is assumed, where the question leaves it open, in words.
    pub assumed: Option<String>,
    /// What was explained, each.
    pub sections: Vec<Section>,
    /// The process that was looked at.
    pub process: Option<Process>,
}

/// One thing, explained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Its name in the texts; empty for what is worked out.
    pub id: String,
    /// What it is called.
    pub title: String,
    /// What it means.
    pub meaning: String,
    /// Where that was read.
    pub source: String,
    /// Why it happens, the likeliest first.
    pub causes: Vec<Ranked>,
    /// Claims about it that are false.
    pub corrections: Vec<Correction>,
}

/// A cause, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ranked {
    /// What it is.
    pub cause: String,
    /// How to tell it.
    pub tell: String,
    /// What mends it.
    pub mend: String,
    /// Where that was read.
    pub source: String,
    /// How it came out; nothing if no process was looked at.
    pub verdict: Option<Verdict>,
    /// What was seen.
    pub evidence: String,
}

/// A false claim and what is right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Correction {
    /// The claim.
    pub claim: String,
    /// What is right.
    pub right: String,
    /// How that is known.
    pub source: String,
}

/// What explanations are made of.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'a> {
    /// The texts.
    pub library: &'a Library,
    /// The language.
    pub lang: Lang,
    /// The process that was looked at, and what was asked about it.
    pub process: Option<(&'a Process, &'a Asked)>,
}

impl Maker<'_> {
    /// Explains everything that was found.
    pub fn report(&self, found: &[Found<'_>]) -> Report {
        let sections = found.iter().map(|one| self.section(one)).collect();
        let process = self.process.map(|(process, _)| process.clone());
        Report { schema: 1, lang: self.lang, assumed: None, sections, process }
    }

    /// Explains what the process alone shows of a registration: the causes that were found or may
    /// be, of every errno.
    pub fn what_stands_against(&self) -> Report {
        let entries: Vec<Found<'_>> =
            self.library.entries_of("errno/reg_mr/").map(Found::Entry).collect();
        let mut report = self.report(&entries);
        for section in &mut report.sections {
            section.corrections.clear();
            section
                .causes
                .retain(|cause| matches!(cause.verdict, Some(Verdict::Found | Verdict::Possible)));
        }
        report.sections.retain(|section| !section.causes.is_empty());
        // What was found before what may be.
        report
            .sections
            .sort_by_key(|section| section.causes.first().and_then(|cause| cause.verdict));
        report
    }

    /// Explains one thing.
    pub fn section(&self, found: &Found<'_>) -> Section {
        match found {
            Found::Entry(entry) => self.entry(entry),
            Found::Vendor(value) => self.vendor(*value),
            Found::Key(key) => self.key(*key),
            Found::Claim(claim) => Section {
                title: claim.names.first().cloned().unwrap_or_default(),
                corrections: vec![self.correction(claim)],
                ..Section::default()
            },
        }
    }

    fn entry(&self, entry: &Entry) -> Section {
        let mut causes = self.ranked(entry, None);
        if causes.is_empty() {
            let other = entry.see.as_ref().and_then(|id| self.library.entry(id));
            causes = other.map(|other| self.ranked(other, None)).unwrap_or_default();
        }
        let claims = entry.claims.iter().filter_map(|id| self.library.claim(id));
        Section {
            id: entry.id.clone(),
            title: title(entry),
            meaning: entry.meaning(self.lang).to_owned(),
            source: entry.source.clone(),
            causes,
            corrections: claims.map(|claim| self.correction(claim)).collect(),
        }
    }

    /// The causes of an entry; with a process or a vendor_err, those that were found first and those
    /// that are ruled out last, otherwise in the order of the texts.
    fn ranked(&self, entry: &Entry, vendor_err: Option<u8>) -> Vec<Ranked> {
        let mut ranked: Vec<Ranked> = Vec::new();
        for cause in &entry.causes {
            let [what, tell, mend] = cause.texts(self.lang).clone();
            let (verdict, evidence) = self.judge(cause, vendor_err);
            let source = cause.source.clone().unwrap_or_else(|| entry.source.clone());
            ranked.push(Ranked { cause: what, tell, mend, source, verdict, evidence });
        }
        ranked.sort_by_key(|cause| cause.verdict);
        ranked
    }

    /// What was seen of a cause; no verdict where there is nothing to look at.
    fn judge(&self, cause: &Cause, vendor_err: Option<u8>) -> (Option<Verdict>, String) {
        if let Some(value) = vendor_err
            && cause.vendor.contains(&value)
        {
            return (Some(Verdict::Found), format!("vendor_err {value:#04x}"));
        }
        let (verdict, evidence) = match (self.process, cause.check) {
            (Some((process, asked)), Some(check)) => {
                evidence::check(check, process, asked, self.lang)
            }
            (None, _) if vendor_err.is_none() => return (None, String::new()),
            _ => (Verdict::Open, String::new()),
        };
        (Some(verdict), evidence)
    }

    fn vendor(&self, value: u8) -> Section {
        let decoded = vendor::decode(self.library, value, self.lang);
        let (meaning, source) = decoded.unwrap_or_else(|| {
            let unknown = self.lang.pick("not known for mlx5", "mlx5 中未知");
            (unknown.to_owned(), String::new())
        });
        let other =
            self.lang.pick("Other vendors have numbers of their own.", "其他厂商有各自的编号。");
        let status = vendor::status_of(value);
        let status = status.and_then(|status| self.library.entry(&format!("status/{status}")));
        Section {
            title: format!("mlx5 vendor_err {value:#04x}"),
            meaning: match (status, self.lang) {
                (Some(status), Lang::En) => format!("{meaning} ({}). {other}", title(status)),
                (Some(status), Lang::Zh) => format!("{meaning}（{}）。{other}", title(status)),
                (None, Lang::En) => format!("{meaning}. {other}"),
                (None, Lang::Zh) => format!("{meaning}。{other}"),
            },
            source,
            causes: status.map(|status| self.ranked(status, Some(value))).unwrap_or_default(),
            ..Section::default()
        }
    }

    fn key(&self, key: Key) -> Section {
        let mut section = self.library.entry("key").map(|e| self.entry(e)).unwrap_or_default();
        let (index, variant, next) = (key.index(), key.variant(), key.next());
        section.title = format!("{} {key}", self.lang.pick("key", "键"));
        let said = match self.lang {
            Lang::En => format!(
                "index {index:#x}, variant {variant:#04x}; ibv_inc_rkey makes {next} of it. The bits do not say which NIC or PD it is of, whether it is an lkey or an rkey, an MR or a window, what rights and range it has, or whether it is valid now: that is in the NIC's table. On the host that owns it: rdma resource show mr, with CAP_NET_ADMIN for the keys."
            ),
            Lang::Zh => format!(
                "索引 {index:#x}，variant {variant:#04x}；ibv_inc_rkey 得到 {next}。这些位不说明属于哪块网卡或哪个 PD、是 lkey 还是 rkey、是 MR 还是窗口、有什么权限和范围、现在是否有效：这些都在网卡的表里。在拥有者的主机上看：rdma resource show mr（显示键需要 CAP_NET_ADMIN）。"
            ),
        };
        section.meaning = format!("{} {said}", section.meaning);
        section
    }

    fn correction(&self, claim: &Claim) -> Correction {
        let [false_claim, right] = claim.texts(self.lang).clone();
        Correction { claim: false_claim, right, source: claim.source.clone() }
    }
}

/// What an entry is called.
pub fn title(entry: &Entry) -> String {
    let name = entry.names.first().map(String::as_str).unwrap_or_default();
    let mut parts = entry.id.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("status"), Some(number), None) => format!("{name}, status {number}"),
        (Some("event"), Some(number), None) => format!("{name}, event {number}"),
        (Some("errno"), Some("reg_mr"), Some(errno)) => {
            format!("ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_dmabuf_mr, ibv_rereg_mr: {errno}")
        }
        (Some("errno"), Some("any"), Some(errno)) => errno.to_owned(),
        (Some("errno"), Some(verb), Some(errno)) => format!("ibv_{verb}: {errno}"),
        (Some("code"), Some(number), None) => format!("MK{number:0>4}"),
        (Some("counter"), Some(about), None) => {
            format!("counters of {}: {}", about.replace('-', " "), entry.names.join(", "))
        }
        (Some("firmware"), Some(status), None) => format!("mlx5 firmware: {status}"),
        (Some("syndrome"), Some(value), None) => format!("mlx5 syndrome {value}"),
        _ => entry.id.clone(),
    }
}
