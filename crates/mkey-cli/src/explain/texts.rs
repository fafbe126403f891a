//! The texts, read from the files in `texts/`: what each thing means, why it happens, what mends it,
//! in two languages, each with its source.

use super::evidence::Check;
use crate::exit::End;
use crate::lang::Lang;
use serde::Deserialize;

/// The files.
const FILES: [(&str, &str); 8] = [
    ("status.toml", include_str!("texts/status.toml")),
    ("event.toml", include_str!("texts/event.toml")),
    ("errno.toml", include_str!("texts/errno.toml")),
    ("vendor.toml", include_str!("texts/vendor.toml")),
    ("firmware.toml", include_str!("texts/firmware.toml")),
    ("counter.toml", include_str!("texts/counter.toml")),
    ("code.toml", include_str!("texts/code.toml")),
    ("claim.toml", include_str!("texts/claim.toml")),
];

/// All texts.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// What can be explained.
    pub entries: Vec<Entry>,
    /// Claims that are copied widely and false.
    pub claims: Vec<Claim>,
}

/// One thing that can be explained.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its kind and key, as in `status/4` or `errno/reg_mr/EINVAL`.
    pub id: String,
    /// What else it is looked up by.
    #[serde(default)]
    pub names: Vec<String>,
    /// What a line of a log is known by, in lower case.
    #[serde(default)]
    pub signs: Vec<String>,
    /// False claims that belong to it, by their `id`.
    #[serde(default)]
    pub claims: Vec<String>,
    /// The entry that has the causes.
    pub see: Option<String>,
    /// What it means.
    pub en: String,
    /// The same in Chinese.
    pub zh: String,
    /// Where it was read.
    pub source: String,
    /// Why it happens, the likeliest or the first to be checked first.
    #[serde(default, rename = "cause")]
    pub causes: Vec<Cause>,
}

/// Why something happens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// What a look at the process can decide.
    pub check: Option<Check>,
    /// The values of mlx5's vendor_err that say that it is this one.
    #[serde(default)]
    pub vendor: Vec<u8>,
    /// What it is, how to tell it, what mends it.
    pub en: [String; 3],
    /// The same in Chinese.
    pub zh: [String; 3],
    /// Where it was read, if not where the entry was.
    pub source: Option<String>,
}

/// A claim that is copied widely and false.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name for entries.
    pub id: String,
    /// Words that it is looked up by.
    pub names: Vec<String>,
    /// The claim, and what is right.
    pub en: [String; 2],
    /// The same in Chinese.
    pub zh: [String; 2],
    /// How that is known.
    pub source: String,
}

/// What a file may hold.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "entry")]
    entries: Vec<Entry>,
    #[serde(default, rename = "claim")]
    claims: Vec<Claim>,
}

impl Library {
    /// Reads the files.
    ///
    /// # Errors
    /// [`End::Failed`] if one is damaged, which the tests rule out.
    pub fn load() -> Result<Self, End> {
        let mut library = Self::default();
        for (name, text) in FILES {
            let file: File =
                toml::from_str(text).map_err(|error| End::Failed(format!("{name}: {error}")))?;
            library.entries.extend(file.entries);
            library.claims.extend(file.claims);
        }
        Ok(library)
    }

    /// The entry with this id.
    pub fn entry(&self, id: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// The entries whose ids begin so.
    pub fn entries_of<'l>(&'l self, begin: &str) -> impl Iterator<Item = &'l Entry> {
        self.entries.iter().filter(move |entry| entry.id.starts_with(begin))
    }

    /// The claim with this id.
    pub fn claim(&self, id: &str) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.id == id)
    }
}

impl Entry {
    /// What it means.
    pub fn meaning(&self, lang: Lang) -> &str {
        lang.pick(&self.en, &self.zh)
    }
}

impl Cause {
    /// What it is, how to tell it, what mends it.
    pub fn texts(&self, lang: Lang) -> &[String; 3] {
        match lang {
            Lang::En => &self.en,
            Lang::Zh => &self.zh,
        }
    }
}

impl Claim {
    /// The claim, and what is right.
    pub fn texts(&self, lang: Lang) -> &[String; 2] {
        match lang {
            Lang::En => &self.en,
            Lang::Zh => &self.zh,
        }
    }
}

#[cfg(test)]
mod tests;
