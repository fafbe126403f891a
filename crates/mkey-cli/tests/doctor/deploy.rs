//! What `deploy/` has is whole, and calls `mkey` as it wants to be called.

use clap::Parser;
use mkey_cli::cli::Cli;
use std::path::{Path, PathBuf};
use std::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn yaml(name: &str) -> Vec<Yaml> {
    let text = std::fs::read_to_string(file(name)).unwrap();
    YamlLoader::load_from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_daemon_set_runs_the_monitor_on_each_node() {
    let all = yaml("kubernetes/daemonset.yaml");
    let set = all.iter().find(|one| one["kind"].as_str() == Some("DaemonSet")).unwrap();
    let (selector, pod) = (&set["spec"]["selector"]["matchLabels"], &set["spec"]["template"]);
    assert_eq!(selector, &pod["metadata"]["labels"]);
    let container = &pod["spec"]["containers"][0];
    let command: Vec<&str> =
        container["command"].as_vec().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(command, ["mkey", "monitor", "--prometheus", "0.0.0.0:9180"]);
    assert_eq!(container["ports"][0]["containerPort"].as_i64(), Some(9180));
    let mounts = container["volumeMounts"].as_vec().unwrap();
    let volumes = pod["spec"]["volumes"].as_vec().unwrap();
    for mount in mounts {
        assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount:?}");
    }
}

/// What is asked in it has to be what other pods get: a privileged pod would say that all is well.
#[test]
fn the_pods_of_doctor_may_do_no_more_than_others() {
    let all = yaml("kubernetes/doctor.yaml");
    let (set, pod) = (&all[0], &all[0]["spec"]["template"]);
    assert_eq!(set["kind"].as_str(), Some("DaemonSet"));
    assert_eq!(set["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]);
    assert_eq!(pod["metadata"]["labels"]["app"].as_str(), Some("mkey-doctor"));
    let gather = std::fs::read_to_string(file("kubernetes/gather.sh")).unwrap();
    assert!(gather.contains("--selector app=mkey-doctor"));
    let security = &pod["spec"]["containers"][0]["securityContext"];
    assert_eq!(security["privileged"].as_bool(), Some(false));
    assert!(security["capabilities"].is_badvalue() && pod["spec"]["volumes"].is_badvalue());
    // The image has a user of its own, whose capabilities would not be in effect.
    let monitor = yaml("kubernetes/daemonset.yaml");
    let monitor = monitor.iter().find(|one| one["kind"].as_str() == Some("DaemonSet")).unwrap();
    let monitor = &monitor["spec"]["template"]["spec"]["containers"][0]["securityContext"];
    assert_eq!(monitor["runAsUser"].as_i64(), Some(0));
}

#[test]
fn the_play_gathers_and_compares_reports() {
    let all = yaml("ansible/doctor.yml");
    let plays = all[0].as_vec().unwrap();
    assert_eq!(plays.len(), 2);
    let mut commands = Vec::new();
    for task in plays.iter().flat_map(|play| play["tasks"].as_vec().unwrap()) {
        assert!(task["name"].as_str().is_some(), "{task:?}");
        if let Some(words) = task["ansible.builtin.command"]["argv"].as_vec() {
            let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
            // A task that only looks says so, and takes warnings and failures for what they are.
            assert_eq!(task["changed_when"].as_bool(), Some(false));
            assert!(task["failed_when"].as_str().unwrap().contains("rc > 2"));
            commands.push(words);
        }
    }
    assert_eq!(commands.len(), 2);
    assert_eq!(commands[0][0], "/usr/local/bin/mkey");
    for command in commands {
        Cli::try_parse_from(&command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }
}

#[test]
fn the_scrape_job_is_for_the_monitors_port() {
    let all = yaml("prometheus/scrape.yml");
    let jobs = all[0]["scrape_configs"].as_vec().unwrap();
    assert_eq!(jobs[0]["job_name"].as_str(), Some("mkey"));
    let targets = jobs[0]["static_configs"][0]["targets"].as_vec().unwrap();
    assert!(!targets.is_empty() && targets.iter().all(|t| t.as_str().unwrap().ends_with(":9180")));
}

/// Run with programs in place of kubectl, srun and hostname; `mkey` is the one that was built.
#[test]
fn the_scripts_gather_reports_and_compare_them() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let program = |name: &str, text: &str| {
        let path = bin.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    program(
        "kubectl",
        "#!/bin/sh\ncase \"$3\" in\nget) echo pod/mkey-3; echo pod/mkey-1; echo pod/mkey-2;;\nexec) [ $4 = pod/mkey-3 ] && exit 126; shift 5; exec \"$@\";;\nesac\n",
    );
    // The options of srun, and then the command, once for each node.
    program("srun", "#!/bin/sh\nshift 2\nNODE=n1 \"$@\" && NODE=n2 \"$@\"\n");
    program("hostname", "#!/bin/sh\necho $NODE\n");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mkey"), bin.join("mkey")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for (script, names) in [
        ("kubernetes/gather.sh", ["mkey-1.json", "mkey-2.json"]),
        ("slurm/gather.sh", ["n1.json", "n2.json"]),
    ] {
        let reports = folder.path().join(script.replace('/', "-"));
        let output = Command::new("sh")
            .arg(file(script))
            .arg(&reports)
            .env("PATH", &path)
            .env("SLURM_JOB_NUM_NODES", "2")
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("2 hosts"), "{script}: {text}\n{output:?}");
        assert!(
            !text.contains("this process"),
            "{script}: the report of a node is no result: {text}"
        );
        // A folder that has reports already is refused.
        let mut again = Command::new("sh");
        again.arg(file(script)).arg(&reports).env("PATH", &path).env("SLURM_JOB_NUM_NODES", "2");
        assert_eq!(again.output().unwrap().status.code(), Some(3));
        for name in names {
            assert!(reports.join(name).exists(), "{script}: {name}");
        }
    }
}
