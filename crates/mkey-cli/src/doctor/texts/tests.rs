use super::*;
use crate::doctor::launcher::Launcher;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn chinese(text: &str) -> bool {
    text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c))
}

/// The names in braces.
fn gaps(text: &str) -> BTreeSet<String> {
    let parts = text.split('{').skip(1).filter_map(|part| part.split_once('}'));
    parts.map(|(gap, _)| gap.to_owned()).collect()
}

fn pair(pair: &Pair, of: &str) {
    let nothing = of == "count-once";
    assert!(nothing != (!pair.en.is_empty() && !chinese(&pair.en)), "{of}: {pair:?}");
    // Names, states and figures alone are the same everywhere.
    assert!(
        chinese(&pair.zh) || gaps(&pair.en) == gaps(&pair.zh) && pair.en.len() < 60,
        "{of}: {pair:?}"
    );
    assert_eq!(gaps(&pair.en), gaps(&pair.zh), "{of}");
}

#[test]
fn every_code_has_words_in_both_languages_and_no_others_have() {
    let words = Words::load().unwrap();
    let told: Vec<Code> = words.checks.iter().map(|about| about.code).collect();
    assert_eq!(told, Code::ALL, "in the order of the codes");
    for about in &words.checks {
        let of = about.code.name();
        pair(&about.title, of);
        pair(&about.why, of);
        assert!(chinese(&about.why.zh) && !about.says.is_empty(), "{of}");
        for (name, text) in &about.says {
            pair(text, &format!("{of} {name}"));
        }
    }
    for (name, text) in &words.common {
        pair(text, name);
    }
}

#[test]
fn names_are_stable_words() {
    let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(names.len(), Code::ALL.len());
    assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_')));
    for code in Code::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.name());
    }
}

#[test]
fn the_documentation_lists_the_codes_with_their_titles() {
    let page = include_str!("../../../../../docs/doctor.md");
    let words = Words::load().unwrap();
    let rows: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(code, title)| (code, title.trim_end_matches(" |")))
        .filter(|(code, _)| code.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .collect();
    let expected: Vec<(&str, &str)> =
        words.checks.iter().map(|about| (about.code.name(), &*about.title.en)).collect();
    assert_eq!(rows, expected);
}

/// The sources of the checks.
fn sources() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doctor");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    files.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The texts in quotes of a source without its tests.
fn quoted(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    code.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn no_sentence_and_no_mend_is_without_use() {
    let words = Words::load().unwrap();
    let used: BTreeSet<String> = sources().iter().flat_map(|(_, text)| quoted(text)).collect();
    let merge = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doctor/merge");
    let merge: BTreeSet<String> = ["mod.rs", "read.rs", "text.rs"]
        .iter()
        .flat_map(|name| quoted(&fs::read_to_string(merge.join(name)).unwrap()))
        .collect();
    for about in &words.checks {
        for name in about.says.keys() {
            assert!(used.contains(name), "{} {name}", about.code);
        }
    }
    for name in words.common.keys() {
        let started = name.starts_with("started-");
        assert!(started || used.contains(name) || merge.contains(name), "{name}");
    }
    for mend in &words.mends {
        assert!(used.contains(&mend.id), "{}", mend.id);
    }
}

/// `Finding::new(Code::X, ..., "name")` and `.mend("name")` of the sources.
#[test]
fn every_finding_has_a_sentence_and_every_mend_a_text() {
    let words = Words::load().unwrap();
    let (mut findings, mut mends) = (0, 0);
    for (path, text) in sources() {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for part in code.split("Finding::new(Code::").skip(1) {
            let arguments = part.split(')').next().unwrap_or_default();
            let variant = arguments.split(',').next().unwrap_or_default();
            let code = Code::ALL.iter().find(|code| format!("{code:?}") == variant);
            let code = code.unwrap_or_else(|| panic!("{variant} in {}", path.display()));
            let Some(name) = arguments.split('"').nth(1) else { continue };
            findings += 1;
            let about = words.about(*code).unwrap();
            let known = about.says.contains_key(name) || words.common.contains_key(name);
            assert!(known, "{code} {name} in {}", path.display());
        }
        // Where the sentence is chosen first: one of a code of this file.
        let of_file: Vec<&About> = words
            .checks
            .iter()
            .filter(|about| code.contains(&format!("Code::{:?}", about.code)))
            .collect();
        for part in code.split("(Status::").skip(1) {
            let chosen = part.split(')').next().unwrap_or_default();
            let Some(name) = chosen.split('"').nth(1) else { continue };
            findings += 1;
            let known = of_file.iter().any(|about| about.says.contains_key(name))
                || words.common.contains_key(name);
            assert!(known, "{name} in {}", path.display());
        }
        for part in code.split(".mend(\"").skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            mends += 1;
            assert!(words.mends.iter().any(|mend| mend.id == name), "{name} in {}", path.display());
        }
    }
    assert!(findings > 120 && mends > 35, "{findings} {mends}");
}

