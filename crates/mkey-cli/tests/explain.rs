//! `mkey explain`, run.

mod common;

use common::{mkey, run};
use mkey_os::mapping::{Mapping, PageKind};
use std::io::Write;
use std::process::Stdio;

#[test]
fn everything_can_be_asked_in_both_languages() {
    for (what, en, zh) in [
        (&["ibv_reg_mr", "ENOMEM"][..], "RLIMIT_MEMLOCK", "一页都计入"),
        (&["12"], "retry_cnt times the timeout", "没有收到可接受的应答"),
        (&["Failed status 4: wr_id 0 syndrom 0x51"], "GPU memory", "够不到"),
        (&["vendor", "0x51"], "PCIe error", "PCIe 错误"),
        (&["IBV_EVENT_QP_ACCESS_ERR"], "responder's view", "本端的样子"),
        (&["key", "0x2be"], "index 0x2, variant 0xbe", "索引 0x2"),
        (&["MK0008"], "mkey config host --memlock", "已用、允许的量"),
        (&["ODP_SUPPORT"], "There is no such parameter", "没有这个参数"),
    ] {
        for (lang, part) in [("en", en), ("zh", zh)] {
            let arguments = [&["explain", "--lang", lang], what].concat();
            let (code, stdout, stderr) = run(&mut mkey(&arguments));
            assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
            // Lines are broken where they are full, in Chinese between any two characters.
            let squeezed = |text: &str| text.split_whitespace().collect::<String>();
            assert!(squeezed(&stdout).contains(&squeezed(part)), "{part:?} is not in\n{stdout}");
            assert!(!stdout.contains('\u{1b}'));
            let han = stdout.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
            assert_eq!(han, lang == "zh", "{stdout}");
        }
    }
}

#[test]
fn a_vendor_err_ranks_the_causes_of_its_status() {
    for (value, part) in
        [("0x51", "GPU memory"), ("0x85", "Packets are lost"), ("0x53", "lacks LOCAL_WRITE")]
    {
        let (code, stdout, _) =
            run(&mut mkey(&["explain", "vendor", value, "--json", "-", "--lang", "en"]));
        assert_eq!(code, 0);
        let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let (verdict, cause) = first(&report);
        assert!(verdict == "found" && cause.contains(part), "{stdout}");
    }
}

#[test]
fn the_environment_decides_the_language() {
    let mut command = mkey(&["explain", "10"]);
    command.env_remove("LC_ALL").env_remove("LC_MESSAGES").env("LANG", "zh_CN.UTF-8");
    let (_, stdout, _) = run(&mut command);
    assert!(stdout.contains("对端网卡拒绝"), "{stdout}");
    command.env("LC_ALL", "C");
    let (_, stdout, _) = run(&mut command);
    assert!(stdout.contains("The peer's NIC refused"), "{stdout}");
}

#[test]
fn what_nobody_knows_is_2_with_what_is_like_it() {
    let (code, stdout, stderr) = run(&mut mkey(&["explain", "IBV_WC_ACCESS"]));
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("is not known; there are") && stderr.contains("IBV_WC_"), "{stderr}");
    let (code, _, stderr) = run(&mut mkey(&["explain", "--pid", "4294967295"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("no such process"), "{stderr}");
    let (code, ..) = run(&mut mkey(&["explain", "ENOMEM", "--addr", "0x1000"]));
    assert_eq!(code, 2);
}

#[test]
fn nothing_is_guessed_silently() {
    for (what, part) in [
        (&["ibv_reg_mr", "FOO"][..], "\"FOO\" is not known"),
        (
            &["ibv_foo", "ENOMEM"],
            "\"ibv_foo\" is not known; the verbs that are known are ibv_reg_mr",
        ),
        (&["ibv_foo"], "\"ibv_foo\" is not known; the verbs that are known are ibv_reg_mr"),
        (&["ibv_reg_mr", "ENOMEN"], "the nearest that is known is ENOMEM"),
        (&["ENOMEN"], "the nearest that is known is ENOMEM"),
        (&["Failed status 99: wr_id 0 syndrom 0x99"], "\"status 99\" is not known"),
        (&["key", "0xfffffffff"], "key: a number of at most 32 bits"),
        (&["key"], "key: a number of at most 32 bits"),
        (&["vendor", "0xffff"], "vendor: a number of at most 8 bits"),
        (&["MK9999"], "the codes of mkey are MK0001 to"),
    ] {
        let (code, stdout, stderr) = run(&mut mkey(&[&["explain"], what].concat()));
        assert_eq!((code, stdout.as_str()), (2, ""), "{what:?}");
        assert!(stderr.contains(part), "{what:?}: {stderr}");
    }
    for (lang, what, first) in [
        ("en", "ENOMEM", "No verb is named: ENOMEM is explained for each verb"),
        ("zh", "ENOMEM", "没有指明 verb"),
        ("en", "12", "12 is taken for completion status 12, and for errno ENOMEM of ibv_reg_mr."),
    ] {
        let (code, stdout, _) = run(&mut mkey(&["explain", "--lang", lang, what]));
        assert!(code == 0 && stdout.starts_with(first), "{stdout}");
    }
}

#[test]
fn a_length_of_nothing_is_refused() {
    let pid = std::process::id().to_string();
    let what = ["explain", "ibv_reg_mr", "EFAULT", "--pid", &pid, "--addr", "0", "--len", "0"];
    let (code, stdout, stderr) = run(&mut mkey(&what));
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("at least 1 byte"), "{stderr}");
}

