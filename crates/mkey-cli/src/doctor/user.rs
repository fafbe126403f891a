//! What limits.d, PAM and systemd give a user who logs in, or a service.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use super::memlock::{judge, shown};
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
    let groups = groups(&at.files, user);
    let told = told(&at.files, user, groups.as_deref().unwrap_or_default());
    let pam = pam(&at.files);
    let service = service_default(&at.files);
    let finding = match (&told, &pam) {
        (None, _) => Finding::new(Code::MemlockUser, Status::Warn, "not-told"),
        (Some(_), None) => Finding::new(Code::MemlockUser, Status::Warn, "no-pam"),
        (Some(told), Some(_)) => {
            let (status, says) = judge(told.limit.soft);
            Finding::new(Code::MemlockUser, status, says)
        }
    };
    let mut finding = finding
        .of(user.clone())
        .word("user", user)
        .value("listed", groups.is_some())
        .value("service", service.unwrap_or_else(|| "not set".to_owned()))
        .mend("memlock-user");
    if let Some(Told { limit, file }) = told {
        finding =
            finding.value("soft", shown(limit.soft)).value("hard", shown(limit.hard)).file(&file);
    }
    if let Some(pam) = pam {
        finding = finding.word("pam", format!("/{pam}")).file(&pam);
    }
    vec![finding]
}

/// The groups of a user; `None` if the host's own files do not list the user.
fn groups(files: &Files, user: &str) -> Option<Vec<String>> {
    let passwd = files.text("etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').next() == Some(user))?;
    let own = line.split(':').nth(3).unwrap_or_default();
    let all = files.text("etc/group").unwrap_or_default();
    let groups = all.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        let members = fields.next().unwrap_or_default();
        let is_of = number == own || members.split(',').any(|member| member == user);
        is_of.then(|| name.to_owned())
    });
    Some(groups.collect())
}

/// How closely a line of limits.conf names somebody. A closer line wins; of two alike the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    Everybody,
    Group,
    User,
}

/// What limits.conf and limits.d say; of a soft or hard limit that is not told the kernel's stays.
fn told(files: &Files, user: &str, groups: &[String]) -> Option<Told> {
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
            let Some((closeness, kind, limit)) = line_of(line, user, groups) else { continue };
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
fn line_of<'l>(
    line: &'l str,
    user: &str,
    groups: &[String],
) -> Option<(Closeness, &'l str, Option<u64>)> {
    let line = line.split('#').next().unwrap_or_default();
    let mut fields = line.split_whitespace();
    let (domain, kind, item, value) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if item != "memlock" || !matches!(kind, "soft" | "hard" | "-") {
        return None;
    }
    let closeness = if domain == user {
        Closeness::User
    } else if domain.strip_prefix('@').is_some_and(|group| groups.iter().any(|own| own == group)) {
        Closeness::Group
    } else if domain == "*" && user != "root" {
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

    fn line(line: &str) -> Option<(&str, Option<u64>)> {
        line_of(line, "alice", &["rdma".to_owned()]).map(|(_, kind, limit)| (kind, limit))
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
        assert_eq!(line_of("* - memlock unlimited", "root", &[]), None);
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
        let limit = |user: &str, groups: &[String]| told(&files, user, groups).unwrap().limit;
        let kib = |n: u64| Some(n * 1024);
        assert_eq!(limit("alice", &[]), Limit { soft: kib(200), hard: kib(300) });
        assert_eq!(limit("bob", &[]), Limit { soft: None, hard: None });
        assert_eq!(limit("bob", &["rdma".to_owned()]), Limit { soft: kib(1), hard: kib(1) });
        assert!(told(&files, "root", &[]).is_none());
        put("etc/passwd", "alice:x:7:70::/:/bin/sh\n");
        put("etc/group", "own:x:70:\nrdma:x:71:bob,alice\nno:x:72:bob\nodd\n");
        assert_eq!(groups(&files, "alice").unwrap(), ["own", "rdma"]);
        assert_eq!(groups(&files, "carol"), None);
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
