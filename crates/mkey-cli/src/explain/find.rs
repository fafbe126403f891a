//! What somebody asks about: words on the command line, or a line of a log.

use super::errno;
use super::texts::{Claim, Entry, Library};
use mkey_core::key::Key;

/// Something that can be explained.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<'l> {
    /// By an entry of the texts.
    Entry(&'l Entry),
    /// A vendor_err of mlx5.
    Vendor(u8),
    /// A key.
    Key(Key),
    /// A claim that is false.
    Claim(&'l Claim),
}

/// What words ask about; nothing if nobody knows them.
pub fn find<'l>(library: &'l Library, words: &[String]) -> Vec<Found<'l>> {
    let text = words.join(" ");
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    if let Some(found) = by_kind(library, text) {
        return found;
    }
    if let Some(number) = number(text) {
        return by_number(library, number);
    }
    if let Some(name) = errno::magnitude(text).and_then(errno::name_of) {
        // A negative number is an errno, as the kernel has it.
        let of_verb = by_errno(library, Some("reg_mr"), Some(name));
        return if of_verb.is_empty() { by_errno(library, None, Some(name)) } else { of_verb };
    }
    let (verb, errno) = (errno::verb_in_text(text), errno_of(text));
    if verb.is_some() || errno.is_some() {
        let found = by_errno(library, verb, errno);
        if !found.is_empty() {
            return found;
        }
    }
    if let Some(entry) = by_name(library, text) {
        return vec![Found::Entry(entry)];
    }
    let found = line(library, text);
    if !found.is_empty() {
        return found;
    }
    by_claim(library, text)
}

/// The errno that a text names, or gives by its number.
pub fn errno_of(text: &str) -> Option<&'static str> {
    let by_number = || match errno::verb_in_text(text) {
        Some(_) => number_beside(text).or_else(|| errno::by_number(text)),
        None => errno::called_by_number(text),
    };
    errno::in_text(text).or_else(by_number)
}

/// The errno whose number stands beside the name of a verb, and nothing else.
fn number_beside(text: &str) -> Option<&'static str> {
    let (one, other) = text.split_once(' ')?;
    let value = errno::magnitude(other.trim()).or_else(|| errno::magnitude(one))?;
    errno::name_of(value)
}

/// The number of a completion status that a line names, if there is none of that number.
pub fn unknown_status(library: &Library, text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let status = status_in(&lower, vendor_in(&lower).is_some())?;
    library.entry(&format!("status/{status}")).is_none().then_some(status)
}

/// Whether a text is `MK` and a number.
pub fn looks_like_code(text: &str) -> bool {
    short_code(text).is_some()
}

/// `vendor 0x51`, `key 0x2be`, `status 4`, `event 3`.
pub fn by_kind<'l>(library: &'l Library, text: &str) -> Option<Vec<Found<'l>>> {
    let (kind, rest) = text.split_once([' ', '=', ':'])?;
    let value = number(rest.trim());
    match kind.to_ascii_lowercase().as_str() {
        "vendor" | "vendor_err" | "vend" | "syndrom" => {
            Some(vec![Found::Vendor(u8::try_from(value?).ok()?)])
        }
        "key" | "rkey" | "lkey" | "mkey" => {
            Some(vec![Found::Key(Key(u32::try_from(value?).ok()?))])
        }
        "status" => Some(entries(library, &format!("status/{}", value?))),
        "event" => Some(entries(library, &format!("event/{}", value?))),
        "errno" => Some(by_errno(library, None, errno::name_of(errno::magnitude(rest.trim())?))),
        "syndrome" => Some(entries(library, &format!("syndrome/{:#x}", value?))),
        _ => None,
    }
}

fn entries<'l>(library: &'l Library, id: &str) -> Vec<Found<'l>> {
    library.entry(id).map(Found::Entry).into_iter().collect()
}

/// A number alone is a completion status; it may be an errno, too.
fn by_number(library: &Library, number: u64) -> Vec<Found<'_>> {
    let mut found = entries(library, &format!("status/{number}"));
    let errno = errno::name_of(number);
    found.extend(errno.iter().flat_map(|errno| by_errno(library, Some("reg_mr"), Some(errno))));
    found
}

/// The entries of a verb and an errno; with one of the two alone, all that have it.
pub fn by_errno<'l>(
    library: &'l Library,
    verb: Option<&str>,
    errno: Option<&str>,
) -> Vec<Found<'l>> {
    if verb.is_none() && errno.is_none() {
        return Vec::new();
    }
    let wanted = |id: &str| {
        let mut parts = id.split('/');
        parts.next() == Some("errno")
            && verb.is_none_or(|verb| parts.next() == Some(verb))
            && errno.is_none_or(|errno| id.rsplit('/').next() == Some(errno))
    };
    let entries = library.entries.iter();
    entries
        .filter(|entry| wanted(&entry.id) || entry.names.iter().any(|name| wanted(name)))
        .map(Found::Entry)
        .collect()
}

/// The entry that has this name, or this code.
pub fn by_name<'l>(library: &'l Library, text: &str) -> Option<&'l Entry> {
    if let Some(code) = short_code(text) {
        return library.entry(&format!("code/{code}"));
    }
    let any_priority = any_priority(text);
    let same = |name: &String| {
        name.eq_ignore_ascii_case(text)
            || any_priority.as_ref().is_some_and(|text| name.eq_ignore_ascii_case(text))
            || name.strip_prefix("IBV_EVENT_").is_some_and(|name| name.eq_ignore_ascii_case(text))
    };
    library.entries.iter().find(|entry| entry.names.iter().any(same))
}