#[test]
fn mends_are_in_both_languages_and_shells_take_their_commands() {
    let words = Words::load().unwrap();
    let launchers =
        ["systemd", "systemd-user", "docker", "kubernetes", "container", "slurm", "shell"];
    for mend in &words.mends {
        pair(&mend.what, &mend.id);
        assert!(chinese(&mend.what.zh), "{}", mend.id);
        assert!(mend.launcher.iter().all(|l| launchers.contains(&l.as_str())), "{}", mend.id);
        for line in mend.run.iter().chain(&mend.then) {
            let line = fill(line, |_| Some("word".to_owned()));
            let shell =
                std::process::Command::new("sh").args(["-n", "-c", &line]).output().unwrap();
            assert!(shell.status.success(), "{line}: {shell:?}");
        }
    }
    // Whoever started it, there is something to do.
    let finding = Finding::new(Code::Memlock, Status::Fail, "tiny")
        .value("soft", 1)
        .value("hard", 1)
        .mend("memlock");
    let systemd = Launcher::Systemd { unit: "a b.service".to_owned() };
    for launcher in
        [Launcher::Shell, systemd, Launcher::Docker, Launcher::Kubernetes, Launcher::Slurm]
    {
        for lang in [Lang::En, Lang::Zh] {
            let check = words.check(&finding, &launcher, lang);
            assert_eq!(gap(&check), None, "{check:?}");
            assert_eq!(check.mend.len(), 1, "{launcher:?}");
            let unit = check.mend[0].run.iter().any(|line| line.contains("'a b.service'"));
            assert_eq!(unit, launcher.name() == "systemd");
        }
    }
}

#[test]
fn what_is_the_hosts_is_no_command_in_a_container() {
    let words = Words::load().unwrap();
    let finding = Finding::new(Code::MapCount, Status::Fail, "full").word("more", 7);
    let finding = finding.mend("max-map-count");
    let mend = |launcher: &Launcher, lang| words.check(&finding, launcher, lang).mend.remove(0);
    let command = vec!["sudo sysctl vm.max_map_count=7".to_owned()];
    for launcher in [Launcher::Docker, Launcher::Kubernetes] {
        let mend = mend(&launcher, Lang::En);
        assert_eq!((&mend.run, &mend.then, &mend.edit), (&vec![], &vec![], &command));
        assert!(mend.what.starts_with("On the host, not in the container"), "{}", mend.what);
    }
    assert!(mend(&Launcher::Docker, Lang::Zh).what.starts_with("在主机上"));
    assert_eq!(mend(&Launcher::Slurm, Lang::En).run, command);
    // Whatever writes to the kernel's settings is marked so.
    for mend in &words.mends {
        let own = mend.launcher.as_deref().is_some_and(|l| l != "kubernetes");
        let writes = |line: &String| {
            ["/sys/", "/proc/sys", "sysctl", "modprobe"].iter().any(|part| line.contains(part))
        };
        if !own && mend.run.iter().any(writes) && !mend.id.ends_with("cgroup") {
            assert!(mend.host, "{}", mend.id);
        }
    }
}

#[test]
fn gaps_are_filled_once_and_words_of_files_stay_words() {
    let word = |gap: &str| (gap == "a").then(|| "{a}$(x)".to_owned());
    assert_eq!(fill("{a} {b} {", word), "{a}$(x) {b} {");
    assert_eq!(shell_word("mlx5_0"), "mlx5_0");
    assert_eq!(shell_word("a'; reboot"), r"'a'\''; reboot'");
    assert_eq!(shell_word(""), "''");
    assert_eq!(shell_word("a\nb"), "'a\u{fffd}b'");
}
