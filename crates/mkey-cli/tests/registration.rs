//! `mkey bench registration` and `mkey model` from end to end, with little memory and time.

mod common;

use common::{alone, huge_pages, interrupted_once_reserved, mkey, run, skipped};
use mkey_cli::bench::registration::report::{Figures, Sweep, Term};
use mkey_cli::bench::report::Outcome;
use mkey_cli::model::report::{Model, Part, PredictionOutcome};
use roxmltree::{Document, ParsingOptions};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

const SMALL: [&str; 6] = ["--sizes", "4KiB..1MiB", "--pages", "4KiB", "--time", "1s"];
const LABEL: &str = "figures of the software RNIC mkey0, not of a NIC";

fn sweep(arguments: &[&str]) -> Sweep {
    let (code, stdout, stderr) =
        run(mkey(&["bench", "registration", "--json", "-"]).args(arguments));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

fn measured(sweep: &Sweep) -> Vec<(u64, &Figures)> {
    let figures = |row: &'_ mkey_cli::bench::registration::report::Row| match &row.outcome {
        Outcome::Measured(_) => row.bytes,
        Outcome::NotMeasured(missing) => panic!("{row:?}: {missing:?}"),
    };
    sweep.rows.iter().map(|row| (figures(row), row.figures().unwrap())).collect()
}

/// Until the pool is as it was. The last pins of a process end a while after it, in a thread of the
/// kernel, and pages that were given back go with them; there is no event for that.
fn given_back(before: u64) {
    let patience = Instant::now() + Duration::from_secs(20);
    while huge_pages() != before {
        assert!(Instant::now() < patience, "{} huge pages, {before} before", huge_pages());
        std::thread::yield_now();
    }
}

/// A page as it was written, well formed and with plots.
fn check_page(path: &Path) -> String {
    let html = fs::read_to_string(path).unwrap();
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&html, options).unwrap();
    let plots = document.descendants().filter(|node| node.has_tag_name("svg")).count();
    assert!(plots >= 3, "{plots} plots");
    assert!(!html.contains("http") && html.contains("software RNIC"));
    html
}

#[test]
fn a_sweep_comes_out_with_all_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (code, text, stderr) = run(mkey(&["bench", "registration"])
        .args(SMALL)
        .arg("--json")
        .arg(path("s.json"))
        .arg("--csv")
        .arg(path("s.csv"))
        .arg("--html")
        .arg(path("s.html")));
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    assert!(text.contains(LABEL) && text.contains("256 KiB"), "{text}");
    let sweep: Sweep = serde_json::from_slice(&fs::read(path("s.json")).unwrap()).unwrap();
    let rows = measured(&sweep);
    assert_eq!(
        rows.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(),
        [4096, 8192, 16384, 32768, 65536, 131_072, 262_144, 524_288, 1_048_576]
    );
    for (bytes, figures) in &rows {
        assert!(figures.register.median_ns > 0.0 && figures.deregister.median_ns > 0.0, "{bytes}");
        assert!(figures.register.p99_ns >= figures.register.median_ns, "{bytes}");
        assert!(figures.register.samples >= 3, "{bytes}");
        let terms = figures.terms.unwrap();
        assert!(terms.table.median_ns > 0.0 && terms.command.is_none(), "{figures:?}");
        let (whole, split) = figures.split(false).unwrap();
        let sum: f64 = split.iter().map(|(_, ns)| ns).sum();
        assert!((sum - whole).abs() < 1.0, "{split:?} of {whole}");
    }
    // 256 pages cost more than a few. What the machine does meanwhile may make one size dear, not
    // all three.
    let few = rows[..3].iter().map(|(_, few)| few.register.median_ns).fold(f64::MAX, f64::min);
    assert!(rows[8].1.register.median_ns > few, "{rows:?}");
    let mut csv = csv::Reader::from_path(path("s.csv")).unwrap();
    assert_eq!(csv.records().count(), rows.len());
    check_page(&path("s.html"));
}

#[test]
fn so_many_samples_as_asked() {
    let sweep = sweep(&["--sizes", "4KiB,64KiB", "--pages", "4kib", "--samples", "40"]);
    for (bytes, figures) in measured(&sweep) {
        let taken =
            figures.register.samples + if figures.disturbed { 0 } else { figures.preempted };
        assert_eq!(taken, 40, "{bytes}");
    }
}

