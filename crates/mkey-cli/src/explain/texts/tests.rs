use super::*;
use mkey_core::status::WcStatus;
use std::collections::HashSet;

fn library() -> Library {
    Library::load().unwrap()
}

fn chinese(text: &str) -> bool {
    text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c))
}

#[test]
fn every_text_is_in_both_languages_with_a_source() {
    let library = library();
    assert!(library.entries.len() > 200 && library.claims.len() >= 15);
    for entry in &library.entries {
        let id = &entry.id;
        assert!(!entry.en.is_empty() && !chinese(&entry.en) && !entry.source.is_empty(), "{id}");
        // Names of things (PSV, URB, DC) are the same everywhere.
        assert!(chinese(&entry.zh) || entry.zh == entry.en, "{id}");
        for cause in &entry.causes {
            assert!(cause.en.iter().all(|text| !text.is_empty() && !chinese(text)), "{id}");
            assert!(cause.zh.iter().all(|text| !text.is_empty()) && chinese(&cause.zh[0]), "{id}");
        }
        assert!(
            entry.signs.iter().all(|sign| *sign == sign.to_lowercase() && sign.len() > 9),
            "{id}"
        );
    }
    for claim in &library.claims {
        assert!(
            claim.en.iter().all(|text| !chinese(text)) && claim.zh.iter().any(|text| chinese(text)),
            "{}",
            claim.id
        );
        assert!(!claim.source.is_empty() && !claim.names.is_empty());
    }
}

#[test]
fn ids_are_unique_and_references_lead_somewhere() {
    let library = library();
    let mut ids = HashSet::new();
    for entry in &library.entries {
        assert!(ids.insert(&entry.id), "{} twice", entry.id);
        assert!(entry.claims.iter().all(|id| library.claim(id).is_some()), "{}", entry.id);
        if let Some(other) = &entry.see {
            assert!(library.entry(other).is_some(), "{}: {other}", entry.id);
        }
    }
}

#[test]
fn every_completion_status_is_there_by_libibverbs_name() {
    let library = library();
    // RD's and tag matching's included: enum ibv_wc_status has 0 to 23.
    for number in 0..24 {
        let entry = library.entry(&format!("status/{number}")).unwrap();
        assert!(entry.names[0].starts_with("IBV_WC_"), "{number}");
        if let Some(status) = WcStatus::from_u32(number) {
            let name: String =
                entry.names[0].replace("IBV_WC_", "").to_lowercase().replace('_', "");
            assert_eq!(name, format!("{status:?}").to_lowercase(), "{number}");
        }
    }
    assert!(library.entry("status/24").is_none());
    // What can happen has causes.
    for number in [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 19, 21] {
        assert!(!library.entry(&format!("status/{number}")).unwrap().causes.is_empty(), "{number}");
    }
}

#[test]
fn every_asynchronous_event_is_there() {
    let library = library();
    let names = [
        "CQ_ERR",
        "QP_FATAL",
        "QP_REQ_ERR",
        "QP_ACCESS_ERR",
        "COMM_EST",
        "SQ_DRAINED",
        "PATH_MIG",
        "PATH_MIG_ERR",
        "DEVICE_FATAL",
        "PORT_ACTIVE",
        "PORT_ERR",
        "LID_CHANGE",
        "PKEY_CHANGE",
        "SM_CHANGE",
        "SRQ_ERR",
        "SRQ_LIMIT_REACHED",
        "QP_LAST_WQE_REACHED",
        "CLIENT_REREGISTER",
        "GID_CHANGE",
        "WQ_FATAL",
        "DEVICE_SPEED_CHANGE",
    ];
    for (number, name) in names.iter().enumerate() {
        let entry = library.entry(&format!("event/{number}")).unwrap();
        assert_eq!(entry.names, [format!("IBV_EVENT_{name}")]);
    }
}

#[test]
fn every_errno_of_the_verbs_is_there() {
    let library = library();
    let known = [
        (
            "reg_mr",
            &[
                "EINVAL",
                "EPERM",
                "ENOMEM",
                "EFAULT",
                "EOPNOTSUPP",
                "ENOTSUPP",
                "EAGAIN",
                "ENOSPC",
                "EOVERFLOW",
                "EIO",
                "EBADF",
            ][..],
        ),
        ("alloc_mw", &["EINVAL", "EOPNOTSUPP", "ENOMEM", "EAGAIN"]),
        ("bind_mw", &["EINVAL", "EPERM", "ENOTSUPP", "ENOMEM"]),
        ("dereg_mr", &["EBUSY"]),
        ("dealloc_pd", &["EBUSY"]),
        ("advise_mr", &["EOPNOTSUPP"]),
        ("create_qp", &["EINVAL", "ENOMEM", "EOPNOTSUPP", "EPERM", "EAGAIN"]),
        ("create_cq", &["ENOMEM"]),
        ("fork_init", &["EINVAL"]),
        // Of what is called before any verb of memory.
        ("any", &["ENOENT", "EACCES", "ENODEV", "ETIMEDOUT"]),
    ];
    let mut count = 0;
    for (verb, errnos) in known {
        for errno in errnos {
            let entry = library.entry(&format!("errno/{verb}/{errno}"));
            assert!(
                entry.is_some_and(|entry| verb != "reg_mr" || !entry.causes.is_empty()),
                "{verb} {errno}"
            );
            count += 1;
        }
    }
    assert_eq!(count, library.entries_of("errno/").count());
}

