//! Names of errno and of verbs, as people and programs write them.

use super::find::number;

/// Name, number on Linux, the C library's text.
const ERRNOS: [(&str, u64, &str); 17] = [
    ("EPERM", 1, "Operation not permitted"),
    ("ENOENT", 2, "No such file or directory"),
    ("EIO", 5, "Input/output error"),
    ("EBADF", 9, "Bad file descriptor"),
    ("EAGAIN", 11, "Resource temporarily unavailable"),
    ("ENOMEM", 12, "Cannot allocate memory"),
    ("EACCES", 13, "Permission denied"),
    ("EFAULT", 14, "Bad address"),
    ("EBUSY", 16, "Device or resource busy"),
    ("ENODEV", 19, "No such device"),
    ("EINVAL", 22, "Invalid argument"),
    ("ENOSPC", 28, "No space left on device"),
    ("ENOSYS", 38, "Function not implemented"),
    ("EOVERFLOW", 75, "Value too large for defined data type"),
    ("EOPNOTSUPP", 95, "Operation not supported"),
    ("ETIMEDOUT", 110, "Connection timed out"),
    ("ENOTSUPP", 524, "Unknown error 524"),
];

/// Verbs as they are called, and the one that they are explained with.
const VERBS: [(&str, &str); 18] = [
    ("reg_mr", "reg_mr"),
    ("reg_mr_iova", "reg_mr"),
    ("reg_mr_iova2", "reg_mr"),
    ("reg_mr_ex", "reg_mr"),
    ("reg_dmabuf_mr", "reg_mr"),
    ("rereg_mr", "reg_mr"),
    ("alloc_mw", "alloc_mw"),
    ("bind_mw", "bind_mw"),
    ("dereg_mr", "dereg_mr"),
    ("dealloc_pd", "dealloc_pd"),
    ("advise_mr", "advise_mr"),
    ("create_qp", "create_qp"),
    ("create_qp_ex", "create_qp"),
    ("create_cq", "create_cq"),
    ("create_cq_ex", "create_cq"),
    ("create_srq", "create_cq"),
    ("create_srq_ex", "create_cq"),
    ("fork_init", "fork_init"),
];

/// The names of errno.
pub fn names() -> impl Iterator<Item = &'static str> {
    ERRNOS.iter().map(|(name, ..)| *name)
}

/// The C library's texts.
pub fn phrases() -> impl Iterator<Item = &'static str> {
    ERRNOS.iter().map(|(.., words)| *words)
}

/// The names of verbs, without `ibv_`.
pub fn verbs() -> impl Iterator<Item = &'static str> {
    VERBS.iter().map(|(name, _)| *name)
}

/// The name of an errno with this number.
pub fn name_of(number: u64) -> Option<&'static str> {
    ERRNOS.iter().find(|(_, n, _)| *n == number).map(|(name, ..)| *name)
}

/// An error of the system as it is told in any language: by the name of its errno.
pub fn shown(error: &std::io::Error) -> String {
    let Some(number) = error.raw_os_error() else { return error.to_string() };
    match u64::try_from(number).ok().and_then(name_of) {
        Some(name) => name.to_owned(),
        None => format!("errno {number}"),
    }
}

/// The errno that a text names, by its name or the C library's words.
pub fn in_text(text: &str) -> Option<&'static str> {
    let upper = text.to_ascii_uppercase();
    let mut words = upper.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let by_name = words.find_map(|word| match word {
        "ENOTSUP" => Some("EOPNOTSUPP"),
        "EWOULDBLOCK" => Some("EAGAIN"),
        word => ERRNOS.iter().find(|(name, ..)| *name == word).map(|(name, ..)| *name),
    });
    by_name.or_else(|| {
        let lower = text.to_ascii_lowercase();
        let found = ERRNOS.iter().find(|(.., words)| lower.contains(&words.to_ascii_lowercase()));
        found.map(|(name, ..)| *name)
    })
}