#[test]
fn huge_pages_are_reserved_and_given_back() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        skipped("huge_pages_are_reserved_and_given_back", "reserving needs root");
        return;
    }
    let before = huge_pages();
    let sweep = sweep(&["--sizes", "4KiB..16MiB", "--pages", "2MiB", "--time", "1s"]);
    let sizes: Vec<u64> = measured(&sweep).iter().map(|(bytes, _)| bytes >> 20).collect();
    assert_eq!(sizes, [2, 4, 8, 16]);
    given_back(before);
}

#[test]
fn an_interrupted_sweep_gives_its_huge_pages_back_and_leaves_no_files() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        skipped("an_interrupted_sweep_gives_its_huge_pages_back", "reserving needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("s.json"), folder.path().join("s.html"));
    let before = huge_pages();
    let mut command = mkey(&["bench", "registration", "--sizes", "2MiB..64MiB", "--pages", "2MiB"]);
    command.args(["--time", "60s", "--json"]).arg(&json).arg("--html").arg(&html);
    let Output { status, stderr, .. } = interrupted_once_reserved(&mut command, 32, Signal::INT);
    assert_eq!(String::from_utf8(stderr).unwrap(), "mkey: stopping\n");
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status:?}");
    given_back(before);
    assert!(!json.exists() && !html.exists(), "an interrupted run left a report");
}

#[test]
fn a_declared_command_is_in_the_figures_and_marked() {
    const COST_NS: f64 = 300_000.0;
    let small = ["--sizes", "4KiB..32KiB", "--pages", "4KiB", "--samples", "20"];
    let sweep = sweep(&[&small[..], &["--command-cost", "300us"]].concat());
    assert!(sweep.rows.iter().all(|row| row.simulated));
    for (_, figures) in measured(&sweep) {
        assert!(figures.register.median_ns >= COST_NS * 0.99, "{figures:?}");
        assert!(figures.terms.unwrap().command.unwrap().median_ns >= COST_NS * 0.99);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    fs::write(&file, serde_json::to_vec(&sweep).unwrap()).unwrap();
    let (code, text, _) = run(mkey(&["model", "--from"]).arg(&file));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("register, simulated") && text.contains("command of 300us"), "{text}");
}

/// With kprobes the kernel's own times come out; without, why not and what would mend it.
#[test]
fn stages_come_out_or_are_told_to_be_missing() {
    let arguments = ["--sizes", "4KiB..64KiB", "--pages", "4KiB", "--time", "1s", "--stages"];
    let (code, stdout, stderr) =
        run(mkey(&["bench", "registration", "--json", "-"]).args(arguments));
    assert_eq!(code, 0, "{stdout}{stderr}");
    let sweep: Sweep = serde_json::from_str(&stdout).unwrap();
    let probes = sweep.probes.as_ref().unwrap();
    assert!(probes.chain.starts_with("io_uring"), "{probes:?}");
    assert!(probes.absent.iter().any(|(term, _)| *term == Term::Command), "{probes:?}");
    match &probes.missing {
        Some(missing) => {
            assert!(missing.what.starts_with("no kernel stages: "), "{missing:?}");
            assert!(stderr.contains(&missing.what), "{stderr}");
            assert!(sweep.missing.contains(missing), "{sweep:?}");
            assert!(measured(&sweep).iter().all(|(_, figures)| figures.stages.is_none()));
        }
        None => {
            for (bytes, figures) in measured(&sweep) {
                let stages = figures.stages.as_ref().unwrap();
                let pin = stages.stages.iter().find(|stage| stage.stage == "pin pages").unwrap();
                assert!(pin.own_ns > 0.0 && pin.calls >= 1.0, "{bytes}: {stages:?}");
                assert!(stages.verb_ns > stages.outside_ns, "{bytes}: {stages:?}");
            }
        }
    }
}

#[test]
fn a_model_of_its_own_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (code, text, stderr) = run(mkey(&["model", "--predict", "64GiB,1TiB"])
        .args(SMALL)
        .arg("--json")
        .arg(path("m.json"))
        .arg("--html")
        .arg(path("m.html")));
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    assert_eq!(text.matches(LABEL).count(), 3, "{text}");
    let model: Model = serde_json::from_slice(&fs::read(path("m.json")).unwrap()).unwrap();
    let fitted = model.fits[0].fitted().unwrap();
    let register = fitted.register;
    assert!(register.page.value > 0.0 && register.fixed.low < register.fixed.high, "{register:?}");
    assert!((0.0..=1.0).contains(&register.r_squared), "{register:?}");
    assert!(register.left_out.unwrap().worst >= register.left_out.unwrap().median);
    let map = fitted.split.iter().find(|split| split.term == Term::Map).unwrap();
    assert!(matches!(map.page, Part::NotMeasured(_)) && text.contains("not measured"), "{text}");
    assert_eq!(model.predictions.len(), 2);
    for predicted in &model.predictions {
        let PredictionOutcome::Predicted(of) = &predicted.outcome else { panic!("{predicted:?}") };
        assert!(of.register.low <= of.register.value && of.register.value <= of.register.high);
        assert!(of.beyond > 1000.0, "{of:?}");
    }
    assert!(check_page(&path("m.html")).contains("class=\"far"), "no line beyond the sizes");
}