#[test]
fn every_firmware_status_and_vendor_value_is_there() {
    let library = library();
    for name in [
        "internal error",
        "bad operation",
        "bad parameter",
        "bad system state",
        "bad resource",
        "resource busy",
        "limits exceeded",
        "bad resource state",
        "bad index",
        "no resources",
        "FW not ready",
        "bad input length",
        "bad output length",
        "bad QP state",
    ] {
        assert!(library.entry(&format!("firmware/{name}")).is_some(), "{name}");
    }
    let decoded = |value: u8| super::super::vendor::decode(&library, value, Lang::En);
    let families = [0x10, 0x18, 0x20, 0x28, 0x30, 0x38, 0x50, 0x60, 0x78, 0xc0, 0xc8u8];
    let singles = [
        0x41, 0x49, 0x58, 0x59, 0x5a, 0x68, 0x69, 0x6a, 0x6b, 0x6d, 0x6f, 0x71, 0x72, 0x73, 0xd1,
        0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xda, 0xdc, 0xdd, 0xe0, 0xf1, 0xf2, 0xf3, 0xf5,
        0xf7, 0xf8, 0xf9, 0xfb, 0xfc, 0xfd, 0xff, 0x99u8,
    ];
    for value in families.iter().flat_map(|base| (0..8).map(move |detail| base + detail)) {
        assert!(decoded(value).is_some(), "{value:#x}");
    }
    for value in singles.into_iter().chain(0x80..=0x97).chain(0xa0..=0xbf) {
        assert!(decoded(value).is_some(), "{value:#x}");
    }
    for (value, part) in [
        (0x51, "gathered data to send: PCIe error"),
        (0x52, "different PDs"),
        (0x53, "right is missing"),
        (0x54, "bounds"),
        (0x56, "page fault"),
        (0x81, "no response at all"),
        (0x88, "refused the access"),
        (0xa5, "timer 5"),
    ] {
        assert!(decoded(value).unwrap().0.contains(part), "{value:#x}: {:?}", decoded(value));
    }
    assert_eq!(decoded(0), None);
}

/// Whatever code the library's errors have, it is explained: read from where they are given out.
#[test]
fn every_code_of_mkey_is_there() {
    let source = include_str!("../../../../mkey-core/src/error.rs");
    let codes: Vec<u16> = source
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("Reason::")?
                .split_once(" => ")?
                .1
                .trim_end_matches(',')
                .parse()
                .ok()
        })
        .collect();
    assert!(codes.len() >= 39, "{codes:?}");
    let library = library();
    for code in &codes {
        assert!(library.entry(&format!("code/{code}")).is_some(), "MK{code:04}");
    }
    assert_eq!(library.entries_of("code/").count(), codes.len());
}

/// Each claim is told where somebody would look it up: by its own words, and (but for those of
/// switches and of mlxconfig, which `mkey config` tells) at the errors that it is about.
#[test]
fn every_correction_is_told_where_it_is_looked_up() {
    let library = library();
    for claim in &library.claims {
        for name in &claim.names {
            let found = super::super::find::find(&library, std::slice::from_ref(name));
            let told = found
                .iter()
                .any(|one| matches!(one, super::super::find::Found::Claim(c) if c.id == claim.id));
            assert!(told, "{name}: {found:?}");
        }
        let referred = library.entries.iter().any(|entry| entry.claims.contains(&claim.id));
        assert!(
            referred || ["h3c-block", "mst-restart"].contains(&claim.id.as_str()),
            "{}",
            claim.id
        );
    }
}

#[test]
fn a_check_of_a_process_stands_where_it_belongs() {
    let library = library();
    let checks = library.entries_of("errno/reg_mr/").flat_map(|entry| &entry.causes);
    let checks: Vec<Check> = checks.filter_map(|cause| cause.check).collect();
    for check in [
        Check::Rights,
        Check::Wraps,
        Check::Empty,
        Check::HugeSplit,
        Check::MemlockZero,
        Check::Memlock,
        Check::VmaLimit,
        Check::Unmapped,
        Check::ProtNone,
        Check::ReadOnly,
        Check::DeviceMemory,
        Check::SharedFile,
        Check::HugePool,
        Check::SecretMemory,
    ] {
        assert!(checks.contains(&check), "{check:?}");
    }
}
