//! Whether all the words of a question are known, and what is assumed where it leaves something out.

use super::errno;
use super::find::{self, by_kind, by_name, number};
use super::texts::Library;
use crate::lang::Lang;

/// More words than these are a line of a log, which may say anything besides.
const MOST_NAMES: usize = 3;
/// How alike two words are, of 1, for one to be meant by the other.
const ALIKE: f64 = 0.6;

/// The first word that nobody knows, where each has to be: among a few names all, in a line of a log what
/// stands in the place of a verb, an errno or a status.
pub fn stray(library: &Library, words: &[String]) -> Option<String> {
    let text = words.join(" ");
    let text = text.trim();
    if by_kind(library, text).is_some()
        || errno::magnitude(text).is_some()
        || by_name(library, text).is_some()
    {
        return None;
    }
    if let Some(status) = find::unknown_status(library, text) {
        return Some(format!("status {status}"));
    }
    if find::errno_of(text).is_none()
        && let Some(number) = errno::number_behind_verb(text)
    {
        return Some(number);
    }
    let tokens: Vec<&str> = tokens(text).collect();
    let is_line = tokens.len() > MOST_NAMES
        || words.iter().any(|word| word.trim().contains(' '))
        || errno::by_number(text).is_some();
    let unknown = |token: &&&str| match is_line {
        true => is_misspelt(text, token),
        false => !is_known(library, text, token),
    };
    tokens.iter().find(unknown).map(|token| (*token).to_owned())
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && !"_.-".contains(c))
        .map(|token| token.trim_matches(['.', '-']))
        .filter(|token| !token.is_empty())
}

/// Whether a word of a line stands where a verb or an errno would, and is none, and no other is there.
fn is_misspelt(text: &str, token: &str) -> bool {
    let (verb, errno) = (errno::verb_in_text(text), errno::in_text(text));
    let verb_like = token.trim_start_matches('_').starts_with("ibv_");
    let errno_like = token.starts_with('E') && token.chars().all(|c| c.is_ascii_uppercase());
    (verb.is_none() && errno.is_some() && verb_like)
        || (errno.is_none()
            && verb.is_some()
            && errno_like
            && alike(errno::names(), token).is_some())
}

fn is_known(library: &Library, text: &str, token: &str) -> bool {
    let one = [token.to_owned()];
    let within = |known: &str| {
        let known = known.to_lowercase();
        text.to_lowercase().contains(&known) && known.contains(&token.to_lowercase())
    };
    let number = number(token).and_then(errno::name_of);
    let verb = errno::verb_in_text(text);
    !find::find(library, &one).is_empty() && (find::number(token).is_none() || number.is_some())
        || verb.is_some() && number.is_some()
        || token.eq_ignore_ascii_case("errno")
        || errno::phrases().any(within)
        || library.entries.iter().flat_map(|entry| &entry.signs).any(|sign| within(sign))
        || library.claims.iter().flat_map(|claim| &claim.names).any(|name| within(name))
}

/// The name that a word is most like.
pub fn nearest(library: &Library, word: &str) -> Option<String> {
    let verbs = errno::verbs().map(|verb| format!("ibv_{verb}"));
    let names = library.entries.iter().flat_map(|entry| entry.names.clone());
    let claims = library.claims.iter().flat_map(|claim| claim.names.clone());
    let errnos = errno::names().map(str::to_owned);
    alike(errnos.chain(verbs).chain(names).chain(claims), word)
}

fn alike<S: AsRef<str>>(names: impl Iterator<Item = S>, word: &str) -> Option<S> {
    let word = word.to_lowercase();
    let alike =
        |name: &S| strsim::normalized_damerau_levenshtein(&name.as_ref().to_lowercase(), &word);
    let scored = names.map(|name| (alike(&name), name)).filter(|(score, _)| *score >= ALIKE);
    // Of names that are as like, the first.
    let best = scored.reduce(|best, other| if other.0 > best.0 { other } else { best });
    best.map(|(_, name)| name)
}

