use super::compare::{Difference, Merged, Odd, Share, compare};
use super::read;
use super::text;
use crate::doctor::finding::Status;
use crate::doctor::texts::Words;
use crate::lang::Lang;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// A report with one check.
fn report(host: &str, status: &str, soft: &str) -> String {
    let host = serde_json::to_string(host).unwrap();
    format!(
        r#"{{"kind":"mkey-doctor","schema":1,"host":{host},"checks":[
            {{"code":"MEMLOCK","subject":"","status":{status:?},"found":"{soft} may be locked",
              "values":{{"soft":{soft:?}}},"measured":{{"left":{host}}},"mend":[{{"what":"Raise it.","run":["raise"]}}]}}]}}"#
    )
}

fn merged(folder: &Path) -> Merged {
    let words = Words::load().unwrap();
    let (hosts, skipped) = read::folder(folder, &words, Lang::En).unwrap();
    compare(&hosts, skipped)
}

#[test]
fn the_odd_host_is_told_with_the_value_of_most() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.json", &report("a", "ok", "unlimited"));
    put("b.json", &report("b", "ok", "unlimited"));
    put("c.json", &report("c", "fail", "64 KiB"));
    let merged = merged(folder.path());
    let odd = vec![Odd { host: "c".into(), value: Some("64 KiB".into()) }];
    let majority = Some(Share { value: Some("unlimited".into()), hosts: 2 });
    let (code, subject, value) = ("MEMLOCK".into(), String::new(), "soft".into());
    assert_eq!(merged.differences, [Difference { code, subject, value, majority, odd }]);
    assert_eq!(merged.mends.len(), 1);
    assert_eq!(
        (merged.mends[0].status, &*merged.mends[0].hosts),
        (Status::Fail, &["c".into()][..])
    );
    assert_eq!(merged.exit_code(), 2);
    let words = Words::load().unwrap();
    let text = text::merged(&merged, &words, Lang::En);
    for part in ["3 hosts", "2 of 3 have unlimited", "64 KiB: c", "@ c", "raise"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(text::merged(&merged, &words, Lang::Zh).contains("3 台主机"));
}

#[test]
fn hosts_that_are_alike_and_well_are_0_and_without_a_majority_nobody_is_odd() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.json", &report("a", "ok", "unlimited"));
    put("b.json", &report("b", "ok", "unlimited"));
    // What is so at the moment may differ.
    assert_eq!(
        (merged(folder.path()).exit_code(), merged(folder.path()).differences.len()),
        (0, 0)
    );
    put("b.json", &report("b", "warn", "8 MiB"));
    let two = merged(folder.path());
    assert_eq!((two.exit_code(), &two.differences[0].majority), (1, &None));
    assert_eq!(two.differences[0].odd.len(), 2);
    // A host that lacks the whole check.
    put("b.json", r#"{"kind":"mkey-doctor","schema":1,"host":"b","checks":[]}"#);
    put("c.json", &report("c", "ok", "unlimited"));
    let lacks = merged(folder.path());
    assert_eq!(lacks.differences[0].odd, [Odd { host: "b".into(), value: None }]);
}

#[test]
fn what_is_no_report_is_skipped_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("a.json", report("a", "ok", "1").as_bytes());
    put("again.json", report("a", "ok", "1").as_bytes());
    put("not-looked-at.txt", b"x");
    put("b.json", b"{");
    put("c.json", b"[1,2]");
    put("d.json", br#"{"kind":"mkey-bench","schema":1}"#);
    put("e.json", br#"{"kind":"mkey-doctor","schema":2,"host":"e","checks":[]}"#);
    put("f.json", b"\xff\xfe");
    put("g.json", br#"{"kind":"mkey-doctor","schema":1,"host":"g","checks":[{"code":1}]}"#);
    put("h.json", b"");
    fs::create_dir(folder.path().join("i.json")).unwrap();
    let large = fs::File::create(folder.path().join("j.json")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    std::os::unix::fs::symlink("/nonexistent", folder.path().join("k.json")).unwrap();
    // Control characters reach no terminal.
    put("z.json", report("z\u{1b}[31m", "ok", "1").as_bytes());
    let merged = merged(folder.path());
    assert_eq!(merged.hosts, ["a (a.json)", "a (again.json)", "z\u{fffd}[31m"]);
    let skipped: Vec<&str> = merged.skipped.iter().map(|skip| &*skip.file).collect();
    let expected = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k"].map(|n| format!("{n}.json"));
    assert_eq!(skipped, expected);
    assert_eq!(merged.exit_code(), 1);
}

/// Why a file was skipped names what mends it; a name that is no text is a name.
#[test]
fn what_was_skipped_says_why_and_one_host_is_compared_with_none() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &[u8], bytes: &[u8]| {
        fs::write(folder.path().join(OsStr::from_bytes(name)), bytes).unwrap();
    };
    let whole = report("a", "ok", "1").into_bytes();
    put(b"\xff.json", &whole);
    put(b"cut.json", &whole[..whole.len() / 2]);
    put(b"empty.json", b"");
    put(b"foreign.json", b"[1,2]");
    fs::create_dir(folder.path().join("folder.json")).unwrap();
    let unread =
        br#"{"kind":"mkey-doctor","schema":1,"host":"u","unread":["/x is not there"],"checks":[]}"#;
    put(b"unread.json", unread);
    let merged = merged(folder.path());
    assert_eq!(merged.hosts, ["a"]);
    let skipped: Vec<_> = merged.skipped.iter().map(|s| (&*s.file, &*s.why)).collect();
    let again = "make it again with mkey doctor --json";
    assert_eq!(
        skipped,
        [
            ("cut.json", &*format!("cut off: {again}")),
            ("empty.json", &*format!("empty: {again}")),
            ("folder.json", "no file"),
            ("foreign.json", "not a report of mkey doctor"),
            (
                "unread.json",
                "no verdict on this host: what all others rest on could not be read there (/x is not there)"
            ),
        ]
    );
    let words = Words::load().unwrap();
    let text = text::merged(&merged, &words, Lang::En);
    for part in ["1 host\n", "One host alone", "Nothing to mend on it."] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("alike"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_damaged_report_is_read_or_skipped(at in 0usize..300, byte in any::<u8>()) {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = report("a", "fail", "1").into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        fs::write(folder.path().join("a.json"), bytes).unwrap();
        let merged = merged(folder.path());
        prop_assert_eq!(merged.hosts.len() + merged.skipped.len(), 1);
    }
}