#[test]
fn a_model_of_a_sweep_from_a_file_or_a_pipe_is_the_same() {
    let written = sweep(&SMALL);
    let json = serde_json::to_vec(&written).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    fs::write(&file, &json).unwrap();
    let (code, from_file, stderr) = run(mkey(&["model", "--json", "-", "--from"]).arg(&file));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let mut child = mkey(&["model", "--json", "-", "--from", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&json).unwrap();
    let piped = child.wait_with_output().unwrap();
    let mut models: Vec<Model> = [from_file.as_bytes(), &piped.stdout]
        .into_iter()
        .map(|text| serde_json::from_slice(text).unwrap())
        .collect();
    assert_eq!(models[0].from, file.display().to_string());
    assert_eq!(models[1].from, "standard input");
    models[1].from = models[0].from.clone();
    assert_eq!(models[0], models[1]);
    assert_eq!(models[0].sweep, written);
    // And what a model holds is fitted again.
    fs::write(&file, &from_file).unwrap();
    let (code, again, stderr) = run(mkey(&["model", "--json", "-", "--from"]).arg(&file));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(serde_json::from_str::<Model>(&again).unwrap(), models[0]);
}

#[test]
fn files_that_hold_no_sweep_are_1_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    for content in ["", "{}", "null", "[", "\u{0}", "{\"schema\": 1}"] {
        fs::write(&file, content).unwrap();
        let (code, stdout, stderr) = run(mkey(&["model", "--from"]).arg(&file));
        assert_eq!((code, stdout.as_str()), (1, ""), "{content:?}");
        assert!(stderr.contains("x.json") && stderr.contains("--json FILE"), "{stderr}");
    }
    let (code, _, stderr) = run(&mut mkey(&["model", "--from", "/nonexistent.json"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("/nonexistent.json"), "{stderr}");
    let (code, ..) = run(&mut mkey(&["model", "--from", "/dev/zero"]));
    assert_eq!(code, 1);
}

#[test]
fn wrong_arguments_are_2_and_files_that_can_not_be_written_1() {
    for arguments in [
        &["bench", "registration", "--sizes", "1GiB..4KiB"][..],
        &["bench", "registration", "--sizes", "1"],
        &["bench", "registration", "--pages", "8KiB"],
        &["bench", "registration", "--samples", "0"],
        &["bench", "registration", "--device", "mlx5_9"],
        &["bench", "registration", "--html", "-"],
        &["bench", "--json", "x", "registration"],
        &["model", "--from", "x", "--sizes", "4KiB"],
        &["model", "--predict", "0"],
        &["model", "--html", "-"],
    ] {
        let (code, stdout, stderr) = run(&mut mkey(arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?} {stderr}");
        assert!(!stderr.is_empty());
    }
    for command in [&["bench"][..], &["bench", "registration"], &["model"]] {
        let arguments = [command, &["--html", "/nonexistent/x.html"]].concat();
        let (code, stdout, stderr) = run(&mut mkey(&arguments));
        assert_eq!((code, stdout.as_str()), (1, ""), "{arguments:?}");
        assert!(stderr.contains("/nonexistent/x.html"), "{stderr}");
    }
}

#[test]
fn helps_have_examples() {
    for (arguments, word) in [
        (&["bench", "registration", "--help"][..], "mkey bench registration --json - | mkey model"),
        (&["model", "--help"], "mkey model --from sweep.json"),
        (&["bench", "--help"], "mkey bench --html run.html"),
    ] {
        let (code, stdout, _) = run(&mut mkey(arguments));
        assert_eq!(code, 0);
        assert!(stdout.contains("Examples:") && stdout.contains(word), "{stdout}");
    }
}

#[test]
fn the_bench_writes_a_page() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("b.html");
    let (code, text, stderr) =
        run(mkey(&["bench", "--memory", "4MiB", "--time", "500ms", "--html"]).arg(&html));
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    let page = check_page(&html);
    assert!(page.contains("MW type 2") && page.contains("MR for each I/O"), "{page}");
}