/// What is assumed, in words, where a question leaves it open which verb or which kind of number it is
/// about.
pub fn assumed(library: &Library, words: &[String], lang: Lang) -> Option<String> {
    let text = words.join(" ");
    let text = text.trim();
    if let Some(value) = errno::magnitude(text) {
        let errno = errno::name_of(value)?;
        let of_verb = find::by_errno(library, Some("reg_mr"), Some(errno));
        if of_verb.is_empty() {
            return None;
        }
        let negative = text.starts_with('-');
        let status = !negative && library.entry(&format!("status/{value}")).is_some();
        let value = text;
        return Some(match (status, lang) {
            (true, Lang::En) => format!(
                "{value} is taken for completion status {value}, and for errno {errno} of ibv_reg_mr."
            ),
            (false, Lang::En) => format!("{value} is taken for errno {errno} of ibv_reg_mr."),
            (true, Lang::Zh) => {
                format!("{value} 按完成状态 {value} 解释，也按 ibv_reg_mr 的 errno {errno} 解释。")
            }
            (false, Lang::Zh) => format!("{value} 按 ibv_reg_mr 的 errno {errno} 解释。"),
        });
    }
    let errno = match text.split_once([' ', '=', ':']) {
        Some((kind, rest)) if kind.eq_ignore_ascii_case("errno") => {
            errno::magnitude(rest.trim()).and_then(errno::name_of)
        }
        _ => None,
    };
    let errno = errno.or_else(|| find::errno_of(text))?;
    if library.entry(&format!("errno/any/{errno}")).is_some() {
        return None;
    }
    let of_errno = find::by_errno(library, None, Some(errno));
    if errno::verb_in_text(text).is_some() || find::find(library, words) != of_errno {
        return None;
    }
    Some(match lang {
        Lang::En => format!(
            "No verb is named: {errno} is explained for each verb that is known here to give it."
        ),
        Lang::Zh => format!("没有指明 verb：下面对这里已知会返回 {errno} 的每个 verb 分别解释。"),
    })
}