#[test]
fn a_log_on_standard_input_is_annotated() {
    for arguments in [&["explain", "--lang", "en"][..], &["explain", "--lang", "en", "-"]] {
        let mut child =
            mkey(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let log = "start\n Failed status 10: wr_id 0 syndrom 0x88\nend\n";
        child.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.starts_with(
                "start\n Failed status 10: wr_id 0 syndrom 0x88\n    ^ IBV_WC_REM_ACCESS_ERR"
            ),
            "{text}"
        );
        assert!(text.ends_with("end\n"));
    }
}

/// What `--pid` says of this very process, as JSON.
fn look(what: &[&str], address: u64, length: u64, access: &str) -> serde_json::Value {
    let (pid, address, length) =
        (std::process::id().to_string(), format!("{address:#x}"), length.to_string());
    let process =
        ["--pid", &pid, "--addr", &address, "--len", &length, "--access", access, "--json", "-"];
    let (code, stdout, stderr) = run(&mut mkey(&[&["explain"], what, &process].concat()));
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).unwrap()
}

fn first(value: &serde_json::Value) -> (&str, &str) {
    let cause = &value["sections"][0]["causes"][0];
    (cause["verdict"].as_str().unwrap(), cause["cause"].as_str().unwrap())
}

#[test]
fn a_live_process_decides_which_cause_it_is() {
    let fault = &["ibv_reg_mr", "EFAULT"];
    let mapping = Mapping::new(1 << 20, PageKind::Base).unwrap();
    let (address, length) = (mapping.addr() as u64, mapping.len() as u64);
    // Nothing stands against it: no cause is found.
    let value = look(fault, address, length, "local_write");
    let causes = value["sections"][0]["causes"].as_array().unwrap();
    assert!(
        causes.len() > 5 && causes.iter().all(|cause| cause["verdict"] != "found"),
        "{value:#}"
    );
    // The first page of the address space is never mapped.
    let value = look(fault, 0, 4096, "local_write");
    assert_eq!(first(&value).0, "found");
    assert!(first(&value).1.contains("Nothing is mapped"), "{value:#}");
    // Constants of a program are read-only.
    static TEXT: [u8; 64] = *b"constants of a program lie where nobody may write them, not even";
    let value = look(fault, TEXT.as_ptr() as u64, 64, "local_write");
    assert_eq!(first(&value).0, "found");
    assert!(first(&value).1.contains("read-only"), "{value:#}");
    let seen = value["sections"][0]["causes"][0]["evidence"].as_str().unwrap();
    assert!(seen.contains(" r-"), "{seen}");
    let value = look(fault, TEXT.as_ptr() as u64, 64, "remote_read");
    assert!(first(&value).0 != "found", "{value:#}");
    // Rights that exclude each other are seen without any page.
    let value = look(&["ibv_reg_mr", "EINVAL"], address, length, "remote_write");
    assert!(first(&value).1.contains("without LOCAL_WRITE"), "{value:#}");
}

#[test]
fn without_an_errno_what_stands_against_a_registration_is_listed() {
    let value = look(&[], 0, 4096, "remote_write");
    let sections = value["sections"].as_array().unwrap();
    let ids: Vec<&str> = sections.iter().map(|section| section["id"].as_str().unwrap()).collect();
    assert!(
        ids.contains(&"errno/reg_mr/EFAULT") && ids.contains(&"errno/reg_mr/EINVAL"),
        "{ids:?}"
    );
    assert_eq!(value["process"]["pid"], std::process::id());
}