/// What stands before the number of an errno, and of nothing else.
const STRONG: [&str; 2] = ["errno", "err"];
/// What may stand before one.
const WEAK: [&str; 16] = [
    "error", "code", "ret", "retval", "rc", "rv", "res", "result", "return", "returns", "returned",
    "failed", "fails", "failure", "got", "gave",
];
/// What may stand between.
const BETWEEN: [&str; 6] = ["with", "is", "was", "of", "number", "value"];
/// What may come after a number that counts nothing.
const AFTER: [&str; 11] =
    ["in", "at", "on", "from", "for", "while", "when", "after", "during", "to", "and"];

/// The errno that a text gives by its number, as in `errno=14`, `returned -12` and `failed: 14`.
pub fn by_number(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let tokens = tokens(&lower);
    called(&tokens).or_else(|| (0..tokens.len()).find_map(|at| returned(&tokens, at)))
}

/// The same, only where the number is called an errno.
pub fn called_by_number(text: &str) -> Option<&'static str> {
    called(&tokens(&text.to_ascii_lowercase()))
}

/// A number in decimal or hexadecimal, without its sign.
pub fn magnitude(text: &str) -> Option<u64> {
    number(text.strip_prefix('-').unwrap_or(text))
}

/// A number behind the name of a verb that is neither what the verb was called with nor a part of a name
/// (`server.c:120`).
pub fn number_behind_verb(text: &str) -> Option<String> {
    let tokens = tokens(text);
    let from = tokens.iter().position(|token| verb_in_text(token.text).is_some())?;
    let stands = |at: usize| -> Option<&str> {
        let token = tokens.get(at)?;
        let told = marker(&tokens, at).is_some_and(|word| {
            let word = word.to_ascii_lowercase();
            STRONG.contains(&word.as_str()) || WEAK.contains(&word.as_str())
        });
        (magnitude(token.text).is_some() && (told || !token.joined)).then_some(token.text)
    };
    (from..tokens.len()).find_map(stands).map(str::to_owned)
}

fn called(tokens: &[Token<'_>]) -> Option<&'static str> {
    (0..tokens.len()).find_map(|at| {
        let value = magnitude(tokens.get(at)?.text)?;
        STRONG.contains(&marker(tokens, at)?).then(|| name_of(value))?
    })
}

/// The errno that the number at this place says that something returned.
fn returned(tokens: &[Token<'_>], at: usize) -> Option<&'static str> {
    let text = tokens.get(at)?.text;
    // Programs return -1 whatever it was.
    let name = magnitude(text).filter(|value| *value > 1).and_then(name_of)?;
    let marker = marker(tokens, at)?;
    let counts = tokens.get(at + 1).is_some_and(|next| {
        next.text.starts_with(char::is_alphabetic) && !AFTER.contains(&next.text)
    });
    let by_verb = text.starts_with('-') && verb_in_text(marker).is_some();
    (!counts && (by_verb || WEAK.contains(&marker))).then_some(name)
}

/// The word that tells what the number at this place is.
fn marker<'t>(tokens: &[Token<'t>], at: usize) -> Option<&'t str> {
    let before = tokens.get(..at)?.iter().rev().map(|token| token.text);
    before.into_iter().find(|word| !BETWEEN.contains(word))
}

/// A word, or a number with its sign.
struct Token<'t> {
    text: &'t str,
    /// Nothing but `:` or the like is between it and what comes before.
    joined: bool,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut rest) = (Vec::<Token<'_>>::new(), text);
    while let Some(start) = rest.find(is_word) {
        let (gap, from) = rest.split_at(start);
        let end = start + from.find(|c: char| !is_word(c)).unwrap_or(from.len());
        // In `a-14` it is no sign.
        let is_signed = from.starts_with(|c: char| c.is_ascii_digit())
            && gap.ends_with('-')
            && (tokens.is_empty() || gap.len() > 1);
        let start = if is_signed { start - 1 } else { start };
        let joined = !tokens.is_empty() && gap.chars().all(|c| ":./-".contains(c));
        let text = rest.get(start..end).unwrap_or_default();
        tokens.push(Token { text, joined });
        rest = rest.get(end..).unwrap_or_default();
        // What a verb was called with: `ibv_reg_mr(pd, 0x7f, 4096)`.
        if let Some(arguments) = rest.strip_prefix('(').filter(|_| verb_in_text(text).is_some()) {
            rest = arguments.split_once(')').map_or("", |(_, rest)| rest);
        }
    }
    tokens
}

