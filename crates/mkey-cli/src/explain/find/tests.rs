use super::*;
use crate::explain::report::title;
use proptest::prelude::*;

fn ids(text: &str) -> Vec<String> {
    let library = Library::load().unwrap();
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let names = |one: &Found<'_>| match one {
        Found::Entry(entry) => entry.id.clone(),
        Found::Vendor(value) => format!("vendor {value:#04x}"),
        Found::Key(key) => format!("key {key}"),
        Found::Claim(claim) => format!("claim {}", claim.id),
    };
    find(&library, &words).iter().map(names).collect()
}

#[test]
fn what_can_be_asked() {
    for (text, expected) in [
        ("ibv_reg_mr ENOMEM", &["errno/reg_mr/ENOMEM"][..]),
        ("ENOMEM ibv_reg_dmabuf_mr", &["errno/reg_mr/ENOMEM"]),
        ("ibv_reg_mr: Cannot allocate memory", &["errno/reg_mr/ENOMEM"]),
        ("524", &["errno/reg_mr/ENOTSUPP"]),
        ("errno 14", &["errno/reg_mr/EFAULT"]),
        ("bind_mw EOPNOTSUPP", &["errno/bind_mw/ENOTSUPP"]),
        ("12", &["status/12", "errno/reg_mr/ENOMEM"]),
        ("10", &["status/10"]),
        ("out_of_sequence", &["counter/sequence"]),
        ("RNR sent", &["counter/rnr"]),
        ("rx_prio3_pause", &["counter/pause"]),
        ("pfc_pri7_rx_duration_us", &["counter/pause"]),
        ("rx_priority_3_xoff.nic", &["counter/pause"]),
        ("rx_prio8_pause", &[]),
        ("status 4", &["status/4"]),
        ("IBV_WC_REM_ACCESS_ERR", &["status/10"]),
        ("rem_access_err", &["status/10"]),
        ("remote access error", &["status/10"]),
        ("transport retry counter exceeded", &["status/12"]),
        ("Failed status 4: wr_id 0 syndrom 0x51", &["status/4", "vendor 0x51"]),
        ("vendor 0x51", &["vendor 0x51"]),
        ("vendor_err=129", &["vendor 0x81"]),
        ("IBV_EVENT_QP_ACCESS_ERR", &["event/3"]),
        ("GID_CHANGE", &["event/18"]),
        ("event 3", &["event/3"]),
        ("key 0x2be", &["key 0x000002be"]),
        ("rkey 0xabcdef42", &["key 0xabcdef42"]),
        ("MK0008", &["code/8"]),
        ("mk0037", &["code/37"]),
        ("ODP_SUPPORT", &["claim odp-support"]),
        ("limits exceeded", &["firmware/limits exceeded"]),
        ("", &[]),
        ("mk8", &["code/8"]),
        ("reg_mr 524", &["errno/reg_mr/ENOTSUPP"]),
        ("14 ibv_reg_mr", &["errno/reg_mr/EFAULT"]),
        ("ibv_reg_mr -14", &["errno/reg_mr/EFAULT"]),
        ("ibv_reg_mr failed with errno=14", &["errno/reg_mr/EFAULT"]),
        ("ibv_reg_mr returned -12", &["errno/reg_mr/ENOMEM"]),
        ("-14", &["errno/reg_mr/EFAULT"]),
        ("errno -14", &["errno/reg_mr/EFAULT"]),
        ("ENOENT", &["errno/any/ENOENT"]),
        ("errno 13", &["errno/any/EACCES"]),
        ("-19", &["errno/any/ENODEV"]),
        ("Connection timed out", &["errno/any/ETIMEDOUT"]),
        ("MK9999", &[]),
        ("vendor 0x151", &[]),
        ("nonsense", &[]),
    ] {
        assert_eq!(ids(text), expected, "{text}");
    }
    // A verb alone shows all its errnos.
    assert!(ids("EINVAL").len() >= 5 && ids("EINVAL")[0] == "errno/reg_mr/EINVAL");
    assert_eq!(ids("ibv_alloc_mw").len(), 4);
}

#[test]
fn lines_of_logs() {
    let library = Library::load().unwrap();
    let mlx5 = "mlx5_core 0000:c1:00.0: mlx5_cmd_out_err:839:(pid 4711): CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8), syndrome (0x18af6), err(-12)";
    for (text, expected) in [
        (mlx5, &["mlx5 firmware: limits exceeded", "mlx5 syndrome 0x18af6"][..]),
        (
            " Completion with error at client\n Failed status 10: wr_id 0 syndrom 0x88",
            &["IBV_WC_REM_ACCESS_ERR, status 10", "0x88"],
        ),
        (
            "Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)",
            &["IBV_WC_RETRY_EXC_ERR, status 12", "0x81"],
        ),
        (
            "NET/IB : Got completion from peer 10.0.0.1<4711> with status=12 opcode=0 len=0 vendor err 129",
            &["IBV_WC_RETRY_EXC_ERR, status 12", "0x81"],
        ),
        (
            "libibverbs: Warning: RLIMIT_MEMLOCK is 32768 bytes.\n    This will severely limit memory registrations.",
            &["memlock-warning"],
        ),
        (
            "ibv_reg_mr failed: Bad address",
            &["ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_dmabuf_mr, ibv_rereg_mr: EFAULT"],
        ),
        ("got IBV_EVENT_GID_CHANGE on port 1", &["IBV_EVENT_GID_CHANGE, event 18"]),
        (
            "reg_mr(...): no room [MK0008, ENOMEM]",
            &["MK0008", "ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_dmabuf_mr, ibv_rereg_mr: ENOMEM"],
        ),
        // What is no error of RDMA stays alone.
        ("http: status=12 of the queue", &[]),
        ("open: Cannot allocate memory", &[]),
        ("success", &[]),
        ("a fatal error occurred", &[]),
    ] {
        let found: Vec<String> = line(&library, text)
            .iter()
            .map(|one| match one {
                Found::Entry(entry) => title(entry),
                Found::Vendor(value) => format!("{value:#04x}"),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn what_nobody_knows_is_answered_with_what_there_is() {
    let library = Library::load().unwrap();
    let words = vec!["access".to_owned(), "err".to_owned()];
    let similar = similar(&library, &words);
    assert!(similar.contains(&"IBV_WC_REM_ACCESS_ERR".to_owned()) && similar.len() <= 8);
}

proptest! {
    #[test]
    fn no_words_panic(
        text in ".{0,60}|(vendor|key|status|MK|IBV_WC_|syndrom |failed, status |op_mod|mlx5_cmd|status=|vend )?(0x)?[0-9a-f]{0,20}(.{0,8})",
    ) {
        let library = Library::default();
        let full = Library::load().unwrap();
        for library in [&library, &full] {
            let _ = find(library, std::slice::from_ref(&text));
            let _ = line(library, &text);
            let _ = similar(library, std::slice::from_ref(&text));
        }
    }
}
