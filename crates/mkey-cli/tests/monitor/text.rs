//! `mkey monitor --once` and `--json`, as a command.

use crate::common::{mkey, run};
use crate::fixture::{Fixture, crowded, healthy, odd, sick};
use mkey_cli::monitor::kernel::ANSWERS;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

fn once(fixture: &Fixture, more: &[&str]) -> (i32, String, String) {
    let root = fixture.root().to_str().unwrap();
    let arguments = ["monitor", "--once", "--interval", "100ms", "--root", root];
    run(&mut mkey(&[&arguments[..], more].concat()))
}

#[test]
fn a_host_as_text() {
    let (code, stdout, stderr) = once(&healthy(false), &["--lang", "en"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for part in [
        "mkey monitor  well  20",
        "rates of 0.1 s",
        "2 MiB  all    8192  4024       512        0  8.1 GiB",
        "storaged  4711   6 GiB     0 B  unlimited",
        "mlx5_0  in use",
        "storaged 4711",
        "[ib_core]",
        "mlx5_0 ? MW: the kernel does not count them",
        "mlx5_0: regions that its driver counts nothing for (not on demand): 3",
        "req_remote_access_errors",
        "mlx5_0/1: others, by --json: 2",
        "ens1f0: others, at 0: 3",
        "Nothing here is worth a look.",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
    }
    assert!(!stdout.contains('\u{1b}'));
}

/// Below a root that is not the system's own a pool's file may be anything, also without an end.
#[test]
fn figures_of_huge_pages_without_an_end_are_not_read() {
    let fixture = healthy(false);
    for file in
        ["sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "sys/devices/system/node/online"]
    {
        let path = fixture.root().join(file);
        let _ = std::fs::remove_file(&path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    }
    let (code, stdout, stderr) = once(&fixture, &["--lang", "en"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(!stdout.contains("2 MiB  all"), "{stdout}");
}

#[test]
fn a_sick_host_names_what_explains_it_in_both_languages() {
    for (lang, worth) in [("en", "Worth a look"), ("zh", "值得注意")] {
        let (code, stdout, _) = once(&sick(false), &["--lang", lang]);
        assert_eq!(code, 0);
        for part in [
            worth,
            "-> mkey explain ibv_reg_mr ENOMEM --pid 900",
            "-> mkey explain ibv_reg_mr EFAULT",
            "-> mkey explain IBV_EVENT_PORT_ERR",
        ] {
            assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
        }
    }
}

#[test]
fn what_steers_a_terminal_is_not_printed() {
    let (code, stdout, stderr) = once(&odd(false), &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("mlx4_0") && stdout.contains("counters not read: 3"), "{stdout}");
    assert!(!stdout.contains(|c: char| c.is_control() && c != '\n'), "{stdout:?}");
}

#[test]
fn at_most_so_many_rows_and_one_device() {
    let (_, stdout, _) =
        once(&sick(false), &["--top", "1", "--device", "bnxt_re0", "--lang", "en"]);
    assert!(stdout.contains("kvcache") && stdout.contains("and 1 more"), "{stdout}");
    assert!(stdout.contains("bnxt_re0") && !stdout.contains("mlx5_0"), "{stdout}");
    let (code, stdout, stderr) = once(&sick(false), &["--device", "mlx5_9"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("bnxt_re0, irdma0, mlx5_0, rxe0"), "{stderr}");
}

#[test]
fn a_crowded_host_stays_readable() {
    let (code, stdout, _) = once(&crowded(), &["--lang", "en"]);
    assert_eq!(code, 0);
    assert!(
        stdout.contains("  and 291 more") && stdout.contains("mlx5_0: and 1490 more"),
        "{stdout}"
    );
    assert!(stdout.lines().count() < 60, "{stdout}");
}

#[test]
fn one_object_or_one_a_line() {
    let fixture = sick(false);
    let (code, stdout, stderr) = once(&fixture, &["--json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&report["schema"], &report["host"]), (&1.into(), &"sick".into()));
    assert_eq!(report["devices"][2]["name"], "mlx5_0");
    assert_eq!(report["devices"][3]["objects"]["not_read"], "EPERM");
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().any(|one| one["command"] == "mkey explain ibv_reg_mr EFAULT"));

    let root = fixture.root().to_str().unwrap();
    let mut command = mkey(&["monitor", "--json", "--interval", "100ms", "--root", root]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let line = lines.next().unwrap().unwrap();
        let report: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(report["interval"].as_f64().unwrap() >= 0.1);
    }
    // Nobody reads any more: it ends by itself, quietly.
    drop(lines);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn this_host_as_it_is() {
    let (code, stdout, stderr) =
        run(&mut mkey(&["monitor", "--once", "--interval", "100ms", "--json"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(report["pinned"]["processes"].is_array(), "{stdout}");
}

#[test]
fn wrong_use_is_2() {
    for arguments in [
        &["monitor"][..],
        &["monitor", "--interval", "1ms"],
        &["monitor", "--root", "/nonexistent", "--once"],
        &["monitor", "--once", "--prometheus", "127.0.0.1:0"],
        &["monitor", "--prometheus", "somewhere"],
        &["monitor", "--top", "0"],
    ] {
        let (code, stdout, stderr) = run(&mut mkey(arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(!stderr.is_empty());
    }
}

/// The host as it is copied may hold anything where the answers of its kernel belong.
#[test]
fn answers_that_are_no_file_that_has_an_end_are_told() {
    let fixture = healthy(false);
    let path = fixture.root().join(ANSWERS);
    let replaced = |make: &dyn Fn()| {
        std::fs::remove_file(&path).unwrap();
        make();
        let (code, stdout, stderr) = once(&fixture, &["--lang", "en"]);
        assert_eq!((code, stderr.as_str()), (0, ""));
        assert!(!stdout.contains("Nothing here is worth a look."), "{stdout}");
        assert!(stdout.contains("Not read: mlx5_0 objects, mlx5_0 regions"), "{stdout}");
        stdout
    };
    let endless = replaced(&|| std::os::unix::fs::symlink("/dev/zero", &path).unwrap());
    assert!(endless.contains("leads out of the root"), "{endless}");
    let pipe = replaced(&|| {
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
    });
    assert!(pipe.contains("no file"), "{pipe}");
    let long = replaced(&|| std::fs::File::create(&path).unwrap().set_len(3 << 30).unwrap());
    assert!(long.contains("longer than"), "{long}");
}

#[test]
fn nothing_is_read_of_another_host_than_the_copied_one() {
    let fixture = healthy(false);
    let folder = fixture.root().join("proc/9");
    std::fs::create_dir_all(&folder).unwrap();
    // This process may hold none in place, but is read all the same where links are followed.
    std::os::unix::fs::symlink("/proc/self/status", folder.join("status")).unwrap();
    std::os::unix::fs::symlink("/proc/self", fixture.root().join("proc/10")).unwrap();
    let (code, stdout, _) = once(&fixture, &["--lang", "en"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("processes that could not be looked at: 2"), "{stdout}");
    assert!(
        stdout.ends_with("Nothing that could be read is worth a look. Not read: /proc/*/status\n"),
        "{stdout}"
    );
}

#[test]
fn all_is_well_only_where_everything_was_read() {
    let fixture = healthy(false);
    std::fs::write(
        fixture.root().join("sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent"),
        "garbage\n",
    )
    .unwrap();
    let (_, stdout, _) = once(&fixture, &["--lang", "en"]);
    assert!(stdout.ends_with("worth a look. Not read: mlx5_0/1 np_cnp_sent\n"), "{stdout}");
    // Not even /proc and /sys.
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    let path = root.path().to_str().unwrap();
    for (lang, parts) in [
        (
            "en",
            [
                "no process is below /proc",
                "Not read: /sys/kernel/mm/hugepages, /proc, /sys/class/infiniband",
            ],
        ),
        (
            "zh",
            ["/proc 下没有进程", "读不到：/sys/kernel/mm/hugepages、/proc、/sys/class/infiniband"],
        ),
    ] {
        let arguments =
            ["monitor", "--once", "--interval", "100ms", "--root", path, "--lang", lang];
        let (code, stdout, _) = run(&mut mkey(&arguments));
        assert_eq!(code, 0);
        for part in parts {
            assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
        }
        assert!(!stdout.contains("no process pins or locks memory"), "{stdout}");
    }
}

#[test]
fn names_do_not_turn_the_direction_of_writing() {
    let fixture = healthy(false);
    std::fs::write(fixture.root().join("proc/4711/comm"), "\u{202e}evil\u{2066}\n").unwrap();
    for more in [&[][..], &["--json"]] {
        let (_, stdout, _) = once(&fixture, more);
        assert!(stdout.contains("\u{fffd}evil\u{fffd}"), "{stdout}");
        assert!(!stdout.contains(['\u{202e}', '\u{2066}']), "{stdout:?}");
    }
}