/// The verb that a text names: `ibv_` and its name, or its name alone. The longest name counts.
pub fn verb_in_text(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .map(|word| word.trim_start_matches("__").strip_prefix("ibv_").unwrap_or(word))
        .find_map(|word| VERBS.iter().find(|(name, _)| *name == word).map(|(_, verb)| *verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_by_name_number_and_words() {
        for (text, name) in [
            ("ENOMEM", Some("ENOMEM")),
            ("ibv_reg_mr: enomem!", Some("ENOMEM")),
            ("Couldn't allocate MR: Bad address", Some("EFAULT")),
            ("Unknown error 524", Some("ENOTSUPP")),
            ("ENOTSUP", Some("EOPNOTSUPP")),
            ("VENOMEM", None),
            ("", None),
        ] {
            assert_eq!(in_text(text), name, "{text}");
        }
        assert_eq!((name_of(12), name_of(3)), (Some("ENOMEM"), None));
    }

    #[test]
    fn errnos_by_number_in_the_forms_that_programs_print() {
        for (text, name) in [
            ("ibv_reg_mr failed with errno=14", Some("EFAULT")),
            ("ibv_reg_mr failed, errno: 14", Some("EFAULT")),
            ("ibv_reg_mr() failed (errno 14)", Some("EFAULT")),
            ("ibv_reg_mr: ret=-1 errno=12", Some("ENOMEM")),
            ("ibv_reg_mr(pd, 0x7f, 22) = NULL, errno is 12", Some("ENOMEM")),
            ("ibv_reg_mr returned -12", Some("ENOMEM")),
            ("ibv_reg_mr returned 12 in server.c", Some("ENOMEM")),
            ("ibv_reg_mr failed: 14", Some("EFAULT")),
            ("ibv_reg_mr failed with error code 14", Some("EFAULT")),
            ("ibv_reg_mr failed, err(-12)", Some("ENOMEM")),
            ("ibv_reg_mr -14", Some("EFAULT")),
            ("ibv_reg_mr: rc = -524", Some("ENOTSUPP")),
            ("ibv_reg_mr failed 12 times", None),
            ("ibv_reg_mr returned 12 bytes", None),
            ("ibv_reg_mr returned -1", None),
            ("server.c:14: ibv_reg_mr", None),
            ("ibv_reg_mr of 22", None),
            ("mlx5-14", None),
            ("", None),
        ] {
            assert_eq!(by_number(text), name, "{text}");
        }
        for (text, number) in [
            ("ibv_reg_mr failed with errno=999", Some("999")),
            ("ibv_reg_mr failed: errno:999", Some("999")),
            ("ibv_reg_mr returned -1", Some("-1")),
            ("ibv_reg_mr(pd, 0x7f, 4096) failed", None),
            ("server.c:14: ibv_reg_mr failed", None),
            ("ibv_reg_mr failed at server.c:14", None),
            ("12 ibv_foo", None),
        ] {
            assert_eq!(number_behind_verb(text).as_deref(), number, "{text}");
        }
    }

    #[test]
    fn verbs_as_they_are_called() {
        for (text, verb) in [
            ("ibv_reg_mr", Some("reg_mr")),
            ("reg_mr(0x7f, 4096)", Some("reg_mr")),
            ("__ibv_reg_mr_iova2 failed", Some("reg_mr")),
            ("ibv_dereg_mr", Some("dereg_mr")),
            ("my_reg_mr", None),
            ("ibv_create_cq: x", Some("create_cq")),
        ] {
            assert_eq!(verb_in_text(text), verb, "{text}");
        }
    }
}
