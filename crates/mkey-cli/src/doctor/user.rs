//! What limits.d, PAM and systemd give a user who logs in, or a service.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use super::memlock::{judge, put};
use crate::files::Files;
use crate::process::Limit;

/// Where a limit of a user is told to stand.
struct Told {
    limit: Limit,
    file: String,
}

/// The check, if a user was asked about.
pub fn check(at: &Context) -> Vec<Finding> {
    let Some(user) = &at.user else { return Vec::new() };
    let listed = Who::listed(&at.files, user);
    let who = listed.clone().unwrap_or_else(|| Who { name: user.clone(), ..Who::default() });
    let told = told(&at.files, &who);
    let pam = pam(&at.files);
    let service = service_default(&at.files);
    let finding = match (&told, &pam) {
        _ if user == "root" || who.uid == Some(0) => {
            Finding::new(Code::MemlockUser, Status::Ok, "root")
        }
        (None, _) if listed.is_none() => {
            Finding::new(Code::MemlockUser, Status::NotReadable, "not-listed")
        }
        (None, _) => Finding::new(Code::MemlockUser, Status::Warn, "not-told"),
        (Some(_), None) => Finding::new(Code::MemlockUser, Status::Warn, "no-pam"),
        (Some(told), Some(_)) => {
            let (status, says) = judge(told.limit.soft);
            Finding::new(Code::MemlockUser, status, says)
        }
    };
    let finding = finding
        .of(user.clone())
        .word("user", user)
        .value("listed", listed.is_some())
        .value("service", service.as_deref().unwrap_or("-"));
    let mut finding = match service.as_deref() {
        None => finding.term("service", "not-set"),
        Some("infinity") => finding.term("service", "unlimited-word"),
        Some(_) => finding,
    };
    // What would mend nobody's limit is not told.
    if finding.says != "not-listed" {
        finding = finding.mend("memlock-user");
    }
    if let Some(Told { limit, file }) = told {
        finding = put(put(finding, "soft", limit.soft), "hard", limit.hard).file(&file);
    }
    if let Some(pam) = pam {
        finding = finding.word("pam", format!("/{pam}")).file(&pam);
    }
    vec![finding]
}

/// A user, by the host's own files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Who {
    name: String,
    uid: Option<u32>,
    /// Names and numbers.
    groups: Vec<(String, Option<u32>)>,
}

impl Who {
    /// `None` if the host's own files do not list the user.
    fn listed(files: &Files, user: &str) -> Option<Self> {
        let passwd = files.text("etc/passwd").ok()?;
        let line = passwd.lines().find(|line| line.split(':').next() == Some(user))?;
        let number = |at| line.split(':').nth(at).unwrap_or_default();
        let own = number(3);
        let all = files.text("etc/group").unwrap_or_default();
        let groups = all.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, number) = (fields.next()?, fields.nth(1)?);
            let members = fields.next().unwrap_or_default();
            let is_of = number == own || members.split(',').any(|member| member == user);
            is_of.then(|| (name.to_owned(), number.parse().ok()))
        });
        let (name, uid) = (user.to_owned(), number(2).parse().ok());
        Some(Self { name, uid, groups: groups.collect() })
    }
}

/// Whether a number is in a range of limits.conf(5): `7:9`, `7:` for 7 and above, `:7` for 7 alone.
fn in_range(range: &str, number: Option<u32>) -> bool {
    let (Some((first, last)), Some(number)) = (range.split_once(':'), number) else { return false };
    let bound = |text: &str| text.parse::<u32>().ok();
    match (first.is_empty(), last.is_empty()) {
        (true, false) => bound(last) == Some(number),
        (false, true) => bound(first).is_some_and(|first| number >= first),
        (false, false) => bound(first)
            .zip(bound(last))
            .is_some_and(|(first, last)| (first..=last).contains(&number)),
        (true, true) => false,
    }
}