/// A number is taken for the errno that it is, however it is told; or the question is refused.
#[test]
fn an_errno_by_its_number_is_no_question_about_all() {
    for what in [
        &["ibv_reg_mr failed with errno=14"][..],
        &["ibv_reg_mr failed: 14"],
        &["ibv_reg_mr", "returned", "-14"],
        &["ibv_reg_mr", "-14"],
        &["--", "ibv_reg_mr", "-14"],
        &["ibv_reg_mr(pd, 0x7f5e00000000, 4096) failed: Bad address (14)"],
    ] {
        let arguments = [&["explain", "--lang", "en", "--json", "-"], what].concat();
        let (code, stdout, stderr) = run(&mut mkey(&arguments));
        assert_eq!((code, stderr.as_str()), (0, ""), "{what:?}");
        let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let sections = report["sections"].as_array().unwrap();
        assert_eq!(sections.len(), 1, "{what:?}");
        assert_eq!(sections[0]["id"], "errno/reg_mr/EFAULT", "{what:?}");
    }
    for what in ["ibv_reg_mr failed with errno=999", "ibv_reg_mr returned -1"] {
        let (code, stdout, stderr) = run(&mut mkey(&["explain", "--lang", "en", what]));
        assert_eq!((code, stdout.as_str()), (2, ""), "{what}");
        assert!(stderr.contains("is not known; an errno by its number"), "{stderr}");
    }
    let mut child = mkey(&["explain", "--lang", "en"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let log =
        "ibv_reg_mr failed with errno=14\nibv_reg_mr returned -12\nibv_reg_mr failed 12 times\n";
    child.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let notes = text.lines().filter(|line| line.starts_with("    ^ ")).count();
    assert!(notes == 2 && text.contains(": EFAULT") && text.contains(": ENOMEM"), "{text}");
    assert!(text.ends_with("ibv_reg_mr failed 12 times\n"), "{text}");
}

#[test]
fn an_errno_of_no_verb_is_explained_by_itself() {
    for errno in ["ENOENT", "EACCES", "ENODEV", "ETIMEDOUT"] {
        let (code, stdout, _) = run(&mut mkey(&["explain", "--lang", "en", errno]));
        assert!(code == 0 && stdout.starts_with(errno), "{stdout}");
        let (code, stdout, stderr) =
            run(&mut mkey(&["explain", "--lang", "en", "ibv_reg_mr", errno]));
        assert_eq!((code, stdout.as_str()), (2, ""));
        let expected = format!("ibv_reg_mr is not known to give {errno}; see mkey explain {errno}");
        assert!(stderr.contains(&expected), "{stderr}");
    }
}

#[test]
fn the_commonest_errors_are_told_in_chinese_too() {
    for (what, code, part) in [
        (&["xyzzy"][..], 2, "不认识 \"xyzzy\"；示例见"),
        (&["ENOMEN"], 2, "最接近的是 ENOMEM"),
        (&["key"], 2, "key：请给最多 32 位的数"),
        (&["status", "99"], 2, "status：请给 0 到"),
        (&["--pid", "4294967295"], 1, "没有这个进程"),
    ] {
        let arguments = [&["explain", "--lang", "zh"], what].concat();
        let (ended, stdout, stderr) = run(&mut mkey(&arguments));
        assert_eq!((ended, stdout.as_str()), (code, ""), "{what:?}");
        assert!(stderr.contains(part), "{what:?}: {stderr}");
    }
}

/// A process that has ended and was not waited for has no memory that could lack a mapping.
#[test]
fn a_zombie_is_told_as_one() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    // It has ended when the kernel says so, and stays there until it is waited for.
    let status = format!("/proc/{pid}/status");
    while !std::fs::read_to_string(&status).unwrap().contains("State:\tZ") {
        std::thread::yield_now();
    }
    let pid = pid.to_string();
    let range = ["--pid", &pid, "--addr", "0x1000", "--len", "4096"];
    let arguments = [&["explain", "--lang", "en", "ibv_reg_mr", "EFAULT"], &range[..]].concat();
    let (code, stdout, stderr) = run(&mut mkey(&arguments));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("has ended"), "{stderr}");
    let (code, stdout, stderr) = run(&mut mkey(&["doctor", "--lang", "zh", "--pid", &pid]));
    assert_eq!((code, stdout.as_str()), (3, ""));
    assert!(stderr.contains("已经结束"), "{stderr}");
    child.wait().unwrap();
}
