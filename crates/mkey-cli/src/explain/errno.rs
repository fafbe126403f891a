//! Names of errno and of verbs, as people and programs write them.

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