/// How closely a line of limits.conf names somebody. A closer line wins; of two alike the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    Everybody,
    Group,
    User,
}

/// What limits.conf and limits.d say; of a soft or hard limit that is not told the kernel's stays.
fn told(files: &Files, who: &Who) -> Option<Told> {
    let mut paths = vec!["etc/security/limits.conf".to_owned()];
    let folder = "etc/security/limits.d";
    let names = files.names(folder).unwrap_or_default();
    let names = names.into_iter().filter(|name| name.ends_with(".conf"));
    paths.extend(names.map(|name| format!("{folder}/{name}")));
    let mut soft: Option<(Closeness, Option<u64>, String)> = None;
    let mut hard = None;
    for path in paths {
        let text = files.text(&path).unwrap_or_default();
        for line in text.lines() {
            let Some((closeness, kind, limit)) = line_of(line, who) else { continue };
            let put = |slot: &mut Option<(Closeness, Option<u64>, String)>| {
                if slot.as_ref().is_none_or(|(known, ..)| *known <= closeness) {
                    *slot = Some((closeness, limit, path.clone()));
                }
            };
            match kind {
                "soft" => put(&mut soft),
                "hard" => put(&mut hard),
                _ => {
                    put(&mut soft);
                    put(&mut hard);
                }
            }
        }
    }
    // A hard limit alone lowers the soft one only where that is higher.
    let (_, limit, file) = soft.clone().or_else(|| hard.clone())?;
    let hard = hard.map_or(limit, |(_, hard, _)| hard);
    let soft = match (limit, hard) {
        (Some(soft), Some(hard)) => Some(soft.min(hard)),
        (None, Some(hard)) => Some(hard),
        (soft, None) => soft,
    };
    Some(Told { limit: Limit { soft, hard }, file })
}

/// A line that is about locked memory and this user: how closely, of which kind, bytes.
fn line_of<'l>(line: &'l str, who: &Who) -> Option<(Closeness, &'l str, Option<u64>)> {
    let line = line.split('#').next().unwrap_or_default();
    let mut fields = line.split_whitespace();
    let (domain, kind, item, value) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if item != "memlock" || !matches!(kind, "soft" | "hard" | "-") {
        return None;
    }
    let of_group = |group: &str| {
        who.groups.iter().any(|(name, number)| name == group || in_range(group, *number))
    };
    let closeness = if domain == who.name || in_range(domain, who.uid) {
        Closeness::User
    } else if domain.strip_prefix('@').is_some_and(of_group) {
        Closeness::Group
    } else if domain == "*" && who.name != "root" {
        // pam_limits(8): the wildcard is not for root.
        Closeness::Everybody
    } else {
        return None;
    };
    let limit = match value {
        "unlimited" | "infinity" | "-1" => None,
        kib => Some(kib.parse::<u64>().ok()?.saturating_mul(1024)),
    };
    Some((closeness, kind, limit))
}

/// A PAM service that applies limits.d at a login.
fn pam(files: &Files) -> Option<String> {
    const SERVICES: [&str; 8] = [
        "sshd",
        "login",
        "system-auth",
        "password-auth",
        "common-session",
        "common-session-noninteractive",
        "su",
        "sudo",
    ];
    let paths = SERVICES.iter().map(|name| format!("etc/pam.d/{name}"));
    paths.into_iter().find(|path| {
        let text = files.text(path).unwrap_or_default();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        lines.any(|line| line.contains("pam_limits.so"))
    })
}