/// The counter of a priority with N for its number, as the texts have it: `rx_prioN_pause` for
/// `rx_prio3_pause`.
fn any_priority(text: &str) -> Option<String> {
    ["prio", "pri", "priority_"].iter().find_map(|word| {
        let (before, rest) = text.split_once(word)?;
        let rest = rest.strip_prefix(|c: char| ('0'..='7').contains(&c))?;
        Some(format!("{before}{word}N{rest}"))
    })
}

/// `MK0012` as 12.
fn code(word: &str) -> Option<u16> {
    let digits = word.strip_prefix("MK").or_else(|| word.strip_prefix("mk"))?;
    (digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// The same with fewer digits, where it stands alone.
fn short_code(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("MK").or_else(|| text.strip_prefix("mk"))?;
    let all = digits.bytes().all(|b| b.is_ascii_digit());
    (all && digits.len() <= 4).then(|| digits.parse().ok())?
}

fn by_claim<'l>(library: &'l Library, text: &str) -> Vec<Found<'l>> {
    let lower = text.to_ascii_lowercase();
    let names = |claim: &&Claim| {
        let mut names = claim.names.iter().map(|name| name.to_ascii_lowercase());
        names.any(|name| contains_word(&lower, &name))
    };
    library.claims.iter().filter(names).map(Found::Claim).collect()
}

/// What a line of a log names, each once.
pub fn line<'l>(library: &'l Library, text: &str) -> Vec<Found<'l>> {
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<Found<'l>> = Vec::new();
    let mut put = |one: Option<Found<'l>>| {
        if let Some(one) = one
            && !found.contains(&one)
        {
            found.push(one);
        }
    };
    for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let known =
            word.starts_with("IBV_WC_") || word.starts_with("IBV_EVENT_") || code(word).is_some();
        put(known.then(|| by_name(library, word)).flatten().map(Found::Entry));
    }
    // perftest, NCCL and others: a status by its number, with the vendor's own beside it.
    let vendor = vendor_in(&lower);
    let status = status_in(&lower, vendor.is_some());
    put(status.and_then(|status| library.entry(&format!("status/{status}"))).map(Found::Entry));
    for entry in &library.entries {
        let sign = entry.signs.iter().any(|sign| lower.contains(sign.as_str()));
        put(sign.then_some(Found::Entry(entry)));
    }
    put(vendor.map(Found::Vendor));
    if lower.contains("mlx5_cmd") || (lower.contains("failed, status ") && lower.contains("op_mod"))
    {
        let name = lower.split_once("status ").and_then(|(_, rest)| rest.split_once("(0x"));
        let entry = name.and_then(|(name, _)| {
            library
                .entries_of("firmware/")
                .find(|entry| entry.names.iter().any(|known| known.eq_ignore_ascii_case(name)))
        });
        put(entry.map(Found::Entry));
        let syndrome = number_after(&lower, "syndrome");
        let entry = syndrome.and_then(|value| library.entry(&format!("syndrome/{value:#x}")));
        put(entry.map(Found::Entry));
    } else if let Some(verb) = errno::verb_in_text(text)
        && let Some(errno) = errno::in_text(text).or_else(|| errno::by_number(text))
    {
        by_errno(library, Some(verb), Some(errno)).into_iter().for_each(|one| put(Some(one)));
    }
    found
}

fn vendor_in(lower: &str) -> Option<u8> {
    let markers = ["syndrom ", "vendor_err", "vendor err", "vendor error", "vendor_error", "vend "];
    let value = markers.iter().find_map(|marker| number_after(lower, marker));
    value.and_then(|value| u8::try_from(value).ok())
}

fn status_in(lower: &str, with_vendor: bool) -> Option<u64> {
    let markers = ["failed status", "completion status", "wc status", "status="];
    let status = markers.iter().find_map(|marker| number_after(lower, marker));
    // "status=12" alone may be of anything.
    status.filter(|_| with_vendor || lower.contains("failed status") || lower.contains("wc status"))
}

/// The number that follows a marker, with at most punctuation between.
fn number_after(text: &str, marker: &str) -> Option<u64> {
    let (_, rest) = text.split_once(marker)?;
    let rest = rest.trim_start_matches([' ', '=', ':', '(', ',', '"', '\'']);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    number(rest.get(..end)?)
}

/// A number in decimal, or in hexadecimal with `0x`.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Whether `text` has `word` with nothing joined to either end.
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let joined = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|text| text.chars().next());
        !joined(before) && !joined(after)
    })
}

/// Names that have something of what was asked for, to be offered instead; at most eight.
pub fn similar(library: &Library, words: &[String]) -> Vec<String> {
    let text = words.join(" ").to_ascii_lowercase();
    let parts: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| part.len() > 2 && *part != "ibv")
        .collect();
    let names = library.entries.iter().flat_map(|entry| entry.names.first()).cloned();
    let names = names.chain(library.claims.iter().flat_map(|claim| claim.names.first()).cloned());
    let score = |name: &String| {
        let name = name.to_ascii_lowercase();
        parts.iter().filter(|part| name.contains(**part)).count()
    };
    let mut names: Vec<String> = names.filter(|name| score(name) > 0).collect();
    names.sort_by_key(|name| std::cmp::Reverse(score(name)));
    names.truncate(8);
    names
}

#[cfg(test)]
mod tests;
