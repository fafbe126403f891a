use super::*;
use crate::explain::texts::Library;
use proptest::prelude::*;

fn annotated(log: &[u8], lang: Lang) -> String {
    let library = Library::load().unwrap();
    let maker = Maker { library: &library, lang, process: None };
    let mut out = Vec::new();
    annotate(&maker, log, &mut out).unwrap();
    String::from_utf8_lossy(&out).into_owned()
}

/// Without the breaks of lines.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn lines_pass_and_what_is_known_stands_below() {
    let log = "hello\nibv_reg_mr: Bad address\nbye\nibv_reg_mr: Bad address";
    let out = annotated(log.as_bytes(), Lang::En);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((lines[0], lines[1]), ("hello", "ibv_reg_mr: Bad address"));
    assert!(lines[2].starts_with("    ^ ibv_reg_mr"), "{out}");
    assert!(joined(&out).contains("(8 causes: mkey explain ibv_reg_mr EFAULT)"), "{out}");
    // The second time the name is enough.
    assert!(out.ends_with("ibv_reg_mr: Bad address\n    ^ ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_dmabuf_mr, ibv_rereg_mr: EFAULT\n"), "{out}");
    let passed: Vec<&str> = out.lines().filter(|line| !line.starts_with("    ")).collect();
    assert_eq!(passed, log.lines().collect::<Vec<_>>());
    assert!(annotated(log.as_bytes(), Lang::Zh).contains("某页无法"));
}

#[test]
fn a_vendor_err_says_which_cause_it_is() {
    let log = "Failed status 12: wr_id 0 syndrom 0x85\n";
    let out = annotated(log.as_bytes(), Lang::En);
    let out = joined(&out);
    assert!(out.contains("(5 causes: mkey explain IBV_WC_RETRY_EXC_ERR)"), "{out}");
    assert!(out.contains("mkey config check --host --switch FILE"), "{out}");
    let out = annotated(b"Failed status 10: wr_id 0 syndrom 0x88\n", Lang::En);
    assert!(joined(&out).contains("(4 causes: mkey explain vendor 0x88)"), "{out}");
}

#[test]
fn dumps_of_completions_are_decoded_in_both_forms() {
    let kernel = "infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe
00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00000030: 00 00 00 00 00 00 88 13 08 00 01 8b 00 02 d2 d2
";
    let library = "mlx5: host: got completion with error:
00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000
00000000 00008914 0800018b 0002d2d2
";
    let out = annotated(kernel.as_bytes(), Lang::En);
    assert!(
        out.contains("^ IBV_WC_REM_ACCESS_ERR, status 10") && out.contains("vendor_err 0x88"),
        "{out}"
    );
    let out = annotated(library.as_bytes(), Lang::En);
    assert!(
        out.contains("^ IBV_WC_REM_OP_ERR, status 11") && out.contains("vendor_err 0x89"),
        "{out}"
    );
    // The same row without what announces it is only numbers.
    let row = "00000030: 00 00 00 00 00 00 88 13 08 00 01 8b 00 02 d2 d2\n";
    assert_eq!(annotated(row.as_bytes(), Lang::En), row);
}

#[test]
fn nothing_in_a_log_steers_the_terminal() {
    let log =
        b"\x1b]0;title\x07\x1b[31mred\tx\r\n\xc2\x9b2J \x9b \xe2\x80\xae \xe6\xb3\xa8\rover\n";
    let out = annotated(log, Lang::En);
    assert_eq!(
        out,
        "\\u{1b}]0;title\\u{7}\\u{1b}[31mred\tx\r\n\\u{9b}2J \\x9b \\u{202e} 注\\u{d}over\n"
    );
    // Where a long line is taken in parts, characters stay whole.
    let long = "注册".repeat(40_000);
    assert_eq!(annotated(long.as_bytes(), Lang::En), long);
}

#[test]
fn bytes_that_are_no_text_and_endless_lines_pass() {
    let mut log = vec![0xff; 200_000];
    log.extend(b"\nIBV_EVENT_QP_FATAL\n");
    let library = Library::load().unwrap();
    let maker = Maker { library: &library, lang: Lang::En, process: None };
    let mut out = Vec::new();
    annotate(&maker, log.as_slice(), &mut out).unwrap();
    assert!(out.starts_with("\\xff".repeat(200_000).as_bytes()));
    assert!(String::from_utf8_lossy(&out).contains("^ IBV_EVENT_QP_FATAL, event 1"));
}

proptest! {
    #[test]
    fn no_log_panics_or_loses_a_line(
        lines in prop::collection::vec("dump error cqe|got completion with error|(00000030: )?([0-9a-f]{2} ){0,17}|([0-9a-f]{8} ?){0,5}|.{0,40}", 0..12),
    ) {
        let log = lines.join("\n");
        let out = annotated(log.as_bytes(), Lang::En);
        for line in log.lines() {
            let shown = line.split('\t').map(printable).collect::<Vec<_>>().join("\t");
            prop_assert!(out.contains(&shown));
        }
    }
}