/// What a kind of number is to be like, where the question begins with the kind and the number is none.
pub fn wanted(library: &Library, words: &[String], lang: Lang) -> Option<String> {
    let text = words.join(" ");
    let text = text.trim();
    let kind = text.split([' ', '=', ':']).next().unwrap_or_default().to_ascii_lowercase();
    let most = |kind: &str| {
        let ids = library.entries_of(kind).filter_map(|entry| entry.id.rsplit('/').next());
        ids.filter_map(number).max().unwrap_or(0)
    };
    let told = |kind: &str, en: &str, zh: &str, number: &str| match lang {
        Lang::En => format!("{kind}: {en} {kind} {number}"),
        Lang::Zh => format!("{kind}：{zh} {kind} {number}"),
    };
    Some(match kind.as_str() {
        "key" | "rkey" | "lkey" | "mkey" => told(
            &kind,
            "a number of at most 32 bits, please, as in",
            "请给最多 32 位的数，如",
            "0x2be",
        ),
        "vendor" | "vendor_err" | "vend" | "syndrom" => told(
            &kind,
            "a number of at most 8 bits, please, as in",
            "请给最多 8 位的数，如",
            "0x51",
        ),
        "status" | "event" => {
            let most = most(&format!("{kind}/"));
            match lang {
                Lang::En => format!("{kind}: a number from 0 to {most}, please"),
                Lang::Zh => format!("{kind}：请给 0 到 {most} 的数"),
            }
        }
        "errno" => told(
            &kind,
            "the number of an errno that verbs give, please, as in",
            "请给 verbs 返回的 errno 编号，如",
            "12",
        ),
        "syndrome" => lang
            .pick(
                "syndrome: a number that is known of mlx5's firmware, please",
                "syndrome：请给已知的 mlx5 固件编号",
            )
            .to_owned(),
        _ if find::looks_like_code(text) => {
            let most = most("code/");
            match lang {
                Lang::En => format!("{text}: the codes of mkey are MK0001 to MK{most:04}"),
                Lang::Zh => format!("{text}：mkey 的编号为 MK0001 到 MK{most:04}"),
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_word_that_nobody_knows_is_not_passed_over() {
        let library = Library::load().unwrap();
        for (text, expected) in [
            ("ibv_reg_mr FOO", Some("FOO")),
            ("ibv_foo ENOMEM", Some("ibv_foo")),
            ("ibv_reg_mr ENOMEN", Some("ENOMEN")),
            ("IBV_WC_REM_ACCESS_ERR FOO", Some("FOO")),
            ("ODP_SUPPORT x", Some("x")),
            ("ibv_reg_mr 77", Some("77")),
            ("Failed status 99: wr_id 0 syndrom 0x99", Some("status 99")),
            ("ibv_reg_mr ENOMEM", None),
            ("ENOMEM ibv_reg_dmabuf_mr", None),
            ("reg_mr 524", None),
            ("ibv_reg_mr returned -12", None),
            ("ibv_reg_mr -14", None),
            ("ibv_reg_mr returned -1", Some("-1")),
            ("ibv_reg_mr errno 12", None),
            ("ibv_reg_mr: Cannot allocate memory", None),
            ("Cannot allocate memory", None),
            ("Bad address", None),
            ("Failed status 4: wr_id 0 syndrom 0x51", None),
            ("remote access error", None),
            ("rem_access_err", None),
            ("MPT exhaustion", None),
            ("vm.max_map_count", None),
            ("185 us", None),
            ("vendor 0x51", None),
            ("12", None),
        ] {
            assert_eq!(stray(&library, &words(text)).as_deref(), expected, "{text}");
        }
        // A line of a log, as one argument.
        for (line, expected) in [
            ("ERROR: ibv_reg_mr failed with ENOMEM in server.c", None),
            ("server: ibv_foo failed: ENOMEM", Some("ibv_foo")),
            ("server: ibv_reg_mr failed: ENOMEN", Some("ENOMEN")),
        ] {
            assert_eq!(stray(&library, &[line.to_owned()]).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn the_nearest_name_is_offered() {
        let library = Library::load().unwrap();
        for (word, expected) in [
            ("ENOMEN", Some("ENOMEM")),
            ("ibv_regmr", Some("ibv_reg_mr")),
            ("IBV_WC_REM_ACESS_ERR", Some("IBV_WC_REM_ACCESS_ERR")),
            ("xyzzy", None),
        ] {
            assert_eq!(nearest(&library, word).as_deref(), expected, "{word}");
        }
    }

    #[test]
    fn what_is_assumed_is_said() {
        let library = Library::load().unwrap();
        for lang in [Lang::En, Lang::Zh] {
            for (text, part) in [
                ("ENOMEM", Some("verb")),
                ("errno 14", Some("EFAULT")),
                ("12", Some("ENOMEM")),
                ("524", Some("ENOTSUPP")),
                ("10", None),
                ("ibv_reg_mr ENOMEM", None),
                ("ibv_reg_mr", None),
                ("vendor 0x51", None),
            ] {
                let said = assumed(&library, &words(text), lang);
                assert_eq!(said.is_some(), part.is_some(), "{text}: {said:?}");
                assert!(said.unwrap_or_default().contains(part.unwrap_or_default()), "{text}");
            }
        }
    }

    #[test]
    fn numbers_that_are_none_are_told_what_they_are_to_be() {
        let library = Library::load().unwrap();
        for (text, part) in [
            ("key 0xfffffffff", "32 bits"),
            ("key", "32 bits"),
            ("vendor", "8 bits"),
            ("vendor 0xffff", "8 bits"),
            ("status 99", "from 0 to 2"),
            ("MK9999", "MK0001 to MK00"),
        ] {
            assert!(find::find(&library, &words(text)).is_empty(), "{text}");
            assert!(wanted(&library, &words(text), Lang::En).unwrap().contains(part), "{text}");
        }
        assert_eq!(wanted(&library, &words("nonsense"), Lang::En), None);
    }
}
