use super::*;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

fn below(root: &tempfile::TempDir) -> Files {
    Files::below(Some(root.path())).unwrap()
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn sick_host() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let pci = root.path().join("sys/devices/0000:c1:00.0");
    put(&pci, "net/eth2/mtu", "9000\n");
    put(root.path(), "sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n");
    std::os::unix::fs::symlink(&pci, root.path().join("sys/class/infiniband/mlx5_0/device"))
        .unwrap();
    put(root.path(), "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "96\n");
    put(root.path(), "sys/kernel/debug/mlx5/0000:c1:00.0/cc_params/np_cnp_dscp", "48\n");
    put(root.path(), "sys/kernel/debug/mlx5/0000:c1:00.0/cc_params/np_cnp_prio", "6\n");
    // A device with nothing but a name must not hide the others.
    put(root.path(), "sys/class/infiniband/a_odd0/node_type", "x");
    root
}

fn dcb_of(arguments: &[&str]) -> Option<String> {
    match arguments {
        ["-j", "app", "show", "dev", "eth2"] => {
            Some(r#"{"dscp_prio":[[26,3],[48,6],["x",1],[99,3]]}"#.to_owned())
        }
        ["-j", "pfc", "show", "dev", "eth2"] => Some(
            r#"{"pfc_cap":8,"prio_pfc":[false,false,false,true,false,false,false,false]}"#
                .to_owned(),
        ),
        _ => None,
    }
}

#[test]
fn each_value_comes_with_the_place_it_was_read_in() {
    let root = sick_host();
    let variable = |name: &str| (name == "NCCL_IB_TC").then(|| "106".to_owned());
    let host = read(&below(&root), None, &dcb_of, &variable);
    let places: Vec<(u8, &str)> =
        host.roce_dscp.iter().map(|v| (v.value, v.from.as_str())).collect();
    assert_eq!(
        places,
        [
            (26, "NCCL_IB_TC"),
            (26, "/sys/class/infiniband/mlx5_0/tc/1/traffic_class"),
            (24, "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"),
        ]
    );
    assert_eq!((host.roce_prio(), host.cnp_dscp(), host.cnp_prio()), (Some(3), Some(48), Some(6)));
    assert_eq!(host.pfc[0].priorities, [3].into());
    assert_eq!(host.map.len(), 2);
    assert!(host.marking().is_some());
    let none = read(&below(&root), Some("a_odd0"), &dcb_of, &|_| None);
    assert!(none.says_nothing());
}

#[test]
fn what_is_said_on_the_command_line_comes_first() {
    let root = sick_host();
    let mut host = read(&below(&root), None, &dcb_of, &|_| None);
    host.say(Some(24), None, None, None);
    assert_eq!((host.roce_dscp(), host.roce_dscp.len()), (Some(24), 1));
    // Its priority is that of the map, which does not know 24.
    assert_eq!(host.roce_prio(), None);
}

#[test]
fn broadcoms_configfs() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "sys/class/infiniband/bnxt_re0/node_type", "1");
    for (file, text) in
        [("roce_dscp", "26"), ("roce_prio", "3"), ("cnp_dscp", "0x30"), ("cnp_prio", "9")]
    {
        put(root.path(), &format!("sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/{file}"), text);
    }
    let host = read(&below(&root), None, &|_| None, &|_| None);
    assert_eq!(
        (host.roce_dscp(), host.roce_prio(), host.cnp_dscp()),
        (Some(26), Some(3), Some(48))
    );
    assert_eq!(host.cnp_prio(), None, "9 is no priority");
}

/// mlx5 trusts the VLAN's priority until a DSCP has one.
#[test]
fn a_map_that_is_empty_is_not_one_that_nobody_told() {
    let root = sick_host();
    let read = |answer: &'static str| {
        let dcb = move |_: &[&str]| Some(answer.to_owned());
        read(&below(&root), None, &dcb, &|_| None)
    };
    for none in ["{}", r#"{"dscp_prio":[]}"#] {
        let host = read(none);
        assert_eq!((host.unmapped.as_slice(), host.map.len()), (&["eth2".to_owned()][..], 0));
    }
    assert!(read("no answer").unmapped.is_empty() && read("[]").unmapped.is_empty());
    let silent = super::read(&below(&root), None, &|_| None, &|_| None);
    assert!(silent.unmapped.is_empty());
}

#[test]
fn a_program_that_does_not_end_is_ended() {
    let program = |words: &[&str]| {
        let mut command = Command::new("sh");
        command.arg("-c").args(words);
        command
    };
    let briefly = Duration::from_millis(50);
    assert_eq!(told_by(program(&["exec sleep 1000"]), briefly), None);
    let long = Duration::from_secs(60);
    assert_eq!(told_by(program(&["echo a"]), long).as_deref(), Some("a\n"));
    assert_eq!(told_by(program(&["echo a; exit 3"]), long), None);
    assert_eq!(told_by(Command::new("/nonexistent"), long), None);
}

proptest! {
    #[test]
    fn no_answer_panics(text in ".{0,60}", json in r#"\{"(dscp_prio|prio_pfc)":\[(\[[0-9]{1,4},[0-9]{1,3}\]|true|1|null|"x")?\]\}"#) {
        for text in [text, json] {
            let _ = dscp_priorities(&text);
            let _ = pfc_priorities(&text);
            let _ = last_number(&text);
        }
    }
}