/// DefaultLimitMEMLOCK of systemd, which services have.
fn service_default(files: &Files) -> Option<String> {
    let mut paths = vec!["etc/systemd/system.conf".to_owned()];
    let folder = "etc/systemd/system.conf.d";
    paths.extend(files.names(folder).unwrap_or_default().iter().map(|n| format!("{folder}/{n}")));
    // The last file counts, and the last line in it.
    paths.iter().rev().find_map(|path| {
        let text = files.text(path).ok()?;
        let mut lines = text.lines().rev().map(str::trim);
        lines.find_map(|line| line.strip_prefix("DefaultLimitMEMLOCK=").map(str::to_owned))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str, groups: &[&str]) -> Who {
        let groups = groups.iter().map(|group| ((*group).to_owned(), Some(70)));
        Who { name: name.to_owned(), uid: Some(1000), groups: groups.collect() }
    }

    fn line(line: &str) -> Option<(&str, Option<u64>)> {
        line_of(line, &who("alice", &["rdma"])).map(|(_, kind, limit)| (kind, limit))
    }

    #[test]
    fn lines_of_limits_are_read_as_pam_does() {
        assert_eq!(line("alice soft memlock 64 # why"), Some(("soft", Some(65536))));
        assert_eq!(line("@rdma\t-\tmemlock\tunlimited"), Some(("-", None)));
        assert_eq!(line("* hard memlock -1"), Some(("hard", None)));
        for none in [
            "",
            "# alice soft memlock 64",
            "bob soft memlock 64",
            "@other soft memlock 64",
            "alice soft nofile 64",
            "alice soft memlock",
            "alice soft memlock many",
            "alice mad memlock 1",
        ] {
            assert_eq!(line(none), None, "{none}");
        }
        assert_eq!(line_of("* - memlock unlimited", &who("root", &[])), None);
        for (domain, is_of) in [
            ("1000:", true),
            (":1000", true),
            ("500:1500", true),
            ("@70:80", true),
            ("@:70", true),
            ("1001:", false),
            (":500", false),
            ("@71:", false),
            (":", false),
            ("x:y", false),
        ] {
            let line = format!("{domain} - memlock 1");
            assert_eq!(line_of(&line, &who("alice", &["rdma"])).is_some(), is_of, "{domain}");
        }
    }

    #[test]
    fn the_closest_and_then_the_last_line_wins() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("etc/security/limits.conf", "alice - memlock 100\n* - memlock unlimited\n");
        put("etc/security/limits.d/10-a.conf", "@rdma - memlock 1\nalice hard memlock 300\n");
        put("etc/security/limits.d/20-b.conf", "alice soft memlock 200\n");
        put("etc/security/limits.d/not-read", "alice - memlock 9\n");
        let files = Files::below(Some(root.path())).unwrap();
        let limit = |user: &str, groups: &[&str]| told(&files, &who(user, groups)).unwrap().limit;
        let kib = |n: u64| Some(n * 1024);
        assert_eq!(limit("alice", &[]), Limit { soft: kib(200), hard: kib(300) });
        assert_eq!(limit("bob", &[]), Limit { soft: None, hard: None });
        assert_eq!(limit("bob", &["rdma"]), Limit { soft: kib(1), hard: kib(1) });
        assert!(told(&files, &who("root", &[])).is_none());
        put("etc/passwd", "alice:x:7:70::/:/bin/sh\n");
        put("etc/group", "own:x:70:\nrdma:x:71:bob,alice\nno:x:72:bob\nodd\n");
        let alice = Who::listed(&files, "alice").unwrap();
        let group = |name: &str, number| (name.to_owned(), Some(number));
        assert_eq!(alice.groups, [group("own", 70), group("rdma", 71)]);
        assert_eq!((alice.uid, Who::listed(&files, "carol")), (Some(7), None));
        assert_eq!(pam(&files), None);
        put(
            "etc/pam.d/sshd",
            "# session required pam_limits.so\n session required pam_limits.so\n",
        );
        assert_eq!(pam(&files).as_deref(), Some("etc/pam.d/sshd"));
        put("etc/systemd/system.conf", "#DefaultLimitMEMLOCK=1\nDefaultLimitMEMLOCK=infinity\n");
        assert_eq!(service_default(&files).as_deref(), Some("infinity"));
    }
}
